"""Node types that a program makes itself, with `@node`: of functions and classes, without a package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.flow.load import flow_from_body
from engine.language.codec import Json
from engine.language.errors import FlowError
from engine.nodes.api import Config, Context, NodeError, NodeType, SecretText, node
from engine.nodes.runtime.runner import Completed, Failed
from engine.nodes.runtime.table import runners
from engine.nodes.types import registry
from engine.nodes.types.registry import BadNodeType, node_types
from engine.nodes.types.spec import InvalidConfig
from tests.nodes import nodekit
from tests.support.engine import flow_of


@pytest.fixture(autouse=True)
def nothing_made() -> Iterator[None]:
    """Each test begins and ends without types of its own."""
    registry.forget()
    yield
    registry.forget()


FLOW = "nodes: [{id: a, type: greet, with: {who: ana}}, {id: b, type: set, with: {x: '{{ nodes.a.said }}'}}]"


def greet() -> None:
    """Make a type of an `async` function."""

    @node("greet", outputs={"said": "What was said."}, on_crash="again", timeout=7.0)
    async def greet(who: str, times: int = 1, ctx: Context | None = None) -> Json:
        """Greets somebody."""
        assert ctx is not None
        return {"said": f"{ctx.attempt}: {'Hello ' * times}{who}"}


def test_a_function_is_a_type_with_its_parameters_as_fields() -> None:
    """Fields and defaults come from the signature, the description from the docstring, the rest from the decorator."""
    greet()
    spec = node_types()["greet"]
    assert (spec.field_names(), spec.doc, spec.timeout) == (["who", "times"], "Greets somebody.", 7.0)
    assert spec.on_crash({}) == "again"
    assert list(node_types())[-1] == "greet"
    assert flow_of(FLOW).nodes[0].spec.normalize({"who": "ana"}) == {"who": "ana", "times": 1}


@pytest.mark.parametrize(
    ("with_", "words"),
    [
        ("{who: 3}", "expected text, not the number 3"),
        ("{}", "`who` is missing"),
        ("{who: ana, tmes: 2}", "`times`"),
    ],
)
def test_a_flow_that_misuses_one_does_not_load(with_: str, words: str) -> None:
    """The signature is checked as any config is."""
    greet()
    with pytest.raises(FlowError, match=words):
        flow_of(f"nodes: [{{id: a, type: greet, with: {with_}}}]")


async def test_an_async_function_runs_with_its_arguments_and_context(tmp_path: Path) -> None:
    """`ctx` is the context of the run and no field of `with`."""
    greet()
    outcome = await runners()["greet"]({"who": "ana", "times": 2}, nodekit.Context(tmp_path).build())
    assert outcome == Completed({"said": "1: Hello Hello ana"})


async def test_a_plain_function_gets_values_of_its_hints(tmp_path: Path) -> None:
    """It runs in a thread; a date is a date, a secret its value, and neither message nor output shows a secret."""

    @node("page", secret_fields={"token"})
    def page(day: date, token: SecretText = "") -> Json:
        if day.year < 2026:
            raise NodeError(f"too late for {token}", "late")
        return {"said": f"{day:%d.%m.} {token}"}

    secret = {"$secret": "T"}
    build = nodekit.Context(tmp_path, {"T": "hunter2-hunter2"}).build
    outcome = await runners()["page"]({"day": "2026-11-21", "token": secret}, build())
    assert outcome == Completed({"said": "21.11. [secret T]"})
    outcome = await runners()["page"]({"day": "2020-11-21", "token": secret}, build())
    assert outcome == Failed("late", "too late for [secret T]")


async def test_a_class_says_all_of_itself(tmp_path: Path) -> None:
    """A `NodeType` is registered as a package would register it."""

    @node("double")
    class Double(NodeType):
        class Given(Config):
            """Doubles a number."""

            number: int

        config = Given
        outputs = {"number": "The result."}

        async def run(self, config: Given, ctx: Context) -> Json:
            return {"number": config.number * 2}

    assert await runners()["double"]({"number": 4}, nodekit.Context(tmp_path).build()) == Completed(
        {"number": 8}
    )
    assert node_types()["double"].doc == "Doubles a number."


def test_the_names_of_others_are_taken() -> None:
    """Neither a type of sayso nor another one of the program is replaced; the same function may be made again."""
    with pytest.raises(BadNodeType, match="`shell` is a node type of sayso"):
        node("shell")(lambda: None)
    greet()
    greet()
    with pytest.raises(BadNodeType, match="there is already a node type `greet`"):
        node("greet")(lambda: None)


def test_what_cannot_be_called_by_name_is_refused() -> None:
    """Fields have names, so `*args`, `**kwargs` and positional parameters cannot be any."""

    def sums(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(BadNodeType, match="the parameter `numbers` has no name in a flow"):
        node("sums")(sums)


def _yields(number: int) -> Iterator[int]:
    yield number


def _private(_number: int) -> int:
    return _number


def _shadows(model_config: int) -> int:
    return model_config


def _doubles(number: int) -> int:
    return number * 2


@pytest.mark.parametrize(
    ("made", "options", "sentence"),
    [
        (_yields, {}, "a generator has no output"),
        (_private, {}, "`_number` has no name in a flow"),
        (_shadows, {}, "`model_config` needs another name"),
        (5, {}, "a function or a class, not 5"),
        (_doubles, {"timeout": "5m"}, "a number of seconds above 0, not '5m'"),
        (_doubles, {"timeout": 0}, "a number of seconds above 0, not 0"),
        (_doubles, {"outputs": ["text"]}, "`outputs` must be fields with a sentence each"),
        (_doubles, {"secret_fields": ["key"]}, "`secret_fields` names key"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_made(made: Any, options: Any, sentence: str) -> None:
    """Not when a session runs it: the sentence says what is wrong."""
    with pytest.raises(BadNodeType, match=sentence):
        node("wrong", **options)(made)


def test_a_decorator_without_a_name_is_refused() -> None:
    """`@node` alone would make no type and hide the function."""
    with pytest.raises(BadNodeType, match=r'@node\("name"\)'):
        node(_doubles)  # type: ignore[arg-type]


def test_a_session_of_another_program_says_what_is_missing() -> None:
    """The flow of a session still loads where the module of its type was not imported, and says why it cannot continue."""
    greet()
    body = flow_of(FLOW).body()
    registry.forget()
    flow = flow_from_body(body)
    assert flow.absent == {
        "greet": "the node type `greet` is made with `@node`, in a module that was not imported here"
    }
    assert flow.body() == body


@pytest.mark.parametrize(
    "with_",
    [{"who": "ana"}, {"who": "ana", "times": 2}, {"who": "a", "times": None}, {"who": 3}, {}, {"when": 1}],
)
def test_a_configuration_is_the_same_with_and_without_the_model(with_: dict[str, Json]) -> None:
    """What the hints alone can tell is what the model says, and what they cannot tell the model says in its words."""

    @node("plain")
    def plain(who: str, times: int | None = 1) -> None:
        """Has hints that need no model."""

    spec = node_types()["plain"]
    modelled = replace(spec, plain=None)
    assert spec.check(with_) == modelled.check(with_)
    try:
        found = spec.normalize(with_)
    except InvalidConfig as error:
        with pytest.raises(InvalidConfig, match=re.escape(str(error))):
            modelled.normalize(with_)
    else:
        assert found == modelled.normalize(with_)


def test_an_expression_may_stand_for_any_field_of_a_function() -> None:
    """It is checked once it was evaluated."""

    @node("plain")
    def plain(times: int) -> None:
        """Has a hint that no text fits."""

    assert node_types()["plain"].check({"times": "{{ inputs.n }}"}) == []
    assert node_types()["plain"].check({"times": "three"}) != []
