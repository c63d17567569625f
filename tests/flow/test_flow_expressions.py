"""`{{ }}`: what expressions give, what they refuse, and that data never becomes code."""

from __future__ import annotations

import time
import timeit
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.language.codec import Json, copy, encode
from engine.language.errors import ExpressionError
from engine.language.expressions import compile_condition, compile_value, evaluate_condition, inspect_text
from engine.language.filters import FILTERS, TESTS
from engine.language.template import BadExpression, Segment, split_text
from engine.language.value_types import MAX_BYTES
from tests.support.proving import tries

CONTEXT: dict[str, Json] = {
    "inputs": {
        "name": "api",
        "count": 3,
        "ratio": 0.5,
        "sure": True,
        "none": None,
        "list": [3, 1, 2],
        "people": [{"name": "Ana", "age": 40}, {"name": "Ben", "age": 30}],
        "map": {"values": 1, "items": [2], "keys": {"get": 3}, "a b": 4},
        "evil": "{{ 7 * 7 }}{% for x in range(9) %}",
        "big": "x" * 1000,
    },
    "nodes": {"gate": None, "run": {"stdout": "one\ntwo\n", "json": {"items": {"a": [{"b": "deep"}]}}}},
    "status": {"gate": "skipped"},
}


def value_of(text: Json) -> Json:
    """The value of a text's expressions in the context of these tests."""
    return compile_value(text).evaluate(CONTEXT)


GIVES: list[tuple[str, Json]] = [
    # One expression keeps its type.
    ("{{ inputs.count }}", 3), ("{{ inputs.ratio }}", 0.5), ("{{ inputs.sure }}", True), ("{{ inputs.none }}", None),
    ("{{ inputs.list }}", [3, 1, 2]), ("{{ inputs.map }}", CONTEXT["inputs"]["map"]), ("{{inputs.name}}", "api"),
    ("  {{ inputs.count }}\n", 3), ("{{ '3' }}", "3"), ("{{ '[1, 2]' }}", "[1, 2]"), ("{{ inputs }}", CONTEXT["inputs"]),
    # In mixed text, what is not text appears as JSON.
    ("a {{ inputs.count }}", "a 3"), ("{{ inputs.sure }}!", "true!"), ("<{{ inputs.none }}>", "<null>"),
    ("{{ inputs.list }} {{ inputs.name }}", "[3,1,2] api"), ("x{{ inputs.map.keys }}", 'x{"get":3}'),
    # Attribute access is item access and nothing else.
    ("{{ inputs.map.values }}", 1), ("{{ inputs.map.items }}", [2]), ("{{ inputs.map.keys.get }}", 3),
    ("{{ inputs['map']['a b'] }}", 4), ("{{ nodes.run.json.items.a[0].b }}", "deep"), ("{{ inputs.list.0 }}", 3),
    ("{{ inputs.list[-1] }}", 2), ("{{ inputs.list[1:] }}", [1, 2]), ("{{ inputs.name[0] }}", "a"),
    ("{{ inputs.people[0]['na' ~ 'me'] }}", "Ana"),
    # Operators.
    ("{{ inputs.count + 1 }}", 4), ("{{ inputs.count == 3 and not inputs.sure }}", False), ("{{ 7 // 2 }}", 3),
    ("{{ 7 / 2 }}", 3.5), ("{{ 7 % 4 }}", 3), ("{{ 2 ** 10 }}", 1024), ("{{ 1 < 2 <= 2 }}", True), ("{{ -inputs.count }}", -3),
    ("{{ 'a' in ['a'] }}", True), ("{{ 'p' not in inputs.name }}", False), ("{{ 'yes' if inputs.sure else 'no' }}", "yes"),
    ("{{ inputs.name ~ '-' ~ inputs.count ~ inputs.sure }}", "api-3true"), ("{{ 'ab' * 2 }}", "abab"),
    ("{{ [1, inputs.count] }}", [1, 3]), ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}), ("{{ (1, 2) }}", [1, 2]),
    ("{{ null }}", None), ("{{ none }}", None), ("{{ true }}", True),
    # `~` joins as mixed text does, wherever it stands.
    ("{{ {'a': 'x' ~ true}['a'] ~ ('b' ~ none) }}", "xtruebnull"), ("{{ ['a', 'b'] | join('-' ~ false) }}", "a-falseb"),
    ("{{ 'x' ~ 1 == 'x1' }}", True), ("{{ inputs.people | map(attribute='na' ~ 'me') | first ~ 1 }}", "Ana1"),
    ("{{ ('a' ~ 1) is startswith('a' ~ 1) }}", True), ("{{ ('ab' ~ 1)[0:('1' ~ '') | int] }}", "a"),
    # Quotes, braces and line breaks inside an expression.
    ("{{ '}}' }}", "}}"), ("{{ '{{' }}", "{{"), ("{{ \"it's\" }}", "it's"), ("{{ 'a\\'}}' }}", "a'}}"),
    ("{{\n  inputs.count\n  + 1\n}}", 4), ("a}} {{ 1 }} }}", "a}} 1 }}"), ("{ {{ 1 }} }", "{ 1 }"), ("{{ 1 }}{{ 2 }}", "12"),
    # What is only text.
    ("${#list[@]} {# x #} {% x", "${#list[@]} {# x #} {% x"), ("}}", "}}"), ("{", "{"), ("", ""),
    ("{{ 1 }} {# {{ 2 }} #} {%x%}", "1 {# 2 #} {%x%}"),
    # Data that looks like code.
    ("{{ inputs.evil }}", CONTEXT["inputs"]["evil"]), ("a{{ inputs.evil }}", "a" + CONTEXT["inputs"]["evil"]),
    ("{{ inputs.evil | upper }}", CONTEXT["inputs"]["evil"].upper()),
    # Undefined is fine where it is asked for.
    ("{{ inputs.missing | default('x') }}", "x"), ("{{ inputs.missing is defined }}", False), ("{{ nodes.gate.x | default(0) }}", 0),
    ("{{ inputs.missing is undefined }}", True), ("{{ inputs.none | default('x', true) }}", "x"), ("{{ inputs.none | default('x') }}", None),
    # The only function.
    ("{{ range(3) }}", [0, 1, 2]), ("{{ range(1, 7, 3) | join('-') }}", "1-4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), GIVES)
def test_an_expression_gives_its_value(text: str, value: Json) -> None:
    """The table of what expressions give, with the type."""
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


FILTERED: list[tuple[str, str, Json]] = [
    ("after", "{{ '2026-11-21T22:40:00Z' | after('20m') }}", "2026-11-21T23:00:00.000Z"),
    ("before", "{{ '2026-11-21T22:40:00Z' | before(60) }}", "2026-11-21T22:39:00.000Z"),
    ("since", "{{ '2026-11-21T22:40:00Z' | since('2026-11-21T22:39:00Z') }}", 60.0), ("duration", "{{ 5400 | duration }}", "1h30m"),
    ("date", "{{ '2026-11-21T22:40:00Z' | date }}", "2026-11-21"), ("match", "{{ 'v12' | match('v([0-9]+)') }}", ["v12", "12"]),
    ("project", "{{ [{'a': {'b': 1}}] | project(c='a.b') }}", [{"c": 1}]),
    ("abs", "{{ -3 | abs }}", 3), ("capitalize", "{{ 'aBC' | capitalize }}", "Abc"), ("default", "{{ inputs.q | default(1) }}", 1),
    ("dictsort", "{{ {'b': 1, 'a': 2} | dictsort }}", [["a", 2], ["b", 1]]), ("filesizeformat", "{{ 13400 | filesizeformat }}", "13.4 kB"),
    ("first", "{{ inputs.list | first }}", 3), ("float", "{{ '2.5' | float }}", 2.5), ("float", "{{ 'x' | float(0) }}", 0),
    ("format", "{{ '%s: %.1f %d%% %05d' | format('a', 1.25, 3, 7) }}", "a: 1.2 3% 00007"),
    ("format", "{{ '%s %s %s' | format(true, none, [1]) }}", "true null [1]"),
    ("fromjson", "{{ '{\"a\": [1]}' | fromjson }}", {"a": [1]}), ("fromjson", "{{ 'x' | fromjson(none) }}", None),
    ("int", "{{ ' 42 ' | int }}", 42), ("int", "{{ 'x' | int(0) }}", 0), ("int", "{{ 3.9 | int }}", 3),
    ("items", "{{ {'a': 1} | items }}", [["a", 1]]), ("join", "{{ inputs.list | join(', ') }}", "3, 1, 2"),
    ("join", "{{ inputs.people | join(' ', attribute='name') }}", "Ana Ben"), ("join", "{{ [true, none, 'a', [1]] | join }}", "truenulla[1]"),
    ("last", "{{ inputs.list | last }}", 2), ("length", "{{ inputs.people | length }}", 2), ("length", "{{ inputs.name | length }}", 3),
    ("lines", "{{ nodes.run.stdout | lines }}", ["one", "two"]), ("list", "{{ 'ab' | list }}", ["a", "b"]), ("list", "{{ {'a': 1} | list }}", ["a"]),
    ("lower", "{{ 'ABC' | lower }}", "abc"), ("map", "{{ inputs.people | map(attribute='name') }}", ["Ana", "Ben"]),
    ("map", "{{ ['a'] | map('upper') }}", ["A"]), ("map", "{{ [{}, {'a': 1}] | map(attribute='a', default=0) }}", [0, 1]),
    ("moment", "{{ '2026-11-21T23:40:00+01:00' | moment }}", "2026-11-21T22:40:00.000Z"), ("max", "{{ inputs.list | max }}", 3), ("max", "{{ (inputs.people | max(attribute='age')).name }}", "Ana"), ("min", "{{ inputs.list | min }}", 1),
    ("reject", "{{ [1, none, 2] | reject('none') }}", [1, 2]), ("rejectattr", "{{ inputs.people | rejectattr('age', 'gt', 35) | length }}", 1),
    ("replace", "{{ 'aaa' | replace('a', 'b', 2) }}", "bba"), ("reverse", "{{ 'abc' | reverse }}", "cba"), ("reverse", "{{ [1, 2] | reverse }}", [2, 1]),
    ("round", "{{ 2.567 | round }}", 3), ("round", "{{ 2.567 | round(2) }}", 2.57), ("round", "{{ 2.51 | round(1, 'ceil') }}", 2.6),
    ("round", "{{ 2.9 | round(0, 'floor') }}", 2), ("select", "{{ inputs.list | select('gt', 1) }}", [3, 2]),
    ("selectattr", "{{ inputs.people | selectattr('name', 'eq', 'Ben') | first }}", {"name": "Ben", "age": 30}),
    ("sort", "{{ inputs.list | sort }}", [1, 2, 3]), ("sort", "{{ inputs.people | sort(attribute='age') | map(attribute='name') }}", ["Ben", "Ana"]),
    ("split", "{{ 'a,b' | split(',') }}", ["a", "b"]), ("split", "{{ ' a  b ' | split }}", ["a", "b"]), ("string", "{{ inputs.sure | string }}", "true"),
    ("sum", "{{ inputs.list | sum }}", 6), ("sum", "{{ inputs.people | sum(attribute='age') }}", 70), ("title", "{{ 'an api' | title }}", "An Api"),
    ("tojson", "{{ {'a': none} | tojson }}", '{"a":null}'), ("tojson", "{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
    ("trim", "{{ ' a ' | trim }}", "a"), ("trim", "{{ '--a-' | trim('-') }}", "a"), ("truncate", "{{ inputs.big | truncate(8) | length }}", 8),
    ("unique", "{{ [1, 1, {'a': 1}, {'a': 1}] | unique }}", [1, {"a": 1}]), ("upper", "{{ inputs.name | upper }}", "API"),
    ("urlencode", "{{ 'a b&c' | urlencode }}", "a%20b%26c"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), FILTERED)
def test_a_filter_does_what_the_reference_says(name: str, text: str, value: Json) -> None:
    """Each filter of the closed list, on JSON values, giving a JSON value."""
    assert f"| {name}" in text
    assert value_of(text) == value


def test_every_filter_is_tested() -> None:
    """The table above has every filter that expressions have."""
    assert {name for name, _, _ in FILTERED} == set(FILTERS)


IS: list[tuple[str, bool]] = [
    ("1 is defined", True), ("inputs.q is undefined", True), ("none is none", True), ("true is boolean", True),
    ("1.5 is number", True), ("1 is integer", True), ("1.0 is float", True), ("'a' is string", True),
    ("{} is mapping", True), ("[] is sequence", True), ("1 is true", False), ("false is false", True), ("2 is even", True),
    ("2 is odd", False), ("9 is divisibleby(3)", True), ("1 is in([1])", True), ("'v1' is startswith('v')", True),
    ("'a.yml' is endswith('.yml')", True), ("1 is eq(1)", True), ("1 is ne(1)", False), ("1 is lt(2)", True),
    ("1 is le(0)", False), ("1 is gt(0)", True), ("1 is ge(2)", False), ("'x' is not none", True), ("'v12' is matching('[0-9]')", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), IS)
def test_a_test_does_what_the_reference_says(text: str, value: bool) -> None:
    """Each test of the closed list gives true or false."""
    assert value_of("{{ " + text + " }}") is value


def test_every_test_is_tested() -> None:
    """The table above has every test that expressions have."""
    assert {text.split(" is ")[1].removeprefix("not ").split("(")[0] for text, _ in IS} == set(TESTS)


# --- refusals when a flow is loaded ----------------------------------------------------------------------

BAD: list[tuple[str, str]] = [
    ("{{ }}", "empty"), ("{{ inputs.name", "never closed"), ("{{ 'a }}", "never closed"), ("{{ (1 }}", "never closed"),
    ("{{ 1 2 }}", "unexpected `2`"), ("{{ inputs. }}", "cannot read"), ("{{ 1 + }}", "cannot read"), ("{{- 1 }}", "with a space"),
    ("{{ a.b() }}", "no methods"), ("{{ 'a'.upper() }}", "use the filter: `... | upper`"), ("{{ now() }}", "`now` cannot be called"),
    ("{{ (range)(3)(1) }}", "cannot be called"), ("{{ x | random }}", "unknown filter `random`"), ("{{ x | lenght }}", "did you mean `length`"),
    ("{{ x | attr('y') }}", "unknown filter"), ("{{ x | xmlattr }}", "unknown filter"), ("{{ x is fine }}", "unknown test"),
    ("{{ self }}", "unknown name"), ("{{ _x }}", "unknown name"), ("{{ __class__ }}", "unknown name"), ("{{ range(*[1]) }}", "before an argument"),
    ("{{ x | join(**{}) }}", "before an argument"), ("{% if a %}{% endif %}", "statements"), ("{{ a && b }}", "write `a and b`"),
    ("{{ !a }}", "write `not a`"), ("{{.Names}}", "literal braces"),
    ("{{ " + "-" * 100 + "1 }}", "deeper"), ("{{ " + "1+" * 5000 + "1 }}", "longer"), ("{{ " + "not " * 100 + "x }}", "deeper"),
    ("{{ '\\ud800' }}", "Unicode"), ("{{ " + "[" * 500 + "]" * 500 + " }}", "deeper"), ("{{ " + "9" * 5000 + " }}", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BAD)
def test_what_is_no_expression_is_refused_when_it_is_compiled(text: str, words: str) -> None:
    """Syntax, calls, filters, depth and length are checked before anything is evaluated."""
    with pytest.raises(BadExpression) as caught:
        compile_value(text)
    assert words in str(caught.value)


def test_all_that_is_wrong_in_a_text_is_found_with_its_place() -> None:
    """Each broken expression of a text is reported where it begins; the sound ones give their names."""
    bad, used = inspect_text("a {{ }} {{ inputs.name }} {{ x | y }}")
    assert [error.offset for error in bad] == [2, 26]
    assert [(segment.offset, reference.path) for segment, reference in used] == [(8, ("inputs", "name"))]


def test_compiling_evaluates_nothing() -> None:
    """A constant that would fail or cost is compiled without being computed."""
    compiled = compile_value("{{ 1 / 0 }} {{ 'a' * 10 ** 9 }} {{ range(10 ** 9) }}")
    with pytest.raises(ExpressionError):
        compiled.evaluate({})


# --- refusals when it is evaluated -----------------------------------------------------------------------

FAILS: list[tuple[str, str]] = [
    ("{{ inputs.nmae }}", "`inputs.nmae` is undefined; did you mean `name`?"),
    ("{{ inputs.nmae | upper }}", "`inputs.nmae` is undefined; did you mean `name`?"),
    ("{{ inputs.missing.deeper }}", "`inputs.missing` is undefined"),
    ("{{ nodes.gate.decision }}", "`nodes.gate` is null (the node was skipped or failed) and has no `decision`"),
    ("{{ nodes.gate.decision == 'approve' }}", "`nodes.gate` is null"),
    ("{{ inputs.none.x }}", "`inputs.none` is null and has no `x`"),
    ("{{ inputs.name.upper }}", "`inputs.name` is the text 'api' and has no `upper`"),
    ("{{ inputs.list.append }}", "`inputs.list` is a list and has no `append`"),
    ("{{ inputs.list[9] + 1 }}", "list"),
    ("{{ inputs.name['__class__'] }}", "`__class__`"), ("{{ inputs.map.__len__ }}", "`inputs.map.__len__` is undefined"),
    ("{{ inputs.list[true] }}", "a list of 3 has no `true`"), ("{{ (inputs.map)[1] }}", "has no item 1"),
    ("{{ unknown }}", "`unknown` is undefined"), ("{{ [unknown] }}", "`unknown` is undefined"), ("{{ 1 + 'a' }}", "`+` cannot take the number 1 and the text 'a'"),
    ("{{ 1 / 0 }}", "division by zero"), ("{{ 1 if false }}", "else"), ("{{ 'x' | int }}", "'x' is not a whole number; int(0)"),
    ("{{ 'nan' | float }}", "not a number"), ("{{ 'x' | fromjson }}", "not JSON"), ("{{ 'NaN' | fromjson }}", "not JSON"),
    ("{{ [] | first }}", "the list is empty"), ("{{ [1, 'a'] | sort }}", "the filter `sort` cannot take a list of 2"), ("{{ range }}", "`range` is undefined"),
    ("{{ 1e308 * 10 }}", "inf"), ("{{ 9 ** 25 }}", "64 bits"), ("{{ {1: 2} }}", "key that is not text"), ("{{ inputs.q | items }}", "`inputs.q` is undefined"),
    ("{{ inputs.q | length }}", "`inputs.q` is undefined"), ("{{ 'a' % 1 }}", "format"), ("{{ inputs.list | map('nope') }}", "nope"),
    ("{{ inputs.people | map(attribute='nmae') }}", "nmae"), ("{{ 'a' | round }}", ""), ("{{ '%s %s' | format(1) }}", "the filter `format` cannot take"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), FAILS)
def test_what_cannot_be_evaluated_says_why(text: str, words: str) -> None:
    """The error holds the expression, and what was undefined with the nearest name or what went wrong."""
    with pytest.raises(ExpressionError) as caught:
        value_of(text)
    assert words in str(caught.value)
    assert text.strip("{} ")[:40] in str(caught.value)


BOMBS = [
    "{{ 'a' * 10 ** 9 }}", "{{ [0] * 10 ** 9 }}", "{{ 10 ** 9 * 'a' }}", "{{ 2 ** 10 ** 9 }}", "{{ 9 ** 9 ** 9 ** 9 }}",
    "{{ range(10 ** 9) }}", "{{ '%1000000000d' | format(1) }}", "{{ '%*d' | format(9, 1) }}", "{{ '%.999999999f' | format(1) }}",
    "{{ 'a' * 1000000 | replace('a', 'b' * 1000000) }}", "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
    "{{ range(10000) | join('a' * 1000000) }}", "{{ ['a' * 1000000] * 10000 }}", "{{ ['a' * 1000000] * 10000 | join }}",
    "{{ (['a' * 1000000] * 9999) | map('upper') | length }}", "{{ ([[0] * 9999] * 9999) | length ~ ([[0] * 9999] * 9999) }}",
    "{{ 'a' * 2000000 }}", "{{ ('a' * 1000000) ~ ('b' * 1000000) }}", "{{ 1.5 | round(10 ** 9, 'ceil') }}", "{{ ('1' * 5000) | int }}",
    "{{ [1] | tojson(indent=1000000000) }}", "{{ (['a' * 1000000] * 9999) | tojson }}", "{{ (['a' * 1000000] * 9999) | string }}",
    "{{ 'a' * 600000 }}{{ 'b' * 600000 }}", "{{ ('é' * 600000) }}",
]  # fmt: skip


@pytest.mark.parametrize("text", BOMBS)
def test_a_bomb_is_refused_before_it_is_built(text: str) -> None:
    """A result that would exceed 1 MiB is an error within a few milliseconds."""
    compiled = compile_value(text)
    began = time.process_time()
    with pytest.raises(ExpressionError):
        compiled.evaluate(CONTEXT)
    # Generous for a slow machine: unguarded, these take gigabytes or forever.
    assert time.process_time() - began < 2


def test_a_value_from_outside_is_bounded_too() -> None:
    """A lookup gives at most 1 MiB, however large the output is that it looks into."""
    exact = {"inputs": {"a": "x" * MAX_BYTES, "b": "x" * (MAX_BYTES + 1), "c": ["x" * 1000] * 2000}}
    assert compile_value("{{ inputs.a }}").evaluate(exact) == exact["inputs"]["a"]
    for name in "bc":
        with pytest.raises(ExpressionError, match="1 MiB"):
            compile_value("{{ inputs." + name + " }}").evaluate(exact)


# --- values, names and conditions ------------------------------------------------------------------------


def test_expressions_are_found_anywhere_in_a_value() -> None:
    """Lists and mappings are evaluated part by part; keys and what is not text stay as they are."""
    raw: Json = {"a": ["{{ inputs.count }}", 1, None], "{{ x }}": {"b": "n={{ inputs.count }}"}, "c": True}
    before = copy(raw)
    compiled = compile_value(raw)
    assert compiled.evaluate(CONTEXT) == {"a": [3, 1, None], "{{ x }}": {"b": "n=3"}, "c": True}
    assert raw == before
    assert compiled.names == {("inputs", "count")}


def test_a_constant_costs_nothing() -> None:
    """Without an expression the value itself comes back, not a copy."""
    raw: Json = {"a": ["b", {"c": 1}]}
    compiled = compile_value(raw)
    assert compiled.constant
    assert compiled.evaluate({}) is raw


def test_evaluating_leaves_the_context_alone() -> None:
    """No expression changes what it reads, whatever it computes."""
    before = copy(CONTEXT)
    for text, _ in GIVES:
        value_of(text)
    for _, text, _ in FILTERED:
        value_of(text)
    assert before == CONTEXT


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{ nodes.a.b.c }}", {("nodes", "a", "b", "c")}),
        ("{{ nodes['a'].b[0].c + inputs.x }}", {("nodes", "a", "b"), ("inputs", "x")}),
        ("{{ nodes[inputs.x].y }}", {("nodes",), ("inputs", "x")}),
        ("{{ [1, {'k': status.a}] | map(attribute=inputs.x) }}", {("status", "a"), ("inputs", "x")}),
        (
            "{{ a if b else c }} {{ range(d) }} {{ e[f:g] }}",
            {("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)},
        ),
        ("{{ x is divisibleby(y) }} {{ z | default(w) }} {{ null }}", {("x",), ("y",), ("z",), ("w",)}),
        ("text", set()),
    ],
)
def test_the_names_of_an_expression_are_known(text: str, names: set[tuple[str, ...]]) -> None:
    """Each name with its constant fields; a computed field ends the path."""
    assert compile_value(text).names == names


class Lazy(Mapping[str, Any]):
    """A mapping that is not a dict, as the engine may give for `nodes`."""

    def __getitem__(self, key: str) -> Any:
        if key != "a":
            raise KeyError(key)
        return {"b": 1}

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("text", "value"), [("{{ nodes.a.b }}", 1), ("{{ nodes.a.b + 1 }}", 2), ("{{ nodes }}", {"a": {"b": 1}})]
)
def test_a_context_may_have_mappings_of_its_own(text: str, value: Json) -> None:
    """Any mapping can be in a context; what comes out is plain JSON."""
    found = compile_value(text).evaluate({"nodes": Lazy()})
    assert encode(found) == encode(value)


def test_a_condition_is_true_or_false() -> None:
    """The result of a condition is that boolean; a constant boolean is a condition too."""
    assert evaluate_condition(compile_condition("{{ inputs.count > 2 }}"), CONTEXT) is True
    assert evaluate_condition(compile_condition(" {{ inputs.sure and false }}\n"), CONTEXT) is False
    assert evaluate_condition(compile_condition(False), CONTEXT) is False


@pytest.mark.parametrize(
    "text",
    ["{{ inputs.name }}", "{{ 1 }}", "{{ inputs.none }}", "{{ [] }}", "{{ inputs.sure and inputs.name }}"],
)
def test_a_condition_that_is_no_boolean_is_an_error(text: str) -> None:
    """Text, numbers and null are neither true nor false; the error names the node."""
    with pytest.raises(ExpressionError, match=r"^node `a`: the condition .* must be true or false, but gave"):
        evaluate_condition(compile_condition(text), CONTEXT, "node `a`")


def test_a_condition_that_fails_names_the_node() -> None:
    """An undefined name in a condition is an error of that node."""
    with pytest.raises(ExpressionError, match=r"^node `a`: .*did you mean `name`"):
        evaluate_condition(compile_condition("{{ inputs.nmae == 1 }}"), CONTEXT, "node `a`")


@pytest.mark.parametrize(
    "raw", ["inputs.sure", "", "true", "a {{ inputs.sure }}", "{{ a }} {{ b }}", 1, None, ["{{ a }}"]]
)
def test_what_is_no_condition_is_refused_when_the_flow_is_loaded(raw: Json) -> None:
    """A condition is one expression, or a boolean."""
    with pytest.raises(BadExpression):
        compile_condition(raw)


def test_a_lookup_is_fast() -> None:
    """A plain path costs some microseconds, far below what a node costs."""
    compiled = compile_value("{{ inputs.name }}")
    assert min(timeit.repeat(lambda: compiled.evaluate(CONTEXT), number=1000, repeat=5)) / 1000 < 50e-6


# --- fuzz ------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["{{ ", " }}", "{{", "}}", "inputs", ".", "name", "list", "nodes.gate", "[", "]", "(", ")", "0", "-1", "'a'", "'", '"', " | ",
     "upper", "join", "map", "default(1)", "int", "tojson", "range(9)", " + ", " * ", "**", "~", " if ", " else ", " is ", "defined",
     "{", "}", ":", ",", "%", "{%", "%}", "{#", "\\", "not ", "true", "none", "secrets.A", "__class__", "\n", "é", "9" * 40, "1e400"]
)  # fmt: skip


@settings(max_examples=tries(600))
@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_gives_json_or_an_expression_error(text: str) -> None:
    """Whatever is written, compiling and evaluating give a JSON value or an `ExpressionError`, and nothing else."""
    try:
        value = compile_value(text).evaluate(CONTEXT)
    except ExpressionError:
        return
    encode(value)


JSON_DATA: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["{{ inputs }}", "{% x %}", "[1, 2]", "true"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=tries(300))
@given(JSON_DATA)
def test_data_comes_out_as_it_went_in(data: Json) -> None:
    """Any JSON value is itself after a lookup, a computed lookup, and a round through `tojson`."""
    context = {"inputs": {"x": data}}
    for text in ("{{ inputs.x }}", "{{ inputs['x'] if true else 1 }}", "{{ inputs.x | tojson | fromjson }}"):
        assert encode(compile_value(text).evaluate(context)) == encode(data)


@given(st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join))
def test_the_parts_of_a_text_make_the_text(text: str) -> None:
    """Splitting loses nothing: literal parts and expressions, put together, are the text."""
    try:
        parts = split_text(text)
    except BadExpression:
        return
    assert "".join(part.text if isinstance(part, Segment) else part for part in parts) == text
