"""Blocks of a decision: votes, edits, the covered action, the people asked now. Pure.

The content of an approval is never cut silently: if a message cannot hold it, it says how much is missing and has a
button that shows everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bot.rendering.blocks import Block, button, context, section, sections, size
from bot.rendering.text import clip, message_line, one_line, person, picked, plain, safe, shown, weight
from engine.decide.question import ANSWER, DECIDED
from engine.forms import value_text
from engine.forms.question import Question
from engine.journal.state import Asked
from engine.language.codec import Json
from engine.language.counting import plural

OPEN = "sayso:open:"
IN_PLACE = "in-place"
"""The kind of the view in which a tool's result is given in its place."""
WHOLE, TOLD = "whole", "told"
"""Views that show the whole covered action, and that take the text of a choice."""

_VALUE = 300
_VALUES = 3_000
"""Units that all values together take in a message."""
_LINES = 40
_REASON = 200
_REASONS = 5
_WHOLE_BLOCKS, _PIECE = 45, 3_000
"""Limits of a modal that shows everything: code blocks for each of its two parts, and units of each block."""
_LEAST = 600
"""Units of the covered action that are always shown, however long the question is."""


def handle(prompt: Asked) -> str:
    """Return the value of buttons that open a view: ids."""
    return f"{prompt.prompt_id}|{prompt.nonce}"


def is_request(prompt: Question) -> bool:
    """True for the approval of a call that an agent outside of sayso wants to make."""
    return (prompt.covers or {}).get("type") == "call"


def is_as_asked(prompt: Question) -> bool:
    """True for such a request that nobody changed: the values of its form are in the text of its call."""
    return is_request(prompt) and not prompt.editors


# --- votes -------------------------------------------------------------------------------------------------


def tally(prompt: Asked) -> str | None:
    """Return the state of the votes, as mrkdwn: `1 of 2 approved: Ana`. None if one person decides."""
    most = prompt.required
    if not prompt.is_approval or (most < 2 and not prompt.votes):
        return None
    approved, *others = ([vote for vote in prompt.votes if vote["vote"] == value] for value in DECIDED)
    words = f"{len(approved)} of {most} approved"
    if approved:
        words += f": {_people(approved)}"
    sides = zip(list(DECIDED.values())[1:], others, strict=True)
    return " · ".join([words, *(f"{what}: {_people(votes)}" for what, votes in sides if votes)])


def vote_lines(prompt: Asked) -> list[str]:
    """The tally, and the reasons that were given."""
    words = tally(prompt)
    if words is None:
        return []
    said = [
        f"{person(vote['actor'])}: “{safe(one_line(str(vote['reason']), _REASON))}”"
        for vote in prompt.votes
        if vote.get("reason")
    ]
    more = len(said) - _REASONS
    said = said[-_REASONS:] + ([f"and {more} more with a reason"] if more > 0 else [])
    return [f"🗳️ {words}", *said]


def deciders(prompt: Asked) -> str:
    """Return the names of the people whose vote was for the decision."""
    answer = prompt.answer or {}
    votes = answer.get("votes") or prompt.votes
    side = [vote for vote in votes if vote.get("vote") == answer.get("value")]
    mine = (prompt.actor or {}).get("id")
    if not any(vote["actor"].get("id") == mine for vote in side):
        side = [*side, {"actor": prompt.actor}]
    return _people(side)


def _people(votes: Sequence[Mapping[str, Json]]) -> str:
    names = list(dict.fromkeys(person(vote["actor"]) for vote in votes))
    if len(names) > 12:
        names = [*names[:12], f"{len(names) - 12} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- values ------------------------------------------------------------------------------------------------


def value_blocks(prompt: Asked, *, is_open: bool) -> list[Block]:
    """Return an approval's proposal, field by field, with people's edits: old → new. If a message cannot hold it, a
    button shows everything."""
    if not prompt.is_approval or not prompt.fields:
        return []
    if is_as_asked(prompt) or (prompt.tool and not prompt.editors):
        return []  # what the call covers is shown, and says all of it
    lines = [_value_line(field, old, new, posted=is_open) for field, old, new in _values(prompt)]
    kept, room = 0, _VALUES
    for line in lines:
        room -= weight(line) + 2
        if room < 0:
            break
        kept += 1
    made = sections(lines[:kept])
    cut = any(len(value_text(field, value)) > _VALUE for field, *both in _values(prompt) for value in both)
    if kept < len(lines) or cut:
        left = plural(len(lines) - kept, "more field") if kept < len(lines) else "some values"
        made.append(_not_all(prompt, f"⚠️ Not shown in full here: {left}.", is_open))
    editors = [person({"id": editor}) for editor in prompt.changed_by]
    if editors:
        made.append(context(f"✏️ Changed by {', '.join(editors[:5])}"))
    return made


def _values(prompt: Asked) -> list[tuple[Mapping[str, Json], Json, Json]]:
    """Return each field with its proposed and its current value."""
    now = {**(prompt.values), **((prompt.answer or {}).get("values") or {})}
    return [
        (field, field.get("default"), now.get(str(field["name"]), field.get("default")))
        for field in prompt.fields
    ]


def _value_line(field: Mapping[str, Json], old: Json, new: Json, *, posted: bool) -> str:
    title = safe(one_line(str(field.get("title") or field["name"]), 80))
    if new == old:
        return f"• *{title}:* {_value(field, new, posted=posted)}"
    return f"• *{title}:* {_value(field, old, posted=posted)} → *{_value(field, new, posted=posted)}*"


def _not_all(prompt: Asked, words: str, is_open: bool) -> Block:
    """Return a notice that something is cut; while the question is open, with a button that shows everything."""
    if not is_open:
        return section(words)
    show = button("Show all", f"{OPEN}{WHOLE}", handle(prompt))
    return {**section(f"{words} Read all of it before you decide."), "accessory": show}


def _value(field: Mapping[str, Json], value: Json, *, posted: bool) -> str:
    # A new message notifies the people it mentions, which is not wanted here; an edited one notifies nobody.
    name = None if posted and field.get("format") == "user" else picked(field, value)
    return name or safe(one_line(value_text(field, value), _VALUE))


# --- the covered action ------------------------------------------------------------------------------------


def covered_blocks(prompt: Asked, label: str, room: int, *, is_open: bool) -> list[Block]:
    """Return the action that runs on approval, in full, or as much as fits with a notice.

    `label` is the name of the covered step, ready for mrkdwn; `room` the units for all of it.
    """
    covers = prompt.covers
    if not covers:
        return []
    words = (
        "This runs when it is approved"
        if is_open
        else "This was approved"
        if ((prompt.answer or {}).get("value") == "approve")
        else "It was about"
    )
    step = f" · {label} ({safe(one_line(str(covers.get('type') or 'step'), 40))})"
    head = context(f"*{words}*{'' if is_request(prompt) else step}")
    return [head, *runs_blocks(prompt, room - size([head]), is_open=is_open, least=_LEAST)]


def runs_blocks(
    prompt: Asked, room: int, *, is_open: bool, least: int = 60, notice: int | None = None
) -> list[Block]:
    """Return the text of the covered action, in full, or as much as fits with a notice, which takes `notice` units."""
    text = shown(str((prompt.covers or {}).get("text") or ""))
    if size([preformatted(text)]) <= room:
        return [preformatted(text)]
    notice = notice or (700 if is_open else 300)
    piece = clip(text, max(least, room - size([preformatted("")]) - notice))
    missing = len(text) - len(piece) + 1
    said = f"⚠️ *Cut here:* {plural(missing, 'more character')} did not fit into one message."
    return [preformatted(piece), _not_all(prompt, said, is_open)]


def covered_size(prompt: Asked) -> int:
    """Return the units that the whole covered action takes in a message."""
    covers = prompt.covers
    return 0 if not covers else size([preformatted(shown(str(covers.get("text") or "")))]) + 600


def whole(prompt: Asked) -> list[Block]:
    """Return everything that is approved, for a modal: the values, and the covered action."""
    lines = []
    for field, old, new in [] if is_as_asked(prompt) else _values(prompt):
        before = "" if old == new else f" (before: {value_text(field, old)})"
        lines.append(f"{field.get('title') or field['name']}: {value_text(field, new)}{before}")
    made = whole_blocks("\n".join(lines), most=80_000)
    covers = prompt.covers or {}
    if covers:
        made += [section("*What will run*"), *whole_blocks(str(covers.get("text") or ""))]
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
        made.append(context(f"⚠️ *Cut here:* {plural(len(rest), 'more character')} not shown."))
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


# --- the people asked now ----------------------------------------------------------------------------------


def handed_line(prompt: Asked) -> str | None:
    """Return a line about the latest handover, or None."""
    handed = prompt.handed
    if not handed:
        return None
    last = handed[-1]
    more = f" (handed over {len(handed)} times)" if len(handed) > 1 else ""
    return f"👉 {person(last['by'])} handed this to {person({'id': last['to']})}{more}"


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
        _value_line(known.get(name, {"name": name, "type": "string"}), old, values.get(name), posted=True)
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


# --- buttons -----------------------------------------------------------------------------------------------


def words_view(prompt: Question, option: Mapping[str, Json]) -> str | None:
    """The kind of the view in which the words are written that a decision needs; None where a press says it all."""
    if not prompt.is_approval:
        return None
    if option.get("value") == ANSWER:
        return IN_PLACE
    return "reject" if option.get("value") == "reject" and prompt.require_reason else None


def opens(label: str, kind: str, prompt: Asked, style: str | None = None) -> Block:
    """Return a button that opens a view of this kind."""
    return button(label, f"{OPEN}{kind}", handle(prompt), style)
