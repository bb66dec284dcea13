/*
 * Markdown to nodes: headings, paragraphs, lists, quotes, code, tables. HTML stays text. The work is linear in the text: the depth
 * of containers is limited, and so is the number of elements of a message, beyond which the rest is shown as plain text.
 */
import { copyButton, el, tameMarks, visibleControls } from "./dom.js";
import { appendInline } from "./inline.js";

const DEEPEST = 10;
const MOST_ELEMENTS = 20000;
const MOST_COLUMNS = 100; // a wider table stays text
const BULLET = /^( {0,3})([-*+])(?: +|$)/;
const ORDERED = /^( {0,3})(\d{1,9})[.)](?: +|$)/;
const FENCE = /^( {0,3})(`{3,}|~{3,})([^\n]*)$/;

/* Containers get the direction of their first letter: "auto" ignores children that have a direction of their own. */
function directionOf(text) {
  const letter = /\p{L}/u.exec(text);
  return letter && /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(letter[0]) ? "rtl" : "ltr";
}

const isBlank = (line) => !/\S/.test(line);

/* Columns of blanks before the first character; a tab goes to the next multiple of 4. */
function indentOf(line) {
  let columns = 0;
  for (const c of line) {
    if (c === " ") columns++;
    else if (c === "\t") columns += 4 - (columns % 4);
    else break;
  }
  return columns;
}

function removeIndent(line, columns) {
  let place = 0;
  let removed = 0;
  while (removed < columns && (line[place] === " " || line[place] === "\t")) {
    removed += line[place] === "\t" ? 4 - (removed % 4) : 1;
    place++;
  }
  return " ".repeat(Math.max(removed - columns, 0)) + line.slice(place);
}

function isRule(line) {
  const marks = line.replace(/[ \t]/g, "");
  return marks.length >= 3 && indentOf(line) < 4 && (/^-+$/.test(marks) || /^\*+$/.test(marks) || /^_+$/.test(marks));
}

function readFence(line) {
  const found = FENCE.exec(line);
  if (!found || (found[2][0] === "`" && found[3].includes("`"))) return null;
  return { indent: found[1].length, mark: found[2], language: found[3].trim().split(/\s/)[0] };
}

function endsFence(line, fence) {
  const text = line.trim();
  return indentOf(line) < 4 && text.length >= fence.mark.length && text === fence.mark[0].repeat(text.length);
}

function readItem(line) {
  const found = BULLET.exec(line) ?? ORDERED.exec(line);
  if (!found || isRule(line)) return null;
  const blanks = found[0].length - found[0].trimEnd().length;
  const marker = found[0].length - blanks;
  const empty = found[0].length === line.length;
  return {
    ordered: /\d/.test(found[2]),
    mark: found[0].trim().slice(-1),
    number: Number(found[2]),
    indent: found[1].length,
    content: marker + (empty || blanks > 4 ? 1 : blanks),
    empty,
  };
}

/* Cells of a line of a table; "\|" and a bar within code do not divide. */
function splitRow(line) {
  const cells = [""];
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|") && !text.endsWith("\\|")) text = text.slice(0, -1);
  for (const piece of text.matchAll(/\\\||\||`[^`]*`|[^\\|`]+|[\s\S]/g)) {
    if (piece[0] === "|") cells.push("");
    else cells[cells.length - 1] += piece[0] === "\\|" ? "|" : piece[0];
  }
  return cells.map((cell) => cell.trim());
}

function readAlignments(line) {
  if (line === undefined || !line.includes("-") || !/^[\s|:-]+$/.test(line)) return null;
  const cells = splitRow(line);
  if (!cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : null));
}

function tableAt(lines, at) {
  if (!lines[at].includes("|")) return null;
  const alignments = readAlignments(lines[at + 1]);
  return alignments && alignments.length <= MOST_COLUMNS && alignments.length === splitRow(lines[at]).length ? alignments : null;
}

/* Whether the line ends a paragraph that is above it. */
function interrupts(line) {
  const item = readItem(line);
  return /^ {0,3}(?:#{1,6}(?:\s|$)|>)/.test(line) || isRule(line) || readFence(line) !== null || (item !== null && !item.empty && (!item.ordered || item.number === 1));
}

class Renderer {
  constructor(announce) {
    this.budget = { left: MOST_ELEMENTS };
    this.announce = announce;
  }

  element(name, attributes, ...children) {
    this.budget.left--;
    return el(name, attributes, ...children);
  }

  /* The block that begins at a line: its node and the line behind it. */
  readBlock(lines, at, depth) {
    if (this.budget.left <= 0) return { node: el("p", { class: "plain", dir: "auto" }, tameMarks(lines.slice(at).join("\n"))), next: lines.length };
    const line = lines[at];
    const fence = readFence(line);
    if (fence) return this.readCode(lines, at, fence);
    const heading = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/.exec(line);
    if (heading) return { node: this.inline(`h${heading[1].length}`, this.headingText(heading[2] ?? "")), next: at + 1 };
    if (isRule(line)) return { node: this.element("hr"), next: at + 1 };
    if (depth < DEEPEST && /^ {0,3}>/.test(line)) return this.readQuote(lines, at, depth);
    const item = depth < DEEPEST ? readItem(line) : null;
    if (item) return this.readList(lines, at, item, depth);
    const alignments = tableAt(lines, at);
    if (alignments) return this.readTable(lines, at, alignments);
    if (indentOf(line) >= 4) return this.readIndentedCode(lines, at);
    return this.readParagraph(lines, at);
  }

  appendBlocks(parent, lines, depth, tight) {
    let at = 0;
    while (at < lines.length) {
      if (isBlank(lines[at])) {
        at++;
        continue;
      }
      const { node, next } = this.readBlock(lines, at, depth);
      if (tight && node.localName === "p") parent.append(...node.childNodes);
      else parent.append(node);
      at = next;
    }
  }

  /* dir="auto" comes last: otherwise the browser examines all nodes again after each addition. */
  inline(name, text) {
    const node = this.element(name);
    appendInline(node, text, this.budget);
    node.setAttribute("dir", "auto");
    return node;
  }

  headingText(text) {
    const end = text.trimEnd();
    let size = end.length;
    while (size && end[size - 1] === "#") size--;
    return size === 0 || /\s/.test(end[size - 1]) ? end.slice(0, size).trim() : end;
  }

  readCode(lines, at, fence) {
    let end = at + 1;
    while (end < lines.length && !endsFence(lines[end], fence)) end++;
    const text = lines.slice(at + 1, end).map((line) => removeIndent(line, fence.indent)).join("\n");
    return { node: this.code(text, fence.language), next: Math.min(end + 1, lines.length), code: text, language: fence.language };
  }

  readIndentedCode(lines, at) {
    let end = at;
    while (end < lines.length && (isBlank(lines[end]) || indentOf(lines[end]) >= 4)) end++;
    return { node: this.code(lines.slice(at, end).map((line) => removeIndent(line, 4)).join("\n").trimEnd(), ""), next: end };
  }

  code(text, language) {
    this.budget.left -= 9; // with the copy button
    const code = el("code", {}, visibleControls(text));
    const node = el("div", { class: "code", dir: "ltr" }, el("div", { class: "code-bar" }, el("span", {}, language)), el("pre", { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code" }, code));
    node.source = text;
    node.firstChild.append(copyButton("Copy the code", () => node.source, this.announce));
    return node;
  }

  readQuote(lines, at, depth) {
    const inner = [];
    let end = at;
    while (end < lines.length) {
      const lazy = end > at && !isBlank(lines[end]) && !isBlank(inner[inner.length - 1]) && !interrupts(lines[end]);
      if (!/^ {0,3}>/.test(lines[end]) && !lazy) break;
      inner.push(lines[end].replace(/^ {0,3}> ?/, ""));
      end++;
    }
    const node = this.element("blockquote", { dir: directionOf(inner.join("\n")) });
    this.appendBlocks(node, inner, depth + 1, false);
    return { node, next: end };
  }

  /* The lines of an item without their indent, and the line behind the item. */
  readItemLines(lines, at, item) {
    const inner = [lines[at].slice(item.content)];
    let end = at + 1;
    let blank = false;
    for (; end < lines.length; end++) {
      const line = lines[end];
      if (isBlank(line)) {
        inner.push("");
        blank = true;
        continue;
      }
      const indent = indentOf(line);
      const nested = indent >= item.indent + 2 && readItem(line.trimStart()) !== null;
      if (indent >= item.content) inner.push(removeIndent(line, item.content));
      else if (nested) inner.push(line.trimStart());
      else if (!blank && !interrupts(line) && !readItem(line)) inner.push(line);
      else break;
      blank = false;
    }
    while (inner.length > 1 && !inner[inner.length - 1]) {
      inner.pop();
      end--;
    }
    return { inner, end };
  }

  readList(lines, at, first, depth) {
    const items = [];
    let end = at;
    let loose = false;
    for (;;) {
      let next = end;
      while (next < lines.length && isBlank(lines[next])) next++;
      const item = next < lines.length ? readItem(lines[next]) : null;
      if (!item || item.ordered !== first.ordered || item.mark !== first.mark || items.length >= this.budget.left) break;
      loose ||= items.length > 0 && next > end;
      const read = this.readItemLines(lines, next, item);
      loose ||= read.inner.some((line, place) => !line && place > 0 && !/^\s/.test(read.inner[place + 1] ?? " "));
      items.push(read.inner);
      end = read.end;
    }
    const list = this.element(first.ordered ? "ol" : "ul", { dir: directionOf(items.map((inner) => inner[0]).join("\n")), start: first.ordered && first.number !== 1 ? first.number : undefined });
    for (const inner of items) list.append(this.item(inner, depth, !loose));
    return { node: list, next: end };
  }

  item(inner, depth, tight) {
    const node = this.element("li");
    const task = /^\[([ xX])\] /.exec(inner[0]);
    if (task) {
      node.className = "task";
      node.append(el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "open" : "done" }));
      inner[0] = inner[0].slice(4);
    }
    this.appendBlocks(node, inner, depth + 1, tight);
    return node;
  }

  /* A row has the cells that are written: padding short rows would let a small text become millions of cells. */
  readTable(lines, at, alignments) {
    const body = this.element("tbody");
    const head = this.element("thead", {}, this.row(lines[at], "th", alignments));
    let end = at + 2;
    for (; end < lines.length && !isBlank(lines[end]) && !interrupts(lines[end]) && this.budget.left > 0; end++) body.append(this.row(lines[end], "td", alignments));
    const table = this.element("table", {}, head, body);
    return { node: this.element("div", { class: "table", dir: directionOf(lines[at]), tabindex: "0", role: "region", "aria-label": "Table" }, table), next: end };
  }

  row(line, name, alignments) {
    const row = this.element("tr");
    splitRow(line).slice(0, alignments.length).forEach((text, place) => {
      const cell = this.inline(name, text);
      if (alignments[place]) cell.classList.add(alignments[place]);
      row.append(cell);
    });
    return row;
  }

  readParagraph(lines, at) {
    let end = at + 1;
    let heading = null;
    for (; end < lines.length && !isBlank(lines[end]); end++) {
      if (/^ {0,3}=+\s*$/.test(lines[end])) {
        heading = "h1";
        break;
      }
      if (interrupts(lines[end]) || tableAt(lines, end)) break;
    }
    const text = lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd();
    return { node: this.inline(heading ?? "p", text), next: heading ? end + 1 : end };
  }
}

/* A message that grows. A block that is followed by another one does not change any more, up to the last two. */
export class MarkdownView {
  constructor(element, announce) {
    this.element = element;
    this.announce = announce;
    this.clear();
  }

  clear() {
    this.text = "";
    this.blocks = []; // {line, source, node, left, code, language}
    this.lines = [""];
    this.element.replaceChildren();
  }

  update(text) {
    if (!text.startsWith(this.text)) this.clear();
    const added = text.slice(this.text.length).split("\n");
    this.lines[this.lines.length - 1] += added[0];
    for (const line of added.slice(1)) this.lines.push(line);
    this.text = text;
    const old = this.blocks.splice(Math.max(this.blocks.length - 2, 0));
    const renderer = new Renderer(this.announce);
    renderer.budget.left = this.blocks.length ? this.blocks[this.blocks.length - 1].left : MOST_ELEMENTS;
    let at = old.length ? old[0].line : 0;
    while (at < this.lines.length) {
      if (isBlank(this.lines[at])) {
        at++;
        continue;
      }
      const block = { line: at, ...renderer.readBlock(this.lines, at, 0) };
      block.source = this.lines.slice(at, block.next).join("\n");
      block.left = renderer.budget.left;
      this.place(block, old.shift());
      this.blocks.push(block);
      at = block.next;
    }
    for (const block of old) block.node.remove();
  }

  /* Keeps the node of an unchanged block, and of code that has grown, for selections and focus. */
  place(block, old) {
    if (old && old.line === block.line && old.source === block.source) {
      block.node = old.node;
    } else if (old && old.line === block.line && old.code !== undefined && block.code !== undefined && old.language === block.language) {
      old.node.source = block.code;
      old.node.querySelector("code").textContent = visibleControls(block.code);
      block.node = old.node;
    } else if (old) {
      old.node.replaceWith(block.node);
    } else {
      this.element.append(block.node);
    }
  }
}
