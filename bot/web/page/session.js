// One session: its graph, a slider through its events, what each step was given and gave, and what it waits for.

import { get, ofSession, Refused } from "./api.js";
import { controls, question } from "./answer.js";
import { fill, h } from "./dom.js";
import { Graph } from "./graph.js";
import { Tabs } from "./inspector.js";
import { command, pill, sessionLink, short, time } from "./parts.js";
import { between, moment, span } from "./when.js";

const PLAY = "\u25B6\uFE0E"; // as text: some fonts draw it in colours
const ENDED = ["complete", "failed", "aborted"];

export async function sessionView({ main, me, id, query, isHere }) {
  const view = new SessionView(main, me, id, isHere);
  await view.begin(Number(query.get("at")) || null, query.get("step"));
  return { moved: (now) => view.moved(Number(now.get("at")) || null, now.get("step")), news: (told) => view.news(told), left: () => view.stop() };
}

class SessionView {
  constructor(main, me, id, isHere) {
    Object.assign(this, { main, me, id, isHere, at: null, step: null, asked: 0, playing: 0, questions: new Map() });
  }

  async begin(at, step) {
    const [document_, picture] = await Promise.all([get(ofSession(this.id), { at }), get(ofSession(this.id, "/picture"))]);
    if (!this.isHere()) return;
    this.graph = new Graph(picture, (list, node) => this.#pick(list, node));
    this.tabs = new Tabs(this.id, { onStep: (path) => this.#go({ step: path }), onEvent: (seq) => this.#go({ at: seq }), now: () => this.doc });
    this.head = h("header", { class: "session-head" });
    this.asks = h("div", { class: "asks" });
    this.slider = this.#makeSlider();
    const frame = h("div", { class: "graph-frame", tabindex: -1 }, picture.boxes.length ? this.graph.element : h("p", { class: "empty" }, document_.unread ?? "This flow has no picture."));
    fill(this.main, h("section", { class: "page session" }, this.head, this.asks, this.slider.element, h("div", { class: "panes" }, frame, this.tabs.element)));
    this.at = at;
    this.step = step;
    this.#show(document_);
  }

  moved(at, step) {
    const stays = at === this.at;
    this.at = at;
    this.step = step;
    return stays ? this.#show(this.doc) : this.load();
  }

  async load() {
    const number = ++this.asked;
    const found = await get(ofSession(this.id), { at: this.at });
    if (number === this.asked && this.isHere()) this.#show(found);
  }

  /** Only the last event follows what happens; whoever looks at an earlier one is left there. */
  async news(told) {
    if (!told.sessions.includes(this.id) && !told.more) return;
    if (this.at === null) await this.load();
    else this.slider.grow((await get(ofSession(this.id), { at: 1 })).last);
    this.tabs.grown();
  }

  stop() {
    clearInterval(this.playing);
  }

  #go({ at = this.at, step = this.step }, { replace = false } = {}) {
    const query = new URLSearchParams();
    const last = this.doc?.last;
    if (at && at < last) query.set("at", at);
    if (step) query.set("step", step);
    const next = `#/s/${encodeURIComponent(this.id)}${query.size ? `?${query}` : ""}`;
    if (next === location.hash) return;
    if (replace) history.replaceState(null, "", next);
    else history.pushState(null, "", next);
    this.moved(at && at < last ? at : null, step);
  }

  /** The node that was chosen in the graph: its latest run. */
  #pick(list, node) {
    const runs = this.doc.steps.filter((one) => one.list === list && one.node === node && one.path);
    if (runs.length) this.#go({ step: runs.at(-1).path });
    else this.tabs.unbegun(node);
    this.chosen = [list, node];
    this.graph.show(this.doc.marks, this.chosen);
  }

  #show(document_) {
    this.doc = document_;
    const step = document_.steps.find((one) => one.path && one.path === this.step);
    if (step) this.chosen = [step.list, step.node];
    this.graph.show(document_.marks, this.chosen);
    this.slider.show(document_);
    fill(this.head, this.#headline(document_));
    this.#ask(this.at === null ? document_.prompts : []);
    this.tabs.show(document_, this.step, this.at);
  }

  /** What somebody writes in a form, and what became of it, stays as long as the question is the same. */
  #ask(prompts) {
    const had = this.questions;
    this.questions = new Map(prompts.map((prompt) => {
      const key = JSON.stringify(prompt);
      return [key, had.get(key) ?? question(prompt, this.id, this.me.write)];
    }));
    const [now, shown] = [[...this.questions.values()], [...this.asks.children]];
    for (const gone of shown) if (!now.includes(gone)) gone.remove();
    now.forEach((element, at) => { if (this.asks.children[at] !== element) this.asks.insertBefore(element, this.asks.children[at] ?? null); });
  }

  #headline(doc) {
    const who = doc.actor.name ?? doc.actor.id ?? "";
    const where = doc.thread ? doc.thread.channel : "a terminal";
    const lock = doc.lock && !ENDED.includes(doc.status) ? (doc.lock.has ? `has the lock ${doc.lock.name}` : `waits for the lock ${doc.lock.name}`) : null;
    return [
      h("div", { class: "headline" }, h("h1", {}, doc.flow, " ", h("code", { class: "muted" }, short(this.id))), pill(doc.status), doc.at < doc.last ? h("span", { class: "badge" }, "as it was") : null, controls(doc, this.me.write && this.at === null)),
      h("p", { class: "facts muted" },
        h("span", {}, "started ", time(doc.createdAt), who ? ` by ${who}` : "", ` in ${where}`),
        h("span", {}, doc.endedAt ? `took ${span(between(doc.createdAt, doc.endedAt))}` : ["changed ", time(doc.updatedAt)]),
        doc.spent.turns ? h("span", {}, `$${doc.spent.cost} for ${doc.spent.turns} model calls`) : null,
        doc.parent ? h("span", {}, "fork of ", sessionLink(doc.parent)) : null,
        lock ? h("span", {}, lock, doc.behind ? [", behind ", sessionLink(doc.behind[0])] : "") : null,
        doc.pause && !["waiting", "prompt"].includes(doc.pause.reason) && doc.pause.reason ? h("span", {}, doc.pause.reason) : null,
        h("a", { href: `#/compare?left=${this.id}${doc.parent ? `&right=${doc.parent}` : ""}` }, "compare…")),
      doc.error ? h("p", { class: "problem" }, doc.error) : null,
      doc.quarantined ? h("p", { class: "problem" }, `Set aside: ${doc.quarantined}`) : null,
      doc.unread ? h("p", { class: "problem" }, `Its flow cannot be read here: ${doc.unread}`) : null,
    ];
  }

  // -- the slider

  #makeSlider() {
    const range = h("input", { type: "range", min: 1, max: 1, step: 1, "aria-label": "Event" });
    const words = h("span", { class: "slider-words" });
    const back = h("button", { type: "button", class: "quiet", "aria-label": "One event back", on: { click: () => this.#seek(this.doc.at - 1) } }, "‹");
    const on = h("button", { type: "button", class: "quiet", "aria-label": "One event on", on: { click: () => this.#seek(this.doc.at + 1) } }, "›");
    const play = h("button", { type: "button", class: "quiet", "aria-label": "Play", on: { click: () => this.#play(play) } }, PLAY);
    const now = h("button", { type: "button", class: "quiet", on: { click: () => this.#seek(this.doc.last) } }, "now");
    const fork = h("span", { class: "fork" });
    let frame = 0;
    range.addEventListener("input", () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(() => this.#seek(Number(range.value))); });
    return {
      element: h("div", { class: "slider", role: "group", "aria-label": "Time" }, play, back, range, on, now, words, fork),
      grow: (last) => { range.max = last; },
      show: (doc) => {
        range.max = doc.last;
        range.value = doc.at;
        range.setAttribute("aria-valuetext", `event ${doc.at} of ${doc.last}`);
        fill(words, h("strong", {}, `event ${doc.at}`), ` of ${doc.last} · `, h("time", { datetime: doc.atTime }, moment(doc.atTime)), ` · ${span(between(doc.createdAt, doc.atTime))} in`);
        back.disabled = doc.at <= 1;
        on.disabled = now.disabled = doc.at >= doc.last;
        fill(fork, doc.at < doc.last ? h("details", {}, h("summary", {}, "fork from here"), command(`sayso sessions fork ${this.id} --at ${doc.at}`)) : null);
      },
    };
  }

  #seek(at) {
    this.#go({ at: Math.min(this.doc.last, Math.max(1, at)) }, { replace: true });
  }

  #play(button) {
    clearInterval(this.playing);
    if (button.dataset.on) {
      delete button.dataset.on;
      button.textContent = PLAY;
      return;
    }
    if (this.doc.at >= this.doc.last) this.#seek(1);
    button.dataset.on = "1";
    button.textContent = "\u23F8\uFE0E";
    const step = Math.max(1, Math.round(this.doc.last / 100));
    let busy = false;
    this.playing = setInterval(async () => {
      if (busy) return;
      if (this.doc.at >= this.doc.last) { this.#play(button); return; }
      busy = true;
      this.#seek(this.doc.at + step);
      await this.load().catch((error) => { if (!(error instanceof Refused)) throw error; });
      busy = false;
    }, 160);
  }
}
