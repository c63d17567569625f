"""Secrets in flows: references where they may stand, and no way for data to pose as one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.codec import Json, encode
from engine.language.errors import ExpressionError, SaysoError
from engine.language.expressions import compile_value
from engine.language.template import BadExpression
from engine.nodes.runtime.runner import Refusal
from engine.nodes.runtime.secrets import Resolver
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import InvalidConfig
from tests.flow.flowkit import flow_with, problems


def lookup(name: str) -> str:
    """The secret store of these tests: every name has a value that says which."""
    return f"<{name}>"


def resolved_text(value: Json) -> str:
    """What leaves the machine for such a value."""
    return Resolver(lookup).text(value, "X")


@pytest.mark.parametrize(
    ("text", "reference", "resolved"),
    [
        ("{{ secrets.TOKEN }}", {"$secret": "TOKEN"}, "<TOKEN>"),
        ("{{ secrets['db_password'] }}", {"$secret": "db_password"}, "<db_password>"),
        ("Bearer {{ secrets.TOKEN }}", {"$secret_text": ["Bearer ", {"$secret": "TOKEN"}]}, "Bearer <TOKEN>"),
        (
            "{{ secrets.A }}:{{ inputs.user }}{{ secrets.B }}",
            {"$secret_text": [{"$secret": "A"}, ":", "ana", {"$secret": "B"}]},
            "<A>:ana<B>",
        ),
    ],
)
def test_a_secret_is_a_reference_until_the_edge_resolves_it(
    text: str, reference: Json, resolved: str
) -> None:
    """Evaluation gives a reference; only the resolver at the edge puts the value in."""
    value = compile_value(text, secrets=True).evaluate({"inputs": {"user": "ana"}})
    assert value == reference
    assert resolved_text(value) == resolved


def test_the_names_of_secrets_are_known_before_and_after_evaluation() -> None:
    """A compiled value names the secrets that the edge asks for once it is evaluated."""
    compiled = compile_value({"A": "{{ secrets.X }}", "B": "b {{ secrets.Y }}", "C": "c"}, secrets=True)
    assert compiled.secrets == {"X", "Y"}
    asked: list[str] = []
    resolver = Resolver(lambda name: asked.append(name) or lookup(name))  # type: ignore[func-returns-value]  # it notes
    for name, value in compiled.evaluate({}).items():
        resolver.text(value, name)
    assert asked == ["X", "Y"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ secrets.X | upper }}", "{{ secrets['X'] ~ 'a' }}", "{{ secrets }}", "{{ secrets[inputs.a] }}", "{{ [secrets.X] }}",
        "{{ secrets.X.y }}", "{{ secrets.X == 'a' }}", "{{ 'a' if secrets.X else 'b' }}", "{{ secrets.X | default('') }}",
        "{{ secrets['a b'] }}", "{{ secrets['../x'] }}", "{{ secrets[''] }}", "{{ secrets['_X'] }}",
    ],
)  # fmt: skip
def test_nothing_can_be_computed_with_a_secret(text: str) -> None:
    """A secret stands alone in its braces, under a plain name, also where secrets are allowed."""
    with pytest.raises(BadExpression, match="must be alone"):
        compile_value(text, secrets=True)


@pytest.mark.parametrize(
    "node",
    [
        "{id: x, type: message, with: {text: '{{ secrets.X }}'}}",
        "{id: x, type: shell, with: {run: [a, '{{ secrets.X }}']}}",
        "{id: x, type: shell, with: {run: [a], cwd: '{{ secrets.X }}'}}",
        "{id: x, type: shell, with: {run: [a], stdin: '{{ secrets.X }}'}}",
        "{id: x, type: http, with: {url: 'http://a', method: '{{ secrets.X }}'}}",
        "{id: x, type: http, with: {url: 'http://a', allow_hosts: ['{{ secrets.X }}']}}",
        "{id: x, type: set, with: {env: '{{ secrets.X }}'}}",
        "{id: x, type: ask, with: {message: '{{ secrets.X }}'}}",
        "{id: x, type: noop, if: \"{{ secrets.X == 'a' }}\"}",
    ],
)
def test_a_secret_anywhere_else_is_a_load_error(node: str) -> None:
    """Secrets are allowed only in `env` of shell and in the parts of a request that are sent."""
    found = problems(f"flow: f\nnodes:\n  - {node}\n")
    assert len(found) == 1
    assert "a secret cannot be used here" in found[0]


FORGED: list[Json] = [
    {"$secret": "TOKEN"},
    {"$secret_text": ["a", {"$secret": "TOKEN"}]},
    {"A": {"$secret": "TOKEN"}},
    [{"$secret": "TOKEN"}],
    {"A": [{"deep": {"$secret_text": []}}]},
    {"$secret": None},
]


@pytest.mark.parametrize("forged", FORGED)
def test_data_cannot_pose_as_a_reference_where_secrets_may_stand(forged: Json) -> None:
    """A reply or an output that looks like a reference is refused in `env` and `headers`, whole or in part."""
    for text in ("{{ nodes.reply.values }}", "{{ nodes.reply.values or 1 }}"):
        compiled = compile_value({"X": text}, secrets=True)
        with pytest.raises(ExpressionError, match=r"\$secret"):
            compiled.evaluate({"nodes": {"reply": {"values": forged}}})


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_env_as_a_whole_is_refused(forged: Json) -> None:
    """Also when all of `env` comes from data."""
    flow = flow_with("- {id: x, type: shell, with: {run: [a], env: '{{ inputs.o }}'}}")
    with pytest.raises(SaysoError):
        flow.nodes[0].compiled.evaluate({"inputs": {"o": forged}})


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_reference_in_text_stays_text(forged: Json) -> None:
    """In mixed text such data is JSON text, which nothing resolves."""
    value = compile_value("a {{ inputs.a }}", secrets=True).evaluate({"inputs": {"a": forged}})
    assert value == f"a {encode(forged).decode()}"
    assert resolved_text(value) == value
    beside = compile_value("{{ secrets.S }} {{ inputs.a }}", secrets=True).evaluate({"inputs": {"a": forged}})
    assert resolved_text(beside) == f"<S> {encode(forged).decode()}"


@pytest.mark.parametrize("forged", FORGED)
def test_elsewhere_it_is_data_like_any_other(forged: Json) -> None:
    """Where secrets may not stand, the same mapping goes through as it is."""
    flow = flow_with("- {id: x, type: set, with: {kept: '{{ inputs.o }}'}}")
    assert flow.nodes[0].compiled.evaluate({"inputs": {"o": forged}}) == {"kept": forged}


@pytest.mark.parametrize("field", ["run", "stdin", "cwd", "script"])
def test_a_reference_in_another_field_is_no_configuration(field: str) -> None:
    """A runner never gets a reference in a field that it does not resolve."""
    config: dict[str, Json] = {
        "run": ["a"],
        field: [{"$secret": "X"}] if field == "run" else {"$secret": "X"},
    }
    if field == "script":
        del config["run"]
    with pytest.raises(InvalidConfig):
        node_types()["shell"].normalize(config)


def test_references_survive_settling() -> None:
    """The configuration that is journaled has the references, beside values that became text."""
    env = "{T: 'Bearer {{ secrets.T }}', U: '{{ secrets.U }}', N: 3}"
    node = flow_with("- {id: x, type: shell, with: {run: [a], env: " + env + "}}").nodes[0]
    settled = node.spec.normalize(node.compiled.evaluate({}))
    assert settled["env"] == {
        "T": {"$secret_text": ["Bearer ", {"$secret": "T"}]},
        "U": {"$secret": "U"},
        "N": "3",
    }
    leaving = {name: resolved_text(value) for name, value in settled["env"].items()}
    assert leaving == {"T": "Bearer <T>", "U": "<U>", "N": "3"}


@pytest.mark.filterwarnings("error")
def test_a_request_takes_secrets_everywhere() -> None:
    """URL, query, headers, text body and anywhere within `json`; what is journaled has the references."""
    first, second = flow_with(
        "- id: x\n  type: http\n  with:\n"
        "    url: 'https://a/bot{{ secrets.T }}/send'\n"
        "    query: {key: '{{ secrets.K }}', list: [a, 'b{{ secrets.K }}']}\n"
        "    json: {deep: [{token: 'Bearer {{ secrets.T }}'}]}\n"
        "- {id: y, type: http, with: {url: '{{ secrets.U }}', body: 'a {{ secrets.T }}'}}"
    ).nodes
    assert (first.secrets, second.secrets) == ({"T", "K"}, {"T", "U"})
    settled = first.spec.normalize(first.compiled.evaluate({}))
    assert settled["url"] == {"$secret_text": ["https://a/bot", {"$secret": "T"}, "/send"]}
    assert settled["query"] == {
        "key": {"$secret": "K"},
        "list": ["a", {"$secret_text": ["b", {"$secret": "K"}]}],
    }
    assert settled["json"] == {"deep": [{"token": {"$secret_text": ["Bearer ", {"$secret": "T"}]}}]}
    settled = second.spec.normalize(second.compiled.evaluate({}))
    assert (settled["url"], settled["body"]) == ({"$secret": "U"}, {"$secret_text": ["a ", {"$secret": "T"}]})


def test_a_reference_cannot_be_written_by_hand() -> None:
    """A flow that spells a reference out, where one would be resolved, does not load."""
    found = problems(
        "flow: f\nnodes:\n"
        "  - {id: a, type: shell, with: {run: [a], env: {X: {$secret: T}, Y: {$secret_text: [a]}}}}\n"
        "  - {id: b, type: http, with: {url: 'http://a', headers: {$secret: T}}}\n"
    )
    assert sum("cannot be written by hand" in each for each in found) == 3


JSON_DATA: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["TOKEN", "", "{{ secrets.TOKEN }}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$secret", "$secret_text", "A", "B"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    JSON_DATA,
    st.sampled_from(["{{ inputs.a }}", "x{{ inputs.a }}", "{{ [inputs.a] }}", "{{ {'A': inputs.a} }}"]),
)
def test_no_data_makes_a_secret_appear(data: Json, text: str) -> None:
    """Whatever the data, resolving what came of it asks for no secret."""
    try:
        value = compile_value({"X": text}, secrets=True).evaluate({"inputs": {"a": data}})
    except ExpressionError:
        return
    asked: list[str] = []
    resolver = Resolver(lambda name: asked.append(name) or lookup(name))  # type: ignore[func-returns-value]  # it notes
    with contextlib.suppress(Refusal):
        resolver.text(value["X"], "X")
    assert asked == []
