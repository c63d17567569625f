// Blocks of Block Kit as DOM nodes. One that this page does not know says so in its place; one that is
// broken never takes the rest of the message with it.

import { dataTable } from "./datatable.js";
import { h, icon, localImage, safeLink, uid } from "./dom.js";
import { renderElement, unsupported, words } from "./elements.js";
import { markdown } from "./markdown.js";
import { inline, mrkdwn } from "./mrkdwn.js";
import { richText } from "./richtext.js";

/** All blocks of a message or view, in order. */
export function renderBlocks(blocks, surface) {
  surface.inline ??= (text) => inline(text, surface.people);
  return (blocks ?? []).map((block) => {
    const node = renderBlock(block, surface);
    node.classList.add("block");
    node.dataset.block = block.block_id ?? "";
    return node;
  });
}

function renderBlock(block, surface) {
  const draw = DRAW[block?.type];
  if (!draw) return unsupported(String(block?.type));
  try {
    return draw(block, surface);
  } catch (problem) {
    console.error("block could not be drawn", block, problem);
    return unsupported(block.type);
  }
}

/** A text object: `mrkdwn` with its marks, `plain_text` as it stands. */
export function textNodes(object, people) {
  if (object?.type === "mrkdwn") return mrkdwn(object.text, people);
  return [h("p", { class: "plain" }, words(object))];
}

function section(block, surface) {
  const { people } = surface;
  const text = block.text ? h("div", { class: "prose" }, textNodes(block.text, people)) : null;
  const fields = block.fields?.map((field) => h("div", { class: "prose" }, textNodes(field, people)));
  const body = h("div", { class: "section-body" }, text, fields ? h("div", { class: "section-fields" }, fields) : null);
  const side = block.accessory ? h("div", { class: "section-side" }, accessory(block, surface)) : null;
  return h("div", { class: "section" }, body, side);
}

function accessory(block, surface) {
  if (block.accessory.type === "image") return picture(block.accessory, "thumb");
  const naming = { "aria-label": words(block.accessory.placeholder) || (block.text?.text ?? "").slice(0, 80) };
  const needsName = !["button", "overflow"].includes(block.accessory.type);
  return renderElement(block.accessory, block, surface, needsName ? naming : {});
}

function picture(object, className) {
  const alt = object.alt_text ?? "";
  const image = localImage(object.image_url, alt);
  if (image) return h("span", { class: className }, image);
  return h("span", { class: "image-link" }, icon("external", 15), safeLink(object.image_url, alt || "Image"));
}

function image(block) {
  const title = block.title ? h("figcaption", {}, words(block.title)) : null;
  return h("figure", { class: "block-image" }, title, picture(block, "picture"));
}

function context(block, surface) {
  const parts = (block.elements ?? []).map((item) =>
    item.type === "image" ? picture(item, "tiny") : h("span", { class: "prose" }, item.type === "mrkdwn" ? mrkdwn(item.text, surface.people) : words(item)),
  );
  return h("div", { class: "context" }, parts);
}

function actions(block, surface) {
  return h("div", { class: "actions", role: "group" }, (block.elements ?? []).map((element) => renderElement(element, block, surface)));
}

function header(block) {
  return h("p", { class: "block-header", role: "heading", "aria-level": "3" }, words(block.text));
}

const OWN_GROUP = new Set(["radio_buttons", "checkboxes"]);

function input(block, surface) {
  const ids = { field: uid("field"), label: uid("label"), hint: uid("hint"), error: uid("error") };
  const error = surface.errors?.[block.block_id];
  const naming = { id: ids.field, labelId: ids.label, "aria-describedby": `${ids.hint} ${ids.error}`, "aria-invalid": error ? "true" : null };
  const grouped = OWN_GROUP.has(block.element?.type);
  const optional = block.optional ? h("span", { class: "optional" }, " (optional)") : null;
  return h("div", { class: error ? "input has-error" : "input" },
    h("label", { id: ids.label, for: grouped ? null : ids.field, class: "input-label" }, words(block.label), optional),
    renderElement(block.element, block, surface, naming),
    h("p", { id: ids.hint, class: "input-hint" }, block.hint ? words(block.hint) : null),
    h("p", { id: ids.error, class: "input-error", role: error ? "alert" : null }, error ? [icon("warning", 15), h("span", {}, error)] : null),
  );
}

function markdownBlock(block, surface) {
  return h("div", { class: "prose markdown" }, markdown(block.text, surface.people));
}

function richTextBlock(block, surface) {
  return h("div", { class: "prose" }, richText(block, surface.people));
}

function table(block, surface) {
  const rows = (block.rows ?? []).map((row, at) => h("tr", {}, row.map((cell) => h(at === 0 ? "th" : "td", {}, cellNodes(cell, surface)))));
  return h("div", { class: "md-table", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, h("tbody", {}, rows)));
}

function cellNodes(cell, surface) {
  return cell?.type === "rich_text" ? richText(cell, surface.people) : String(cell?.text ?? cell?.value ?? "");
}

// A title that begins with a mark for its state has no second one before it.
const MARKED = /^(?:› )*(?:⏭️|⚠️|🔁|🚫|🛑|🟡|⏹️|💤) /u;
const TASK_STATES = { pending: "○", in_progress: "▸", complete: "✓", error: "✗" };

function taskCard(block, surface) {
  const more = [block.details, block.output].filter(Boolean).map((text) => h("div", { class: "prose" }, richText(text, surface.people)));
  const sources = (block.sources ?? []).map((source) => h("li", {}, safeLink(source.url, source.text)));
  const state = MARKED.test(block.title) ? null : h("span", { role: "img", "aria-label": block.status.replace("_", " ") }, TASK_STATES[block.status]);
  return h("div", { class: "task", dataset: { status: block.status } },
    h("p", { class: "task-title" }, state, `${state ? " " : ""}${block.title}`),
    more, sources.length ? h("ul", {}, sources) : null,
  );
}

function plan(block, surface) {
  return h("div", { class: "plan", role: "group", "aria-label": block.title }, h("p", { class: "plan-title" }, block.title), (block.tasks ?? []).map((task) => taskCard(task, surface)));
}

const DRAW = {
  actions, context, header, image, input, plan, section, table,
  context_actions: actions,
  data_table: (block, surface) => dataTable(block, (cell) => cellNodes(cell, surface)),
  task_card: taskCard,
  divider: () => h("hr"),
  markdown: markdownBlock,
  rich_text: richTextBlock,
};
