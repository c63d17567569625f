// Interactive elements of Block Kit. A *surface* (a message or a modal) supplies what they need:
//   people   who and what ids are            values  a FieldValues
//   busy     keys of what waits for the app  act     (block, element, fragment) -> Promise, tells the app

import { avatar, h, icon, spinner, uid } from "./dom.js";
import { confirmDialog } from "./dialogs.js";
import { withEmoji } from "./emoji.js";
import { fieldKey } from "./fields.js";
import { unescapeText } from "./mrkdwn.js";
import { openMenu } from "./popup.js";
import { pickField } from "./select.js";

/** Text of a `plain_text` object. */
export const words = (object) => withEmoji(unescapeText(object?.text ?? ""));

/** One element. `naming` are the attributes that tie it to its label, hint and error. */
export function renderElement(element, block, surface, naming = {}) {
  const draw = DRAW[element.type];
  if (!draw) return unsupported(element.type);
  const node = draw(element, block, surface, naming);
  const marked = node.matches("button, input, textarea, a") ? node : (node.querySelector("button, input, textarea") ?? node);
  Object.assign(marked.dataset, { actionId: element.action_id ?? "", blockId: block.block_id ?? "" });
  return node;
}

export function unsupported(type) {
  return h("p", { class: "unsupported" }, icon("warning", 15), ` The local workspace does not draw “${type}”.`);
}

/** Remember a choice and, where the app is to hear of it at once, tell it. False when the person backed out. */
async function choose(element, block, surface, fragment) {
  if (!(await confirmed(element))) return false;
  surface.values.set(block, element, fragment);
  surface.changed?.(block);
  if (block.type !== "input" || block.dispatch_action) surface.act(block, element, { ...fragment });
  return true;
}

async function confirmed(element) {
  return !element.confirm || confirmDialog(element.confirm);
}

function button(element, block, surface) {
  const style = ["primary", "danger"].includes(element.style) ? ` button-${element.style}` : "";
  const busy = surface.busy.has(fieldKey(block, element));
  const press = async () => {
    if (node.getAttribute("aria-busy") === "true" || !(await confirmed(element))) return;
    surface.act(block, element, { value: element.value });
  };
  const attributes = { class: `button${style}`, "aria-busy": String(busy), "aria-label": element.accessibility_label };
  const label = [h("span", { class: "button-label" }, words(element.text)), spinner()];
  const node = /^https?:/i.test(element.url ?? "")
    ? h("a", { ...attributes, href: element.url, target: "_blank", rel: "noopener noreferrer", on: { click: press } }, label)
    : h("button", { ...attributes, type: "button", on: { click: press } }, label);
  return node;
}

/** Two buttons that share an id: what people think of an answer. */
function feedback(element, block, surface) {
  const one = (choice, sign) => h("button", {
    type: "button", class: "button", "aria-label": choice.accessibility_label, on: { click: () => surface.act(block, element, { value: choice.value }) },
  }, h("span", { class: "button-label" }, `${sign} `, words(choice.text)));
  return h("span", { class: "feedback", role: "group" }, one(element.positive_button, "👍"), one(element.negative_button, "👎"));
}

function overflow(element, block, surface) {
  const options = (element.options ?? []).map((option) => optionRow(option));
  const onPick = async ({ option }) => {
    if (await confirmed(element)) surface.act(block, element, { selected_option: option });
  };
  const attributes = { type: "button", class: "button button-icon", "aria-label": "More choices", "aria-haspopup": "listbox" };
  const node = h("button", { ...attributes, on: { click: () => openMenu(node, { label: "More choices", options, onPick, align: "end" }) } }, icon("more"));
  return node;
}

function optionRow(option, group) {
  return { id: option.value, label: words(option.text), detail: option.description ? words(option.description) : null, option, group };
}

function optionRows(element) {
  const loose = (element.options ?? []).map((option) => optionRow(option));
  const grouped = (element.option_groups ?? []).flatMap((group) => (group.options ?? []).map((option) => optionRow(option, words(group.label))));
  return [...loose, ...grouped];
}

function userRows(people) {
  return people.state.users.filter((user) => !user.deleted).map((user) => ({
    id: user.id, label: user.real_name || user.name, detail: user.title || `@${user.name}`, keywords: user.name, leading: avatar(user, 24), option: user.id,
  }));
}

function channelRows(people, withIms) {
  const channels = people.state.channels.filter((channel) => withIms || !channel.is_im);
  return channels.map((channel) => ({ id: channel.id, label: channel.is_im ? people.title(channel) : `#${channel.name}`, option: channel.id }));
}

const SOURCES = {
  static_select: ["selected_option", (element) => optionRows(element), (value) => value?.value],
  users_select: ["selected_user", (_, people) => userRows(people), (value) => value],
  channels_select: ["selected_channel", (_, people) => channelRows(people, false), (value) => value],
  conversations_select: ["selected_conversation", (_, people) => channelRows(people, true), (value) => value],
};

/** Single and multiple selects differ in the name of their value and in how many they hold. */
function select(element, block, surface, naming) {
  const multi = element.type.startsWith("multi_");
  const [single, rowsOf, idOf] = SOURCES[element.type.replace(/^multi_/, "")];
  const name = multi ? `${single}s` : single;
  const held = surface.values.get(block, element)[name];
  return pickField({
    multi, naming, rows: rowsOf(element, surface.people),
    label: naming["aria-label"] ?? words(element.placeholder),
    placeholder: words(element.placeholder) || (multi ? "Choose any" : "Choose one"),
    chosen: (multi ? held : [held]).map(idOf).filter(Boolean),
    most: element.max_selected_items,
    onChange: (rows) => choose(element, block, surface, { [name]: multi ? rows.map((row) => row.option) : (rows[0]?.option ?? null) }),
  });
}

/** Radio buttons and checkboxes: native inputs, so that every key and screen reader already knows them. */
function choices(element, block, surface, naming) {
  const multi = element.type === "checkboxes";
  const group = uid("choices");
  const held = surface.values.get(block, element);
  const chosen = new Set((multi ? held.selected_options : [held.selected_option]).filter(Boolean).map((option) => option.value));
  const changed = async () => {
    const picked = element.options.filter((_, index) => inputs[index].checked);
    const fragment = multi ? { selected_options: picked } : { selected_option: picked[0] ?? null };
    if (await choose(element, block, surface, fragment)) chosen.clear(), picked.forEach((option) => chosen.add(option.value));
    else element.options.forEach((option, index) => (inputs[index].checked = chosen.has(option.value)));
  };
  const inputs = element.options.map((option) => h("input", { type: multi ? "checkbox" : "radio", name: group, checked: chosen.has(option.value), on: { change: changed } }));
  const rows = element.options.map((option, index) => choiceRow(option, inputs[index], surface));
  const { labelId, id: _, ...tied } = naming;
  return h("div", { class: "choices", role: multi ? "group" : "radiogroup", ...tied, "aria-labelledby": labelId }, rows);
}

function choiceRow(option, input, surface) {
  const text = option.text?.type === "mrkdwn" ? surface.inline(option.text.text) : words(option.text);
  const detail = option.description ? h("span", { class: "choice-detail" }, words(option.description)) : null;
  return h("label", { class: "choice" }, input, h("span", {}, text, detail));
}

const INPUT_TYPE = { number_input: "text", email_text_input: "email", url_text_input: "url", plain_text_input: "text" };

function textInput(element, block, surface, naming) {
  const { labelId: _, ...tied } = naming;
  const common = {
    class: "field", placeholder: words(element.placeholder), maxlength: element.max_length, ...tied,
    value: surface.values.get(block, element).value ?? "", "aria-label": naming.id ? null : words(element.placeholder) || "Text",
  };
  const node = element.multiline
    ? h("textarea", { ...common, rows: "4" })
    : h("input", { ...common, type: INPUT_TYPE[element.type], inputmode: element.type === "number_input" ? "decimal" : null });
  const when = element.dispatch_action_config?.trigger_actions_on ?? ["on_enter_pressed"];
  node.addEventListener("input", () => {
    surface.values.set(block, element, { value: node.value === "" ? null : node.value });
    surface.changed?.(block);
    if (block.dispatch_action && when.includes("on_character_entered")) surface.act(block, element, { value: node.value });
  });
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !block.dispatch_action || element.multiline || !when.includes("on_enter_pressed")) return;
    event.preventDefault();
    surface.act(block, element, { value: node.value });
  });
  return node;
}

const MOMENT = {
  datepicker: ["date", "selected_date", (value) => value ?? "", (typed) => typed || null],
  timepicker: ["time", "selected_time", (value) => value ?? "", (typed) => typed || null],
  datetimepicker: ["datetime-local", "selected_date_time", (value) => localMoment(value), (typed) => (typed ? Math.floor(new Date(typed).getTime() / 1000) : null)],
};

function moment(element, block, surface, naming) {
  const [type, name, show, read] = MOMENT[element.type];
  const { labelId: _, ...tied } = naming;
  const label = naming.id ? null : words(element.placeholder) || "Date";
  const node = h("input", { type, class: "field field-moment", ...tied, "aria-label": label, value: show(surface.values.get(block, element)[name]) });
  node.addEventListener("change", async () => {
    if (!(await choose(element, block, surface, { [name]: read(node.value) }))) node.value = show(surface.values.get(block, element)[name]);
  });
  return node;
}

function localMoment(seconds) {
  if (!seconds) return "";
  const when = new Date(seconds * 1000);
  return new Date(when.getTime() - when.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

const DRAW = {
  button, overflow, feedback_buttons: feedback, icon_button: button, datepicker: moment, timepicker: moment, datetimepicker: moment,
  radio_buttons: choices, checkboxes: choices,
  plain_text_input: textInput, number_input: textInput, email_text_input: textInput, url_text_input: textInput,
  static_select: select, users_select: select, channels_select: select, conversations_select: select,
  multi_static_select: select, multi_users_select: select, multi_channels_select: select, multi_conversations_select: select,
};

/** Show what is busy without drawing the block again, so that the focus stays where it is. */
export function showBusy(root, block, element, busy) {
  for (const node of root.querySelectorAll("[data-action-id]")) {
    const same = node.dataset.actionId === (element.action_id ?? "") && node.dataset.blockId === (block.block_id ?? "");
    if (same) node.setAttribute("aria-busy", String(busy));
  }
}

