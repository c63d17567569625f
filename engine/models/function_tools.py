"""Python functions that are tools: what the model is told of them, from their docstrings and type hints.

A flow is loaded without importing anything, so a function is asked when the model is told of it: in the runner of the
model call. That is also where a function that is not there shows itself.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from engine.language.codec import Json, copy
from engine.language.errors import NotJson
from engine.nodes.runtime.python import CTX, GATHERING, load, signature_of
from engine.nodes.runtime.user_code import NodeError

MOST_TOLD = 2_000
"""Characters of what a function says of itself that the model is told."""


def with_functions(tools: list[Json], folder: Path | None) -> list[Json]:
    """The tools of a model call, those that are functions (`call`) with their descriptions and schemas. Imports their
    modules; `folder` is that of the flow file. Raises `NodeError`."""
    return [_described(tool, folder) if tool.get("call") is not None else tool for tool in tools]


def _described(tool: Mapping[str, Json], folder: Path | None) -> dict[str, Json]:
    function = load(tool["call"], folder)
    described = {
        "name": tool["name"],
        "description": tool["description"],
        "input_schema": tool["input_schema"],
    }
    if not described["description"]:
        described["description"] = described_by(function) or f"Calls {tool['call']}."
    if described["input_schema"] is None:
        try:
            described["input_schema"] = schema_by_hints(function)
        except NodeError as error:
            raise NodeError(f"the tool {tool['name']} ({tool['call']}): {error}", error.type) from error
    return described


def described_by(function: Callable[..., Any]) -> str:
    """The docstring of a function; nothing where it has none of its own."""
    text = inspect.getdoc(function) if inspect.isroutine(function) or inspect.isclass(function) else None
    return (text or "").strip()[:MOST_TOLD]


def schema_by_hints(function: Callable[..., Any]) -> dict[str, Json]:
    """The JSON Schema of what a function takes: a parameter without a type hint takes anything, `ctx` is not the model's
    to give. Raises `NodeError` for a hint that JSON has nothing for."""
    signature, hints = signature_of(function)
    properties: dict[str, Json] = {}
    definitions: dict[str, Json] = {}
    required: list[str] = []
    for name, parameter in signature.parameters.items():
        if name == CTX or parameter.kind in GATHERING:
            continue
        hint = hints.get(name, Any)
        try:
            schema: dict[str, Json] = TypeAdapter(hint).json_schema()
        except PydanticUserError as error:
            text = f"its parameter `{name}` has the type hint {hint!r}, which has no JSON equivalent"
            raise NodeError(f"{text}; describe it under `input` of the tool", "args") from error
        definitions |= schema.pop("$defs", {})
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            with contextlib.suppress(NotJson):
                schema = {**schema, "default": copy(parameter.default)}
        properties[name] = schema
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    whole = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": takes_any,
    }
    return {**whole, "$defs": definitions} if definitions else whole
