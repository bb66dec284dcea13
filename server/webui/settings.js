/* Settings of a conversation: the system message and the sampler. An empty field leaves the choice to the server. */
import { byId, el } from "./dom.js";
import { readChoice, writeChoice } from "./store.js";

export const FIELDS = [
  { name: "temperature", label: "Temperature", min: 0, max: 5, step: "any", help: "0 always takes the likeliest token. Higher values make answers more varied, then random." },
  { name: "top_p", label: "Top P", min: 0, max: 1, step: "any", help: "Keeps the likeliest tokens that together have this probability. 1 keeps all." },
  { name: "top_k", label: "Top K", min: 0, max: 1000000, step: 1, help: "Keeps this many of the likeliest tokens. 0 keeps all." },
  { name: "min_p", label: "Min P", min: 0, max: 1, step: "any", help: "Drops tokens less probable than this fraction of the likeliest one. 0 drops none." },
  { name: "repeat_penalty", label: "Repeat penalty", min: 0.01, max: 10, step: "any", help: "Above 1, tokens of the last part of the text become less likely." },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: "any", help: "Above 0, tokens that already occurred become less likely: new subjects." },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: "any", help: "Above 0, tokens become less likely with each occurrence: fewer repetitions." },
  { name: "max_tokens", label: "Longest answer", min: 1, max: 10000000, step: 1, help: "In tokens. Empty: until the model ends or the context is full." },
  { name: "seed", label: "Seed", min: 0, max: 4294967294, step: 1, help: "The same seed, settings and messages give the same answer. Empty: random." },
];

/* The server's defaults as a placeholder; numbers that stand for "none" have no value to show. */
function placeholder(field, defaults) {
  const value = defaults?.[field.name];
  if (value === undefined || (field.name === "max_tokens" && value < 0) || (field.name === "seed" && value >= 4294967295)) return field.name === "seed" ? "random" : "none";
  return String(Math.round(value * 10000) / 10000);
}

export function buildFields() {
  byId("sampler").append(...FIELDS.map((field) => el("div", { class: "field" },
    el("label", { for: `set-${field.name}` }, field.label),
    el("input", { id: `set-${field.name}`, type: "number", inputmode: "decimal", min: field.min, max: field.max, step: field.step, "aria-describedby": `help-${field.name}`, autocomplete: "off" }),
    el("p", { id: `help-${field.name}`, class: "help" }, field.help))));
}

export function showDefaults(defaults) {
  for (const field of FIELDS) byId(`set-${field.name}`).placeholder = placeholder(field, defaults);
}

export function fillFields(conversation) {
  byId("system").value = conversation.system;
  for (const { name } of FIELDS) byId(`set-${name}`).value = conversation.settings[name] ?? "";
  byId("theme").value = document.documentElement.dataset.theme ?? "auto";
}

/* Takes the fields over. Returns the first field with a value that is no setting, or null. */
export function readFields(conversation) {
  const settings = {};
  for (const field of FIELDS) {
    const input = byId(`set-${field.name}`);
    if (!input.validity.valid) return input;
    if (input.value !== "") settings[field.name] = Number(input.value);
  }
  conversation.settings = settings;
  conversation.system = byId("system").value;
  writeChoice("defaults", { system: conversation.system, settings });
  return null;
}

export function savedDefaults() {
  const { system, settings } = readChoice("defaults", {});
  return { system: typeof system === "string" ? system : "", settings: typeof settings === "object" ? settings : {} };
}

export function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    /* the theme lasts until the page is closed */
  }
}
