"""What a start gives, read by the types of the inputs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.flow import coerce_inputs, parse_input
from engine.flow.load import load_flow
from engine.language.codec import Json, encode
from engine.language.errors import InvalidInputs
from tests.support.proving import tries

FLOW = load_flow(
    """
flow: typed
inputs:
  text: {}
  number: {type: number, required: false}
  count: {type: integer, default: 3}
  sure: {type: boolean, default: false}
  names: {type: array, items: {type: string}, required: false}
  sizes: {type: array, items: {type: integer}, default: [1]}
  extra: {type: object, required: false}
  mode: {choices: [fast, slow], default: fast}
  regions: {type: array, choices: [eu, us], default: []}
nodes: [{id: a, type: noop}]
""",
    "typed.yml",
)

READ: list[tuple[str, Json, Json]] = [
    ("text", "12", "12"), ("text", "", ""), ("text", " a ", " a "), ("text", "a\x00b", "a\ufffdb"),
    ("number", "2.5", 2.5), ("number", "3", 3), ("number", 4, 4), ("number", "-1e3", -1000.0),
    ("count", "3", 3), ("count", " +7 ", 7), ("count", 7, 7), ("count", "-2", -2),
    ("sure", "yes", True), ("sure", "TRUE", True), ("sure", "on", True), ("sure", "n", False), ("sure", "0", False),
    ("sure", True, True),
    ("names", "a, b ,c", ["a", "b", "c"]), ("names", '["a", "b, c"]', ["a", "b, c"]), ("names", "", []),
    ("names", "one", ["one"]), ("names", ["x"], ["x"]), ("names", "1,2", ["1", "2"]),
    ("sizes", "1,2", [1, 2]), ("sizes", "[1, 2]", [1, 2]),
    ("extra", '{"a": [1]}', {"a": [1]}), ("extra", {"a": 1}, {"a": 1}),
    ("mode", "slow", "slow"), ("regions", "us,eu", ["us", "eu"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given_", "value"), READ)
def test_text_is_read_by_the_type_of_its_input(name: str, given_: Json, value: Json) -> None:
    """What people write in chat becomes a value of the input's type; JSON stays what it is."""
    read = parse_input(FLOW.inputs[name], given_)
    assert read == value
    assert type(read) is type(value)


REFUSED: list[tuple[str, Json]] = [
    ("text", 3), ("text", None), ("number", "three"), ("number", "1e999"), ("number", True), ("number", "nan"),
    ("count", "3.5"), ("count", "3.0"), ("count", True), ("count", "9" * 30), ("count", ""), ("count", None),
    ("sure", "maybe"), ("sure", 1), ("names", [1]), ("names", "[1"), ("sizes", "a"),
    ("sizes", ["1"]), ("extra", "[1]"), ("extra", "a=b"), ("extra", []), ("mode", "medium"), ("mode", ""),
    ("regions", "eu,asia"), ("regions", [["eu"]]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given_"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(name: str, given_: Json) -> None:
    """A value of another type names the input and what it takes."""
    with pytest.raises(InvalidInputs, match=f"input `{name}`: expected"):
        parse_input(FLOW.inputs[name], given_)


def test_a_start_gets_defaults_nulls_and_what_is_missing() -> None:
    """Not given: the default, null where it is not required, and the names of what must still be asked."""
    values, missing = coerce_inputs(FLOW, {"count": "5"})
    assert missing == ["text"]
    assert values == {
        "number": None, "count": 5, "sure": False, "names": None, "sizes": [1], "extra": None,
        "mode": "fast", "regions": [],
    }  # fmt: skip


def test_a_default_is_a_copy() -> None:
    """Changing a value of one start leaves the flow's default alone."""
    first, _ = coerce_inputs(FLOW, {})
    first["sizes"].append(2)
    assert coerce_inputs(FLOW, {})[0]["sizes"] == [1]


def test_all_that_is_wrong_is_said_at_once_with_suggestions() -> None:
    """Unknown names come with the nearest one, wrong values with what is expected, in one error."""
    with pytest.raises(InvalidInputs) as caught:
        coerce_inputs(FLOW, {"cuont": "1", "sure": "perhaps", "xyz": ""})
    lines = str(caught.value).splitlines()
    assert lines[0] == "unknown input `cuont` (did you mean `count`?)"
    assert lines[1].startswith("unknown input `xyz` (expected one of: count,")
    assert lines[2] == "input `sure`: expected true or false, not the text 'perhaps'"


def test_a_flow_without_inputs_says_so() -> None:
    """An input for a flow that takes none is refused in these words."""
    flow = load_flow("flow: none\nnodes: [{id: a, type: noop}]\n", "f.yml")
    with pytest.raises(InvalidInputs, match="flow `none` takes no inputs"):
        coerce_inputs(flow, {"a": "1"})


@settings(max_examples=tries(200))
@given(st.sampled_from(sorted(FLOW.inputs)), st.text(max_size=40))
def test_any_text_is_a_value_or_refused(name: str, text: str) -> None:
    """Whatever people type gives a value that can be stored, or `InvalidInputs`."""
    try:
        value = parse_input(FLOW.inputs[name], text)
    except InvalidInputs:
        return
    encode(value)
