// Small parts that several views have.

import { h } from "./dom.js";
import { ago, full } from "./when.js";

/** How each status is read out and drawn. */
export const STATUS = {
  running: ["▸", "running"], paused: ["●", "paused"], complete: ["✓", "complete"], failed: ["✗", "failed"], aborted: ["■", "aborted"],
  idle: ["○", "idle"], "set aside": ["!", "set aside"], started: ["▸", "runs"], waiting: ["●", "waits"], held: ["‖", "held"],
  interrupted: ["!", "interrupted"], retrying: ["↻", "tried again later"], rejected: ["⊘", "rejected"], stopped: ["■", "left"],
  completed: ["✓", "done"], skipped: ["–", "skipped"], pending: ["○", "not yet"],
};

export function pill(status) {
  const [sign, words] = STATUS[status] ?? ["?", status];
  return h("span", { class: "pill", dataset: { status } }, h("span", { "aria-hidden": "true" }, sign), ` ${words}`);
}

export const time = (text) => (text ? h("time", { datetime: text, title: full(text) }, ago(text)) : null);

/** The beginning of an id, for people. */
export const short = (id) => id.replace(/^session-/, "");

export const sessionLink = (id, ...words) => h("a", { href: `#/s/${encodeURIComponent(id)}` }, words.length ? words : h("code", {}, short(id)));

export const empty = (...words) => h("p", { class: "empty" }, words);

/** A table that is read as cards where the screen is narrow: each cell says its column. */
export function table(columns, rows, caption) {
  return h("div", { class: "table-frame" },
    h("table", { class: "table" },
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { dataset: { label: columns[at] } }, cell)))))));
}

export function say(text) {
  document.getElementById("announcer").textContent = text;
}

/** A command that people can copy. */
export function command(text) {
  const button = h("button", { type: "button", class: "quiet", on: { click: async () => { await navigator.clipboard?.writeText(text); say("Copied."); button.textContent = "copied"; } } }, "copy");
  return h("span", { class: "command" }, h("code", {}, text), button);
}
