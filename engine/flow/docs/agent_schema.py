"""What the JSON Schema of flow files says of agents: their tools with settings, approvals, and tools of the file."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, get_args

from engine.flow.agent_document import EVALUATED, TOOLS, RuleDoc, usable_as_tool
from engine.flow.node import Verdict
from engine.language.codec import Json
from engine.nodes.types.fields import MAX_NAME, NAME, Config
from engine.nodes.types.registry import node_types

OpenFields: TypeAlias = Callable[[dict[str, Json], Collection[str]], None]
"""Lets expressions stand in the fields of a schema, but not in these."""


def describe_agents(definitions: dict[str, Json], open_fields: OpenFields) -> None:
    """Add to the definitions of a flow's schema what agents have, and refer to it where it stands."""
    for kind, model in TOOLS.items():
        static = set(model.model_fields) - EVALUATED.get(kind, frozenset())
        _add(definitions, f"tool_{kind}", model, open_fields, static)
    _add(definitions, "RuleDoc", RuleDoc, open_fields, set(RuleDoc.model_fields))
    fields = definitions["with_agent"]["properties"]
    fields["tools"] |= {"type": "array", "items": _entry()}
    fields["approvals"] |= {"type": "object", "additionalProperties": _approvals()}
    _describe_own(definitions["ToolDoc"])


def _add(
    definitions: dict[str, Json],
    name: str,
    model: type[Config],
    open_fields: OpenFields,
    static: Collection[str],
) -> None:
    schema: dict[str, Any] = model.model_json_schema(by_alias=True)
    for inner, definition in schema.pop("$defs", {}).items():
        if inner not in definitions:
            definitions[inner] = definition
            if inner not in ("InputDoc", "ItemsDoc"):
                open_fields(definition, ())
    open_fields(schema, static)
    definitions[name] = schema


def _entry() -> dict[str, Json]:
    """An entry of `tools`: a name, or one name with settings."""
    settings: dict[str, Json] = {}
    bare: list[str] = []
    for kind, model in TOOLS.items():
        needed = any(field.is_required() for field in model.model_fields.values())
        reference = {"$ref": f"#/$defs/tool_{kind}"}
        settings[kind] = reference if needed else {"anyOf": [reference, {"type": "null"}]}
        bare += [] if needed else [kind]
    named = {
        "type": "string",
        "pattern": f"^(?!({'|'.join(kind for kind in TOOLS if kind not in bare)})$){NAME.pattern}$",
        "maxLength": MAX_NAME,
        "description": f"{', '.join(bare)}, or a tool of the file.",
    }
    one = {
        "type": "object",
        "properties": settings,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [named, one]}


def _approvals() -> dict[str, Json]:
    rule = {"$ref": "#/$defs/RuleDoc"}
    verdicts = {"type": "array", "items": {"enum": list(get_args(Verdict))}, "minItems": 2}
    return {"anyOf": [verdicts, rule, {"type": "array", "items": rule, "minItems": 1}]}


def _describe_own(tool: dict[str, Json]) -> None:
    """A tool of the file: the types that it may have, and their configurations."""
    usable = [spec for spec in node_types().values() if usable_as_tool(spec)]
    tool["properties"]["type"]["enum"] = [spec.name for spec in usable]
    tool["properties"]["with"] = {
        "type": ["object", "null"],
        "description": tool["properties"]["with"]["description"],
    }
    tool["allOf"] = [
        {
            "if": {"properties": {"type": {"const": spec.name}}, "required": ["type"]},
            "then": {"properties": {"with": {"$ref": f"#/$defs/with_{spec.name}"}}},
        }
        for spec in usable
    ]
