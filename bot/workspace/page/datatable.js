// The `data_table` block: a table that is sorted by a press on a column's name, and shown page by page.

import { fill, h, icon } from "./dom.js";

/** `nodesOf` draws a cell. A column is sorted as numbers where all its cells are, else as text. */
export function dataTable(block, nodesOf) {
  const [names, ...rows] = block.rows;
  const size = block.page_size ?? 5;
  const order = { rows, by: -1, down: false };
  let from = 0;
  const head = h("tr", {});
  const body = h("tbody", {});
  const pages = h("div", { class: "data-pages" });

  const sort = (column) => {
    order.down = order.by === column && !order.down;
    order.by = column;
    order.rows = [...rows].sort((one, other) => compared(rows, column, one, other) * (order.down ? -1 : 1));
    from = 0;
    draw();
  };
  const turn = (by) => {
    from += by;
    draw();
  };
  const draw = () => {
    fill(head, names.map((cell, column) => nameCell(cell, column)));
    fill(body, order.rows.slice(from, from + size).map((row) => h("tr", {}, row.map(dataCell))));
    const last = Math.min(from + size, rows.length);
    const turner = (label, by, off) => h("button", { type: "button", class: "button", disabled: off, on: { click: () => turn(by) } }, label);
    fill(pages, rows.length > size && [turner("Previous", -size, from === 0), h("span", {}, `${from + 1}–${last} of ${rows.length}`), turner("Next", size, last === rows.length)]);
  };
  const nameCell = (cell, column) => {
    const sorted = order.by === column ? (order.down ? "descending" : "ascending") : "none";
    return h("th", { scope: "col", "aria-sort": sorted }, h("button", { type: "button", class: "data-name", on: { click: () => sort(column) } }, nodesOf(cell), icon("down", 12)));
  };
  const dataCell = (cell, column) => {
    const names = column === (block.row_header_column_index ?? 0);
    return h(names ? "th" : "td", { class: cell.type === "raw_number" ? "data-number" : null, scope: names ? "row" : null }, nodesOf(cell));
  };
  draw();
  const table = h("table", {}, h("caption", {}, String(block.caption)), h("thead", {}, head), body);
  return h("div", { class: "data-table" }, h("div", { class: "md-table", tabindex: "0", role: "group", "aria-label": String(block.caption) }, table), pages);
}

function compared(rows, column, one, other) {
  if (rows.every((row) => row[column].type === "raw_number")) return one[column].value - other[column].value;
  return String(one[column].text ?? "").localeCompare(String(other[column].text ?? ""));
}
