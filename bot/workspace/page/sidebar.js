// What stands around the conversations: channels and direct messages at the side, the bar on top with the
// person whom we act as, and the dialog to jump anywhere (Ctrl+K).

import { avatar, fill, h, icon } from "./dom.js";
import { Listbox, matching } from "./listbox.js";
import { openMenu } from "./popup.js";

/** The list of conversations, and below it `foot`. `current` is the id of the open one. */
export function drawSidebar(element, people, current, foot) {
  const channels = people.state.channels;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.channel : null;
  fill(element,
    startHere(people),
    group("Channels", channels.filter((channel) => !channel.is_im), people, current),
    group("Direct messages", channels.filter((channel) => channel.is_im), people, current),
    foot,
  );
  if (focused) element.querySelector(`[data-channel="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

/** The first step, on a screen that shows nothing but this list. */
function startHere(people) {
  const first = (people.state.suggestions ?? [])[0];
  const channel = people.state.channels.find((one) => one.id === first?.channel);
  if (!channel) return null;
  return h("p", { class: "side-start", dataset: { testid: "start-here" } },
    "Start in ", h("a", { href: people.channelHref(channel.id) }, `#${channel.name}`),
    `: tap a suggestion there, and ${people.state.bot?.name ?? "the app"} answers in a thread.`);
}

function group(title, channels, people, current) {
  if (!channels.length) return null;
  const rows = channels.map((channel) => h("li", {}, channelLink(channel, people, channel.id === current)));
  return h("section", { class: "side-group" }, h("h2", {}, title), h("ul", {}, rows));
}

function channelLink(channel, people, isCurrent) {
  const name = people.title(channel);
  const unread = channel.unread && !isCurrent;
  const other = channel.is_im ? people.counterpart(channel) : null;
  const count = typeof channel.unread === "number" && channel.unread > 0 ? String(channel.unread) : "";
  return h("a", {
    class: unread ? "channel is-unread" : "channel", href: people.channelHref(channel.id), "aria-current": isCurrent ? "page" : null,
    dataset: { testid: `channel-${channel.is_im ? other.name : channel.name}`, channel: channel.id },
  },
    other ? avatar(other, 20) : icon(channel.is_private ? "lock" : "hash", 17),
    h("span", { class: "channel-name" }, name),
    other?.is_bot ? h("span", { class: "badge" }, "App") : null,
    unread ? h("span", { class: "unread" }, h("span", { class: "visually-hidden" }, "unread "), count) : null,
  );
}

/** Up and down move between the links of the list. */
export function sidebarKeys(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const next = links[(links.indexOf(document.activeElement) + step + links.length) % links.length];
  event.preventDefault();
  next?.focus();
}

/** The button with the person whom we act as, and its menu of everybody. */
export function actAsButton(people, onPick) {
  const node = h("button", { type: "button", class: "act-as", "aria-haspopup": "listbox", "aria-expanded": "false", dataset: { testid: "act-as" } });
  node.addEventListener("click", () => {
    const options = people.people().map((user) => ({
      id: user.id, label: user.real_name || user.name, detail: aboutOf(user), leading: avatar(user, 34), testid: `act-as-${user.name}`,
    }));
    openMenu(node, { label: "Act as", title: "Act as", options, selected: [people.me()], align: "end", placeholder: "Find a person…", onPick: (option) => onPick(option.id) });
  });
  return node;
}

/** What a person is here; that somebody is a guest decides what they may do. */
function aboutOf(user) {
  const about = user.title || `@${user.name}`;
  return user.is_restricted ? `${about} · guest` : about;
}

export function drawActAs(node, people) {
  const me = people.user(people.me());
  if (!me) return;
  node.setAttribute("aria-label", `Acting as ${me.real_name}${me.title ? `, ${me.title}` : ""}. Change person`);
  fill(node, avatar(me, 32),
    h("span", { class: "act-as-text" }, h("span", { class: "act-as-name" }, me.real_name || me.name), h("span", { class: "act-as-title" }, me.title || `@${me.name}`)),
    icon("down", 16),
  );
}

/** Whether the app is here to hear what people say; unknown while the page itself is not connected (`isLost`). `strip` says
 * it where the bar on top has no room. */
export function drawStatus(node, strip, people, isLost) {
  const count = isLost ? 0 : people.state?.connected_sockets ?? 0;
  const name = people.state?.bot?.name ?? "The app";
  const words = isLost ? "Not connected" : count ? `${name} is connected` : `${name} is offline`;
  node.className = count ? "status is-on" : "status is-off";
  if (isLost) node.title = "This page has no connection to the local workspace.";
  else node.title = count ? `${count} open ${count === 1 ? "connection" : "connections"} of the app` : "No app is connected. What people write is kept in the channels.";
  if (node.textContent !== words) fill(node, h("span", { class: "status-dot" }), h("span", { class: "status-text" }, words));
  const tells = !count && !isLost;
  strip.className = tells ? "offline is-off" : "offline";
  strip.textContent = tells ? `${words}: messages are kept` : "";
}

/** The dialog that jumps to a channel or acts as a person by name. */
export function openSwitcher(people, { onChannel, onPerson }) {
  if (document.querySelector("dialog[open]")) return;
  const channels = people.state.channels.map((channel) => ({
    id: channel.id, label: channel.is_im ? people.title(channel) : `#${channel.name}`, detail: channel.topic, group: "Go to", keywords: channel.name,
    leading: channel.is_im ? avatar(people.counterpart(channel), 24) : icon(channel.is_private ? "lock" : "hash"), go: () => onChannel(channel.id),
  }));
  const persons = people.people().map((user) => ({
    id: user.id, label: user.real_name || user.name, detail: user.title, group: "Act as", keywords: user.name, leading: avatar(user, 24), go: () => onPerson(user.id),
  }));
  const options = [...channels, ...persons];
  const dialog = h("dialog", { class: "dialog switcher", "aria-label": "Go to a channel or act as a person", dataset: { testid: "switcher" } });
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  const list = new Listbox({ label: "Channels and people", options, onPick: (option) => (close(), option.go()) });
  const field = h("input", { type: "text", class: "switcher-field", placeholder: "Where to, or as whom?", role: "combobox", "aria-expanded": "true", "aria-label": "Channel or person", autocomplete: "off" });
  field.addEventListener("input", () => list.setOptions(matching(options, field.value)));
  field.addEventListener("keydown", (event) => list.key(event));
  list.controlledBy(field);
  dialog.addEventListener("cancel", close);
  dialog.addEventListener("pointerdown", (event) => event.target === dialog && close());
  dialog.append(h("div", { class: "switcher-head" }, icon("search"), field), list.element);
  document.body.append(dialog);
  dialog.showModal();
  field.focus();
}
