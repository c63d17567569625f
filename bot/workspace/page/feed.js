// A list of messages that is drawn again only where it changed: focus, open fields and the place where the
// reader is survive every push. Messages are kept by `ts`, which is also their order.

import { fill, h, icon } from "./dom.js";
import { renderMessage } from "./message.js";
import { drawUnpressed } from "./press.js";
import { dayKey, dayName } from "./time.js";

const GROUP_SECONDS = 300;
const NEAR_END = 90; // px: closer than this, the list follows new messages

export class Feed {
  /** `options`: {element, people, surfaceOf, actions, inThread, intro, isUnseen}. */
  constructor(options) {
    Object.assign(this, options);
    this.messages = new Map();
    this.drawn = new Map(); // key -> {node, mark}
    this.editing = null;
    this.drawRows = () => this.#drawRows();
    this.written = new WeakMap(); // message -> its JSON, so that a push costs one message, not all
    this.list = h("div", { class: "feed-list", role: "feed", "aria-label": this.inThread ? "Thread" : "Messages" });
    this.jump = h("button", { type: "button", class: "jump", hidden: true, on: { click: () => this.toEnd() } }, icon("down", 16), "New messages");
    this.scroller = h("div", { class: "feed-scroll" }, this.list);
    this.element.append(this.scroller, this.jump);
    this.scroller.addEventListener("scroll", () => this.#atEnd() && (this.jump.hidden = true), { passive: true });
    this.list.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.follows && this.toEnd()).observe(this.scroller);
  }

  /** Show these messages and nothing else, at their end. */
  show(messages) {
    this.messages = new Map(messages.map((message) => [message.ts, message]));
    this.editing = null;
    this.drawn.clear();
    fill(this.list);
    this.#drawRows();
    this.toEnd();
  }

  /** Take over a fresh reading of the same conversation; the reader stays where they are. */
  refresh(messages) {
    this.messages = new Map(messages.map((message) => [message.ts, message]));
    this.draw();
  }

  upsert(message) {
    this.arrived ||= !this.messages.has(message.ts);
    this.messages.set(message.ts, message);
    this.#drawSoon();
  }

  remove(ts) {
    if (this.messages.delete(ts)) this.#drawSoon();
  }

  /** Once a frame, however many pushes come; a page that nobody sees has no frames. */
  #drawSoon() {
    if (this.isDue) return;
    this.isDue = true;
    const draw = () => this.isDue && this.draw();
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.jump.hidden = true;
    this.follows = true;
  }

  #atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
    return this.follows;
  }

  edit(ts) {
    this.editing = ts;
    this.draw();
  }

  /** Bring the list's elements in line with the messages, once nothing is being pressed. */
  draw() {
    drawUnpressed(this.drawRows);
  }

  #drawRows() {
    const follows = this.#atEnd();
    if (this.arrived && !follows) this.jump.hidden = false;
    this.isDue = this.arrived = false;
    const rows = this.#rows();
    const focus = focusWithin(this.list);
    const kept = new Map();
    const nodes = rows.map((row) => {
      const before = this.drawn.get(row.key);
      const entry = before?.mark === row.mark ? before : { mark: row.mark, node: row.make() };
      kept.set(row.key, entry);
      return entry.node;
    });
    this.drawn = kept;
    arrange(this.list, nodes);
    this.#oneTabStop();
    focus?.restore();
    if (follows) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  #rows() {
    const ordered = [...this.messages.values()].sort((a, b) => (a.ts < b.ts ? -1 : 1));
    const intro = this.intro?.(ordered);
    const rows = intro ? [{ key: "intro", mark: intro.mark, make: intro.make }] : [];
    const root = this.inThread ? ordered[0] : null;
    ordered.forEach((message, index) => {
      const above = ordered[index - 1] ?? null;
      const newDay = above ? dayKey(above.ts) !== dayKey(message.ts) : !this.inThread;
      if (newDay) rows.push(dayRow(message.ts));
      rows.push(this.#messageRow(message, above === root ? null : above));
      if (message === root) rows.push(repliesRow(ordered.length - 1));
    });
    return rows;
  }

  #messageRow(message, above) {
    const { people, actions, inThread } = this;
    const follows = continues(message, above);
    const editing = this.editing === message.ts;
    const unseen = Boolean(this.isUnseen?.(message));
    if (!this.written.has(message)) this.written.set(message, JSON.stringify(message));
    const mark = `${follows} ${editing} ${unseen} ${this.written.get(message)}`;
    const make = () => {
      const place = { people, actions, inThread, follows, editing, unseen, surface: this.surfaceOf(message), shortcuts: messageShortcuts(people) };
      return renderSafely(message, place);
    };
    return { key: message.ts, mark, make };
  }

  /** The list is one stop of the Tab key; arrows move inside it. */
  #oneTabStop() {
    const articles = [...this.list.querySelectorAll("article")];
    if (!articles.some((article) => article.tabIndex === 0)) articles.at(-1)?.setAttribute("tabindex", "0");
  }

  #key(event) {
    if (event.target.tagName !== "ARTICLE") return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) {
      if (event.key === "Enter") this.actions.thread(this.messages.get(event.target.dataset.ts));
      return;
    }
    const articles = [...this.list.querySelectorAll("article")];
    const next = articles[articles.indexOf(event.target) + step];
    event.preventDefault();
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}

function messageShortcuts(people) {
  return (people.state.bot.shortcuts ?? []).filter((shortcut) => shortcut.type === "message");
}

function renderSafely(message, place) {
  try {
    return renderMessage(message, place);
  } catch (problem) {
    console.error("message could not be drawn", message, problem);
    const shown = String(message.text ?? "");
    return h("article", { class: "message", dataset: { testid: "message", ts: message.ts } }, h("div"), h("p", { class: "plain" }, shown));
  }
}

function continues(message, above) {
  if (!above || message.subtype === "tombstone" || above.subtype === "tombstone" || message.is_ephemeral || above.is_ephemeral) return false;
  // A message of several blocks (a question with its buttons) stands by itself: where it begins must be seen.
  if (message.blocks?.length > 1 || above.blocks?.length > 1) return false;
  const near = Number(message.ts) - Number(above.ts) < GROUP_SECONDS;
  return near && above.user === message.user && dayKey(above.ts) === dayKey(message.ts) && !above.reply_count;
}

function dayRow(ts) {
  const day = dayName(ts);
  return { key: `day ${dayKey(ts)}`, mark: day, make: () => h("div", { class: "day", role: "separator", "aria-label": day }, h("span", {}, day)) };
}

function repliesRow(count) {
  const words = count === 0 ? "No replies yet" : count === 1 ? "1 reply" : `${count} replies`;
  return { key: "replies", mark: words, make: () => h("div", { class: "replies-rule" }, h("span", {}, words)) };
}

/** Make `nodes` the children of `list`, moving as little as possible. */
function arrange(list, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...list.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, index) => {
    if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
  });
}

/** Where the focus is inside `list`, so that the same control of a redrawn message gets it again. */
function focusWithin(list) {
  const node = document.activeElement;
  if (!list.contains(node)) return null;
  const ts = node.closest("article")?.dataset.ts;
  const { actionId, blockId, testid, name } = node.dataset;
  const caret = node.selectionStart;
  const restore = () => {
    if (node.isConnected || !ts) return;
    const article = list.querySelector(`article[data-ts="${CSS.escape(ts)}"]`);
    const same = [...(article?.querySelectorAll("button, input, textarea, a") ?? [])].find((other) => {
      const data = other.dataset;
      return data.actionId === actionId && data.blockId === blockId && data.testid === testid && data.name === name && (actionId || testid);
    });
    (same ?? article)?.focus({ preventScroll: true });
    if (same && typeof caret === "number" && same.setSelectionRange && same.type !== "number") same.setSelectionRange(caret, caret);
  };
  return { restore };
}
