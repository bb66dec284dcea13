/* The messages of the shown path: text, branches, actions, speed. */
import { path, siblings } from "./conversation.js";
import { announce } from "./dialogs.js";
import { copyButton, el, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown.js";

/* The speed of an answer, for an element with details in its title. */
function showSpeed(element, message) {
  const { predicted_n: tokens, predicted_per_second: speed, predicted_ms: time, prompt_n: prompt, cache_n: cached, prompt_per_second: promptSpeed } = message.timings ?? {};
  if (!(tokens > 0)) return;
  const rate = speed > 0 ? `${speed.toFixed(speed < 100 ? 1 : 0)} tok/s` : null;
  const text = [rate, `${tokens} ${tokens === 1 ? "token" : "tokens"}`, time >= 100 ? `${(time / 1000).toFixed(1)} s` : null].filter(Boolean).join(" \u00b7 ");
  const details = [message.model, `prompt: ${prompt} computed${promptSpeed > 0 ? ` at ${promptSpeed.toFixed(0)} tok/s` : ""}, ${cached} from the cache`];
  element.title = details.filter(Boolean).join("\n");
  element.textContent = text;
}

/* Grows with its text. */
export function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.user = message.role === "user";
    this.body = this.user ? el("div", { class: "bubble", dir: "auto" }) : el("div", { class: "markdown" });
    this.thinking = el("details", { class: "thinking", hidden: true }, el("summary", {}, "Reasoning"), el("div", { dir: "auto" }));
    this.problem = el("div", { class: "problem", hidden: true });
    this.foot = el("div", { class: "foot" });
    this.speed = el("span", { class: "speed" });
    this.element = el("article", { class: `message ${message.role}`, "aria-label": this.user ? "You" : "Answer" }, this.thinking, this.body, this.problem, this.foot);
    this.markdown = this.user ? null : new MarkdownView(this.body, announce);
    this.frame = 0;
    this.editing = false;
    this.renderText();
  }

  /* Whether the message has other text than what is shown: another tab has written it. */
  differs() {
    return this.content !== this.message.content || this.reasoning !== this.message.reasoning;
  }

  renderText() {
    const { content, reasoning } = this.message;
    this.content = content;
    this.reasoning = reasoning;
    const start = performance.now();
    if (this.user) this.body.textContent = content;
    else this.markdown.update(content);
    showSpeed(this.speed, this.message);
    this.thinking.hidden = !reasoning;
    if (reasoning) this.thinking.lastChild.textContent = reasoning;
    this.cost = performance.now() - start;
  }

  /* Renders soon; a text that takes long is rendered less often, so that the page stays quick. */
  schedule(done) {
    if (this.frame) return;
    this.frame = setTimeout(() => requestAnimationFrame(() => {
      this.frame = 0;
      this.renderText();
      done();
    }), this.cost > 8 ? this.cost * 4 : 0);
  }

  /* Everything but the text: branches, actions, errors. */
  renderFoot(conversation, { streaming, last, busy, context }) {
    const { message, actions } = this;
    this.element.setAttribute("aria-busy", String(streaming));
    this.element.classList.toggle("streaming", streaming);
    this.element.classList.toggle("last", last);
    const group = siblings(conversation, message);
    const place = group.indexOf(message);
    this.showProblem(streaming, last, context);
    /* Buttons that stay as they are must not be replaced: a click on one would be lost. */
    const state = JSON.stringify([streaming, busy, this.editing, group.map(({ id }) => id)]);
    if (state === this.shown) return;
    this.shown = state;
    if (this.editing) return;
    const parts = [];
    if (group.length > 1) {
      parts.push(el("span", { class: "branches", role: "group", "aria-label": "Versions of this message" },
        iconButton("left", "Previous version", () => actions.select(group[place - 1].id), { disabled: place === 0 }),
        el("span", {}, `${place + 1}/${group.length}`),
        iconButton("right", "Next version", () => actions.select(group[place + 1].id), { disabled: place === group.length - 1 })));
    }
    if (!streaming) {
      parts.push(copyButton("Copy the message", () => message.content, announce));
      if (!busy) {
        parts.push(iconButton("edit", this.user ? "Edit and ask again" : "Edit", () => this.edit()));
        if (!this.user) parts.push(iconButton("again", "Answer again", () => actions.regenerate(message)));
      }
    }
    const focused = this.foot.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    this.foot.replaceChildren(...parts, this.speed);
    if (focused) this.foot.querySelector(`[aria-label="${CSS.escape(focused)}"]:not(:disabled)`)?.focus();
  }

  showProblem(streaming, last, context) {
    const { message, actions } = this;
    const used = (message.timings?.prompt_n ?? 0) + (message.timings?.cache_n ?? 0) + (message.timings?.predicted_n ?? 0);
    const full = context > 0 && used >= context - 1;
    let text = message.error ?? "";
    if (!text && message.finish === "length") text = full ? `The context of ${context} tokens is full.` : "The answer has reached its limit of tokens.";
    if (!text && message.finish === "stopped") text = "Stopped.";
    const hidden = this.user || streaming || !text;
    let label = "";
    if (last && !hidden && message.content && !message.reasoning && !full) label = "Continue";
    else if (last && !hidden && message.error) label = "Try again";
    const state = JSON.stringify([hidden, text, label]);
    if (state === this.shownProblem) return;
    this.shownProblem = state;
    this.problem.hidden = hidden;
    this.problem.classList.toggle("failed", Boolean(message.error));
    this.problem.replaceChildren(el("span", {}, text));
    const run = () => (label === "Try again" && message.content ? actions.regenerate : actions.retry)(message);
    if (label) this.problem.append(el("button", { type: "button", class: "text-button", onclick: run }, label));
  }

  edit() {
    const area = el("textarea", { class: "edit", "aria-label": "Edit the message", dir: "auto" });
    const close = () => {
      this.editing = false;
      this.element.classList.remove("editing");
      this.body.hidden = false;
      form.remove();
      this.actions.refresh();
    };
    const apply = () => {
      const changed = area.value.trim() && area.value !== this.message.content;
      if (!changed || this.actions.edit(this.message, area.value)) close();
    };
    const form = el("form", { class: "edit-form", onsubmit: (event) => {
      event.preventDefault();
      apply();
    } }, area, el("div", { class: "dialog-actions" },
      el("button", { type: "button", class: "text-button", onclick: close }, "Cancel"),
      el("button", { type: "submit", class: "text-button filled" }, this.user ? "Ask again" : "Save as a new version")));
    area.value = this.message.content;
    area.addEventListener("input", () => fitHeight(area));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        apply();
      }
    });
    this.editing = true;
    this.shown = null;
    this.element.classList.add("editing");
    this.body.hidden = true;
    this.body.after(form);
    this.foot.replaceChildren();
    fitHeight(area);
    area.focus();
  }
}

export class MessageList {
  constructor(element, actions) {
    this.element = element;
    this.actions = actions;
    this.views = new Map();
  }

  /* `state` has the message that streams, whether any does, and the context of the model. */
  show(conversation, state) {
    const list = path(conversation);
    const views = list.map((message) => {
      const view = this.views.get(message.id);
      return view?.message === message ? view : new MessageView(message, this.actions);
    });
    this.views = new Map(views.map((view) => [view.message.id, view]));
    const children = [...this.element.children];
    if (children.length !== views.length || views.some((view, place) => view.element !== children[place])) this.element.replaceChildren(...views.map((view) => view.element));
    for (const view of views) if (state.streaming !== view.message && view.differs()) view.renderText();
    views.forEach((view, place) => view.renderFoot(conversation, { streaming: state.streaming === view.message, last: place === views.length - 1, busy: state.streaming !== null, context: state.context }));
  }

  /* The text of a message has grown. */
  grow(message, done) {
    this.views.get(message.id)?.schedule(done);
  }

  render(message) {
    this.views.get(message.id)?.renderText();
  }

  editing() {
    return [...this.views.values()].some((view) => view.editing);
  }

  editLast() {
    const view = [...this.views.values()].findLast((item) => item.user);
    if (view && !view.editing) view.edit();
  }
}
