// A select that looks like a field: press it, and a list opens beside it (or as a sheet on a phone).

import { fill, h, icon } from "./dom.js";
import { closePopup, openMenu } from "./popup.js";

/**
 * `rows` are options of a Listbox; `chosen` their ids. `onChange(rows)` gets what is chosen now and may
 * answer with a promise of false to take it back. A single select closes at once, a multiple one on Done.
 */
export function pickField({ rows, chosen, multi, placeholder, label, naming = {}, most, onChange }) {
  const { labelId, ...tied } = naming;
  let held = new Set(chosen);
  const shown = h("span", { class: "pick-value" });
  const attributes = { type: "button", class: "field pick", "aria-haspopup": "listbox", "aria-expanded": "false", "aria-label": labelId ? null : label };
  const node = h("button", { ...attributes, ...tied }, shown, icon("down", 16));

  const draw = () => {
    const picked = rows.filter((row) => held.has(row.id));
    node.classList.toggle("is-empty", picked.length === 0);
    if (multi) fill(shown, picked.length ? picked.map((row) => h("span", { class: "pill" }, row.label)) : placeholder);
    else fill(shown, picked[0]?.label ?? placeholder);
    if (labelId) node.setAttribute("aria-label", `${document.getElementById(labelId)?.textContent ?? label}: ${shown.textContent}`);
  };
  const settle = async (next) => {
    if (same(next, held)) return;
    const before = held;
    held = next;
    draw();
    if ((await onChange(rows.filter((row) => next.has(row.id)))) === false) {
      held = before;
      draw();
    }
  };
  node.addEventListener("click", () => {
    if (node.getAttribute("aria-busy") === "true") return;
    let next = new Set(held);
    openMenu(node, {
      label: label || placeholder, options: rows, selected: held, multi, title: multi ? placeholder : null,
      onPick: (row, picked) => {
        if (!multi) settle(new Set([row.id]));
        else if (most && picked.size > most) closePopup();
        else next = new Set(picked);
      },
      onClose: () => multi && settle(next),
    });
  });
  draw();
  return node;
}

function same(one, other) {
  return one.size === other.size && [...one].every((id) => other.has(id));
}
