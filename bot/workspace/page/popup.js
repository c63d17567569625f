// What opens beside something and closes by itself: menus and pickers. On a narrow screen it is a sheet
// at the bottom. One is open at a time; Esc, a press outside or a second press on the anchor close it.

import { h, isNarrow } from "./dom.js";
import { Listbox, matching } from "./listbox.js";

const FILTER_FROM = 9; // options; a shorter list is read faster than searched
let open = null;

export function closePopup({ refocus = true } = {}) {
  if (!open) return;
  const { element, anchor, onClose, stop } = open;
  open = null;
  stop.abort();
  element.remove();
  anchor.setAttribute("aria-expanded", "false");
  anchor.parentElement?.classList.remove("is-open");
  if (refocus && anchor.isConnected) anchor.focus({ preventScroll: true });
  onClose?.();
}

/** Open `content` beside `anchor`; returns the popup's element. */
export function openPopup(anchor, content, { label, onClose, align = "start", wide = false } = {}) {
  const again = open?.anchor === anchor;
  closePopup();
  if (again) return null;
  const box = h("div", { class: wide ? "popup popup-wide" : "popup", role: "dialog", "aria-label": label }, content);
  const element = isNarrow() ? h("div", { class: "sheet" }, box) : box;
  const stop = new AbortController();
  open = { element, anchor, onClose, stop };
  (anchor.closest("dialog") ?? document.body).append(element);
  anchor.setAttribute("aria-expanded", "true");
  anchor.parentElement?.classList.add("is-open");
  if (element === box) place(box, anchor, align);
  listen(box, anchor, align, stop.signal);
  return box;
}

function listen(box, anchor, align, signal) {
  const outside = (event) => {
    if (!box.contains(event.target) && !anchor.contains(event.target)) closePopup({ refocus: false });
  };
  const escape = (event) => {
    if (event.key === "Tab") closePopup({ refocus: true });
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    closePopup();
  };
  document.addEventListener("pointerdown", outside, { capture: true, signal });
  document.addEventListener("keydown", escape, { capture: true, signal });
  window.addEventListener("resize", () => closePopup(), { signal });
  const follow = (event) => {
    if (box.contains(event.target)) return;
    if (!anchor.isConnected) closePopup({ refocus: false });
    else if (box.parentElement?.className !== "sheet") place(box, anchor, align);
  };
  document.addEventListener("scroll", follow, { capture: true, passive: true, signal });
}

function place(box, anchor, align) {
  const at = anchor.getBoundingClientRect();
  const gap = 6;
  const { offsetWidth: width, offsetHeight: height } = box;
  const below = at.bottom + gap + height <= window.innerHeight || at.top < height + gap;
  const left = align === "end" ? at.right - width : at.left;
  const top = below ? at.bottom + gap : at.top - gap - height;
  box.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(8, Math.min(top, window.innerHeight - height - 8))}px`;
}

/**
 * A menu of options. With `multi` the chosen ids stay in `selected` and it stays open; else it closes and
 * `onPick(option)` is called. A long list gets a field to filter it.
 */
export function openMenu(anchor, { label, options, selected, multi = false, onPick, onClose, align, placeholder, title }) {
  const chosen = new Set(selected ?? []);
  const picked = (option) => {
    if (!multi) closePopup();
    onPick(option, chosen);
  };
  const list = new Listbox({ label, options, selected: chosen, multi, onPick: picked });
  const filter = options.length >= FILTER_FROM ? filterField(list, options, placeholder) : null;
  const heading = title ? h("p", { class: "popup-title" }, title) : null;
  const done = multi ? h("button", { type: "button", class: "button popup-done", on: { click: () => closePopup() } }, "Done") : null;
  const box = openPopup(anchor, [heading, filter, list.element, done], { label, onClose, align });
  if (!box) return;
  const owner = filter ?? list.element;
  if (!filter) list.element.tabIndex = 0;
  list.controlledBy(owner);
  owner.addEventListener("keydown", (event) => list.key(event) || (multi && event.key === " " && !filter && list.pick(list.options[list.active])));
  owner.focus({ preventScroll: true });
}

function filterField(list, options, placeholder = "Find…") {
  const attributes = { type: "text", class: "field popup-filter", placeholder, "aria-label": placeholder, role: "combobox" };
  const field = h("input", { ...attributes, "aria-expanded": "true", autocomplete: "off", spellcheck: "false" });
  field.addEventListener("input", () => list.setOptions(matching(options, field.value)));
  return field;
}
