"""A part of an expression as it was written, for messages."""

from __future__ import annotations

from jinja2 import nodes

from engine.language.jinja import static_path
from engine.types.lattice import shown


def source_of(node: nodes.Node) -> str:
    """A part of an expression as its author probably wrote it; empty where that is too much to say."""
    path = static_path(node)
    if path is not None:
        return ".".join(path)
    if isinstance(node, nodes.Const):
        return shown(node.value) if isinstance(node.value, str | int | float) else ""
    if isinstance(node, nodes.Getattr):
        inner = source_of(node.node)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        inner = source_of(node.node)
        return f"{inner}[{node.arg.value!r}]" if inner else ""
    if isinstance(node, nodes.Filter) and node.node is not None:
        inner = source_of(node.node)
        return f"{inner} | {node.name}" if inner and not node.args and not node.kwargs else ""
    return ""


def told(node: nodes.Node) -> str:
    """A part of an expression in a sentence."""
    source = source_of(node)
    return f"`{source}`" if source else "this"
