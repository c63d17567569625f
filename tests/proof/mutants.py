"""Seeded faults: what DESIGN.md section 10 says that others got wrong, put into the engine by a monkey patch.

Most change the state that a claim has read, so a run that is never paused does not meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from engine.decide import decide
from engine.decide.commands import NodeCut
from engine.decide.step import Step, evaluate_config, node_at
from engine.flow import Flow
from engine.journal.events import IterationStarted, decode_event
from engine.journal.state import ROOT, Frame, State, below, scope_of
from engine.run.executor import ActiveSession
from engine.run.sessions import Sessions
from engine.storage.sessions import SessionTable

Change = Callable[[Flow, State], State]


@dataclass(frozen=True)
class Mutant:
    """A fault: the row of the table, how to put it in, and the flows whose proof must see it."""

    row: int
    apply: Callable[[pytest.MonkeyPatch], None]
    flows: tuple[str, ...]


def at_claim(change: Change) -> Callable[[pytest.MonkeyPatch], None]:
    """A fault in what a claim reads."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        claim = Sessions._load_claimed

        async def claimed(self: Sessions, live: ActiveSession) -> None:
            await claim(self, live)
            if not live.state.ended and live.flow is not None:
                live.state = change(live.flow, live.state)

        patch.setattr(Sessions, "_load_claimed", claimed)

    return apply


def passes(state: State) -> Iterator[tuple[str, Frame]]:
    """The passes of containers that are in progress."""
    return ((scope, frame) for scope, frame in sorted(state.frames.items()) if scope != ROOT)


def restart_pass(flow: Flow, state: State) -> State:
    """A resumed iteration begins again, and what it had done is forgotten."""
    for scope, _ in passes(state):
        state = rewind(state, scope, 0)
    return state


def rewind(state: State, scope: str, position: int) -> State:
    """Forget everything in a pass from a position on, unless somebody is being asked there."""
    frame = state.frames.get(scope)
    if frame is None or _holds_prompt(state, scope):
        return state
    kept = frame.nodes
    for node_id, path in frame.nodes.items():
        if state.nodes[path].position >= position:
            state, kept = _without(state, path), kept.delete(node_id)
    fresh = replace(frame, position=position, running=0, nodes=kept, error=None)
    return replace(state, frames=state.frames.set(scope, fresh))


def _holds_prompt(state: State, scope: str) -> bool:
    paths = [state.prompts[key].path for key in state.open_prompts]
    return any(path.startswith(f"{scope}/") or scope == ROOT for path in paths)


def _without(state: State, path: str) -> State:
    def cut(mapping: Map[str, Any]) -> Map[str, Any]:
        for key in [key for key in mapping if below(path, key)]:
            mapping = mapping.delete(key)
        return mapping

    return replace(
        state,
        nodes=cut(state.nodes),
        active=cut(state.active),
        launched=cut(state.launched),
        containers=cut(state.containers),
        frames=cut(state.frames),
    )


def evaluate_items_again(flow: Flow, state: State) -> State:
    """The items of a `foreach` are evaluated again on resume."""
    for path, container in state.containers.items():
        if container.kind == "foreach":
            items = evaluate_config(
                flow, node_at(flow, state, path), state, scope_of(path), state.updated_at
            )["items"]
            changed = replace(container, items=items, total=len(items))
            state = replace(state, containers=state.containers.set(path, changed))
    return state


def clamp(flow: Flow, state: State) -> State:
    """A position behind the last item is clamped to the last item."""
    for path, container in state.containers.items():
        if container.kind == "foreach" and container.total and container.begun == container.total:
            changed = replace(container, begun=container.total - 1)
            state = replace(state, containers=state.containers.set(path, changed))
    return state


def child_index_stays(flow: Flow, state: State) -> State:
    """The cursor of a pass is at the last child that completed."""
    for scope, frame in passes(state):
        if frame.position:
            state = rewind(state, scope, frame.position - 1)
    return state


def errors_are_dropped(flow: Flow, state: State) -> State:
    """`node:error` is ignored when the state is derived: what failed has not run."""
    for scope, frame in sorted(state.frames.items()):
        failed = [
            run.position for path in frame.nodes.values() if (run := state.nodes[path]).status == "failed"
        ]
        if failed:
            state = rewind(state, scope, min(failed))
    return state


def retries_are_forgotten(flow: Flow, state: State) -> State:
    """How often a node has failed is lost on resume."""
    for path in state.active:
        state = replace(state, nodes=state.nodes.set(path, replace(state.nodes[path], failures=0)))
    return state


def rounds_are_forgotten(flow: Flow, state: State) -> State:
    """How many rounds a loop has done is lost on resume."""
    for path, container in state.containers.items():
        if container.kind == "loop":
            state = replace(state, containers=state.containers.set(path, replace(container, begun=0)))
    return state


def outermost_owner(flow: Flow, state: State) -> State:
    """The outermost container is taken for the owner of every frame."""
    for scope, frame in passes(state):
        owner = min(state.containers, key=len)
        state = replace(state, frames=state.frames.set(scope, replace(frame, owner=owner)))
    return state


def messages_are_forgotten(flow: Flow, state: State) -> State:
    """Messages live in memory only."""
    return replace(state, messages=())


def keys_are_forgotten(flow: Flow, state: State) -> State:
    """Which messages were taken is lost, so one that comes again is taken again."""
    return replace(state, seen=Map())


def hand_frame_on(same_list: bool) -> Callable[[pytest.MonkeyPatch], None]:
    """The restored position is handed to the passes that begin later: of the same body, or of any container."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        restored: dict[str, int] = {}
        claimed_at = [0]
        begin = IterationStarted.fold

        def remember(flow: Flow, state: State) -> State:
            # What began before the claim did so without it; the grammar would notice it in the whole journal.
            claimed_at[0] = state.seq
            restored.clear()
            restored.update({frame.list_id: frame.position for _, frame in passes(state)})
            return state

        def begun(event: IterationStarted, state: State) -> State:
            state = begin(event, state)
            found = restored.get(event.list_id) if same_list else max(restored.values(), default=None)
            if found and event.seq > claimed_at[0] and event.scope in state.frames:
                frame = replace(state.frames[event.scope], position=found)
                state = replace(state, frames=state.frames.set(event.scope, frame))
            return state

        at_claim(remember)(patch)
        patch.setattr(IterationStarted, "fold", begun)

    return apply


def clear_log(patch: pytest.MonkeyPatch) -> None:
    """The log begins again when a session is taken up after a crash."""
    journal = SessionTable.journal

    def cleared(self: SessionTable, session_id: str, *, after: int = 0) -> Iterator[bytes]:
        rows = list(journal(self, session_id, after=after))
        types = [decode_event(row).type for row in rows]
        kept = max(
            (number for number, kind in enumerate(types) if kind == "node:interrupted"),
            default=-1,
        )
        return iter(rows[kept + 1 :])

    patch.setattr(SessionTable, "journal", cleared)


def swallow_pause(patch: pytest.MonkeyPatch) -> None:
    """A container takes the pause of its child for a failure of the child."""
    cut = decide._HANDLERS[NodeCut]

    def swallowed(step: Step, command: NodeCut) -> None:
        if scope_of(command.path) == ROOT or command.reason != "cut":
            cut(step, command)
        elif step.state.nodes[command.path].attempt == command.attempt:
            step.break_(command.path, {"type": "paused", "message": "__paused"})

    patch.setitem(decide._HANDLERS, NodeCut, swallowed)


LOOPS = ("foreach", "foreach_asks", "foreach_in_foreach")

MUTANTS: dict[str, Mutant] = {
    "a resumed iteration starts again": Mutant(1, at_claim(restart_pass), LOOPS),
    "the log is cleared on resume": Mutant(2, clear_log, ("three_shells",)),
    "a frame is handed to the next iteration": Mutant(3, hand_frame_on(True), LOOPS),
    "a frame is handed to a sibling container": Mutant(
        4, hand_frame_on(False), ("foreach_in_parallel", "three_deep")
    ),
    "the outermost frame is taken for the innermost": Mutant(
        5, at_claim(outermost_owner), ("foreach_in_foreach",)
    ),
    "the cursor is not advanced by a completed child": Mutant(7, at_claim(child_index_stays), LOOPS),
    "the rounds of a loop are lost": Mutant(8, at_claim(rounds_are_forgotten), ("loop_while", "loop_limit")),
    "the failures of a retry are lost": Mutant(8, at_claim(retries_are_forgotten), ("retry_given_up",)),
    "errors are dropped when deriving": Mutant(
        9, at_claim(errors_are_dropped), ("fails_but_goes_on", "foreach_skips")
    ),
    "a container swallows the pause": Mutant(11, swallow_pause, LOOPS),
    "items are evaluated again on resume": Mutant(13, at_claim(evaluate_items_again), ("items_are_frozen",)),
    "a position out of range is clamped": Mutant(14, at_claim(clamp), LOOPS),
    "messages live in memory": Mutant(17, at_claim(messages_are_forgotten), ("messages",)),
    "a message is consumed twice": Mutant(18, at_claim(keys_are_forgotten), ("messages", "items_are_frozen")),
}
"""The faults by name."""
