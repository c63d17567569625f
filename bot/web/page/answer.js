// An open question, and where changes are allowed the form that answers it: a request, which the policy may refuse.

import { post } from "./api.js";
import { fill, h, uid } from "./dom.js";
import { command, say, time } from "./parts.js";

/** Ask for something; says what became of it in `note`. */
async function ask(note, body) {
  fill(note, "…");
  try {
    const { outcome, there } = await post("act", body);
    const words = outcome === "applied" ? "Done." : there ? "It is kept, and carried out when the bot gets to it." : "No bot runs now. It is kept, and carried out when one does.";
    fill(note, words);
    say(words);
  } catch (refusal) {
    fill(note, h("span", { class: "problem" }, refusal.message));
    say(refusal.message);
  }
}

export function question(prompt, sessionId, write) {
  const note = h("p", { class: "note", role: "status" });
  const send = (fields) => ask(note, { session: sessionId, do: "answer", promptId: prompt.promptId, nonce: prompt.nonce, ...fields });
  return h("section", { class: "card question", "aria-label": "Open question" },
    h("p", { class: "question-text" }, prompt.message),
    prompt.covers.length ? h("pre", { class: "covers" }, prompt.covers.join("\n")) : null,
    prompt.fields.length && prompt.options.length ? h("pre", { class: "covers" }, prompt.fields.map((field) => `${field.title}: ${[prompt.values[field.name] ?? "–"].flat().join(", ")}\n`)) : null,
    h("p", { class: "muted" }, `${prompt.path}: ${prompt.kind}, asks `, h("strong", {}, prompt.asks), " since ", time(prompt.since), prompt.deadline ? [", until ", new Date(prompt.deadline).toLocaleString()] : ""),
    prompt.votes.length ? h("p", { class: "muted" }, prompt.votes.map((vote) => `${vote.actor?.name ?? vote.actor?.id}: ${vote.vote}`).join(", ")) : null,
    write ? form(prompt, send) : h("p", {}, command(`sayso prompts answer ${prompt.promptId} ANSWER`)),
    note);
}

function form(prompt, send) {
  if (prompt.fields.length && !prompt.options.length) return fields(prompt, send);
  const reason = prompt.options.some((option) => option.asks) ? h("input", { type: "text", placeholder: "Why (for those who read it)", "aria-label": "Reason" }) : null;
  const buttons = prompt.options.map((option) =>
    h("button", { type: "button", class: option.value === "approve" ? "primary" : "button", on: { click: () => send({ value: option.value, reason: reason?.value || null }) } }, option.label));
  const words = prompt.acceptsText ? h("input", { type: "text", placeholder: "Your answer", "aria-label": "Answer" }) : null;
  return h("form", { class: "answer", on: { submit: (event) => { event.preventDefault(); if (words?.value) send({ text: words.value }); } } },
    buttons, reason, words, words ? h("button", { type: "submit", class: "primary" }, "Send") : null);
}

function fields(prompt, send) {
  const inputs = prompt.fields.map((field) => {
    const id = uid("field");
    const [value, many] = [field.default ?? "", field.type === "choices"];
    const options = () => field.options.map((one) => h("option", { value: one.value, selected: [value].flat().includes(one.value) }, one.label));
    const input = field.options
      ? h("select", { id, multiple: many }, many ? null : h("option", { value: "" }, ""), options())
      : field.type === "boolean" ? h("input", { id, type: "checkbox", checked: value === true }) : field.multiline ? h("textarea", { id, value }) : h("input", { id, type: "text", value });
    const hint = field.description ? h("span", { class: "muted" }, field.description) : null;
    return { field, input, line: h("p", { class: "field" }, h("label", { htmlFor: id }, field.title, field.required ? " *" : ""), input, hint) };
  });
  const submit = (event) => {
    event.preventDefault();
    const values = inputs.map(({ field, input }) => [field.name, input.multiple ? [...input.selectedOptions].map((one) => one.value) : input.type === "checkbox" ? input.checked : input.value]);
    send({ values: Object.fromEntries(values.filter(([, value]) => value !== "")) });
  };
  return h("form", { class: "stack", on: { submit } }, inputs.map(({ line }) => line), h("button", { type: "submit", class: "primary" }, "Send"));
}

/** What may be done to a whole session. */
export function controls(session, write) {
  if (["complete", "failed", "aborted"].includes(session.status)) return null;
  if (!write) return null;
  const note = h("span", { class: "note", role: "status" });
  const act = (body) => ask(note, { session: session.sessionId, ...body });
  const cancel = h("button", { type: "button", class: "danger", on: { click: () => {
    if (cancel.dataset.sure) return act({ do: "abort", reason: "from the control room" });
    cancel.dataset.sure = "1";
    cancel.textContent = "Really cancel?";
    return setTimeout(() => { delete cancel.dataset.sure; cancel.textContent = "Cancel"; }, 4000);
  } } }, "Cancel");
  const hold = session.phase === "held"
    ? h("button", { type: "button", class: "button", on: { click: () => act({ do: "resume", text: "Go on." }) } }, "Go on")
    : h("button", { type: "button", class: "button", on: { click: () => act({ do: "pause", reason: "from the control room" }) } }, "Pause");
  return h("div", { class: "controls" }, hold, cancel, note);
}
