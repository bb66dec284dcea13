/* Keeps conversations in the browser, and says once if it cannot: they then last as long as the page. */
import { deleteConversation, saveAtOnce, saveConversation } from "./store.js";

/* `conversations` is the page's map of all by id; `tell` is called with a reason in words. */
export function createKeeper(conversations, tell) {
  const pending = new Map(); // id -> saves that have not ended
  const failed = new Set(); // ids of conversations whose last save has failed
  let warned = false; // whether the user was warned that a conversation is not saved; reset when all are saved
  let retrying = false;

  function count(id, change) {
    const number = (pending.get(id) ?? 0) + change;
    if (number) pending.set(id, number);
    else pending.delete(id);
    document.documentElement.dataset.saved = String(pending.size === 0);
  }

  /* Returns whether the browser has saved the conversation. */
  async function trySave(conversation) {
    const { id } = conversation;
    count(id, 1);
    try {
      await saveConversation(conversation);
      failed.delete(id);
      return true;
    } catch (error) {
      if (conversations.has(id)) failed.add(id);
      if (!warned) tell(error.name === "QuotaExceededError" ? "The browser's storage for this page is full" : `The browser could not save the conversation: ${error.message}`);
      warned = true;
      return false;
    } finally {
      count(id, -1);
    }
  }

  /* There may be room again. */
  async function retry() {
    if (retrying) return;
    retrying = true;
    for (const id of [...failed]) if (conversations.has(id) && !(await trySave(conversations.get(id)))) break;
    retrying = false;
    if (failed.size === 0) warned = false;
  }

  return {
    async save(conversation) {
      if ((await trySave(conversation)) && warned) await retry();
    },
    async remove(id) {
      failed.delete(id);
      await deleteConversation(id);
      await retry();
    },
    /* For a page that is being left: `ids` and the conversations whose save has not ended. */
    saveAtOnce(ids) {
      for (const id of new Set([...ids, ...pending.keys()])) if (conversations.has(id)) saveAtOnce(conversations.get(id));
    },
    hasFailed: () => failed.size > 0,
    /* The page's copy is newer than the browser's. */
    isUnsaved: (id) => pending.has(id) || failed.has(id),
  };
}
