// What stands beside the graph: the step that was chosen, all steps on a time line, the journal, the inputs, what was sent.

import { get, ofSession } from "./api.js";
import { fill, h, uid } from "./dom.js";
import { empty, pill, STATUS, table, time } from "./parts.js";
import { between, clock, moment, span } from "./when.js";

const NAMES = ["Steps", "Step", "Journal", "Inputs", "Sent"];

export class Tabs {
  constructor(id, { onStep, onEvent, now }) {
    Object.assign(this, { id, onStep, onEvent, now, current: "Steps", key: null });
    this.panel = h("div", { class: "panel", role: "tabpanel", tabindex: 0, id: uid("panel") });
    this.buttons = NAMES.map((name) => h("button", { type: "button", role: "tab", id: uid("tab"), "aria-controls": this.panel.id, on: { click: () => this.open(name) } }, name));
    this.list = h("div", { class: "tabs", role: "tablist", "aria-label": "About this session", on: { keydown: (event) => this.#key(event) } }, this.buttons);
    this.element = h("aside", { class: "inspector", "aria-label": "Details" }, this.list, this.panel);
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = NAMES[(NAMES.indexOf(this.current) + step + NAMES.length) % NAMES.length];
    this.open(next);
    this.buttons[NAMES.indexOf(next)].focus();
  }

  open(name) {
    this.current = name;
    this.key = null;
    return this.#draw();
  }

  /** Show the session as it stood; a step that was chosen anew opens. */
  show(doc, step, at) {
    if (step && step !== this.step) this.current = "Step";
    this.doc = doc;
    this.step = step;
    this.at = at;
    return this.#draw();
  }

  unbegun(node) {
    this.current = "Step";
    this.key = `none ${node}`;
    this.#mark();
    fill(this.panel, h("h2", {}, node), empty("It has not begun."));
  }

  /** The session went on: what is not drawn with every event is read again. */
  grown() {
    if (this.current === "Sent" || this.current === "Journal") this.open(this.current);
  }

  #mark() {
    this.buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(NAMES[at] === this.current));
      button.tabIndex = NAMES[at] === this.current ? 0 : -1;
    });
    this.panel.setAttribute("aria-labelledby", this.buttons[NAMES.indexOf(this.current)].id);
  }

  async #draw() {
    this.#mark();
    const { doc } = this;
    const key = { Steps: `${doc.at}`, Step: `${this.step} ${doc.at}`, Journal: "journal", Inputs: `${doc.at}`, Sent: "sent" }[this.current];
    if (this.current === "Journal" && this.key === "Journal journal") return this.#point();
    if (this.key === `${this.current} ${key}`) return undefined;
    this.key = `${this.current} ${key}`;
    const mine = this.key;
    const drawn = await { Steps: () => this.#steps(), Step: () => this.#inFull(), Journal: () => this.#journal(), Inputs: () => this.#inputs(), Sent: () => this.#sent() }[this.current]();
    if (this.key === mine) fill(this.panel, drawn);
    if (this.current === "Journal") this.#point();
    return undefined;
  }

  // -- all steps

  #steps() {
    const { steps, createdAt, more } = this.doc;
    const atTime = until(this.doc);
    const whole = Math.max(0.001, between(createdAt, atTime));
    const rows = steps.map((step) => {
      const bar = h("span", { class: "bar-fill", dataset: { status: step.status } });
      if (step.started) {
        const from = between(createdAt, step.started) / whole;
        const length = between(step.started, step.ended ?? atTime) / whole;
        bar.style.setProperty("--from", `${Math.min(99, from * 100).toFixed(2)}%`);
        bar.style.setProperty("--length", `${Math.max(0.6, Math.min(1 - from, length) * 100).toFixed(2)}%`);
      }
      const took = step.started ? span(between(step.started, step.ended ?? atTime)) : "";
      const line = [
        h("span", { class: "step-sign", dataset: { status: step.status }, title: STATUS[step.status]?.[1] ?? step.status }, STATUS[step.status]?.[0] ?? "?"),
        h("span", { class: "step-name" }, step.node === null ? h("em", {}, passName(step)) : step.name, step.attempts > 1 ? h("span", { class: "badge" }, `try ${step.attempts}`) : null),
        h("span", { class: "step-bar", "aria-hidden": "true" }, step.started ? bar : null),
        h("span", { class: "step-took muted" }, took),
      ];
      return h("li", { style: { "--depth": String(step.depth) } }, step.node !== null && step.path
        ? h("button", { type: "button", class: "step", "aria-current": step.path === this.step ? "true" : null, on: { click: () => this.onStep(step.path) } }, line)
        : h("span", { class: "step" }, line));
    });
    return [h("ol", { class: "steps", "aria-label": "Steps, with when they ran" }, rows), more ? empty(`${more} steps more.`) : null];
  }

  // -- one step

  async #inFull() {
    const path = this.step;
    const step = this.doc.steps.find((one) => one.path === path);
    if (!path) return empty("Choose a step in the graph, or in the list of steps.");
    if (!step) return [h("h2", {}, path), empty("It has not begun at this event.")];
    const found = await get(ofSession(this.id, "/step"), { path, at: this.at });
    const runs = this.doc.steps.filter((one) => one.list === step.list && one.node === step.node && one.path);
    return [
      h("h2", {}, step.name, " ", h("span", { class: "muted" }, step.type)),
      h("p", { class: "facts" }, pill(step.status), h("span", {}, step.started ? `${moment(step.started)}, ${span(between(step.started, step.ended ?? until(this.doc)))}` : ""),
        step.attempts > 1 ? h("span", {}, `attempt ${step.attempts}`) : null, found.cost ? h("span", {}, `$${found.cost}`) : null, step.reason ? h("span", {}, step.reason) : null, step.until ? h("span", {}, `until ${moment(step.until)}`) : null),
      runs.length > 1 ? this.#runs(runs, path) : h("p", { class: "muted" }, h("code", {}, path)),
      part("Error", found.error, "is-problem"), part("Output", found.output), part("Input", found.input),
      h("h3", {}, "Events"), h("ol", { class: "events" }, found.events.map((event) => this.#eventLine(event))),
    ];
  }

  #runs(runs, path) {
    return h("label", { class: "choice" }, h("span", {}, `Run ${runs.findIndex((one) => one.path === path) + 1} of ${runs.length} `),
      h("select", { on: { change: (event) => this.onStep(event.target.value) } }, runs.map((one) => h("option", { value: one.path, selected: one.path === path }, `${one.path} · ${STATUS[one.status]?.[1] ?? one.status}`))));
  }

  // -- the journal

  async #journal() {
    const list = h("ol", { class: "events is-whole", "aria-label": "Events" });
    const more = h("button", { type: "button", class: "button", on: { click: () => add() } }, "More");
    let after = 0;
    const add = async () => {
      const found = await get(ofSession(this.id, "/journal"), { after });
      after += found.events.length;
      list.append(...found.events.map((event) => this.#eventLine(event)));
      more.hidden = after >= found.last;
    };
    await add();
    while (after < this.doc.at && !more.hidden) await add();
    return [list, more];
  }

  #point() {
    for (const line of this.panel.querySelectorAll(".event")) {
      const seq = Number(line.dataset.seq);
      line.classList.toggle("is-later", seq > this.doc.at);
      if (line.classList.toggle("is-here", seq === this.doc.at) && this.at !== null) line.scrollIntoView({ block: "nearest" });
    }
  }

  #eventLine(event) {
    const text = h("div", { class: "event-text" });
    const open = async (shown) => {
      if (shown.target.open && !text.childNodes.length) fill(text, h("pre", {}, (await get(ofSession(this.id, "/event"), { seq: event.seq })).text));
    };
    return h("li", { class: "event", dataset: { seq: event.seq } },
      h("button", { type: "button", class: "seq", title: "Show the session at this event", on: { click: () => this.onEvent(event.seq) } }, event.seq),
      h("details", { on: { toggle: open } },
        h("summary", {}, h("span", { class: "event-type", dataset: { kind: event.type.split(":")[0] } }, event.type), " ", event.path ? h("code", {}, event.path) : null, event.who ? ` ${event.who}` : "", " ", h("time", { class: "muted", datetime: event.at }, clock(event.at))),
        text));
  }

  // -- inputs, what was sent

  #inputs() {
    const given = Object.entries(this.doc.inputs);
    return [
      given.length ? table(["Input", "Value"], given.map(([name, value]) => [h("code", {}, name), value]), "Inputs") : empty("This flow takes no inputs."),
      this.doc.timers.length ? [h("h3", {}, "Timers"), table(["For", "Due", "At"], this.doc.timers.map((timer) => [timer.purpose, moment(timer.due), timer.path ?? ""]), "Timers")] : null,
    ];
  }

  async #sent() {
    const { rows, more } = await get(ofSession(this.id, "/sent"));
    if (!rows.length) return empty("Nothing is shown anywhere: this session lives in a terminal.");
    return [more ? empty(`${more} earlier ones.`) : null,
      table(["What", "State", "Tries", "Since"], rows.map((row) => [h("code", { title: row.key }, row.kind), row.state, String(row.attempts), time(row.created)]), "What was sent to Slack")];
  }
}

/** Until when what is not over has taken: now, unless an earlier event is looked at. */
const until = (doc) => (doc.at < doc.last || doc.endedAt ? doc.atTime : new Date().toISOString());

function passName(step) {
  return step.type === "loop" ? `round ${Number(step.name) + 1}` : step.type === "foreach" ? `item ${step.name}` : step.type === "switch" ? `case ${step.name}` : step.name;
}

function part(title, text, kind = "") {
  return text === null || text === undefined ? null : [h("h3", {}, title), h("pre", { class: `value ${kind}`, tabindex: 0 }, text)];
}
