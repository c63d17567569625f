// Questions that the page itself asks, and notes that go away by themselves.

import { h, icon, iconButton } from "./dom.js";
import { withEmoji } from "./emoji.js";
import { unescapeText } from "./mrkdwn.js";

const text = (object, otherwise) => (object?.text ? withEmoji(unescapeText(object.text)) : otherwise);

/** Slack's `confirm` object as a dialog; resolves to whether the person agreed. */
export function confirmDialog(confirm) {
  const style = confirm.style === "danger" ? "button button-danger" : "button button-primary";
  return ask({
    title: text(confirm.title, "Are you sure?"),
    body: text(confirm.text, ""),
    yes: text(confirm.confirm, "Yes"),
    no: text(confirm.deny, "Cancel"),
    style,
  });
}

/** A question with two answers; Esc is no. */
export function ask({ title, body, yes, no = "Cancel", style = "button button-primary" }) {
  const { promise, resolve } = Promise.withResolvers?.() ?? deferred();
  const dialog = h("dialog", { class: "dialog dialog-small", "aria-label": title, dataset: { testid: "confirm" } });
  const close = (answer) => {
    resolve(answer);
    dialog.close();
    dialog.remove();
  };
  dialog.append(
    h("h2", { class: "dialog-title" }, title),
    h("p", { class: "dialog-text" }, body),
    h("div", { class: "dialog-buttons" },
      h("button", { type: "button", class: "button", dataset: { testid: "confirm-no" }, on: { click: () => close(false) } }, no),
      h("button", { type: "button", class: style, autofocus: true, dataset: { testid: "confirm-yes" }, on: { click: () => close(true) } }, yes),
    ),
  );
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    close(false);
  });
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

const TOAST_MS = 8000;

/** A short note at the edge of the page; errors are read out at once. */
export function toast(message, { error = true } = {}) {
  const dismiss = () => {
    clearTimeout(timer);
    note.remove();
  };
  const look = { class: error ? "toast toast-error" : "toast", role: error ? "alert" : "status", dataset: { testid: "toast" } };
  const note = h("div", look, icon(error ? "warning" : "check"), h("span", { class: "toast-text" }, message), iconButton("close", "Dismiss", dismiss));
  let timer = setTimeout(dismiss, TOAST_MS);
  note.addEventListener("pointerenter", () => clearTimeout(timer));
  note.addEventListener("pointerleave", () => (timer = setTimeout(dismiss, TOAST_MS)));
  const place = document.querySelector("dialog.modal[open]") ?? document.body;
  toasts(place).append(note);
}

function toasts(place) {
  const found = place.querySelector(":scope > .toasts");
  if (found) return found;
  const made = h("div", { class: "toasts" });
  place.append(made);
  return made;
}
