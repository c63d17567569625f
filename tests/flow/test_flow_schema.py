"""The JSON Schema for editors agrees with the loader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from engine.flow.docs.schema import DIALECT, flow_schema
from engine.flow.document import FlowDoc, NodeDoc
from engine.language.codec import Json, encode
from engine.language.yaml import load_located
from engine.nodes.types.registry import node_types
from tests.flow.flowkit import SOUND

SCHEMA = flow_schema()
EDITOR = Draft202012Validator(SCHEMA)


def descriptions(schema: Json) -> Iterator[str]:
    """All descriptions in a schema."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from descriptions(value)
    if isinstance(schema, dict) and isinstance(schema.get("description"), str):
        yield schema["description"]


def keywords(schema: Json) -> Iterator[str]:
    """All keywords in a schema."""
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        yield key
        parts = (
            value.values()
            if key in ("properties", "$defs")
            else value
            if key in ("anyOf", "allOf")
            else [value]
        )
        if key not in ("default", "const"):
            for part in parts:
                yield from keywords(part)


def fits(value: Json) -> bool:
    """Whether an editor that knows the schema takes this for a flow."""
    return EDITOR.is_valid(value)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_flow_fits_the_schema(name: str) -> None:
    """What the loader takes, an editor does not mark, expressions in every kind of field included."""
    assert fits(load_located(SOUND[name], "f.yml").data)


BAD = Path(__file__).parent / "bad"
BY_SHAPE = [
    "02-no-name-no-nodes", "03-unknown-top-field", "04-flow-name", "15-node-type", "16-no-such-type", "17-node-id",
    "19-field-beside-with", "20-unknown-with-field", "21-run-as-text", "33-condition-without-braces", "35-duration",
    "36-approvers", "37-choices", "39-inputs", "41-crash-policies", "43-http", "49-no-nodes", "50-node-is-text",
    "60-container-without-body", "61-body-on-a-shell", "62-default-beside-with", "63-mistakes-inside-a-body",
    "69-as", "70-foreach-items", "71-loop-without-end", "73-branches", "75-switch", "76-retry", "77-goto", "81-edge-ends",
    "86-loop-edge-without-limit", "87-gates", "91-limits", "92-lock", "94-python", "95-unknown-flow",
    "99-node-list-shapes", "99a-if-with-underscore", "b01-agent-fields", "b02-agent-without-prompt", "b03-unknown-tool",
    "b04-tools-without-limits", "b05-tool-settings", "b07-approvals", "b10-tools-of-the-file", "b14-inner-types",
]  # fmt: skip


@pytest.mark.parametrize("name", BY_SHAPE)
def test_a_mistake_of_shape_does_not_fit_the_schema(name: str) -> None:
    """Unknown fields, wrong types, missing fields and malformed names are marked while one writes."""
    assert not fits(load_located((BAD / f"{name}.yml").read_text(), "f.yml").data)


def test_the_schema_has_every_field_and_type() -> None:
    """It is made from the models: no field of them is missing, no node type either."""
    assert SCHEMA["$schema"] == DIALECT
    assert set(SCHEMA["properties"]) == {field.alias or name for name, field in FlowDoc.model_fields.items()}
    node = SCHEMA["$defs"]["NodeDoc"]
    assert set(node["properties"]) == {field.alias or name for name, field in NodeDoc.model_fields.items()}
    assert node["properties"]["type"]["enum"] == list(node_types())
    for spec in node_types().values():
        assert set(SCHEMA["$defs"][f"with_{spec.name}"].get("properties", {})) >= set(spec.field_names())
    encode(SCHEMA)


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    """An editor can resolve each `$ref`."""
    found = re.findall(r'"\$ref":"#/\$defs/([^"]+)"', encode(SCHEMA).decode())
    assert found
    assert set(found) <= set(SCHEMA["$defs"])


def test_the_schema_says_only_what_an_editor_knows() -> None:
    """It is a schema, and none of its keywords is passed over as unknown."""
    Draft202012Validator.check_schema(SCHEMA)
    assert set(keywords(SCHEMA)) <= {
        *EDITOR.VALIDATORS,
        "$schema",
        "$defs",
        "title",
        "description",
        "default",
        "then",
    }


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("channels: null", False),
        ("lock: null", False),
        ("inputs: {v: {choices: null}}", False),
        ("limits: {max_cost: null}", False),
        ("finally: null", False),
        ("description: null", True),
        ("inputs: {v: {type: object, default: {lock: null}, required: null}}", True),
    ],
)
def test_null_leaves_no_restriction_out_for_an_editor(text: str, fitting: bool) -> None:
    """An editor marks what the loader refuses."""
    flow = load_located(f"flow: f\n{text}\nnodes: [{{id: a, type: noop}}]\n", "f.yml").data
    assert fits(flow) is fitting


@pytest.mark.parametrize(
    ("node", "fitting"),
    [
        ("{id: a, type: ask, with: {message: x, who: null}}", False),
        ("{id: a, type: message, with: {text: x, to: null}}", False),
        ("{id: a, type: approval, with: {message: x, approvers: [channel], covers: null}}", False),
        ("{id: a, type: agent, with: {prompt: x, max_cost: null}}", False),
        ("{id: a, type: noop, if: null}", False),
        ("{id: a, type: end, with: {output: null}}", True),
        ("{id: a, type: set, with: {lock: null}}", True),
    ],
)
def test_null_leaves_nothing_out_of_a_node_for_an_editor(node: str, fitting: bool) -> None:
    """Under `with` as well; data has nulls."""
    assert fits(load_located(f"flow: f\nnodes: [{node}]\n", "f.yml").data) is fitting


def test_descriptions_are_those_of_any_version_of_python() -> None:
    """Python 3.13 takes the indentation of docstrings away, and 3.11 does not."""
    indented = [text for text in descriptions(SCHEMA) if text != inspect.cleandoc(text)]
    assert indented == []
