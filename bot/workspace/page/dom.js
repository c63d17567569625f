// Building the page's elements. Text only ever enters the document through text nodes and
// attributes set here, never as markup, so nothing a person or an app writes can become code.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "disabled", "tabIndex", "htmlFor"]);

/** One element: `h("p", {class: "hint", on: {click}}, "text", node, [nodes], null)`. */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) assign(node, name, value);
  node.append(...flatten(children));
  return node;
}

function assign(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "class") node.className = value;
  else if (name === "dataset") Object.assign(node.dataset, withoutEmpty(value));
  else if (name === "style") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
  else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
  else if (AS_PROPERTY.has(name)) node[name] = value;
  else node.setAttribute(name, value === true ? "" : String(value));
}

function withoutEmpty(record) {
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== null && value !== undefined));
}

function flatten(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replace everything inside `node`. */
export function fill(node, ...children) {
  node.replaceChildren(...flatten(children));
  return node;
}

const SHAPES = {
  at: "M12.8 7.2v4.2c0 1.2.8 1.9 1.8 1.9 1.3 0 2.2-1.3 2.2-3.3a6.8 6.8 0 1 0-2.6 5.3M12.8 10a2.8 2.8 0 1 1-5.6 0 2.8 2.8 0 0 1 5.6 0Z",
  back: "M12.5 4.5 7 10l5.5 5.5",
  bulb: "M7.4 13.4a5 5 0 1 1 5.2 0c-.5.4-.7.8-.7 1.4H8.1c0-.6-.2-1-.7-1.4ZM8.4 17.2h3.2",
  check: "m4.5 10.5 3.5 3.5 7.5-8",
  close: "m5 5 10 10M15 5 5 15",
  down: "m5.5 8 4.5 4.5L14.5 8",
  edit: "m4 16 .8-3.4L13.4 4l2.6 2.6-8.6 8.6L4 16ZM11.8 5.6l2.6 2.6",
  external: "M8 5H5v10h10v-3M11 4.5h4.5V9M15.5 4.5 9 11",
  eye: "M2.5 10s2.8-5 7.5-5 7.5 5 7.5 5-2.8 5-7.5 5-7.5-5-7.5-5ZM10 12.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4Z",
  file: "M5.5 3h6L15 6.5V17H5.5V3ZM11 3v4h4",
  hash: "M4 7.5h12.5M3.5 12.5H16M8 3.5l-1.5 13M13.5 3.5 12 16.5",
  home: "M3.5 9.5 10 4l6.5 5.5M5.5 8.5V16h9V8.5M8.5 16v-4h3v4",
  link: "M8.5 11.5a3 3 0 0 0 4.3.2l2.4-2.4a3 3 0 0 0-4.3-4.3l-1 1M11.5 8.5a3 3 0 0 0-4.3-.2l-2.4 2.4a3 3 0 0 0 4.3 4.3l1-1",
  lock: "M5.5 9h9v7.5h-9V9ZM7.2 9V6.3a2.8 2.8 0 0 1 5.6 0V9",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  attach: "M10 4v12M4 10h12",
  people: "M7.5 9.5a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM2.5 16c0-2.6 2-4.3 5-4.3s5 1.7 5 4.3M13 4.3a2.6 2.6 0 0 1 0 4.9M14.5 12c1.9.5 3 1.9 3 4",
  reply: "M3.5 5.2c0-.7.5-1.2 1.2-1.2h10.6c.7 0 1.2.5 1.2 1.2v7.1c0 .7-.5 1.2-1.2 1.2H9l-3.7 3v-3h-.6c-.7 0-1.2-.5-1.2-1.2V5.2Z",
  search: "M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM13 13l3.8 3.8",
  send: "M3.5 4.2 17 10 3.5 15.8 5.4 10 3.5 4.2ZM5.4 10H11",
  smile: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM7 11.8c.8 1.2 1.8 1.8 3 1.8s2.2-.6 3-1.8M7.7 8h.01M12.3 8h.01",
  trash: "M4 6h12M8 6V4h4v2M5.8 6l.7 10.5h7L14.2 6M8.7 9v4.5M11.3 9v4.5",
  warning: "M10 3.5 17.5 16h-15L10 3.5ZM10 8v3.8M10 14h.01",
};

/** A line drawing from the page's own set; decoration only, so hidden from screen readers. */
export function icon(name, size = 18) {
  const svg = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: "0 0 20 20", width: size, height: size, class: `icon icon-${name}`, "aria-hidden": "true" };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}

/** A button that shows a drawing and is read out as `label`. */
export function iconButton(name, label, onClick, props = {}) {
  const merged = { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click: onClick } };
  return h("button", { ...merged, ...props }, icon(name));
}

export function spinner() {
  return h("span", { class: "spinner", "aria-hidden": "true" });
}

/** Round initials of a person; an app gets a rounded square. */
export function avatar(user, size = 36) {
  const name = user?.real_name || user?.name || "?";
  const look = { "--size": `${size}px`, "--tone": safeColor(user?.color) };
  const kind = user?.is_bot ? "avatar avatar-app" : "avatar";
  return h("span", { class: kind, style: look, "aria-hidden": "true" }, user?.initials || initials(name));
}

function initials(name) {
  const words = name.trim().split(/\s+/).slice(0, 2);
  return words.map((word) => [...word][0] ?? "").join("").toUpperCase();
}

function safeColor(color) {
  const text = String(color ?? "").replace(/^#?/, "#");
  return /^#[0-9a-f]{6}$/i.test(text) ? text : "#5b6478";
}

/** A link only for addresses that cannot run code; anything else stays text. */
export function safeLink(address, ...children) {
  const url = safeUrl(address);
  const shown = children.length ? children : [address];
  if (!url) return h("span", { class: "dead-link", title: "This address is not opened from here" }, shown);
  if (isHere(url)) return h("a", { href: new URL(url).hash }, shown);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, shown);
}

/** Whether this leads to a place of this page, such as a message that the app links to: opened here, as the same person. */
function isHere(url) {
  const { origin, pathname, hash } = new URL(url);
  return origin === location.origin && pathname === location.pathname && hash.startsWith("#/");
}

function safeUrl(address) {
  try {
    const url = new URL(String(address));
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Images come from this page's own address or from inside the message; nothing else is fetched. */
export function localImage(address, alt) {
  const text = String(address ?? "");
  if (/^data:image\/(png|jpeg|gif|webp);base64,/i.test(text)) return h("img", { src: text, alt });
  try {
    const url = new URL(text, location.href);
    if (url.origin === location.origin) return h("img", { src: url.href, alt });
  } catch {
    return null;
  }
  return null;
}

let counter = 0;

/** An id that no other element of this page has. */
export function uid(prefix) {
  counter += 1;
  return `${prefix}-${counter}`;
}

export const isNarrow = () => window.matchMedia("(max-width: 700px)").matches;
