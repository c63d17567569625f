"""What is known of the output of each node of a list: its type, and why it may be null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.flow.checks.raw_lists import as_mapping, parts
from engine.flow.checks.visibility import Output
from engine.flow.reached import Reached, condition_facts, jumps
from engine.nodes.types.registry import node_types
from engine.types.annotations import Function, Sources, function_of
from engine.types.facts import NOTHING, Facts
from engine.types.lattice import (
    ANY,
    LIST,
    NONE,
    NUMBERS,
    UNDEFINED,
    Type,
    either,
    list_of,
    mapping_of,
    one_of,
    union,
)


def output_of(
    node: Mapping[str, Any], found: Type, at: Reached, gates: Sequence[Mapping[str, Any]] = ()
) -> Output:
    """The output of a node whose type is known, for those behind it. `at` is what holds where it stands, `gates` are the
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
        if _goes_on_unapproved(gate):
            why, only_if = f"`{gate.get('id')}` covers it, and may not have approved it", False
            statuses.add("skipped")
    return Output(found, why, _conjuncts(held) if only_if else None, at.facts | held, frozenset(statuses))


def _goes_on_unapproved(gate: Mapping[str, Any]) -> bool:
    """Whether the flow may go on after an approval that approved nothing."""
    goes_on = (
        gate.get("on_error", "fail") != "fail" or as_mapping(gate.get("with")).get("on_reject") == "continue"
    )
    return goes_on or gate.get("if") is not None or bool(jumps(gate))


def _conjuncts(facts: Facts) -> Facts:
    """What a condition says, without what follows from it: the same words elsewhere say the same."""
    return frozenset(fact for fact in facts if fact.kind == "held")


def at_end(outputs: Mapping[str, Output], positions: Mapping[str, int], end: Reached) -> dict[str, Type]:
    """The types of the outputs of a list that has come to its end."""
    found = {}
    for name, output in outputs.items():
        ran = end.ran >> positions.get(name, 0) & 1
        why = output.null if ran and output.null else None if ran else f"`{name}` may be left out"
        found[name] = output.type if why is None else output.type.or_null(why)
    return found


def container_type(
    node: Mapping[str, Any], inner: Mapping[str, Mapping[str, Type]], item: Type, collected: Type | None
) -> Type:
    """The output of a container, from those of the nodes that it holds, by part."""
    match node.get("type"):
        case "foreach" | "loop":
            record = mapping_of(
                {
                    "index": NUMBERS,
                    "item": item,
                    "outputs": mapping_of(inner.get("body", {})),
                    "error": either(ANY, UNDEFINED),
                }
            )
            fields = {"iterations": list_of(record)}
            return mapping_of(fields if collected is None else {**fields, "collected": collected})
        case "parallel":
            collects = as_mapping(node.get("with")).get("mode") not in (None, "fail_fast")
            return mapping_of(
                {"branches": mapping_of({key: _branch(outputs, collects) for key, outputs in inner.items()})}
            )
        case "switch":
            nothing: list[Mapping[str, Type]] = [] if "" in inner else [{}]
            cases = union(mapping_of(outputs) for outputs in [*inner.values(), *nothing])
            taken = one_of([key for key in inner if key]) if any(inner) else NONE
            return mapping_of({"case": taken.or_null("`default` or no case was taken"), "outputs": cases})
    return ANY


def _branch(outputs: Mapping[str, Type], collects: bool) -> Type:
    why = "with `mode: collect` a branch may have failed"
    return mapping_of({name: each.or_null(why) if collects else each for name, each in outputs.items()})


def item_type(within: Type) -> Type:
    """The type of the item of a `foreach`, from that of its `with`."""
    items = within.fields.get("items", ANY) if within.fields is not None else ANY
    return items.items or ANY if items.kinds == LIST else ANY


def output_type(
    node: Mapping[str, Any],
    within: Type,
    inner: Mapping[str, Mapping[str, Type]],
    sources: Sources,
    collected: Type | None = None,
) -> Type:
    """The type of what a node gives when it completes. `within` is that of its `with`, `inner` those of what it holds."""
    kind, with_ = node.get("type"), as_mapping(node.get("with"))
    spec = node_types().get(kind) if isinstance(kind, str) else None
    if spec is None:
        return ANY
    if kind == "set":
        return within
    if kind == "python" and isinstance(with_.get("call"), str):
        function = function_of(with_["call"], sources)
        return function.returns if isinstance(function, Function) else ANY
    if spec.parts:
        item = item_type(within) if kind == "foreach" else NONE
        return container_type(node, inner, item, collected)
    return spec.output_type(with_)


def first_sight(nodes: Sequence[Any]) -> dict[str, Type]:
    """The types of a list whose nodes nobody has looked into yet: what `last` is in the body of a loop. All of them may
    be null, as a round may have left them out."""
    found: dict[str, Type] = {}
    for entry in nodes:
        node = as_mapping(entry)
        kind, with_ = node.get("type"), as_mapping(node.get("with"))
        spec = node_types().get(kind) if isinstance(kind, str) else None
        if not isinstance(node.get("id"), str):
            continue
        seen = ANY if spec is None else spec.output_type(with_)
        if spec is not None and spec.parts:
            inner = {part.key: first_sight(part.nodes) for part in parts(node)}
            seen = container_type(node, inner, ANY, ANY if with_.get("collect") is not None else None)
        output = output_of(node, seen, Reached(0, NOTHING))
        found.setdefault(node["id"], seen if output.null is None else seen.or_null(output.null))
    return found
