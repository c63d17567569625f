"""Block Kit in a form that Slack accepts: every builder keeps its block's limits, `fit` those of the message.

Slack refuses an oversized message as a whole, and then people see nothing. So long content is cut with a notice, and
essential parts (the people asked, buttons) are placed first and never dropped.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from msgspec import Struct

from bot.faces.marks import EMOJI, LISTENING, WITHDRAWN
from bot.faces.words import Step
from bot.rendering.text import clip, cut, for_reader, mrkdwn, one_line, plain, shown, take, weight
from engine.language.codec import Json, clean_text, encode
from engine.language.counting import cells, plural

Block: TypeAlias = dict[str, Any]

EVENT_TYPE = "sayso_post"
"""Event type of our posts in Slack's message metadata; the payload has only the outbox key."""

MOST_BLOCKS = 50
MOST_UNITS = 13_000
"""Most units of all blocks as JSON. Slack's undocumented limit is about 13 200."""
MOST_TEXT = 4_000
MOST_MESSAGE = 12_000
_SECTION = 3_000
_NOTICE = 400
_ID = 255


class Rendered(Struct, frozen=True):
    """A message: `text` is safe mrkdwn for notifications and for where blocks are not taken."""

    text: str
    blocks: list[Block]
    metadata: dict[str, Any] | None = None
    plain: str = ""
    """Additional text for clients without blocks."""


def rendered(text: str, blocks: list[Block], key: str | None = None, plain: str = "") -> Rendered:
    """A message with its text within limits, and with the metadata by which it is found again."""
    about = None if key is None else metadata(key)
    return Rendered(cut(shown(text), MOST_TEXT) or " ", blocks, about, plain)


def metadata(key: str) -> dict[str, Any]:
    """Slack message metadata for an outbox key."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": key}}


def block_key(key: str) -> str:
    """Return an outbox key as a `block_id`: itself, or its start and a digest if it is too long."""
    if weight(key) <= _ID:
        return key
    return f"{clip(key, 180)}{blake2b(key.encode(), digest_size=16).hexdigest()}"


def size(blocks: Sequence[Block]) -> int:
    """The units of blocks as JSON."""
    dumped = json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))
    return len(dumped.encode("utf-16-le", "surrogatepass")) // 2


# --- blocks ------------------------------------------------------------------------------------------------


def with_id(block: Block, key: str | None) -> Block:
    """The block with an id, if one is given."""
    return block if key is None else {**block, "block_id": block_key(key)}


def section(mrkdwn: str, key: str | None = None, *, most: int = _SECTION) -> Block:
    """Return a section of mrkdwn. `expand`: questions must not hide behind "see more"."""
    text = {"type": "mrkdwn", "text": cut(shown(mrkdwn), most) or " ", "verbatim": True}
    return with_id({"type": "section", "text": text, "expand": True}, key)


def quoted(text: str, *, most: int = _SECTION) -> Block:
    """A section with somebody's text, in which no markup counts."""
    return {"type": "section", "text": _plain(text, most)}


def header(text: str, key: str | None = None) -> Block:
    """A title."""
    return with_id({"type": "header", "text": {**_plain(" ".join(text.split()), 150), "emoji": True}}, key)


def context(*parts: str, most: int = 900) -> Block:
    """Small print: parts of mrkdwn, ten at most."""
    elements = [
        {"type": "mrkdwn", "text": cut(shown(part), most), "verbatim": True} for part in parts if part
    ]
    return {"type": "context", "elements": elements[:10]}


def small(text: str, *, most: int = 900) -> Block:
    """Small print of somebody's text, in which no markup counts."""
    return {"type": "context", "elements": [_plain(text, most)]}


def lacking(lacks: Sequence[str]) -> list[Block]:
    """Return a note about resources of a flow that are missing here; empty if there are none."""
    if not lacks:
        return []
    return [small(f"⚠️ Missing, but needed later: {one_line('; '.join(lacks), 500)}", most=600)]


LABEL = 75
"""Most characters of a button or a menu entry."""


def button(label: str, action_id: str, value: str, style: str | None = None) -> Block:
    """A button."""
    text = {**_plain(" ".join(label.split()), LABEL), "emoji": True}
    made: Block = {"type": "button", "text": text, "action_id": action_id, "value": value}
    return {**made, "style": style} if style in ("primary", "danger") else made


def words(text: str) -> Block:
    """Words of ours, in which no markup counts."""
    return {"type": "plain_text", "text": text}


def option(label: str, value: str) -> Block:
    """Return one option of a menu."""
    return {"text": words(label), "value": value}


def select(action_id: str, placeholder: str, options: list[Block]) -> Block:
    """A menu to choose one from."""
    place = words(placeholder)
    return {"type": "static_select", "action_id": action_id, "placeholder": place, "options": options}


def actions(elements: Sequence[Block]) -> Block:
    """A row of buttons."""
    return {"type": "actions", "elements": list(elements)}


def _plain(text: str, most: int) -> Block:
    return {"type": "plain_text", "text": clip(shown(text), most) or " ", "emoji": False}


# --- fitting -----------------------------------------------------------------------------------------------


def fit(head: Sequence[Block], body: Sequence[Block], tail: Sequence[Block] = ()) -> list[Block]:
    """Return `head` and `tail` with as much of `body` between them as fits; a notice replaces the rest.

    Head and tail together must leave room for the notice.
    """
    room = MOST_UNITS - size(list(head)) - size(list(tail)) - _NOTICE
    places = MOST_BLOCKS - len(head) - len(tail) - 1
    kept: list[Block] = []
    for block in body[:places]:
        room -= size([block])
        if room < 0:
            break
        kept.append(block)
    left_out = len(body) - len(kept)
    notice = [context("_The rest does not fit in this message and is not shown._")] if left_out else []
    return [*head, *kept, *notice, *tail]


def fit_text(head: Sequence[Block], mrkdwn: str, tail: Sequence[Block] = ()) -> list[Block]:
    """Return `head` and `tail` with the text between them in as many sections as it needs, visibly cut if it is too
    long."""
    room = MOST_UNITS - size(list(head)) - size(list(tail)) - _NOTICE
    made, rest = text_sections(mrkdwn, min(MOST_MESSAGE, room))
    if rest:
        made.append(context(f"_Cut off: {plural(len(rest), 'more character')} not shown._"))
    return [*head, *made, *tail]


def text_sections(mrkdwn: str, room: int) -> tuple[list[Block], str]:
    """Return a text in as many sections as it needs, of at most `room` units in all, and its remainder."""
    made: list[Block] = []
    rest, left = shown(mrkdwn).strip("\n"), room
    overhead = size([section("")])
    while rest and left > overhead + 100:
        piece, after = take(rest, min(_SECTION, left - overhead))
        if len(after) >= len(rest):
            break
        rest = after
        if piece.strip():
            made.append(section(piece))
            left -= size([made[-1]])
    return made, rest


def sections(lines: Sequence[str], *, most: int = 1_500) -> list[Block]:
    """Return lines of mrkdwn in few sections without splitting a line; each line is cut to fit."""
    made: list[Block] = []
    held: list[str] = []
    used = 0
    for line in (cut(shown(line), most) for line in lines):
        cost = weight(line) + 2
        if held and used + cost > most:
            made.append(section("\n".join(held)))
            held, used = [], 0
        held.append(line)
        used += cost
    return [*made, section("\n".join(held))] if held else made


def modal(
    title: str,
    blocks: Sequence[Block],
    *,
    kind: str = "",
    meta: Mapping[str, Json] | None = None,
    submit: str | None = None,
    close: str = "Cancel",
) -> dict[str, Any]:
    """Return a modal of this kind. `meta` holds only ids, and comes back on submission."""
    view: dict[str, Any] = {
        "type": "modal",
        "title": _label(title),
        "close": _label(close),
        "blocks": list(blocks),
    }
    if kind:
        view["callback_id"] = f"sayso:{kind}"
    if meta is not None:
        view["private_metadata"] = encode(dict(meta)).decode()
    if submit is not None:
        view["submit"] = _label(submit)
    return view


def words_view(title: str, text: str) -> dict[str, Any]:
    """Return a modal with a text and no input."""
    return modal(title, [section(for_reader(shown(text)))], close="Close")


def about(message: str) -> Block:
    """Return the subject of a modal: the question of a prompt, as its message shows it."""
    return section(shown(message))


def field_block(
    name: str, label: str, element: Block, *, optional: bool = False, hint: str | None = None
) -> Block:
    """An input block around an element."""
    block: Block = {
        "type": "input",
        "block_id": name,
        "label": words(clip(" ".join(shown(label).split()), 2_000) or name),
        "element": element,
        "optional": optional,
    }
    if hint:
        block["hint"] = words(clip(shown(hint), 2_000))
    return block


def _label(text: str) -> Block:
    return words(one_line(text, 24) or "sayso")


MOST_ROWS = 101
"""Most rows of a data table, including the column names."""
MOST_CELLS = 10_000
"""Characters of all cells of a message, as Slack counts them."""
_PAGE = 10
"""Rows of a data table that are seen at once."""
_CELL = 400
_WIDTH = 40
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def rows_of(columns: Sequence[str], rows: Sequence[Json]) -> list[list[str]]:
    """The cells of a table as text, with as many in each row as there are columns or more."""
    return [_row(columns, row) for row in rows]


def _row(columns: Sequence[str], row: Json) -> list[str]:
    if isinstance(row, Mapping):
        return [_text(row.get(name)) for name in columns]
    texts = [_text(cell) for cell in row]
    return texts + [""] * (len(columns) - len(texts))


def _text(cell: Json) -> str:
    if cell is None:
        return ""
    return clean_text(cell)[0] if isinstance(cell, str) else encode(cell).decode()


def table_block(
    columns: Sequence[str], rows: Sequence[Sequence[str]], room: int, title: str = ""
) -> tuple[Block, bool]:
    """Return as many of the first rows as Slack takes and `room` units hold, and True if the table is complete.

    Cells are plain text, without mentions or links; numbers are sorted as such.
    """
    made = [_cells(columns)]
    room -= size([_data_table(made, title, len(rows))])
    letters = sum(map(len, columns))
    whole = all(len(row) <= len(columns) for row in rows)
    for row in rows:
        shown_row = [_cell(cell) for cell in row[: len(columns)]]
        room -= size(shown_row) + 1
        letters += sum(len(cell["text"]) for cell in shown_row)
        if room < 0 or letters > MOST_CELLS or len(made) >= MOST_ROWS:
            return _data_table(made, title, len(rows)), False
        made.append(shown_row)
        whole = whole and all(len(cell) <= _CELL for cell in row)
    return _data_table(made, title, len(rows)), whole


def _data_table(rows: list[list[Block]], title: str, total: int) -> Block:
    shown_rows = len(rows) - 1
    count = plural(total, "row")
    caption = one_line(title, 200) or (count if shown_rows == total else f"{shown_rows:,} of {count}")
    if not shown_rows:
        # Slack takes no data table without rows.
        rows = [*rows, [{"type": "raw_text", "text": " "} for _ in rows[0]]]
    return {"type": "data_table", "caption": caption, "page_size": _PAGE, "rows": rows}


def _cells(row: Sequence[str]) -> list[Block]:
    # Slack takes no empty cell.
    return [{"type": "raw_text", "text": one_line(cell, _CELL) or " "} for cell in row]


def _cell(text: str) -> Block:
    (made,) = _cells([text])
    number = _number(text)
    return made if number is None else {"type": "raw_number", "value": number, "text": made["text"]}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def csv_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The whole table as CSV. What a spreadsheet would take for a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([inert(cell) for cell in row])
    return out.getvalue()


def inert(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) and _number(cell) is None else cell


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = 60) -> str:
    """The first rows as lines of text with the columns below each other."""
    lines = [[clip(one_line(cell, _WIDTH), _WIDTH) for cell in row] for row in (columns, *rows[:most])]
    widths = [max(cells(line[at]) for line in lines) for at in range(len(columns))]
    made = [
        "  ".join(cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=False))
        for line in lines
    ]
    made.insert(1, "  ".join("─" * width for width in widths))
    more = len(rows) - most
    return "\n".join(
        [line.rstrip() for line in made] + ([f"… {plural(more, 'more row')}"] if more > 0 else [])
    )


# --- steps as a plan ----------------------------------------------------------------------------------------

_INDENT = "\u2003"
"""A space that Slack does not swallow at the beginning of a line."""
_TASK_STATES = {
    EMOJI["completed"]: "complete",
    EMOJI["started"]: "in_progress",
    EMOJI["failed"]: "error",
    "⚙️": "in_progress",
    EMOJI["pending"]: "pending",
}
"""Signs that a task's own state says."""
_TASK_SIGNED = {
    EMOJI["skipped"]: "complete",
    EMOJI["interrupted"]: "error",
    EMOJI["retrying"]: "in_progress",
    EMOJI["rejected"]: "error",
    EMOJI["stopped"]: "error",
    EMOJI["waiting"]: "in_progress",
    WITHDRAWN: "error",
    LISTENING: "in_progress",
}
"""Signs that say more than the state: they stay in the title."""
MOST_TASKS = 50
"""Tasks of one plan, as Slack counts them."""
_TASK_TITLE = 150
_TASK_DETAILS = 256
_PIECE = re.compile(r"<(?P<inner>[^<>\n]+)>|`(?P<code>[^`\n]+)`")


def step_line(step: Step) -> str:
    """A step as a line of mrkdwn."""
    return _INDENT * step.depth + mrkdwn(step.words)


def plan_block(title: str, steps: Sequence[Step]) -> Block:
    """The plan of these steps."""
    return {
        "type": "plan",
        "title": title,
        "tasks": [_task(number, step) for number, step in enumerate(steps, 1)],
    }


def _task(number: int, step: Step) -> Block:
    sign = f"{step.sign} " if step.sign and step.sign not in _TASK_STATES else ""
    label = plain(mrkdwn(step.label)).replace("`", "")
    task: Block = {
        "type": "task_card",
        "task_id": f"step-{number}",
        "title": clip("› " * step.depth + sign + label, _TASK_TITLE) or "…",
        "status": {**_TASK_STATES, **_TASK_SIGNED}.get(step.sign, "pending"),
    }
    detail = cut(mrkdwn(step.detail), _TASK_DETAILS)
    return {**task, "details": _rich_text(detail)} if detail else task


def _rich_text(mrkdwn: str) -> Block:
    pieces: list[Block] = []
    at = 0
    for found in _PIECE.finditer(mrkdwn):
        pieces += _rich(mrkdwn[at : found.start()])
        pieces += _rich(found["code"], code=True) if found["code"] else [_entity(found["inner"])]
        at = found.end()
    pieces += _rich(mrkdwn[at:])
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": pieces}]}


def _rich(mrkdwn: str, *, code: bool = False) -> list[Block]:
    if not mrkdwn:
        return []
    piece: Block = {"type": "text", "text": plain(mrkdwn)}
    return [{**piece, "style": {"code": True}} if code else piece]


def _entity(inner: str) -> Block:
    """Return a mention, a time or a link; anything else becomes text."""
    target, _, label = inner.partition("|")
    if target.startswith("@"):
        return {"type": "user", "user_id": target[1:]}
    if target.startswith("!date^"):
        _, seconds, form = target.split("^", 2)
        return {"type": "date", "timestamp": int(seconds), "format": form, "fallback": plain(label)}
    if target.startswith("http"):
        return {"type": "link", "url": plain(target), "text": plain(label or target)}
    return {"type": "text", "text": plain(f"<{inner}>")}
