/* Markdown to DOM nodes, for text that grows while it is read.
 *
 * The text is hostile: a model may write anything. Nodes are created one by one and text enters
 * them as text, so there is no HTML to escape; a link is a link only when its address begins with
 * http or https. No input may cost more than a fixed multiple of its length: nothing here looks
 * back or ahead without a bound, and nesting ends at MOST_DEPTH.
 *
 * Known: headings, paragraphs, fenced code, lists, quotes, tables, rules; code spans, emphasis,
 * strikethrough, links, bare addresses. HTML is shown as the text it is. */
import { button, copyText, el } from "./dom.js";

const MOST_DEPTH = 12;
const MOST_OPENERS = 24; /* emphasis that waits for its end; also bounds how deep elements nest */
const MOST_ADDRESS = 2000;
const MOST_COLUMNS = 50;

const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TABLE_RULE = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$/; /* of a trimmed line */

/* Shows text that only grows. Blocks that can change no more are built once; each update() builds
 * the last block anew, and adds to it where it is code. */
export class Markdown {
  constructor(root) {
    this.root = root;
    this.done = 0; /* characters of the text whose blocks are final */
    this.last = null; /* the node of the last block */
    this.code = null; /* the last block, when it is a fence that is still open */
  }

  update(text, final) {
    if (this.code && this.continueCode(text)) return;
    const lines = text.slice(this.done).split("\n");
    const found = blocks(lines, 0);
    if (this.last) this.last.remove();
    this.last = null;
    let line = 0;
    for (let i = 0; i < found.length; i++) {
      const isLast = i === found.length - 1;
      for (; isLast && line < found[i].from; line++) this.done += lines[line].length + 1;
      const node = build(found[i], isLast && !final);
      this.root.append(node);
      if (isLast) this.last = node;
    }
    const tail = found[found.length - 1];
    if (!final && tail && tail.type === "code" && !tail.closed) {
      const opening = this.done + lines[tail.from].length + 1;
      const whole = text.lastIndexOf("\n") + 1; /* the last line may yet become the end */
      this.code = {
        node: this.last.querySelector("code").firstChild,
        fence: tail,
        at: Math.max(opening, whole),
      };
      this.code.node.data = codeLines(text.slice(opening, this.code.at), tail.indent);
      this.showRest(text);
    }
  }

  /* Appends the new whole lines of an open fence. False when the fence has ended: the caller then
   * parses the block as a whole. */
  continueCode(text) {
    const c = this.code;
    const end = text.lastIndexOf("\n") + 1;
    if (end <= c.at) {
      if (!closes(text.slice(c.at), c.fence)) return this.showRest(text);
      this.code = null;
      return false;
    }
    const more = text.slice(c.at, end);
    for (const line of more.split("\n")) {
      if (!closes(line, c.fence)) continue;
      this.code = null;
      return false;
    }
    if (c.rest) {
      c.node.deleteData(c.node.length - c.rest, c.rest);
      c.rest = 0;
    }
    c.node.appendData(codeLines(more, c.fence.indent));
    c.at = end;
    return this.showRest(text);
  }

  /* The line that is being written, which the next update replaces. */
  showRest(text) {
    const c = this.code;
    const rest = codeLines(text.slice(c.at), c.fence.indent);
    if (c.rest) c.node.deleteData(c.node.length - c.rest, c.rest);
    c.node.appendData(rest);
    c.rest = rest.length;
    return true;
  }
}

function codeLines(text, indent) {
  return indent ? text.split("\n").map((l) => unindent(l, indent)).join("\n") : text;
}

/* ---- blocks ---- */

function blocks(lines, depth) {
  const found = [];
  let i = 0;
  while (i < lines.length) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const block = readBlock(lines, i, depth);
    block.from = i;
    found.push(block);
    i = block.to;
  }
  return found;
}

function readBlock(lines, i, depth) {
  const line = lines[i];
  let m;
  if ((m = FENCE.exec(line))) return readFence(lines, i, m);
  if ((m = HEADING.exec(line)))
    return { type: "heading", level: m[1].length, text: headingText(line, m[0].length), to: i + 1 };
  if (RULE.test(line)) return { type: "rule", to: i + 1 };
  if (depth < MOST_DEPTH) {
    if (QUOTE.test(line)) return readQuote(lines, i, depth);
    if ((m = ITEM.exec(line))) return readList(lines, i, m, depth);
    if (startsTable(lines, i)) return readTable(lines, i);
  }
  return readParagraph(lines, i, depth);
}

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;
const unindent = (line, n) => line.slice(Math.min(n, indentOf(line)));

function headingText(line, at) {
  let end = line.trimEnd().length;
  let stop = end;
  while (stop > at && line[stop - 1] === "#") stop--;
  if (stop === at || line[stop - 1] === " ") end = stop; /* "# title #" closes; "# C#" does not */
  return line.slice(at, end).trim();
}

function closes(line, fence) {
  const t = line.trim();
  if (t.length < fence.mark.length || indentOf(line) > 3) return false;
  for (const c of t) if (c !== fence.mark[0]) return false;
  return true;
}

function readFence(lines, i, m) {
  const block = { type: "code", indent: m[1].length, mark: m[2], language: m[3].trim() };
  let to = i + 1;
  while (to < lines.length && !closes(lines[to], block)) to++;
  block.text = codeLines(lines.slice(i + 1, to).join("\n"), block.indent);
  block.closed = to < lines.length;
  block.to = block.closed ? to + 1 : to;
  return block;
}

function readQuote(lines, i, depth) {
  const inner = [];
  for (; i < lines.length && QUOTE.test(lines[i]); i++) inner.push(lines[i].replace(QUOTE, ""));
  return { type: "quote", inner: blocks(inner, depth + 1), to: i };
}

/* Whether a line begins a block that ends the paragraph before it. As in CommonMark, only a list
 * that begins with 1 does: "in\n1984. was" is no list. */
function interrupts(lines, i, depth) {
  const line = lines[i];
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  if (depth >= MOST_DEPTH) return false;
  const item = ITEM.exec(line);
  if (item && item[0].length < line.length && !/^\d/.test(item[2])) return true;
  if (item && item[0].length < line.length && /^1[.)]/.test(item[2])) return true;
  return QUOTE.test(line) || startsTable(lines, i);
}

function readParagraph(lines, i, depth) {
  let to = i + 1;
  while (to < lines.length && !isBlank(lines[to]) && !interrupts(lines, to, depth)) to++;
  return { type: "paragraph", text: lines.slice(i, to).map((l) => l.trimStart()).join("\n"), to };
}

/* Lines that are indented by two or more beyond the mark belong to the item: models indent by two,
 * three or four, whatever the mark's width. */
function readList(lines, i, first, depth) {
  const ordered = /\d/.test(first[2]);
  const mark = first[2].slice(-1);
  const list = { type: "list", ordered, items: [], loose: false };
  if (ordered) list.start = parseInt(first[2], 10);
  const indent = first[1].length;
  let blank = false;
  let item = null;
  let inner = 0;
  for (; i < lines.length; i++) {
    const line = lines[i];
    if (isBlank(line)) {
      blank = true;
      if (item) item.push("");
      continue;
    }
    const m = ITEM.exec(line);
    const deeper = item && indentOf(line) >= indent + 2;
    if (m && !deeper) {
      if (m[2].slice(-1) !== mark || m[1].length + 1 < indent || RULE.test(line)) break;
      list.loose = list.loose || (blank && item !== null);
      inner = m[0].length < line.length ? m[0].length : m[1].length + m[2].length + 1;
      item = [line.slice(m[0].length)];
      list.items.push(item);
    } else if (deeper) {
      list.loose = list.loose || (blank && !m);
      item.push(unindent(line, inner));
    } else if (!blank && !interrupts(lines, i, depth)) {
      item.push(line.trimStart()); /* a paragraph goes on without its indent */
    } else {
      break;
    }
    blank = false;
  }
  list.items = list.items.map((l) => blocks(l, depth + 1));
  list.to = i;
  return list;
}

function startsTable(lines, i) {
  return (
    i + 1 < lines.length &&
    lines[i].includes("|") &&
    lines[i + 1].includes("-") &&
    TABLE_RULE.test(lines[i + 1].trim()) &&
    cells(lines[i]).length === cells(lines[i + 1]).length
  );
}

function readTable(lines, i) {
  const table = { type: "table", head: cells(lines[i]), rows: [] };
  table.align = cells(lines[i + 1]).map((c) => {
    if (!c.endsWith(":")) return "";
    return c.startsWith(":") ? "middle" : "right";
  });
  for (i += 2; i < lines.length && !isBlank(lines[i]) && lines[i].includes("|"); i++)
    table.rows.push(cells(lines[i]));
  table.to = i;
  return table;
}

/* The cells of a table's line: split at bars that no backslash precedes. */
function cells(line) {
  const found = [];
  let t = line.trim();
  if (t.startsWith("|")) t = t.slice(1);
  let cell = "";
  for (let i = 0; i < t.length && found.length < MOST_COLUMNS; i++) {
    if (t[i] === "\\" && t[i + 1] === "|") cell += t[++i];
    else if (t[i] === "|") {
      found.push(cell.trim());
      cell = "";
    } else cell += t[i];
  }
  if (cell.trim() !== "") found.push(cell.trim());
  return found;
}

/* ---- blocks to nodes ---- */

function build(block, open) {
  switch (block.type) {
    case "heading":
      return inline(el("h" + Math.min(block.level + 1, 6)), block.text, open);
    case "rule":
      return el("hr");
    case "code":
      return buildCode(block);
    case "quote":
      return buildInner(el("blockquote"), block.inner, false, open);
    case "list":
      return buildList(block, open);
    case "table":
      return buildTable(block);
    default:
      return inline(el("p"), block.text, open);
  }
}

/* In a list without blank lines a paragraph is the item's text itself. */
function buildInner(node, inner, tight, open) {
  inner.forEach((b, i) => {
    const isOpen = open && i === inner.length - 1;
    if (tight && b.type === "paragraph") {
      if (i > 0 && inner[i - 1].type === "paragraph") node.append(el("br"));
      inline(node, b.text, isOpen);
    } else node.append(build(b, isOpen));
  });
  return node;
}

function buildList(list, open) {
  const node = el(list.ordered ? "ol" : "ul");
  if (list.ordered && list.start !== 1) node.setAttribute("start", list.start);
  list.items.forEach((inner, i) => {
    const li = el("li");
    const first = inner[0];
    const task = first && first.type === "paragraph" && /^\[([ xX])\] /.exec(first.text);
    if (task) {
      li.className = task[1] === " " ? "task" : "task done";
      first.text = first.text.slice(4);
    }
    node.append(buildInner(li, inner, !list.loose, open && i === list.items.length - 1));
  });
  return node;
}

function buildTable(table) {
  const row = (tag, texts) =>
    el("tr", null, ...table.head.map((_, i) =>
      inline(el(tag, { class: table.align[i] || null }), texts[i] || "", false)));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", null, el("thead", null, row("th", table.head)),
      el("tbody", null, ...table.rows.map((r) => row("td", r)))));
}

function buildCode(block) {
  const name = block.language.split(/[\s,{]/, 1)[0].slice(0, 30);
  const code = el("code");
  code.append(document.createTextNode(block.text));
  const copy = button("copy", "Copy the code", () => copyText(code.textContent, copy));
  return el("div", { class: "code" },
    el("div", { class: "code-top" }, el("span", null, name || "text"), copy),
    el("pre", { tabindex: "0" }, code));
}

/* ---- inline ---- */

const SPECIAL = /[\\`*_~[\]<\n]|https?:\/\//g;
const ESCAPED = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

/* Adds a paragraph's text to a node. `open`: the text is still growing, so bold text whose end has
 * not come yet is bold already. */
function inline(node, text, open) {
  new Inline(node, text).read(open);
  return node;
}

class Inline {
  constructor(node, text) {
    this.node = node;
    this.text = text;
    this.openers = []; /* runs of * _ ~ that may begin emphasis: { node, mark, n } */
    this.brackets = []; /* text nodes of "[" that may begin a link, and where openers stood */
    this.noTicks = new Set(); /* lengths of runs of ` that have no partner further on */
  }

  read(open) {
    const text = this.text;
    let at = 0;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const m = SPECIAL.exec(text);
      if (!m) break;
      if (m.index > at) this.add(text.slice(at, m.index));
      at = this.special(m[0], m.index);
    }
    if (at < text.length) this.add(text.slice(at));
    if (open) this.closeOpen();
  }

  add(text) {
    const node = document.createTextNode(text);
    this.node.append(node);
    return node;
  }

  special(mark, at) {
    const text = this.text;
    switch (mark) {
      case "\\":
        if (text[at + 1] === "\n") return at + 1;
        if (at + 1 < text.length && ESCAPED.test(text[at + 1])) {
          this.add(text[at + 1]);
          return at + 2;
        }
        break;
      case "`":
        return this.ticks(at);
      case "*":
      case "_":
      case "~":
        return this.run(mark, at);
      case "[":
        if (this.brackets.length < MOST_OPENERS) {
          this.brackets.push({ node: this.add("["), openers: this.openers.length });
          return at + 1;
        }
        break;
      case "]":
        return this.closeBracket(at);
      case "\n":
        this.node.append(el("br"));
        return at + 1;
      case "<":
        return this.angle(at);
      default:
        return this.address(at);
    }
    this.add(mark);
    return at + mark.length;
  }

  ticks(at) {
    const text = this.text;
    let n = 1;
    while (text[at + n] === "`") n++;
    const from = at + n;
    if (!this.noTicks.has(n)) {
      for (let i = text.indexOf("`", from); i >= 0; ) {
        let end = i;
        while (text[end] === "`") end++;
        if (end - i === n) {
          let code = text.slice(from, i).replace(/\n/g, " ");
          const padded = code.startsWith(" ") && code.endsWith(" ") && code.trim() !== "";
          if (padded) code = code.slice(1, -1);
          this.node.append(el("code", null, code));
          return end;
        }
        i = text.indexOf("`", end);
      }
      this.noTicks.add(n);
    }
    this.add(text.slice(at, from));
    return from;
  }

  run(mark, at) {
    const text = this.text;
    let n = 1;
    while (text[at + n] === mark) n++;
    const before = at > 0 ? text[at - 1] : " ";
    const after = at + n < text.length ? text[at + n] : " ";
    let begins = !/\s/.test(after);
    let ends = !/\s/.test(before);
    if (mark === "_") {
      begins = begins && !WORD.test(before);
      ends = ends && !WORD.test(after);
    }
    const node = this.add(text.slice(at, at + n));
    let left = n;
    while (ends && left > 0) {
      const used = this.match(mark, left, node);
      if (!used) break;
      left -= used;
    }
    node.data = mark.repeat(left);
    if (begins && left > 0 && left <= 3 && this.openers.length < MOST_OPENERS)
      this.openers.push({ node, mark, n: left });
    return at + n;
  }

  /* Ends emphasis at `node`: everything between the opener's text node and `node` moves into an
   * element. Answers how many marks of the run were used. */
  match(mark, n, node) {
    const floor = this.brackets.length ? this.brackets[this.brackets.length - 1].openers : 0;
    let i = this.openers.length - 1;
    while (i >= floor && this.openers[i].mark !== mark) i--;
    if (i < floor) return 0;
    const opener = this.openers[i];
    if (mark === "~" && (opener.n !== 2 || n !== 2)) return 0;
    const used = Math.min(opener.n, n) >= 2 ? 2 : 1;
    const tag = mark === "~" ? "del" : used === 2 ? "strong" : "em";
    wrap(el(tag), opener.node, node);
    opener.n -= used;
    opener.node.data = mark.repeat(opener.n);
    this.openers.length = opener.n > 0 ? i + 1 : i;
    return used;
  }

  closeOpen() {
    for (let i = this.openers.length - 1; i >= 0; i--) {
      const o = this.openers[i];
      if (o.n !== 2 || o.mark !== "*" || !o.node.nextSibling) continue;
      wrap(el("strong"), o.node, null);
      o.node.data = "";
    }
  }

  /* "]" ends a link when "(address)" follows. */
  closeBracket(at) {
    const opening = this.brackets.pop();
    const found = opening && this.text[at + 1] === "(" && readAddress(this.text, at + 2);
    const address = found && safeAddress(found.address);
    if (!address) {
      this.add("]");
      return at + 1;
    }
    const image = opening.node.previousSibling;
    if (image && image.nodeType === Node.TEXT_NODE && image.data.endsWith("!"))
      image.data = image.data.slice(0, -1); /* an image is shown as a link, never loaded */
    const link = anchor(address);
    wrap(link, opening.node, null);
    opening.node.remove();
    if (!link.textContent) link.textContent = found.address;
    this.openers.length = Math.min(this.openers.length, opening.openers);
    this.brackets.length = 0; /* links do not nest */
    return found.to;
  }

  angle(at) {
    const part = this.text.slice(at + 1, at + MOST_ADDRESS);
    const end = at + 1 + part.indexOf(">");
    const inside = end > at ? part.slice(0, end - at - 1) : "";
    if (/^br ?\/?$/i.test(inside)) {
      this.node.append(el("br")); /* models write this one inside tables */
      return end + 1;
    }
    const plain = !this.brackets.length && /^https?:\/\/\S+$/i.test(inside);
    const address = plain && safeAddress(inside);
    if (!address) {
      this.add("<");
      return at + 1;
    }
    this.link(address, inside);
    return end + 1;
  }

  link(address, text) {
    const a = anchor(address);
    a.textContent = text;
    this.node.append(a);
  }

  /* An address that stands by itself; punctuation at its end belongs to the sentence. */
  address(at) {
    const m = /^https?:\/\/[^\s<>"`]+/.exec(this.text.slice(at, at + MOST_ADDRESS));
    let end = m ? m[0].length : 0;
    while (end > 0 && /[.,;:!?'*_~\]]/.test(m[0][end - 1])) end--;
    if (end > 0 && m[0][end - 1] === ")" && !m[0].slice(0, end).includes("(")) end--;
    const inLink = this.brackets.length > 0;
    const address = !inLink && end > 8 && safeAddress(m[0].slice(0, end));
    if (!address) {
      this.add("http");
      return at + 4;
    }
    this.link(address, m[0].slice(0, end));
    return at + end;
  }
}

/* Moves what stands between two siblings into `element`, which takes its place. */
function wrap(element, from, to) {
  while (from.nextSibling && from.nextSibling !== to) element.append(from.nextSibling);
  from.after(element);
}

/* "address" or "<address>", a title perhaps, and ")". */
function readAddress(text, at) {
  const part = text.slice(at, at + MOST_ADDRESS);
  let depth = 0;
  let end = 0;
  for (; end < part.length && part[end] !== "\n"; end++) {
    if (part[end] === "(") depth++;
    else if (part[end] === ")" && depth-- === 0) break;
  }
  if (part[end] !== ")") return null;
  let address = part.slice(0, end).trim();
  const space = address.search(/\s/);
  if (space >= 0) address = address.slice(0, space);
  if (address.startsWith("<") && address.endsWith(">")) address = address.slice(1, -1);
  return { address, to: at + end + 1 };
}

/* The address as the browser reads it, or null when it is not http or https: "javascript:" and its
 * disguises, "data:", and paths of this server are no links. */
function safeAddress(text) {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    const u = new URL(text);
    return u.protocol === "http:" || u.protocol === "https:" ? u.href : null;
  } catch (e) {
    return null;
  }
}

function anchor(address) {
  return el("a", { href: address, title: address, target: "_blank",
    rel: "noopener noreferrer nofollow" });
}
