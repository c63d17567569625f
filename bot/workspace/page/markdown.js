// The `markdown` block: headings, paragraphs, nested and task lists, quotes, fenced code, tables, rules,
// and inside a line bold, italic, strike, code and links. No raw HTML: angle brackets are just text.

import { h, safeLink } from "./dom.js";
import { withEmoji } from "./emoji.js";
import { channelMention, userMention } from "./mrkdwn.js";

const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)\s*$/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^\s{0,3}([-*_])\s*(?:\1\s*){2,}$/;
const QUOTE = /^\s{0,3}>\s?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 8;

/** Whole text as an array of block nodes. */
export function markdown(text, people, depth = 0) {
  const rows = String(text ?? "").replace(/\r\n?/g, "\n").split("\n");
  const nodes = [];
  let at = 0;
  while (at < rows.length) {
    const { node, next } = blockAt(rows, at, people, depth);
    if (node) nodes.push(node);
    at = next;
  }
  return nodes;
}

function blockAt(rows, at, people, depth) {
  const row = rows[at];
  if (row.trim() === "") return { node: null, next: at + 1 };
  if (FENCE.test(row)) return fence(rows, at);
  if (HEADING.test(row)) return heading(row, at, people);
  if (RULE.test(row)) return { node: h("hr"), next: at + 1 };
  if (QUOTE.test(row) && depth < MAX_DEPTH) return quote(rows, at, people, depth);
  if (ITEM.test(row) && depth < MAX_DEPTH) return list(rows, at, people, depth);
  if (row.includes("|") && TABLE_RULE.test(rows[at + 1] ?? "")) return table(rows, at, people);
  return paragraph(rows, at, people);
}

function fence(rows, at) {
  const [, mark, language] = FENCE.exec(rows[at]);
  let end = at + 1;
  while (end < rows.length && !(rows[end].trim().startsWith(mark) && /^[`~]+$/.test(rows[end].trim()))) end += 1;
  const code = rows.slice(at + 1, end).join("\n");
  return { node: h("pre", { dataset: { language: language || null } }, code), next: end + 1 };
}

function heading(row, at, people) {
  const [, marks, body] = HEADING.exec(row);
  return { node: h("p", { class: `md-h md-h${marks.length}`, role: "heading", "aria-level": String(marks.length + 2) }, inline(body, people)), next: at + 1 };
}

function quote(rows, at, people, depth) {
  let end = at;
  while (end < rows.length && QUOTE.test(rows[end])) end += 1;
  const inner = rows.slice(at, end).map((row) => row.replace(QUOTE, "")).join("\n");
  return { node: h("blockquote", {}, markdown(inner, people, depth + 1)), next: end };
}

function list(rows, at, people, depth) {
  const [, indent, mark] = ITEM.exec(rows[at]);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < rows.length) {
    const match = ITEM.exec(rows[end]);
    if (!match || match[1].length !== indent.length || /\d/.test(match[2]) !== ordered) break;
    const stop = itemEnd(rows, end + 1, indent.length);
    items.push(listItem(match, rows.slice(end + 1, stop), people, depth));
    end = stop;
  }
  const start = ordered ? Number.parseInt(mark, 10) : null;
  return { node: h(ordered ? "ol" : "ul", { start: start === 1 ? null : start }, items), next: end };
}

function itemEnd(rows, from, indent) {
  let end = from;
  while (end < rows.length) {
    const row = rows[end];
    const inside = row.search(/\S/) > indent;
    const gap = row.trim() === "" && (rows[end + 1] ?? "").search(/\S/) > indent;
    if (!inside && !gap) break;
    end += 1;
  }
  return end;
}

function listItem([, , , body], rest, people, depth) {
  const task = /^\[([ xX])\]\s+(.*)$/.exec(body);
  const first = inline(task ? task[2] : body, people);
  const cut = Math.min(...rest.filter((row) => row.trim()).map((row) => row.search(/\S/)), 99);
  const inner = markdown(rest.map((row) => row.slice(cut)).join("\n"), people, depth + 1);
  if (!task) return h("li", {}, first, inner);
  const box = h("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "task" });
  return h("li", { class: "md-task" }, box, h("span", {}, first), inner);
}

function table(rows, at, people) {
  const aligns = cells(rows[at + 1]).map((rule) => alignment(rule));
  let end = at + 2;
  while (end < rows.length && rows[end].includes("|") && rows[end].trim() !== "") end += 1;
  const line = (row, tag) => h("tr", {}, cells(row).map((cell, index) => h(tag, { style: { "text-align": aligns[index] ?? "left" } }, inline(cell, people))));
  const head = h("thead", {}, line(rows[at], "th"));
  const body = h("tbody", {}, rows.slice(at + 2, end).map((row) => line(row, "td")));
  return { node: h("div", { class: "md-table", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, head, body)), next: end };
}

function cells(row) {
  const inner = row.trim().replace(/^\||(?<!\\)\|$/g, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function alignment(rule) {
  if (/^:-+:$/.test(rule)) return "center";
  return rule.endsWith(":") ? "right" : "left";
}

function paragraph(rows, at, people) {
  let end = at + 1;
  while (end < rows.length && !startsBlock(rows, end)) end += 1;
  const parts = rows.slice(at, end).map((row, index) => [index > 0 ? h("br") : null, inline(row.trim(), people)]);
  return { node: h("p", {}, parts), next: end };
}

function startsBlock(rows, at) {
  const row = rows[at];
  const opens = [FENCE, HEADING, RULE, QUOTE, ITEM].some((pattern) => pattern.test(row));
  return row.trim() === "" || opens || (row.includes("|") && TABLE_RULE.test(rows[at + 1] ?? ""));
}

// One alternative per inline form; the first that matches at a position wins.
const INLINE = [
  [/\\([\\`*_{}[\]()#+\-.!~|<>])/y, (match) => match[1]],
  [/(`+)(?!`)(.+?)(?<!`)\1(?!`)/y, (match) => h("code", {}, match[2].trim())],
  [/!\[([^\]]*)\]\(\s*<?([^\s)>]+)>?[^)]*\)/y, (match) => safeLink(match[2], match[1] || match[2])],
  [/\[((?:[^[\]]|\[[^\]]*\])+)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)/y, (match, people, depth) => safeLink(match[2], inline(match[1], people, depth))],
  [/<((?:https?|mailto):[^\s<>|]+)(?:\|([^<>]*))?>/y, (match) => safeLink(match[1], match[2] || match[1])],
  [/<@(\w+)(?:\|([^<>]*))?>/y, (match, people) => userMention(match[1], match[2], people)],
  [/<#(\w+)(?:\|([^<>]*))?>/y, (match, people) => channelMention(match[1], match[2], people)],
  [/\*\*(?=\S)(.+?)(?<=\S)\*\*(?!\*)/y, (match, people, depth) => h("strong", {}, inline(match[1], people, depth))],
  [/(?<![\p{L}\p{N}])__(?=\S)(.+?)(?<=\S)__(?![\p{L}\p{N}])/uy, (match, people, depth) => h("strong", {}, inline(match[1], people, depth))],
  [/~~(?=\S)(.+?)(?<=\S)~~/y, (match, people, depth) => h("s", {}, inline(match[1], people, depth))],
  [/\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?!\*)/y, (match, people, depth) => h("em", {}, inline(match[1], people, depth))],
  [/(?<![\p{L}\p{N}])_(?=\S)(.+?)(?<=\S)_(?![\p{L}\p{N}])/uy, (match, people, depth) => h("em", {}, inline(match[1], people, depth))],
  [/https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]]/y, (match) => safeLink(match[0])],
];

function inline(text, people, depth = 0) {
  const nodes = [];
  let pending = "";
  let at = 0;
  while (at < text.length) {
    const found = depth < MAX_DEPTH ? formAt(text, at, people, depth + 1) : null;
    if (!found) {
      pending += text[at];
      at += 1;
      continue;
    }
    if (pending) nodes.push(withEmoji(pending));
    pending = "";
    nodes.push(found.node);
    at = found.end;
  }
  if (pending) nodes.push(withEmoji(pending));
  return nodes;
}

function formAt(text, at, people, depth) {
  for (const [pattern, make] of INLINE) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    // The end is taken before `make`, which uses the same patterns for what stands inside.
    const end = pattern.lastIndex;
    if (match) return { node: make(match, people, depth), end };
  }
  return null;
}
