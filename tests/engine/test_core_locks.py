"""A flow's lock in the pure core: asked for before the flow starts, and nothing starts before it is acquired."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.decide import limits
from engine.decide.commands import Abort, Claimed, Hold, LockGranted, LockQueued, Resume
from engine.decide.projections import lock_rows
from engine.journal.events import LockAcquired
from engine.journal.fold import derive_state, evolve
from engine.journal.records import DropLock, LockRow, PutLock, TakeLock
from engine.journal.snapshot import from_bytes, to_bytes
from engine.journal.state import State
from engine.language.errors import MalformedJournal
from tests.support.engine import ANA, SESSION, Scenario, check_invariants, given

DEPLOY = """flow: deploy
inputs: {service: {type: string}, count: {type: number, default: 2}}
lock: "deploy-{{ inputs.service }}"
nodes: [{id: a, type: shell, with: {run: [ls]}}]
finally: [{id: z, type: shell, with: {run: [ls]}}]
"""
REFUSING = DEPLOY.replace("nodes:", "on_conflict: refuse\nnodes:")
OTHER = "session-other"


def asked(flow: str = DEPLOY) -> Scenario:
    """A session that asked for its lock and was not told yet how it stands."""
    return given(flow).started(service="api")


def waiting(flow: str = DEPLOY) -> Scenario:
    """A session that waits for its lock."""
    return asked(flow).when(LockQueued("deploy-api", OTHER))


def test_a_lock_is_asked_for_before_the_flow_starts() -> None:
    """Its name is made of the inputs; nothing else happens until somebody says how the queue stands."""
    case = asked().then("session:start", "lock:requested")
    event = case.event("lock:requested")
    assert (event.name, event.on_conflict) == ("deploy-api", "queue")
    assert (case.state.phase, case.state.inputs) == ("running", None)


def test_a_missing_input_is_asked_for_before_the_lock() -> None:
    """Nobody holds a lock while a person thinks about an input."""
    case = given(DEPLOY).started().then("session:start", "prompt:requested", "flow:paused")
    case.when(case.answer(text="api")).then("prompt:answered", "flow:resumed", "lock:requested")


def test_a_session_with_the_lock_starts() -> None:
    """The grant, the start of the flow and its first node are one turn; a second grant changes nothing."""
    case = asked().when(LockGranted("deploy-api")).then("lock:acquired", "flow:started", "node:started")
    case.when(LockGranted("deploy-api"), LockQueued("deploy-api", OTHER)).then()


def test_a_session_behind_another_one_waits() -> None:
    """It is paused, and says what for; told so again it says nothing more."""
    case = waiting().then("flow:paused")
    assert (case.state.phase, case.state.pause_reason) == ("waiting", "waiting for lock deploy-api")
    case.when(LockQueued("deploy-api", OTHER)).then()
    case.when(LockGranted("deploy-api"))
    case.then("flow:resumed", "lock:acquired", "flow:started", "node:started")


def test_a_refusal_ends_the_session_and_names_the_holder() -> None:
    """Nothing starts, not even what the flow ends with."""
    case = asked(REFUSING).when(LockQueued("deploy-api", OTHER, "T1:C1:9.9"))
    case.then("flow:failed", "session:end")
    error = case.state.error or {}
    assert OTHER in error["message"]
    assert error["heldBy"] == {"sessionId": OTHER, "threadKey": "T1:C1:9.9"}


def test_a_waiting_session_is_paused_by_a_person_and_keeps_its_place() -> None:
    """Its turn is recorded while it is held; it starts when it is resumed."""
    case = waiting().when(Hold(ANA)).then("flow:paused")
    case.when(LockQueued("deploy-api", OTHER)).then()
    case.when(LockGranted("deploy-api")).then("lock:acquired")
    assert case.state.phase == "held"
    case.when(Resume("go", ANA, "k")).then("flow:resumed", "session:message", "flow:started", "node:started")


def test_a_resume_before_its_turn_waits_again() -> None:
    """A person's word is not a lock."""
    case = waiting().when(Hold(ANA), Resume("go", ANA, "k"), LockQueued("deploy-api", OTHER))
    case.then("flow:paused", "flow:resumed", "session:message", "flow:paused")


def test_a_waiting_session_is_ended() -> None:
    """It ends at once, without `finally`: it did nothing that has to be undone."""
    waiting().when(Abort(ANA)).then("session:abort", "session:end")


def test_a_message_to_a_waiting_session_is_kept() -> None:
    """It starts nothing."""
    case = waiting()
    case.when(case.message("hurry")).then("session:message")
    assert case.state.phase == "waiting"


def test_a_name_that_cannot_be_made_fails_the_session() -> None:
    """The error says that it is the lock's."""
    case = given(DEPLOY).started(service="  ").when(LockGranted("deploy-"))
    assert case.state.lock is not None
    assert case.state.lock.name == "deploy-"
    case = given(DEPLOY.replace("deploy-{{ inputs.service }}", "{{ inputs.service }}")).started(service=" ")
    case.then("session:start", "flow:failed", "session:end")
    assert str((case.state.error or {})["message"]).startswith("lock: ")


def test_a_name_that_is_no_text_is_its_json() -> None:
    """A number names a lock as it is written."""
    case = given(DEPLOY.replace("deploy-{{ inputs.service }}", "{{ inputs.count }}")).started(service="api")
    assert case.event("lock:requested").name == "2"


def test_another_process_finds_the_session_as_it_was() -> None:
    """A claim changes nothing about a lock, waited for or held."""
    waiting().claimed().then()
    case = asked().when(LockGranted("deploy-api")).claimed()
    assert case.state.lock is not None
    assert case.state.lock.acquired_at is not None


def test_a_lock_is_part_of_the_snapshot() -> None:
    """The state comes back from its bytes with the lock in it."""
    case = waiting()
    assert from_bytes(to_bytes(case.state)).lock == case.state.lock != None  # noqa: E711


def test_an_acquired_lock_that_nobody_asked_for_is_no_journal() -> None:
    """The fold refuses it, and a lock that is acquired twice."""
    case = asked().when(LockGranted("deploy-api"))
    again = LockAcquired(seq=case.state.seq + 1, timestamp=case.now, name="deploy-api")
    with pytest.raises(MalformedJournal, match="does not wait for lock"):
        evolve(case.state, again)


def test_rows_follow_a_session_through_its_lock() -> None:
    """A place with the request, the lock with the grant, both given back with the end; a refused one leaves none."""
    case = asked()
    start = case.state
    assert lock_rows(State(), start, ()) == [PutLock("deploy-api", SESSION)]
    case.when(LockGranted("deploy-api"))
    assert lock_rows(start, case.state, ()) == [TakeLock("deploy-api", SESSION)]
    whole = [PutLock("deploy-api", SESSION), TakeLock("deploy-api", SESSION)]
    assert lock_rows(State(), case.state, ()) == whole
    before = case.state
    case.only(Abort(ANA))
    assert not lock_rows(before, case.state, ())
    ended = replace(before, phase="ended")
    assert lock_rows(before, ended, ()) == [DropLock("deploy-api", SESSION)]
    assert lock_rows(State(), ended, ()) == [*whole, DropLock("deploy-api", SESSION)]
    refused = asked(REFUSING).when(LockQueued("deploy-api", OTHER))
    assert not lock_rows(State(), refused.state, ())


def test_the_verdict_is_the_order_of_the_queue() -> None:
    """The first has the lock; whoever is not in the queue would come last."""
    state = asked().state
    mine, other = (LockRow("deploy-api", who, "t", None) for who in (SESSION, OTHER))
    assert limits.verdict([], state) == limits.verdict([mine, other], state) == LockGranted("deploy-api")
    assert limits.verdict([other, mine], state) == LockQueued("deploy-api", OTHER)
    assert limits.verdict([other], state) == LockQueued("deploy-api", OTHER)
    assert limits.standing([other, mine], SESSION) == (OTHER, 1)
    assert limits.standing([mine, other], SESSION) is None


def test_a_fork_asks_for_the_lock_anew() -> None:
    """What its parent acquired is not in its journal, and nothing of it starts before it has the lock itself."""
    parent = asked().when(LockGranted("deploy-api"))
    case = parent.forked()
    assert "lock:acquired" not in [event.type for event in case.events]
    case.when(Claimed(), LockQueued("deploy-api", SESSION)).then("prompt:requested", "flow:paused")
    check_invariants(case.flow, case.events, case.state, 1)
    case.when(case.answer("again")).then("prompt:answered", "flow:resumed")
    case.when(LockQueued("deploy-api", SESSION)).then("flow:paused")
    case.when(LockGranted("deploy-api")).then("flow:resumed", "lock:acquired", "node:started")


def test_a_fork_without_its_lock_ends_without_finally() -> None:
    """What runs at the end runs under the lock."""
    case = asked().when(LockGranted("deploy-api")).forked().when(Abort(ANA))
    assert case.state.ended
    assert "flow:finalizing" not in [event.type for event in case.last]


def test_a_waiting_session_is_forked() -> None:
    """A fork of it waits too: as the last one."""
    fork = waiting().forked()
    assert limits.pending(fork.state)
    assert derive_state(fork.events) == fork.state
