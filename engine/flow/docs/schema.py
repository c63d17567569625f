"""JSON Schema of flow files, for editors, as printed by `sayso schema`. Made from the models of the loader."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from pydantic import BaseModel

from engine.flow.agent_document import TOOLS, RuleDoc, usable_as_tool
from engine.flow.document import FlowDoc, RetryDoc
from engine.flow.node import Verdict
from engine.flow.reading import RESTRICTIONS
from engine.forms.document import FIELDS, FormDoc
from engine.language.codec import Json
from engine.language.timestamps import format_duration
from engine.nodes.types.names import FLOW_NAME, MAX_NAME, NAME
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import PARTS, NodeSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_EXPRESSION = {"type": "string", "pattern": r"\{\{[\s\S]*\}\}", "title": "expression"}


def flow_schema() -> dict[str, Json]:
    """A JSON Schema (draft 2020-12) that every sound flow file fits, with the config of each node type."""
    schema = FlowDoc.model_json_schema(by_alias=True)
    definitions: dict[str, Json] = schema.pop("$defs")
    node = definitions["NodeDoc"]
    definitions["RetryDoc"] = RetryDoc.model_json_schema(by_alias=True)
    # Checks of the loader that a schema can express too.
    schema["properties"]["flow"] |= {"pattern": f"^{FLOW_NAME.pattern}$", "maxLength": MAX_NAME}
    schema["properties"]["inputs"]["propertyNames"] = {"pattern": f"^{NAME.pattern}$"}
    properties = node["properties"]
    properties["id"] |= {"pattern": f"^{NAME.pattern}$", "maxLength": MAX_NAME}
    properties["type"]["enum"] = list(node_types())
    properties["with"] = {"type": ["object", "null"], "description": properties["with"]["description"]}
    _refine_condition(properties["if"])
    properties["retry"]["anyOf"] = [
        {"enum": ["safe", "never"]},
        {"$ref": "#/$defs/RetryDoc"},
        {"type": "null"},
    ]
    _refine_condition(definitions["EdgeDoc"]["properties"]["when"])
    for spec in node_types().values():
        config = spec.config.model_json_schema(by_alias=True)
        for name, definition in config.pop("$defs", {}).items():
            open_fields(definition)
            definitions[name] = definition
        open_fields(config, spec.static_fields)
        config["description"] = spec.doc
        if not spec.config.model_json_schema().get("required"):
            config["type"] = ["object", "null"]
        definitions[f"with_{spec.name}"] = config
    node["allOf"] = [_case(spec) for spec in node_types().values()]
    # Add to the definitions of a flow's schema what agents have, and refer to it where it is.
    for kind, model in TOOLS.items():
        static = set(model.model_fields) - model.evaluated
        _add(definitions, f"tool_{kind}", model, static)
    _add(definitions, "RuleDoc", RuleDoc, set(RuleDoc.model_fields))
    fields = definitions["with_agent"]["properties"]
    fields["tools"] |= {"type": "array", "items": _tool_entry()}
    rule = {"$ref": "#/$defs/RuleDoc"}
    verdicts = {"type": "array", "items": {"enum": list(get_args(Verdict))}, "minItems": 2}
    approvals = {"anyOf": [verdicts, rule, {"type": "array", "items": rule, "minItems": 1}]}
    fields["approvals"] |= {"type": "object", "additionalProperties": approvals}
    _describe_own_tools(definitions["ToolDoc"])
    _refine_condition(definitions["RuleDoc"]["properties"]["when"])
    for of, field in FIELDS.items():
        _add(definitions, f"field_{of}", field, {"type", "format", "multiline", "items"})
    form = FormDoc.model_json_schema()
    form["properties"]["properties"]["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/field_{of}"} for of in FIELDS]
    }
    definitions["FormDoc"] = form
    for asks in ("ask", "approval"):
        definitions[f"with_{asks}"]["properties"]["form"]["anyOf"] = [
            {"$ref": "#/$defs/FormDoc"},
            {"type": "null"},
        ]
    return {"$schema": DIALECT, "title": "sayso flow", **_tidy(schema), "$defs": _tidy(definitions)}


def _refine_condition(field: dict[str, Json]) -> None:
    field["anyOf"] = [_EXPRESSION, {"type": "boolean"}, {"type": "null"}]


def _case(spec: NodeSpec) -> Json:
    """Return the schema of `with` for one type and of the fields beside it; `with` is required if one of its fields is."""
    absent = {part: {"type": "null"} for part in PARTS if part not in spec.parts}
    then: dict[str, Json] = {"properties": {"with": {"$ref": f"#/$defs/with_{spec.name}"}, **absent}}
    required = list(spec.required_parts)
    if any(field.is_required() for field in spec.config.model_fields.values()) and spec.outputs is not None:
        required.append("with")
    if required:
        then["required"] = required
    return {"if": {"properties": {"type": {"const": spec.name}}, "required": ["type"]}, "then": then}


def open_fields(schema: dict[str, Json], static: Collection[str] = ()) -> None:
    """Lets an expression stand wherever a value is expected, but not in the `static` fields."""
    for name, field in schema.get("properties", {}).items():
        if name not in static:
            schema["properties"][name] = _open(field)


def _open(field: dict[str, Json]) -> dict[str, Json]:
    inner = dict(field)
    for part in ("items", "additionalProperties"):
        if isinstance(inner.get(part), dict):
            inner[part] = _open(inner[part])
    if "$ref" in inner:
        # The only models inside lists are choices, which may also be a text.
        return {"anyOf": [inner, {"type": "string"}]}
    if "anyOf" in inner:
        inner["anyOf"] = [_open_part(option) for option in inner["anyOf"]] + [_EXPRESSION]
        return inner
    if inner.get("type") == "string" and not {"pattern", "enum", "maxLength"} & inner.keys():
        return inner
    kept: dict[str, Json] = {
        key: inner.pop(key) for key in ("description", "default", "title") if key in inner
    }
    return {**kept, "anyOf": [inner, _EXPRESSION]}


def _open_part(option: dict[str, Json]) -> dict[str, Json]:
    return {
        key: _open(value) if key in ("items", "additionalProperties") and isinstance(value, dict) else value
        for key, value in option.items()
    }


def _tidy(value: Any) -> Any:
    """Drops the titles that pydantic makes of names (given ones have small letters); durations become text."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("title") == "duration" and isinstance(value.get("default"), float):
        value = {**value, "default": format_duration(value["default"])}
    if isinstance(value.get("properties"), dict):
        value = {
            **value,
            "properties": {name: _left_out(name, each) for name, each in value["properties"].items()},
        }
    return {
        key: _tidy(item)
        for key, item in value.items()
        if not (key == "title" and isinstance(item, str) and item[:1].isupper())
    }


def _left_out(name: str, field: Any) -> Any:
    """A field without null, where that does not leave it out."""
    exact = {each for spec in node_types().values() for each in spec.exact}
    if name not in RESTRICTIONS | exact or not isinstance(field, dict) or "anyOf" not in field:
        return field
    options = [option for option in field["anyOf"] if option != {"type": "null"}]
    kept = {key: item for key, item in field.items() if key != "anyOf" and (key, item) != ("default", None)}
    return {**kept, "anyOf": options} if len(options) > 1 else {**kept, **options[0]}


# --- agents ----------------------------------------------------------------------------------------------


def _add(definitions: dict[str, Json], name: str, model: type[BaseModel], static: Collection[str]) -> None:
    schema: dict[str, Any] = model.model_json_schema(by_alias=True)
    for inner, definition in schema.pop("$defs", {}).items():
        if inner not in definitions:
            definitions[inner] = definition
            if inner not in ("InputDoc", "ItemsDoc"):
                open_fields(definition, ())
    open_fields(schema, static)
    definitions[name] = schema


def _tool_entry() -> dict[str, Json]:
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


def _describe_own_tools(tool: dict[str, Json]) -> None:
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
