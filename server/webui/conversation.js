/*
 * A conversation is a tree of messages: editing a message or answering again adds a sibling, nothing is overwritten. `leaf` is the
 * last message of the path that is shown.
 */
import { newId } from "./dom.js";

export function newConversation(defaults = {}) {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, model: defaults.model ?? "", system: defaults.system ?? "", settings: { ...defaults.settings }, leaf: null, messages: [] };
}

function index(conversation) {
  return new Map(conversation.messages.map((message) => [message.id, message]));
}

/* The messages from the first to the leaf. */
export function path(conversation, leaf = conversation.leaf) {
  const known = index(conversation);
  const list = [];
  for (let message = known.get(leaf); message; message = known.get(message.parent)) list.push(message);
  return list.reverse();
}

export function siblings(conversation, message) {
  return conversation.messages.filter((other) => other.parent === message.parent);
}

/* Notes the path that is about to be left, so that its branches lead there again. */
function notePath(conversation, known) {
  for (const message of path(conversation)) if (message.parent) known.get(message.parent).next = message.id;
}

export function addMessage(conversation, parent, role, content) {
  notePath(conversation, index(conversation));
  const message = { id: newId(), parent, role, content, created: Date.now() };
  conversation.messages.push(message);
  conversation.leaf = message.id;
  conversation.updated = message.created;
  if (!conversation.title && role === "user") conversation.title = titleOf(content);
  return message;
}

/* Shows the branch of a message, down to where it was left. */
export function select(conversation, id) {
  const known = index(conversation);
  notePath(conversation, known);
  let message = known.get(id);
  for (;;) {
    const children = conversation.messages.filter((other) => other.parent === message.id);
    if (!children.length) break;
    message = children.find((child) => child.id === message.next) ?? children[children.length - 1];
  }
  conversation.leaf = message.id;
}

export function titleOf(text) {
  const line = text.trim().split(/\s*\n/)[0].replace(/\s+/g, " ");
  const characters = [...line.slice(0, 200)];
  return characters.length > 60 ? `${characters.slice(0, 59).join("").trimEnd()}\u2026` : line;
}

/* Replaces the members of an object, which stays the same object. */
function replace(object, other) {
  for (const key of Object.keys(object)) if (!(key in other)) delete object[key];
  Object.assign(object, other);
}

/* Messages of `other`, a copy of the same conversation, that this one lacks, and later states of messages that it has: `changed` is when a message last grew. */
export function adopt(conversation, other) {
  const known = index(conversation);
  for (const message of other.messages) {
    const own = known.get(message.id);
    if (!own) conversation.messages.push(message);
    else if ((message.changed ?? 0) > (own.changed ?? 0)) replace(own, message);
  }
}

/* The messages of a request: the system message and the path. */
export function requestMessages(conversation, leaf) {
  const list = path(conversation, leaf).map(({ role, content }) => ({ role, content }));
  return conversation.system.trim() ? [{ role: "system", content: conversation.system }, ...list] : list;
}

/* ---- Checks of a file ---- */

function take(object, key, type, missing) {
  const value = object[key] ?? missing;
  if (typeof value !== type || (type === "number" && !Number.isFinite(value))) throw new Error(`'${key}' is not a ${type}`);
  return value;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function checkMessage(given, known) {
  if (!isObject(given)) throw new Error("a message is not an object");
  const message = { id: take(given, "id", "string"), parent: given.parent ?? null, role: given.role, content: take(given, "content", "string"), created: take(given, "created", "number", 0) };
  if (known.has(message.id)) throw new Error("two messages have one id");
  const parent = message.parent === null ? null : known.get(message.parent); // parents come first, so there are no circles
  if (parent === undefined) throw new Error("a message has no parent");
  if (message.role !== "user" && message.role !== "assistant") throw new Error("the role of a message is neither user nor assistant");
  if ((parent?.role ?? "assistant") === message.role) throw new Error("two messages of one role follow each other");
  for (const key of ["reasoning", "model", "finish", "error", "next"]) if (given[key] !== undefined) message[key] = take(given, key, "string");
  if (isObject(given.timings)) message.timings = Object.fromEntries(Object.entries(given.timings).filter(([, value]) => Number.isFinite(value)));
  return message;
}

/* A copy with the known members of a conversation; an Error tells why it is none. */
export function checkConversation(given) {
  if (!isObject(given) || !Array.isArray(given.messages)) throw new Error("it has no messages");
  const conversation = newConversation();
  for (const key of ["id", "title", "model", "system"]) conversation[key] = take(given, key, "string", conversation[key]);
  for (const key of ["created", "updated"]) conversation[key] = take(given, key, "number", conversation[key]);
  if (isObject(given.settings)) conversation.settings = Object.fromEntries(Object.entries(given.settings).filter(([, value]) => Number.isFinite(value) || typeof value === "string"));
  const known = new Map();
  for (const item of given.messages) {
    const message = checkMessage(item, known);
    known.set(message.id, message);
    conversation.messages.push(message);
  }
  conversation.leaf = known.has(given.leaf) ? given.leaf : (conversation.messages[conversation.messages.length - 1]?.id ?? null);
  return conversation;
}
