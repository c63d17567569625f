// All sessions together: who waits for whom, what was spent, and what lies in the queues.

import { get, post } from "./api.js";
import { fill, h } from "./dom.js";
import { empty, pill, sessionLink, table, time } from "./parts.js";
import { moment } from "./when.js";

const page = (main, title, ...parts) => fill(main, h("section", { class: "page" }, h("h1", {}, title), parts));

/** A view that reads one document and draws it anew when anything changed. */
function documentView(path, title, draw) {
  return async (place) => {
    const load = async () => {
      const found = await get(path);
      if (place.isHere()) page(place.main, title, draw(found, place, load));
    };
    await load();
    return { news: load };
  };
}

// -- who waits for whom

export const waitingView = documentView("waiting", "Who waits for whom", (found) => {
  const byPerson = new Map();
  for (const one of found.questions) byPerson.set(one.asks, [...(byPerson.get(one.asks) ?? []), one]);
  const groups = [...byPerson].sort((one, two) => two[1].length - one[1].length);
  return [
    found.inAll > found.questions.length ? h("p", { class: "muted" }, `The oldest ${found.questions.length} of ${found.inAll.toLocaleString()} open questions.`) : null,
    groups.length ? null : empty("Nobody is asked anything right now."),
    groups.map(([asks, questions]) => h("section", { class: "card" },
      h("h2", {}, asks, " ", h("span", { class: "badge" }, questions.length)),
      table(["Question", "Flow", "For", "Waits"], questions.map((one) => [
        h("a", { href: `#/s/${encodeURIComponent(one.sessionId)}` }, one.message), one.flow, one.for ?? "", h("span", {}, time(one.since) ?? "", one.deadline ? h("span", { class: "muted" }, ` until ${moment(one.deadline)}`) : null)]), `Questions for ${asks}`))),
    found.locks.length ? h("section", { class: "card" }, h("h2", {}, "Locks"), locksTable(found.locks)) : null,
    found.timers.length ? h("section", { class: "card" }, h("h2", {}, "Next timers"), table(["Due", "Session"], found.timers.slice(0, 20).map((timer) => [moment(timer.due), sessionLink(timer.sessionId)]), "Timers")) : null,
  ];
});

function locksTable(locks) {
  return table(["Lock", "Session", "Stands", "Since"], locks.map((one) => [
    one.name, h("span", {}, sessionLink(one.sessionId), one.flow ? ` ${one.flow} ` : " ", one.status ? pill(one.status) : null),
    one.has ? "has it" : one.place ? `waits, number ${one.place}` : "is next", time(one.since)]), "Locks");
}

// -- spend

export const spendView = documentView("spend", "Spend", (found) => {
  const days = Object.entries(found.byDay);
  const most = Math.max(0.000001, ...days.map(([, sum]) => Number(sum.cost) + Number(sum.unsure)));
  const cap = found.today.cap ? ` of $${Number(found.today.cap).toFixed(2)}` : "";
  const rows = (sums) => Object.entries(sums).sort((one, two) => two[1].cost - one[1].cost);
  const money = (sum) => [`$${Number(sum.cost).toFixed(4)}`, Number(sum.unsure) ? `$${Number(sum.unsure).toFixed(4)}` : ""];
  if (!days.length) return [h("p", {}, `Today (UTC): $0.00${cap}.`), empty(`No agent has asked a model in the last ${found.days} days.`)];
  return [
    h("p", { class: "figure" }, h("strong", {}, `$${Number(found.today.counted).toFixed(2)}`), ` today (UTC)${cap}`),
    h("section", { class: "card" }, h("h2", {}, `The last ${found.days} days`), h("ol", { class: "columns" }, days.map(([day, sum]) => {
      const bar = h("span", { class: "column" });
      bar.style.setProperty("--part", `${((Number(sum.cost) + Number(sum.unsure)) / most * 100).toFixed(1)}%`);
      return h("li", { title: `${day}: $${Number(sum.cost).toFixed(4)} for ${sum.calls} calls` }, bar, h("span", { class: "column-name" }, day.slice(5)));
    }))),
    h("section", { class: "card" }, h("h2", {}, "By flow"), table(["Flow", "Sessions", "Calls", "Cost", "Not sure"], rows(found.byFlow).map(([flow, sum]) => [flow, String(sum.sessions), String(sum.calls), ...money(sum)]), "By flow")),
    h("section", { class: "card" }, h("h2", {}, "The dearest sessions"), table(["Session", "Calls", "Cost", "Not sure"], rows(found.bySession).map(([id, sum]) => [sessionLink(id), String(sum.calls), ...money(sum)]), "By session")),
  ];
});

// -- queues

export const queuesView = documentView("queues", "Queues", (found, { me }, load) => {
  const figure = (number, words, since) => h("div", { class: "figure" }, h("strong", {}, number.toLocaleString()), ` ${words}`, since ? h("span", { class: "muted" }, " oldest ", time(since)) : null);
  return [
    found.suspended ? h("p", { class: "problem" }, `The store is suspended: ${found.suspended}`) : null,
    found.troubles.map((trouble) => h("p", { class: "problem" }, trouble)),
    h("div", { class: "figures" }, figure(found.inbox.rows, "in the inbox", found.inbox.oldest), figure(found.outbox.rows, "to be sent", found.outbox.oldest), figure(found.dead, "dead letters"), figure(found.quarantined, "sessions set aside"), figure(found.serving.length, found.serving.length ? `processes: ${found.serving.join(", ")}` : "processes serve")),
    h("section", { class: "card" }, h("h2", {}, "Dead letters"), found.letters.length ? h("ul", { class: "letters" }, found.letters.map((letter) => letterItem(letter, me, load))) : empty("Nothing was set aside.")),
    h("section", { class: "card" }, h("h2", {}, "Locks"), found.locks.length ? locksTable(found.locks) : empty("No lock is held.")),
  ];
});

function letterItem(letter, me, load) {
  const note = h("span", { class: "note", role: "status" });
  const decide = (again) => async () => {
    try {
      await post("letter", { key: letter.key, again });
      await load();
    } catch (refusal) {
      note.textContent = refusal.message;
    }
  };
  return h("li", {}, h("details", {}, h("summary", {}, h("code", {}, letter.kind), ` ${letter.error}: ${letter.message} `, h("span", { class: "muted" }, time(letter.receivedAt), letter.tries ? `, ${letter.tries} tries` : "")), h("pre", { class: "value", tabindex: 0 }, letter.payload)),
    letter.sessionId ? h("p", {}, sessionLink(letter.sessionId)) : null,
    me.write ? h("p", { class: "controls" }, h("button", { type: "button", class: "button", on: { click: decide(true) } }, "Again"), h("button", { type: "button", class: "danger", on: { click: decide(false) } }, "Drop"), note) : null);
}
