"""Node types: what their `with` takes when a flow is loaded and when it is run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.language.codec import Json, encode
from engine.nodes.runtime.table import runners
from engine.nodes.types.registry import INTERNAL, TYPES, node_types
from engine.nodes.types.spec import PARTS, InvalidConfig
from tests.support.proving import tries

NO_CLOCKS: dict[str, Json] = {"remind_every": None, "escalate": None, "hours": None}
ASK: dict[str, Json] = {
    "message": "How?",
    "choices": None,
    "own_words": False,
    "form": None,
    "accept": ["text"],
    "max_files": 10,
    "max_size": 10 * 2**20,
    "who": None,
    "timeout": None,
    "on_timeout": "fail",
    **NO_CLOCKS,
    "default": None,
}
"""What an `ask` gets that says nothing but its message."""

SETTLED: list[tuple[str, dict[str, Json], dict[str, Json]]] = [
    ("ask", {"message": "How?"}, ASK),
    (
        "ask",
        {
            "message": "How?",
            "choices": ["a", {"value": "b", "label": "Bee", "style": "danger"}],
            "timeout": "1m",
        },
        {
            **ASK,
            "choices": [
                {"value": "a", "label": "a", "style": None},
                {"value": "b", "label": "Bee", "style": "danger"},
            ],
            "timeout": 60.0,
        },
    ),
    (
        "approval",
        {"message": "Go?", "approvers": ["@sre"]},
        {
            "message": "Go?",
            "approvers": ["@sre"],
            "exclude_requester": False,
            "required": 1,
            "veto": "any",
            "form": None,
            "editable": [],
            "require_reason": False,
            "covers": None,
            "on_reject": "stop",
            "valid_for": 86400.0,
            "approve_label": "Approve",
            "reject_label": "Reject",
            "style": "primary",
            "timeout": None,
            "on_timeout": "fail",
            **NO_CLOCKS,
        },
    ),
    ("message", {"text": "hello"}, {"text": "hello"}),
    (
        "shell",
        {
            "run": ["sleep", 1, True],
            "env": {"A": 1, "B": 2.5, "C": False},
            "max_output": "1KiB",
        },
        {
            "run": ["sleep", "1", "true"],
            "script": None,
            "env": {"A": "1", "B": "2.5", "C": "false"},
            "cwd": None,
            "ok_codes": [0],
            "max_output": 1024,
            "stdin": None,
            "progress": False,
        },
    ),
    (
        "http",
        {"url": "https://a", "query": {"a": 1, "b": [1, "x"], "c": None}, "json": {"a": [1]}},
        {
            "method": "GET",
            "url": "https://a",
            "headers": {},
            "query": {"a": "1", "b": ["1", "x"], "c": None},
            "body": None,
            "json": {"a": [1]},
            "ok_status": None,
            "max_body": 262144,
            "allow_hosts": [],
        },
    ),
    ("set", {"a": 1, "values": {"b": [None]}}, {"a": 1, "values": {"b": [None]}}),
    ("wait", {"for": "1h"}, {"for": 3600.0, "until": None}),
    ("wait", {"for": "0s"}, {"for": 0.0, "until": None}),
    ("wait", {"until": "2026-12-01T08:00:00+01:00"}, {"for": None, "until": "2026-12-01T07:00:00.000Z"}),
    ("fail", {"message": "no"}, {"message": "no"}),
    ("noop", {}, {}),
    ("end", {}, {"output": None}),
    ("end", {"output": [1]}, {"output": [1]}),
]


@pytest.mark.parametrize(("kind", "with_", "settled"), SETTLED)
def test_a_configuration_is_settled_with_units_and_defaults(
    kind: str, with_: dict[str, Json], settled: dict[str, Json]
) -> None:
    """What a runner gets: every field, durations in seconds, sizes in bytes, arguments as text."""
    spec = node_types()[kind]
    assert spec.check(with_) == []
    assert spec.normalize(with_) == settled
    encode(settled)


WRONG: list[tuple[str, dict[str, Json], str]] = [
    ("ask", {}, "`message` is missing"),
    ("ask", {"message": ""}, "message: expected text that is not empty"),
    ("ask", {"message": 3}, "message: expected text, not the number 3 (quote it)"),
    ("ask", {"message": "a", "choices": []}, "choices: expected at least 1 entry"),
    (
        "ask",
        {"message": "a", "choices": [str(n) for n in range(26)]},
        "choices: expected at most 25 entries, not 26",
    ),
    (
        "ask",
        {"message": "a", "choices": ["x" * 76]},
        "choices[0].label: the text is longer than 75 characters",
    ),
    ("ask", {"message": "a", "choices": [{"label": "b"}]}, "choices[0]: `value` is missing"),
    (
        "ask",
        {"message": "a", "timeout": "0s"},
        "timeout: expected a duration longer than zero, such as 30m",
    ),
    ("ask", {"message": "a", "own_words": True}, "`own_words` needs `choices`"),
    ("ask", {"message": "a", "who": ["ben"]}, "who[0]: the text 'ben' does not name a person"),
    ("approval", {"message": "a", "approvers": "@sre"}, "approvers: expected a list, not the text '@sre'"),
    (
        "approval",
        {"message": "a", "approvers": ["@sre"], "exclude_requester": "yes"},
        "exclude_requester: expected true or",
    ),
    (
        "approval",
        {"message": "a", "approvers": ["@sre"], "approve_label": "Reject"},
        "both buttons have the same label",
    ),
    ("shell", {"run": [None]}, "run[0]: expected text, not nothing (null)"),
    ("shell", {"run": [["a"]]}, "run[0]: expected text, not a list"),
    ("shell", {"run": ["a"], "ok_codes": [True]}, "ok_codes[0]: expected a whole number, not true"),
    ("shell", {"run": ["a"], "ok_codes": ["0"]}, "ok_codes[0]: expected a whole number, not the text '0'"),
    ("shell", {"run": ["a"], "max_output": 0}, "max_output: expected a size from 1B to 16MiB, not 0"),
    ("shell", {"run": ["a"], "env": {"A": None}}, "env.A: expected text, not nothing (null)"),
    ("shell", {"script": "#!bash\nls"}, "script: the first line does not name a program that can run it"),
    ("shell", {"script": "#!\nls"}, "script: the first line does not name a program that can run it"),
    ("http", {"url": "ftp://a"}, "url: expected an address that begins with http"),
    ("http", {"url": "http://a", "query": {"a": {"b": 1}}}, "query.a: expected text, not a mapping"),
    ("http", {"url": "http://a", "ok_status": [99]}, "ok_status[0]: expected at least 100, not 99"),
    ("wait", {"for": 5}, "for: 5 has no unit: write 5s, 5m, 5h or 5d"),
    ("wait", {"for": "1m", "until": "2026-12-01T08:00:00Z"}, "`for` and `until` cannot be used together"),
    ("wait", {}, "`for` or `until` is missing"),
    ("noop", {"a": 1}, "a: unknown field `a`"),
    ("set", {"A b": 1}, "'A b' is not a valid name for a value"),
]


@pytest.mark.parametrize(("kind", "with_", "words"), WRONG)
def test_a_wrong_configuration_is_refused_at_load_and_at_run(
    kind: str, with_: dict[str, Json], words: str
) -> None:
    """The error names the field; loading finds what running would."""
    spec = node_types()[kind]
    assert spec.check(with_)
    with pytest.raises(InvalidConfig) as caught:
        spec.validate(with_)
    assert words in str(caught.value)


OPEN: list[tuple[str, dict[str, Json]]] = [
    ("ask", {"message": "{{ inputs.a }}", "choices": "{{ inputs.a }}", "timeout": "{{ inputs.a }}"}),
    ("ask", {"message": "a", "choices": ["{{ inputs.a }}" + "x" * 80, "{{ inputs.b }}"]}),
    ("approval", {"message": "a", "approvers": ["{{ inputs.a }}"], "exclude_requester": "{{ inputs.a }}"}),
    (
        "shell",
        {
            "run": "{{ inputs.a }}",
            "ok_codes": "{{ inputs.a }}",
            "max_output": "{{ inputs.a }}",
            "env": "{{ x }}",
        },
    ),
    ("shell", {"run": ["a"], "ok_codes": ["{{ inputs.a }}"], "stdin": "{{ inputs.a }}"}),
    (
        "http",
        {"url": "{{ inputs.a }}", "method": "{{ inputs.a }}", "ok_status": ["{{ x }}"], "query": "{{ x }}"},
    ),
    ("wait", {"for": "{{ inputs.a }}"}),
    ("wait", {"until": "{{ inputs.a }}"}),
]


@pytest.mark.parametrize(("kind", "with_"), OPEN)
def test_an_expression_may_stand_for_any_value(kind: str, with_: dict[str, Json]) -> None:
    """At load, what an expression will decide is left open, in fields of every type."""
    assert node_types()[kind].check(with_) == []


@pytest.mark.parametrize(
    ("with_", "words"),
    [
        ({"run": "{{ inputs.a }}", "runn": 1}, "unknown field `runn`"),
        ({"run": ["a"], "ok_codes": ["{{ inputs.a }}", -1]}, "expected at least 0"),
        ({"script": "{{ inputs.a }}"}, "a script cannot use `{{ }}`"),
        ({"run": "{{ inputs.a }}", "script": "a"}, "cannot be used together"),
    ],
)
def test_the_rest_is_checked_although_there_are_expressions(with_: dict[str, Json], words: str) -> None:
    """An expression in one field hides no mistake in another."""
    (fault,) = node_types()["shell"].check(with_)
    assert words in fault.message


def test_an_evaluated_value_of_the_wrong_type_is_refused() -> None:
    """Text that looks like a list, a number or a boolean is still text after evaluation."""
    for config in (
        {"run": '["ls"]'},
        {"run": ["ls"], "ok_codes": "[0]"},
        {"run": ["ls"], "max_output": "12"},
    ):
        with pytest.raises(InvalidConfig):
            node_types()["shell"].normalize(config)


def test_every_type_documents_its_fields_and_outputs() -> None:
    """Each type has a description, each field one, and outputs that a person can give are complete."""
    for spec in node_types().values():
        assert spec.doc.endswith(".")
        fields = spec.config.model_json_schema().get("properties", {}).values()
        assert all("description" in field for field in fields)
        if spec.mode == "run":
            assert spec.outputs is not None
            assert set(spec.unknown_output) == set(spec.outputs)
        encode(dict(spec.unknown_output))


def test_only_runners_have_effects_that_a_crash_makes_uncertain() -> None:
    """Whatever the engine does itself runs again by default."""
    for spec in node_types().values():
        if spec.mode != "run":
            assert spec.on_crash({}) == "again"


def test_the_registry_cannot_be_changed() -> None:
    """Node types are what they are while the program runs."""
    with pytest.raises(TypeError):
        node_types()["mine"] = node_types()["set"]  # type: ignore[index]  # the point of the test


JSON_VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=tries(300))
@given(st.sampled_from(sorted(node_types())), st.data())
def test_any_configuration_is_settled_or_refused(kind: str, data: st.DataObject) -> None:
    """Whatever is under `with`, the result is JSON or `InvalidConfig`; what loads clean without expressions runs."""
    spec = node_types()[kind]
    names = st.sampled_from([*spec.field_names(), "other"])
    with_ = data.draw(st.dictionaries(names, JSON_VALUES, max_size=5))
    faults = spec.check(with_)
    try:
        spec.normalize(with_)
    except InvalidConfig:
        assert faults or any("{{" in repr(value) for value in with_.values())
    else:
        assert not faults


@pytest.mark.parametrize("name", [*TYPES, *INTERNAL])
def test_a_spec_speaks_of_fields_that_there_are(name: str) -> None:
    """What a type says of its fields is about fields of its config; what is static is not evaluated either."""
    spec = node_types()[name]
    said = spec.secret_fields | spec.verbatim_fields | spec.sparse_fields | spec.previewed | {*spec.markup}
    assert said | {*spec.node_fields} <= set(spec.field_names())
    assert spec.static_fields | spec.condition_fields | spec.schema_fields <= spec.verbatim_fields
    assert set(spec.required_parts) <= set(spec.parts) <= set(PARTS)


@pytest.mark.parametrize("name", [name for name, mode in {**TYPES, **INTERNAL}.items() if mode == "run"])
def test_what_runs_outside_has_a_runner(name: str) -> None:
    """A runner is known by its type, but for those that need a model or servers."""
    assert (name in runners()) == (name not in ("turn", "mcp"))
