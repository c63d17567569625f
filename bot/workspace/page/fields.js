// What a person has chosen or typed in blocks, in the shape Slack calls `state.values`:
// {block_id: {action_id: {type, value | selected_option | selected_options | selected_date | ...}}}

const EMPTY = {
  plain_text_input: (element) => ({ value: element.initial_value ?? null }),
  number_input: (element) => ({ value: element.initial_value ?? null }),
  email_text_input: (element) => ({ value: element.initial_value ?? null }),
  url_text_input: (element) => ({ value: element.initial_value ?? null }),
  static_select: (element) => ({ selected_option: element.initial_option ?? null }),
  radio_buttons: (element) => ({ selected_option: element.initial_option ?? null }),
  checkboxes: (element) => ({ selected_options: element.initial_options ?? [] }),
  multi_static_select: (element) => ({ selected_options: element.initial_options ?? [] }),
  users_select: (element) => ({ selected_user: element.initial_user ?? null }),
  multi_users_select: (element) => ({ selected_users: element.initial_users ?? [] }),
  channels_select: (element) => ({ selected_channel: element.initial_channel ?? null }),
  multi_channels_select: (element) => ({ selected_channels: element.initial_channels ?? [] }),
  conversations_select: (element) => ({ selected_conversation: element.initial_conversation ?? null }),
  multi_conversations_select: (element) => ({ selected_conversations: element.initial_conversations ?? [] }),
  datepicker: (element) => ({ selected_date: element.initial_date ?? null }),
  timepicker: (element) => ({ selected_time: element.initial_time ?? null }),
  datetimepicker: (element) => ({ selected_date_time: element.initial_date_time ?? null }),
};

/** The state of an element that nobody has touched; null for what has no state (buttons, menus). */
export function untouched(element) {
  const make = EMPTY[element.type];
  return make ? { type: element.type, ...make(element) } : null;
}

/** Whether this state counts as nothing filled in. */
export function isBlank(fragment) {
  const { type, ...rest } = fragment ?? {};
  return Object.values(rest).every((value) => value === null || value === "" || (Array.isArray(value) && !value.length));
}

/** The elements of a block that may hold a state or be pressed. */
export function elementsOf(block) {
  if (block.type === "input") return [block.element];
  if (["actions", "context_actions"].includes(block.type)) return block.elements ?? [];
  if (block.type === "section" && block.accessory) return [block.accessory];
  return [];
}

/** The choices made on one message or view; they outlive a redraw of its blocks. */
export class FieldValues {
  constructor() {
    this.byKey = new Map();
  }

  get(block, element) {
    return this.byKey.get(fieldKey(block, element)) ?? untouched(element);
  }

  set(block, element, fragment) {
    this.byKey.set(fieldKey(block, element), { type: element.type, ...fragment });
  }

  /** Slack's `state.values` for these blocks. */
  collect(blocks) {
    const values = {};
    for (const block of blocks ?? []) {
      for (const element of elementsOf(block)) {
        const fragment = this.get(block, element);
        if (fragment) (values[block.block_id] ??= {})[element.action_id] = fragment;
      }
    }
    return values;
  }
}

export const fieldKey = (block, element) => `${block.block_id ?? ""}\n${element.action_id ?? ""}`;

/** What stands against sending these inputs: {block_id: what to do}. The app checks the rest itself. */
export function problemsIn(blocks, values) {
  const problems = {};
  for (const block of blocks ?? []) {
    if (block.type !== "input") continue;
    const problem = problemOf(block, values.get(block, block.element));
    if (problem) problems[block.block_id] = problem;
  }
  return problems;
}

function problemOf(block, fragment) {
  const { element } = block;
  if (isBlank(fragment)) return block.optional ? null : "Please complete this required field.";
  const value = fragment.value;
  if (typeof value !== "string") return null;
  const { min_length: least, max_length: most, min_value: low, max_value: high } = element;
  if (least && value.length < least) return `Please write at least ${least} characters.`;
  if (most && value.length > most) return `Please write at most ${most} characters (now ${value.length}).`;
  if (element.type === "number_input") return numberProblem(value, element.is_decimal_allowed, low, high);
  if (element.type === "email_text_input" && !/^\S+@\S+\.\S+$/.test(value)) return "Please enter an e-mail address.";
  if (element.type === "url_text_input" && !URL.canParse(value)) return "Please enter a full address, with https://.";
  return null;
}

function numberProblem(value, decimal, low, high) {
  const number = Number(value);
  if (!Number.isFinite(number)) return "Please enter a number.";
  if (!decimal && !Number.isInteger(number)) return "Please enter a whole number.";
  if (low !== undefined && number < Number(low)) return `Please enter ${low} or more.`;
  if (high !== undefined && number > Number(high)) return `Please enter ${high} or less.`;
  return null;
}
