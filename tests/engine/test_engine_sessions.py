"""The engine over both stores: start, resume, answer, abort, inspect, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.decide import due
from engine.decide.commands import Answer
from engine.journal.events import Event
from engine.journal.state import State
from engine.language.errors import (
    AlreadyAnswered,
    InvalidInputs,
    NotAllowed,
    SchemaTooNew,
    SessionError,
    SessionRunning,
    UnknownSession,
)
from engine.nodes.runtime.runner import Completed, Failed
from engine.run import remote_commands
from engine.run.dispatcher import perform
from engine.storage.open import MemoryStore
from tests.support.engine import (
    ANA,
    BEN,
    Backing,
    EngineRig,
    FaultyStore,
    Workshop,
    counted,
    flow_of,
    nobody_but,
    running,
    shell_runners,
)

ASK = "nodes: [{id: q, type: ask, with: {message: How?}}, {id: b, type: set, with: {said: '{{ nodes.q.text }}'}}]"
STEPS = """
nodes:
  - {id: one, type: shell, with: {run: [now, 1]}}
  - {id: q, type: ask, with: {message: And now?}}
  - {id: two, type: shell, with: {run: [now, "{{ nodes.q.text }}"]}}
"""
WORK = "nodes: [{id: a, type: shell, with: {run: [wait]}}, {id: b, type: shell, with: {run: [now]}}]"


async def test_a_flow_runs_to_its_question_and_on_after_the_reply(rig: EngineRig) -> None:
    """Start, pause, reply, end; each node ran once and the session left no memory while it waited."""
    state = await rig.settled(STEPS)
    assert (state.status, state.phase) == ("paused", "waiting")
    assert rig.live() == []
    state = await rig.reply(state.session_id, "go on")
    assert state.status == "complete"
    assert rig.shop.ran == ["one", "two"]
    assert state.nodes["two"].output["stdout"] == "go on"
    assert rig.live() == []


async def test_a_start_is_durable_when_it_returns(backing: Backing, tmp_path: Path) -> None:
    """Another connection sees the session as soon as `start` returned."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = await rig.start(ASK)
        other = backing.open()
        head = other.sessions.head(session_id)
        assert head is not None
        assert (head.status, head.owner) == ("paused", None)
        other.close()


async def test_real_programs_run_once(backing: Backing, tmp_path: Path) -> None:
    """Across a pause and a second engine, files count how often real shell nodes ran."""
    log = tmp_path / "log"
    flow = f"""
nodes:
  - {{id: one, type: shell, with: {{script: 'echo one >> "$LOG"', env: {{LOG: "{log}"}}}}}}
  - {{id: q, type: ask, with: {{message: And now?}}}}
  - {{id: two, type: shell, with: {{script: 'echo "$SAID" >> "$LOG"', env: {{LOG: "{log}", SAID: "{{{{ nodes.q.text }}}}"}}}}}}
"""
    async with running(backing.open(), tmp_path, runners=shell_runners()) as rig:
        session_id = (await rig.settled(flow)).session_id
    async with running(backing.open(), tmp_path, runners=shell_runners()) as rig:
        assert (await rig.reply(session_id, "$(reboot); `two`")).status == "complete"
    assert counted(log) == ["one", "$(reboot); `two`"]


async def test_what_a_start_refuses_leaves_no_session(backing: Backing, tmp_path: Path) -> None:
    """Wrong inputs and people who may not start: an error, and nothing is stored."""
    async with running(backing.open(), tmp_path, policy=nobody_but(ANA)) as rig:
        with pytest.raises(InvalidInputs):
            await rig.start(ASK, surplus=1)
        with pytest.raises(NotAllowed, match="ben may not start"):
            await rig.start(ASK, actor=BEN)
        assert rig.store.sessions.heads() == []
        assert rig.live() == []


async def test_a_session_id_that_is_taken_is_refused(rig: EngineRig) -> None:
    """A second start under one id fails, and the first session continues undisturbed."""
    await rig.engine.start(flow_of(WORK), {}, actor=ANA, session_id="session-1")
    await rig.shop.running("a")
    with pytest.raises(SessionRunning):
        await rig.engine.start(flow_of(ASK), {}, actor=ANA, session_id="session-1")
    await rig.shop.finish("a")
    assert (await rig.engine.parked("session-1")).status == "complete"
    with pytest.raises(Exception, match="exists already"):
        await rig.engine.start(flow_of(ASK), {}, actor=ANA, session_id="session-1")
    assert rig.shop.ran == ["a", "b"]


@pytest.mark.parametrize("session_id", ["session-unknown", "", "../x", "a' OR 1=1"])
async def test_a_session_that_does_not_exist(rig: EngineRig, session_id: str) -> None:
    """Every question about it says so, and nothing is made up."""
    for call in (
        rig.engine.resume(session_id, "x", actor=ANA),
        rig.engine.abort(session_id, actor=ANA),
        rig.engine.pause(session_id, actor=ANA),
        rig.engine.inspect(session_id),
        rig.engine.state(session_id),
        rig.engine.export(session_id),
        rig.engine.apply(session_id, None),
    ):
        with pytest.raises(UnknownSession):
            await call
    assert rig.live() == []


async def test_a_resume_of_a_running_session_says_so(rig: EngineRig) -> None:
    """A second resume while the session runs is a no-op with a clear error."""
    session_id = await rig.start(WORK)
    await rig.shop.running("a")
    before = await rig.types(session_id)
    with pytest.raises(SessionRunning):
        await rig.engine.resume(session_id, "again", actor=ANA)
    assert await rig.types(session_id) == before
    await rig.shop.finish("a")
    assert (await rig.engine.parked(session_id)).status == "complete"


ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("", {"text": "fine"}),
    "choice": (", choices: [eu, us]", {"value": "us"}),
    "form": (", form: {properties: {n: {type: integer}}}", {"values": {"n": 2}}),
    "files": (", accept: files", {"files": [{"name": "a", "path": "a", "size": 1, "type": "text/plain"}]}),
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("way", ["handler", "inbox"])
async def test_every_kind_of_answer_resumes_from_the_snapshot(kind: str, way: str, tmp_path: Path) -> None:
    """Words, a choice, a form and files go one way, here and through the inbox: snapshot, then `Engine.resume`."""
    more, given = ANSWERS[kind]
    backing = Backing("sqlite", tmp_path)
    async with running(backing.open(), tmp_path) as rig:
        session_id, prompt_id = await rig.asked(ASK.replace("message: How?", f"message: How?{more}"))
    async with running(backing.open(), tmp_path) as rig:
        resumed: list[object] = []
        resume, loaded, read = rig.engine.resume, rig.store.sessions._loaded, []
        rig.store.sessions._loaded = lambda *head: read.append(found := loaded(*head)) or found  # type: ignore[method-assign]
        rig.engine.resume = lambda *a, **k: resumed.append(a[1]) or resume(*a, **k)  # type: ignore[method-assign]
        if way == "handler":
            await rig.engine.hear(session_id, Answer(prompt_id, ANA, "k", **given))
        else:
            item = remote_commands.item("k", session_id, "answer", actor=ANA, promptId=prompt_id, **given)
            await rig.engine.writer.ingest([item], rig.clock.now)
            row = rig.store.inbox.row("k")
            assert row is not None
            await perform(rig.engine, row)
        assert resumed == [Answer(prompt_id, ANA, "k", **given)]
        assert [(one.snapshot is not None, one.events) for one in read] == [(True, ())]
        assert (await rig.engine.parked(session_id)).nodes["q"].status == "completed"


async def test_an_answer_asks_the_policy_once(backing: Backing, tmp_path: Path) -> None:
    """Only for somebody who answers in another's place it is asked whether they may by themselves."""
    asked: list[str] = []
    async with running(
        backing.open(), tmp_path, policy=lambda actor, action, *_: asked.append(action)
    ) as rig:
        session_id, _ = await rig.asked(ASK)
        asked.clear()
        await rig.answer(session_id, text="fine")
        assert asked == ["answer"]


async def test_what_is_due_after_a_step_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step, its commit and what comes after it use what the step found to be due."""
    seen: list[State] = []
    compute = due.due
    monkeypatch.setattr(
        due, "due", lambda flow, state, kinds: seen.append(state) or compute(flow, state, kinds)
    )
    async with running(MemoryStore(), tmp_path) as rig:
        session_id = (await rig.settled(ASK)).session_id
        seen.clear()
        await rig.reply(session_id, "fine")
    assert len(seen) == len({id(state) for state in seen})


async def test_of_many_answers_at_once_one_wins(rig: EngineRig) -> None:
    """If ten people answer at once, one answer is journaled and nine are told who was first."""
    flow = "nodes: [{id: q, type: ask, with: {message: Which?, choices: [eu, us]}}]"
    session_id, prompt_id = await rig.asked(flow)
    answers = [
        rig.engine.resume(session_id, Answer(prompt_id, ANA, f"k{number}", value="eu"))
        for number in range(10)
    ]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(isinstance(outcome, AlreadyAnswered) for outcome in outcomes) == 9
    assert (await rig.types(session_id)).count("prompt:answered") == 1


async def test_of_two_engines_one_answer_wins(backing: Backing, tmp_path: Path) -> None:
    """If two processes answer the same prompt at once, one answer is accepted, the other refused, and nothing happens twice."""
    async with running(backing.open(), tmp_path) as one, running(backing.open(), tmp_path) as two:
        session_id = (await one.settled(STEPS)).session_id
        outcomes = await asyncio.gather(
            one.engine.resume(session_id, "first", actor=ANA),
            two.engine.resume(session_id, "second", actor=BEN),
            return_exceptions=True,
        )
        for rig in (one, two):
            await rig.engine.parked(session_id)
        assert sum(isinstance(outcome, Exception) for outcome in outcomes) in (0, 1)
        types = await one.types(session_id)
        assert types.count("prompt:answered") == 1
        assert types.count("session:end") == 1
        assert len(one.shop.ran + two.shop.ran) == 2


async def test_a_failing_node_fails_its_flow(rig: EngineRig) -> None:
    """The outcome `Failed` ends the session as failed, with its error in the inspection."""
    session_id = await rig.start(WORK)
    await rig.shop.finish("a", Failed("exit_code", "it broke", {"exit_code": 3}))
    assert (await rig.engine.parked(session_id)).status == "failed"
    data = await rig.engine.inspect(session_id)
    assert data["error"] == {"type": "exit_code", "message": "it broke", "details": {"exit_code": 3}}


async def test_a_runner_that_raises_is_a_failure_of_its_node(backing: Backing, tmp_path: Path) -> None:
    """An exception in a runner, or no runner at all, fails the node and not the engine."""

    async def broken(config: object, ctx: object) -> Completed:
        raise ZeroDivisionError("oh")

    async with running(backing.open(), tmp_path, runners={"shell": broken}) as rig:
        state = await rig.settled(WORK)
        assert state.error is not None
        assert state.error["message"] == "node a: ZeroDivisionError: oh"
        state = await rig.settled("nodes: [{id: a, type: http, with: {url: 'http://example.org'}}]")
        assert state.status == "failed"


async def test_an_output_that_is_no_json_fails_its_node(rig: EngineRig) -> None:
    """What cannot be stored is a failure of the node, and the engine continues."""
    session_id = await rig.start(WORK)
    await rig.shop.finish("a", Completed({"x": object()}))
    assert (await rig.engine.parked(session_id)).status == "failed"
    session_id = await rig.start(WORK)
    await rig.shop.finish("a", Failed("exit_code", "\ud800", object()))
    assert (await rig.engine.parked(session_id)).status == "failed"


async def test_inspection_shows_a_waiting_node(rig: EngineRig) -> None:
    """A waiting node's output is `{awaiting, promptId}`; status, phase and place are there; nothing is claimed."""
    session_id = (await rig.settled(STEPS)).session_id
    before = rig.store.sessions.head(session_id)
    data = await rig.engine.inspect(session_id)
    prompt = await rig.open_prompt(session_id)
    assert data["outputs"]["q"] == {"awaiting": True, "promptId": prompt.prompt_id}
    assert data["outputs"]["one"]["stdout"] == "1"
    assert (data["status"], data["phase"], data["currentNodeId"]) == ("paused", "waiting", "q")
    assert (data["owner"], data["quarantined"]) == (None, None)
    assert rig.store.sessions.head(session_id) == before


async def test_many_pure_nodes_do_not_stop_half_way(rig: EngineRig) -> None:
    """A flow of more nodes than one turn begins is run to its end, with the store kept in step."""
    nodes = "".join(f"  - {{id: n{number}, type: noop}}\n" for number in range(450))
    state = await asyncio.wait_for(rig.settled(f"nodes:\n{nodes}"), 30)
    assert state.status == "complete"
    head = rig.store.sessions.head(state.session_id)
    assert head is not None
    assert head.status == "complete"


@pytest.mark.parametrize(
    ("body", "error", "told"),
    [
        (b'{"version": 0}', SessionError, "cannot continue in this release"),
        (b'{"version": 99}', SchemaTooNew, "written by a newer release"),
    ],
    ids=["refused", "too new"],
)
async def test_a_session_whose_flow_cannot_be_read_any_more_says_so(
    backing: Backing, tmp_path: Path, body: bytes, error: type[Exception], told: str
) -> None:
    """A pinned flow that this release refuses, or that is too new, is an error of that session, and of no other."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = (await rig.settled(ASK)).session_id
    store = FaultyStore(backing.open())
    store.answers |= {"flows.text": body, "flows.form": None}  # another release has no form of it
    async with running(store, tmp_path) as rig:
        with pytest.raises(error, match=told):
            await rig.engine.resume(session_id, "x", actor=ANA)
        assert (await rig.engine.head(session_id)).quarantined is None
        assert (await rig.settled(STEPS)).status == "paused"


async def test_nodes_of_many_sessions_run_side_by_side(backing: Backing, tmp_path: Path) -> None:
    """A node that takes long keeps no other session waiting."""
    shop = Workshop()
    async with running(backing.open(), tmp_path, shop=shop) as rig:
        slow = await rig.start("nodes: [{id: slow, type: shell, with: {run: [wait]}}]")
        await shop.running("slow")
        assert (
            await rig.settled("nodes: [{id: quick, type: shell, with: {run: [now]}}]")
        ).status == "complete"
        await shop.finish("slow")
        assert (await rig.engine.parked(slow)).status == "complete"


def _raises(state: State, events: Sequence[Event]) -> None:
    raise ZeroDivisionError("a subscriber that is broken")


async def test_a_subscriber_that_raises_disturbs_nobody(rig: EngineRig) -> None:
    """Committed is committed: a broken listener is logged and the session continues."""
    stop = rig.engine.subscribe(_raises)
    assert (await rig.settled(STEPS)).status == "paused"
    stop()
    assert [event.type for event in rig.seen][:2] == ["session:start", "flow:started"]


@pytest.mark.parametrize("given", ["../../x", "session-../x", "session-", "session-a/b", "x", "session-a\n"])
async def test_a_session_id_names_no_folder_elsewhere(backing: Backing, tmp_path: Path, given: str) -> None:
    """An id that a caller gives is refused unless it is one: it names the folder in which commands run."""
    async with running(backing.open(), tmp_path / "home") as rig:
        with pytest.raises(SessionError, match="not a session ID"):
            await rig.engine.start(flow_of(ASK), {}, actor=ANA, session_id=given)
        parent = (await rig.settled(ASK)).session_id
        with pytest.raises(SessionError, match="not a session ID"):
            await rig.engine.fork(parent, 1, actor=ANA, fork_id=given)
        assert rig.live() == []
    assert not (tmp_path / "x").exists()
