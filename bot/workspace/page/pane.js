// One conversation on the screen: its messages and where to write. The channel is one, the thread beside it
// another; both act through the same app object.

import { ask, toast } from "./dialogs.js";
import { Composer } from "./composer.js";
import { Feed } from "./feed.js";
import { plain } from "./mrkdwn.js";
import { Surface } from "./surface.js";

/** Choices and waiting buttons of messages; they outlive a redraw, and both panes share them. */
export class Surfaces {
  constructor(people, send) {
    Object.assign(this, { people, send });
    this.byMessage = new Map();
  }

  of(channel, message) {
    const key = `${channel} ${message.ts}`;
    const kept = this.byMessage.get(key) ?? { surface: this.#surface(channel, message.ts, () => kept.message) };
    kept.message = message;
    this.byMessage.set(key, kept);
    return kept.surface;
  }

  clear() {
    this.byMessage.clear();
  }

  #surface(channel, ts, message) {
    const roots = () => document.querySelectorAll(`article[data-ts="${CSS.escape(ts)}"]`);
    const { people, send } = this;
    return new Surface({ people, send, roots, ids: () => ({ channel, message_ts: ts }), blocks: () => message().blocks });
  }
}

export class Pane {
  /** `host` is the app: {people, surfaces, send(path, body), openThread(ts), linkTo(ts)}. */
  constructor({ host, feedElement, footElement, testid, inThread, onSend, intro, isUnseen }) {
    Object.assign(this, { host, inThread });
    this.channel = null;
    this.feed = new Feed({
      element: feedElement, people: host.people, inThread, intro, isUnseen,
      surfaceOf: (message) => host.surfaces.of(this.channel, message),
      actions: this.#actions(),
    });
    this.composer = new Composer({ testid, people: host.people, onSend, onEditLast: (event) => this.#editLast(event) });
    footElement.append(this.composer.element);
  }

  #actions() {
    return {
      thread: (message) => !this.inThread && this.host.openThread(message.thread_ts ?? message.ts),
      react: (message, name) => this.#try("react", { ts: message.ts, name }),
      link: (message) => copy(this.host.linkTo(message.thread_ts ?? message.ts), "Link copied"),
      text: (message) => copy(plain(message.text, this.host.people), "Text copied"),
      edit: (message) => this.feed.edit(message.ts),
      cancelEdit: () => this.#endEdit(),
      save: (message, text) => this.#save(message, text),
      remove: (message) => this.#remove(message),
      shortcut: (message, shortcut) => this.#try("shortcut", { message_ts: message.ts, callback_id: shortcut.callback_id }),
    };
  }

  /** Send something about this channel; a refusal becomes a note. True when it worked. */
  async #try(path, body) {
    try {
      await this.host.send(path, { channel: this.channel, ...body });
      return true;
    } catch (problem) {
      toast(problem.message);
      return false;
    }
  }

  async #save(message, text) {
    const changed = text.trim() && text !== plain(message.text, this.host.people);
    if (!changed || (await this.#try("edit", { ts: message.ts, text: text.trim() }))) this.#endEdit();
  }

  #endEdit() {
    this.feed.edit(null);
    this.composer.focus();
  }

  async #remove(message) {
    const question = { title: "Delete this message?", body: "It disappears for everybody. This cannot be undone.", yes: "Delete", style: "button button-danger" };
    if (await ask(question)) await this.#try("delete", { ts: message.ts });
  }

  #editLast(event) {
    const mine = [...this.feed.messages.values()].filter((message) => message.user === this.host.people.me() && !message.bot_id);
    if (!mine.length) return;
    event.preventDefault();
    this.feed.edit(mine.at(-1).ts);
  }
}

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    toast(done, { error: false });
  } catch {
    toast("The browser did not allow copying.");
  }
}
