// What a page of the control room does by itself: the server draws everything, and this asks it to draw again, when something
// changed or where somebody goes within a page. What people write, and what became of it, stays.

const find = (selector) => document.querySelector(selector);
const NO_ANSWER = "The server does not respond. Is it still running?";

// -- drawing

let drawing = null;
let isStale = false;

/** Show what the server draws of this address now; what changes meanwhile is drawn once more after that. */
function draw() {
  isStale = true;
  drawing ??= drawn().finally(() => { drawing = null; });
  return drawing;
}

async function drawn() {
  while (isStale) {
    isStale = false;
    const answer = await fetch(location.href.split("#")[0], { headers: { Accept: "text/html" } }).catch(() => null);
    const text = answer && (await answer.text());
    if (text && !isStale) show(new DOMParser().parseFromString(text, "text/html"));
  }
}

function show(page) {
  localise(page);
  document.title = page.title;
  Idiomorph.morph(document.body, page.body, {
    ignoreActiveValue: true, // somebody is writing there
    callbacks: {
      // What is written in a form stays as long as the question is the same, and so does what became of it.
      beforeNodeMorphed: (old, fresh) => !(old.dataset?.keep && old.dataset.keep === fresh.dataset?.keep),
      // What the reader opened stays open.
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
    },
  });
  const range = find(".slider input");
  if (new URLSearchParams(location.search).has("at")) find(".is-whole .is-here")?.scrollIntoView({ block: "nearest" });
  else if (range) range.value = range.max;
  begin();
}

/** Go to an address of this page. */
function go(address, { replace = false } = {}) {
  const next = new URL(address, location.href);
  if (next.href === location.href) return undefined;
  history[replace ? "replaceState" : "pushState"](null, "", next);
  return draw();
}

/** Fields that say the same otherwise: one takes the place of the others. */
const RIVALS = { within: ["since", "until"], since: ["within"], until: ["within"] };

/** Go where a field says: a filter, a search, the slider, another run of a step. */
function choose(field) {
  const query = new URLSearchParams(location.search);
  const isLast = field.type === "range" && field.value === field.max;
  for (const gone of ["before", "limit", field.name, ...(RIVALS[field.name] ?? [])]) query.delete(gone);
  if (field.value && !isLast) query.set(field.name, field.value);
  return go(`${location.pathname}${query.size ? `?${query}` : ""}`, { replace: true });
}

let typing = 0;
document.addEventListener("input", ({ target }) => {
  if (!("go" in target.dataset)) return;
  const { name, type, value, max } = target; // news may draw the field anew before it is followed
  if (type !== "search") {
    requestAnimationFrame(() => choose({ name, type, value, max }));
    return;
  }
  clearTimeout(typing);
  typing = setTimeout(() => choose({ name, type, value, max }), 120);
});

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const next = new URL(anchor.getAttribute("href"), location.href);
  if (next.origin !== location.origin || next.pathname !== location.pathname || next.hash || anchor.dataset.more === "there") return;
  event.preventDefault();
  if (next.href === location.href) location.reload();
  else go(next, { replace: "replace" in anchor.dataset });
});

window.addEventListener("popstate", draw);

// -- times, as the reader's own clock has them

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

function localise(root) {
  for (const time of root.querySelectorAll("time")) {
    const when = new Date(time.dateTime);
    if (Number.isNaN(when.valueOf())) continue;
    time.title = FULL.format(when);
    const isToday = when.toDateString() === new Date().toDateString();
    if (time.dataset.form === "clock" || (time.dataset.form === "moment" && isToday)) time.textContent = CLOCK.format(when);
    else if (time.dataset.form === "moment") time.textContent = `${DAY.format(when)}, ${CLOCK.format(when)}`;
  }
}

/** A duration in two units at most, as the server writes it. */
function elapsed(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, unit, smaller, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
    const rest = Math.floor((whole % size) / smaller);
    if (whole >= size) return rest ? `${Math.floor(whole / size)}${unit} ${rest}${name}` : `${Math.floor(whole / size)}${unit}`;
  }
  return `${whole}s`;
}

let ahead = 0;

/** Let durations and ages go on, by the server's clock. */
function tick() {
  const now = Date.now() - ahead;
  for (const one of document.querySelectorAll("[data-since]")) one.textContent = elapsed((now - new Date(one.dataset.since)) / 1000);
  for (const one of document.querySelectorAll("time[data-form=full]")) {
    const when = new Date(one.dateTime);
    if (!Number.isNaN(when.valueOf())) one.textContent = `${elapsed((now - when) / 1000)} ago`;
  }
}
setInterval(tick, 1000);

// -- changes

async function post(path, body) {
  const sent = { method: "POST", headers: { "Content-Type": "application/json", "X-Sayso": "1" }, body: JSON.stringify(body) };
  const answer = await fetch(`/api/${path}`, sent).catch(() => null);
  const told = await answer?.json().catch(() => null);
  return told && answer.ok ? told : { error: "unreachable", message: NO_ANSWER, ...told };
}

function valueOf(field) {
  if (field.type === "checkbox") return field.checked;
  return field.multiple ? [...field.selectedOptions].map((one) => one.value) : field.value;
}

/** What a form says: what it always says, the button that was pressed, and its fields. */
function saidBy(form, button) {
  const body = JSON.parse(form.dataset.body ?? "{}");
  for (const field of form.elements) {
    if (field.dataset.field && valueOf(field) !== "") body.values = { ...body.values, [field.dataset.field]: valueOf(field) };
    else if (field.tagName === "INPUT" && field.name && field.value) body[field.name] = field.type === "password" ? field.value.trim() : field.value;
  }
  if (button?.dataset.value) {
    body[button.name] = JSON.parse(button.dataset.value);
    delete body.text;
  }
  return body;
}

/** Whether a press counts: where it cannot be taken back, it is asked for twice. */
function isMeant(button) {
  if (!button?.dataset.ask || button.dataset.sure) return true;
  const label = button.textContent;
  button.dataset.sure = "1";
  button.textContent = button.dataset.ask;
  setTimeout(() => { delete button.dataset.sure; button.textContent = label; }, 4000);
  return false;
}

/** What became of a request that nobody has carried out yet. */
const queued = (told) => told.there ? "queued: the bot carries it out when it gets to it" : "queued: no bot runs now, and it is carried out when one does";

/** Send what a form says; what became of it is said beside it. */
async function send(form, button) {
  if (!isMeant(button)) return undefined;
  const note = form.querySelector(".note") ?? form.parentElement.querySelector(".note");
  const say = (words, kind = "") => {
    note?.replaceChildren(Object.assign(document.createElement("span"), { className: kind, textContent: words }));
    find("#announcer").textContent = words;
  };
  say("…");
  const told = await post(form.dataset.to, saidBy(form, button));
  if (told.error) return say(told.message, "problem");
  if (form.dataset.then) return location.reload();
  if (told.session) return location.assign(`/sessions/${told.session}`);
  return say(told.outcome === "queued" ? `It is ${queued(told)}.` : "Done.");
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const { target: form, submitter } = event;
  if (form.dataset.go) go(`${form.dataset.go}?${new URLSearchParams(new FormData(form))}`);
  else if (submitter) send(form, submitter); // Enter in a field presses no button that decides
});

// -- several runs at once

const SAID = { pause: { reason: "from the control room" }, resume: { text: "Go on." }, abort: { reason: "from the control room" } };
const picked = () => [...document.querySelectorAll(".pick:checked")];

/** Say how many are selected, and offer what all of them can take. */
function count() {
  const runs = picked();
  const bar = find(".picked");
  if (!bar) return;
  bar.hidden = !runs.length;
  bar.querySelector(".picked-words").textContent = `${runs.length} selected`;
  const compare = bar.querySelector("[data-compare]");
  compare.hidden = runs.length !== 2;
  if (!compare.hidden) compare.href = `/compare?${new URLSearchParams({ left: runs[1].value, right: runs[0].value })}`; // the older one first
  const standings = new Set(runs.map((run) => run.dataset.standing));
  const areOver = ["failed", "rejected", "complete", "aborted"].some((one) => standings.has(one));
  const are = (one) => standings.size === 1 && standings.has(one);
  const offered = { retry: are("failed"), pause: !areOver && !standings.has("paused"), resume: are("paused"), abort: !areOver };
  for (const [what, isOffered] of Object.entries(offered)) bar.querySelector(`[data-all=${what}]`).hidden = !isOffered;
  bar.querySelector(".picked-hint").hidden = Object.values(offered).some(Boolean);
  const all = find("[data-pick-all]");
  if (all) all.checked = runs.length === document.querySelectorAll(".pick").length;
}

document.addEventListener("change", ({ target }) => {
  if ("pickAll" in target.dataset) for (const one of document.querySelectorAll(".pick")) one.checked = target.checked;
  else if (!target.classList.contains("pick")) return;
  count();
});

/** Ask for the same of all that are selected, one after the other, and say what became of each kind; what was refused stays
    selected, with its reason. */
async function askAll(button) {
  if (!isMeant(button)) return;
  const note = button.parentElement.querySelector(".note");
  const { all: what, done } = button.dataset;
  const kinds = new Map();
  for (const run of picked()) {
    const told = await post("act", { session: run.value, do: what, ...SAID[what] });
    const kind = told.error ? "refused" : told.outcome === "queued" ? queued(told) : done;
    const { names = [] } = kinds.get(kind) ?? {};
    const name = run.getAttribute("aria-label").replace("Select ", "");
    kinds.set(kind, { names: [...names, told.error ? `${name}: ${told.message}` : name], isRefused: Boolean(told.error) });
    run.checked = Boolean(told.error);
    note.textContent = [...kinds].map(([said, { names, isRefused }]) => `${names.length} ${said}${isRefused ? ` (${names.join("; ")})` : ""}`).join(". ") + ".";
  }
  find("#announcer").textContent = note.textContent;
}

// -- what is pressed, opened and walked through

document.addEventListener("click", async ({ target }) => {
  if ("copy" in target.dataset) {
    // There is no clipboard on a page without TLS; then the text is selected, for the keyboard.
    const copied = await navigator.clipboard?.writeText(target.previousElementSibling.textContent).then(() => true, () => false);
    if (!copied) getSelection().selectAllChildren(target.previousElementSibling);
    target.textContent = copied ? "copied" : "press Ctrl-C";
    find("#announcer").textContent = copied ? "Copied." : "The text is selected. Press Ctrl-C to copy it.";
  } else if ("play" in target.dataset) play(target);
  else if (target.dataset.all) askAll(target);
  else if (target.dataset.value) send(target.form, target);
});

let playing = 0;
function play(button) {
  const range = find(".slider input");
  clearInterval(playing);
  const goesOn = playing === 0;
  playing = 0;
  button.textContent = goesOn ? "\u23F8\uFE0E" : "\u25B6\uFE0E";
  if (!goesOn) return;
  if (range.value === range.max) range.value = 1;
  const step = Math.max(1, Math.round(range.max / 100));
  let isBusy = false;
  playing = setInterval(async () => {
    if (isBusy) return;
    if (range.value === range.max) return play(button);
    isBusy = true;
    range.value = Math.min(range.max, Number(range.value) + step);
    await choose(range);
    isBusy = false;
  }, 160);
}

// An event in full is read when it is opened.
document.addEventListener("toggle", async ({ target }) => {
  const text = target.querySelector("pre");
  if (!target.open || !target.dataset.from || text.textContent) return;
  const answer = await fetch(target.dataset.from, { headers: { Accept: "application/json" } });
  const told = await answer.json();
  text.textContent = told.text ?? told.message;
}, true);

document.addEventListener("keydown", (event) => {
  const around = event.target.closest("[data-arrows]");
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!around || !step) return;
  event.preventDefault();
  const all = [...around.querySelectorAll("a")].sort((one, two) => (one.dataset.order ?? 0) - (two.dataset.order ?? 0));
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  next.focus();
  if (next.role === "tab") next.click();
});

// -- news

let source = null;

function listen() {
  source = new EventSource("/api/live");
  source.addEventListener("open", () => { tell(true); draw(); });
  source.addEventListener("message", (event) => hear(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    tell(false);
    if (source.readyState !== EventSource.CLOSED) return;
    source = null;
    draw(); // a login ended, or the server did
    setTimeout(begin, 3000);
  });
}

function tell(isOn) {
  find(".dot").classList.toggle("is-off", !isOn);
  find(".live-text").textContent = isOn ? "live" : "not connected";
}

/** Only what this page is about is drawn again, and whoever reads far down a list is left there. */
function hear({ sessions = [], more = false }) {
  const { live } = find("main").dataset;
  const isOfList = live === "all" && find(".sessions");
  if (isOfList && window.scrollY > 400 && !sessions.some((id) => document.getElementById(id))) return;
  if (live === "all" || more || sessions.includes(live)) draw();
}

let again = 0;

/** What a page that was drawn anew wants: news, more rows, or one more look. */
function begin() {
  const main = find("main");
  if (main.dataset.now) ahead = Date.now() - new Date(main.dataset.now);
  if (main.dataset.live && !source) listen();
  if (!main.dataset.live) source = source?.close() ?? null;
  clearTimeout(again);
  if (main.dataset.again) again = setTimeout(draw, Number(main.dataset.again));
  const more = find("[data-more]");
  watcher.disconnect();
  if (more) watcher.observe(more);
  count();
}

const watcher = new IntersectionObserver((seen) => {
  const more = seen.find((one) => one.isIntersecting)?.target;
  if (more?.dataset.more === "here") go(more.href, { replace: true });
}, { rootMargin: "600px" });

/** What the server selected: somebody may have selected something else before this script was there. */
function drawnValue(select) {
  return ([...select.options].find((one) => one.defaultSelected) ?? select.options[0]).value;
}

async function start() {
  localise(document);
  const behind = new URLSearchParams(location.hash.slice(1));
  const [token, problem] = [behind.get("token"), behind.get("problem")];
  if (token || problem) history.replaceState(null, "", location.pathname + location.search); // nobody reads it over a shoulder
  const told = token ? await post("login", { token }) : { error: problem, message: problem };
  if (token && !told.error) return location.replace(location.href); // a reload would keep where the login was scrolled to
  if (told.error && find("[role=alert]")) find("[role=alert]").textContent = told.message;
  // A browser sends the cookie to nobody's first request from another site, but to this one.
  const early = [...document.querySelectorAll("select[data-go]")].find((field) => field.value !== drawnValue(field));
  if (early) choose(early);
  return find("main").dataset.live ? begin() : draw();
}

start();
