// One message as an element: who, when, what, its reactions, its thread, and what one can do with it.

import { avatar, h, icon, iconButton, localImage } from "./dom.js";
import { renderBlocks } from "./blocks.js";
import { emoji, REACTIONS } from "./emoji.js";
import { mrkdwn, plain } from "./mrkdwn.js";
import { openMenu } from "./popup.js";
import { ago, clock, dateOf, fullTime, shortClock } from "./time.js";

/**
 * `place` is what the feed knows: {people, surface, actions, follows, inThread, editing, unseen}. `follows` is true
 * when the message continues the one above it; `actions` are the handlers (thread, react, edit, ...).
 */
export function renderMessage(message, place) {
  const author = authorOf(message, place.people);
  const kind = ["message", place.follows && "follows", message.is_ephemeral && "ephemeral", message.subtype === "tombstone" && "tombstone"];
  const label = `${author.real_name || author.name}, ${clock(message.ts)}`;
  return h("article", {
    class: kind.filter(Boolean).join(" "), tabindex: "-1", "aria-label": label,
    dataset: { testid: "message", ts: message.ts, user: message.user, ephemeral: message.is_ephemeral ? "true" : null },
  },
    h("div", { class: "message-side" }, place.follows ? time(message, "side-time", shortClock) : avatar(author)),
    h("div", { class: "message-main" },
      message.is_ephemeral ? h("p", { class: "only-you" }, icon("eye", 14), "Only visible to you") : null,
      place.follows ? null : head(message, author),
      place.editing ? editor(message, place) : body(message, place),
      reactions(message, place),
      place.inThread ? null : threadLink(message, place),
    ),
    place.editing || message.subtype === "tombstone" ? null : toolbar(message, place),
  );
}

export function authorOf(message, people) {
  if (message.subtype === "tombstone") return { name: "", real_name: "Deleted message", initials: "–" };
  return people.user(message.user) ?? { name: message.username ?? message.user ?? "unknown", is_bot: Boolean(message.bot_id) };
}

function head(message, author) {
  return h("p", { class: "message-head" },
    h("span", { class: "author" }, author.real_name || author.name),
    author.is_bot ? h("span", { class: "badge" }, "App") : null,
    time(message, "message-time"),
  );
}

function time(message, className, show = clock) {
  return h("time", { class: className, datetime: dateOf(message.ts).toISOString(), title: fullTime(message.ts) }, show(message.ts));
}

function body(message, place) {
  const { people, surface } = place;
  const edited = message.edited ? h("span", { class: "edited", title: fullTime(message.edited.ts) }, "(edited)") : null;
  const content = message.blocks?.length
    ? h("div", { class: "blocks" }, renderBlocks(message.blocks, surface))
    : prose(mrkdwn(message.text, people), Boolean(edited));
  const others = [...(message.attachments ?? []).map((item) => attachment(item, surface)), ...(message.files ?? []).map(file)];
  return h("div", { class: "message-body" }, content, edited, others);
}

/** Text of a message; with `runsOn` the mark "(edited)" stands on its last line. */
function prose(nodes, runsOn) {
  const isLine = nodes.at(-1)?.localName === "p";
  return h("div", { class: runsOn && isLine ? "prose runs-on" : "prose" }, nodes);
}

function attachment(item, surface) {
  const content = item.blocks ? renderBlocks(item.blocks, surface) : mrkdwn([item.pretext, item.title, item.text].filter(Boolean).join("\n") || item.fallback, surface.people);
  const tone = /^#?[0-9a-f]{6}$/i.test(item.color ?? "") ? `#${item.color.replace("#", "")}` : null;
  return h("div", { class: "attachment prose", style: tone ? { "--tone": tone } : null }, content);
}

function file(item) {
  const name = item.title || item.name || "file";
  const address = item.url_private_download || item.url_private || "";
  const local = address.startsWith("/") || address.startsWith(location.origin);
  const image = local && /^image\/(png|jpeg|gif|webp)$/.test(item.mimetype ?? "") ? localImage(address, item.alt_txt || name) : null;
  const shown = [icon("file"), h("span", { class: "file-name" }, name), item.size ? h("span", { class: "file-size" }, sizeOf(item.size)) : null];
  const chip = local ? h("a", { class: "file", href: address, download: name, target: "_blank", rel: "noopener" }, shown) : h("span", { class: "file" }, shown);
  return image ? h("div", { class: "file-image" }, image, chip) : chip;
}

function sizeOf(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1_048_576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1_048_576).toFixed(1)} MB`;
}

function reactions(message, place) {
  const given = message.reactions ?? [];
  if (!given.length) return null;
  const chips = given.map((reaction) => {
    const mine = reaction.users.includes(place.people.me());
    const who = reaction.users.map((id) => place.people.userName(id) ?? id).join(", ");
    const count = reaction.count ?? reaction.users.length;
    return h("button", {
      type: "button", class: "reaction", "aria-pressed": String(mine), title: `${who} reacted with :${reaction.name}:`,
      "aria-label": `${reaction.name}, ${count}`, dataset: { testid: "reaction", name: reaction.name },
      on: { click: () => place.actions.react(message, reaction.name) },
    }, h("span", {}, emoji(reaction.name) ?? `:${reaction.name}:`), h("span", { class: "reaction-count" }, String(count)));
  });
  const more = h("button", { type: "button", class: "reaction reaction-add", "aria-label": "Add a reaction", on: { click: () => reactionMenu(more, message, place) } }, icon("smile", 16));
  return h("div", { class: "reactions" }, chips, more);
}

function threadLink(message, place) {
  const count = message.reply_count ?? 0;
  if (!count || message.is_ephemeral) return null;
  const faces = (message.reply_users ?? []).slice(0, 4).map((id) => avatar(place.people.user(id), 22));
  return h("button", {
    type: "button", class: place.unseen ? "thread-link is-unseen" : "thread-link", dataset: { testid: "open-thread" },
    on: { click: () => place.actions.thread(message) },
  },
    h("span", { class: "faces" }, faces),
    h("span", { class: "thread-count" }, count === 1 ? "1 reply" : `${count} replies`),
    h("span", { class: "thread-last" }, message.latest_reply ? `Last reply ${ago(dateOf(message.latest_reply))}` : null),
    place.unseen ? h("span", { class: "visually-hidden" }, "new replies") : null,
  );
}

function toolbar(message, place) {
  const { actions, people, inThread } = place;
  const react = iconButton("smile", "Add a reaction", () => reactionMenu(react, message, place), { dataset: { testid: "add-reaction" } });
  const reply = iconButton("reply", "Reply in thread", () => actions.thread(message), { dataset: { testid: "reply-in-thread" } });
  const more = iconButton("more", "More actions", () => moreMenu(more, message, place), { "aria-haspopup": "listbox", dataset: { testid: "more-actions" } });
  const quick = message.is_ephemeral ? [] : [react, inThread ? null : reply];
  const hasMore = message.is_ephemeral ? [] : [more];
  return h("div", { class: "toolbar", role: "group", "aria-label": `Actions for this message of ${people.userName(message.user) ?? "an app"}` }, quick, hasMore);
}

function reactionMenu(anchor, message, place) {
  const options = REACTIONS.map((name) => ({ id: name, label: `:${name}:`, leading: h("span", { class: "menu-emoji" }, emoji(name)), testid: `react-${name}` }));
  openMenu(anchor, { label: "Reactions", placeholder: "Find a reaction…", options, align: "end", onPick: (option) => place.actions.react(message, option.id) });
}

function moreMenu(anchor, message, place) {
  const { actions, people, inThread } = place;
  const mine = message.user === people.me();
  const row = (id, label, glyph, rest = {}) => ({ id, label, leading: icon(glyph), testid: `menu-${id}`, ...rest });
  const options = [
    inThread ? null : row("thread", "Reply in thread", "reply"),
    row("reaction", "Add a reaction", "smile"),
    row("link", "Copy link", "link"),
    row("text", "Copy text", "file"),
    mine ? row("edit", "Edit message", "edit") : null,
    mine ? row("remove", "Delete message", "trash", { danger: true }) : null,
    ...(place.shortcuts ?? []).map((shortcut) => row(`shortcut:${shortcut.callback_id}`, shortcut.name, "external", { shortcut })),
  ].filter(Boolean);
  const onPick = (option) => {
    if (option.id === "reaction") reactionMenu(anchor, message, place);
    else if (option.shortcut) actions.shortcut(message, option.shortcut);
    else actions[option.id](message);
  };
  openMenu(anchor, { label: "Message actions", options, align: "end", onPick });
}

function editor(message, place) {
  const { actions, people } = place;
  const field = h("textarea", { class: "field", rows: "3", value: plain(message.text, people), "aria-label": "Edit message", dataset: { testid: "edit-field" } });
  const save = () => actions.save(message, field.value);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") actions.cancelEdit();
    else if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    else save();
    event.preventDefault();
    event.stopPropagation();
  });
  queueMicrotask(() => {
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  });
  return h("div", { class: "edit-box" }, field, h("div", { class: "edit-buttons" },
    h("button", { type: "button", class: "button", on: { click: () => actions.cancelEdit() } }, "Cancel"),
    h("button", { type: "button", class: "button button-primary", dataset: { testid: "edit-save" }, on: { click: save } }, "Save"),
  ));
}
