// Things to say by a click: chips above the composer of a channel. A click posts the text as the person whom we
// act as. Whoever hides them finds them again with the button in the composer's row.

import { fill, h, iconButton } from "./dom.js";

const FIRST = 3; // so many are shown, and the last one, which asks for help; the rest is behind More
const KEPT = "hidden-suggestions"; // in the browser's storage: ids of channels

export class Starters {
  /** `onPick(suggestion)` posts it; while its promise is pending the chips cannot be pressed again. */
  constructor({ people, onPick }) {
    Object.assign(this, { people, onPick });
    this.hidden = new Set(remembered());
    this.whole = new Set(); // ids of channels in which all are shown
    this.row = h("div", { class: "starters-row" });
    const close = iconButton("close", "Hide suggestions", () => this.#show(false), { class: "icon-button starters-close", dataset: { testid: "hide-suggestions" } });
    this.element = h("div", { class: "starters", role: "group", "aria-label": "Suggestions", hidden: true, dataset: { testid: "suggestions" } }, this.row, close);
    this.again = iconButton("bulb", "Show suggestions", () => this.#show(true), { class: "icon-button composer-tool", hidden: true, dataset: { testid: "show-suggestions" } });
  }

  /** The suggestions of this channel, unless they were hidden there. */
  draw(channel) {
    this.channel = channel;
    const offered = (this.people.state.suggestions ?? []).filter((suggestion) => suggestion.channel === channel);
    this.element.hidden = !offered.length || this.hidden.has(channel);
    this.again.hidden = !offered.length || !this.hidden.has(channel);
    const isWhole = this.whole.has(channel) || offered.length <= FIRST + 2;
    const mark = JSON.stringify([offered, isWhole]);
    if (mark === this.mark) return;
    this.mark = mark;
    const shown = isWhole ? offered : [...offered.slice(0, FIRST), offered.at(-1)];
    const more = isWhole ? null : h("button", { type: "button", class: "starter starter-more", dataset: { testid: "more-suggestions" }, on: { click: () => this.#showAll(shown.length - 1) } }, `${offered.length - shown.length} more…`);
    fill(this.row, h("span", { class: "starters-title", "aria-hidden": "true" }, "Try"), shown.map((suggestion) => this.#chip(suggestion)), more);
  }

  /** Show all of this channel; the first that was not shown has the focus. */
  #showAll(next) {
    this.whole.add(this.channel);
    this.draw(this.channel);
    this.row.querySelectorAll("button")[next].focus();
  }

  #chip(suggestion) {
    const press = async (event) => {
      if (event.detail > 1 || this.isBusy) return; // the second half of a double click
      this.isBusy = true;
      await this.onPick(suggestion);
      this.isBusy = false;
    };
    const title = [suggestion.hint, suggestion.text].filter(Boolean).join("\n");
    return h("button", { type: "button", class: "starter", title, dataset: { testid: "suggestion" }, on: { click: press } }, suggestion.label);
  }

  #show(wanted) {
    if (wanted) this.hidden.delete(this.channel);
    else this.hidden.add(this.channel);
    remember([...this.hidden]);
    this.draw(this.channel);
    (wanted ? this.row.querySelector("button") : this.again).focus();
  }
}

// A browser that keeps nothing for pages throws here; then what was hidden is back after a reload.

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? [];
  } catch {
    return [];
  }
}

function remember(channels) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(channels));
  } catch {
    // nothing to do
  }
}
