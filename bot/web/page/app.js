// The frame: where the reader is, who they are, and what changed. Each view is a function of the place in the address
// that fills `main` and gives back what to do on news; the server is the truth.

import { get, listen, post, Refused } from "./api.js";
import { compareView } from "./compare.js";
import { fill, h } from "./dom.js";
import { queuesView, spendView, waitingView } from "./overview.js";
import { say } from "./parts.js";
import { sessionView } from "./session.js";
import { sessionsView } from "./sessions.js";

const find = (id) => document.getElementById(id);
const VIEWS = { sessions: ["Sessions", sessionsView], waiting: ["Waiting", waitingView], spend: ["Spend", spendView], queues: ["Queues", queuesView], compare: ["Compare", compareView] };

const LOGIN_ENDED = "Your login has ended: it was too old, or the control room was started again.";

/** A part of an address; as it is where it is mangled. */
function decoded(text) {
  try {
    return text && decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** {view, id, query} of the address: `#/s/session-1?at=4` is a session, `#/waiting` a view. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, id] = path.split("/");
  return { view: view === "s" ? "session" : view in VIEWS ? view : "sessions", id: decoded(id), query: new URLSearchParams(query) };
}

class App {
  constructor() {
    this.me = null;
    this.current = null; // what the view on the screen does with news: {key, news(), left()}
    window.addEventListener("hashchange", () => this.#arrive());
  }

  async begin() {
    const token = /^#token=(.+)$/.exec(location.hash)?.[1];
    if (token) {
      history.replaceState(null, "", location.pathname); // nobody reads it over a shoulder, or from the history
      try {
        await post("login", { token });
      } catch (refusal) {
        return this.#logIn(refusal.message);
      }
    }
    try {
      this.me = await get("me");
    } catch (error) {
      return this.#failed(error);
    }
    const problem = /^#problem=(.+)$/.exec(location.hash)?.[1];
    if (!this.me.name) return this.#logIn(this.me.problem ?? decoded(problem));
    this.#drawBar();
    this.#listen();
    return this.#arrive();
  }

  #listen() {
    listen((told) => this.#hear(told), (on, gone) => this.#connected(on, gone));
  }

  #drawBar() {
    const out = h("button", { type: "button", class: "quiet", on: { click: async () => { await post("logout"); location.reload(); } } }, "log out");
    fill(find("who"), h("span", { class: "badge" }, this.me.write ? "changes on" : "read-only"), h("span", { class: "who-name" }, this.me.name), out);
    document.title = `Control room · ${this.me.home}`;
  }

  /** Whoever is connected again has missed news; where no connection is tried any more, a login ended or the server did. */
  async #connected(on, gone) {
    fill(find("live"), h("span", { class: on ? "dot" : "dot is-off", "aria-hidden": "true" }), h("span", { class: "live-text" }, on ? "live" : "not connected"));
    if (on && this.wasOff) this.#hear({ sessions: [], more: true });
    this.wasOff = !on;
    if (!gone) return;
    this.me = await get("me").catch(() => this.me);
    if (this.me.name) setTimeout(() => this.#listen(), 3000);
    else this.#logIn(LOGIN_ENDED);
  }

  #logIn(problem) {
    const field = h("input", { type: "password", name: "token", autocomplete: "off", required: true, "aria-label": "Token" });
    const note = h("p", { class: "problem", role: "alert" }, problem ?? "");
    const form = h("form", { class: "stack", on: { submit: async (event) => {
      event.preventDefault();
      try {
        await post("login", { token: field.value.trim() });
        location.reload();
      } catch (refusal) {
        note.textContent = refusal.message;
      }
    } } }, field, h("button", { type: "submit", class: "primary" }, "Log in"));
    this.current?.left?.();
    this.current = null;
    fill(find("nav"));
    fill(find("who"));
    fill(find("main"), h("section", { class: "card login" }, h("h1", {}, "Log in"),
      this.me?.oidc ? h("p", {}, h("a", { class: "button primary", href: "/api/oidc" }, "Log in with your organisation")) : null,
      this.me?.token === false ? null : [h("p", {}, "The address that ", h("code", {}, "sayso web"), " printed has the token behind ", h("code", {}, "#token="), "."), form], note));
  }

  async #arrive() {
    if (!this.me?.name) return;
    const at = place();
    const key = at.view === "session" ? `s/${at.id}` : at.view;
    fill(find("nav"), Object.entries(VIEWS).map(([name, [title]]) => h("a", { href: `#/${name}`, "aria-current": at.view === name ? "page" : null }, title)));
    if (this.current?.key === key && this.current.moved) return this.current.moved(at.query);
    this.current?.left?.();
    const view = at.view === "session" ? sessionView : VIEWS[at.view][1];
    const main = find("main");
    this.current = { key };
    const mine = this.current;
    try {
      Object.assign(mine, await view({ main, me: this.me, ...at, isHere: () => this.current === mine }));
    } catch (error) {
      if (this.current === mine) this.#failed(error);
    }
    window.scrollTo(0, 0);
    return undefined;
  }

  #failed(error) {
    if (error instanceof Refused && error.status === 401) return this.#logIn(LOGIN_ENDED);
    if (!(error instanceof Refused)) console.error(error);
    const again = h("button", { type: "button", class: "button", on: { click: () => location.reload() } }, "Try again");
    fill(find("main"), h("div", { class: "page" }, h("section", { class: "card stack" }, h("h1", {}, "This cannot be shown"), h("p", { role: "alert" }, error.message), h("p", { class: "controls" }, again, h("a", { href: "#/" }, "All sessions")))));
    return say(error.message);
  }

  async #hear(told) {
    try {
      await this.current?.news?.(told);
    } catch (error) {
      this.#failed(error);
    }
  }
}

new App().begin();
