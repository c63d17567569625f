"""Messages of an agent: its text as it arrives, and its tool calls as short lines. Pure.

A model's text is never trusted markup: it keeps its form (headings, lists, tables, code) and can neither mention people
nor show a picture. A link is a link only if its host is on the list of the settings; any other address becomes code.
Nothing in it becomes a button.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from bot.faces.marks import EMOJI, WITHDRAWN
from bot.faces.tools import INPUT, Steps, plan_lines, plan_title
from bot.rendering.blocks import (
    MOST_UNITS,
    Block,
    Rendered,
    context,
    plan_block,
    rendered,
    section,
    size,
    step_line,
    with_id,
    words,
)
from bot.rendering.text import clip, cut, one_line, safe, shown, take, weight
from engine.language.codec import Json
from engine.language.counting import plural
from engine.language.template import harmless, open_code

MOST_PART = 3_900
"""Units of a model's text in one message; a longer one continues in the next."""
MOST_JOINED = 3_000
"""Units of a message up to which the next turn is added to it."""
_MOST_MARKDOWN = 11_000
_MOST_LINES = 40

_CODE_OR_LINK = re.compile(
    r"```.*?```|`[^`\n]+`"
    r"|!?\[(?P<label>[^\[\]\n]*)\]\(\s*<?(?P<target>https?://[^\s()<>]+)>?(?:\s+[\"'][^\n\"']*[\"'])?\s*\)"
    r"|<(?P<auto>https?://[^\s<>]+)>"
    r"|(?P<bare>https?://[^\s<>()\[\]`\"'|]*[^\s<>()\[\]`\"'|.,;:!?*_])",
    re.DOTALL,
)
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?([/?#][A-Za-z0-9\-._~:/?#@!$&*+,;=%]*)?")
_TOKEN = re.compile("\ue000([0-9]+)\ue001")
_NO_LABEL = re.compile(r"[\[\]()<>`|\\!*_~#\n\r]")
_LEADS = re.compile(r"://|www\.|@|[^\W_][\w-]*\.[^\W\d_]{2,}", re.IGNORECASE)


# --- the model's words -------------------------------------------------------------------------------------


def is_allowed(url: str, hosts: frozenset[str]) -> bool:
    """True if a URL may be a link: http or https, without unusual characters, and on a listed host, or below one listed
    as `*.example.com`."""
    if not hosts or not _URL.fullmatch(url):
        return False
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host in hosts:
        return True
    return any(f"*.{host.split('.', depth)[-1]}" in hosts for depth in range(1, host.count(".") + 1))


def model_markdown(text: str, hosts: frozenset[str] = frozenset()) -> str:
    """A model's text for a `markdown` block. Code that is not closed yet is closed."""
    links: list[str] = []

    def keep(found: re.Match[str]) -> str:
        url = found["target"] or found["auto"] or found["bare"]
        if url is None or not is_allowed(url, hosts):
            return found[0]
        links.append(_link(found["label"], url))
        return f"\ue000{len(links) - 1}\ue001"

    kept = _CODE_OR_LINK.sub(keep, text.replace("\ue000", "").replace("\ue001", ""))
    if (opened := open_code(kept)) is not None and opened[1].startswith("```"):
        kept = f"{kept.rstrip(chr(10))}\n{opened[1]}"
    made = harmless(kept)
    # Separate the link from characters that would turn it into a picture, or wrap another link around it.
    made = re.sub("([!\\]\\\\<])(?=\ue000)", r"\1 ", made)
    return _TOKEN.sub(lambda found: links[int(found[1])], made)


def _link(label: str | None, url: str) -> str:
    """Return a link whose label is its address, or text without any address."""
    words = " ".join(_NO_LABEL.sub(" ", shown(label or "")).split())
    if not words or _LEADS.search(words):
        return url
    return f"[{words}]({url})"


def split_text(text: str) -> list[str]:
    """A text in parts of one message each. While it grows only the last part changes."""
    parts: list[str] = []
    rest = text
    while weight(rest) > MOST_PART:
        first, after = take(rest, MOST_PART)
        if not first or len(after) >= len(rest):
            break
        parts.append(first)
        rest = after
    return [*parts, rest]


# --- tools -------------------------------------------------------------------------------------------------


class ToolLine(Struct, frozen=True):
    """A tool call: its name, a short form of its input, and its success (None: it runs). `over`: it will never have a
    result; `edited`: people changed it before it ran; `in_place`: they gave its result."""

    name: str
    brief: str
    went_well: bool | None = None
    over: bool = False
    edited: bool = False
    in_place: bool = False
    allowed_by: str = ""
    """People who always allow calls like it, if that is why it ran."""


_MARKS = {None: "…", True: EMOJI["completed"], False: EMOJI["failed"]}


def tool_line(tool: ToolLine) -> str:
    """A call as a line of mrkdwn."""
    name = safe(one_line(tool.name.replace("__", " · "), 80))
    brief = safe(one_line(tool.brief, INPUT)).replace("`", "'")
    said = f": `{brief}`" if brief else ""
    changed = " ✏️" if tool.edited else ""
    mark = WITHDRAWN if tool.over else "✍️ not run" if tool.in_place else _MARKS[tool.went_well]
    allowed = f" · ♾️ always allowed by {safe(one_line(tool.allowed_by, 80))}" if tool.allowed_by else ""
    return f"⚙️ {name}{said}{changed} {mark}{allowed}"


# --- messages ----------------------------------------------------------------------------------------------


class Entry(Struct, frozen=True):
    """A piece of an agent's work, in one message with others: text of a turn, its tool calls, its plan, or a note of
    ours.

    `ending` is the state of an incomplete text: `writing` (still arriving), `stopped`, `cut`. `rated` is the outbox key
    of an agent's final answer, which gets the feedback buttons."""

    text: str = ""
    tools: tuple[ToolLine, ...] = ()
    note: str = ""
    ending: str = ""
    rated: str = ""
    plan: Steps = ()
    over: bool = False
    """True if the plan is no longer being worked on."""


RATE = "sayso:rate"
"""Action of the buttons that say whether an answer helped."""
HELPED = {"good": "Helpful", "bad": "Not helpful"}
NOTED = {"good": "👍 Noted as helpful", "bad": "👎 Noted as not helpful"}


_ENDINGS = {
    "writing": "✍️ _writing …_",
    "stopped": "✋ _stopped here_",
    "cut": "✂️ _cut off here; this is not part of the conversation_",
}


def agent_message(
    entries: Sequence[Entry], key: str, hosts: frozenset[str] = frozenset(), *, speaker: str = ""
) -> Rendered:
    """Return one message with an agent's texts and actions; `key` lets it be found again. `speaker`, ready for mrkdwn,
    names the agent if there are several."""
    blocks = _blocks(entries, key, hosts, speaker)
    if entries and entries[-1].rated:
        blocks.append(_feedback(entries[-1].rated))
    # The text is for notifications, and for where blocks are not taken.
    parts: list[str] = []
    for entry in entries:
        if entry.text.strip():
            parts.append(safe(clip(entry.text.strip("\n").rstrip(), MOST_PART)))
        if entry.plan:
            parts += [f"*{plan_title(entry.plan)}*", *map(step_line, plan_lines(entry.plan, over=entry.over))]
        parts += [tool_line(tool) for tool in entry.tools[:_MOST_LINES]]
        parts += [line for line in (entry.note, _ENDINGS.get(entry.ending, "")) if line]
    text = "\n".join(parts)
    return rendered(f"🤖 {speaker}\n{text}" if speaker else text, blocks, key)


def _blocks(entries: Sequence[Entry], key: str, hosts: frozenset[str], speaker: str) -> list[Block]:
    blocks: list[Block] = []
    room = _MOST_MARKDOWN
    for entry in entries:
        if entry.text.strip():
            text = cut(model_markdown(entry.text.strip("\n").rstrip(), hosts), max(200, room))
            room -= weight(text)
            blocks.append({"type": "markdown", "text": text})
        if entry.plan:
            blocks.append(plan_block(plan_title(entry.plan), plan_lines(entry.plan, over=entry.over)))
        lines = [tool_line(tool) for tool in entry.tools[:_MOST_LINES]]
        if len(entry.tools) > _MOST_LINES:
            lines.append(f"… and {plural(len(entry.tools) - _MOST_LINES, 'more call')}")
        lines += [line for line in (entry.note, _ENDINGS.get(entry.ending, "")) if line]
        made: list[Block] = []
        for at in range(0, len(lines), 8):
            made.append(context("\n".join(lines[at : at + 8]), most=1_900))
        blocks += made
    if speaker and blocks:
        blocks.insert(0, context(f"🤖 {speaker}"))
    # The last blocks that fit: people look for the newest.
    kept = blocks[-45:]
    while len(kept) > 1 and size(kept) > MOST_UNITS - 300:
        kept = kept[1:]
    blocks = kept or [section(" ")]
    return [with_id(blocks[0], key), *blocks[1:]]


def _feedback(key: str) -> Block:
    """The buttons that say whether an answer helped; they carry which answer it is."""
    good, bad = ({"text": words(text), "value": f"{value}|{key}"} for value, text in HELPED.items())
    buttons: Block = {"type": "feedback_buttons", "action_id": RATE}
    return {
        "type": "context_actions",
        "elements": [{**buttons, "positive_button": good, "negative_button": bad}],
    }


def noted_text(value: str) -> str:
    """Return the confirmation for the person who pressed one of the feedback buttons."""
    return f"{NOTED[value]}, with your name, for the people who run this app. The other button changes it."


def entry_weight(entry: Entry) -> int:
    """About how much of a message an entry takes."""
    return weight(entry.text) + 180 * (len(entry.tools) + len(entry.plan)) + weight(entry.note) + 60


def text_of(content: Sequence[Mapping[str, Json]]) -> str:
    """Return the readable part of an assistant's message: its text, and its progress notes, which come as thinking."""
    told, cited, before = "", False, ""
    for block in content:
        text = str(block.get(_SAYS.get(str(block.get("type")), "")) or "")
        if not text.strip():
            continue
        # Sources of a text, as links after it.
        found = {
            str(each["url"]): str(each.get("title") or each["url"])
            for each in block.get("citations") or ()
            if isinstance(each, dict) and each.get("url")
        }
        titles = {url: one_line(re.sub(r"[\[\]()]", " ", title), 60) for url, title in found.items()}
        links = ", ".join(f"[{title}]({url})" for url, title in titles.items())
        sources = f" ({links})" if links else ""
        # Text with sources comes in pieces, one for each source.
        pieces = before == block["type"] == "text" and (cited or sources)
        told += text if not told or pieces else f"\n\n{text}"
        told += sources
        cited, before = bool(sources), str(block["type"])
    return told


_SAYS = {"text": "text", "thinking": "thinking"}
