// The `rich_text` block: sections, lists, code and quotes made of styled pieces.

import { h, safeLink } from "./dom.js";
import { emoji } from "./emoji.js";
import { channelMention, dateEntity, userMention } from "./mrkdwn.js";

/** The nodes of one rich_text block. */
export function richText(block, people) {
  return (block.elements ?? []).map((element) => part(element, people));
}

function part(element, people) {
  const inside = () => (element.elements ?? []).map((piece) => styled(piece, people));
  if (element.type === "rich_text_preformatted") return h("pre", {}, inside());
  if (element.type === "rich_text_quote") return h("blockquote", {}, inside());
  if (element.type === "rich_text_list") return list(element, people);
  return h("p", { class: "plain" }, inside());
}

function list(element, people) {
  const items = (element.elements ?? []).map((item) => h("li", {}, (item.elements ?? []).map((piece) => styled(piece, people))));
  const indent = { "margin-left": `${Math.min(element.indent ?? 0, 8) * 22}px` };
  return h(element.style === "ordered" ? "ol" : "ul", { style: indent }, items);
}

const STYLES = { bold: "strong", italic: "em", strike: "s", code: "code" };

function styled(piece, people) {
  let node = bare(piece, people);
  for (const [style, tag] of Object.entries(STYLES)) if (piece.style?.[style]) node = h(tag, {}, node);
  return node;
}

function bare(piece, people) {
  switch (piece.type) {
    case "link": return safeLink(piece.url, piece.text || piece.url);
    case "user": return userMention(piece.user_id, "", people);
    case "channel": return channelMention(piece.channel_id, "", people);
    case "usergroup": return h("span", { class: "mention" }, people.groupName(piece.usergroup_id) ?? "@group");
    case "broadcast": return h("span", { class: "mention mention-me" }, `@${piece.range}`);
    case "emoji": return emoji(piece.name) ?? `:${piece.name}:`;
    case "date": return dateEntity([piece.timestamp, piece.format, piece.url], piece.fallback);
    default: return String(piece.text ?? "");
  }
}
