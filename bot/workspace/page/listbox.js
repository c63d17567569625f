// A list of options that whoever has the focus can steer: the arrow keys belong to a filter field, a
// composer or a button, and the list only shows which option is current (aria-activedescendant).
//
// An option is {id, label, detail?, leading?, trailing?, group?, testid?, danger?, disabled?, keywords?}.

import { fill, h, icon, uid } from "./dom.js";

export class Listbox {
  constructor({ label, options = [], selected = new Set(), multi = false, onPick, empty = "Nothing found" }) {
    Object.assign(this, { selected, multi, onPick, empty });
    this.active = -1;
    this.nodes = [];
    const attributes = { role: "listbox", id: uid("list"), class: "listbox", "aria-label": label };
    this.element = h("div", { ...attributes, "aria-multiselectable": multi ? "true" : null });
    this.element.addEventListener("pointerdown", (event) => event.preventDefault());
    this.setOptions(options);
  }

  /** Show these; the first chosen one, else the first one, becomes current. */
  setOptions(options) {
    this.options = options;
    this.nodes = options.map((option, index) => this.#node(option, index));
    const chosen = options.findIndex((option) => this.selected.has(option.id));
    fill(this.element, this.#grouped(), options.length ? null : h("p", { class: "listbox-empty" }, this.empty));
    this.setActive(options.length ? Math.max(chosen, 0) : -1);
  }

  get activeId() {
    return this.nodes[this.active]?.id ?? null;
  }

  setActive(index) {
    this.nodes[this.active]?.classList.remove("is-active");
    this.active = index;
    const node = this.nodes[index];
    node?.classList.add("is-active");
    node?.scrollIntoView({ block: "nearest" });
    this.owner?.setAttribute("aria-activedescendant", this.activeId ?? "");
  }

  /** The element with the focus, which tells screen readers what is current here. */
  controlledBy(owner) {
    this.owner = owner;
    owner.setAttribute("aria-controls", this.element.id);
    owner.setAttribute("aria-activedescendant", this.activeId ?? "");
  }

  /** Arrow keys, Home, End and Enter; true when the key was used. */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.options.length) this.setActive((this.active + step + this.options.length) % this.options.length);
    else if (event.key === "Home" && !event.target.value) this.setActive(0);
    else if (event.key === "End" && !event.target.value) this.setActive(this.options.length - 1);
    else if (event.key === "Enter" && this.options[this.active]) this.pick(this.options[this.active]);
    else return false;
    event.preventDefault();
    return true;
  }

  pick(option) {
    if (option.disabled) return;
    if (this.multi) this.#toggle(option);
    this.onPick(option);
  }

  #toggle(option) {
    const chosen = !this.selected.has(option.id);
    if (chosen) this.selected.add(option.id);
    else this.selected.delete(option.id);
    this.nodes[this.options.indexOf(option)]?.setAttribute("aria-selected", String(chosen));
  }

  #grouped() {
    return this.nodes.map((node, index) => {
      const group = this.options[index].group;
      const starts = group && group !== this.options[index - 1]?.group;
      return [starts ? h("p", { class: "listbox-group", role: "presentation" }, group) : null, node];
    });
  }

  #node(option, index) {
    const text = h("span", { class: "option-text" }, h("span", { class: "option-label" }, option.label));
    if (option.detail) text.append(h("span", { class: "option-detail" }, option.detail));
    return h("div", {
      id: uid("option"), role: "option", class: option.danger ? "option option-danger" : "option",
      "aria-selected": String(this.selected.has(option.id)), "aria-disabled": option.disabled ? "true" : null,
      dataset: { testid: option.testid, optionId: option.id },
      on: { click: () => this.pick(option), pointermove: () => this.active !== index && this.setActive(index) },
    }, option.leading, text, option.trailing, h("span", { class: "option-check" }, icon("check", 16)));
  }
}

/** Options whose words all appear in what stands on them. Groups stay together; in each, what begins with the query comes first. */
export function matching(options, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return options;
  const textOf = (option) => `${option.label} ${option.detail ?? ""} ${option.keywords ?? ""}`.toLowerCase();
  const hits = options.filter((option) => words.every((word) => textOf(option).includes(word)));
  const groups = [...new Set(options.map((option) => option.group))];
  const begins = (option) => textOf(option).split(/[\s#@/]+/).some((word) => word.startsWith(words[0]));
  const rank = (option) => groups.indexOf(option.group) * 2 + (begins(option) ? 0 : 1);
  return hits.toSorted((one, other) => rank(one) - rank(other));
}
