/* Elements, icons, and small helpers of the page. Text becomes text nodes: nothing here or elsewhere parses HTML. */

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  plus: ["M12 5v14", "M5 12h14"],
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  sliders: ["M4 8h9", "M19 8h1", "M16 5.5v5", "M4 16h1", "M11 16h9", "M8 13.5v5"],
  send: ["M12 19V6", "M6 11.5 12 5.5l6 6"],
  stop: ["M7.5 7.5h9v9h-9z"],
  copy: ["M9 9h10v10H9z", "M15 9V5H5v10h4"],
  check: ["M5 12.5 10 17 19 7.5"],
  edit: ["M5 19l.8-3.6L16 5.2l2.8 2.8L8.6 18.2z"],
  again: ["M19 12a7 7 0 1 1-2.1-5", "M19.3 4v4h-4"],
  left: ["M14 6l-6 6 6 6"],
  right: ["M10 6l6 6-6 6"],
  down: ["M12 5v13", "M6 12.5l6 6 6-6"],
  trash: ["M5 7h14", "M10 7V4.8h4V7", "M7 7l.8 12h8.4L17 7"],
  close: ["M6 6l12 12", "M18 6 6 18"],
  more: ["M7 6.5 13 12l-6 5.5", "M14 6.5 20 12l-6 5.5"],
  up: ["M12 15V4", "M7.5 8.5 12 4l4.5 4.5", "M5 15v4.5h14V15"],
  save: ["M12 4v11", "M7.5 10.5 12 15l4.5-4.5", "M5 15v4.5h14V15"],
};

/* el("button", {class: "x", onclick: f, disabled: true}, "text", node) */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  for (const d of ICONS[name]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

export function iconButton(name, label, onclick, attributes = {}) {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/* Random, also on pages that are not a secure context, where crypto.randomUUID is missing. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/* Hundreds of marks on one letter cover the page and can halt the browser. */
export function tameMarks(text) {
  return text.replace(/(\p{M}{16})\p{M}+/gu, "$1\u2026");
}

/* Characters that reorder the text around them are shown by number where the order carries meaning: in code and links. */
export function visibleControls(text) {
  return tameMarks(text).replace(/[\u202A-\u202E\u2066-\u2069]/g, (c) => `\u27E8U+${c.charCodeAt(0).toString(16).toUpperCase()}\u27E9`);
}

/* True if the text is on the clipboard. Without HTTPS a browser has only the old way. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "offscreen", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    const focused = document.activeElement;
    (focused?.closest("dialog") ?? document.body).append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return copied;
  }
}

/* A copy button that shows for a moment that it has copied. */
export function copyButton(label, getText, announce) {
  const button = iconButton("copy", label, async () => {
    const copied = await copyText(getText());
    announce(copied ? "Copied" : "The browser does not allow copying");
    if (!copied) return;
    button.replaceChildren(icon("check"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}
