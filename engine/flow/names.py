"""Checks the names in expressions against what surely exists when the node runs.

What surely came before: in a list the nodes above; in a graph those from which edges lead here; and all that came
before the containers around. Such a node may have been skipped, or left out by an edge: its output is null then.
Nodes inside another container are not visible: its output has theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from engine.expression_text import Reference, Segment
from engine.faults import Fault, Path, suggest
from engine.flow.outline import Place, as_list, as_mapping
from engine.nodes.specs import node_types

SESSION_FIELDS = ("id", "requester", "flow")
"""What `session` has: the session's id, who asked for it, the flow's name."""

ROOTS: Mapping[str, str] = {
    "inputs": "the inputs, `inputs.<name>`",
    "nodes": "the outputs of the nodes before, `nodes.<id>`; null for a node that was skipped or failed",
    "status": "how the nodes before ended, `status.<id>`: `completed`, `skipped` or `failed`; null for one that did not run",
    "errors": "why a node before failed, `errors.<id>`: `{type, message}`, of a rejected approval also `by`, `reason`, `at` and "
    "`values`; null for the others",
    "messages": "the messages of people that answered no question, as a list of `{text, by, at}`; `by` is `{id, name}`",
    "session": "`session.id`, `session.requester` (`{id, name}`) and `session.flow`",
    "secrets": "`secrets.NAME`, in `env` of shell and in requests of http only",
}
"""The names that expressions know everywhere, with what the flow reference says of them."""

VARIABLES: Mapping[str, str] = {
    "index": "in the body of `foreach` and `loop`: the number of the round, from 0",
    "last": "in the body and the conditions of `loop`: the outputs of the round before, `last.<id>`; null at first",
}
"""The names that bodies know; a `foreach` gives its item a name beside them."""

Shape: TypeAlias = Mapping[str, Any] | None
"""What is known of a value: its fields, each with the shape of its value; None when anything may stand there."""


class Level(NamedTuple):
    """One list of nodes as seen by one of them, or from inside it: `seen` is the set of positions that came before,
    `graph` whether edges say so."""

    shapes: Mapping[str, Shape]
    positions: Mapping[str, int]
    seen: int
    graph: bool = False

    def visible(self) -> list[str]:
        """The ids that came before."""
        return [name for name, position in self.positions.items() if self.seen >> position & 1]


@dataclass(frozen=True)
class Scope:
    """What an expression may name. `levels` are the lists around it, innermost last; `variables` what bodies know;
    `current` the id of the node; `places` says where every node of the flow stands, `items` which foreach uses a name.
    """

    inputs: frozenset[str]
    places: Mapping[str, Place]
    levels: tuple[Level, ...] = ()
    variables: Mapping[str, Shape] = field(default_factory=dict)
    current: str | None = None
    items: Mapping[str, str] = field(default_factory=dict)

    def at(self, current: str | None, level: Level) -> Scope:
        """The scope of a node in a list."""
        return replace(self, current=current, levels=(*self.levels, level))

    def knowing(self, variables: Mapping[str, Shape]) -> Scope:
        """The scope with more variables; the inner ones win."""
        return replace(self, variables={**self.variables, **variables})

    def visible(self) -> list[str]:
        """All ids that came before."""
        return [name for level in self.levels for name in level.visible()]

    def find(self, name: str) -> tuple[bool, Shape]:
        """Whether a node surely came before, and the shape of its output."""
        for level in reversed(self.levels):
            position = level.positions.get(name)
            if position is not None and level.seen >> position & 1:
                return True, level.shapes[name]
        return False, None


def shapes(nodes: list[Any]) -> dict[str, Shape]:
    """The shapes of the outputs of a list of nodes, by id."""
    found: dict[str, Shape] = {}
    for entry in nodes:
        node = as_mapping(entry)
        if isinstance(node.get("id"), str):
            found.setdefault(node["id"], _shape(node))
    return found


def _shape(node: Mapping[str, Any]) -> Shape:
    kind = node.get("type")
    spec = node_types().get(kind) if isinstance(kind, str) else None
    fields = None if spec is None else spec.output_fields(as_mapping(node.get("with")))
    if fields is None:
        return None
    shape: dict[str, Shape] = dict.fromkeys(fields)
    if kind == "parallel":
        branches = as_mapping(node.get("branches"))
        shape["branches"] = {name: shapes(as_list(nodes)) for name, nodes in branches.items()}
    if spec is not None and spec.mode == "prompt" and "values" in shape:
        shape["values"] = _form_shape(as_mapping(node.get("with")).get("form"))
    if kind == "agent":
        written = as_mapping(node.get("with")).get("output")
        # Without a schema `data` is null, and has no fields.
        shape["data"] = {} if written is None else _answer_shape(written)
    return shape


def _answer_shape(schema: Any) -> Shape:
    """What is known of a value that fits a JSON Schema: the fields of a mapping that can have no others."""
    written = as_mapping(schema)
    properties = written.get("properties")
    open_ended = written.get("additionalProperties") is not False or bool(written.get("patternProperties"))
    if open_ended or not isinstance(properties, dict):
        return None
    return {name: _answer_shape(inner) for name, inner in properties.items()}


def _form_shape(form: Any) -> Shape:
    """The fields of a form as it is written; of a question without one there are none."""
    if form is None:
        return {}
    properties = form.get("properties") if isinstance(form, Mapping) else None
    return dict.fromkeys(properties) if isinstance(properties, Mapping) else None


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


Wrong: TypeAlias = tuple[str, str | None, str]
"""Message, hint and the name at fault."""


def _check(reference: Reference, scope: Scope) -> Wrong | None:
    root, *rest = reference.path
    if root in scope.variables:
        return _fields(scope.variables[root], (root,), rest, f"`{root}` has no field")
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


def _known(root: str, rest: list[str], known: Any, message: str) -> Wrong | None:
    if not rest or rest[0] in known:
        return None
    close = suggest(rest[0], known)
    return f"{message} `{rest[0]}`", close, f"{root}.{rest[0]}"


def _root_hint(root: str, scope: Scope) -> str | None:
    if root in VARIABLES:
        return f"`{root}` is known {VARIABLES[root].split(':')[0]}"
    if root in scope.places:
        return f"write `nodes.{root}`"
    if root in scope.inputs:
        return f"write `inputs.{root}`"
    if root in scope.items:
        return f"it is known in the body of `{scope.items[root]}`"
    if root in ("env", "secret"):
        return "secrets are written {{ secrets.NAME }}"
    return suggest(root, [*ROOTS, *scope.variables])


def _node(reference: Reference, scope: Scope) -> Wrong | None:
    root, *rest = reference.path
    if not rest:
        message = f"`{root}` needs the id of a node behind it"
        return message, f"write `{root}.<id>`; a computed id cannot be checked", root
    found, shape = scope.find(rest[0])
    if not found:
        return _not_before(root, rest[0], scope)
    if root != "nodes":
        return None
    return _fields(shape, ("nodes", rest[0]), rest[1:], f"the output of `{rest[0]}` has no field")


def _fields(shape: Shape, before: tuple[str, ...], rest: list[str], message: str) -> Wrong | None:
    """The first field that a value of this shape does not have."""
    way = before
    for name in rest:
        if shape is None:
            return None
        if name not in shape:
            none = "its output has no fields" if way == before else "it has none"
            known = f"it has {', '.join(sorted(shape))}" if shape else none
            where = message if way == before else f"`{'.'.join(way)}` has no field"
            return f"{where} `{name}`", suggest(name, shape, known), ".".join((*way, name))
        way, shape = (*way, name), shape[name]
    return None


# --- why a node cannot be named --------------------------------------------------------------------------


def _not_before(root: str, name: str, scope: Scope) -> Wrong:
    where = f"{root}.{name}"
    place = scope.places.get(name)
    if place is None:
        known = scope.visible()
        hint = suggest(name, known, None if known else "no node comes before this one")
        return f"there is no node `{name}`", hint, where
    if name == scope.current:
        return f"`{name}` is this node itself", "only nodes before it can be used", where
    mine = scope.places.get(scope.current or "")
    here = () if mine is None else mine.around
    if name in (container for container, _ in here):
        return f"`{name}` is around this node", "it has an output only once it has ended", where
    message, hint = _apart(name, place, here) or _later(name, scope)
    if name in (scope.variables.get("last") or ()):
        hint = f"the round before has it: `last.{name}`"
    return message, hint, where


def _apart(name: str, place: Place, here: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    """What keeps a node in other containers apart from an expression in these; None when they are around both."""
    for depth, (container, key) in enumerate(place.around):
        mine = here[depth] if depth < len(here) else ("", "")
        if mine == (container, key):
            continue
        if container == "finally":
            return f"`{name}` runs after this node", "what stands in `finally` runs last"
        if key == "!":
            return f"`{name}` runs only when `{container}` fails", "it is known in that `on_failure` only"
        if mine[0] == container and mine[1] != "!":
            return f"`{name}` stands in another part of `{container}`", "only one's own part is known in it"
        hint = f"`nodes.{container}` has its output, or this node belongs inside too"
        return f"`{name}` stands inside `{container}` and is not known outside", hint
    return None


def _later(name: str, scope: Scope) -> tuple[str, str]:
    if any(name in level.positions and level.graph for level in scope.levels):
        return f"`{name}` does not surely run before this node", "an edge must lead from it to here"
    return f"`{name}` runs after this node", "move it up, or use a node before this one"
