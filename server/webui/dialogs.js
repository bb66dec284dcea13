/* Dialogs, the notice above the messages, and short notes at the bottom. */
import { byId, el, iconButton } from "./dom.js";

/* For screen readers alone. */
export function announce(text) {
  byId("status").textContent = text;
}

let toastTimer = 0;

/* A note. One with an action, such as "Undo", stays until it is closed or another takes its place. */
export function toast(text, action, run) {
  const box = byId("toast");
  const hide = () => {
    box.hidden = true;
  };
  clearTimeout(toastTimer);
  box.replaceChildren(el("span", {}, text));
  if (action) {
    box.append(el("button", { type: "button", class: "text-button", onclick: () => {
      hide();
      run();
    } }, action));
  }
  box.append(iconButton("close", "Close", hide));
  box.hidden = false;
  if (!action) toastTimer = setTimeout(hide, 8000);
}

export function showNotice(text, action, run) {
  const box = byId("notice");
  box.replaceChildren(el("span", {}, text));
  if (action) box.append(el("button", { type: "button", class: "text-button", onclick: run }, action));
  box.hidden = false;
}

export function hideNotice() {
  byId("notice").hidden = true;
}

let asking = null;

/* Resolves with the key, or with null if the user gives none. Several requests at once ask once. */
export function askKey(reason) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("ask-key");
    byId("key").value = "";
    byId("key-reason").textContent = reason;
    dialog.returnValue = "";
    byId("cancel-key").onclick = () => dialog.close("");
    dialog.addEventListener("close", () => {
      asking = null;
      resolve(dialog.returnValue === "ok" ? byId("key").value.trim() : null);
      byId("key").value = "";
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
