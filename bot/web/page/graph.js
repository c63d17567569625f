// A flow's graph as the server laid it out (boxes and arrows at their places), coloured by what became of each node.

import { STATUS } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";
const LINE = 17;
const FIRST = 21;

function s(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const key = (list, node) => JSON.stringify([list, node]);

/** The graph: `element` to put somewhere, `show(marks, chosen)` colours it. `onPick(list, node)` hears which node was chosen. */
export class Graph {
  constructor(picture, onPick) {
    this.onPick = onPick;
    this.nodes = new Map();
    this.arrows = [];
    const { width = 0, height = 0 } = picture;
    this.element = s("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Graph of the flow" },
      s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, s("path", { d: "M0,0 L8,4 L0,8 z", class: "tip" }))));
    // In this order: an arrow runs over the box around it, and under the boxes that it passes.
    const boxes = picture.boxes.map((box) => this.#box(box));
    const arrows = picture.arrows.map((arrow) => this.#arrow(arrow));
    const around = (box, at) => picture.boxes[at].holds;
    const parts = [boxes.filter(around), arrows.map(([path]) => path), boxes.filter((box, at) => !around(box, at)), arrows.flatMap(([, label]) => label ?? [])];
    this.element.append(...parts.flat());
    this.element.addEventListener("keydown", (event) => this.#key(event));
  }

  #box(box) {
    const isNode = box.node !== undefined;
    const middle = box.x + box.width / 2;
    const sign = s("text", { class: "sign", x: box.x + box.width - 12, y: box.y + 19, "text-anchor": "middle" });
    const times = s("text", { class: "times", x: box.x + 9, y: box.y + 18 });
    const group = s("g", { class: isNode ? "node" : "frame", tabindex: isNode ? (this.nodes.size ? -1 : 0) : null, role: isNode ? "button" : null },
      s("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 8 }),
      ...box.lines.map((line, at) => Object.assign(s("text", { class: at || !isNode ? "fact" : "name", x: middle, y: box.y + FIRST + at * LINE, "text-anchor": "middle" }), { textContent: line })),
      sign, times);
    if (isNode) {
      group.addEventListener("click", () => this.onPick(box.list, box.node));
      this.nodes.set(key(box.list, box.node), { group, sign, times, box });
    }
    return group;
  }

  #arrow(arrow) {
    const path = s("path", { d: arrow.path, class: arrow.loop ? "arrow is-loop" : "arrow", "marker-end": "url(#tip)" });
    this.arrows.push({ arrow, path });
    if (!arrow.label) return [path];
    return [path, Object.assign(s("text", { class: "label", x: arrow.x, y: arrow.y + 4, "text-anchor": arrow.anchor }), { textContent: arrow.label })];
  }

  #key(event) {
    const all = [...this.nodes.values()];
    const at = all.findIndex(({ group }) => group === event.target);
    if (at < 0) return;
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) {
      event.preventDefault();
      all[(at + step + all.length) % all.length].group.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.onPick(all[at].box.list, all[at].box.node);
    }
  }

  /** Colour it: `marks` are `[list, node, status, times]`, `chosen` is `[list, node]`. */
  show(marks, chosen) {
    const found = new Map(marks.map(([list, node, status, times]) => [key(list, node), { status, times }]));
    const picked = chosen ? key(...chosen) : null;
    for (const [name, { group, sign, times, box }] of this.nodes) {
      const { status = "pending", times: ran = 0 } = found.get(name) ?? {};
      group.dataset.status = status;
      group.classList.toggle("is-chosen", name === picked);
      sign.textContent = status === "pending" ? "" : STATUS[status][0];
      times.textContent = ran > 1 ? `×${ran}` : "";
      group.setAttribute("aria-label", `${box.node}, ${box.type}: ${STATUS[status][1]}${ran > 1 ? `, ran ${ran} times` : ""}`);
    }
    for (const { arrow, path } of this.arrows) {
      const [from, to] = [arrow.from, arrow.to].map((node) => found.get(key(arrow.list, node))?.status);
      path.classList.toggle("is-taken", Boolean(from && to && from !== "skipped" && to !== "skipped"));
    }
  }
}
