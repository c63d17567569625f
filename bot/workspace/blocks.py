"""Checks Block Kit the way Slack does: the sizes, the shapes, the names of the errors.

A check is a function of a value and its JSON pointer that yields messages such as `must be less than 3001
characters [json-pointer:/blocks/0/text/text]`. The tables at the end say which checks each type gets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from bot.workspace.state import Json, SlackError, invalid

MAX_TEXT = 40_000
MAX_UPDATE_TEXT = 4_000
MAX_MESSAGE_BLOCKS = 50
MAX_VIEW_BLOCKS = 100
MAX_BLOCKS_SIZE = 13_200  # characters of all blocks as JSON; measured by others, not documented
MAX_MARKDOWN = 12_000  # of all markdown blocks of a message together
MAX_TABLE = 10_000  # of all cells of the table of a message
MAX_METADATA = 8_000
MAX_VIEW_SIZE = 250_000  # bytes of a view as JSON

Check = Callable[[Any, str], Iterator[str]]


# -- what Slack's methods call


def check_message(text: str, blocks: list[Json], *, limit: int = MAX_TEXT) -> None:
    """Raise SlackError when a message with this text and these blocks would be refused."""
    if len(text) > limit:
        raise SlackError("msg_too_long", f"text has {len(text)} characters, {limit} are allowed")
    if not blocks:
        return
    problems = list(_blocks(blocks, "/blocks", MAX_MESSAGE_BLOCKS, MESSAGE_BLOCKS))
    if problems:
        raise invalid(problems)
    # A message has one plain table, and the cells of all its tables have so many characters.
    tables = [block for block in blocks if block["type"] in ("table", "data_table")]
    if sum(block["type"] == "table" for block in tables) > 1:
        raise SlackError("invalid_blocks", "only one table is allowed in a message")
    cells = sum(len(str(cell.get("text", ""))) for table in tables for row in table["rows"] for cell in row)
    if cells > MAX_TABLE:
        raise SlackError("invalid_blocks", f"the cells of the table have {cells} characters in all")
    markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    if markdown > MAX_MARKDOWN:
        raise SlackError("msg_blocks_too_long", f"markdown blocks have {markdown} characters in all")
    size = len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":")))
    if size > MAX_BLOCKS_SIZE:
        raise SlackError("msg_blocks_too_long", f"blocks have {size} characters in all")


def check_view(view: Any) -> None:
    """Raise SlackError `invalid_arguments`, or `view_too_large`, when a view would be refused."""
    problems = list(_view(view, "/view"))
    if problems:
        raise invalid(problems, "invalid_arguments")
    size = len(json.dumps(view))
    if size > MAX_VIEW_SIZE:
        raise SlackError("view_too_large", f"the view has {size} bytes, {MAX_VIEW_SIZE} are allowed")


def check_metadata(metadata: Any) -> None:
    """Raise SlackError when message metadata has the wrong shape."""
    if metadata is None:
        return
    is_shaped = (
        isinstance(metadata, dict)
        and isinstance(metadata.get("event_type"), str)
        and isinstance(metadata.get("event_payload"), dict)
    )
    if not is_shaped:
        raise SlackError("invalid_metadata_format", "metadata is {event_type, event_payload: {...}}")
    if len(json.dumps(metadata)) > MAX_METADATA:
        raise SlackError("metadata_too_large")


# -- building checks


def _at(message: str, pointer: str) -> str:
    return f"{message} [json-pointer:{pointer}]"


def string(longest: int, shortest: int = 1) -> Check:
    """A string with so many characters."""

    def check(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield _at("must be a string", pointer)
        elif len(value) > longest:
            yield _at(f"must be less than {longest + 1} characters", pointer)
        elif len(value) < shortest:
            yield _at(f"must be more than {shortest - 1} characters", pointer)

    return check


def text_object(longest: int, *kinds: str) -> Check:
    """A text object of one of these types (both when none is named)."""
    allowed = kinds or ("plain_text", "mrkdwn")

    def check(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _at("must be an object", pointer)
        elif value.get("type") not in allowed:
            yield _at(f"must be one of: {', '.join(allowed)}", f"{pointer}/type")
        else:
            yield from string(longest)(value.get("text"), f"{pointer}/text")

    return check


def items(longest: int, each: Check, shortest: int = 1) -> Check:
    """A list of so many items."""

    def check(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield _at("must be an array", pointer)
        elif len(value) > longest:
            yield _at(f"no more than {longest} items allowed", pointer)
        elif len(value) < shortest:
            yield _at(f"no fewer than {shortest} items allowed", pointer)
        else:
            yield from chain.from_iterable(each(item, f"{pointer}/{n}") for n, item in enumerate(value))

    return check


def one_of(*allowed: Any) -> Check:
    """One of these values."""

    def check(value: Any, pointer: str) -> Iterator[str]:
        if value not in allowed:
            yield _at(f"must be one of: {', '.join(map(str, allowed))}", pointer)

    return check


def anything(value: Any, pointer: str) -> Iterator[str]:
    """No check."""
    yield from ()


def boolean(value: Any, pointer: str) -> Iterator[str]:
    """true or false."""
    if not isinstance(value, bool):
        yield _at("must be a boolean", pointer)


def whole(least: int, most: int) -> Check:
    """A whole number in this range."""

    def check(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            yield _at(f"must be a whole number from {least} to {most}", pointer)

    return check


def a_number(value: Any, pointer: str) -> Iterator[str]:
    """A number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        yield _at("must be a number", pointer)


def numeric(value: Any, pointer: str) -> Iterator[str]:
    """A number written as a string."""
    try:
        is_number = isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        is_number = False
    if not is_number:
        yield _at("must be a number as a string", pointer)


@dataclass(frozen=True)
class Shape:
    """An object with these fields and no others."""

    required: dict[str, Check] = field(default_factory=dict)
    optional: dict[str, Check] = field(default_factory=dict)
    either: tuple[str, ...] = ()
    """Two fields of which one must be there."""
    or_both: bool = False

    def must(self, **more: Check) -> Shape:
        """The same, which must have these too."""
        return replace(self, required={**self.required, **more})

    def may(self, **more: Check) -> Shape:
        """The same, which may have these too."""
        return replace(self, optional={**self.optional, **more})

    def __call__(self, value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _at("must be an object", pointer)
            return
        for name in self.required.keys() - value.keys():
            yield _at(f"missing required field: {name}", pointer)
        known = {"type": anything, **self.required, **self.optional}
        for name, part in value.items():
            if name not in known:
                yield _at(f"additional property: {name}", pointer)
            else:
                yield from known[name](part, f"{pointer}/{name}")
        there = sum(name in value for name in self.either)
        if self.either and there != 1 and not (self.or_both and there):
            yield _at(f"must define either {' or '.join(f'`{name}`' for name in self.either)}", pointer)


def typed(table: dict[str, Check], what: str) -> Check:
    """An object whose `type` chooses the check."""

    def check(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _at("must be an object", pointer)
        elif not isinstance(value.get("type"), str) or value["type"] not in table:
            yield _at(f"unsupported type of {what}: {value.get('type')}", f"{pointer}/type")
        else:
            yield from table[value["type"]](value, pointer)

    return check


# -- lists of blocks, and views


def _blocks(value: Any, pointer: str, most: int, table: dict[str, Check]) -> Iterator[str]:
    yield from items(most, typed(table, "block"), shortest=0)(value, pointer)
    if not isinstance(value, list):
        return
    seen: set[str] = set()
    for number, block in enumerate(value):
        block_id = block.get("block_id") if isinstance(block, dict) else None
        if isinstance(block_id, str) and block_id in seen:
            yield _at(f"`block_id` {block_id} already exists", f"{pointer}/{number}/block_id")
        seen.add(block_id if isinstance(block_id, str) else "")
        parts = block.get("elements") if isinstance(block, dict) else None
        actions: set[str] = set()
        for place, element in enumerate(parts if isinstance(parts, list) else []):
            action_id = element.get("action_id") if isinstance(element, dict) else None
            if not isinstance(action_id, str):
                continue
            if action_id in actions:
                at = f"{pointer}/{number}/elements/{place}/action_id"
                yield _at(f"`action_id` {action_id} already exists", at)
            actions.add(action_id)


def _view(value: Any, pointer: str) -> Iterator[str]:
    if not isinstance(value, dict) or value.get("type") not in list(VIEWS):
        yield _at("must be an object of type modal or home", pointer)
        return
    yield from VIEWS[value["type"]](value, pointer)
    given = value.get("blocks")
    has_input = isinstance(given, list) and any(
        isinstance(block, dict) and block.get("type") == "input" for block in given
    )
    if value["type"] == "modal" and has_input and "submit" not in value:
        yield _at("missing required field: submit", pointer)


# -- the tables


def plain(longest: int) -> Check:
    """Text without markup."""
    return text_object(longest, "plain_text")


ID = string(255)
STYLE = one_of("primary", "danger")
MANY = whole(1, 100)
OPTION = Shape().must(text=text_object(75), value=string(150))
OPTION = OPTION.may(description=text_object(75), url=string(3_000))
OPTION_GROUP = Shape().must(label=plain(75), options=items(100, OPTION))
CONFIRM = Shape().must(title=plain(100), text=text_object(300))
CONFIRM = CONFIRM.may(confirm=plain(30), deny=plain(30), style=STYLE)
DISPATCH = Shape().may(trigger_actions_on=items(2, one_of("on_enter_pressed", "on_character_entered")))

ELEMENT = Shape().may(action_id=ID, confirm=CONFIRM, focus_on_load=boolean)
HINTED = ELEMENT.may(placeholder=plain(150))
TYPED = HINTED.may(dispatch_action_config=DISPATCH, initial_value=string(3_000, 0))
CHOICE = HINTED.may(response_url_enabled=boolean)
PICKS = ELEMENT.must(options=items(10, OPTION))
CONVERSATIONS = CHOICE.may(default_to_current_conversation=boolean, filter=anything)
STATIC_SELECT = replace(HINTED, either=("options", "option_groups")).may(
    options=items(100, OPTION),
    option_groups=items(100, OPTION_GROUP),
    initial_option=OPTION,
    initial_options=items(100, OPTION),
    max_selected_items=MANY,
)
BUTTON = ELEMENT.must(text=plain(75)).may(
    value=string(2_000, 0), url=string(3_000), style=STYLE, accessibility_label=string(75)
)
IMAGE_ELEMENT = Shape().must(alt_text=string(2_000)).may(image_url=string(3_000), slack_file=anything)
PRESSED: dict[str, Check] = {"button": BUTTON, "overflow": ELEMENT.must(options=items(5, OPTION))}
CHOSEN: dict[str, Check] = {
    "static_select": STATIC_SELECT,
    "users_select": CHOICE.may(initial_user=anything),
    "conversations_select": CONVERSATIONS.may(initial_conversation=anything),
    "channels_select": CHOICE.may(initial_channel=anything),
    "datepicker": CHOICE.may(initial_date=anything),
    "timepicker": CHOICE.may(initial_time=anything, timezone=string(64)),
    "datetimepicker": CHOICE.may(initial_date_time=anything),
    "radio_buttons": PICKS.may(initial_option=anything),
    "checkboxes": PICKS.may(initial_options=anything),
    "multi_static_select": STATIC_SELECT,
    "multi_users_select": CHOICE.may(initial_users=anything, max_selected_items=MANY),
    "multi_channels_select": CHOICE.may(initial_channels=anything, max_selected_items=MANY),
    "multi_conversations_select": CONVERSATIONS.may(initial_conversations=anything, max_selected_items=MANY),
}
TYPED_IN: dict[str, Check] = {
    "plain_text_input": TYPED.may(multiline=boolean, min_length=whole(0, 3000), max_length=whole(1, 3000)),
    "email_text_input": TYPED,
    "url_text_input": TYPED,
    "rich_text_input": TYPED.may(initial_value=anything),
    "number_input": TYPED.may(is_decimal_allowed=boolean, min_value=numeric, max_value=numeric),
}
IN_ACTIONS = typed({**PRESSED, **CHOSEN}, "element")
IN_SECTION = typed({**PRESSED, **CHOSEN, "image": IMAGE_ELEMENT}, "accessory")
IN_INPUT = typed({**CHOSEN, **TYPED_IN}, "input")
LABEL = text_object(3_000)
IN_CONTEXT = typed({"image": IMAGE_ELEMENT, "plain_text": LABEL, "mrkdwn": LABEL}, "context element")
RICH = ("rich_text_section", "rich_text_list", "rich_text_quote", "rich_text_preformatted")
IN_RICH_TEXT = typed(dict.fromkeys(RICH, anything), "rich text element")

BLOCK = Shape().may(block_id=ID)
IMAGE = replace(BLOCK, either=("image_url", "slack_file")).must(alt_text=string(2_000))
SECTION = replace(BLOCK, either=("text", "fields"), or_both=True)
INPUT = BLOCK.must(label=plain(2_000), element=IN_INPUT)
RICH_TEXT = BLOCK.must(elements=items(100, IN_RICH_TEXT))
VIEW_BLOCKS: dict[str, Check] = {
    "section": SECTION.may(
        text=text_object(3_000),
        fields=items(10, text_object(2_000)),
        accessory=IN_SECTION,
        expand=boolean,
    ),
    "header": BLOCK.must(text=plain(150)),
    "divider": BLOCK,
    "image": IMAGE.may(image_url=string(3_000), slack_file=anything, title=plain(2_000)),
    "context": BLOCK.must(elements=items(10, IN_CONTEXT)),
    "actions": BLOCK.must(elements=items(25, IN_ACTIONS)),
    "input": INPUT.may(hint=plain(2_000), optional=boolean, dispatch_action=boolean),
    "rich_text": RICH_TEXT,
}
CELLS: dict[str, Check] = {
    "raw_text": Shape().must(text=string(MAX_BLOCKS_SIZE)),
    "raw_number": Shape().must(value=a_number).may(text=string(MAX_BLOCKS_SIZE)),
    "rich_text": RICH_TEXT,
}
COLUMN = Shape().may(align=one_of("left", "center", "right"), is_wrapped=boolean)
ROW = items(20, typed(CELLS, "table cell"))
TABLE = BLOCK.must(rows=items(100, ROW))


def data_rows(value: Any, pointer: str) -> Iterator[str]:
    """The header and 1 to 100 rows, all of one length; no rich text in the header."""
    problems = list(items(101, ROW, 2)(value, pointer))
    yield from problems
    if problems:
        return
    for number, row in enumerate(value):
        if len(row) != len(value[0]):
            yield _at("all rows must have the same number of cells", f"{pointer}/{number}")
    if any(cell["type"] == "rich_text" for cell in value[0]):
        yield _at("rich_text is not allowed in the header", f"{pointer}/0")


DATA_TABLE = BLOCK.must(caption=string(MAX_BLOCKS_SIZE), rows=data_rows)
ONE_RICH_TEXT = typed({"rich_text": RICH_TEXT}, "rich text")
SOURCE = typed({"url": Shape().must(url=string(3_000), text=string(3_000))}, "source")
TASK = BLOCK.must(task_id=ID, title=string(256), status=one_of("pending", "in_progress", "complete", "error"))
TASK = TASK.may(details=ONE_RICH_TEXT, output=ONE_RICH_TEXT, sources=items(50, SOURCE))
FEEDBACK = Shape().must(text=plain(75), value=string(2_000)).may(accessibility_label=string(75))
QUIET_ACTIONS: dict[str, Check] = {
    "feedback_buttons": Shape().must(positive_button=FEEDBACK, negative_button=FEEDBACK).may(action_id=ID),
    "icon_button": Shape()
    .must(icon=one_of("trash"), text=plain(75))
    .may(
        action_id=ID,
        value=string(2_000),
        confirm=CONFIRM,
        accessibility_label=string(75),
        visible_to_user_ids=items(10, string(255)),
    ),
}
MESSAGE_BLOCKS: dict[str, Check] = {
    **VIEW_BLOCKS,
    "context_actions": BLOCK.must(elements=items(5, typed(QUIET_ACTIONS, "element"))),
    "plan": BLOCK.must(title=string(256)).may(tasks=items(50, typed({"task_card": TASK}, "task"))),
    "task_card": TASK,
    "markdown": BLOCK.must(text=string(MAX_MARKDOWN)),
    "data_table": DATA_TABLE.may(page_size=MANY, row_header_column_index=whole(0, 19)),
    "table": TABLE.may(column_settings=items(20, COLUMN, 0)),
}


HOME = Shape().must(blocks=partial(_blocks, most=MAX_VIEW_BLOCKS, table=VIEW_BLOCKS))
HOME = HOME.may(callback_id=string(255, 0), private_metadata=string(3_000, 0), external_id=string(255, 0))
MODAL = HOME.must(title=plain(24)).may(submit=plain(24), close=plain(24), submit_disabled=boolean)
VIEWS = {"modal": MODAL.may(clear_on_close=boolean, notify_on_close=boolean), "home": HOME}
