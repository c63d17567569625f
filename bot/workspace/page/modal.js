// The app's modals. The server owns the stack of open views; the page shows the newest and keeps what was
// typed in each. The browser's own <dialog> holds the focus inside and the rest of the page inert.

import { fill, h, icon, iconButton, spinner } from "./dom.js";
import { renderBlocks } from "./blocks.js";
import { toast } from "./dialogs.js";
import { words } from "./elements.js";
import { problemsIn } from "./fields.js";
import { closePopup } from "./popup.js";
import { Surface } from "./surface.js";

export class Modals {
  /** `send(path, body)` posts as the person whom we act as, and throws Refused. */
  constructor({ people, send }) {
    Object.assign(this, { people, send });
    this.open = []; // {view, surface, problem, sending}
    this.dialog = h("dialog", { class: "modal", dataset: { testid: "modal" }, "aria-labelledby": "modal-title" });
    this.dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.#dismiss();
    });
    document.body.append(this.dialog);
  }

  get top() {
    return this.open.at(-1) ?? null;
  }

  /** A view was opened, pushed or changed. What was typed in it stays. */
  show(view) {
    const known = this.open.find((entry) => entry.view.id === view.id);
    if (known) Object.assign(known, { view, problem: null, sending: false });
    else this.open.push(this.#entry(view));
    this.#draw();
  }

  hide(viewId) {
    this.open = this.open.filter((entry) => entry.view.id !== viewId);
    this.#draw();
  }

  /** Show exactly these views (after a reload or a change of person), oldest first. */
  reset(views) {
    const kept = new Map(this.open.map((entry) => [entry.view.id, entry]));
    this.open = views.map((view) => Object.assign(kept.get(view.id) ?? this.#entry(view), { view }));
    this.#draw();
  }

  #entry(view) {
    const entry = { view, problem: null, sending: false };
    const { people, send } = this;
    const ids = () => ({ view_id: entry.view.id });
    entry.surface = new Surface({ people, send, ids, blocks: () => entry.view.blocks, roots: () => [this.dialog] });
    entry.surface.changed = (block) => this.#forget(entry, block);
    return entry;
  }

  /** A field that is being changed is no longer wrong until it is sent again. */
  #forget(entry, block) {
    if (!entry.surface.errors[block.block_id]) return;
    delete entry.surface.errors[block.block_id];
    const node = this.dialog.querySelector(`[data-block="${CSS.escape(block.block_id)}"]`);
    node?.classList.remove("has-error");
    node?.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
    if (node) fill(node.querySelector(".input-error"));
  }

  async #submit(entry) {
    if (entry.sending) return;
    const { view, surface } = entry;
    surface.errors = problemsIn(view.blocks, surface.values);
    entry.problem = null;
    if (Object.keys(surface.errors).length) return this.#showErrors();
    entry.sending = true;
    this.#draw();
    try {
      const answer = await this.send("view/submit", { view_id: view.id, values: surface.values.collect(view.blocks) });
      surface.errors = answer.errors ?? {};
    } catch (problem) {
      entry.problem = problem.message;
    }
    entry.sending = false;
    this.#showErrors();
  }

  #showErrors() {
    this.#draw();
    this.dialog.querySelector(".has-error [data-action-id], .has-error input")?.focus();
  }

  async #dismiss() {
    const entry = this.top;
    if (!entry) return;
    this.hide(entry.view.id);
    try {
      await this.send("view/close", { view_id: entry.view.id });
    } catch (problem) {
      toast(problem.message);
    }
  }

  #draw() {
    const entry = this.top;
    // Where no modal comes or goes, a menu of the page stays open.
    if (entry || this.dialog.open) closePopup({ refocus: false });
    if (!entry) {
      if (this.dialog.open) this.dialog.close();
      fill(this.dialog);
      return;
    }
    const focused = document.activeElement?.dataset?.actionId;
    const scroll = this.dialog.querySelector(".modal-body")?.scrollTop ?? 0;
    fill(this.dialog, this.#form(entry), this.dialog.querySelector(":scope > .toasts"));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.querySelector(".modal-body").scrollTop = scroll;
    this.#focus(entry, focused);
  }

  #focus(entry, focused) {
    const wanted = entry.view.blocks?.find((block) => block.element?.focus_on_load)?.element.action_id;
    const id = focused ?? wanted;
    const same = id && this.dialog.querySelector(`[data-action-id="${CSS.escape(id)}"]`);
    (same || this.dialog.querySelector(".modal-body :is(input, textarea, button):not([type=checkbox][disabled])") || this.dialog.querySelector("button"))?.focus();
  }

  #form(entry) {
    const { view, surface, problem, sending } = entry;
    const submit = (event) => {
      event.preventDefault();
      this.#submit(entry);
    };
    return h("form", { class: "modal-form", novalidate: true, "aria-busy": String(sending), on: { submit } },
      h("header", { class: "modal-head" }, h("h2", { id: "modal-title" }, words(view.title)), iconButton("close", "Close", () => this.#dismiss())),
      h("div", { class: "modal-body", inert: sending },
        problem ? h("p", { class: "modal-problem", role: "alert" }, icon("warning"), h("span", {}, problem)) : null,
        renderBlocks(view.blocks, surface),
      ),
      this.#buttons(entry),
    );
  }

  #buttons({ view, sending }) {
    const close = { type: "button", class: "button", dataset: { testid: "modal-close" }, on: { click: () => this.#dismiss() } };
    const send = { type: "submit", class: "button button-primary", "aria-busy": String(sending), dataset: { testid: "modal-submit" } };
    return h("footer", { class: "modal-foot" },
      h("button", close, words(view.close) || (view.submit ? "Cancel" : "Close")),
      view.submit ? h("button", send, h("span", { class: "button-label" }, words(view.submit)), spinner()) : null,
    );
  }
}
