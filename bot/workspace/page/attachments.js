// Files that are about to be sent with a message: chosen, dropped or pasted, shown as chips, read on sending.

import { fill, h, icon, iconButton } from "./dom.js";
import { toast } from "./dialogs.js";

const LARGEST = 10 * 1024 * 1024; // bytes

export class Attachments {
  constructor({ onChange, testid }) {
    this.files = [];
    this.onChange = onChange;
    this.input = h("input", { type: "file", multiple: true, hidden: true, dataset: { testid: `${testid}-file` } });
    this.input.addEventListener("change", () => {
      this.add(this.input.files);
      this.input.value = "";
    });
    this.button = iconButton("attach", "Attach files", () => this.input.click(), { class: "icon-button composer-tool" });
    this.chips = h("div", { class: "chips" });
  }

  add(files) {
    for (const file of files) {
      if (file.size > LARGEST) toast(`${file.name} is larger than 10 MB.`);
      else this.files.push(file);
    }
    this.#draw();
  }

  clear() {
    this.files = [];
    this.#draw();
  }

  /** What the server takes: [{name, data}] with base64 data. */
  async read() {
    return Promise.all(this.files.map(async (file) => ({ name: file.name, data: await base64(file) })));
  }

  #draw() {
    const chip = (file, index) => h("span", { class: "file chip" }, icon("file"), h("span", { class: "file-name" }, file.name), iconButton("close", `Remove ${file.name}`, () => this.#remove(index)));
    fill(this.chips, this.files.map(chip));
    this.onChange();
  }

  #remove(index) {
    this.files.splice(index, 1);
    this.#draw();
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.split(",", 2)[1] ?? ""));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}
