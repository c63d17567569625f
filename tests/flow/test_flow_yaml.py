"""YAML as flows use it: the core schema, places, limits, and nothing that can hurt."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.flow.load import load_flow
from engine.language.codec import Json, encode
from engine.language.errors import FlowError
from engine.language.yaml import MAX_BYTES, MAX_DEPTH, decode_source, load_located
from tests.flow.flowkit import SOUND, failure
from tests.support.proving import tries

CORE_SCHEMA: list[tuple[str, Json]] = [
    ("on", "on"), ("off", "off"), ("yes", "yes"), ("No", "No"), ("y", "y"),
    ("true", True), ("True", True), ("TRUE", True), ("tRUE", "tRUE"), ("false", False), ("False", False),
    ("null", None), ("~", None), ("Null", None), ("", None), ("nil", "nil"), ("none", "none"),
    ("12:30", "12:30"), ("1:20:30", "1:20:30"), ("2026-11-21", "2026-11-21"),
    ("2026-11-21T22:40:00Z", "2026-11-21T22:40:00Z"), ("<<", "<<"), ("=", "="),
    ("12", 12), ("-7", -7), ("+7", 7), ("007", 7), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"), ("1_000", "1_000"),
    ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("-1.5E-2", -0.015), ("1e", "1e"), (".", "."),
    ("1.2.3", "1.2.3"), ("9223372036854775807", 9223372036854775807),
    ("'12'", "12"), ('"true"', "true"), ("''", ""), ("|\n    12\n", "12\n"), (">-\n    a\n    b\n", "a b"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), CORE_SCHEMA)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(written: str, value: Json) -> None:
    """Only null, booleans and numbers of the core schema are no text; quoting makes text of everything."""
    data = load_located(f"key: {written}\n", "f.yml").data
    assert data == {"key": value}
    assert type(data["key"]) is type(value)


def test_keys_are_text_as_written() -> None:
    """A key is the text that is there, also when it looks like a number, a boolean or a merge."""
    assert load_located("1: a\ntrue: b\n<<: c\n12:30: d\n", "f.yml").data == {
        "1": "a",
        "true": "b",
        "<<": "c",
        "12:30": "d",
    }


def test_places_of_keys_and_values_count_from_one_in_characters() -> None:
    """Every key and value has its line and column; a letter of several bytes is one column."""
    located = load_located("ä: {b: [x, 'y']}\nc:\n  - d: 1\n", "f.yml")
    assert located.keys[("ä", "b")][:2] == (1, 5)
    assert located.spans[("ä", "b", 1)][0][:2] == (1, 12)
    assert located.keys[("c", 0, "d")][:2] == (3, 5)
    assert located.spans[("c", 0, "d")][0][:2] == (3, 8)


def test_a_byte_order_mark_is_not_content() -> None:
    """A file that begins with a UTF-8 byte order mark reads as one without, with the same columns."""
    text = decode_source(b"\xef\xbb\xbfflow: a\n", "f.yml")
    located = load_located(text, "f.yml")
    assert located.data == {"flow": "a"}
    assert located.spans[("flow",)][0][:2] == (1, 7)
    assert load_located("\ufeffflow: a\n", "f.yml").data == {"flow": "a"}


@pytest.mark.parametrize(
    ("data", "place"),
    [(b"flow: a\nx: \xff\n", (2, 4)), ("flow: a".encode("utf-16"), (1, 1)), (b"a" * (MAX_BYTES + 1), (1, 1))],
)
def test_bytes_that_are_no_text_are_refused_with_their_place(data: bytes, place: tuple[int, int]) -> None:
    """What is not UTF-8, or too large, is an error of the file that says where."""
    with pytest.raises(FlowError) as caught:
        decode_source(data, "f.yml")
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == place


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\ud800", "\uffff"])
def test_control_characters_are_refused_with_their_place(character: str) -> None:
    """A NUL, a bell, a lone surrogate: named by its number, at its line and column."""
    with pytest.raises(FlowError) as caught:
        load_located(f"a: 1\nbc: x{character}\n", "f.yml")
    problem = caught.value.problems[0]
    assert (problem.line, problem.column) == (2, 6)
    assert f"U+{ord(character):04X}" in problem.message


@pytest.mark.parametrize("escape", ["\\0", "\\ud800", "\\x00"])
def test_escapes_cannot_bring_in_what_could_not_be_stored(escape: str) -> None:
    """A NUL or a lone surrogate is refused behind an escape too."""
    with pytest.raises(FlowError):
        load_located(f'a: "x{escape}y"\n', "f.yml")


def _bombs() -> dict[str, str]:
    laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    return {
        "billion laughs": laughs,
        "deep lists": "[" * 100_000,
        "deep mappings": "{a: " * 50_000,
        "deep blocks": "- " * 100_000,
        "deep keys": "? " * 100_000,
        "indented": "\n".join(" " * depth + "a:" for depth in range(500)),
        "merge": "a: &a {b: 1}\nc:\n  <<: *a\n",
        "constructor": "!!python/object/apply:os.system [id]\n",
        "local tag": "a: !secret x\n",
        "binary": "a: !!binary aGVsbG8=\n",
        "self": "&a [*a]\n",
        "quotes": "'" * 200_000,
        "colons": "a: " * 80_000,
        "many documents": "---\n" * 60_000,
        "many keys twice": "a: 1\n" * 40_000,
        "percent": "%" * 200_000,
    }


@pytest.mark.parametrize("name", _bombs())
def test_a_bomb_is_refused_quickly_and_says_where(name: str) -> None:
    """Aliases, tags, depth and floods of tokens are refused at their place, long before they cost anything."""
    text = _bombs()[name]
    began = time.process_time()
    with pytest.raises(FlowError) as caught:
        load_flow(text, "bomb.yml")
    # Generous for a slow machine: unguarded, the worst of these needs minutes or kills the process.
    assert time.process_time() - began < 3
    assert len(caught.value.problems) <= 40


@pytest.mark.parametrize(("depth", "fits"), [(MAX_DEPTH - 1, True), (MAX_DEPTH, False)])
def test_depth_is_bounded_exactly(depth: int, fits: bool) -> None:
    """A mapping and so many lists in it make 64 levels; one more is an error."""
    text = "a: " + "[" * depth + "]" * depth
    if fits:
        assert load_located(text, "f.yml").data is not None
    else:
        with pytest.raises(FlowError, match="deeper than 64"):
            load_located(text, "f.yml")


def test_size_is_bounded_in_bytes() -> None:
    """256 KiB are read, one byte more is not, and letters count as the bytes they are."""
    assert load_located("a: " + "x" * (MAX_BYTES - 3), "f.yml").data
    for text in ("a: " + "x" * (MAX_BYTES - 2), "a: " + "ä" * (MAX_BYTES // 2)):
        with pytest.raises(FlowError, match="256 KiB"):
            load_located(text, "f.yml")


def test_several_duplicate_keys_are_all_reported() -> None:
    """Each key that stands twice is its own problem; the data keeps the first."""
    located = load_located("a: 1\na: 2\nb: {c: 1, c: 2}\n", "f.yml")
    assert [(each.line, each.column) for each in located.problems] == [(2, 1), (3, 11)]
    assert located.data == {"a": 1, "b": {"c": 1}}


@pytest.mark.parametrize("name", SOUND)
def test_both_parsers_read_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound flow is the same data at the same places with and without libyaml."""
    fast = load_located(SOUND[name], "f.yml")
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    slow = load_located(SOUND[name], "f.yml")
    assert slow.data == fast.data
    assert slow.keys == fast.keys
    assert {path: start for path, (start, _) in slow.spans.items()} == {
        path: start for path, (start, _) in fast.spans.items()
    }


YAML_PIECES = st.sampled_from(
    ["flow: a", "nodes:", "- id: x", "  type: ask", "\n", "  ", "- ", ": ", "{", "}", "[", "]", ",", "'", '"', "|", ">",
     "&a", "*a", "!t", "<<", "#", "%YAML", "---", "...", "\t", "?", "{{ ", " }}", "{{ inputs.x }}", "with:", "\ufeff",
     "\x00", "\u2028", "\\", "@", "`", "~", "1e999", "0x", "true", "if: ", "inputs: {", "é", "\r\n"]
)  # fmt: skip


@settings(max_examples=tries(400))
@given(st.one_of(st.text(max_size=200), st.lists(YAML_PIECES, max_size=40).map("".join)))
def test_any_text_is_a_flow_or_a_flow_error(text: str) -> None:
    """Whatever is in a file, loading gives a flow or a `FlowError` with places, and never another exception."""
    error = failure(text)
    assert error is None or error.problems
    assert error is None or all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)


@settings(max_examples=tries(150))
@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_a_flow_error(data: bytes) -> None:
    """Any bytes decode to clean text or raise a `FlowError`."""
    try:
        located = load_located(decode_source(data, "fuzz.yml"), "fuzz.yml")
    except FlowError:
        return
    encode(located.data)


@settings(max_examples=tries(100))
@given(st.lists(YAML_PIECES, max_size=30).map("".join))
def test_any_text_is_taken_by_the_slow_parser_too(text: str) -> None:
    """Without libyaml as well there is no other exception."""
    fast = yaml.__dict__.pop("CSafeLoader", None)
    try:
        error = failure(text)
        assert error is None or error.problems
    finally:
        if fast is not None:
            yaml.CSafeLoader = fast  # type: ignore[misc]  # put back what PyYAML exports
