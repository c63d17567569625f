"""One call of `decide`: the events that it writes and the state after them. Pure.

A turn folds each event it writes, so that later parts of the turn see what earlier ones made true; the caller's
state is never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from engine.decide import outages
from engine.decide.behaviours import conversations
from engine.decide.commands import Action, Facts
from engine.decide.evaluate import node_at
from engine.flow import Flow, Node
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.fold import evolve
from engine.journal.folds.agents import TURN, agent_of
from engine.journal.grammar.ids import failure_scope, retry_id
from engine.journal.queries import REJECTED, doomed
from engine.journal.state import Asked, State, in_finally, scope_of
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json, clean_text, copy
from engine.language.errors import NotAllowed, NotJson
from engine.nodes.types.registry import code_key


class Turn:
    """The events of one `decide`, and the state after them."""

    def __init__(self, flow: Flow, state: State, facts: Facts) -> None:
        self.flow = flow
        self.state = state
        self.facts = facts
        self.events: list[Event] = []

    def emit(self, kind: Callable[..., Event], /, **fields: Any) -> None:
        """Write an event and fold it."""
        event = kind(seq=self.state.seq + 1, timestamp=self.facts.now, **fields)
        self.events.append(event)
        self.state = evolve(self.state, event)

    def new_id(self, prefix: str, salt: str) -> str:
        """An id that nobody can guess, the same for the same facts."""
        return prefix + self._random(salt).hexdigest()

    def chance(self, salt: str) -> float:
        """A number from 0 to 1, the same for the same facts."""
        return int.from_bytes(self._random(salt).digest(), "big") / 2**48

    def _random(self, salt: str) -> blake2b:
        material = f"{self.facts.entropy}|{self.state.session_id}|{self.state.seq}|{salt}"
        return blake2b(material.encode(), digest_size=6)

    def permit(self, actor: Actor, action: Action, prompt: Asked | None = None) -> None:
        """Raise `NotAllowed` with the policy's sentence unless this actor may do this."""
        reason = self.facts.policy(actor, action, self.state, prompt)
        if reason is not None:
            raise NotAllowed(reason)

    def place(self, path: str | None) -> dict[str, Json]:
        """Where something happens, as events say it: the path, and the id of its node on every visit."""
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

    def node(self, path: str) -> Node:
        """The definition of the node at a path that is under way."""
        return node_at(self.flow, self.state, path)

    def start(self, path: str, node_id: str, kind: str, index: int, config: Json, attempt: int = 1) -> None:
        """A node begins: under the name that its place gives the event."""
        code = self.facts.code.get(code_key(kind, config) or "")
        fields = {"node_type": kind, "input": config, "epoch": self.facts.epoch, "attempt": attempt}
        fields["code_digest"] = code
        owner = self._owner(path)
        if owner is None:
            self.emit(ev.NodeStarted, path=path, node_id=node_id, node_index=index, **fields)
        else:
            self.emit(
                ev.ChildStarted, path=path, node_id=owner, child_id=node_id, child_index=index, **fields
            )

    def complete(self, path: str, output: Json) -> None:
        """A node has finished. An output that is no JSON fails it."""
        node_id = self.state.nodes[path].node_id
        if agent_of(self.state, path) is not None:
            turned = self.state.nodes[path].type == TURN
            (conversations().answered if turned else conversations().call_done)(self, path, output)
            return
        try:
            output = copy(output)
        except NotJson as error:
            self.fail(path, {"type": error.code, "message": f"node {node_id}: output: {error}"})
            return
        owner = self._owner(path)
        if owner is None:
            self.emit(ev.NodeCompleted, path=path, node_id=node_id, output=output)
        else:
            self.emit(ev.ChildCompleted, path=path, node_id=owner, child_id=node_id, output=output)

    def _owner(self, path: str) -> str | None:
        owner = self.state.frames[scope_of(path)].owner
        return None if owner is None else self.state.nodes[owner].node_id

    def break_(self, path: str, error: dict[str, Json]) -> None:
        """An attempt failed: `retry` says whether another one follows, later and with the same input."""
        run, retry = self.state.nodes[path], self.node(path).retry
        # Not from `attempt`: that also counts starts that a pause or a crash interrupted.
        if retry is None or self._given_up(path) or _in_vain(error):
            self.fail(path, error)
            return
        wait = max(retry.wait(run.failures + 1, self.chance(path)), _asked_wait(error))
        due_at = timestamps.after(self.facts.now, wait)
        if not outages.tries_again(self.flow.deadline, run, retry, error, due_at):
            self.fail(path, error)
            return
        self.emit(
            ev.NodeRetried,
            path=path,
            node_id=run.node_id,
            error=storable(error),
            attempt=run.attempt,
            timer_id=retry_id(self.state, path, run),
            due_at=due_at,
            unpaid=True if outages.unpaid(run, error) else None,
        )

    def fail(self, path: str, error: dict[str, Json]) -> None:
        """No try is left: `on_failure` runs first, or people are asked, and then the failure counts."""
        run, node = self.state.nodes[path], self.node(path)
        asks = node.on_error == "ask" and not in_finally(path)
        if self._given_up(path) or not (node.on_failure or asks):
            self.fail_for_good(path, error)
            return
        keeps = asks and conversations().may_go_on(self, path)
        self.emit(
            ev.NodeFailing,
            path=path,
            node_id=run.node_id,
            error=storable(error),
            attempt=run.attempt,
            list_id=node.on_failure,
            scope=None if node.on_failure is None else failure_scope(path, run),
            keeps=True if keeps else None,
        )

    def _given_up(self, path: str) -> bool:
        """Whether nothing follows any more from what happens here."""
        ending = self.state.phase == "finalizing" and (self.state.finally_skipped or not in_finally(path))
        return ending or doomed(self.state, path)

    def fail_for_good(self, path: str, error: dict[str, Json], goto: str | None = None) -> None:
        """A node failed and nothing else comes first: `goto`, or its `on_error`, says where the nodes around it go on."""
        run, node = self.state.nodes[path], self.node(path)
        if run.type != TURN and agent_of(self.state, path) is not None:
            conversations().call_failed(self, path, storable(error))
            return
        goto = None if self._given_up(path) else goto or node.goto
        self.emit(
            ev.NodeFailed,
            path=path,
            node_id=run.node_id,
            error=storable(error),
            attempt=run.attempt,
            contained=True if goto is not None or node.on_error == "continue" else None,
            goto=goto,
            unpaid=True if outages.unpaid(run, error) else None,
        )


def _in_vain(error: dict[str, Json]) -> bool:
    """Whether the other side said that the same request will fail again, or people said no."""
    details = error.get("details")
    return error.get("type") == REJECTED or (isinstance(details, dict) and details.get("retryable") is False)


def _asked_wait(error: dict[str, Json]) -> float:
    """Seconds that the other side asked us to wait, at most an hour."""
    details = error.get("details")
    asked = details.get("retryAfter") if isinstance(details, dict) else None
    return min(float(asked), 3600.0) if isinstance(asked, int | float) else 0.0


def storable(error: dict[str, Json]) -> dict[str, Json]:
    """The error as it can be journaled: a failure with details that are no JSON is a failure all the same."""
    try:
        copied: dict[str, Json] = copy(error)
        return copied
    except NotJson:
        kept = {name: clean_text(str(error.get(name)))[0] for name in ("type", "message")}
        return {**kept, "details": None}
