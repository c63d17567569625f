"""One name may be composed in two ways (`é` as one character, or as a Mac writes it): it is compared as one, and handed
over as the flow has it. Numbers are compared by what they are worth, and an integer beyond 64 bits is refused."""

from __future__ import annotations

import unicodedata

import pytest

from engine.decide.policy import _matches
from engine.flow.inputs import parse_input
from engine.flow.model import Input
from engine.forms import match_option, parse_typed
from engine.forms.definition import form_faults
from engine.forms.parse import read_value
from engine.forms.question import choice_answer
from engine.language.actors import Actor
from engine.language.codec import Json, decode, lines_of, place_of, read, same
from engine.language.errors import Inexact, InvalidAnswer, InvalidInputs, NotJson
from tests.engine.test_forms import field
from tests.flow.flowkit import failure
from tests.support.engine import given

ONE = "Münster"
TWO = unicodedata.normalize("NFD", ONE)
WAYS = pytest.mark.parametrize(("written", "typed"), [(ONE, TWO), (TWO, ONE), (TWO, TWO), (ONE, ONE)])


@WAYS
def test_a_choice_of_an_input_is_given_in_any_composition(written: str, typed: str) -> None:
    """An input with choices takes the other composition, and the flow gets its own."""
    entry = Input("city", "string", choices=("Bonn", written))
    assert parse_input(entry, typed) == written
    many = Input("cities", "array", items="string", choices=("Bonn", written))
    assert parse_input(many, f"Bonn,{typed}") == ["Bonn", written]
    with pytest.raises(InvalidInputs):
        parse_input(entry, "Munster")


@WAYS
def test_an_option_of_a_form_is_chosen_in_any_composition(written: str, typed: str) -> None:
    """Values, labels, lists and typed words of a form's options are compared as one name."""
    one = field(type="string", enum=["Bonn", written])
    assert parse_typed(one, typed) == read_value(one, typed) == written
    several = field(type="array", items={"type": "string", "enum": ["Bonn", written]})
    assert parse_typed(several, f"bonn, {typed.lower()}") == ["Bonn", written]
    labelled = [{"value": "m", "label": written}, {"value": "b", "label": "Bonn"}]
    assert match_option(labelled, typed) == labelled[0]


@WAYS
def test_an_answer_with_a_choice_keeps_the_spelling_of_the_flow(written: str, typed: str) -> None:
    """A question with choices takes the other composition, typed or as a value; its answer is the flow's own."""
    case = given(
        f"nodes: [{{id: where, type: ask, with: {{message: Where?, choices: [Bonn, {written}]}}}}]"
    ).started()
    for value, text in ((typed, None), (None, typed)):
        assert choice_answer(case.prompt, value, text)["value"] == written


@WAYS
def test_a_case_of_a_switch_is_found_in_any_composition(written: str, typed: str) -> None:
    """The case that is taken is named as the flow names it."""
    case = given(
        f"inputs: {{city: {{}}}}\nnodes: [{{id: s, type: switch, with: {{on: '{{{{ inputs.city }}}}'}}, "
        f"cases: {{{written}: [{{id: a, type: noop}}]}}}}]"
    ).started(city=typed)
    assert case.node("s").output["case"] == written


@WAYS
def test_people_and_groups_are_known_in_any_composition(written: str, typed: str) -> None:
    """A person at the terminal, and a group, is who the flow names."""
    local = Actor.local(typed)
    assert _matches(local, f"local:{written}", None)  # type: ignore[arg-type]  # nobody asks for the target
    member = Actor("U1", groups=frozenset({typed}), facts_known=True)
    assert _matches(member, f"@{written}", None)  # type: ignore[arg-type]  # nobody asks for the target
    assert not _matches(member, "@Munster", None)  # type: ignore[arg-type]  # nobody asks for the target


def test_options_that_are_one_name_stand_there_twice() -> None:
    """Two compositions of one name are no two options."""
    assert any(
        "twice" in fault.message
        for fault in form_faults({"properties": {"x": {"type": "string", "enum": [ONE, TWO]}}})
    )
    flow = f"flow: f\nnodes: [{{id: a, type: ask, with: {{message: Where?, choices: [{ONE}, {TWO}]}}}}]"
    assert "appears twice" in str(failure(flow))


@pytest.mark.parametrize(
    ("left", "right", "are"),
    [
        (1, 1.0, True), (1, True, False), (0, False, False), ([1, {"a": 2.0}], [1.0, {"a": 2}], True), ("1", 1, False),
        ([1], [True], False), (None, None, True), ({"a": 1}, {"a": 1, "b": 2}, False), ((1, 2), [1, 2], True),
    ],
)  # fmt: skip
def test_values_are_equal_by_what_they_are_worth(left: Json, right: Json, are: bool) -> None:
    """1 is 1.0 wherever they stand, and true and false are no numbers."""
    assert same(left, right) is are


@pytest.mark.parametrize(
    ("on", "case"),
    [
        ("2 / 2", "1"),
        ("4 // 2", "2"),
        ("5 / 2", "2.5"),
        ("'1.0' | fromjson", "1"),
        ("'true' | fromjson", "true"),
        ("'null' | fromjson", "null"),
        ("'-0.0' | fromjson", "0"),
    ],
)
def test_a_number_takes_the_case_of_its_worth(on: str, case: str) -> None:
    """A number that a division gave finds the case of the whole number that it is."""
    cases = "".join(
        f"      '{each}': [{{id: c{index}, type: noop}}]\n"
        for index, each in enumerate(("1", "2", "2.5", "true", "null", "0"))
    )
    flow = f'nodes:\n  - id: s\n    type: switch\n    with: {{on: "{{{{ {on} }}}}"}}\n    cases:\n{cases}'
    assert given(flow).started().node("s").output["case"] == case


def test_a_case_in_digits_that_no_number_has_is_refused() -> None:
    """A number is never `3.10` or `007` as text, so the case would be passed over."""
    flow = "flow: f\ninputs: {n: {type: number}}\nnodes:\n  - id: s\n    type: switch\n    with: {on: '{{ inputs.n }}'}\n"
    flow += "    cases: {%s: [{id: a, type: noop}]}\n"
    for written, meant in (("3.10", "3.1"), ("3.0", "3"), ("1e3", "1000")):
        assert f"write it as `{meant}`" in str(failure(flow % written))
    assert failure(flow % "3.5") is None


def test_a_choice_is_found_by_its_worth() -> None:
    """A choice that is a number is given as 2 or as 2.0, and handed over as the flow has it."""
    assert repr(parse_input(Input("n", "number", choices=(1, 2)), "2.0")) == "2"
    assert place_of(True, [1, 2]) is None


TOO_LARGE = [2**64, -(2**63) - 1, 10**30]


@pytest.mark.parametrize("number", TOO_LARGE)
def test_an_integer_beyond_64_bits_is_refused_and_never_rounded(number: int) -> None:
    """JSON of others, inputs and fields of forms refuse what they could not hand over exactly."""
    for text in (f"{number}", f'{{"a": [{number}]}}', f"[1.5, {number}]"):
        with pytest.raises(Inexact, match="does not fit in 64 bits"):
            read(text.encode())
        with pytest.raises(Inexact):
            read(text)
    for kind in ("number", "integer"):
        with pytest.raises(InvalidInputs):
            parse_input(Input("n", kind), str(number))
        for given_ in (number, str(number)):
            with pytest.raises(InvalidAnswer, match="too large"):
                read_value(field(type=kind), given_)
    with pytest.raises(InvalidInputs, match="64 bits"):
        parse_input(Input("o", "object"), f'{{"a": {number}}}')


@pytest.mark.parametrize(
    "text",
    ["18446744073709551615", "-9223372036854775808", '"12345678901234567890123"', "0.12345678901234567890", "1e25",
     '{"12345678901234567890123": 1}', "12345678901234567890.5", "[1234567890123456789]"],
)  # fmt: skip
def test_what_64_bits_hold_is_read_as_before(text: str) -> None:
    """Long digits in texts, keys and fractions are no integers, and the limits themselves fit."""
    assert repr(read(text)) == repr(decode(text.encode()))


def test_what_is_no_json_is_told_as_such() -> None:
    """A text that is cut off, or nested too deeply, is not JSON."""
    for text in ("{", "[" * 5000 + "1" * 20 + "]" * 5000, "1" * 5000 + "x"):
        with pytest.raises(NotJson):
            read(text)


def test_only_line_feeds_end_lines() -> None:
    """Other characters that Python takes for ends of lines are part of a line."""
    assert lines_of("a\u2028b\x85c\x0b\x0c\x1c\x1d\x1ed\re\r\nf\n\ng") == [
        "a\u2028b\x85c\x0b\x0c\x1c\x1d\x1ed\re",
        "f",
        "",
        "g",
    ]
    assert [lines_of(text) for text in ("", "\n", "a\n")] == [[], [""], ["a"]]
