// The app's Home: a tab beside the messages in the direct conversation with the app. Looking at it tells the
// app, which may then publish another view.

import { fill, h } from "./dom.js";
import { renderBlocks } from "./blocks.js";
import { toast } from "./dialogs.js";
import { drawUnpressed } from "./press.js";
import { Surface } from "./surface.js";

export class HomeTab {
  /** `onTab` is called when the tab changes. */
  constructor({ element, people, send, onTab }) {
    Object.assign(this, { element, people, send, onTab });
    this.isOpen = false;
    this.view = null;
    this.surface = null;
    this.drawOpen = () => this.isOpen && this.#draw();
  }

  /** Show this view from now on; null while the app has published none. */
  load(view) {
    if (!view || view.id !== this.view?.id) this.surface = this.#surface();
    this.view = view;
    drawUnpressed(this.drawOpen);
  }

  /** Back to the messages. */
  leave() {
    this.isOpen = false;
    this.element.hidden = true;
  }

  /** The two tabs, for the conversation with the app; null for any other. */
  tabs(channel) {
    if (!channel.is_im || !this.people.counterpart(channel).is_bot) {
      this.leave();
      return null;
    }
    const tab = (name, isHome) => h("button", { type: "button", role: "tab", "aria-selected": String(this.isOpen === isHome), dataset: { testid: `tab-${name.toLowerCase()}` }, on: { click: () => this.#go(isHome) } }, name);
    return h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of this conversation" }, tab("Messages", false), tab("Home", true));
  }

  async #go(isHome) {
    if (isHome === this.isOpen) return;
    if (!isHome) this.leave();
    this.isOpen = isHome;
    if (isHome) this.#draw();
    this.onTab();
    document.querySelector('.tabs [aria-selected="true"]')?.focus();
    if (!isHome) return;
    try {
      await this.send("home", {});
    } catch (problem) {
      toast(problem.message);
    }
  }

  #draw() {
    this.element.hidden = false;
    const { bot } = this.people.state;
    if (!this.view) return fill(this.element, h("p", { class: "home-empty" }, `${bot.name} has not published a Home for you yet.`));
    return fill(this.element, h("div", { class: "home-inner" }, renderBlocks(this.view.blocks, this.surface)));
  }

  #surface() {
    const { people, send } = this;
    return new Surface({ people, send, ids: () => ({ view_id: this.view.id }), blocks: () => this.view.blocks, roots: () => [this.element] });
  }
}
