/*
 * Inline Markdown to nodes: code, emphasis, links, line breaks. One pass over the text makes a list of parts, emphasis is marked
 * on them, and a last pass builds the nodes; each is linear in the length of the text, whatever the text.
 */
import { el, tameMarks, visibleControls } from "./dom.js";

const DEEPEST = 12; // elements in each other; text deeper than this stays without them
const LONGEST_URL = 2000;
const SPECIAL = /[\\`*_~[\]!<&\n]|https?:\/\//g;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "\u00a9", hellip: "\u2026", mdash: "\u2014", ndash: "\u2013", rarr: "\u2192", larr: "\u2190", times: "\u00d7", deg: "\u00b0" };
const MATH = { "(": "\\)", "[": "\\]" };

/* Only addresses that a browser opens as a page or a mail; all others, such as javascript: and data:, stay text. */
export function safeUrl(text) {
  if (text.length > LONGEST_URL || !/^(https?:\/\/|mailto:)/i.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.parts = []; // {text} | {code} | {math} | {breaks} | {run, ...} | {link, ...}
    this.delimiters = [];
    this.brackets = [];
    this.runs = null; // of backticks: length -> positions
    this.missing = new Set(); // ends of math that do not occur any more
  }

  addText(text) {
    const last = this.parts[this.parts.length - 1];
    if (last && last.text !== undefined) last.text += text;
    else if (text) this.parts.push({ text });
  }

  parse() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(text);
      const end = found ? found.index : text.length;
      if (end > this.at) this.addText(text.slice(this.at, end));
      this.at = end;
      if (found && !this.parseSpecial(found[0])) {
        this.addText(found[0]);
        this.at += found[0].length;
      }
    }
    this.matchEmphasis(0);
    return this.parts;
  }

  parseSpecial(found) {
    switch (found) {
      case "\\": return this.parseEscape();
      case "`": return this.parseCode();
      case "*":
      case "_":
      case "~": return this.parseDelimiter(found);
      case "[": return this.openBracket(false);
      case "!": return this.text[this.at + 1] === "[" && this.openBracket(true);
      case "]": return this.closeBracket();
      case "<": return this.parseAngle();
      case "&": return this.parseEntity();
      case "\n": return this.parseBreak();
      default: return this.parseAddress();
    }
  }

  parseEscape() {
    const next = this.text[this.at + 1];
    if (next === "\n") {
      this.parts.push({ breaks: true });
      this.at += 2;
      return true;
    }
    if (MATH[next] && this.parseMath(MATH[next])) return true;
    if (!next || !/[!-/:-@[-`{-~]/.test(next)) return false;
    this.addText(next);
    this.at += 2;
    return true;
  }

  /* Formulas are shown as they are written. */
  parseMath(close) {
    if (this.missing.has(close)) return false;
    const end = this.text.indexOf(close, this.at + 2);
    if (end < 0) {
      this.missing.add(close);
      return false;
    }
    this.parts.push({ math: this.text.slice(this.at, end + 2) });
    this.at = end + 2;
    return true;
  }

  findRuns() {
    this.runs = new Map();
    for (const match of this.text.matchAll(/`+/g)) {
      const size = match[0].length;
      if (!this.runs.has(size)) this.runs.set(size, { places: [], next: 0 });
      this.runs.get(size).places.push(match.index);
    }
  }

  parseCode() {
    const { text } = this;
    let size = 1;
    while (text[this.at + size] === "`") size++;
    if (!this.runs) this.findRuns();
    const runs = this.runs.get(size);
    while (runs && runs.next < runs.places.length && runs.places[runs.next] <= this.at) runs.next++;
    if (!runs || runs.next === runs.places.length) {
      this.addText("`".repeat(size));
      this.at += size;
      return true;
    }
    const end = runs.places[runs.next];
    let code = text.slice(this.at + size, end).replaceAll("\n", " ");
    if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
    this.parts.push({ code });
    this.at = end + size;
    return true;
  }

  parseDelimiter(character) {
    const { text, at } = this;
    let count = 1;
    while (text[at + count] === character) count++;
    const before = at ? text[at - 1] : " ";
    const after = text[at + count] ?? " ";
    const spaceBefore = /\s/.test(before);
    const spaceAfter = /\s/.test(after);
    const markBefore = /[\p{P}\p{S}]/u.test(before);
    const markAfter = /[\p{P}\p{S}]/u.test(after);
    const left = !spaceAfter && (!markAfter || spaceBefore || markBefore);
    const right = !spaceBefore && (!markBefore || spaceAfter || markAfter);
    const part = { run: character, count, length: count, opens: [], closes: [] };
    part.canOpen = character === "_" ? left && (!right || markBefore) : left;
    part.canClose = character === "_" ? right && (!left || markAfter) : right;
    if (character === "~" && count !== 2) part.canOpen = part.canClose = false;
    this.parts.push(part);
    this.delimiters.push(part);
    this.at += count;
    return true;
  }

  /* CommonMark's rules for runs of * and _. An opener that was looked for in vain is not looked for again. */
  matchEmphasis(first) {
    const open = [];
    const bottom = new Map();
    for (const closer of this.delimiters.slice(first)) {
      while (closer.canClose && closer.count) {
        const key = `${closer.run}${closer.canOpen}${closer.length % 3}`;
        let place = open.length - 1;
        const lowest = bottom.get(key) ?? 0;
        while (place >= lowest && !this.fits(open[place], closer)) place--;
        if (place < lowest) {
          bottom.set(key, open.length);
          break;
        }
        const opener = open[place];
        const used = opener.count >= 2 && closer.count >= 2 ? 2 : 1;
        const tag = closer.run === "~" ? "del" : used === 2 ? "strong" : "em";
        opener.opens.push(tag);
        closer.closes.push(tag);
        opener.count -= used;
        closer.count -= used;
        open.length = opener.count ? place + 1 : place;
        for (const [name, lowest] of bottom) bottom.set(name, Math.min(lowest, open.length));
      }
      if (closer.canOpen && closer.count) open.push(closer);
    }
    this.delimiters.length = first;
  }

  fits(opener, closer) {
    if (opener.run !== closer.run) return false;
    const either = opener.canClose || closer.canOpen;
    return !either || (opener.length + closer.length) % 3 !== 0 || (opener.length % 3 === 0 && closer.length % 3 === 0);
  }

  openBracket(image) {
    const part = { bracket: image ? "![" : "[", link: null };
    this.parts.push(part);
    this.brackets.push({ part, image, delimiters: this.delimiters.length });
    this.at += image ? 2 : 1;
    return true;
  }

  closeBracket() {
    const bracket = this.brackets.pop();
    if (!bracket || this.text[this.at + 1] !== "(") return false;
    const target = this.readTarget(this.at + 2);
    const url = target && safeUrl(target.url);
    if (!url) return false;
    this.matchEmphasis(bracket.delimiters);
    bracket.part.link = url;
    this.parts.push({ endLink: true });
    this.brackets.length = 0; // no link contains another
    this.at = target.end;
    return true;
  }

  /* "url)" or "url "title")": a few nested parentheses belong to the url. */
  readTarget(start) {
    const { text } = this;
    let depth = 0;
    let end = start;
    for (; end < text.length && end - start <= LONGEST_URL; end++) {
      const c = text[end];
      if (c === "(" && ++depth > 4) return null;
      if (c === ")" && --depth < 0) return { url: text.slice(start, end), end: end + 1 };
      if (c === " " || c === "\n" || c === "<") break;
    }
    const title = /[ \n]+"[^"\n]{0,300}"\)/y;
    title.lastIndex = end;
    return depth === 0 && title.test(text) ? { url: text.slice(start, end), end: title.lastIndex } : null;
  }

  parseAngle() {
    const line = /<br ?\/?>/iy;
    line.lastIndex = this.at;
    if (line.test(this.text)) {
      this.parts.push({ breaks: true });
      this.at = line.lastIndex;
      return true;
    }
    const address = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
    address.lastIndex = this.at;
    const found = address.exec(this.text);
    const url = found && safeUrl(found[1]);
    if (!url) return false;
    this.addAddress(url, found[1]);
    this.at = address.lastIndex;
    return true;
  }

  parseAddress() {
    const address = /https?:\/\/[^\s<>"`*|[\]]{1,2000}/y;
    address.lastIndex = this.at;
    const found = address.exec(this.text);
    if (!found || (this.at && /\w/.test(this.text[this.at - 1]))) return false;
    let size = found[0].length;
    let unopened = found[0].split(")").length - found[0].split("(").length;
    for (;;) {
      const last = found[0][size - 1];
      if (!".,;:!?'_~".includes(last) && !(last === ")" && unopened-- > 0)) break;
      size--;
    }
    const shown = found[0].slice(0, size);
    const url = safeUrl(shown);
    if (!url) return false;
    this.addAddress(url, shown);
    this.at += shown.length;
    return true;
  }

  addAddress(url, shown) {
    this.parts.push({ bracket: "", link: url }, { text: shown }, { endLink: true });
  }

  parseEntity() {
    const entity = /&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,6}));/iy;
    entity.lastIndex = this.at;
    const found = entity.exec(this.text);
    if (!found) return false;
    const code = found[1] ? Number(found[1]) : parseInt(found[2] ?? "", 16);
    const decoded = found[3] ? ENTITIES[found[3]] : code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : undefined;
    if (decoded === undefined) return false;
    this.addText(decoded);
    this.at = entity.lastIndex;
    return true;
  }

  parseBreak() {
    const last = this.parts[this.parts.length - 1];
    if (last?.text) last.text = last.text.trimEnd();
    this.parts.push({ breaks: true });
    this.at += 1;
    return true;
  }
}

/* Builds nodes from parts, below an element. The budget counts the elements that a message may still have; without it text stays text. */
class Builder {
  constructor(parent, budget) {
    this.target = parent;
    this.budget = budget;
    this.pending = ""; // text not yet appended, so that neighbours become one node
    this.open = [];
    this.links = 0; // 1 within a link; more where a link is not made because it is in another
  }

  flush() {
    if (this.pending) this.target.append(tameMarks(this.pending));
    this.pending = "";
  }

  pays() {
    return this.budget.left > 0 && this.budget.left-- > 0;
  }

  add(make, otherwise) {
    if (!this.pays()) {
      this.pending += otherwise;
      return;
    }
    this.flush();
    this.target.append(make());
  }

  enter(make) {
    this.open.push(this.target);
    if (this.open.length > DEEPEST || !make || !this.pays()) return;
    this.flush();
    const node = make();
    this.target.append(node);
    this.target = node;
  }

  leave() {
    const outer = this.open.pop();
    if (outer === this.target) return;
    this.flush();
    this.target = outer;
  }

  build(part) {
    if (part.text !== undefined) {
      this.pending += this.links ? visibleControls(part.text) : part.text;
    } else if (part.code !== undefined) {
      this.add(() => el("code", { dir: "ltr" }, visibleControls(part.code)), part.code);
    } else if (part.math !== undefined) {
      this.add(() => el("span", { class: "math", dir: "ltr" }, part.math), part.math);
    } else if (part.breaks) {
      this.add(() => el("br"), "\n");
    } else if (part.run) {
      part.closes.forEach(() => this.leave());
      this.pending += part.run.repeat(part.count);
      part.opens.reverse().forEach((tag) => this.enter(() => el(tag)));
    } else if (part.endLink) {
      this.leave();
      this.links--;
    } else if (part.link) {
      const attributes = { href: part.link, target: "_blank", rel: "noopener noreferrer nofollow", title: part.link };
      this.enter(this.links++ ? null : () => el("a", attributes));
    } else {
      this.pending += part.bracket;
    }
  }
}

export function appendInline(parent, text, budget) {
  if (budget.left <= 0) {
    parent.append(tameMarks(text));
    return;
  }
  const builder = new Builder(parent, budget);
  for (const part of new Inline(text).parse()) builder.build(part);
  builder.flush();
}
