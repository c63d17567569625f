"""Known facts about the output of each node of a list: its type, and why it may be null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.flow.checks.shape import as_mapping, parts, spec_at
from engine.flow.checks.visibility import Output
from engine.flow.reached import Reached, condition_facts, jumps
from engine.nodes.types.registry import END
from engine.nodes.types.spec import Known
from engine.types.facts import NOTHING
from engine.types.lattice import ANY, Type


def output_of(
    node: Mapping[str, Any], found: Type, at: Reached, gates: Sequence[Mapping[str, Any]] = ()
) -> Output:
    """Return the output of a node of known type, for the nodes after it. `at` holds the facts at its place, `gates` the
    approvals that cover it."""
    condition, on_error = node.get("if"), node.get("on_error", "fail")
    may_skip = condition is not None and condition is not True
    held = condition_facts(condition)
    name, why, statuses = node.get("id"), None, {"completed"}
    if may_skip:
        why = f"`{name}` has an `if`"
        statuses.add("skipped")
    if on_error in ("continue", "ask"):
        why = f"`{name}` has `on_error: {on_error}`"
        statuses |= {"failed"} if on_error == "continue" else {"failed", "skipped"}
    elif jumps(node):
        statuses.add("failed")
    only_if = may_skip and on_error not in ("continue", "ask")
    for gate in gates:
        # True if the flow may continue after a rejection.
        goes_on = (
            gate.get("on_error", "fail") != "fail"
            or as_mapping(gate.get("with")).get("on_reject") == "continue"
        )
        goes_on_unapproved = goes_on or gate.get("if") is not None or bool(jumps(gate))
        if goes_on_unapproved:
            why, only_if = f"`{gate.get('id')}` covers it and may not have approved it", False
            statuses.add("skipped")
    # The parts of the condition itself, without their implications: the same text elsewhere means the same.
    conjuncts = frozenset(fact for fact in held if fact.kind == "held") if only_if else None
    return Output(found, why, conjuncts, at.facts | held, frozenset(statuses))


def at_end(outputs: Mapping[str, Output], positions: Mapping[str, int], end: Reached) -> dict[str, Type]:
    """The types of the outputs of a list that has come to its end."""
    found = {}
    for name, output in outputs.items():
        ran = end.ran >> positions.get(name, 0) & 1
        why = output.null if ran and output.null else None if ran else f"`{name}` may be left out"
        found[name] = output.type if why is None else output.type.or_null(why)
    return found


def first_sight(nodes: Sequence[Any]) -> dict[str, Type]:
    """Return provisional types for an unchecked list: `last` in the body of a loop. All of them may be null, as a round
    may have left them out."""
    found: dict[str, Type] = {}
    ended: str | None = None
    for entry in nodes:
        node = as_mapping(entry)
        if not isinstance(node.get("id"), str):
            continue
        with_, spec = as_mapping(node.get("with")), spec_at(node)
        seen = ANY
        if spec is not None:
            inner = {part.key: first_sight(part.nodes) for part in parts(node)} if spec.parts else {}
            collected = ANY if with_.get("collect") is not None else None
            seen = spec.output_type(Known(with_, inner=inner, collected=collected))
        output = output_of(node, seen, Reached(0, NOTHING))
        why = output.null or ended
        found.setdefault(node["id"], seen if why is None else seen.or_null(why))
        if node.get("type") == END:
            ended = f"`{node['id']}` may end it before"
    return found
