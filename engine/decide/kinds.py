"""Node types that hold children, except agents: one class per type defines its passes. Pure.

`containers` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from engine.decide import begin, covered_nodes, edges, limits, question, request_edits, request_grants
from engine.decide.due import next_node
from engine.decide.step import Kind, Kinds, Step, Work, context
from engine.flow import Flow, Node, coerce_inputs
from engine.journal import events as ev
from engine.journal.grammar import pass_scope
from engine.journal.queries import given_up, open_prompt_at
from engine.journal.state import COLLECT, ON_FAILURE, Asked, ContainerRun, State, in_finally, scope_of
from engine.language.codec import Json, copy, place_of
from engine.language.errors import ExpressionError, InvalidAnswer, InvalidInputs
from engine.language.expressions import Compiled, evaluate_condition
from engine.nodes.types.registry import mode_of


class Passes(Kind):
    """A node that goes through lists of nodes, one pass for each of its keys, or a single one."""

    def more(self, step: Step, path: str, node: Node, container: ContainerRun) -> bool:
        """True if another pass begins now."""
        return container.begun < len(container.keys or [])

    def list_id(self, node: Node, key: str | None) -> str:
        """The list that a pass goes through."""
        return node.lists["body" if key is None else key]

    def startable(self, flow: Flow, state: State, scope: str) -> Iterator[tuple[Work, str]]:
        """The next node of a list, those of a graph to which the edges lead."""
        frame = state.frames[scope]
        nodes = flow.lists[frame.list_id]
        if nodes.is_graph:
            ready = sorted(frame.graph.ready, key=nodes.rank.__getitem__) if frame.graph else []
            items = [Work(scope, node=node_id) for node_id in ready]
        else:
            over = frame.running or frame.jumps or frame.position >= len(nodes.nodes)
            items = [] if over else [Work(scope)]
        if items and not given_up(state, scope):
            for item in items:
                yield item, mode_of(next_node(nodes, frame, item.node).type)

    def begin(self, step: Step, item: Work) -> None:
        """Evaluate its condition and its configuration, and launch or skip it."""
        (begin.start_again if item.again else begin.start_next)(step, item)

    def child_failed(self, step: Step, path: str) -> None:
        """`on_error` says which."""
        node, run = step.node(path), step.state.nodes[path]
        if node.on_error == "ask" and not in_finally(path):
            step.ask(path, question.failed_prompt(node, run))
        else:
            step.fail_for_good(path, run.error or {})

    def progress(self, step: Step, path: str) -> None:
        """Begin the passes that there is room for; complete once all have ended."""
        node = step.node(path)
        try:
            while self.more(step, path, node, step.state.containers[path]):
                container = step.state.containers[path]
                order = container.begun
                key = container.keys[order] if container.keys else None
                step.emit(
                    ev.IterationStarted,
                    path=path,
                    node_id=node.id,
                    index=order,
                    key=key,
                    scope=pass_scope(path, step.state.nodes[path], container, order),
                    list_id=self.list_id(node, key),
                )
        except ExpressionError as error:
            step.fail(path, {"type": error.code, "message": str(error)})
            return
        container = step.state.containers[path]
        if not container.running:
            self.over(step, path, node, container)

    def over(self, step: Step, path: str, node: Node, container: ContainerRun) -> None:
        """Complete the node: all its passes have ended."""
        step.close(path)

    def decided(self, step: Step, prompt: Asked) -> None:
        """A loop edge of a child is used up: the pass continues as people said."""
        edges.limit_decided(step, prompt, limits.decision(prompt))

    def covered(self, step: Step, prompt: Asked, values: dict[str, Json]) -> dict[str, Json] | None:
        """The nodes that name this approval. Raises `InvalidAnswer` for arguments of other types than an agent's call has."""
        if (prompt.covers or {}).get("type") == "call":
            request_edits.check((step.state.inputs or {}).get("arguments") or {}, values)
        return covered_nodes.foreseen(step.flow, step.state, prompt.path, values)

    def granted(self, step: Step, prompt: Asked, always: Json) -> dict[str, Json]:
        """Check a grant for calls of an agent outside of sayso; refuse it for anything else that is not a tool call."""
        if (prompt.covers or {}).get("type") == "call":
            if prompt.editors:
                raise InvalidAnswer(
                    "People edited this call, so it can only be allowed once. Nothing was decided."
                )
            arguments = (step.state.inputs or {}).get("arguments") or {}
            return request_grants.checked(arguments, always)
        raise InvalidAnswer(
            "Calls like this cannot be always allowed: `grants` of the agent does not include them."
        )


class Foreach(Passes):
    """A pass for each item, so many at once."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """Its items."""
        items = copy(config["items"])
        return {"items": items, "total": len(items)}

    def more(self, step: Step, path: str, node: Node, container: ContainerRun) -> bool:
        """True if an item is left and there is room for it."""
        concurrency: int = step.state.nodes[path].input["concurrency"]
        return container.begun < (container.total or 0) and container.running < concurrency


class Loop(Passes):
    """One pass after the other, while or until a condition holds."""

    def more(self, step: Step, path: str, node: Node, container: ContainerRun) -> bool:
        """True if another round is allowed and wanted."""
        return (
            not container.running
            and container.begun < self._most(step, path)
            and self._goes_on(step, path, node)
        )

    def over(self, step: Step, path: str, node: Node, container: ContainerRun) -> None:
        """Complete, unless it had all its rounds and would have another one."""
        if container.begun < self._most(step, path) or not self._goes_on(step, path, node):
            super().over(step, path, node, container)
            return
        decision = step.state.nodes[path].input.get("on_limit") or "fail"
        if decision != "ask":
            self._at_limit(step, path, decision)
        elif open_prompt_at(step.state, path) is None:
            step.ask(path, limits.loop_prompt(node, container.begun, step.state.nodes[path].attempt))

    def decided(self, step: Step, prompt: Asked) -> None:
        """Apply the decision on a loop at its limit."""
        if prompt.path in step.state.containers:
            self._at_limit(step, prompt.path, limits.decision(prompt))
        else:
            super().decided(step, prompt)

    def _at_limit(self, step: Step, path: str, decision: str) -> None:
        """Close the loop (`continue`) or fail it; any other decision lets another round begin."""
        rounds = step.state.containers[path].begun
        if decision == "continue":
            step.close(path, rounds)
        elif decision == "fail":
            step.fail(path, limits.loop_error(step.state, path, rounds))

    def _most(self, step: Step, path: str) -> int:
        """Return the maximum number of rounds: the flow's, plus one for each time that people allowed another."""
        most = int(step.state.nodes[path].input["max_iterations"])
        if step.state.containers[path].begun < most:
            return most
        return most + limits.times_more(step.state, path)

    def _goes_on(self, step: Step, path: str, node: Node) -> bool:
        """Its condition, as it is before a round. `until` is looked at after each round, `while` before."""
        if node.until_ is not None:
            begun = step.state.containers[path].begun
            return not begun or not self._holds(step, path, node, "until", node.until_)
        return node.while_ is None or self._holds(step, path, node, "while", node.while_)

    def _holds(self, step: Step, path: str, node: Node, word: str, compiled: Compiled) -> bool:
        container = step.state.containers[path]
        names = context(compiled, step.flow, step.state, scope_of(path), step.facts.now)
        names |= {"last": container.last, "index": container.begun}
        return evaluate_condition(compiled, names, f"node {node.id}: {word}")


class Parallel(Passes):
    """All branches at the same time."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """Its branches."""
        keys = list(node.lists)
        return {"keys": keys, "total": COLLECT if config["mode"] == "collect" else len(keys)}


class Switch(Passes):
    """The matching case, the default, or nothing."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """The case that is taken."""
        cases = [case for case in node.lists if case]
        place = place_of(config["on"], cases)
        taken = cases[place] if place is not None else "" if "" in node.lists else None
        return {"keys": [] if taken is None else [taken], "total": 0 if taken is None else 1}


class Called(Passes):
    """Another flow, with inputs and nodes of its own."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """Its inputs."""
        called = step.flow.flows[node.calls or ""]
        values, missing = coerce_inputs(called, config.get("inputs") or {})
        if missing:
            raise InvalidInputs(f"flow {called.name} needs {', '.join(missing)}")
        return {"inputs": copy(values), "total": 1}

    def more(self, step: Step, path: str, node: Node, container: ContainerRun) -> bool:
        """True if the called flow has not begun."""
        return not container.begun

    def list_id(self, node: Node, key: str | None) -> str:
        """Return the id of the called flow's top list."""
        return f"@{node.calls}/"


CONTAINERS: Kinds = MappingProxyType(
    {
        "foreach": Foreach(),
        "loop": Loop(),
        "parallel": Parallel(),
        "switch": Switch(),
        "flow": Called(),
        ON_FAILURE: Passes(),
    }
)
"""All kinds of containers. The list under `on_failure` of any node is one more, with a single pass."""
