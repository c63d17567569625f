"""`Step`: the events that one step writes, and the state after them. Below it: evaluation of expressions,
configurations and conditions at a place in the session. Pure.

A step folds each event it writes, so that later parts of the step see its effects; the caller's state is never touched.

A node sees the nodes of its own pass and of those around it, up to the boundary of its flow: a called flow has inputs
and nodes of its own. `item` (under the name that `as` gives it), `index` and `last` are those of the innermost pass
that has them. `now` is the time of the evaluating step, which its events carry: the result is in the journal and is
never evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from engine.decide import outages
from engine.decide.commands import Action, Facts, Revoke, Steer
from engine.flow import Flow, Node
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.fold import evolve
from engine.journal.grammar import failure_scope, retry_id
from engine.journal.phases import REJECTED
from engine.journal.queries import doomed
from engine.journal.state import FINALLY, ROOT, Asked, Frame, NodeRun, State, in_finally, scope_of
from engine.language import timestamps
from engine.language.actors import Actor, named, requester_named
from engine.language.codec import Json, clean_text, copy, decode
from engine.language.errors import ExpressionError, NotAllowed, NotJson, SaysoError
from engine.language.expressions import Compiled, evaluate_condition


class Work(NamedTuple):
    """Work that may start: the next node of a pass (`path` is the pass; `node` names the node in a graph), or a node
    again (`path` is its own)."""

    path: str
    again: bool = False
    node: str | None = None


class Step:
    """The events of one step, and the state after them."""

    def __init__(
        self, flow: Flow, state: State, facts: Facts, kinds: Kinds, earlier: Step | None = None
    ) -> None:
        """`earlier` is a step that may have ended with this state: then only later changes are examined."""
        self.flow = flow
        self.state = state
        self.facts = facts
        self.kinds = kinds
        self.events: list[Event] = []
        self.at_fixpoint: State | None = None
        """State that needs no further events until the next command, once examined."""
        self.due: tuple[State, list[Work]] | None = None
        """Work that may start, with the state it was derived from (`engine.decide.due.due_in`)."""
        self._moved: set[str] | None = None
        """Places touched since the last call of `moved`; None means everywhere."""
        if earlier is not None and earlier.state is state and earlier.flow is flow:
            self._moved, self.due = earlier._moved, earlier.due

    def emit(self, kind: Callable[..., Event], /, **fields: Any) -> None:
        """Write an event and fold it."""
        before = self.state
        event = kind(seq=before.seq + 1, timestamp=self.facts.now, **fields)
        self.events.append(event)
        self.state = evolve(before, event)
        if event.path is None or self.state.phase != before.phase:
            self._moved = None
        elif self._moved is not None and not isinstance(event, ev.Start):
            self._moved.add(event.path)
            if "scope" in fields:
                self._moved.add(fields["scope"] or ROOT)

    def emit_at(self, path: str, kind: Callable[..., Event], /, **fields: Any) -> None:
        """Write an event about the node at a path."""
        self.emit(kind, path=path, node_id=self.state.nodes[path].node_id, **fields)

    def emit_about(self, prompt: Asked, kind: Callable[..., Event], /, **fields: Any) -> None:
        """Write an event about a question."""
        self.emit(kind, path=prompt.path, prompt_id=prompt.prompt_id, **fields)

    def moved(self) -> set[str]:
        """Return the addresses of nodes and passes touched since the last call, and everything around them; elsewhere
        nothing can follow. The first call returns everything that is open."""
        state, moved, self._moved = self.state, self._moved, set()
        if moved is None:
            return {*state.frames, *state.containers, *state.active}
        found: set[str] = set()
        scopes: set[str] = set()  # the pass of an agent has the address of the agent
        for place in moved:
            address: str | None = place
            while address is not None and address not in found:
                scope = scope_of(address)
                found.add(address)
                scopes.add(scope)
                frame = state.frames.get(scope)
                address = None if frame is None else frame.owner
        return found | scopes

    def rewind(self, state: State, events: int) -> None:
        """Drop all but the first `events` events, which left this state."""
        self.state, self._moved = state, None
        del self.events[events:]

    def new_id(self, prefix: str, salt: str) -> str:
        """Return an unguessable id, the same for the same facts."""
        return prefix + self._random(salt).hexdigest()

    def chance(self, salt: str) -> float:
        """A number from 0 to 1, the same for the same facts."""
        return int.from_bytes(self._random(salt).digest(), "big") / 2**48

    def _random(self, salt: str) -> blake2b:
        material = f"{self.facts.entropy}|{self.state.session_id}|{self.state.seq}|{salt}"
        return blake2b(material.encode(), digest_size=6)

    def permit(self, actor: Actor, action: Action, prompt: Asked | None = None) -> Actor:
        """Return the actor to act as: themselves, or as a stand-in for a person who is away. Raises `NotAllowed` with
        the policy's sentence."""
        reason = self.facts.policy(actor, action, self.state, prompt)
        if reason is not None:
            raise NotAllowed(reason)
        if not actor.absent:
            return actor
        ways = [replace(actor, absent=way) for way in ((), *((one,) for one in actor.absent))]
        return next(way for way in ways if self.facts.policy(way, action, self.state, prompt) is None)

    def place(self, path: str | None) -> dict[str, Json]:
        """Return the place fields of an event: the path, and the node id, which is the same on every visit."""
        run = self.state.nodes.get(path or "")
        return {"path": path, "node_id": run.node_id if run else path}

    def wake(self, path: str | None, message: str | None = None) -> None:
        """Leave `waiting`, if that is where the session is."""
        if self.state.phase == "waiting":
            injected = 1 if message is not None else 0
            self.emit(ev.FlowResumed, **self.place(path), message=message, injected_messages=injected)

    def ask(self, path: str, question: Question) -> None:
        """Request a prompt: with a number that people can say, and a nonce that only its own buttons carry."""
        number, nonce = self.state.prompts_asked + 1, self.new_id("", f"nonce {path}")
        prompt = replace(question, number=number, nonce=nonce).to_wire()
        self.emit(ev.PromptRequested, path=path, prompt_id=self.new_id("prompt-", path), prompt=prompt)

    def withdraw(self, prompt: Asked, reason: str) -> None:
        """Withdraw a question that needs no answer any more."""
        self.emit_about(prompt, ev.PromptCancelled, reason=reason)

    def set_timer(
        self, path: str | None, timer_id: str, due_at: str, purpose: str, prompt_id: str | None = None
    ) -> None:
        """A timer that fires at or after that moment."""
        self.emit(
            ev.TimerSet, path=path, timer_id=timer_id, due_at=due_at, purpose=purpose, prompt_id=prompt_id
        )

    def pause(self, path: str | None, reason: str, **by: Json) -> None:
        """Pause the flow: the session waits, or a person holds it."""
        self.emit(ev.FlowPaused, **self.place(path), reason=reason, **by)

    def node(self, path: str) -> Node:
        """The definition of the node at a path that is in progress."""
        return node_at(self.flow, self.state, path)

    def around(self, path: str) -> Kind:
        """The kind of the node that the node at a path is in."""
        return kind_around(self.kinds, self.state, scope_of(path))

    def start(self, path: str, node_id: str, kind: str, index: int, config: Json, attempt: int = 1) -> None:
        """A node begins: under the name that its place gives the event."""
        fields = {"node_type": kind, "input": config, "epoch": self.facts.epoch, "attempt": attempt}
        owner = self._owner(path)
        if owner is None:
            self.emit(ev.NodeStarted, path=path, node_id=node_id, node_index=index, **fields)
        else:
            self.emit(
                ev.ChildStarted, path=path, node_id=owner, child_id=node_id, child_index=index, **fields
            )

    def complete(self, path: str, output: Json) -> None:
        """Complete a node. An output that is not JSON fails it."""
        if self.around(path).child_ended(self, path, output):
            return
        node_id = self.state.nodes[path].node_id
        owner = self._owner(path)
        try:
            output = copy(output)
        except NotJson as error:
            self.fail(path, {"type": error.code, "message": f"node {node_id}: output: {error}"})
            return
        if owner is None:
            self.emit(ev.NodeCompleted, path=path, node_id=node_id, output=output)
        else:
            self.emit(ev.ChildCompleted, path=path, node_id=owner, child_id=node_id, output=output)

    def interrupt(self, path: str, reason: str, saved: Json = None) -> None:
        """Mark a node as interrupted: it is no longer running and has no outcome."""
        self.emit_at(path, ev.NodeInterrupted, reason=reason, saved=saved)

    def skip(self, path: str, node_id: str, kind: str, reason: str, index: int | None = None) -> None:
        """A node does not run; `index` is its place in a list that is a graph."""
        self.emit(ev.NodeSkipped, path=path, node_id=node_id, node_type=kind, reason=reason, node_index=index)

    def close(self, path: str, limit: int | None = None) -> None:
        """Complete a container that has nothing left to run."""
        self.emit_at(path, ev.ContainerCompleted, limit=limit)

    def _owner(self, path: str) -> str | None:
        owner = self.state.frames[scope_of(path)].owner
        return None if owner is None else self.state.nodes[owner].node_id

    def break_(self, path: str, error: dict[str, Json]) -> None:
        """An attempt failed: `retry` says whether another one follows, later and with the same input."""
        run, retry = self.state.nodes[path], self.node(path).retry
        details = error["details"] if isinstance(error.get("details"), dict) else {}
        # The same request is known to fail again, or people rejected it.
        in_vain = error.get("type") == REJECTED or details.get("retryable") is False
        # Not counted from `attempt`, which includes starts that a pause or crash interrupted.
        if retry is None or self._given_up(path) or in_vain:
            self.fail(path, error)
            return
        # The other side may have asked us to wait; at most an hour.
        asked = details.get("retryAfter")
        asked = min(float(asked), 3600.0) if isinstance(asked, int | float) else 0.0
        wait = max(retry.wait(run.failures + 1, self.chance(path)), asked)
        due_at = timestamps.after(self.facts.now, wait)
        if not outages.tries_again(self.flow.deadline, run, retry, error, due_at):
            self.fail(path, error)
            return
        self.emit_at(
            path,
            ev.NodeRetried,
            error=storable(error),
            attempt=run.attempt,
            timer_id=retry_id(self.state, path, run),
            due_at=due_at,
            unpaid=True if outages.unpaid(run, error) else None,
        )

    def fail(self, path: str, error: dict[str, Json]) -> None:
        """Handle a failure without retries left: run `on_failure` or ask people first, then let it count."""
        run, node = self.state.nodes[path], self.node(path)
        asks = node.on_error == "ask" and not in_finally(path)
        if self._given_up(path) or not (node.on_failure or asks):
            self.fail_for_good(path, error)
            return
        container = self.state.containers.get(path)
        keeps = asks and container is not None and self.kinds[container.kind].keeps(self, path)
        self.emit_at(
            path,
            ev.NodeFailing,
            error=storable(error),
            attempt=run.attempt,
            list_id=node.on_failure,
            scope=None if node.on_failure is None else failure_scope(path, run),
            keeps=True if keeps else None,
            unpaid=True if outages.unpaid(run, error) else None,
        )

    def _given_up(self, path: str) -> bool:
        """True if events at this path have no further effect."""
        ending = self.state.phase == "finalizing" and (self.state.finally_skipped or not in_finally(path))
        return ending or doomed(self.state, path)

    def fail_for_good(self, path: str, error: dict[str, Json], goto: str | None = None) -> None:
        """Fail a node for good: `goto`, or its `on_error`, says where the surrounding nodes continue."""
        if self.around(path).child_ended(self, path, error=storable(error)):
            return
        run, node = self.state.nodes[path], self.node(path)
        goto = None if self._given_up(path) else goto or node.goto
        self.emit_at(
            path,
            ev.NodeFailed,
            error=storable(error),
            attempt=run.attempt,
            contained=True if goto is not None or node.on_error == "continue" else None,
            goto=goto,
            unpaid=True if outages.unpaid(run, error) else None,
        )


class Kind(Protocol):
    """Behaviour of a node type that holds children. `path` is that of such a node, except in `child_ended` and
    `child_failed`, which get that of a child."""

    def frozen(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
        """Return the fields of `container:started` that freeze what the node iterates over."""
        return {}

    def opened(self, step: Step, path: str, node: Node, config: dict[str, Json]) -> None:
        """Write the events after the node's start."""
        return

    def startable(self, flow: Flow, state: State, scope: str) -> Iterator[tuple[Work, str]]:
        """Yield the work that may start in one of its passes, each with the mode of its type."""

    def begin(self, step: Step, item: Work) -> None:
        """Begin a child, or begin it again."""

    def child_ended(
        self, step: Step, path: str, output: Json = None, error: dict[str, Json] | None = None
    ) -> bool:
        """Write the effects of a child's outcome. False if it counts as for any node."""
        return False

    def child_failed(self, step: Step, path: str) -> None:
        """A child failed, and no try is left: ask people, or let the failure count."""

    def progress(self, step: Step, path: str) -> None:
        """Write what follows from the node's state: new passes, questions, its end."""

    def keeps(self, step: Step, path: str) -> bool:
        """True if its passes' work is kept when it fails and people may let it continue."""
        return False

    def decided(self, step: Step, prompt: Asked) -> None:
        """Apply the answer, or the timeout, of a question about the node or a child."""

    def heard(self, step: Step, said: Steer, *, aside: bool) -> bool:
        """Take a message, or with `aside` one that is not an instruction. True if it was taken."""
        return False

    def covered(self, step: Step, prompt: Asked, values: dict[str, Json]) -> dict[str, Json] | None:
        """Return what would run if this were approved with these values. Raises `SaysoError` if it could not run."""

    def granted(self, step: Step, prompt: Asked, always: Json) -> dict[str, Json]:
        """Return the grant that goes with an approval, as it is voted on. Raises `InvalidAnswer`."""

    def revoked(self, step: Step, command: Revoke) -> None:
        """A person takes a grant back."""
        return


Kinds = Mapping[str, Kind]
"""Kinds by type, given to a step by the caller: `engine.decide.agents.kinds`."""


def kind_around(kinds: Kinds, state: State, scope: str) -> Kind:
    """Return the kind of the node whose pass this is; the flow's own passes count as those of a called flow."""
    owner = state.frames[scope].owner
    return kinds["flow" if owner is None else state.containers[owner].kind]


def storable(error: dict[str, Json]) -> dict[str, Json]:
    """Return the error as it can be journaled; details that are not JSON are dropped."""
    try:
        copied: dict[str, Json] = copy(error)
        return copied
    except NotJson:
        kept = {name: clean_text(str(error.get(name)))[0] for name in ("type", "message")}
        return {**kept, "details": None}


# --- expressions -------------------------------------------------------------------------------------------


class ConfigError(SaysoError):
    """A node's configuration could not be evaluated, or does not fit its type."""

    code = "config"


def evaluate_test(compiled: Compiled, flow: Flow, state: State, scope: str, now: str, where: str) -> bool:
    """Evaluate a condition in a pass. Raises `ExpressionError`, whose message begins with `where`."""
    return evaluate_condition(compiled, context(compiled, flow, state, scope, now), where)


def evaluate_config(
    flow: Flow, node: Node, state: State, scope: str, now: str | None, also: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the node's `with`, evaluated, checked and with defaults; `also` holds additional names for expressions.
    Raises `ConfigError`."""
    try:
        if node.constant is not None:
            constant: dict[str, Json] = decode(node.constant)
            return constant
        names = context(node.compiled, flow, state, scope, now)
        if also is not None:
            names |= also
        return node.spec.normalize(node.compiled.evaluate(names), node.config)
    except ExpressionError as error:
        raise ExpressionError(f"node {node.id}: {error}") from error
    except SaysoError as error:
        raise ConfigError(f"node {node.id}: with: {error}") from error


def context(compiled: Compiled, flow: Flow, state: State, scope: str, now: str | None) -> dict[str, Any]:
    """Return the names that an expression may use; only the nodes that it mentions, to save work. Without `now` it has
    no time: what people approve is evaluated twice, and must be the same."""
    if not compiled.roots:
        return {}
    passes = list(_outwards(state, scope))
    found: dict[str, Any] = {}
    for root, wanted in compiled.roots.items():
        if root in _PER_NODE:
            # A node that was not reached or has not begun is null; the loader has checked that it exists.
            nodes: dict[str, Json] = dict.fromkeys(wanted)
            for name in wanted:
                for _, frame in passes:
                    if name in frame.nodes:
                        nodes[name] = _PER_NODE[root](state.nodes[frame.nodes[name]])
                        break
            found[root] = nodes
        elif root in _WHOLE:
            found[root] = _WHOLE[root](state, passes)
        else:
            _variable(found, root, flow, state, passes)
    if now is not None and ("now",) in compiled.names:
        found.setdefault("now", now)
    return found


Pass = tuple[str, Frame]


def _outwards(state: State, scope: str) -> Iterator[Pass]:
    """Yield the passes around a place, innermost first, up to its own flow. `finally` sees all of the flow."""
    while True:
        frame = state.frames[scope]
        yield scope, frame
        if scope == FINALLY:
            yield ROOT, state.frames[ROOT]
        if frame.owner is None or state.containers[frame.owner].kind == "flow":
            return
        scope = scope_of(frame.owner)


def named_path(state: State, path: str, name: str) -> str | None:
    """The path of the node that a node at `path` means by this id: in its own pass or around it; None for one that did
    not run."""
    found = (frame.nodes[name] for _, frame in _outwards(state, scope_of(path)) if name in frame.nodes)
    return next(found, None)


def named_node(state: State, path: str, name: str) -> NodeRun | None:
    """The same as a node."""
    found = named_path(state, path, name)
    return None if found is None else state.nodes[found]


_PER_NODE: dict[str, Callable[[NodeRun], Json]] = {
    "nodes": lambda run: run.output,
    "status": lambda run: "failed" if run.status == "failing" else run.status,
    "errors": lambda run: run.error,
}


def _inputs(state: State, passes: list[Pass]) -> Json:
    owner = passes[-1][1].owner
    return (state.inputs if owner is None else state.containers[owner].inputs) or {}


def session_named(state: State) -> dict[str, Json]:
    """The session as expressions see it."""
    return {"id": state.session_id, "requester": requester_named(state.actor), "flow": state.flow_name}


_WHOLE: dict[str, Callable[[State, list[Pass]], Json]] = {
    "inputs": _inputs,
    "messages": lambda state, _: [{**said, "by": named(said["by"])} for said in state.messages],
    "session": lambda state, _: session_named(state),
}


def _variable(found: dict[str, Any], name: str, flow: Flow, state: State, passes: list[Pass]) -> None:
    """`index`, `last`, or the name that a `foreach` gave its item."""
    for _, frame in passes:
        if frame.owner is None:
            return
        container = state.containers[frame.owner]
        if name == "index" and container.kind in ("foreach", "loop"):
            found[name] = frame.order
            return
        if name == "last" and container.kind == "loop":
            found[name] = container.last
            return
        if container.kind == "foreach" and item_name(flow, state, frame.owner) == name:
            found[name] = (container.items or [])[frame.order]
            return


def item_name(flow: Flow, state: State, path: str) -> str | None:
    """Return the name that a `foreach` gives its item, or None."""
    return node_at(flow, state, path).as_


def node_at(flow: Flow, state: State, path: str) -> Node:
    """The definition of the node at a path that is in progress."""
    frame, run = state.frames[scope_of(path)], state.nodes[path]
    return flow.lists[frame.list_id].nodes[run.position]
