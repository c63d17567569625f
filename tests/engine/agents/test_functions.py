"""Python functions as tools: the model is told what their type hints and their docstrings say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from engine.decide.agents.call_to_node import prepare
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.models.function_tools import described_by, schema_by_hints, with_functions
from engine.nodes.runtime.runner import Failed
from engine.nodes.runtime.user_code import Context, NodeError
from tests.engine.agents.talks import talk
from tests.engine.agents.test_runner import config, output, scripted

MODULE = '''
from typing import Literal

def lookup(host: str, level: Literal["info", "error"] = "info", ctx=None) -> dict:
    """Looks a host up.

    In the list of hosts.
    """
    return {}

def hinted_wrong(what: "Nobody") -> int:
    return 1
'''


class Region(BaseModel):
    """A region."""

    name: str
    sites: list[str] = []


def everything(
    host: str,
    count: int,
    share: float | None,
    region: Region,
    others: list[Region],
    free: Any,
    level: Annotated[Literal["info", "error"], Field(description="How bad")] = "info",
    at: object = object(),
    *args: int,
    ctx: Context,
    last: bool = False,
) -> None:
    """Takes whatever there is."""


def anything(first: str, **more: int) -> None: ...


def unheard_of(what: Context) -> None: ...


def test_a_function_takes_what_its_type_hints_say() -> None:
    """Types, choices, defaults and models become a JSON Schema; `ctx` and `*args` are not the model's."""
    schema = schema_by_hints(everything)
    properties = schema["properties"]
    assert list(properties) == ["host", "count", "share", "region", "others", "free", "level", "at", "last"]
    assert schema["required"] == ["host", "count", "share", "region", "others", "free"]
    assert schema["additionalProperties"] is False
    assert properties["count"] == {"type": "integer"}
    assert properties["share"] == {"anyOf": [{"type": "number"}, {"type": "null"}]}
    assert properties["others"] == {"type": "array", "items": {"$ref": "#/$defs/Region"}}
    assert properties["level"] == {
        "type": "string", "enum": ["info", "error"], "default": "info", "description": "How bad",
    }  # fmt: skip
    assert (properties["free"], properties["last"]) == ({}, {"type": "boolean", "default": False})
    assert "default" not in properties["at"]
    assert schema["$defs"]["Region"]["required"] == ["name"]


def test_a_function_with_keywords_takes_any() -> None:
    """`**more` leaves the names open."""
    assert schema_by_hints(anything)["additionalProperties"] is True


def test_a_hint_that_json_has_nothing_for_is_named() -> None:
    """The error says which parameter, and what to write."""
    with pytest.raises(NodeError, match=r"`what` has the type hint .* describe it under `input`"):
        schema_by_hints(unheard_of)


def test_what_a_function_says_of_itself_is_told() -> None:
    """The docstring, without its indentation; a function without one says nothing."""
    assert described_by(everything) == "Takes whatever there is."
    assert described_by(anything) == ""


def test_functions_are_found_beside_the_flow(tmp_path: Path) -> None:
    """Description and schema come from the function unless the file says them; other tools stay as they are."""
    (tmp_path / "hosts_of_functions.py").write_text(MODULE)
    other: Json = {"name": "logs", "description": "Reads.", "input_schema": {"type": "object"}}
    mine: Json = {
        "name": "look",
        "description": "",
        "input_schema": None,
        "call": "hosts_of_functions:lookup",
    }
    schema: Json = {"type": "object", "properties": {}}
    logs, look, told = with_functions(
        [other, mine, {**mine, "description": "Mine.", "input_schema": schema}], tmp_path
    )
    assert logs == other
    assert look["description"] == "Looks a host up.\n\nIn the list of hosts."
    assert look["input_schema"]["properties"]["level"]["enum"] == ["info", "error"]
    assert told == {"name": "look", "description": "Mine.", "input_schema": schema}
    for name, words in (
        ("lokup", "has no function lokup; did you mean `lookup`"),
        ("hinted_wrong", "tool look"),
    ):
        with pytest.raises(NodeError, match=words):
            with_functions([{**mine, "call": f"hosts_of_functions:{name}"}], tmp_path)


async def test_a_model_call_tells_of_functions(tmp_path: Path) -> None:
    """The runner asks the function what it takes; a function that is not there fails the call, for good."""
    (tmp_path / "hosts_of_runner.py").write_text(MODULE)
    rig = scripted(tmp_path, {"text": "Hello."})
    mine = {"name": "look", "description": "", "input_schema": None, "call": "hosts_of_runner:lookup"}
    output(await rig.run(config(tools=[mine]), flow_dir=tmp_path))
    gone = await rig.run(config(tools=[{**mine, "call": "hosts_of_runner:gone"}]), flow_dir=tmp_path)
    assert isinstance(gone, Failed)
    assert gone.type == "not_found"
    assert gone.details["retryable"] is False


def test_the_core_names_the_function_whose_hints_are_to_be_asked() -> None:
    """A tool whose file says what it takes and what it is for names no function; servers are asked for theirs alone."""
    tools = """tools:
  - python: {call: "hosts:lookup"}
  - python: {call: "hosts:other", description: Other., input: {host: {}, level: {default: info}}}
  - mcp: {server: grafana, tools: [query]}
"""
    asked = talk(tools).request()
    assert [tool.get("call") for tool in asked["tools"]] == ["hosts:lookup", None]
    assert asked["mcp"] == [{"server": "grafana", "tools": ["query"]}]
    assert "call" not in asked["tools"][1]


def test_defaults_of_the_file_reach_the_function() -> None:
    """What the model leaves out has the value that `input` gives it."""
    flow = load_flow(
        "flow: a\nnodes:\n  - id: x\n    type: agent\n    with: {prompt: a, tools: [{python: {call: 'a:b', "
        "input: {host: {}, level: {default: info}}}}]}",
        "a.yml",
    )
    agent = flow.by_id["x"].agent
    assert agent is not None
    assert prepare(agent.tools[0], {"host": "db"})["args"] == {"host": "db", "level": "info"}
