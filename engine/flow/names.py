"""Checks the names in expressions against what surely exists when the node runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.expression_jinja import Reference
from engine.expression_text import Segment
from engine.faults import Fault, Path, suggest
from engine.nodes.specs import node_types

SESSION_FIELDS = ("id", "requester", "flow")
"""What `session` has: the session's id, who asked for it, the flow's name."""

ROOTS: Mapping[str, str] = {
    "inputs": "the inputs, `inputs.<name>`",
    "nodes": "the outputs of the nodes before, `nodes.<id>`; null for a node that was skipped or failed",
    "status": "how the nodes before ended, `status.<id>`: `completed`, `skipped` or `failed`",
    "errors": "why a node before failed, `errors.<id>`: `{type, message}`; null for the others",
    "messages": "the messages of people that answered no question, as a list of `{text, by, at}`; `by` is `{id, name}`",
    "session": "`session.id`, `session.requester` (`{id, name}`) and `session.flow`",
    "secrets": "`secrets.NAME`, in `env` of shell and `headers` of http only",
}
"""The names that expressions know, with what the flow reference says of them."""


@dataclass
class Scope:
    """What an expression may name: `before` maps ids of nodes that surely came before to their output fields
    (None when the type is unknown), `later` all ids to their positions."""

    inputs: frozenset[str]
    before: dict[str, frozenset[str] | None] = field(default_factory=dict)
    later: dict[str, int] = field(default_factory=dict)

    def passed(self, node: Mapping[str, Any]) -> None:
        """From here on this node came before."""
        name, kind, with_ = node.get("id"), node.get("type"), node.get("with")
        if not isinstance(name, str):
            return
        spec = node_types().get(kind) if isinstance(kind, str) else None
        settled = with_ if isinstance(with_, dict) else {}
        self.before.setdefault(name, spec.output_fields(settled) if spec is not None else None)


def check_names(used: Iterable[tuple[Segment, Reference]], path: Path, scope: Scope) -> Iterator[Fault]:
    """The names that the text at this path uses although they do not exist, or not yet."""
    for segment, reference in used:
        found = _check(reference, scope)
        if found is not None:
            message, hint, name = found
            offset, snippet = _place(segment, name)
            yield Fault(path, message, hint, offset=offset, snippet=snippet)


def _place(segment: Segment, name: str) -> tuple[int, str]:
    """Where in the text the name stands; the whole expression when it is spelled with brackets."""
    inside = segment.text.find(name)
    return (segment.offset + inside, name) if inside >= 0 else (segment.offset, segment.text)


def _check(reference: Reference, scope: Scope) -> tuple[str, str | None, str] | None:
    """Message, hint and the name at fault."""
    root, *rest = reference.path
    match root:
        case "inputs":
            return _known(root, rest, scope.inputs, "the flow has no input")
        case "session":
            return _known(root, rest, SESSION_FIELDS, "`session` has no field")
        case "nodes" | "status" | "errors":
            return _node(reference, scope)
        case "messages" | "secrets":
            return None
    return f"unknown name `{root}`", _root_hint(root, scope), root


def _known(root: str, rest: list[str], known: Any, message: str) -> tuple[str, str | None, str] | None:
    if not rest or rest[0] in known:
        return None
    close = suggest(rest[0], known)
    return f"{message} `{rest[0]}`", close, f"{root}.{rest[0]}"


def _root_hint(root: str, scope: Scope) -> str | None:
    if root in scope.later:
        return f"write `nodes.{root}`"
    if root in scope.inputs:
        return f"write `inputs.{root}`"
    if root in ("env", "secret"):
        return "secrets are written {{ secrets.NAME }}"
    return suggest(root, ROOTS)


def _node(reference: Reference, scope: Scope) -> tuple[str, str | None, str] | None:
    root, *rest = reference.path
    if not rest:
        message = f"`{root}` needs the id of a node behind it"
        return message, f"write `{root}.<id>`; a computed id cannot be checked", root
    name = rest[0]
    if name not in scope.before:
        return _not_before(root, name, scope)
    fields = scope.before[name]
    if root != "nodes" or len(rest) < 2 or fields is None or rest[1] in fields:
        return None
    known = f"it has {', '.join(sorted(fields))}" if fields else "its output has no fields"
    hint = suggest(rest[1], fields, known)
    return f"the output of `{name}` has no field `{rest[1]}`", hint, f"nodes.{name}.{rest[1]}"


def _not_before(root: str, name: str, scope: Scope) -> tuple[str, str | None, str]:
    where = f"{root}.{name}"
    if name not in scope.later:
        hint = suggest(name, scope.before, None if scope.before else "no node comes before this one")
        return f"there is no node `{name}`", hint, where
    if scope.later[name] == len(scope.before):
        return f"`{name}` is this node itself", "only nodes before it can be used", where
    return f"`{name}` runs after this node", "move it up, or use a node before this one", where
