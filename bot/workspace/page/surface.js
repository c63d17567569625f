// A surface is what carries interactive blocks: a message, a modal, the app's Home. It remembers what was
// chosen there, knows which controls wait for the app, and sends what is pressed.

import { toast } from "./dialogs.js";
import { showBusy } from "./elements.js";
import { FieldValues, fieldKey } from "./fields.js";

export class Surface {
  /**
   * `ids()` names it to the server ({channel, message_ts} or {view_id}), `blocks()` are its blocks now, and
   * `roots()` the elements on the page that show it. `send(path, body)` throws Refused.
   */
  constructor({ people, send, ids, blocks, roots }) {
    Object.assign(this, { people, send, ids, blocks, roots });
    this.values = new FieldValues();
    this.busy = new Set();
    this.errors = {};
  }

  /** Tell the app; the control shows that it waits, and takes no second press, until the app acknowledged. */
  async act(block, element, fragment) {
    const key = fieldKey(block, element);
    if (this.busy.has(key)) return;
    this.#wait(key, block, element, true);
    const names = { ...this.ids(), block_id: block.block_id, action_id: element.action_id, type: element.type };
    try {
      await this.send("action", { ...names, ...fragment, state: { values: this.values.collect(this.blocks()) } });
    } catch (problem) {
      toast(problem.message);
    } finally {
      this.#wait(key, block, element, false);
    }
  }

  #wait(key, block, element, busy) {
    if (busy) this.busy.add(key);
    else this.busy.delete(key);
    for (const root of this.roots()) showBusy(root, block, element, busy);
  }
}
