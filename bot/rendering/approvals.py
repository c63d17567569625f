"""Blocks of a decision: its proposal with people's edits, and the covered action. Pure.

The content of an approval is never cut silently: if a message cannot hold it, it says how much is missing and has a
button that shows everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bot.faces.question import Face, Value
from bot.rendering.blocks import Block, button, context, section, sections, size
from bot.rendering.text import (
    clip,
    message_line,
    mrkdwn,
    one_line,
    person,
    picked,
    plain,
    safe,
    shown,
    weight,
)
from engine.forms import value_text
from engine.journal.state import Asked
from engine.language.codec import Json
from engine.language.counting import plural

OPEN = "sayso:open:"

_VALUE = 300
_VALUES = 3_000
"""Units that all values together take in a message."""
_LINES = 40
_WHOLE_BLOCKS, _PIECE = 45, 3_000
"""Limits of a modal that shows everything: code blocks for each of its two parts, and units of each block."""


def handle(prompt: Asked) -> str:
    """Return the value of buttons that open a view: ids."""
    return f"{prompt.prompt_id}|{prompt.nonce}"


def opens(label: str, kind: str, prompt: Asked, style: str | None = None) -> Block:
    """Return a button that opens a view of this kind."""
    return button(label, f"{OPEN}{kind}", handle(prompt), style)


# --- values ------------------------------------------------------------------------------------------------


def value_blocks(said: Face) -> list[Block]:
    """Return an approval's proposal, field by field, with people's edits: old → new. If a message cannot hold it, a
    button shows everything."""
    if not said.values:
        return []
    lines = [_value_line(value, posted=said.question.open) for value in said.values]
    kept, room = 0, _VALUES
    for line in lines:
        room -= weight(line) + 2
        if room < 0:
            break
        kept += 1
    made = sections(lines[:kept])
    cut = any(
        len(value_text(each.field, value)) > _VALUE for each in said.values for value in (each.old, each.new)
    )
    if kept < len(lines) or cut:
        left = plural(len(lines) - kept, "more field") if kept < len(lines) else "some values"
        made.append(_not_all(said.question, f"⚠️ Not shown in full: {left}."))
    return [*made, context(mrkdwn(said.changed))] if said.changed else made


def _value_line(value: Value, *, posted: bool) -> str:
    field, old, new = value.field, value.old, value.new
    title = safe(one_line(str(field.get("title") or field["name"]), 80))
    if new == old:
        return f"• *{title}:* {_value(field, new, posted=posted)}"
    return f"• *{title}:* {_value(field, old, posted=posted)} → *{_value(field, new, posted=posted)}*"


def _not_all(prompt: Asked, words: str) -> Block:
    """Return a notice that something is cut; while the question is open, with a button that shows everything."""
    if not prompt.open:
        return section(words)
    show = opens("Show all", "whole", prompt)
    return {**section(f"{words} Read the full text before you decide."), "accessory": show}


def _value(field: Mapping[str, Json], value: Json, *, posted: bool) -> str:
    # A new message notifies the people it mentions, which is not wanted here; an edited one notifies nobody.
    name = None if posted and field.get("format") == "user" else picked(field, value)
    return name or safe(one_line(value_text(field, value), _VALUE))


# --- the covered action ------------------------------------------------------------------------------------


def runs_blocks(prompt: Asked, room: int, *, least: int = 60, notice: int | None = None) -> list[Block]:
    """Return the text of the covered action, in full, or as much as fits with a notice, which takes `notice` units."""
    text = shown(str((prompt.covers or {}).get("text") or ""))
    if size([preformatted(text)]) <= room:
        return [preformatted(text)]
    notice = notice or (700 if prompt.open else 300)
    piece = clip(text, max(least, room - size([preformatted("")]) - notice))
    missing = len(text) - len(piece) + 1
    said = f"⚠️ *Cut off:* {plural(missing, 'more character')} did not fit in this message."
    return [preformatted(piece), _not_all(prompt, said)]


def whole(said: Face) -> list[Block]:
    """Return everything that is approved, for a modal: the values, and the covered action."""
    lines = []
    for value in said.values:
        field, old, new = value.field, value.old, value.new
        before = "" if old == new else f" (before: {value_text(field, old)})"
        lines.append(f"{field.get('title') or field['name']}: {value_text(field, new)}{before}")
    made = whole_blocks("\n".join(lines), most=80_000)
    covers = said.question.covers or {}
    if covers:
        made += [section("*This will run*"), *whole_blocks(str(covers.get("text") or ""))]
    return made


def whole_blocks(text: str, *, most: int = 130_000) -> list[Block]:
    """Return a long text as code blocks of `most` bytes in all, for a modal (250 kB); the rest is counted."""
    made: list[Block] = []
    rest = shown(text)
    while rest and len(made) < _WHOLE_BLOCKS:
        piece = _piece(rest, _PIECE)
        most -= len(json.dumps(preformatted(piece)))
        if most < 0:
            break
        made.append(preformatted(piece))
        rest = rest[len(piece) :]
    if rest:
        made.append(context(f"⚠️ *Cut off:* {plural(len(rest), 'more character')} not shown."))
    return made


def _piece(text: str, most: int) -> str:
    """Return the beginning of a text, up to the end of a line if one is near."""
    if weight(text) <= most:
        return text
    room = most
    for place, char in enumerate(text):
        room -= weight(char)
        if room < 0:
            line = text.rfind("\n", place // 2, place)
            return text[: line + 1] if line >= 0 else text[:place]
    return text


def preformatted(text: str) -> Block:
    """A code block in which no markup counts, whatever the text holds."""
    inside: list[dict[str, Any]] = [{"type": "text", "text": text or " "}]
    return {"type": "rich_text", "elements": [{"type": "rich_text_preformatted", "elements": inside}]}


# --- in the thread -----------------------------------------------------------------------------------------


def edited_text(
    prompt: Asked,
    by: Mapping[str, Json],
    before: Mapping[str, Json],
    values: Mapping[str, Json],
    *,
    had_votes: bool = False,
) -> str:
    """Return the message to the thread about an edited proposal."""
    known = {str(field["name"]): field for field in prompt.fields}
    lines = [
        _value_line(
            Value(known.get(name, {"name": name, "type": "string"}), old, values.get(name)), posted=True
        )
        for name, old in before.items()
    ]
    number = prompt.number
    which = f" (#{int(number)})" if number else ""
    void = " Earlier votes were cleared; please vote again." if had_votes else ""
    head = f"✏️ {person(by)} edited the proposal{which}.{void}"
    return "\n".join([head, *lines[:_LINES]])


def handed_text(prompt: Asked, by: Mapping[str, Json], to: str) -> str:
    """Return the message to the person who is asked now."""
    number = prompt.number
    which = f" (#{int(number)} above)" if number else " above"
    question = message_line(plain(str(prompt.message or "")), 160)
    return f"👉 {person({'id': to})}: {person(by)} handed this question to you{which}: {safe(question)}"
