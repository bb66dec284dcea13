/* Conversations in IndexedDB, shared by the tabs of this page; small choices in localStorage. */
import { adopt } from "./conversation.js";

let database = null;
const channel = "BroadcastChannel" in window ? new BroadcastChannel("salvo") : null;

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another tab holds an older version"));
  });
}

/* All conversations. Rejects where the browser keeps nothing, as in some private windows. */
export async function openStore() {
  const request = indexedDB.open("salvo", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
  database = await finished(request);
  return finished(database.transaction("conversations").objectStore("conversations").getAll());
}

function write(action) {
  if (!database) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction("conversations", "readwrite");
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new Error("the browser did not save"));
    action(transaction.objectStore("conversations"));
  });
}

/* Messages that another tab has added stay: they are adopted before this copy is written. */
export async function saveConversation(conversation) {
  await write((store) => {
    const stored = store.get(conversation.id);
    stored.onsuccess = () => {
      if (stored.result) adopt(conversation, stored.result);
      store.put(conversation);
    };
  });
  channel?.postMessage({ saved: conversation.id });
}

/* For a page that is being left: the browser stores it after the page is gone. Messages of other tabs are not looked for. */
export function saveAtOnce(conversation) {
  try {
    const transaction = database.transaction("conversations", "readwrite");
    transaction.objectStore("conversations").put(conversation);
    transaction.commit();
    channel?.postMessage({ saved: conversation.id });
  } catch {
    /* without a database nothing is kept */
  }
}

export async function deleteConversation(id) {
  await write((store) => store.delete(id));
  channel?.postMessage({ deleted: id });
}

/* Calls with (id, conversation), or with (id, null) for a deleted one, when another tab has changed it. */
export function onOtherTab(changed) {
  if (!channel) return;
  channel.onmessage = async ({ data }) => {
    if (data.deleted) changed(data.deleted, null);
    else if (database) changed(data.saved, await finished(database.transaction("conversations").objectStore("conversations").get(data.saved)));
  };
}

export function readChoice(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function writeChoice(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    /* the choice lasts until the page is closed */
  }
}
