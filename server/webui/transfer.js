/* Conversations to a file and back. */
import { checkConversation } from "./conversation.js";
import { el, newId } from "./dom.js";

const FORMAT = "salvo-conversations";

export function exportConversations(conversations) {
  const text = JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: url, download: `salvo-${new Date().toISOString().slice(0, 10)}.json` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/*
 * The conversations of a file that are not here yet: all or, with an Error in words, none. One with the id of another conversation
 * that differs from it gets a new id.
 */
export function readConversations(text, known) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error("The file has no conversations of this page.");
  if (file.version !== 1) throw new Error(`The file has the version ${String(file.version).slice(0, 20)}; this page reads version 1.`);
  const ids = new Set(known.keys());
  return file.conversations.flatMap((given, place) => {
    let conversation;
    try {
      conversation = checkConversation(given);
    } catch (error) {
      throw new Error(`Conversation ${place + 1} of the file is damaged: ${error.message}. Nothing was imported.`);
    }
    const same = known.get(conversation.id);
    if (same && JSON.stringify(same.messages) === JSON.stringify(given.messages)) return [];
    if (ids.has(conversation.id)) conversation.id = newId();
    ids.add(conversation.id);
    return [conversation];
  });
}
