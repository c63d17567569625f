"""Forms: what a flow may write, what people fill in, and what is said where that is wrong."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.forms import (
    check_form,
    defaults,
    form_faults,
    form_text,
    match_option,
    normalize_form,
    parse_typed,
)
from engine.forms.formats import pattern_problem
from engine.language.codec import Json, copy
from engine.language.diagnostics import Fault
from engine.language.errors import InvalidAnswer
from tests.support.forms import anything, written_forms
from tests.support.proving import tries

ACCESS: dict[str, Json] = {
    "properties": {
        "system": {
            "type": "string",
            "oneOf": [{"const": "db", "title": "Database"}, {"const": "web", "title": "Web"}],
        },
        "days": {"type": "integer", "minimum": 1, "maximum": 30, "default": 7},
        "reason": {"type": "string", "minLength": 5, "multiline": True},
        "urgent": {"type": "boolean"},
        "scopes": {
            "type": "array",
            "items": {"type": "string", "enum": ["read", "write", "admin"]},
            "maxItems": 2,
        },
    },
    "required": ["system", "reason"],
}


def fields_of(properties: dict[str, Json], *required: str) -> list[dict[str, Json]]:
    """Settled fields."""
    found: list[dict[str, Json]] = normalize_form({"properties": properties, "required": list(required)})[
        "fields"
    ]
    return found


def field(**body: Json) -> dict[str, Json]:
    """One settled field `x`."""
    return fields_of({"x": body})[0]


def said(faults: list[Fault]) -> str:
    """All faults as text."""
    return "\n".join(f"{'.'.join(map(str, fault.path))}: {fault.message} ({fault.hint})" for fault in faults)


# --- written -----------------------------------------------------------------------------------------------


def test_a_settled_form_spells_out_every_field() -> None:
    """Types, labels, options and limits of a form are in its fields, in the order of the file."""
    assert not list(form_faults(ACCESS))
    fields = normalize_form(ACCESS)["fields"]
    assert [(entry["name"], entry["type"], entry["required"]) for entry in fields] == [
        ("system", "choice", True),
        ("days", "integer", False),
        ("reason", "string", True),
        ("urgent", "boolean", False),
        ("scopes", "choices", False),
    ]
    assert fields[0]["options"] == [{"value": "db", "label": "Database"}, {"value": "web", "label": "Web"}]
    assert fields[1] == {
        "name": "days", "type": "integer", "title": "Days", "required": False, "minimum": 1, "maximum": 30, "default": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"type": "strnig"}, "did you mean `string`?"),
        ({}, "`type` is missing"),
        ({"type": "object", "properties": {}}, "forms are flat"),
        ({"type": "string", "maxlength": 3}, "did you mean `maxLength`?"),
        ({"type": "string", "minimum": 3}, "`minimum` is for number, integer"),
        ({"type": "string", "required": True}, "belongs beside `properties`"),
        ({"type": "string", "format": "e-mail"}, "did you mean `email`?"),
        ({"type": "string", "format": "password"}, "does not ask for secrets"),
        ({"type": "string", "enum": []}, "expected at least one option"),
        ({"type": "string", "enum": ["a", "a"]}, "appears twice"),
        ({"type": "string", "enum": ["a"], "default": "b"}, "the default does not fit: Choose one of: a."),
        ({"type": "string", "enum": ["a", 3]}, "expected text, not the number 3"),
        ({"type": "string", "enum": ["a"], "oneOf": [{"const": "b"}]}, "cannot be used together"),
        ({"type": "string", "enum": ["a"], "enumNames": ["A", "B"]}, "a label for each value"),
        ({"type": "string", "enum": ["a"], "pattern": "a"}, "a choice takes no `pattern`"),
        ({"type": "string", "pattern": "("}, "not a regular expression"),
        ({"type": "string", "pattern": "(a+)+$"}, "run forever"),
        ({"type": "string", "minLength": 5, "maxLength": 3}, "`minLength` is more than `maxLength`"),
        ({"type": "string", "maxLength": 5_000}, "expected at most 3000, not 5000"),
        ({"type": "integer", "minimum": 1.5}, "a whole number"),
        ({"type": "integer", "default": "many"}, "whole number in digits"),
        ({"type": "number", "minimum": True}, "expected a number, not true"),
        ({"type": "boolean", "default": "perhaps"}, "Answer with yes or no"),
        ({"type": "array"}, "`items` is missing"),
        ({"type": "array", "items": {"type": "string"}}, "list the options"),
        ({"type": "array", "enum": ["a"]}, "belongs under `items`"),
        ({"type": "array", "items": {"enum": ["a"]}, "default": ["b"]}, "Choose one of: a."),
        # limits that no answer meets
        ({"type": "string", "minLength": 20_000}, "no text fits `minLength`"),
        ({"type": "string", "minLength": 2_500, "pattern": "a"}, "no text fits `minLength` and `pattern`"),
        (
            {"type": "string", "maxLength": 5, "pattern": "^[0-9]{10}$"},
            "no text fits `maxLength` and `pattern`",
        ),
        ({"type": "string", "maxLength": 2, "pattern": "abc|defg"}, "no text fits `maxLength` and `pattern`"),
        ({"type": "string", "minLength": 5, "pattern": "^a{3}$"}, "no text fits `minLength` and `pattern`"),
        ({"type": "string", "maxLength": 5, "format": "date"}, "no text fits `maxLength` and `format`"),
        ({"type": "string", "minLength": 300, "format": "email"}, "no text fits `minLength` and `format`"),
        ({"type": "string", "format": "date", "pattern": "^.{20}$"}, "no text fits `format` and `pattern`"),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 3},
            "3 must be chosen, but there are only 2",
        ),
        ({"type": "array", "items": {"oneOf": [{"const": "a"}]}, "minItems": 2}, "there are only 1 options"),
        ({"type": "array", "items": {"enum": ["a"]}, "maxItems": 0}, "expected at least 1, not 0"),
        ({"type": "string", "enum": ["a"], "minLength": 3}, "a choice takes no `minLength`"),
        ({"type": "string", "title": 3}, "expected text"),
        ("text", "expected a mapping such as {type: string}"),
    ],
)
def test_a_written_field_that_is_wrong_is_named(body: Json, words: str) -> None:
    """Each mistake in a field gives a fault with what is right, at the field."""
    faults = list(form_faults({"properties": {"x": body}}))
    assert words in said(faults)
    assert all(fault.path[:2] == ("properties", "x") for fault in faults)


@pytest.mark.parametrize("kind", ["string", "number", "integer", "boolean", "array"])
def test_a_value_of_any_kind_in_any_word_is_named_and_breaks_nothing(kind: str) -> None:
    """Models and people write lists, numbers and nothing where a word takes something else."""
    words = (
        "title",
        "default",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "multiline",
        "enum",
        "enumNames",
        "oneOf",
    )
    words += ("minimum", "maximum", "minItems", "maxItems", "items", "type")
    values: list[Json] = [[], {}, [1], {"a": 1}, 0, 1.5, True, False, "", -1, [None], [[]], [{}]]
    for word, value in product(words, values):
        form: Json = {"properties": {"a": {"type": kind, word: value}}}
        faults = list(form_faults(form))
        if not faults:
            assert normalize_form(form)["fields"]


@pytest.mark.parametrize(
    "body",
    [
        {"minLength": 3, "pattern": "^a{3}$"},
        {"minLength": 4, "pattern": "a{3}"},
        {"minLength": 4, "pattern": "^a{3}|b+$"},
        {"minLength": 9, "pattern": "(?m)^a{3}$"},
        {"maxLength": 3, "pattern": "^(?=.{2})a+$"},
        {"maxLength": 10, "format": "date"},
        {"maxLength": 20, "format": "email"},
        {"minLength": 2, "maxLength": 2, "pattern": r"^\w+$"},
        {"maxLength": "{{ inputs.most }}", "pattern": "^a{30}$"},
    ],
)
def test_limits_that_somebody_can_meet_are_sound(body: Json) -> None:
    """A limit is refused only where no text at all fits it."""
    assert not list(form_faults({"properties": {"x": {"type": "string", **body}}}))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (None, "expected a mapping, not nothing"),
        ({}, "`properties` is missing"),
        ({"properties": {}}, "expected at least 1 entry"),
        ({"propertys": {"x": {"type": "string"}}}, "did you mean `properties`?"),
        ({"properties": {"Big": {"type": "string"}}}, "not a valid field name"),
        ({"properties": {"db_password": {"type": "string"}}}, "does not ask for secrets"),
        ({"properties": {"x": {"type": "string"}}, "required": ["y"]}, "there is no field 'y'"),
        ({"properties": {"x": {"type": "string"}}, "required": "x"}, "expected a list, not the text 'x'"),
        ({"properties": {f"x{n}": {"type": "string"} for n in range(301)}}, "at most 300 entries, not 301"),
    ],
)
def test_a_written_form_that_is_wrong_is_named(form: Json, words: str) -> None:
    """A form without fields, with a bad name or with an unknown word does not load."""
    assert words in said(list(form_faults(form)))


def test_expressions_leave_open_what_they_will_decide() -> None:
    """Options, default and limits may be expressions while a flow is loaded, and must be values when it is asked."""
    form: dict[str, Json] = {
        "properties": {
            "x": {"type": "string", "enum": "{{ nodes.list.names }}", "default": "{{ inputs.name }}"},
            "n": {"type": "integer", "minimum": "{{ inputs.least }}", "maximum": 5, "default": 3},
        }
    }
    assert not list(form_faults(form))
    with pytest.raises(ValueError, match=r"form: x\.enum: expected a list, not the text"):
        normalize_form(form)


def test_no_option_left_is_said_when_the_form_is_asked() -> None:
    """Options that an earlier output gave are checked like those of the file, once they are there."""
    with pytest.raises(ValueError, match=r"form: x\.enum: expected at least one option"):
        normalize_form({"properties": {"x": {"type": "string", "enum": []}}})


@pytest.mark.parametrize(
    "pattern", [r"^[A-Z]{2}-\d+$", r"^[a-z]+(-[a-z]+)*$", r"^(\d{1,3}\.){3}\d{1,3}$", "^(a|b)$"]
)
def test_patterns_that_people_write_are_taken(pattern: str) -> None:
    """Tickets, slugs, addresses: what can be split in one way only is a sound pattern."""
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a*)*b", "(a|aa)+$", r"(\w+\s?)*$", "([a-z]+)*x", "(.*,)*$", "((ab)*)*", "(a?b?)+c"],
)
def test_patterns_that_never_end_are_refused(pattern: str) -> None:
    """A repeat of what can be split in many ways would stop the bot on some text, so it does not load."""
    assert "run forever" in str(pattern_problem(pattern))


# --- filled in ---------------------------------------------------------------------------------------------


def test_a_filled_in_form_gives_values_and_takes_defaults() -> None:
    """What is not named gets its default, what is empty is empty, options may be named by their labels."""
    fields = normalize_form(ACCESS)["fields"]
    values, wrong = check_form(
        fields, {"system": "database", "reason": "On call\nthis week", "urgent": "", "scopes": []}
    )
    assert not wrong
    assert values == {"system": "db", "days": 7, "reason": "On call\nthis week", "urgent": None, "scopes": []}
    assert form_text(fields, values) == (
        "System: Database · Days: 7 · Reason: On call this week · Urgent: – · Scopes: –"
    )


def test_every_wrong_field_is_told_by_itself() -> None:
    """One sentence a field, for all fields at once; an unknown name is told with the nearest one."""
    fields = normalize_form(ACCESS)["fields"]
    values, wrong = check_form(
        fields,
        {"system": "mail", "days": 99, "reason": " ", "scopes": ["read", "write", "admin"], "urgnt": True},
    )
    assert wrong == {
        "system": "Choose one of: Database, Web.",
        "days": "The maximum is 30.",
        "reason": "Please fill this in.",
        "scopes": "Choose at most 2; you chose 3.",
        "urgnt": "There is no such field (did you mean `urgent`?).",
    }
    assert "days" not in values


@pytest.mark.parametrize(
    ("body", "typed", "value"),
    [
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "3", 3),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string"}, "  a b ", "a b"),
        ({"type": "string", "format": "email"}, "ana@example.com", "ana@example.com"),
        ({"type": "string", "format": "uri"}, "https://example.com/a?b=1", "https://example.com/a?b=1"),
        ({"type": "string", "format": "date"}, "2026-11-24", "2026-11-24"),
        ({"type": "string", "format": "date"}, "November 24th, 2026", "2026-11-24"),
        ({"type": "string", "format": "date"}, "24 Nov 2026", "2026-11-24"),
        ({"type": "string", "format": "date-time"}, "2026-11-24T15:00:00Z", "2026-11-24T15:00:00.000Z"),
        ({"type": "string", "format": "date-time"}, "2026-11-24 16:00+01:00", "2026-11-24T15:00:00.000Z"),
        ({"type": "string", "format": "date-time"}, "2026-11-24 15:00 UTC", "2026-11-24T15:00:00.000Z"),
        ({"type": "string", "format": "user"}, "<@U012ABC|ana>", "U012ABC"),
        ({"type": "string", "format": "channel"}, "<#C012ABC|ops>", "C012ABC"),
        ({"type": "string", "pattern": r"^OPS-\d+$"}, "OPS-12", "OPS-12"),
        ({"type": "string", "enum": ["eu", "us"], "enumNames": ["Europe", "America"]}, "europe", "eu"),
        ({"type": "string", "enum": ["eu", "us"], "enumNames": ["Europe", "America"]}, "US", "us"),
        ({"type": "string", "enum": ["eu", "us"]}, "2", "us"),
        ({"type": "integer", "enum": [1, 2, 4]}, "2", 2),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "c, A", ["a", "c"]),
        ({"type": "array", "items": {"enum": ["Rome, Italy", "Oslo"]}}, "oslo, rome, italy", ["Rome, Italy", "Oslo"]),
    ],
)  # fmt: skip
def test_what_is_typed_becomes_a_value(body: Json, typed: str, value: Json) -> None:
    """A typed reply is read by the field's type."""
    assert parse_typed(field(**body), typed) == value


@pytest.mark.parametrize(
    ("body", "typed", "words"),
    [
        ({"type": "integer"}, "1,200", "Write a whole number in digits only, such as 1200."),
        ({"type": "integer"}, "2.0", "whole number"),
        ({"type": "integer"}, "٣", "whole number"),
        ({"type": "integer"}, "9" * 5_000, "whole number"),
        ({"type": "integer"}, "9" * 25, "too large"),
        ({"type": "number"}, "1.000,5", "Write a number with a decimal point"),
        ({"type": "number"}, "1e999", "too large"),
        ({"type": "number"}, "nan", "Write a number"),
        ({"type": "number", "minimum": 2.5}, "2", "The minimum is 2.5."),
        ({"type": "boolean"}, "maybe", "Answer with yes or no."),
        ({"type": "string"}, "   ", "The answer is empty."),
        ({"type": "string", "maxLength": 3}, "abcd", "Write at most 3 characters; this has 4."),
        ({"type": "string", "minLength": 2}, "a", "Write at least 2 characters; this has 1."),
        ({"type": "string"}, "😀" * 1_501, "Write at most 3,000 characters"),
        ({"type": "string", "format": "email"}, "ana@example", "Write an e-mail address"),
        ({"type": "string", "format": "uri"}, "example.com", "such as https://example.com"),
        ({"type": "string", "format": "uri"}, "https://", "such as https://example.com"),
        ({"type": "string", "format": "date"}, "2026-02-30", "Write a date as year-month-day"),
        ({"type": "string", "format": "date"}, "11/24/2026", "Write a date as year-month-day"),
        ({"type": "string", "format": "date-time"}, "2026-11-24 15:00", "with its offset"),
        ({"type": "string", "format": "date-time"}, "0001-01-01T00:00:00+23:00", "Write date and time"),
        ({"type": "string", "format": "user"}, "@ana", "Choose a person"),
        ({"type": "string", "format": "channel"}, "#ops", "Choose a channel"),
        ({"type": "string", "enum": ["eu", "us"], "enumNames": ["Europe", "America"]}, "europa", "Did you mean Europe?"),
        ({"type": "string", "enum": ["a", "A b"], "enumNames": ["x", "a"]}, "a", "Choose one of: x, a."),
        ({"type": "integer", "enum": [4, 8]}, "1", "Choose one of: 4, 8."),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "a", "Choose at least 2; you chose 1."),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a, d", "Choose one of: a, b."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(body: Json, typed: str, words: str) -> None:
    """A typed reply that does not fit says what would be right, and is never guessed at."""
    with pytest.raises(InvalidAnswer, match=re.escape(words)):
        parse_typed(field(**body), typed)


def test_an_option_is_meant_only_where_no_other_could_be() -> None:
    """A text that is one option's label and another's value, or a number among numbers, means none of them."""
    options = [{"value": "no", "label": "Yes"}, {"value": "yes", "label": "No"}]
    assert match_option(options, "yes") is None
    assert (
        match_option([{"value": "v2", "label": "2"}, {"value": "x", "label": "x"}], "1", by_number=True)
        is None
    )
    assert match_option([{"value": "a", "label": "Go"}, {"value": "b", "label": "go"}], "go") == {
        "value": "b", "label": "go",
    }  # fmt: skip
    assert match_option([{"value": "a", "label": "Go"}, {"value": "b", "label": "go"}], "GO") is None


# --- for all forms -----------------------------------------------------------------------------------------


@settings(max_examples=tries(150))
@given(form=anything())
def test_any_form_is_sound_or_has_a_fault(form: Any) -> None:
    """Whatever is in a file: it has faults, or it can be settled; nothing is raised but what is said."""
    faults = list(form_faults(form))
    if not faults and isinstance(form, dict) and "{{" not in repr(form):
        assert normalize_form(form)["fields"]


@settings(max_examples=tries(150))
@given(data=st.data())
def test_any_values_are_read_or_refused_field_by_field(data: st.DataObject) -> None:
    """Whatever is filled in, each field has a value or a sentence; what was read is read again as the same."""
    fields = normalize_form(data.draw(written_forms()))["fields"]
    names = st.sampled_from([entry["name"] for entry in fields])
    given_values = data.draw(st.dictionaries(names | st.text(max_size=5), anything(), max_size=6))
    values, wrong = check_form(fields, given_values)
    assert {entry["name"] for entry in fields} == (values.keys() | wrong.keys()) & {e["name"] for e in fields}
    assert not values.keys() & wrong.keys()
    assert all(sentence.strip() for sentence in wrong.values())
    assert copy(values) == values
    kept = {entry["name"]: values[entry["name"]] for entry in fields if entry["name"] in values}
    again, more = check_form(fields, kept)
    assert {name: again[name] for name in kept} == kept
    assert not more.keys() & kept.keys()
    form_text(fields, values)


@settings(max_examples=tries(100))
@given(form=written_forms())
def test_the_defaults_of_a_form_fit_it(form: Any) -> None:
    """What `on_timeout: default` takes is what somebody could have filled in, except where a field needs a person."""
    fields = normalize_form(form)["fields"]
    values, wrong = check_form(fields, {})
    taken = defaults(fields)
    assert {name: value for name, value in taken.items() if name in values} == values
    assert all(entry["required"] for entry in fields if entry["name"] in wrong)


def test_an_option_that_is_empty_is_called_so() -> None:
    """Lines of an empty output give one empty option: what is wrong is that it is empty, not that it lacks quotes."""
    (fault,) = form_faults({"properties": {"host": {"type": "string", "enum": [""]}}})
    assert (fault.message, fault.hint) == ("expected text that is not empty, not the text ''", None)
