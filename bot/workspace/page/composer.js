// Where people write. Enter sends, Shift+Enter makes a line; `@` offers people, `#` channels and, at the
// start, `/` the app's commands. What was begun in one place is still there when one comes back to it.

import { Attachments } from "./attachments.js";
import { avatar, h, icon, iconButton, isNarrow } from "./dom.js";
import { Listbox, matching } from "./listbox.js";

const TOKEN = /(^|\s)([@#])([\p{L}\p{N}._-]*)$/u;
const COMMAND = /^\/([\w-]*)$/;
const MOST_LINES = 240; // px
const SHOWN = 8;

export class Composer {
  /** `onSend(text, files)` resolves to true when it was taken. */
  constructor({ testid, people, onSend, onEditLast }) {
    Object.assign(this, { people, onSend, onEditLast });
    this.drafts = new Map();
    this.place = "";
    this.sending = false;
    this.field = h("textarea", { rows: "1", class: "composer-field", "aria-autocomplete": "list", dataset: { testid }, spellcheck: "true" });
    this.sendButton = iconButton("send", "Send", () => this.#send(), { class: "send", disabled: true, dataset: { testid: `${testid}-send` } });
    this.attached = new Attachments({ onChange: () => this.#changed(), testid });
    const mention = iconButton("at", "Mention somebody", () => this.#insert("@"), { class: "icon-button composer-tool" });
    const hint = h("span", { class: "composer-hint" }, h("kbd", {}, "Enter"), " sends, ", h("kbd", {}, "Shift Enter"), " starts a new line");
    this.suggestions = new Listbox({ label: "Suggestions", onPick: (option) => this.#take(option) });
    this.offer = h("div", { class: "suggestions", hidden: true }, this.suggestions.element);
    this.element = h("div", { class: "composer" }, this.offer, h("div", { class: "composer-box" }, this.attached.chips, this.field, h("div", { class: "composer-row" }, this.attached.button, this.attached.input, mention, hint, this.sendButton)));
    this.#listen();
  }

  /** The composer now belongs to another channel, thread or person. */
  moveTo(place, placeholder) {
    if (place !== this.place) {
      this.drafts.set(this.place, this.field.value);
      this.place = place;
      this.field.value = this.drafts.get(place) ?? "";
      this.attached.clear();
    }
    this.field.placeholder = placeholder;
    this.field.setAttribute("aria-label", placeholder);
    this.#changed();
  }

  /** One more button in the row below the text. */
  addTool(button) {
    this.attached.button.after(button);
  }

  focus() {
    if (!isNarrow()) this.field.focus({ preventScroll: true });
  }

  #listen() {
    this.field.addEventListener("input", () => this.#changed());
    this.field.addEventListener("click", () => this.#suggest());
    this.field.addEventListener("blur", () => this.#hide());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    this.suggestions.controlledBy(this.field);
    this.#listenForFiles();
  }

  #listenForFiles() {
    this.field.addEventListener("paste", (event) => {
      if (!event.clipboardData.files.length) return;
      event.preventDefault();
      this.attached.add(event.clipboardData.files);
    });
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.attached.add(event.dataTransfer.files);
    });
  }

  #key(event) {
    if (event.isComposing) return;
    if (!this.offer.hidden && this.#suggestionKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#send();
    } else if (event.key === "ArrowUp" && this.field.value === "") {
      this.onEditLast(event);
    }
  }

  #suggestionKey(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      this.#hide();
      return true;
    }
    if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      this.suggestions.pick(this.suggestions.options[this.suggestions.active]);
      return true;
    }
    return ["ArrowDown", "ArrowUp", "Enter"].includes(event.key) && this.suggestions.key(event);
  }

  async #send() {
    const text = this.field.value.trim();
    if (this.#isEmpty() || this.sending) return;
    const place = this.place;
    this.sending = true;
    this.element.classList.add("is-sending");
    const taken = await this.onSend(text, await this.attached.read());
    this.sending = false;
    this.element.classList.remove("is-sending");
    if (!taken) return;
    this.drafts.delete(place);
    if (this.place !== place) return;
    this.field.value = "";
    this.attached.clear();
  }

  #changed() {
    this.sendButton.disabled = this.#isEmpty();
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, MOST_LINES)}px`;
    this.#suggest();
  }

  #isEmpty() {
    return this.field.value.trim() === "" && !this.attached.files.length;
  }

  #insert(text) {
    const { selectionStart: at, value } = this.field;
    const gap = at > 0 && !/\s/.test(value[at - 1]) ? " " : "";
    this.field.focus();
    this.field.setRangeText(gap + text, at, this.field.selectionEnd, "end");
    this.#changed();
  }

  /** What is being named just before the caret: {options, from}. */
  #asked() {
    const { value, selectionStart: at, selectionEnd: end } = this.field;
    if (document.activeElement !== this.field || at !== end) return null;
    const before = value.slice(0, at);
    const command = COMMAND.exec(before);
    if (command) return { from: 0, options: this.#commands(command[1]) };
    const token = TOKEN.exec(before);
    if (!token) return null;
    const [, , sign, typed] = token;
    const all = sign === "@" ? this.#mentions() : this.#channels();
    return { from: at - typed.length - 1, options: matching(all, typed).slice(0, SHOWN) };
  }

  #suggest() {
    const asked = this.#asked();
    if (!asked?.options.length || this.#isExact(asked)) return this.#hide();
    this.from = asked.from;
    this.offer.hidden = false;
    this.suggestions.setOptions(asked.options);
  }

  #isExact({ options, from }) {
    const typed = this.field.value.slice(from, this.field.selectionStart);
    return options.length === 1 && options[0].insert === typed;
  }

  #hide() {
    this.offer.hidden = true;
    this.field.setAttribute("aria-activedescendant", "");
  }

  #take(option) {
    this.field.setRangeText(`${option.insert} `, this.from, this.field.selectionStart, "end");
    this.#changed();
    this.#hide();
  }

  #commands(typed) {
    const { bot } = this.people.state;
    const row = (command) => ({ id: command, insert: command, label: command, detail: `Command of ${bot.name}`, leading: avatar(this.people.bot(), 24), testid: `suggest-${command.slice(1)}` });
    return (bot.commands ?? []).filter((command) => command.startsWith(`/${typed}`)).map(row);
  }

  #mentions() {
    const { bot } = this.people.state;
    const rows = this.people.state.users.filter((user) => !user.deleted).map((user) => ({
      id: user.id, insert: `@${user.name}`, label: user.real_name || user.name, detail: `@${user.name}`, trailing: h("span", { class: "option-side" }, user.title),
      leading: avatar(user, 24), testid: `suggest-${user.name}`,
    }));
    const groups = (this.people.state.groups ?? []).map((group) => ({
      id: group.id, insert: `@${group.handle}`, label: `@${group.handle}`, detail: group.name, leading: icon("people"), testid: `suggest-${group.handle}`,
    }));
    return [...rows.filter((row) => row.id === bot.user_id), ...rows.filter((row) => row.id !== bot.user_id), ...groups];
  }

  #channels() {
    const channels = this.people.state.channels.filter((channel) => !channel.is_im);
    return channels.map((channel) => ({ id: channel.id, insert: `#${channel.name}`, label: `#${channel.name}`, detail: channel.topic, testid: `suggest-${channel.name}` }));
  }
}
