/* The page: which conversation is open, what is being answered, and what the buttons do. */
import { ApiError, hasKey, listModels, modelProperties, setKey, streamChat } from "./api.js";
import { addMessage, adopt, newConversation, requestMessages, select } from "./conversation.js";
import { announce, askKey, hideNotice, showNotice, toast } from "./dialogs.js";
import { byId, icon } from "./dom.js";
import { createKeeper } from "./keeper.js";
import { fitHeight, MessageList } from "./messages.js";
import { buildFields, FIELDS, fillFields, readFields, savedDefaults, setTheme, showDefaults } from "./settings.js";
import { buildSidebar, closeDrawer, showList } from "./sidebar.js";
import { onOtherTab, openStore, readChoice, writeChoice } from "./store.js";
import { exportConversations, readConversations } from "./transfer.js";

const SAVE_MS = 2000;
const conversations = new Map();
const running = new Map(); // id of a conversation -> {controller, message}
const properties = new Map(); // model -> {context, params}
let models = [];
let connected = null; // the first connection to the server
let reconnect = false; // the server did not answer, or answered with another model: it may be another one
let current = newConversation(savedDefaults()); // in `conversations` from its first message on

const log = byId("log");
const input = byId("input");
const list = new MessageList(byId("messages"), { select: selectVersion, regenerate, edit, retry, refresh });

/* ---- Display ---- */

function refresh() {
  const run = running.get(current.id);
  list.show(current, { streaming: run?.message ?? null, context: properties.get(modelOf(current))?.context ?? 0 });
  byId("welcome").hidden = current.messages.length > 0;
  const title = byId("title");
  if (title.conversation !== current.id || title !== document.activeElement) title.value = current.title; // text that is being typed stays
  title.conversation = current.id;
  title.disabled = current.messages.length === 0;
  byId("model").value = modelOf(current);
  document.title = current.title ? `${current.title} \u2013 salvo` : "salvo";
  const send = byId("send");
  const label = run ? "Stop" : "Send";
  if (send.title !== label) {
    send.replaceChildren(icon(run ? "stop" : "send"));
    send.title = label;
    send.setAttribute("aria-label", label);
  }
  showConversations();
}

function showConversations() {
  showList(conversations.values(), current.id, running, remove);
}

const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 48;
let sticks = true;

function follow() {
  if (sticks) log.scrollTop = log.scrollHeight;
  byId("to-end").hidden = atEnd();
}

function toEnd() {
  sticks = true;
  follow();
}

function open(conversation) {
  current = conversation;
  input.value = readDraft();
  fitHeight(input);
  refresh();
  toEnd();
}

function openFromAddress() {
  const id = location.hash.slice(1);
  if (id === current.id) return;
  open(conversations.get(id) ?? newConversation({ ...savedDefaults(), model: readChoice("model", "") }));
}

/* The address names the conversation, so that reloading and going back show it again. The conversation opens before the
 * function returns: a hashchange event arrives later, and would replace text that was typed in between. */
function goTo(id) {
  if (location.hash.slice(1) !== id) history.pushState(null, "", `#${id}`);
  openFromAddress();
}

/* ---- Drafts ---- */

function readDraft() {
  try {
    return sessionStorage.getItem(`draft-${conversations.has(current.id) ? current.id : "new"}`) ?? "";
  } catch {
    return "";
  }
}

function writeDraft() {
  const key = `draft-${conversations.has(current.id) ? current.id : "new"}`;
  try {
    if (input.value) sessionStorage.setItem(key, input.value);
    else sessionStorage.removeItem(key);
  } catch {
    /* the draft lasts until the page is closed */
  }
}

/* ---- Keeping conversations ---- */

const keeper = createKeeper(conversations, (reason) => {
  toast(`${reason}. New messages last until this page is closed; deleting conversations makes room.`, "Export", exportAll);
});
const { save } = keeper;

/* An answer that is left may be continued when the page is opened again. */
function leave() {
  for (const { message } of running.values()) message.finish ??= "stopped";
  keeper.saveAtOnce(running.keys());
}

function exportAll() {
  exportConversations([...conversations.values()]);
}

function remove(id) {
  const conversation = conversations.get(id);
  running.get(id)?.controller.abort();
  conversations.delete(id);
  keeper.remove(id).catch((error) => toast(`The browser could not delete the conversation: ${error.message}`));
  if (id === current.id) goTo("");
  else showConversations();
  toast("Conversation deleted.", "Undo", () => {
    conversations.set(id, conversation);
    save(conversation);
    goTo(id);
  });
}

/* Another tab has saved or, without `stored`, deleted a conversation. Objects of this tab stay, and with them what is being edited or answered. */
function takeOver(id, stored) {
  const own = conversations.get(id) ?? (id === current.id ? current : stored);
  if (stored) {
    const { messages, leaf, ...choices } = stored;
    adopt(own, stored);
    const busy = running.has(id) || keeper.isUnsaved(id);
    if (!busy) Object.assign(own, choices);
    if (!busy && !(own === current && list.editing())) own.leaf = leaf;
    conversations.set(id, own);
  } else if (!running.has(id)) {
    conversations.delete(id);
  }
  if (id === current.id) refresh();
  else showConversations();
}

/* ---- Answers ---- */

const modelOf = (conversation) => (models.includes(conversation.model) ? conversation.model : (models[0] ?? ""));

function requestBody(conversation, message) {
  const messages = requestMessages(conversation, message.parent);
  if (message.content) messages.push({ role: "assistant", content: message.content });
  const settings = Object.fromEntries(FIELDS.map(({ name }) => [name, conversation.settings[name]]).filter(([, value]) => value !== undefined));
  return { model: message.model, messages, ...settings };
}

/* The message grows with each part, and continues after its text if it has some. */
async function receiveAnswer(conversation, message, signal) {
  let saved = performance.now();
  await streamChat(requestBody(conversation, message), signal, ({ content, reasoning, timings, finish, model }) => {
    message.changed = Date.now();
    if (model && model !== message.model) {
      message.model = model;
      reconnect = true;
    }
    message.content += content;
    if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
    if (timings) message.timings = timings;
    if (finish) message.finish = finish;
    if (conversation === current) list.grow(message, follow);
    if (performance.now() - saved > SAVE_MS) {
      saved = performance.now();
      save(conversation);
    }
  });
}

/* Asks for the key as often as the server refuses it. */
async function withKey(work) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const key = error instanceof ApiError && error.status === 401 ? await askKey(error.message) : null;
      if (!key) throw error;
      setKey(key);
      if (!models.length) connect();
    }
  }
}

async function generate(conversation, message) {
  const controller = new AbortController();
  running.set(conversation.id, { controller, message });
  message.model = modelOf(conversation);
  message.changed = Date.now();
  delete message.error;
  delete message.finish;
  if (!message.content) delete message.reasoning;
  save(conversation);
  if (conversation === current) {
    refresh();
    toEnd();
  }
  announce("Answering");
  try {
    await (reconnect ? connect() : connected);
    message.model = modelOf(conversation);
    await withKey(() => receiveAnswer(conversation, message, controller.signal));
    announce("The answer is complete");
  } catch (error) {
    if (controller.signal.aborted) message.finish = "stopped";
    else message.error = error instanceof ApiError ? error.message : `The page has failed: ${error.message}`;
    announce(message.error ?? "Stopped");
    if (message.error && (error.status === 0 || error.status === 404)) reconnect = true;
  }
  message.changed = Date.now();
  running.delete(conversation.id);
  conversation.updated = Date.now();
  if (conversations.has(conversation.id)) save(conversation);
  if (conversation === current) {
    list.render(message);
    refresh();
    follow();
  } else {
    showConversations();
  }
  if (reconnect && !message.error) connect();
}

function answer(parent) {
  generate(current, addMessage(current, parent.id, "assistant", ""));
}

function send() {
  const text = input.value;
  if (!text.trim() || running.has(current.id)) return;
  input.value = "";
  writeDraft();
  fitHeight(input);
  const first = !conversations.has(current.id);
  if (first) current.model = modelOf(current);
  const message = addMessage(current, current.leaf, "user", text);
  conversations.set(current.id, current);
  if (first) history.pushState(null, "", `#${current.id}`);
  answer(message);
}

function stop() {
  running.get(current.id)?.controller.abort();
}

function selectVersion(id) {
  select(current, id);
  save(current);
  refresh();
}

function regenerate(message) {
  if (!running.has(current.id)) answer({ id: message.parent });
}

/* Continues the text of an answer, if it has some. */
function retry(message) {
  if (!running.has(current.id)) generate(current, message);
}

/* Returns whether the edit has been taken over. */
function edit(message, text) {
  if (running.has(current.id)) {
    toast("An answer is being written. Stop it, or wait for its end.");
    return false;
  }
  const version = addMessage(current, message.parent, message.role, text);
  if (message.role === "user") {
    answer(version);
  } else {
    version.finish = "edited";
    save(current);
    refresh();
  }
  input.focus();
  return true;
}

/* ---- The server ---- */

async function connect() {
  try {
    models = await withKey(listModels);
    properties.clear();
    reconnect = false;
    hideNotice();
  } catch (error) {
    showNotice(error.message, "Try again", connect);
  }
  const field = byId("model");
  field.replaceChildren(...models.map((name) => new Option(name, name)));
  field.disabled = models.length < 2;
  field.hidden = models.length === 0;
  refresh();
  loadProperties();
}

async function loadProperties() {
  const model = modelOf(current);
  if (!model || properties.has(model)) return;
  try {
    properties.set(model, await modelProperties(model));
  } catch {
    return; // a model that is still loading: asked again when settings are opened
  }
  refresh();
}

/* ---- Beginning ---- */

let settingsOf = current; // the conversation of the dialog: another may be opened behind it, by the browser's way back

async function openSettings() {
  settingsOf = current;
  const model = modelOf(current);
  fillFields(current);
  showDefaults(properties.get(model)?.params);
  byId("settings").showModal();
  await loadProperties();
  showDefaults(properties.get(model)?.params);
}

function closeSettings(event) {
  const wrong = readFields(settingsOf);
  if (wrong) {
    event.preventDefault();
    wrong.reportValidity();
  }
}

function buildSettings() {
  buildFields();
  byId("open-settings").append(icon("sliders"));
  byId("close-settings").append(icon("close"));
  byId("open-settings").addEventListener("click", openSettings);
  byId("settings").addEventListener("cancel", closeSettings);
  byId("settings").addEventListener("click", ({ target }) => {
    if (target === byId("settings")) byId("settings").requestClose?.();
  });
  byId("settings").querySelector("form").addEventListener("submit", closeSettings);
  byId("settings").addEventListener("close", () => {
    if (conversations.has(settingsOf.id)) save(settingsOf);
  });
  byId("reset").addEventListener("click", () => {
    byId("system").value = "";
    for (const { name } of FIELDS) byId(`set-${name}`).value = "";
  });
  byId("theme").addEventListener("change", ({ target }) => setTheme(target.value));
}

function buildHeader() {
  byId("title").addEventListener("change", ({ target }) => {
    current.title = target.value.trim();
    save(current);
    refresh();
  });
  byId("model").addEventListener("change", ({ target }) => {
    current.model = target.value;
    writeChoice("model", target.value);
    if (conversations.has(current.id)) save(current);
    loadProperties();
    refresh();
  });
}

function buildComposer() {
  byId("to-end").append(icon("down"));
  byId("to-end").addEventListener("click", toEnd);
  /* A press on "Stop" does not send what is in the field, even if the answer ends before the button is released. */
  let pressedStop = false;
  byId("send").addEventListener("pointerdown", () => {
    pressedStop = running.has(current.id);
  });
  byId("send").addEventListener("click", (event) => {
    if (event.detail && pressedStop && !running.has(current.id)) event.preventDefault();
    pressedStop = false;
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (running.has(current.id)) stop();
    else send();
    input.focus();
  });
  input.addEventListener("input", () => {
    fitHeight(input);
    writeDraft();
  });
  input.addEventListener("keydown", (event) => {
    const touch = matchMedia("(pointer: coarse)").matches; // Enter on a phone begins a line
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !input.value && !running.has(current.id)) {
      event.preventDefault();
      list.editLast();
    }
  });
  log.addEventListener("scroll", () => {
    sticks = atEnd();
    byId("to-end").hidden = sticks;
  }, { passive: true });
  new ResizeObserver(follow).observe(byId("messages"));
}

function buildKeys() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names a conversation, not the field
    input.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && !closeDrawer()) stop();
    const typing = event.target.closest?.("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
    }
  });
}

function importFile(text) {
  try {
    const added = readConversations(text, conversations);
    for (const conversation of added) {
      conversations.set(conversation.id, conversation);
      save(conversation);
    }
    toast(added.length === 0 ? "All conversations of the file are here already." : `${added.length} ${added.length === 1 ? "conversation" : "conversations"} imported.`);
  } catch (error) {
    toast(error.message);
  }
  refresh();
}

/* Text that was typed while the page was loading comes after the draft. */
function keepTyped(typed) {
  if (!typed.trim() || typed === input.value) return;
  input.value = input.value ? `${input.value}\n${typed}` : typed;
  fitHeight(input);
  writeDraft();
}

async function begin() {
  try {
    for (const conversation of await openStore()) conversations.set(conversation.id, conversation);
  } catch (error) {
    toast(`The browser keeps no conversations here: ${error.message}`);
  }
  buildSidebar({ create: () => {
    goTo("");
    input.focus();
  }, openConversation: goTo, search: showConversations, exportAll, importFile });
  buildSettings();
  buildHeader();
  buildComposer();
  buildKeys();
  onOtherTab(takeOver);
  window.addEventListener("hashchange", openFromAddress);
  window.addEventListener("pagehide", leave);
  window.addEventListener("beforeunload", (event) => {
    if (keeper.hasFailed()) event.preventDefault();
  });
  const typed = input.value;
  open(conversations.get(location.hash.slice(1)) ?? newConversation({ ...savedDefaults(), model: readChoice("model", "") }));
  keepTyped(typed);
  connected = connect();
  await connected;
  document.documentElement.dataset.ready = String(hasKey());
}

begin();
