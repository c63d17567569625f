// Slack's message text ("mrkdwn") as DOM nodes. `people` answers who an id is (see directory.js).
//
// Text reaches the page as Slack stores it: `&amp; &lt; &gt;` for the three characters, and everything
// special between angle brackets: `<@U1>`, `<#C1|ops>`, `<!here>`, `<!date^..>`, `<https://x|label>`.
// First code blocks are cut out, then lines become quotes, lists or text, then one line its marks.

import { h, safeLink } from "./dom.js";
import { withEmoji } from "./emoji.js";
import { formatToken } from "./time.js";

/** Whole text as an array of block nodes. */
export function mrkdwn(text, people) {
  const nodes = [];
  const parts = String(text ?? "").split("```");
  const closed = parts.length % 2 === 1;
  parts.forEach((part, index) => {
    const isCode = index % 2 === 1 && (closed || index < parts.length - 1);
    if (isCode) nodes.push(h("pre", {}, plain(part.replace(/^\n|\n$/g, ""), people)));
    else nodes.push(...lines(index % 2 === 1 ? "```" + part : trimAround(part, index, parts), people));
  });
  return nodes;
}

function trimAround(part, index, parts) {
  const start = index > 0 ? part.replace(/^\n/, "") : part;
  return index < parts.length - 1 ? start.replace(/\n$/, "") : start;
}

const QUOTE = /^(?:&gt;|>) ?/;
const BULLET = /^(\s*)(?:[•◦▪‣]|-(?= ))\s*(.*)$/;
const NUMBER = /^(\s*)(\d{1,3})\.\s+(.*)$/;

function lines(text, people) {
  if (text === "") return [];
  const nodes = [];
  const rows = text.split("\n");
  let at = 0;
  while (at < rows.length) {
    const kind = kindOf(rows[at]);
    let end = at + 1;
    if (kind === "rest") end = rows.length;
    else while (end < rows.length && kindOf(rows[end]) === kind) end += 1;
    nodes.push(group(kind, rows.slice(at, end), people));
    at = end;
  }
  return nodes;
}

function kindOf(row) {
  if (/^(?:&gt;){3}|^>>>/.test(row)) return "rest";
  if (QUOTE.test(row)) return "quote";
  if (BULLET.test(row)) return "bullets";
  if (NUMBER.test(row)) return "numbers";
  return "text";
}

function group(kind, rows, people) {
  if (kind === "rest") {
    const inner = rows.join("\n").replace(/^(?:&gt;){3} ?|^>>> ?/, "");
    return h("blockquote", {}, withBreaks(inner.split("\n"), people));
  }
  if (kind === "quote") return h("blockquote", {}, withBreaks(rows.map((row) => row.replace(QUOTE, "")), people));
  if (kind === "bullets") return h("ul", {}, rows.map((row) => bullet(BULLET.exec(row), people)));
  if (kind === "numbers") return h("ol", {}, rows.map((row) => numbered(NUMBER.exec(row), people)));
  return h("p", {}, withBreaks(rows, people));
}

function bullet([, indent, body], people) {
  return h("li", { class: indent.length > 1 ? "deeper" : null }, inline(body, people));
}

function numbered([, indent, number, body], people) {
  return h("li", { class: indent.length > 1 ? "deeper" : null, value: Number(number) }, inline(body, people));
}

function withBreaks(rows, people) {
  return rows.map((row, index) => [index > 0 ? h("br") : null, inline(row, people)]);
}

const MARKS = { "*": "strong", _: "em", "~": "s" };
const ATOM = /`([^`\n]+)`|<([^<>\n]+)>/y;
const WORD = /[\p{L}\p{N}]/u;
const MAX_DEPTH = 6;

/** One line: code, entities, bold, italic, strike, emoji. Marks nest; code does not. */
export function inline(text, people, depth = 0) {
  const nodes = [];
  const hopeless = new Set(); // marks that nothing further on closes: keeps a line of stars linear
  let pending = "";
  let at = 0;
  const flush = () => {
    if (pending) nodes.push(withEmoji(unescapeText(pending)));
    pending = "";
  };
  while (at < text.length) {
    const found = atomNode(text, at, people) ?? markNode(text, at, people, depth, hopeless);
    if (found) {
      flush();
      nodes.push(found.node);
      at = found.end;
    } else {
      pending += text[at];
      at += 1;
    }
  }
  flush();
  return nodes;
}

function atomAt(text, at) {
  if (text[at] !== "`" && text[at] !== "<") return null;
  ATOM.lastIndex = at;
  return ATOM.exec(text);
}

function atomNode(text, at, people) {
  const match = atomAt(text, at);
  if (!match) return null;
  const end = at + match[0].length;
  if (match[1] !== undefined) return { node: h("code", {}, plain(match[1], people)), end };
  return { node: entity(match[2], people), end };
}

function markNode(text, at, people, depth, hopeless) {
  const mark = text[at];
  if (!MARKS[mark] || depth >= MAX_DEPTH || hopeless.has(mark) || !opensAt(text, at)) return null;
  const end = closingOf(text, at);
  if (end < 0) {
    hopeless.add(mark);
    return null;
  }
  return { node: h(MARKS[mark], {}, inline(text.slice(at + 1, end), people, depth + 1)), end: end + 1 };
}

function opensAt(text, at) {
  const after = text[at + 1] ?? " ";
  return !WORD.test(text[at - 1] ?? " ") && !/\s/.test(after) && after !== text[at];
}

function closingOf(text, at) {
  for (let end = at + 1; end < text.length; end += 1) {
    const atom = atomAt(text, end);
    if (atom) end += atom[0].length - 1;
    else if (end > at + 1 && closesAt(text, end, text[at])) return end;
  }
  return -1;
}

function closesAt(text, at, mark) {
  return text[at] === mark && !/\s/.test(text[at - 1]) && !WORD.test(text[at + 1] ?? " ");
}

function entity(body, people) {
  const bar = body.indexOf("|");
  const target = bar < 0 ? body : body.slice(0, bar);
  const label = bar < 0 ? "" : unescapeText(body.slice(bar + 1));
  if (target.startsWith("@")) return userMention(target.slice(1), label, people);
  if (target.startsWith("#")) return channelMention(target.slice(1), label, people);
  if (target.startsWith("!")) return special(target.slice(1), label, people);
  const address = unescapeText(target);
  return safeLink(address, label || address.replace(/^mailto:/, ""));
}

export function userMention(id, label, people) {
  const mine = id === people.me() ? " mention-me" : "";
  return h("span", { class: `mention${mine}`, dataset: { user: id } }, `@${people.userName(id) ?? (label || id)}`);
}

export function channelMention(id, label, people) {
  const name = `#${people.channelName(id) ?? (label || id)}`;
  const href = people.channelHref(id);
  return href ? h("a", { class: "mention", href }, name) : h("span", { class: "mention" }, name);
}

function special(body, label, people) {
  const [kind, ...rest] = body.split("^");
  if (kind === "date") return dateEntity(rest, label);
  if (kind === "subteam") return h("span", { class: "mention" }, label || people.groupName(rest[0]) || "@group");
  if (["here", "channel", "everyone"].includes(kind)) return h("span", { class: "mention mention-me" }, `@${kind}`);
  return h("span", {}, label || `<!${body}>`);
}

export function dateEntity([seconds, pattern, address], fallback) {
  const when = new Date(Number(seconds) * 1000);
  if (Number.isNaN(when.getTime())) return h("span", {}, fallback || String(seconds));
  const shown = String(pattern ?? "{date}").replace(/\{([a-z_]+)\}/g, (written, token) => formatToken(token, when) ?? written);
  const node = h("time", { datetime: when.toISOString(), title: when.toLocaleString() }, shown);
  return address ? safeLink(address, node) : node;
}

/** `&amp; &lt; &gt;` back to their characters, once. */
export function unescapeText(text) {
  const names = { amp: "&", lt: "<", gt: ">" };
  return String(text).replace(/&(amp|lt|gt);/g, (_, name) => names[name]);
}

/** Stored text as the person typed it: for code, for editing, for screen readers. */
export function plain(text, people) {
  const opened = String(text ?? "").replace(/<([^<>\n]+)>/g, (_, body) => {
    const [target, label] = body.split("|");
    if (target.startsWith("@")) return `@${people.userHandle(target.slice(1)) ?? label ?? target.slice(1)}`;
    if (target.startsWith("#")) return `#${people.channelName(target.slice(1)) ?? label ?? target.slice(1)}`;
    if (target.startsWith("!date")) return label ?? "";
    if (target.startsWith("!subteam")) return label ?? people.groupName(target.split("^")[1]) ?? "@group";
    if (target.startsWith("!")) return `@${target.slice(1)}`;
    return label ?? target.replace(/^mailto:/, "");
  });
  return unescapeText(opened);
}
