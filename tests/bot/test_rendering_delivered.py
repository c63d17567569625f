"""Messages of flows: whatever values say, nobody is called, nothing leads anywhere, and Slack's limits are kept."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.rendering import notes as module
from bot.rendering.blocks import csv_of
from bot.rendering.notes import as_plain, delivered
from bot.workspace.blocks import check_message, check_metadata
from engine.language.errors import ExpressionError
from engine.language.expressions import compile_config
from engine.language.template import MARKS, is_blank
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import InvalidConfig
from tests.flow.test_markup import HOSTILE, read
from tests.support.proving import tries

TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=10).map("".join)
LONG = (
    st.tuples(TEXTS, st.integers(1, 3_000))
    .map(lambda made: made[0] * made[1])
    .map(lambda text: text[:90_000])
)
X = "{{ inputs.x }}"
EVERYWHERE: dict[str, Any] = {
    "text": X,
    "markdown": X,
    "fields": [{"title": "T", "value": X}],
    "table": {"columns": ["a", "b"], "rows": [[X, X], {"a": X}]},
    "images": [{"url": f"https://charts.example.com/{X}", "alt": X, "title": X}],
    "files": [{"content": X, "name": "a.txt"}],
}
_TAG = re.compile(r"<[@#!?/A-Za-z]")
_LEADS = re.compile(r"://|www\.|@\w|\w@|\]\(|\]:|evil\.example|&#\w+;")


def settled(config: dict[str, Any], value: Any) -> dict[str, Any] | None:
    """A message's configuration with this value in its expressions; None where it does not fit."""
    spec = node_types()["message"]
    assert spec.check(config) == []
    evaluated = compile_config(config, frozenset(), spec.verbatim_fields, spec.markup)
    try:
        return spec.normalize(evaluated.evaluate({"inputs": {"x": value}}))
    except (InvalidConfig, ExpressionError):
        return None


def strings(value: Any, kind: str) -> list[str]:
    """The texts of all objects of one type in blocks."""
    if isinstance(value, list):
        return [found for item in value for found in strings(item, kind)]
    if not isinstance(value, dict):
        return []
    own = [value["text"]] if value.get("type") == kind and isinstance(value.get("text"), str) else []
    return own + [found for item in value.values() for found in strings(item, kind)]


def check(config: dict[str, Any]) -> None:
    """Slack would take the message, and it calls nobody."""
    made = delivered(config, "message:session-1:tell:1")
    message = made.message
    assert message is not None
    check_metadata(message.metadata)
    assert not _TAG.search(message.text)
    check_message(message.text, message.blocks, limit=4_000)
    for text in strings(message.blocks, "mrkdwn"):
        assert not _TAG.search(text)
    for text in strings(message.blocks, "markdown"):
        assert not _TAG.search(text)
        assert not _LEADS.search(read(text))
    for block in message.blocks:
        assert block["type"] in ("section", "markdown", "data_table", "image", "context")
        assert block["type"] != "image" or block["image_url"].startswith("https://charts.example.com/")


@settings(max_examples=tries(150))
@given(TEXTS, st.sets(st.sampled_from(sorted(EVERYWHERE)), min_size=1))
@example("`", {"fields"})
@example("> ", {"fields"})
def test_no_value_calls_anybody_in_any_field(value: str, fields: set[str]) -> None:
    """A hostile text in every field at once, or in any of them."""
    config = settled({name: EVERYWHERE[name] for name in fields | {"text"}}, value)
    assert (config is None) == is_blank(value, MARKS)
    if config is not None:
        check(config)


@pytest.mark.timeout(600)
@settings(max_examples=tries(60))
@given(LONG)
@example("\n")
def test_any_length_fits_and_what_does_not_is_in_a_file(value: str) -> None:
    """The message is taken by Slack, and each part that was cut has its file."""
    config = settled(EVERYWHERE, value)
    if config is None:
        assert is_blank(value, MARKS)
        return
    check(config)
    made = delivered(config, "message:session-1:tell:1")
    assert made.message is not None
    notices = " ".join(strings(made.message.blocks, "mrkdwn"))
    for extra in made.extras:
        assert extra.name == "a.txt" or f"`{extra.name}`" in notices


def test_a_cell_is_no_formula_in_a_spreadsheet() -> None:
    """What a spreadsheet would calculate is text, numbers are not touched."""
    assert csv_of(["a"], [["=1+1"], ["-3"], ["@x"], ["plain"]]) == "a\n'=1+1\n-3\n'@x\nplain\n"


@pytest.mark.parametrize(
    "url", [X, "http://x.example/", "https://{{ inputs.x }}/", "https://user@x.example/", "https://x.example"]
)
def test_the_host_of_a_picture_is_written_out(url: str) -> None:
    """Slack fetches it, so no value may choose where from."""
    faults = node_types()["message"].check({"images": [{"url": url, "alt": "x"}]})
    assert [fault.path for fault in faults] == [("images", 0, "url")]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, ()),
        ({"text": "x", "update": "a", "to": "#ops"}, ("to",)),
        ({"text": "x", "ephemeral_to": "requester", "files": [{"content": "", "name": "a"}]}, ("files",)),
        ({"text": "x", "thread": False, "broadcast": True}, ("broadcast",)),
        ({"files": [{"path": "a", "content": "b"}]}, ("files", 0)),
        ({"files": [{"content": "b"}]}, ("files", 0)),
        ({"text": "x", "to": "ops"}, ("to",)),
        ({"text": "x", "to": "dm:@sre"}, ("to",)),
        ({"text": "x", "ephemeral_to": "channel"}, ("ephemeral_to",)),
    ],
)
def test_what_does_not_go_together_is_a_load_error(config: dict[str, Any], field: tuple[Any, ...]) -> None:
    """Each with the place that is wrong."""
    assert field in [fault.path for fault in node_types()["message"].check(config)]


def test_a_terminal_shows_all_of_it_as_text() -> None:
    """Tables in columns, files by name."""
    config = settled({**EVERYWHERE, "to": "#ops"}, "one")
    assert config is not None
    text = as_plain(config)
    assert text.startswith("(to #ops)\none\n")
    assert "a    b\n───  ───\none  one" in text
    assert text.endswith("📎 a.txt")
    assert module.fallback({"text": "x"}) == "x"
