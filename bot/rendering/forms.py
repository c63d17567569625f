"""A form in Slack: its control in a message, its modal page by page, and the input as raw values. Pure.

Every input is a block of its own, `field:<name>`, at which an error about that field is shown. Options travel as their
index, never as their meaning: input is read with the form at hand, and is as untrusted as typed text until
`engine.forms.check_form` has read it.

A modal holds a hundred blocks. A longer form is split into pages, determined by the form alone: page `n` of a form
always has the same fields. Input of earlier pages is kept in the bot's store, not in the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from bot.rendering.blocks import (
    LABEL,
    Block,
    about,
    actions,
    button,
    context,
    field_block,
    modal,
    quoted,
    section,
)
from bot.rendering.text import clip, in_full, numbered, one_line, picked, safe, shown
from engine.forms import MOST_TEXT, Field, is_empty, limits_text, most_text, value_text
from engine.forms.parse import read_value, units
from engine.forms.question import Question, field_options
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.counting import plural
from engine.language.errors import InvalidAnswer

BLOCK = "field:"
ACTION = "value"
INLINE = "sayso:field:"
"""The action of a control in a message; prompt id and nonce follow."""
OPEN_FORM = "sayso:open:form"

_LINES = 30
_ABOUT = 2_500
"""Units that the fields of a form take in a message."""
_PAGE_FIELDS = 90
_PAGE_BYTES = 150_000
_GROUP = 100
_CHECKS = 10
_RADIOS = 5
_NONE = "none"
"""Value of the empty option, in an optional field."""
_FIRM = 10**15
"""Beyond this a number's limit is checked here only."""


# --- in the message ----------------------------------------------------------------------------------------


def form_controls(prompt_id: str, prompt: Question) -> list[Block]:
    """Return the controls of an open form: a single field's own control, else a button that opens the form.

    Fields whose options are in the prompt have their buttons there. A time is picked in two steps, and a message would
    take the first for the answer: it is filled in instead.
    """
    fields = prompt.fields
    if not fields or prompt.options:
        return []
    ids = f"{prompt_id}|{prompt.nonce}"
    fill_in = button("Fill in", OPEN_FORM, ids, "primary")
    inline = _inline(fields[0], f"{INLINE}{ids}") if len(fields) == 1 else None
    if inline is None:
        return [actions([fill_in])]
    needs_more = not fields[0].get("required") or "default" in fields[0]
    return [actions([inline, button("Fill in", OPEN_FORM, ids)] if needs_more else [inline])]


def _inline(field: Field, action_id: str) -> Block | None:
    kind, _, more = _PICKERS.get(field.get("format") or "", (None, "", {}))
    if kind is None or field["type"] != "string":
        return None
    title = _plain(f"Choose: {field['title']}", 150)
    return {"type": kind, "action_id": action_id, "placeholder": title, **more}


_PICKERS: dict[str, tuple[str, str, Block]] = {
    "date": ("datepicker", "initial_date", {}),
    "user": ("users_select", "initial_user", {}),
    "channel": (
        "conversations_select",
        "initial_conversation",
        {"filter": {"include": ["public", "private"], "exclude_bot_users": True}},
    ),
}
"""Controls by the format of a field: the type, the key of the initial value, and further fields."""


def read_control(action: Mapping[str, Any], field: Field) -> Json:
    """The raw value of a control in a message, from the `action` that Slack sends."""
    return _raw(action, field)


def form_about(prompt: Question) -> list[Block]:
    """Describe an open form, field by field: labels, accepted values, and optional fields."""
    fields = prompt.fields
    if len(fields) == 1:
        words = _hint(fields[0], limits_text(fields[0]))
        return [context(safe(one_line(words, 600)))] if words else []
    lines = [_about_line(field) for field in fields[:_LINES]]
    if len(fields) > _LINES:
        lines.append(f"_and {plural(len(fields) - _LINES, 'more field')}_")
    return [section("\n".join(lines), most=_ABOUT)] if lines else []


def _about_line(field: Field) -> str:
    limits = limits_text(field)
    offered = [str(option["label"]) for option in field.get("options") or ()]
    if offered:
        more = f", {len(offered) - 5} more" if len(offered) > 5 else ""
        limits = one_line(", ".join(offered[:5]), 120) + more
    title = safe(one_line(str(field["title"]).replace("*", "∗"), 80))
    words = f"• *{title}*" + (f": {safe(one_line(limits, 160))}" if limits else "")
    return words if field.get("required") else f"{words} _(optional)_"


def form_values(prompt: Question, values: Mapping[str, Json]) -> list[Block]:
    """Return the values of a form, field by field, as a text without markup."""
    fields = prompt.fields
    if any(picked(field, values.get(field["name"])) for field in fields):
        return _rich_values(fields, values)
    lines = [
        f"{field['title']}: {one_line(value_text(field, values.get(field['name'])), 300)}" for field in fields
    ]
    text = lines[0].partition(": ")[2] if len(lines) == 1 else "\n".join(lines[:_LINES])
    more = [context(f"_and {plural(len(lines) - _LINES, 'more field')}_")] if len(lines) > _LINES else []
    return [quoted(text, most=_ABOUT), *more]


def _rich_values(fields: Sequence[Field], values: Mapping[str, Json]) -> list[Block]:
    """Return the same for forms with people or channels, who are shown by their names, also without markup."""
    pieces: list[Block] = []
    room = _ABOUT
    for number, field in enumerate(fields[:_LINES]):
        value = values.get(field["name"])
        head = "" if len(fields) == 1 else ("\n" if number else "") + f"{shown(str(field['title']))}: "
        text = "" if picked(field, value) else one_line(value_text(field, value), min(300, max(room, 1)))
        room -= len(head) + len(text)
        if head or text:
            pieces.append({"type": "text", "text": head + text})
        if picked(field, value):
            kind = "user" if field["format"] == "user" else "channel"
            pieces.append({"type": kind, f"{kind}_id": value})
    more = [context(f"_and {plural(len(fields) - _LINES, 'more field')}_")] if len(fields) > _LINES else []
    return [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": pieces}]}, *more]


# --- the modal ---------------------------------------------------------------------------------------------


def form_pages(fields: Sequence[Field]) -> list[list[Field]]:
    """The fields of each page of a form's modal."""
    pages: list[list[Field]] = [[]]
    used = 0
    for field in fields:
        size = len(encode(_block(field, None)))
        if pages[-1] and (len(pages[-1]) >= _PAGE_FIELDS or used + size > _PAGE_BYTES):
            pages.append([])
            used = 0
        pages[-1].append(field)
        used += size
    return pages


def form_view(
    fields: Sequence[Field],
    *,
    title: str,
    kind: str = "form",
    meta: Mapping[str, Json],
    message: str | None = None,
    page: int = 0,
    values: Mapping[str, Json] | None = None,
    submit: str = "Done",
) -> dict[str, Any]:
    """Return a page of a form as a modal. `message` is mrkdwn, `values` are the current ones, by field; missing ones
    have their default. `meta` holds ids and the page; `submit` is the last page's button."""
    pages = form_pages(fields)
    page = min(max(page, 0), len(pages) - 1)
    blocks = [about(message)] if message else []
    if len(pages) > 1:
        blocks.append(context(f"Page {page + 1} of {len(pages)}"))
    known = values or {}
    for field in pages[page]:
        given = known[field["name"]] if field["name"] in known else field.get("default")
        blocks.append(_block(field, given))
    last = page + 1 == len(pages)
    return modal(title, blocks, kind=kind, meta={**meta, "page": page}, submit=submit if last else "Next")


def read_form(state: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Json]:
    """The raw values in a view's `state.values`, by field; fields that the view did not have are left out. Total."""
    found: dict[str, Json] = {}
    for field in fields:
        block = state.get(f"{BLOCK}{field['name']}")
        if isinstance(block, Mapping):
            entry = block.get(ACTION)
            found[field["name"]] = _raw(entry, field) if isinstance(entry, Mapping) else None
    return found


def form_errors(wrong: Mapping[str, str], fields: Sequence[Field]) -> dict[str, str]:
    """Return the errors of a page by the block at which Slack shows them. Errors of other fields are shown at the first
    one: an error without a place would close the view."""
    names = [field["name"] for field in fields]
    placed = {f"{BLOCK}{name}": clip(shown(text), 2_000) for name, text in wrong.items() if name in names}
    others = [f"{name}: {text}" for name, text in wrong.items() if name not in names]
    if others and not placed and names:
        placed[f"{BLOCK}{names[0]}"] = clip(shown("; ".join(others)), 2_000)
    return placed


# --- one field ---------------------------------------------------------------------------------------------


def _block(field: Field, value: Json) -> Block:
    element = {**_element(field, value), "action_id": ACTION}
    hint = _hint(field, limits_text(field) if element["type"] not in _SELF_EXPLAINING else "")
    if field["type"] in ("choice", "choices"):
        offered = [str(each["label"]) for each in field["options"]]
        hint = "\n".join([hint, *in_full(offered, _most(offered))]).strip()
    return field_block(
        f"{BLOCK}{field['name']}",
        str(field["title"]),
        element,
        optional=not field.get("required"),
        hint=hint or None,
    )


_SELF_EXPLAINING = ("radio_buttons", "datepicker", "datetimepicker", "users_select", "conversations_select")


def _hint(field: Field, limits: str) -> str:
    """Return a field's description and its accepted values."""
    parts = (str(field.get("description") or "").strip().rstrip("."), limits[:1].upper() + limits[1:])
    return ". ".join(part for part in parts if part)


def _element(field: Field, value: Json) -> Block:
    """Return the input of a field with its current value, unless it cannot hold that."""
    value = None if is_empty(value) else value
    kind = field["type"]
    if kind in ("choice", "boolean"):
        return _single(field, value)
    if kind == "choices":
        offered = field["options"]
        made = _options(offered)
        wanted = value if isinstance(value, list) else []
        chosen = [
            made[n] for n, option in enumerate(offered) if any(_same(option["value"], one) for one in wanted)
        ]
        picked = {"initial_options": chosen[:_GROUP]} if chosen else {}
        if len(made) <= _CHECKS:
            return {"type": "checkboxes", "options": made, **picked}
        element = {
            "type": "multi_static_select",
            "placeholder": _plain("Choose…", 150),
            **_grouped(made),
            **picked,
        }
        most = int(field.get("maxItems") or 0)
        return {**element, "max_selected_items": most} if 1 <= most <= _GROUP else element
    if kind in ("number", "integer"):
        return _number(field, value)
    form = field.get("format") or ""
    if form == "date-time":
        return _moment(value)
    if form not in _PICKERS:
        return _text(field, value)
    kind, initial, more = _PICKERS[form]
    return {"type": kind, **more, **({initial: value} if isinstance(value, str) else {})}


def _text(field: Field, value: Json) -> Block:
    text = value if isinstance(value, str) and units(value) <= MOST_TEXT else None
    kinds = {"email": "email_text_input", "uri": "url_text_input"}
    kind = kinds.get(field.get("format") or "", "plain_text_input")
    if kind == "url_text_input" and text is not None and not text.startswith(("http://", "https://")):
        kind = "plain_text_input"
    element: Block = {"type": kind}
    if kind == "plain_text_input":
        element["multiline"] = bool(field.get("multiline"))
        element["max_length"] = most_text(field)
        least = int(field.get("minLength") or 0)
        if 0 < least <= element["max_length"]:
            element["min_length"] = least
    return element if text is None else {**element, "initial_value": text}


def _number(field: Field, value: Json) -> Block:
    element: Block = {"type": "number_input", "is_decimal_allowed": field["type"] == "number"}
    for word, limit in (("min_value", field.get("minimum")), ("max_value", field.get("maximum"))):
        if limit is not None and abs(limit) <= _FIRM:
            element[word] = _digits(limit)
    number = _typed(field, value) if isinstance(value, str) else value
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return {**element, "initial_value": _digits(number)} if is_number and abs(number) <= _FIRM else element


def _typed(field: Field, text: str) -> Json:
    """The number that somebody typed on a page to which they go back: it is text until the whole form is read."""
    try:
        return read_value(field, text)
    except InvalidAnswer:
        return None


def _digits(number: int | float) -> str:
    return format(Decimal(repr(number)), "f")


def _moment(value: Json) -> Block:
    element: Block = {"type": "datetimepicker"}
    try:
        seconds = int(timestamps.from_text(value).timestamp()) if isinstance(value, str) else 0
    except (ValueError, OverflowError):
        return element
    return {**element, "initial_date_time": seconds} if 10**9 <= seconds < 10**10 else element


# --- options -----------------------------------------------------------------------------------------------


def _single(field: Field, value: Json) -> Block:
    offered = field_options(field)
    made = _options(offered)
    chosen = next((made[n] for n, option in enumerate(offered) if _same(option["value"], value)), None)
    if not field.get("required"):
        made = [{"text": _plain("No answer", LABEL), "value": _NONE}, *made]
    if len(made) <= _RADIOS:
        return {"type": "radio_buttons", "options": made, **({"initial_option": chosen} if chosen else {})}
    element = {"type": "static_select", "placeholder": _plain("Choose…", 150), **_grouped(made)}
    return {**element, "initial_option": chosen} if chosen else element


def _most(offered: Sequence[object]) -> int:
    return LABEL if len(offered) <= 300 else 36


def _options(offered: Sequence[Mapping[str, Json]]) -> list[Block]:
    """Return options by index. Many options get shorter labels, so that all of them fit into one view."""
    most = _most(offered)
    return [
        {"text": _plain(numbered(n, str(option["label"]), most), most), "value": str(n)}
        for n, option in enumerate(offered)
    ]


def _grouped(made: list[Block]) -> Block:
    """A list of up to a hundred options, or as many groups of a hundred as it takes."""
    if len(made) <= _GROUP:
        return {"options": made}
    starts = range(0, len(made), _GROUP)
    groups = [
        {
            "label": _plain(f"{start + 1}–{min(start + _GROUP, len(made))}", LABEL),
            "options": made[start : start + _GROUP],
        }
        for start in starts
    ]
    return {"option_groups": groups}


def _same(option: Json, value: Json) -> bool:
    return option == value and isinstance(option, bool) == isinstance(value, bool)


def _plain(text: str, most: int) -> Block:
    return {"type": "plain_text", "text": clip(" ".join(shown(text).split()), most) or " ", "emoji": False}


# --- input -------------------------------------------------------------------------------------------------

_FIELDS = (
    "value",
    "selected_date",
    "selected_date_time",
    "selected_user",
    "selected_conversation",
    "selected_channel",
    "selected_option",
    "selected_options",
)
_FORGED: dict[str, Json] = {}
"""Placeholder for an option that the form does not have; matches no value."""


def _raw(entry: Mapping[str, Any], field: Field) -> Json:
    """Return the value of an element of any kind; null if it is empty."""
    found = next((entry[name] for name in _FIELDS if entry.get(name) is not None), None)
    if isinstance(found, list):
        return [_chosen(one, field) for one in found]
    if isinstance(found, Mapping):
        return _chosen(found, field)
    if field.get("format") == "date-time" and isinstance(found, int | float):
        try:
            return timestamps.to_text(datetime.fromtimestamp(found, UTC))
        except (ValueError, OverflowError, OSError):
            return str(found)
    return found if isinstance(found, str | int | float | None) else str(found)


def _chosen(option: Any, field: Field) -> Json:
    offered = field_options(field) if field["type"] != "choices" else field["options"]
    value = option.get("value") if isinstance(option, Mapping) else None
    if value == _NONE:
        return None
    place = (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6
        else -1
    )
    return offered[place]["value"] if 0 <= place < len(offered) else dict(_FORGED)
