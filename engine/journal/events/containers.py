"""Events of graphs, jumps and containers."""

from typing import Literal

from msgspec.structs import replace

from engine.journal.agent_runs import agent_begins, turn_begins
from engine.journal.events.base import OUTCOMES, WORK, Event, NodeEvent
from engine.journal.events.nodes import Completion, Start, begin, complete
from engine.journal.grammar import (
    container_at,
    frame_at,
    owner_of,
    pass_scope,
    run_at,
    same,
    through,
    timeout_id,
)
from engine.journal.passes import at_limit, drop_passes, finish, pass_failed, without
from engine.journal.queries import TURN, agent_of, rest_id
from engine.journal.state import (
    COLLECT,
    ON_FAILURE,
    AgentRun,
    ContainerRun,
    Frame,
    Graph,
    Owed,
    State,
    scope_of,
)
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.messages import messages


class EdgeResolved(Event, tag="edge:resolved", phases=OUTCOMES):
    """A node of a graph has its outcome, and each of its forward edges is resolved for good.

    `path` is that node's, `taken` has the result by target, `ready` are the nodes that may start because of it, `jump`
    is the target of a loop edge that was taken. Without a `path` a pass begins: `ready` are the nodes it begins with.
    `limit` is the target of a used-up loop edge (`on_limit: continue`, or a person's decision). `error` fails the pass
    `scope`: a condition of an edge could not be evaluated, a loop edge was used up, or no final node ran.
    """

    scope: str
    node_id: str | None = None
    taken: dict[str, bool] | None = None
    ready: list[str]
    jump: str | None = None
    limit: str | None = None
    error: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        frame = frame_at(state, self.scope)
        graph = _graph_begins(frame, self) if self.path is None else _node_ended(state, frame, self)
        gates, edges = graph.gates, graph.edges
        for target, taken in (self.taken or {}).items():
            known, yes = gates.get(target, (0, 0))
            gates = gates.set(target, (known + 1, yes + taken))
            edges = edges.set(f"{self.node_id}>{target}", taken)
        ready = graph.ready
        for node_id in self.ready:
            ready = ready.set(node_id, None)
        ended = without(graph.ended, self.node_id)
        jumps = frame.jumps
        if self.jump is not None:
            jumps = (*jumps, (self.node_id or "", self.jump))
        graph = replace(graph, gates=gates, edges=edges, ready=ready, ended=ended)
        frame = replace(frame, graph=graph, jumps=jumps, error=frame.error or self.error)
        state = replace(state, frames=state.frames.set(self.scope, frame))
        if self.limit is not None:
            times = frame.loops.get(f"{self.node_id}>{self.limit}", 0)
            state = at_limit(state, self.at, self.limit, times)
        if self.error is None:
            return state
        return pass_failed(state, self.scope, self.path or "", self.error)


class LoopIterate(Event, tag="loop:iterate", phases=WORK):
    """A jump back or ahead: a loop edge, or `on_error: goto:<id>`. `path` is the node that it leads away from.

    `iteration` counts, from 1, how often this pass took it; `position` is the place of the target in its list. In a
    graph, `reset` are the nodes that get another visit. `carried` counts, for each of them, the edges from elsewhere
    whose results still hold: how many are resolved, and how many of those were taken.
    """

    edge_from: str
    edge_to: str
    iteration: int
    position: int
    reset: list[str] | None = None
    carried: dict[str, list[int]] | None = None

    def fold(self, state: State) -> State:
        path = self.at
        scope = scope_of(path)
        frame = frame_at(state, scope)
        same(path, frame.nodes.get(self.edge_from), "path")
        if (self.edge_from, self.edge_to) not in frame.jumps:
            raise MalformedJournal(f"no jump from {self.edge_from} to {self.edge_to} is pending")
        same(self.iteration, frame.loops.get(f"{self.edge_from}>{self.edge_to}", 0) + 1, "iteration")
        target = frame.nodes.get(self.edge_to)
        if target is not None:
            same(self.position, state.nodes[target].position, "position")
        if frame.graph is None:
            if self.reset is not None or self.carried is not None or frame.running:
                raise MalformedJournal("a jump in a list waits for running nodes and resets nothing")
        else:
            # All nodes that get another visit must have ended, including the target.
            again = self.reset or []
            if self.edge_to not in again or len(set(again)) < len(again):
                raise MalformedJournal(
                    f"{self.edge_to} and the nodes after it must each be visited again exactly once"
                )
            for node_id in again:
                visited = frame.nodes.get(node_id)
                runs = visited is None or visited in state.active
                if runs or node_id in frame.graph.again or node_id in frame.graph.ended:
                    raise MalformedJournal(f"{node_id} has not ended, so it cannot be visited again")
            for node_id in self.carried or {}:
                if node_id not in again or node_id == self.edge_to:
                    raise MalformedJournal(f"{node_id} is not visited again, so its count does not continue")
        frame = replace(
            frame,
            jumps=tuple(jump for jump in frame.jumps if self.reset and jump[0] not in self.reset),
            loops=frame.loops.set(f"{self.edge_from}>{self.edge_to}", self.iteration),
            position=self.position,
        )
        if frame.graph is not None:
            jumps = tuple(jump for jump in frame.jumps if jump != (self.edge_from, self.edge_to))
            frame = replace(frame, graph=reset(frame.graph, self), jumps=jumps)
        return replace(state, frames=state.frames.set(scope, frame))


class ChildStarted(Start, tag="container:childStarted", phases=WORK, audit="input"):
    """A node inside a container began; the counterpart of `node:started` for the flow's own nodes. `node_id` is the
    container's."""

    child_id: str
    child_index: int
    node_type: str
    input: Json = None
    epoch: int
    attempt: int

    def fold(self, state: State) -> State:
        path = self.at
        frame = frame_at(state, scope_of(path))
        if frame.owner is None:
            raise MalformedJournal(f"{path} is not in a container, so it is not a child")
        if self.node_id != state.nodes[frame.owner].node_id:
            same(self.node_id, state.nodes[frame.owner].node_id, "container")
        state = begin(state, self, frame)
        return turn_begins(state, path, state.nodes[path]) if self.node_type == TURN else state

    @property
    def own_id(self) -> str:
        """The id of the node in its list."""
        return self.child_id

    @property
    def index(self) -> int:
        """The place of the node in its list."""
        return self.child_index


class ChildCompleted(Completion, tag="container:childCompleted", phases=OUTCOMES, audit="output"):
    """A node inside a container finished; the counterpart of `node:completed` for the flow's own nodes."""

    child_id: str
    output: Json = None

    @property
    def own_id(self) -> str:
        """The id of the node in its list."""
        return self.child_id

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started", "interrupted")
        owner = owner_of(state, path)
        if owner is None or state.containers[owner].agent is not None:
            raise MalformedJournal(f"{path} is not a child of a container with iterations")
        if self.child_id != run.node_id or self.node_id != state.nodes[owner].node_id:
            same((self.node_id, self.child_id), (state.nodes[owner].node_id, run.node_id), "place")
        return complete(state, path, run, self)


class ContainerStarted(NodeEvent, tag="container:started", phases=WORK):
    """A container has fixed its passes. `items` are frozen here; `keys` are branches or the case taken; `inputs` are
    those of a called flow; `agent` has the `model` of an agent, its caps (`maxCost`, `maxTokensTotal`, `maxTurns`), its
    lists of nodes (`turnList`, `toolList`), and whether its answer is JSON (`structured`), whether a later agent gets
    its conversation (`keeps`), and whether it continues the conversation that it had when it failed (`goesOn`)."""

    kind: Literal["foreach", "loop", "parallel", "switch", "flow", "agent"]
    total: int | None = None
    items: list[Json] | None = None
    keys: list[str] | None = None
    inputs: dict[str, Json] | None = None
    agent: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started")
        same((self.node_id, self.kind), (run.node_id, run.type), "container")
        if not state.owed or path in state.containers:
            raise MalformedJournal(f"container {path} was already started")
        # It has exactly the fields of its kind.
        names = _SAYS[self.kind]
        for name in ("total", "items", "keys", "inputs", "agent"):
            if (getattr(self, name) is not None) != (name in names):
                raise MalformedJournal(
                    f"a {self.kind} says {' and '.join(names) or 'nothing'} about its iterations"
                )
        keys = len(self.keys or [])
        match self.kind:
            case "foreach":
                same(self.total, len(self.items or []), "total")
            case "parallel" if not keys or self.total not in (COLLECT, keys):
                raise MalformedJournal(f"its total is not the number of its branches, {keys}")
            case "switch":
                same((self.total, keys < 2), (keys, True), "total")
            case "flow":
                same(self.total, 1, "total")
            case "agent":
                told = self.agent or {}
                if not all(isinstance(told.get(name), str) for name in ("model", "turnList", "toolList")):
                    raise MalformedJournal("an agent has a model, a list of model calls and a list of tools")
        if self.kind == "foreach":
            same(self.items, (run.input or {}).get("items"), "items")
        container = ContainerRun(self.node_id, self.kind, self.total, self.items, self.keys, self.inputs)
        state = replace(state, containers=state.containers.set(path, container))
        return state if self.agent is None else agent_begins(state, path, self.agent)

    def owes(self, before: State) -> tuple[Owed, ...]:
        told = self.agent or {"goesOn": True}
        return () if told.get("goesOn") else (Owed(("agent:message",), self.path),)


class IterationStarted(NodeEvent, tag="container:iterationStarted", phases=WORK):
    """One pass through a list of nodes began: an item, a round, a branch, a case, or the called flow.

    `scope` is the address of the pass, the prefix of its nodes' addresses; `list_id` names the list of nodes.
    """

    index: int
    key: str | None = None
    scope: str
    list_id: str

    def fold(self, state: State) -> State:
        path = self.at
        container = container_at(state, path)
        if container.kind in ("agent", ON_FAILURE) or container.error is not None:
            raise MalformedJournal(f"{path} has no iterations, or has failed and is shutting down")
        same(self.index, container.begun, "index")
        # A flow that a model called as a tool has the tool's id in the flow, and the call's in the conversation.
        if agent_of(state, path) is None:
            same(self.node_id, container.node_id, "container")
        if container.begun >= _passes(container):
            raise MalformedJournal(f"{path} has {container.begun} iterations, and all of them have begun")
        at_once: float = 1
        if container.kind == "parallel":
            at_once = float("inf")
        elif container.kind == "foreach":
            at_once = int((state.nodes[path].input or {}).get("concurrency") or 1)
        if container.running >= at_once:
            raise MalformedJournal(
                f"{path} has {container.running} iterations running, and no room for another one"
            )
        same(self.key, container.keys[self.index] if container.keys else None, "key")
        scope = pass_scope(path, state.nodes[path], container, self.index)
        if self.scope != scope:
            same(self.scope, scope, "scope")
        moved = replace(container, begun=container.begun + 1, running=container.running + 1)
        return replace(
            state,
            containers=state.containers.set(path, moved),
            frames=state.frames.set(self.scope, Frame(self.list_id, path, self.index)),
        )


class IterationCompleted(NodeEvent, tag="container:iterationCompleted", phases=WORK):
    """Every node of a pass has its outcome. Its outputs are those of its nodes, and are not repeated. In a failed pass,
    `unreached` are the nodes that it did not reach: their outputs are null. `collected` is the pass's result for
    `collect` of a `foreach`."""

    index: int
    scope: str
    error: dict[str, Json] | None = None
    unreached: list[str] | None = None
    collected: Json = None

    def fold(self, state: State) -> State:
        path = self.at
        container, frame = container_at(state, path), frame_at(state, self.scope)
        if frame.owner != path or container.agent is not None:
            raise MalformedJournal(f"{self.scope} is not an iteration of {path}")
        same((self.node_id, self.index), (container.node_id, frame.order), "place")
        if container.error is not None:
            raise MalformedJournal(f"{path} has failed and is shutting down")
        # A pass of a `foreach` that reached its end can still fail in `collect`.
        collects = container.kind == "foreach" and frame.error is None
        if not collects:
            same((self.error, self.collected), (frame.error, None), "error")
        if frame.error is None:
            through(frame, self.scope)
            same(self.unreached, None, "nodes that it did not come to")
        elif frame.running or any(node_id in frame.nodes for node_id in self.unreached or ()):
            raise MalformedJournal(f"{self.scope} has not finished, or did reach nodes listed as not reached")
        nodes, outputs = state.nodes, {}
        # In the order of the file: a map has none, and an output must be the same in every process.
        for node_id, inner in sorted(frame.nodes.items(), key=lambda item: state.nodes[item[1]].position):
            outputs[node_id] = nodes[inner].output
            nodes = nodes.delete(inner)
        outputs |= dict.fromkeys(self.unreached or ())
        result: dict[str, Json] = {"index": frame.order, "outputs": outputs}
        if self.error is not None:
            result["error"] = self.error
        if self.collected is not None:
            result["collected"] = self.collected
        # A pass of a `foreach` that reached its end fails only in `collect`.
        failed = self.error if container.kind == "foreach" else None
        moved = replace(
            container,
            running=container.running - 1,
            results=container.results.set(frame.order, result),
            last=outputs,
            error=container.error or failed,
        )
        return replace(
            state,
            nodes=nodes,
            containers=state.containers.set(path, moved),
            frames=state.frames.delete(self.scope),
        )


class ContainerCompleted(NodeEvent, tag="container:completed", phases=OUTCOMES):
    """All passes have ended. The container's output follows from them. `limit` is the number of rounds of a loop that
    would have continued (`on_limit: continue`, or a person's decision)."""

    limit: int | None = None

    def fold(self, state: State) -> State:
        path = self.at
        container = container_at(state, path)
        same(self.node_id, container.node_id, "container")
        if container.kind == ON_FAILURE:
            over = not container.running or container.error is not None
        elif container.agent is not None:
            agent = container.agent
            over = container.error is None and agent.final and not agent.calls
        elif self.limit is not None and (container.kind != "loop" or self.limit != container.begun):
            over = False
        else:
            begun = container.kind == "loop" or container.begun == _passes(container)
            over = container.error is None and begun and not container.running
        if not over:
            raise MalformedJournal(f"container {path} has not finished")
        run = state.nodes[path]
        if container.kind == ON_FAILURE:
            return drop_passes(state, path)
        if self.limit is not None:
            state = at_limit(state, path, None, self.limit)
        done = replace(
            run,
            status="completed",
            output=container_output(container, run.input),
            input=None,
            ended_at=self.timestamp,
        )
        timers = without(without(state.timers, timeout_id(state, path)), rest_id(state, path))
        state = replace(state, timers=timers)
        state = finish(replace(state, containers=state.containers.delete(path)), path, done)
        if container.agent is None:
            return state
        if container.agent.keeps:
            messages = container.agent.messages
            said = tuple(messages[number] for number in range(len(messages)))
            state = replace(state, conversations=state.conversations.set(path, said))
        return drop_passes(state, path)


def _node_ended(state: State, frame: Frame, event: EdgeResolved) -> Graph:
    graph = frame.graph
    if graph is None or event.node_id is None or event.node_id not in graph.ended:
        raise MalformedJournal(f"the edges of {event.node_id} are resolved already, or it has no outcome yet")
    same(event.path, frame.nodes[event.node_id], "path")
    if (event.jump, event.limit, event.error).count(None) < 2:
        raise MalformedJournal("an iteration jumps, continues at a limit, or fails")
    if event.limit is not None and event.limit not in frame.nodes:
        raise MalformedJournal(f"a loop leads back, and {event.limit} did not run")
    if any(state.prompts[key].path == event.path for key in state.open_prompts):
        raise MalformedJournal(f"people are asked about the loop edge that leaves {event.node_id}")
    # Each node that may start now has a taken edge leading to it, and has not started yet.
    taken = event.taken or {}
    for node_id in event.ready:
        led = taken.get(node_id) or graph.gates.get(node_id, (0, 0))[1]
        if node_id not in taken or not led:
            raise MalformedJournal(f"no taken edge leads to {node_id}")
        if node_id in graph.ready or (node_id in frame.nodes and node_id not in graph.again):
            raise MalformedJournal(f"{node_id} is already running")
    return graph


def _graph_begins(frame: Frame, event: EdgeResolved) -> Graph:
    told = (event.node_id, event.taken, event.jump or event.limit, event.error)
    if frame.graph is not None or frame.nodes:
        raise MalformedJournal(f"{event.scope or 'the flow'} has begun before")
    if told != (None, None, None, None) or not event.ready:
        raise MalformedJournal("an iteration begins with the nodes that may start, and nothing else")
    return Graph()


def reset(graph: Graph, event: LoopIterate) -> Graph:
    gates, again = graph.gates, graph.again
    for node_id in event.reset or ():
        gates, again = without(gates, node_id), again.set(node_id, None)
    for node_id, (known, yes) in (event.carried or {}).items():
        gates = gates.set(node_id, (known, yes))
    return replace(graph, gates=gates, again=again, ready=graph.ready.set(event.edge_to, None))


_SAYS: dict[str, tuple[str, ...]] = {
    "foreach": ("items", "total"),
    "loop": (),
    "parallel": ("keys", "total"),
    "switch": ("keys", "total"),
    "flow": ("inputs", "total"),
    "agent": ("agent",),
}


def _passes(container: ContainerRun) -> float:
    """Return the number of passes of a container; infinite for a loop, which only its condition ends."""
    if container.kind == "loop":
        return float("inf")
    return len(container.keys) if container.keys is not None else container.total or 0


def container_output(container: ContainerRun, config: Json) -> dict[str, Json]:
    """Return the output of a container, from the results of its passes. It shares their values without copying."""
    results = [container.results[number] for number in sorted(container.results)]
    match container.kind:
        case "foreach":
            collects = (config or {}).get("collect") is not None
            items = container.items or []
            collected = [result.get("collected") for result in results]
            shown = [
                {name: value for name, value in result.items() if name != "collected"} for result in results
            ]
            output: dict[str, Json] = {
                "iterations": [{**result, "item": items[result["index"]]} for result in shown]
            }
            return {**output, "collected": collected} if collects else output
        case "loop":
            return {"iterations": [{**result, "item": None} for result in results]}
        case "parallel":
            keys = container.keys or []
            return {"branches": {keys[result["index"]]: result["outputs"] for result in results}}
        case "switch":
            # `default` has the empty key.
            case = (container.keys[0] or None) if container.keys else None
            return {"case": case, "outputs": results[0]["outputs"] if results else {}}
        case "agent":
            return agent_output(container.agent or AgentRun())
        case _:
            return {"outputs": results[0]["outputs"] if results else {}}


def agent_output(agent: AgentRun) -> dict[str, Json]:
    """Return the output of an agent: its last answer, and its total usage. `cost` is in dollars."""
    return {
        "text": agent.text,
        "data": messages.data_in(agent.text)[0] if agent.structured else None,
        "turns": agent.spent.turns,
        "usage": dict(agent.usage),
        "cost": float(agent.spent.cost),
    }
