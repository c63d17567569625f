// The page: it shows what the server knows for the person whom we act as, and sends what they do.
//
// The server is the truth. The page reads a conversation once, then applies the server's pushes by `ts`;
// after a lost connection it reads again. Where the reader is stands in the address (router.js).

import { get, Live, post } from "./api.js";
import { toast } from "./dialogs.js";
import { Directory } from "./directory.js";
import { avatar, fill, h, icon, iconButton, isNarrow } from "./dom.js";
import { HomeTab } from "./home.js";
import { LimitsPanel } from "./limits.js";
import { authorOf } from "./message.js";
import { Modals } from "./modal.js";
import { plain } from "./mrkdwn.js";
import { Pane, Surfaces } from "./pane.js";
import { closePopup } from "./popup.js";
import { drawUnpressed } from "./press.js";
import { readRoute, writeRoute } from "./router.js";
import { actAsButton, drawActAs, drawSidebar, drawStatus, openSwitcher, sidebarKeys } from "./sidebar.js";
import { Starters } from "./starters.js";

const find = (id) => document.getElementById(id);

class App {
  constructor() {
    this.people = new Directory();
    this.route = { channel: null, thread: null, as: null };
    this.seen = new Map(); // thread -> its newest reply that this person has had on the screen
    this.wanted = this.route; // where the reader last asked to be; `route` follows once that is known to exist
    this.awaited = null; // `ts` of a suggestion that was posted: the first answer opens its thread
    this.held = null; // pushes that arrive while something is being read: its answer may be older than they are
    this.reading = 0;
    this.limits = new LimitsPanel(this.people);
    this.drawList = () => drawSidebar(find("sidebar"), this.people, this.route.channel, this.limits.element);
    this.surfaces = new Surfaces(this.people, (path, body) => this.send(path, body));
    this.modals = new Modals({ people: this.people, send: (path, body) => this.send(path, body) });
    this.home = new HomeTab({ element: find("home"), people: this.people, send: (path, body) => this.send(path, body), onTab: () => this.#drawHead() });
    this.channelPane = new Pane({
      host: this, feedElement: find("feed"), footElement: find("composer"), testid: "composer", inThread: false,
      onSend: (text, files) => this.#say(text, files, null), intro: (messages) => this.#intro(messages), isUnseen: (message) => this.#isUnseen(message),
    });
    this.threadPane = new Pane({
      host: this, feedElement: find("thread-feed"), footElement: find("thread-composer"), testid: "thread-composer", inThread: true,
      onSend: (text, files) => this.#say(text, files, this.route.thread),
    });
    this.starters = new Starters({ people: this.people, onPick: (suggestion) => this.#start(suggestion) });
    find("composer").prepend(this.starters.element);
    this.channelPane.composer.addTool(this.starters.again);
    this.actAs = actAsButton(this.people, (id) => this.go({ as: id }));
    find("act-as-slot").append(this.actAs);
    this.#listen();
  }

  #listen() {
    const jumpTo = find("jump-to");
    const apple = /Mac|iPhone|iPad/.test(navigator.platform);
    fill(jumpTo, icon("search", 16), h("span", { class: "jump-text" }, "Jump to…"), h("kbd", {}, apple ? "⌘ K" : "Ctrl K"));
    jumpTo.setAttribute("aria-label", "Jump to a channel or act as a person");
    jumpTo.addEventListener("click", () => this.#switcher());
    find("sidebar").addEventListener("keydown", sidebarKeys);
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.channelPane.composer.field.focus();
    });
    document.querySelector(".brand").addEventListener("click", (event) => {
      event.preventDefault();
      if (isNarrow()) this.go({ channel: null, thread: null });
    });
    document.addEventListener("keydown", (event) => this.#key(event));
    window.addEventListener("popstate", () => this.#arrive(readRoute()));
    window.addEventListener("hashchange", () => this.#arrive(readRoute()));
    window.matchMedia("(max-width: 700px)").addEventListener("change", () => this.#arrive(this.route, true));
  }

  #key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.#switcher();
    } else if (event.key === "Escape" && !event.defaultPrevented && this.route.thread && !document.querySelector("dialog[open]")) {
      this.closeThread();
    }
  }

  #switcher() {
    closePopup();
    openSwitcher(this.people, { onChannel: (id) => this.go({ channel: id, thread: null }), onPerson: (id) => this.go({ as: id }) });
  }

  // -- talking to the server

  /** Do something as the person whom we act as. Throws Refused. */
  send(path, body) {
    return post(path, { as: this.people.me(), ...body });
  }

  async start() {
    const route = readRoute();
    if (await this.#become(route.as)) await this.#arrive(route, true);
  }

  /** Read everything as this person and listen to the pushes for them. False when that failed. */
  async #become(as) {
    try {
      this.people.load(await get("state", as ? { as } : {}));
    } catch (problem) {
      if (as && problem.code === "user_not_found") return this.#become(null);
      toast(problem.message);
      this.#lost(true);
      return false;
    }
    this.live?.close();
    if (this.held) this.held = []; // what was told to the person before
    this.live = new Live({
      as: this.people.me(),
      onOpen: () => this.#opened(),
      onLost: () => this.#lost(true),
      onPush: (push) => {
        if (this.held) this.held.push(push);
        else this.#apply(push);
      },
    });
    this.surfaces.clear();
    this.modals.reset([]);
    this.home.load(null);
    return true;
  }

  /** The socket stands: what was pushed before it did is read now. */
  async #opened() {
    this.#lost(false);
    await this.#refreshState();
    if (this.route.channel) await this.#read({ fresh: false });
  }

  /** Read what stands around the conversations. */
  async #refreshState() {
    const as = this.people.me();
    this.#hold();
    try {
      const [state, { views }, { view }] = await Promise.all([get("state", { as }), get("views", { as }), get("home", { as })]);
      if (as !== this.people.me()) return;
      this.people.load(state);
      this.modals.reset(views);
      this.home.load(view);
      this.#frame();
    } catch (problem) {
      toast(problem.message);
    } finally {
      this.#release();
    }
  }

  #lost(isLost) {
    this.isLost = isLost;
    drawStatus(find("status"), find("offline"), this.people, isLost);
    const note = find("lost");
    note.hidden = !isLost;
    note.textContent = isLost ? "The connection to the local workspace is lost. Trying again…" : "";
  }

  // -- where the reader is

  /** Go somewhere: what is not named stays. */
  go(change, options) {
    const next = { ...this.route, as: this.people.me(), ...change };
    writeRoute(next, options);
    return this.#arrive(next);
  }

  openThread(ts) {
    return this.go({ thread: ts });
  }

  closeThread() {
    const opener = document.querySelector(`#feed article[data-ts="${CSS.escape(this.route.thread)}"]`);
    this.go({ thread: null });
    (opener?.querySelector(".thread-link") ?? this.channelPane.composer.field).focus({ preventScroll: true });
  }

  linkTo(ts) {
    return location.href.split("#")[0] + this.people.href({ channel: this.route.channel, thread: ts });
  }

  async #arrive(route, force = false) {
    const target = { ...route, as: route.as ?? this.people.me() };
    if (!force && samePlace(this.wanted, target)) return;
    this.wanted = target;
    this.awaited = null;
    if (target.as !== this.people.me() && !(await this.#become(target.as))) return;
    if (this.wanted !== target) return;
    const before = this.route;
    target.as = this.people.me();
    if (!this.people.channels.has(target.channel)) Object.assign(target, { channel: this.#firstChannel(), thread: null });
    this.route = target;
    writeRoute(target, { replace: true });
    if (before.thread !== target.thread) this.threadPane.feed.show([]); // another thread's messages never stand here
    this.#frame();
    const moved = force || before.channel !== target.channel || before.as !== target.as;
    if (moved) this.home.leave();
    if (moved && target.channel && this.#isWithApp(target.channel)) this.send("home", { tab: "messages" }).catch((problem) => toast(problem.message));
    if (target.channel) await this.#read({ fresh: moved, freshThread: moved || before.thread !== target.thread });
    if (target.thread && before.thread !== target.thread) this.threadPane.composer.focus();
    else if (moved) this.channelPane.composer.focus();
  }

  #isWithApp(id) {
    const channel = this.people.channels.get(id);
    return channel.is_im && this.people.counterpart(channel).is_bot;
  }

  #firstChannel() {
    return isNarrow() ? null : (this.people.state.channels[0]?.id ?? null);
  }

  /** Read the open conversation and its open thread. */
  async #read({ fresh, freshThread = fresh }) {
    const { channel, thread, as } = this.route;
    this.#hold();
    const current = () => this.route.channel === channel && this.route.thread === thread && this.route.as === as;
    try {
      const [root, replies] = await Promise.all([
        get("messages", { as, channel }),
        thread ? get("messages", { as, channel, thread_ts: thread }) : null,
      ]);
      if (!current()) return;
      showIn(this.channelPane, channel, root.messages, fresh);
      if (thread && !replies.messages.length) throw new Error("This thread no longer exists.");
      if (replies) showIn(this.threadPane, channel, replies.messages, freshThread);
      this.#drawThreadHead();
      this.#sawThread(replies?.messages);
      this.#sawChannel(channel);
    } catch (problem) {
      if (!current()) return;
      toast(problem.message);
      if (thread) this.go({ thread: null }, { replace: true });
    } finally {
      this.#release();
    }
  }

  /** From here to `#release` pushes wait, so that none is lost under an older answer. */
  #hold() {
    this.held ??= [];
    this.reading += 1;
  }

  #release() {
    this.reading -= 1;
    if (this.reading > 0) return;
    const waiting = this.held ?? [];
    this.held = null;
    waiting.forEach((push) => this.#apply(push));
  }

  #sawChannel(id) {
    const channel = this.people.channels.get(id);
    if (channel) channel.unread = 0;
    this.#drawSidebar();
  }

  #sawThread(messages) {
    const root = messages?.[0];
    if (root) this.seen.set(`${this.route.as} ${root.ts}`, messages.at(-1).ts);
    if (root) this.channelPane.feed.draw();
  }

  /** A thread with replies that came while this person looked elsewhere on the page. */
  #isUnseen(message) {
    if (!message.reply_count || this.route.thread === message.ts) return false;
    const key = `${this.route.as} ${message.ts}`;
    if (!this.seen.has(key)) this.seen.set(key, message.latest_reply);
    return message.latest_reply > this.seen.get(key);
  }

  // -- what the server tells

  #apply(push) {
    const handler = PUSHES[push.type];
    if (handler) handler(this, push);
  }

  message(push) {
    const { channel, message } = push;
    const isReply = message.thread_ts && message.thread_ts !== message.ts;
    const here = channel === this.route.channel;
    if (here) this.#place(message, isReply);
    if (here && isReply && message.thread_ts === this.awaited) return this.openThread(this.awaited);
    if (!["message", "ephemeral"].includes(push.type) || message.user === this.people.me()) return;
    if (!here) return this.#markUnread(channel, message.ts);
    if (!isReply) this.send("read", { channel }).catch(() => {}); // only the mark for next time; nothing to tell
    if (!isReply || message.thread_ts === this.route.thread) this.#announce(message);
  }

  #place(message, isReply) {
    const inThread = this.route.thread && (message.thread_ts ?? message.ts) === this.route.thread;
    if (inThread) {
      this.threadPane.feed.upsert(message);
      if (message.ts === this.route.thread) this.#drawThreadHead();
      this.#sawThread([{ ts: this.route.thread }, ...this.threadPane.feed.messages.values()]);
    }
    if (!isReply || message.subtype === "thread_broadcast") this.channelPane.feed.upsert(message);
    else if (message.is_ephemeral && !inThread) this.#noteReply(message);
  }

  /** An answer that only this person sees arrived in a thread that is not open. */
  #noteReply(message) {
    toast(`${authorOf(message, this.people).name} wrote to you in a thread: ${plain(message.text, this.people).slice(0, 140)}`, { error: false });
  }

  removed({ channel, ts }) {
    if (channel !== this.route.channel) return;
    this.channelPane.feed.remove(ts);
    this.threadPane.feed.remove(ts);
    if (ts === this.route.thread) this.go({ thread: null }, { replace: true });
  }

  #markUnread(id, ts) {
    const channel = this.people.channels.get(id);
    if (!channel) return void this.#refreshState();
    if (ts <= channel.latest) return; // was counted when the state was read
    channel.unread = (Number(channel.unread) || 0) + 1;
    this.#drawSidebar();
  }

  #announce(message) {
    const author = authorOf(message, this.people);
    find("announcer").textContent = `${author.real_name || author.name}: ${plain(message.text, this.people).slice(0, 300)}`;
  }

  sockets(push) {
    this.people.state.connected_sockets = push.connected_sockets ?? push.n ?? 0;
    drawStatus(find("status"), find("offline"), this.people, this.isLost);
  }

  channelsChanged() {
    this.#refreshState();
  }

  // -- what the person does

  /** Send what was written; true (of a message: its `ts`) when the server took it. */
  async #say(text, files, thread) {
    const { channel } = this.route;
    try {
      if (text.startsWith("/")) return await this.#command(text, thread);
      const { ts } = await this.send("post", { channel, thread_ts: thread ?? undefined, text, files });
      (thread ? this.threadPane : this.channelPane).feed.toEnd();
      return ts;
    } catch (problem) {
      toast(problem.message);
      return false;
    }
  }

  /** Say what was suggested. What the app answers in a thread is shown at once, unless one has gone elsewhere. */
  async #start({ text }) {
    const place = this.wanted;
    const ts = await this.#say(text, [], null);
    if (typeof ts !== "string" || place !== this.wanted) return;
    if (this.channelPane.feed.messages.get(ts)?.reply_count) this.openThread(ts);
    else this.awaited = ts;
  }

  async #command(text, thread) {
    const { bot } = this.people.state;
    const [, command, rest] = /^(\S+)\s*([^]*)$/.exec(text);
    if (!(bot.commands ?? []).includes(command)) return toast(`${command} is not a command here. There is: ${(bot.commands ?? []).join(", ")}`), false;
    if (thread) return toast(`Slash commands do not work in threads. Mention @${bot.name} instead.`), false;
    await this.send("slash", { channel: this.route.channel, command, text: rest });
    return true;
  }

  // -- what stands around the messages

  #frame() {
    const { channel, thread } = this.route;
    document.body.dataset.pane = thread ? "thread" : channel ? "channel" : "list";
    find("thread").hidden = !thread;
    find("team").textContent = this.people.state.team.name ?? "Local workspace";
    find("notice").textContent = this.people.state.not_slack || find("notice").textContent;
    drawActAs(this.actAs, this.people);
    drawStatus(find("status"), find("offline"), this.people, this.isLost);
    this.limits.watch();
    this.#drawSidebar();
    this.#drawHead();
    this.#drawComposers();
  }

  #drawSidebar() {
    drawUnpressed(this.drawList);
    const unread = this.people.state.channels.some((channel) => channel.unread && channel.id !== this.route.channel);
    const name = this.#channelTitle();
    document.title = `${unread ? "• " : ""}${name ? `${name} | ` : ""}${this.people.state.team.name ?? "Local workspace"}`;
  }

  #channelTitle() {
    const channel = this.people.channels.get(this.route.channel);
    if (!channel) return "";
    return channel.is_im ? this.people.title(channel) : `#${channel.name}`;
  }

  #drawHead() {
    const channel = this.people.channels.get(this.route.channel);
    if (!channel) return fill(find("channel-head"));
    const other = channel.is_im ? this.people.counterpart(channel) : null;
    const back = iconButton("back", "All conversations", () => this.go({ channel: null, thread: null }), { class: "icon-button back", dataset: { testid: "back" } });
    const members = (channel.members ?? []).map((id) => this.people.user(id)).filter(Boolean);
    const faces = h("span", { class: "faces members", title: members.map((user) => user.real_name || user.name).join(", ") }, members.slice(0, 5).map((user) => avatar(user, 26)), h("span", { class: "member-count" }, String(members.length)));
    fill(find("channel-head"), back,
      h("h1", {}, other ? avatar(other, 24) : icon(channel.is_private ? "lock" : "hash"), h("span", {}, this.people.title(channel))),
      h("p", { class: "topic" }, channel.topic),
      this.home.tabs(channel),
      other ? null : faces,
    );
    find("feed").hidden = find("composer").hidden = this.home.isOpen;
    this.#drawThreadHead();
  }

  #drawThreadHead() {
    const close = () => this.closeThread();
    fill(find("thread-head"),
      iconButton("back", "Back to the channel", close, { class: "icon-button back", dataset: { testid: "thread-back" } }),
      h("h2", {}, "Thread"), h("p", { class: "topic" }, this.#channelTitle()), this.#session(),
      iconButton("close", "Close thread", close, { class: "icon-button close", dataset: { testid: "close-thread" } }),
    );
  }

  /** How an agent's session stands, with the button that stops it while it works. */
  #session() {
    const { channel, thread } = this.route;
    const status = this.threadPane.feed.messages.get(thread)?.agent_session?.status;
    const words = { processing: "Working…", suspended: "Needs your input" }[status];
    if (!words) return null;
    const stop = () => this.send("stop", { channel, thread_ts: thread }).catch((problem) => toast(problem.message));
    const button = h("button", { type: "button", class: "button", dataset: { testid: "stop-session" }, on: { click: stop } }, "Stop");
    return h("div", { class: "agent-session", role: "status" }, h("span", {}, words), status === "processing" ? button : null);
  }

  #drawComposers() {
    const { channel, thread, as } = this.route;
    if (!channel) return;
    const name = this.people.userName(as);
    this.channelPane.composer.moveTo(`${as} ${channel}`, `Message ${this.#channelTitle()} as ${name}`);
    this.starters.draw(channel);
    if (thread) this.threadPane.composer.moveTo(`${as} ${channel} ${thread}`, `Reply as ${name}`);
  }

  /** What stands at the beginning of a channel. */
  #intro(messages) {
    const channel = this.people.channels.get(this.route.channel);
    if (!channel) return null;
    const { name, commands } = this.people.state.bot;
    const hears = channel.is_im || channel.is_member_bot;
    const make = () => h("div", { class: messages.length ? "intro" : "intro is-alone" },
      h("p", { class: "intro-title" }, channel.is_im ? `This is your conversation with ${this.people.title(channel)}` : `This is the beginning of #${channel.name}`),
      hears
        ? h("p", {}, channel.is_im ? "Write to it below." : ["Mention ", h("span", { class: "mention" }, `@${name}`), " to talk to the app", commands?.length ? [", or write ", h("code", {}, commands[0])] : null, "."])
        : h("p", { class: "intro-warning" }, icon("warning", 16), `${name} is not a member of #${channel.name}: it hears nothing that is said here.`),
    );
    return { mark: JSON.stringify([channel.id, hears, messages.length > 0, name]), make };
  }
}

function samePlace(one, other) {
  return ["channel", "thread", "as"].every((key) => one[key] === other[key]);
}

function showIn(pane, channel, messages, fresh) {
  pane.channel = channel;
  if (fresh) pane.feed.show(messages);
  else pane.feed.refresh(messages);
}

const PUSHES = {
  message: (app, push) => app.message(push),
  message_changed: (app, push) => app.message(push),
  reaction: (app, push) => app.message(push),
  ephemeral: (app, push) => app.message({ ...push, message: { ...push.message, is_ephemeral: true } }),
  message_deleted: (app, push) => app.removed(push),
  view_opened: (app, push) => app.modals.show(push.view),
  view_updated: (app, push) => app.modals.show(push.view),
  view_closed: (app, push) => app.modals.hide(push.view_id ?? push.view?.id),
  home: (app, push) => app.home.load(push.view),
  socket_status: (app, push) => app.sockets(push),
  channels: (app) => app.channelsChanged(),
  toast: (_, push) => toast(push.text, { error: push.error !== false }),
};

new App().start();
