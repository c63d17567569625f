// All sessions: search, filters, and a list that loads as one scrolls.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { pill, short, STATUS, time } from "./parts.js";

const FILTERS = ["q", "flow", "person", "channel"];
const OPEN = ["running", "paused", "failed", "complete", "aborted", "idle", "set aside"];

export async function sessionsView({ main, query, isHere }) {
  const list = h("ul", { class: "sessions", "aria-label": "Sessions" });
  const end = h("p", { class: "more", role: "status" });
  const statuses = h("div", { class: "chips", role: "group", "aria-label": "Status" });
  const selects = h("div", { class: "selects" });
  const search = h("input", { type: "search", name: "q", placeholder: "Search id, flow, person, channel, inputs", "aria-label": "Search sessions", value: query.get("q") ?? "", autocomplete: "off" });
  let asked = 0;
  let next = null;
  let shown = new Map();

  const wanted = () => {
    const now = new URLSearchParams(location.hash.split("?")[1] ?? "");
    return { ...Object.fromEntries(FILTERS.map((name) => [name, now.get(name) ?? ""])), status: now.getAll("status") };
  };
  const change = (name, value) => {
    const now = new URLSearchParams(location.hash.split("?")[1] ?? "");
    if (name === "status") {
      const had = now.getAll("status");
      now.delete("status");
      for (const one of had.includes(value) ? had.filter((one) => one !== value) : [...had, value]) now.append("status", one);
    } else if (value) now.set(name, value);
    else now.delete(name);
    history.replaceState(null, "", `#/sessions${now.size ? `?${now}` : ""}`);
    return load();
  };

  async function load() {
    const number = ++asked;
    const page = await get("sessions", wanted());
    if (number !== asked || !isHere()) return;
    shown = new Map(page.sessions.map((session) => [session.sessionId, row(session)]));
    fill(list, [...shown.values()]);
    told(page);
    await facets();
  }
  async function onward() {
    if (!next) return;
    const number = asked;
    const before = next;
    next = null;
    const page = await get("sessions", { ...wanted(), before });
    if (number !== asked) return;
    for (const session of page.sessions) {
      const line = row(session);
      shown.set(session.sessionId, line);
      list.append(line);
    }
    told(page);
  }
  function told(page) {
    next = page.next;
    const reading = page.complete ? "" : ` Reading… ${page.known.toLocaleString()} so far.`;
    fill(end, shown.size ? (next ? "Scroll for more." : `${shown.size.toLocaleString()} session${shown.size === 1 ? "" : "s"}.`) : "No session is like that.", reading);
    if (!page.complete) setTimeout(() => isHere() && shown.size <= 50 && load(), 400);
  }
  async function facets() {
    const found = await get("facets");
    const now = wanted();
    fill(statuses, OPEN.filter((name) => found.statuses[name] || now.status.includes(name)).map((name) =>
      h("button", { type: "button", class: "chip", dataset: { status: name }, "aria-pressed": String(now.status.includes(name)), on: { click: () => change("status", name) } },
        h("span", { "aria-hidden": "true" }, STATUS[name][0]), ` ${STATUS[name][1]} `, h("span", { class: "count" }, (found.statuses[name] ?? 0).toLocaleString()))));
    fill(selects, choice("flow", "Flow", Object.keys(found.flows).sort(), now), choice("person", "Started by", found.people, now), choice("channel", "Channel", found.channels, now));
  }
  function choice(name, label, options, now) {
    return h("label", { class: "choice" }, h("span", { class: "visually-hidden" }, label),
      h("select", { on: { change: (event) => change(name, event.target.value) } },
        h("option", { value: "" }, `${label}: all`), options.map((one) => h("option", { value: one, selected: now[name] === one }, one))));
  }

  let typing = 0;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => change("q", search.value.trim()), 120); });
  const sentinel = h("div", { class: "sentinel" });
  const watcher = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && onward(), { rootMargin: "600px" });
  watcher.observe(sentinel);
  fill(main, h("section", { class: "page" }, h("h1", { class: "visually-hidden" }, "Sessions"), h("div", { class: "filters" }, search, selects), statuses, list, end, sentinel));
  await load();
  return {
    left: () => watcher.disconnect(),
    moved: () => { search.value = wanted().q; return load(); },
    // Of what is on the screen only what changed is read again; what is new stands on top.
    news: async (told) => {
      const fresh = told.sessions.some((id) => !shown.has(id));
      if (window.scrollY < 400 && (fresh || told.more || told.sessions.length > 20)) return load();
      await Promise.all(told.sessions.filter((id) => shown.has(id)).map(async (id) => {
        const page = await get("sessions", { q: id, limit: 1 });
        if (page.sessions[0]?.sessionId !== id) return;
        const line = row(page.sessions[0]);
        shown.get(id).replaceWith(line);
        shown.set(id, line);
      }));
      return facets();
    },
  };
}

function row(session) {
  const where = session.threadKey ? session.channel : "terminal";
  return h("li", {}, h("a", { class: "session-row", href: `#/s/${encodeURIComponent(session.sessionId)}` },
    pill(session.status),
    h("span", { class: "row-main" }, h("strong", {}, session.flow), " ", h("code", { class: "muted" }, short(session.sessionId)),
      session.parent ? h("span", { class: "badge" }, "fork") : null),
    h("span", { class: "row-waits" }, session.quarantined ?? session.waits),
    h("span", { class: "row-who muted" }, [session.person, where].filter(Boolean).join(" · ")),
    h("span", { class: "row-when muted" }, time(session.updatedAt))));
}

