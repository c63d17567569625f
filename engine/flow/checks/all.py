"""Checks of a flow as a whole: names, ids, node types, and every name in an expression; and warnings about a flow that
loads but is probably not as intended. Pure.

Works on the raw data, in which anything may be missing or of the wrong type: the shape was checked elsewhere, and a
problem there must not hide the others.

Warnings concern:

* An approval with `on_reject: continue`, and a later step with effects that does not depend on the decision: it runs after
  a rejection too. A step depends on it when it, an edge that must be taken, or a container around it names the approval, or a
  step that depends on it; when the approval covers it; or when a dependent `fail` comes before it.
* A loop edge without a condition that fails at its limit: it always gets there.
* Warnings of node types (`NodeSpec.warnings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.flow.checks.agents import check_tools
from engine.flow.checks.inputs import check_input
from engine.flow.checks.nodes import check_nodes
from engine.flow.checks.shape import as_list, as_mapping
from engine.flow.checks.visibility import Scope, check_text, name_hint
from engine.flow.input_document import InputDoc
from engine.flow.model import Flow, NodeList
from engine.flow.node import Node
from engine.flow.reached import always_stops, jumps
from engine.flow.triggers import Given, check_trigger
from engine.language.diagnostics import Fault, Path, faults_under
from engine.language.errors import Problem
from engine.language.expressions import Compiled
from engine.nodes.types.names import FLOW_NAME, MAX_NAME
from engine.nodes.types.registry import END
from engine.types.annotations import Sources, no_source
from engine.types.lattice import ANY, input_type, mapping_of


def check_flow(
    data: Mapping[str, Any],
    line_of: Callable[[Path], int],
    sources: Sources = no_source,
    *,
    typed: bool = True,
) -> Iterator[Fault]:
    """Everything that is wrong beyond the shape of the document; `line_of` gives the line of a value in the file,
    `sources` the texts of Python modules. Without `typed` expressions are only checked for their names."""
    name = data.get("flow")
    if isinstance(name, str) and name and (not FLOW_NAME.fullmatch(name) or len(name) > MAX_NAME):
        yield Fault(("flow",), f"{name[:80]!r} is not a valid flow name", name_hint(name, "-"))
    inputs = as_mapping(data.get("inputs"))
    for name, entry in inputs.items():
        yield from faults_under(("inputs",), check_input(name, entry))
    documents = {}
    for key, written in inputs.items():
        try:
            documents[key] = InputDoc.model_validate(written)
        except ValueError:
            continue
    given = Given(frozenset(inputs), documents)
    for index, trigger in enumerate(as_list(data.get("triggers"))):
        if isinstance(trigger, dict):
            yield from faults_under(("triggers", index), check_trigger(trigger, given))
    known = {str(name): input_type(entry) for name, entry in inputs.items()}
    # A missing name is reported as such, and has no type.
    scope = Scope(mapping_of(known, rest=ANY), {}, typed=typed, sources=sources)
    lock = data.get("lock")
    if lock is None and data.get("on_conflict") is not None:
        yield Fault(("on_conflict",), "`on_conflict` needs a `lock`", on_key=True)
    if isinstance(lock, str):
        yield from check_text(lock, ("lock",), scope, only=("inputs", "session"), exact=True)
    # No step may wait for an agent with `follow_up`, which keeps the session open after its answer.
    nodes, edges = as_list(data.get("nodes")), as_list(data.get("edges"))
    for position, node in enumerate(map(as_mapping, nodes)):
        if not as_mapping(node.get("with")).get("follow_up"):
            continue
        path: Path = ("nodes", position, "with", "follow_up")
        leads_on = any(as_mapping(edge).get("from") == node.get("id") for edge in edges)
        if leads_on or (not edges and position < len(nodes) - 1):
            yield Fault(path, "the nodes after this agent would wait that long", "put the agent last")
        if data.get("lock") is not None:
            yield Fault(path, "the flow's `lock` would be held that long", "remove one of the two")
    yield from faults_under(("tools",), check_tools(as_mapping(data.get("tools"))))
    yield from check_nodes(data, scope, line_of)


# --- warnings ----------------------------------------------------------------------------------------------


_ASK = "ask"


def warnings(flow: Flow) -> list[Problem]:
    """Return the warnings about the flow's own file, in the order of its lines."""
    found = [problem for nodes in flow.own_lists.values() for problem in _of_list(flow, nodes)]
    return sorted(dict.fromkeys(found), key=lambda problem: (problem.line, problem.message))


def _of_list(flow: Flow, nodes: NodeList) -> Iterator[Problem]:
    for gate in nodes.nodes:
        if gate.spec.mode == "prompt" and gate.config.get("on_reject") == "continue":
            for node in _Later(flow, gate).steps():
                message = f"`{node.id}` also runs after `{gate.id}` was rejected"
                hint = f"leave out `on_reject: continue`, or write `if: \"{{{{ nodes.{gate.id}.decision == 'approve' }}}}\"`"
                yield Problem(flow.file, node.line, 1, message, hint)
    for node in nodes.nodes:
        for message, hint in node.spec.warnings(node.id, node.config) if node.spec.warnings else ():
            yield Problem(flow.file, node.line, 1, message, hint)
    written = [
        {"id": each.id, "type": each.type, "if": each.if_, "on_error": each.on_error, "with": each.config}
        for each in nodes.nodes
    ]
    targets = {target for each in written for target in jumps(each)}
    before: Node | None = None
    for each, told in zip(nodes.nodes, written, strict=True):
        if before is not None and each.id not in targets and not nodes.is_graph:
            message = f"`{each.id}` never runs: `{before.id}` before it always ends the list"
            hint = f"give `{before.id}` an `if`, or reach `{each.id}` with `goto:{each.id}`"
            yield Problem(flow.file, each.line, 1, message, hint)
        before = each if always_stops(told) else None
    for edge in nodes.edges:
        if edge.type == "loop" and edge.when is None and edge.on_limit == "fail":
            message = f"the loop edge `{edge.from_} → {edge.to}` has no `when`: it always runs to its limit and fails there"
            hint = "write `when`, or `on_limit: continue` for a fixed number of rounds"
            yield Problem(flow.file, nodes.by_id[edge.from_].line, 1, message, hint)


class _Later:
    """Steps after an approval, as far as nothing on the way depends on its decision."""

    def __init__(self, flow: Flow, gate: Node) -> None:
        self.flow = flow
        self.gate = gate
        self.known = {gate.id}
        """The approval, its dependents and its containers: a step that names one of them depends on it."""
        self.holders: Mapping[str, Node] = {
            list_id: node
            for nodes in flow.own_lists.values()
            for node in nodes.nodes
            for list_id in (*node.lists.values(), node.on_failure)
            if list_id is not None
        }

    def steps(self) -> Iterator[Node]:
        """Those with effects that do not depend on the decision."""
        at: Node | None = self.gate
        while at is not None:
            behind = self._behind(self.flow.lists[at.list_id], at)
            yield from self._among(behind, frozenset())
            if any(_ends(node) and node.id in self.known for node in behind):
                return
            at = self.holders.get(at.list_id)
            self.known |= {at.id} if at is not None else set()

    def _among(self, nodes: Sequence[Node], around: frozenset[str]) -> Iterator[Node]:
        """Yield the steps, nested ones included, that do not depend on it, up to a `fail` that does."""
        for node in nodes:
            asked = (node.condition, node.compiled, node.while_, node.until_)
            depends = any(compiled is not None and self._names(compiled) for compiled in asked)
            if node.id != self.gate.covers and not depends:
                if has_effects(node):
                    yield node
                lists = [f"@{node.calls}/"] if node.calls is not None else list(node.lists.values())
                for list_id in (*lists, node.on_failure):
                    if list_id is None or list_id in around or list_id not in self.flow.lists:
                        continue
                    found = self._among(self.flow.lists[list_id].nodes, around | {list_id})
                    # A problem in another file is reported at the call.
                    yield from [node for _ in found][:1] if node.calls is not None else found
                continue
            self.known.add(node.id)
            if (_ends(node) or node.type == END) and not self.flow.lists[node.list_id].is_graph:
                return

    def _behind(self, nodes: NodeList, node: Node) -> Sequence[Node]:
        if not nodes.is_graph:
            return nodes.nodes[node.index + 1 :]
        reached, pending = set[str](), [node.id]
        while pending:
            for edge in nodes.outgoing[pending.pop()]:
                if edge.to not in reached and not (edge.when is not None and self._names(edge.when)):
                    reached.add(edge.to)
                    pending.append(edge.to)
        return [nodes.by_id[name] for name in nodes.order if name in reached]

    def _names(self, compiled: Compiled) -> bool:
        return any(len(path) > 1 and path[1] in self.known for path in compiled.names)


def _ends(node: Node) -> bool:
    """True if a node that runs ends the flow."""
    return node.spec.fails and node.on_error == "fail"


def has_effects(node: Node) -> bool:
    """True if running a node twice would have an outside effect twice. Agents count if they have tools."""
    if node.agent is not None:
        return bool(node.agent.tools)
    return node.spec.mode == "run" and node.spec.on_crash(node.config) == _ASK
