"""The JSON Schema of what a flow gives, by node, as far as its types are known without running it."""

from __future__ import annotations

from typing import Any

from engine.flow import Flow
from engine.flow.outputs import first_sight
from engine.language.codec import Json
from engine.language.yaml import load_located
from engine.types.lattice import BOOLEAN, LIST, MAPPING, NULL, NUMBER, SCALAR, TEXT, Type

_WORDS = {
    NULL: "null",
    BOOLEAN: "boolean",
    NUMBER: "number",
    TEXT: "string",
    LIST: "array",
    MAPPING: "object",
}


def outputs_schema(flow: Flow) -> dict[str, Json]:
    """The schema of the outputs of a flow. A node that did not run has none, so nothing is required."""
    nodes = load_located(flow.text, flow.file).data["nodes"]
    return {
        "type": "object",
        "properties": {name: _schema(found) for name, found in first_sight(nodes).items()},
    }


def _schema(found: Type) -> dict[str, Json]:
    if found.unknown:
        return {}
    told: dict[str, Any] = {"type": [word for kind, word in _WORDS.items() if found.kinds & kind]}
    if found.values is not None and not found.kinds & ~(SCALAR | NULL):
        told["enum"] = sorted(found.values, key=str) + ([None] if found.kinds & NULL else [])
    if found.items is not None:
        told["items"] = _schema(found.items)
    if found.fields:
        told["properties"] = {name: _schema(field) for name, field in found.fields.items()}
    return told
