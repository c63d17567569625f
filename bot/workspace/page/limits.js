// Slack's limits where the workspace enforces them: by method the calls of the last minute, and how many were refused.

import { get } from "./api.js";
import { fill, h } from "./dom.js";

const EVERY = 1000; // ms

export class LimitsPanel {
  constructor(people) {
    this.people = people;
    this.element = h("section", { class: "side-group limits", hidden: true, dataset: { testid: "limits" } });
  }

  /** Show them for as long as they are enforced. */
  watch() {
    const { limits: factor } = this.people.state;
    this.element.hidden = factor === null;
    if (factor === null || this.timer) return;
    this.timer = setTimeout(async () => {
      await this.#read();
      this.timer = null;
      this.watch();
    }, this.element.firstChild ? EVERY : 0);
  }

  async #read() {
    try {
      const { limits } = await get("limits", { as: this.people.me() });
      const { limits: factor } = this.people.state;
      fill(this.element,
        h("h2", {}, factor === 1 ? "Slack's limits" : `Slack's limits × ${factor}`),
        h("ul", {}, limits.length ? limits.map(row) : h("li", {}, "No calls in the last minute.")),
      );
    } catch {
      return; // the page says itself that the connection is lost
    }
  }
}

function row({ method, used, most, refused, wait }) {
  const told = [`${used} of ${most}`, refused ? `${refused} refused` : "", wait ? `${wait} s to wait` : ""].filter(Boolean).join(", ");
  return h("li", { class: wait ? "is-refused" : null, dataset: { method } }, h("span", {}, method), h("span", {}, told));
}
