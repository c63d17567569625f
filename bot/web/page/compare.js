// Two sessions side by side: what they were given, what each step did, and where they first went different ways.

import { get } from "./api.js";
import { empty, pill, sessionLink, time } from "./parts.js";
import { fill, h } from "./dom.js";
import { between, span } from "./when.js";

export async function compareView({ main, query, isHere }) {
  const [left, right] = ["left", "right"].map((name) => h("input", { type: "text", name, value: query.get(name) ?? "", required: true, autocomplete: "off", "aria-label": `The ${name} session`, placeholder: "session id, or its beginning" }));
  const result = h("div", { class: "stacked" });
  const form = h("form", { class: "filters", on: { submit: (event) => {
    event.preventDefault();
    location.hash = `#/compare?${new URLSearchParams({ left: left.value.trim(), right: right.value.trim() })}`;
  } } }, left, right, h("button", { type: "submit", class: "primary" }, "Compare"));
  fill(main, h("section", { class: "page" }, h("h1", {}, "Compare two sessions"), form, result));
  const show = async (now) => {
    const wanted = { left: now.get("left") ?? "", right: now.get("right") ?? "" };
    left.value = wanted.left;
    right.value = wanted.right;
    if (!wanted.left || !wanted.right) return fill(result, empty("Name two sessions, a fork and its parent for example."));
    try {
      const found = await get("compare", wanted);
      return isHere() && fill(result, drawn(found));
    } catch (refusal) {
      return fill(result, h("p", { class: "problem", role: "alert" }, refusal.message));
    }
  };
  await show(query);
  return { moved: show };
}

function drawn(found) {
  const same = found.rows.filter((row) => !row.differs.length).length;
  return [
    h("div", { class: "pair" }, found.sessions.map((one) => h("div", { class: "card" }, h("h2", {}, one.flow), h("p", {}, sessionLink(one.sessionId), " ", pill(one.status)), h("p", { class: "muted" }, `${one.events} events, started `, time(one.createdAt))))),
    found.sameFlow ? null : h("p", { class: "note" }, "The texts of their flows differ."),
    found.inputs.length ? h("section", { class: "card" }, h("h2", {}, "Inputs that differ"), found.inputs.map((one) => h("div", {}, h("h3", {}, h("code", {}, one.name)), h("div", { class: "pair" }, marked(one.left, one.right), marked(one.right, one.left))))) : null,
    h("p", { class: "figure" }, found.first ? ["They first differ at ", h("strong", {}, found.first), `; ${same} of ${found.rows.length} steps are the same.`] : `All ${found.rows.length} steps are the same.`),
    h("ol", { class: "differences" }, found.rows.map((row) => difference(row, row.path === found.first))),
  ];
}

/** A text whose lines that the other one has not are marked. */
function marked(text, other) {
  const lines = new Set(other.split("\n"));
  return h("pre", { class: "value", tabindex: 0 }, text.split("\n").map((line) => [lines.has(line) ? line : h("mark", {}, line), "\n"]));
}

function difference(row, isFirst) {
  const took = (side) => (side?.started ? span(between(side.started, side.ended ?? side.started)) : "");
  const side = (one, other) => h("div", { class: "side" }, one ? [pill(one.status), h("span", { class: "muted" }, ` ${took(one)}`), Object.entries(one.shown).map(([name, text]) => [h("h4", {}, name), marked(text, other?.shown[name] ?? "")])] : h("span", { class: "muted" }, "did not run"));
  const head = h("summary", {}, h("code", {}, row.path), row.differs.length ? h("span", { class: "badge is-different" }, row.differs.join(", ")) : h("span", { class: "badge" }, "same"), isFirst ? h("span", { class: "badge is-first" }, "first difference") : null);
  return h("li", { class: row.differs.length ? "is-different" : "" }, h("details", { open: isFirst }, head, h("div", { class: "pair" }, side(row.left, row.right), side(row.right, row.left))));
}
