"""Tools as a flow file would make them, for tests that need no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.flow.agent_document import TOOLS
from engine.flow.builtin_tools import BUILTIN
from engine.flow.node import Node, ToolKind, ToolPlan
from engine.language.codec import Json
from engine.language.expressions import compile_config
from engine.nodes.types.registry import node_types


def tool(
    kind: ToolKind, config: Mapping[str, Any] | None = None, *, schema: Json = None, **settings: Any
) -> ToolPlan:
    """A tool of this kind: `config` is the `with` that the author gave its node, `settings` are its allow-lists."""
    builtin = BUILTIN.get(kind)
    node_type = TOOLS[kind].node_type if kind in TOOLS else kind
    spec, raw = node_types()[node_type], dict(config or {})
    node = Node(
        id=f"diagnose.{kind}",
        type=node_type,
        name=kind,
        index=0,
        config=raw,
        compiled=compile_config(raw, spec.secret_fields, spec.verbatim_fields),
    )
    given = builtin.input_schema if builtin and schema is None else schema
    return ToolPlan(kind, kind, builtin.description if builtin else "", given, node, settings)
