"""Slack's sizes: at the limit a message or view is taken, one more is refused with Slack's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.errors import SlackApiError

from bot.workspace import SlackError
from bot.workspace.blocks import MESSAGE_BLOCKS, check_message, check_metadata, check_view
from bot.workspace.elements import initial_values, missing_inputs, with_ids
from tests.support.acting import Workspace
from tests.support.workspace import Json, actions, button, client_of, modal, section, text_input


def plain(text: str) -> Json:
    """A plain text object."""
    return {"type": "plain_text", "text": text}


def option(text: str = "One", value: str = "1", **fields: Any) -> Json:
    """An option of a select."""
    return {"text": plain(text), "value": value, **fields}


def select(count: int, kind: str = "static_select", **fields: Any) -> Json:
    """A select with so many options."""
    options = [option(value=str(n)) for n in range(count)]
    return {"type": kind, "action_id": "s", "options": options, **fields}


def in_actions(element: Json) -> list[Json]:
    """Blocks with this element in an actions block."""
    return [actions(element)]


def in_input(element: Json, **fields: Any) -> list[Json]:
    """Blocks with this element in an input block."""
    return [{"type": "input", "label": plain("L"), "element": element, **fields}]


def confirm(**changes: str) -> Json:
    """A button that asks first."""
    parts = {"title": "T", "text": "X", "confirm": "C", "deny": "D", **changes}
    return button("B", "b", confirm={key: plain(text) for key, text in parts.items()})


def context(count: int) -> list[Json]:
    """A context block with so many elements."""
    return [{"type": "context", "elements": [plain("x") for _ in range(count)]}]


# What is counted -> (the limit, blocks of a message for a given number, the end of the JSON pointer)
BLOCK_LIMITS: dict[str, tuple[int, Callable[[int], list[Json]], str]] = {
    "blocks of a message": (50, lambda n: [{"type": "divider"}] * n, "/blocks"),
    "section text": (3000, lambda n: [section("x" * n)], "/blocks/0/text/text"),
    "section fields": (
        10,
        lambda n: [{"type": "section", "fields": [plain("x")] * n}],
        "/blocks/0/fields",
    ),
    "field text": (
        2000,
        lambda n: [{"type": "section", "fields": [plain("x" * n)]}],
        "/blocks/0/fields/0/text",
    ),
    "header": (150, lambda n: [{"type": "header", "text": plain("x" * n)}], "/blocks/0/text/text"),
    "markdown": (12_000, lambda n: [{"type": "markdown", "text": "x" * n}], "/blocks/0/text"),
    "actions": (
        25,
        lambda n: [actions(*(button("B", f"a{i}") for i in range(n)))],
        "/blocks/0/elements",
    ),
    "context": (10, context, "/blocks/0/elements"),
    "button text": (75, lambda n: in_actions(button("x" * n, "b")), "/elements/0/text/text"),
    "button value": (2000, lambda n: in_actions(button("B", "b", "x" * n)), "/elements/0/value"),
    "action_id": (255, lambda n: in_actions(button("B", "x" * n)), "/elements/0/action_id"),
    "block_id": (255, lambda n: [section("x", block_id="x" * n)], "/blocks/0/block_id"),
    "options": (100, lambda n: in_actions(select(n)), "/elements/0/options"),
    "option text": (
        75,
        lambda n: in_actions({**select(1), "options": [option("x" * n)]}),
        "/options/0/text/text",
    ),
    "option value": (
        150,
        lambda n: in_actions({**select(1), "options": [option(value="x" * n)]}),
        "/options/0/value",
    ),
    "checkboxes": (10, lambda n: in_actions(select(n, "checkboxes")), "/elements/0/options"),
    "radio buttons": (10, lambda n: in_actions(select(n, "radio_buttons")), "/elements/0/options"),
    "overflow": (5, lambda n: in_actions(select(n, "overflow")), "/elements/0/options"),
    "placeholder": (
        150,
        lambda n: in_actions(select(1, placeholder=plain("x" * n))),
        "/elements/0/placeholder/text",
    ),
    "text input": (
        3000,
        lambda n: in_input({"type": "plain_text_input", "initial_value": "x" * n}),
        "/element/initial_value",
    ),
    "confirm title": (100, lambda n: in_actions(confirm(title="x" * n)), "/confirm/title/text"),
    "confirm text": (300, lambda n: in_actions(confirm(text="x" * n)), "/confirm/text/text"),
    "confirm button": (30, lambda n: in_actions(confirm(confirm="x" * n)), "/confirm/confirm/text"),
}


def _problems(blocks: list[Json]) -> str:
    with pytest.raises(SlackError) as refused:
        check_message("x", blocks)
    assert refused.value.error == "invalid_blocks"
    messages = refused.value.extra["response_metadata"]["messages"]
    assert all(message.startswith("[ERROR] ") for message in messages)
    return "\n".join(messages)


@pytest.mark.parametrize("what", BLOCK_LIMITS)
def test_a_block_is_taken_at_its_limit_and_refused_above(what: str) -> None:
    """The limit itself is allowed; one more is `invalid_blocks`, and the message points at the place."""
    limit, make, pointer = BLOCK_LIMITS[what]
    check_message("x", make(limit))
    assert f"{pointer}]" in _problems(make(limit + 1))


VIEW_LIMITS: dict[str, tuple[int, Callable[[int], Json], str]] = {
    "blocks": (100, lambda n: modal(*[{"type": "divider"}] * n), "/view/blocks"),
    "title": (24, lambda n: modal(title=plain("x" * n)), "/view/title/text"),
    "submit": (24, lambda n: modal(submit=plain("x" * n)), "/view/submit/text"),
    "close": (24, lambda n: modal(close=plain("x" * n)), "/view/close/text"),
    "private_metadata": (3000, lambda n: modal(private_metadata="x" * n), "/view/private_metadata"),
    "callback_id": (255, lambda n: modal(callback_id="x" * n), "/view/callback_id"),
    "external_id": (255, lambda n: modal(external_id="x" * n), "/view/external_id"),
}


@pytest.mark.parametrize("what", VIEW_LIMITS)
def test_a_view_is_taken_at_its_limit_and_refused_above(what: str) -> None:
    """Views are refused with `invalid_arguments` and a pointer into the view."""
    limit, make, pointer = VIEW_LIMITS[what]
    check_view(make(limit))
    with pytest.raises(SlackError) as refused:
        check_view(make(limit + 1))
    assert refused.value.error == "invalid_arguments"
    assert f"[json-pointer:{pointer}]" in refused.value.extra["response_metadata"]["messages"][0]


def test_text_of_a_post_and_of_an_update() -> None:
    """40 000 characters may be posted, 4 000 may be given to an update."""
    check_message("x" * 40_000, [])
    check_message("x" * 4_000, [], limit=4_000)
    for length, limit in ((40_001, 40_000), (4_001, 4_000)):
        with pytest.raises(SlackError, match="msg_too_long"):
            check_message("x" * length, [], limit=limit)


def test_all_blocks_together() -> None:
    """Blocks that are fine one by one are too long together: `msg_blocks_too_long`."""
    check_message("x", [section("x" * 3000)] * 4)
    with pytest.raises(SlackError, match="msg_blocks_too_long"):
        check_message("x", [section("x" * 3000)] * 5)


def test_all_markdown_together() -> None:
    """12 000 characters are for all markdown blocks of a message."""
    check_message("x", [{"type": "markdown", "text": "x" * 6000}] * 2)
    with pytest.raises(SlackError, match="msg_blocks_too_long"):
        check_message("x", [{"type": "markdown", "text": "x" * 6001}] * 2)


WRONG: dict[str, tuple[list[Json], str]] = {
    "unknown block": ([{"type": "carousel"}], "unsupported type of block: carousel"),
    "unknown element": ([actions({"type": "slider", "action_id": "a"})], "unsupported type of element"),
    "unknown field": ([{"type": "divider", "colour": "red"}], "additional property: colour"),
    "section of nothing": ([{"type": "section"}], "must define either `text` or `fields`"),
    "mrkdwn on a button": (
        [actions({"type": "button", "text": {"type": "mrkdwn", "text": "*x*"}})],
        "must be one of: plain_text",
    ),
    "empty text": ([section("")], "must be more than 0 characters"),
    "empty actions": ([actions()], "no fewer than 1 items allowed"),
    "button without text": ([actions({"type": "button"})], "missing required field: text"),
    "bad style": ([actions(button("B", "b", style="loud"))], "must be one of: primary, danger"),
    "twin block_id": (
        [section("a", block_id="x"), section("b", block_id="x")],
        "`block_id` x already exists",
    ),
    "twin action_id": ([actions(button("A", "a"), button("B", "a"))], "`action_id` a already exists"),
    "select of nothing": ([actions({"type": "static_select"})], "must define either `options`"),
    "text that is no object": ([{"type": "section", "text": "hi"}], "must be an object"),
    "number as text": ([{"type": "markdown", "text": 5}], "must be a string"),
    "an image from nowhere": ([{"type": "image", "alt_text": "x"}], "must define either `image_url`"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_shapes_are_refused_with_the_reason(what: str) -> None:
    """A mistake in a block is told with its reason."""
    blocks, reason = WRONG[what]
    assert reason in _problems(blocks)


def test_a_modal_with_inputs_needs_a_submit_button() -> None:
    """Slack refuses inputs without `submit`; a markdown block is for messages only."""
    view = modal(text_input("a"))
    del view["submit"]
    with pytest.raises(SlackError, match="missing required field: submit"):
        check_view(view)
    with pytest.raises(SlackError, match="unsupported type of block: markdown"):
        check_view(modal({"type": "markdown", "text": "x"}))


@pytest.mark.parametrize("view", [None, [], {"type": "page"}, {"type": "modal"}])
def test_what_is_no_view_is_refused(view: Any) -> None:
    """Anything but a complete modal or home is `invalid_arguments`."""
    with pytest.raises(SlackError, match="invalid_arguments"):
        check_view(view)


def test_metadata_has_a_size() -> None:
    """Metadata that is too large is refused."""
    check_metadata({"event_type": "x", "event_payload": {"key": "k"}})
    with pytest.raises(SlackError, match="metadata_too_large"):
        check_metadata({"event_type": "x", "event_payload": {"key": "k" * 9000}})


INPUTS: dict[str, tuple[Json, Any, str]] = {
    "required": ({"type": "plain_text_input"}, None, "Please complete this required field."),
    "too short": ({"type": "plain_text_input", "min_length": 3}, "ab", "Must be at least 3 characters."),
    "too long": ({"type": "plain_text_input", "max_length": 3}, "abcd", "Must be at most 3 characters."),
    "no number": ({"type": "number_input"}, "x", "Please enter a number."),
    "no whole number": ({"type": "number_input"}, "1.5", "Please enter a whole number."),
    "too small": ({"type": "number_input", "min_value": "2"}, "1", "Must be at least 2."),
    "too large": ({"type": "number_input", "max_value": "2"}, "3", "Must be at most 2."),
}


@pytest.mark.parametrize("what", INPUTS)
def test_inputs_are_checked_before_a_submission(what: str) -> None:
    """What Slack's client would not send is told at the field."""
    element, value, message = INPUTS[what]
    blocks = in_input({**element, "action_id": "a"}, block_id="b")
    values = {"b": {"a": {"type": element["type"], "value": value}}}
    assert missing_inputs(blocks, values) == {"b": message}


async def test_the_refusal_over_the_wire_names_the_place(workspace: Workspace) -> None:
    """The SDK's error carries the same messages."""
    with pytest.raises(SlackApiError) as refused:
        await client_of(workspace).chat_postMessage(channel="#ops", text="x", blocks=[section("x" * 3001)])
    body = refused.value.response.data
    assert body["error"] == "invalid_blocks"
    assert body["response_metadata"]["messages"] == [
        "[ERROR] must be less than 3001 characters [json-pointer:/blocks/0/text/text]"
    ]
    assert workspace.messages("ops") == []


FIELDS = [
    "type",
    "text",
    "value",
    "action_id",
    "block_id",
    "options",
    "option_groups",
    "label",
    "elements",
    "element",
    "confirm",
    "style",
    "placeholder",
    "initial_option",
    "initial_value",
    "title",
    "blocks",
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)
_BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(MESSAGE_BLOCKS))},
    optional=dict.fromkeys(("text", "elements", "element", "accessory", "fields", "block_id"), _JSON),
)


@given(st.lists(_BLOCK, max_size=3))
def test_no_shape_of_blocks_is_more_than_a_refusal(blocks: list[Json]) -> None:
    """Whatever JSON is in blocks: it is taken, with ids for all, or refused with a SlackError."""
    try:
        check_message("x", blocks)
    except SlackError:
        return
    filled = with_ids(blocks, "b")
    assert all("block_id" in block for block in filled)
    assert isinstance(initial_values(filled), dict)


@given(_JSON)
def test_no_shape_of_a_view_is_more_than_a_refusal(view: Any) -> None:
    """Arbitrary JSON is never a view, and never more than a SlackError."""
    with pytest.raises(SlackError):
        check_view(view)


def test_a_view_of_more_than_250_kilobytes_is_too_large() -> None:
    """Each block is within its limit, and the view as a whole is not."""
    check_view(modal(*(section("x" * 2_400) for _ in range(95))))
    with pytest.raises(SlackError, match="view_too_large"):
        check_view(modal(*(section("x" * 2_900) for _ in range(95))))
