"""Changing a tool call before it is approved: from input to form and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decide.agents.tool_calls import REST, edit_fields, edited
from engine.forms import check_form
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer
from tests.engine.agents.plankit import tool
from tests.support.proving import tries

SCHEMA = {
    "type": "object",
    "properties": {
        "service": {"type": "string", "description": "Which one"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "force": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["fast", "safe"]},
        "maxResults": {"type": "integer"},
        "labels": {"type": "object"},
        "names": {"type": "array"},
    },
    "required": ["service"],
}


def fields(given_: dict[str, Any], kind: Any = "python", schema: Json = SCHEMA) -> dict[str, dict[str, Any]]:
    """The fields of the form by name."""
    return {field["name"]: field for field in edit_fields(tool(kind, {"call": "a:b"}, schema=schema), given_)}


def changed(given_: dict[str, Any], **values: Any) -> dict[str, Any]:
    """The input after people filled in the form, with these fields changed."""
    plan = tool("python", {"call": "a:b"}, schema=SCHEMA)
    form = edit_fields(plan, given_)
    filled = {field["name"]: values.get(field["name"], field.get("default")) for field in form}
    found, wrong = check_form(form, filled)
    assert wrong == {}
    return edited(plan, given_, found)


def test_each_plain_value_has_a_field_and_the_rest_is_json() -> None:
    """Texts, numbers and flags of the schema are fields with the model's values; the others are one field of JSON."""
    given_ = {"service": "api", "count": 3, "force": True, "labels": {"a": 1}, "names": ["x"]}
    found = fields(given_)
    assert list(found) == ["service", "count", "share", "force", "mode", "field_5", REST]
    assert (found["service"]["default"], found["service"]["required"], found["service"]["description"]) == ("api", True, "Which one")  # fmt: skip
    assert (found["count"]["type"], found["force"]["default"]) == ("integer", True)
    assert [option["value"] for option in found["mode"]["options"]] == ["fast", "safe"]
    assert found["field_5"]["title"] == "maxResults"
    assert found[REST]["default"] == '{"labels":{"a":1},"names":["x"]}'
    assert found[REST]["multiline"] is True


def test_what_people_fill_in_becomes_the_input() -> None:
    """Changed fields are changed, emptied optional ones are gone, and the rest is what its JSON says."""
    given_ = {"service": "api", "count": 3, "mode": "fast", "labels": {"a": 1}}
    assert changed(given_, service="web") == {**given_, "service": "web"}
    assert changed(given_, mode="safe", field_5=7) == {**given_, "mode": "safe", "maxResults": 7}
    assert changed(given_, **{REST: '{"labels": {}, "names": ["y"]}'}) == {
        "service": "api",
        "count": 3,
        "mode": "fast",
        "labels": {},
        "names": ["y"],
    }
    plan = tool("python", {"call": "a:b"}, schema=SCHEMA)
    assert edited(plan, given_, {"service": "api", "count": None, "mode": "fast"}) == {
        "service": "api",
        "mode": "fast",
        "labels": {"a": 1},
    }


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "NaN"])
def test_json_that_is_none_is_refused(text: str) -> None:
    """Whoever changes the call is told what to write."""
    with pytest.raises(InvalidAnswer):
        changed({"service": "api", "labels": {"a": 1}}, **{REST: text})


def test_a_text_that_no_form_holds_stays_as_it_is() -> None:
    """A long text has no field and is not lost, whatever else is changed."""
    given_ = {"path": "a.txt", "content": "x" * 5000}
    found = fields(given_, "write_file", None)
    assert list(found) == ["path"]
    plan = tool("write_file")
    assert edited(plan, given_, {"path": "b.txt"}) == {"path": "b.txt", "content": "x" * 5000}


_VALUES = st.none() | st.booleans() | st.integers(-9, 9) | st.text("a \n\té\u0301<&", max_size=8)


@settings(max_examples=tries(300))
@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other", REST]), _VALUES | st.lists(_VALUES, max_size=2), max_size=6))  # fmt: skip
def test_what_nobody_touched_comes_back_exactly(given_: dict[str, Any]) -> None:
    """A form that is sent back as it was shown leaves the input exactly as the model gave it."""
    plan = tool("python", {"call": "a:b"}, schema=SCHEMA)
    form = edit_fields(plan, given_)
    assert len({field["name"] for field in form}) == len(form)
    shown = {field["name"]: field.get("default") for field in form}
    assert edited(plan, given_, shown) == given_
    found, wrong = check_form(form, {name: value for name, value in shown.items() if value is not None})
    assert edited(plan, given_, {**shown, **found} if not wrong else shown) == given_
