/* The list of conversations; on narrow screens a drawer. */
import { byId, el, icon, iconButton } from "./dom.js";

const narrow = matchMedia("(max-width: 760px)");

function showDrawer(open) {
  const drawer = narrow.matches;
  document.body.classList.toggle("drawer-open", drawer && open);
  byId("sidebar").inert = drawer && !open;
  document.querySelector("main").inert = drawer && open;
  byId("shade").hidden = !(drawer && open);
  byId("open-sidebar").setAttribute("aria-expanded", String(drawer && open));
}

export function closeDrawer() {
  if (!document.body.classList.contains("drawer-open")) return false;
  showDrawer(false);
  byId("open-sidebar").focus();
  return true;
}

function groupOf(time) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return "Today";
  if (time >= today - 86400000) return "Yesterday";
  return time >= today - 6 * 86400000 ? "This week" : "Earlier";
}

function matches(conversation, words) {
  const text = [conversation.title, ...conversation.messages.map((message) => message.content)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/* Lists the conversations, newest first, as far as they have all words of the search field. */
export function showList(conversations, currentId, running, remove) {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = [...conversations].filter((conversation) => matches(conversation, words)).sort((a, b) => b.updated - a.updated);
  byId("list-empty").hidden = shown.length > 0;
  byId("list-empty").textContent = words.length ? "Nothing found." : "No conversations yet.";
  const list = byId("list");
  const state = JSON.stringify(shown.map(({ id, title, updated }) => [id, title, groupOf(updated), id === currentId, running.has(id)]));
  if (state === list.shown) return; // links that stay as they are must not be replaced: a click on one would be lost
  list.shown = state;
  let group = "";
  list.replaceChildren(...shown.flatMap((conversation) => {
    const title = conversation.title || "Untitled";
    const item = el("li", {},
      el("a", { href: `#${conversation.id}`, "aria-current": conversation.id === currentId ? "page" : false, dir: "auto" }, title,
        running.has(conversation.id) ? el("span", { class: "dot", role: "img", "aria-label": "answering" }) : null),
      iconButton("trash", `Delete \u201C${title}\u201D`, () => remove(conversation.id)));
    if (groupOf(conversation.updated) === group) return [item];
    group = groupOf(conversation.updated);
    return [el("li", { class: "group" }, group), item];
  }));
}

export function buildSidebar({ create, openConversation, search, exportAll, importFile }) {
  byId("open-sidebar").append(icon("menu"));
  byId("close-sidebar").append(icon("close"));
  byId("new").append(icon("plus"), "New conversation");
  byId("export").append(icon("save"), "Export");
  byId("import").append(icon("up"), "Import");
  byId("open-sidebar").addEventListener("click", () => {
    showDrawer(true);
    byId("new").focus();
  });
  byId("close-sidebar").addEventListener("click", closeDrawer);
  byId("shade").addEventListener("click", closeDrawer);
  byId("list").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser opens another tab or window
    event.preventDefault();
    showDrawer(false);
    openConversation(link.hash.slice(1));
  });
  byId("new").addEventListener("click", () => {
    showDrawer(false);
    create();
  });
  byId("search").addEventListener("input", search);
  byId("export").addEventListener("click", exportAll);
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (file) importFile(await file.text());
    target.value = "";
  });
  narrow.addEventListener("change", () => showDrawer(false));
  showDrawer(false);
}
