"""Forks: a new session from any event of another one, in which nothing that had completed runs again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.journal.events import Event
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer, NotAllowed, SaysoError, SessionEnded, SessionError
from engine.nodes.runtime.runner import Completed, Failed, NodeContext
from engine.storage.store import Store
from tests.support.engine import ANA, BEN, Backing, EngineRig, nobody_but, running

FLOW = """
nodes:
  - {id: a, type: shell, with: {run: [now, a]}}
  - id: each
    type: foreach
    with: {items: [x, y], as: it}
    body:
      - {id: work, type: shell, with: {run: [now, "{{ it }}"]}}
      - {id: sure, type: ask, with: {message: "{{ it }}?"}}
  - id: gate
    type: approval
    with: {message: "Go?", approvers: [channel]}
  - {id: z, type: shell, with: {run: [now, z]}}
"""


async def finish(rig: EngineRig, session_id: str) -> None:
    """Approve, answer, and let interrupted nodes run again, until the session ends."""
    while not (state := await rig.engine.parked(session_id)).ended:
        prompt = await rig.open_prompt(session_id)
        options = [option["value"] for option in prompt.options]
        value = next((wanted for wanted in ("again", "approve") if wanted in options), None)
        await rig.answer(session_id, value, text=None if options else "yes")
    assert state.status == "complete"


async def seq_of(rig: EngineRig, session_id: str, kind: str, path: str) -> int:
    """The number of the event of that type at that path."""
    events = await rig.engine.journal(session_id)
    return next(event.seq for event in events if (event.type, event.path) == (kind, path))


def without_names(event: Event, *ids: str) -> str:
    """An event as text, without the ids of sessions."""
    text = json.dumps(event.to_wire(), sort_keys=True)
    for known in ids:
        text = text.replace(known, "SESSION")
    return text


async def test_a_fork_with_another_answer_goes_another_way_and_repeats_nothing(rig: EngineRig) -> None:
    """From before the decision the fork rejects: no node of the past runs again, and the parent stays as it is."""
    parent = await rig.start(FLOW)
    await finish(rig, parent)
    before = await rig.engine.journal(parent)
    ran = list(rig.shop.ran)
    at = await seq_of(rig, parent, "prompt:requested", "gate")
    fork = await rig.engine.fork(parent, at, actor=BEN, answers={"gate": "reject"})
    state = await rig.engine.parked(fork)
    assert (state.status, state.parent_session_id, state.thread) == ("failed", parent, None)
    assert state.actor["id"] == BEN.id
    assert (state.nodes["gate"].error or {})["type"] == "rejected"
    assert "z" not in state.nodes
    assert state.nodes["each"].output == (await rig.engine.state(parent)).nodes["each"].output
    assert rig.shop.ran == ran
    assert await rig.engine.journal(parent) == before
    assert (await rig.engine.head(fork)).parent_session_id == parent


async def test_a_fork_at_every_event_ends_as_its_parent_did(rig: EngineRig) -> None:
    """At each of the parent's events: what was completed there is not run again, the rest runs, the outputs agree."""
    parent = await rig.start(FLOW)
    await finish(rig, parent)
    journal = await rig.engine.journal(parent)
    outputs = [(await rig.engine.state(parent)).nodes[path].output for path in ("a", "each", "z")]
    points, refused = 0, 0
    for at in range(1, len(journal) + 1):
        done = {event.path for event in journal[:at] if event.type.endswith(("node:completed", "dCompleted"))}
        rig.shop.ran.clear()
        try:
            fork = await rig.engine.fork(parent, at, actor=ANA)
        except SessionEnded:
            refused += 1
            continue
        await finish(rig, fork)
        points += 1
        state = await rig.engine.state(fork)
        got = [state.nodes[path].output for path in ("a", "each", "z")]
        assert [_shape(value) for value in got] == [_shape(value) for value in outputs]
        assert not done & set(rig.shop.ran), f"ran again from event {at}"
    assert (points, refused) == (len(journal) - 2, 2)


def _shape(value: object) -> str:
    """An output without times."""
    text = json.dumps(value, sort_keys=True)
    return "".join(part for part in text.split('"') if not part.startswith("2026-"))


async def test_open_questions_are_open_again_under_new_ids(rig: EngineRig, backing: Backing) -> None:
    """The fork's question has its own id and nonce and a clock that has not started; answering it leaves the
    parent's question open."""
    parent = await rig.start(FLOW)
    await rig.engine.parked(parent)
    old = await rig.open_prompt(parent)
    head = await rig.engine.head(parent)
    fork = await rig.engine.fork(parent, head.seq, actor=ANA)
    new = await rig.open_prompt(fork)
    assert new.prompt_id != old.prompt_id
    assert new.nonce != old.nonce
    assert (new.status, new.deadline, new.path) == ("requested", None, old.path)
    await rig.reply(fork, "yes")
    assert old.prompt_id in (await rig.engine.state(parent)).open_prompts


async def test_the_copied_past_is_the_parents_but_for_ids(rig: EngineRig) -> None:
    """Types, paths, times, inputs and outputs are those of the parent, and how many those are is told; prompts and timers
    have ids of the fork."""
    parent = await rig.start(FLOW)
    await rig.engine.parked(parent)
    await rig.reply(parent, "yes")
    at = (await rig.engine.head(parent)).seq
    told: list[int] = []
    fork = await rig.engine.fork(parent, at, actor=ANA, copied=told.append)
    ours, theirs = await rig.engine.journal(fork), await rig.engine.journal(parent)
    assert told == [at]
    assert [(event.type, event.path, event.timestamp) for event in ours] == [
        (event.type, event.path, event.timestamp) for event in theirs[:at]
    ]
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        if not mine.type.startswith("prompt:"):
            assert without_names(mine, fork) == without_names(other, parent)


async def test_a_node_that_was_running_is_asked_about(rig: EngineRig) -> None:
    """The fork cannot know what the running node did: it asks, and runs it only when a person says so."""
    parent = await rig.start("nodes: [{id: a, type: shell, with: {run: [wait]}}, {id: b, type: noop}]")
    await rig.shop.running("a")
    fork = await rig.engine.fork(parent, (await rig.engine.head(parent)).seq, actor=ANA)
    await rig.engine.parked(fork)
    assert (await rig.open_prompt(fork)).kind == "interrupted"
    assert rig.shop.ran == ["a"]
    assert (await rig.answer(fork, "done")).status == "complete"
    await rig.shop.finish("a")
    assert (await rig.engine.parked(parent)).status == "complete"


async def test_a_failed_session_can_be_forked_from_before_the_failure(rig: EngineRig) -> None:
    """From the event at which the failing node had not begun yet, the fork runs it again."""
    parent = await rig.start(
        "nodes: [{id: a, type: set, with: {x: 1}}, {id: b, type: shell, with: {run: [wait]}}]"
    )
    await rig.shop.finish("b", Failed("exit_code", "no"))
    assert (await rig.engine.parked(parent)).status == "failed"
    with pytest.raises(SessionEnded):
        await rig.engine.fork(parent, (await rig.engine.head(parent)).seq, actor=ANA)
    fork = await rig.engine.fork(parent, await seq_of(rig, parent, "node:completed", "a"), actor=ANA)
    await rig.shop.finish("b")
    assert (await rig.engine.parked(fork)).status == "complete"


async def test_a_held_session_is_forked_running(rig: EngineRig) -> None:
    """Whoever forks a held session wants it to continue; the held one stays held."""
    parent = await rig.start(
        "nodes: [{id: a, type: ask, with: {message: m}}, {id: b, type: set, with: {x: 1}}]"
    )
    await rig.engine.parked(parent)
    await rig.engine.pause(parent, actor=ANA, reason="lunch")
    head = await rig.engine.head(parent)
    fork = await rig.engine.fork(parent, head.seq, actor=ANA, answers={"a": "hello"})
    assert (await rig.engine.parked(fork)).status == "complete"
    assert (await rig.engine.head(parent)).phase == "held"


async def test_waits_keep_their_time(rig: EngineRig) -> None:
    """A wait that was set goes on to the same moment, under a timer of the fork's own."""
    parent = await rig.start("nodes: [{id: a, type: wait, with: {for: 1h}}]")
    state = await rig.engine.parked(parent)
    fork = await rig.engine.fork(parent, state.seq, actor=ANA)
    (timer,) = (await rig.engine.state(fork)).timers.values()
    assert timer.timer_id == f"{fork}:a"
    assert [timer.due_at] == [old.due_at for old in state.timers.values()]
    stored = await rig.engine.writer.call(rig.engine.store.timers.rows)
    assert {row.session_id for row in stored} == {parent, fork}


@pytest.mark.parametrize("at", [0, 999])
async def test_an_event_that_does_not_exist_is_refused(rig: EngineRig, at: int) -> None:
    """The refusal names the events that there are."""
    parent = await rig.start(FLOW)
    await rig.engine.parked(parent)
    with pytest.raises(SessionError, match="events 1 to"):
        await rig.engine.fork(parent, at, actor=ANA)


async def test_an_answer_that_fits_no_question_starts_nothing(rig: EngineRig, backing: Backing) -> None:
    """An unknown name or no option of the question: refused, and there is no new session."""
    parent = await rig.start("nodes: [{id: a, type: ask, with: {message: m, choices: [x, y]}}]")
    await rig.engine.parked(parent)
    at = (await rig.engine.head(parent)).seq
    for answers in ({"b": "x"}, {"a": "q"}):
        with pytest.raises(InvalidAnswer):
            await rig.engine.fork(parent, at, actor=ANA, answers=answers)
    heads = await rig.engine.writer.call(rig.engine.store.sessions.heads)
    assert [head.session_id for head in heads] == [parent]


async def test_whoever_may_not_start_may_not_fork(backing: Backing, tmp_path: Path) -> None:
    """The policy is asked as for a start."""
    store: Store = backing.open()
    async with running(store, tmp_path, policy=nobody_but(ANA)) as rig:
        parent = await rig.start(FLOW)
        await rig.engine.parked(parent)
        with pytest.raises(NotAllowed):
            await rig.engine.fork(parent, 5, actor=BEN)


FILES = """
nodes:
  - {id: a, type: shell, with: {run: [write, notes.txt]}}
  - {id: gate, type: approval, with: {message: "Go?", approvers: [channel]}}
  - {id: b, type: shell, with: {run: [read, "{{ nodes.a.stdout }}"]}}
"""


async def test_a_fork_works_on_a_copy_of_the_files_of_its_past(backing: Backing, tmp_path: Path) -> None:
    """Files that earlier steps left are there under the paths that outputs name, and what the fork writes is its own."""
    read = []

    async def shell(config: dict[str, Json], ctx: NodeContext) -> Completed:
        word, name = config["run"]
        if word == "write":
            path = ctx.folder() / name
            path.write_text("from the past")
            (ctx.folder() / "elsewhere").symlink_to("/etc")
            os.mkfifo(ctx.folder() / "pipe")
            return Completed({"stdout": str(path), "stderr": "", "exit_code": 0, "seconds": 0})
        path = Path(name)
        read.append((path, path.read_text()))
        path.write_text("changed")
        return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0})

    async with running(backing.open(), tmp_path, runners={"shell": shell}) as rig:
        parent = await rig.start(FILES)
        await rig.engine.parked(parent)
        at = await seq_of(rig, parent, "prompt:requested", "gate")
        fork = await rig.engine.fork(parent, at, actor=BEN, answers={"gate": "approve"})
        assert (await rig.engine.parked(fork)).status == "complete"
        mine, copy = tmp_path / "sessions" / parent, tmp_path / "sessions" / fork
        assert read == [(copy / "notes.txt", "from the past")]
        assert (mine / "notes.txt").read_text() == "from the past"
        assert (copy / "elsewhere").is_symlink()
        assert not (copy / "pipe").exists()
        assert (await rig.engine.state(parent)).nodes["a"].output["stdout"] == str(mine / "notes.txt")


async def test_a_fork_that_is_refused_leaves_no_folder(backing: Backing, tmp_path: Path) -> None:
    """The copy goes when nothing is stored."""
    async with running(backing.open(), tmp_path) as rig:
        parent, other = await rig.start(FLOW), await rig.start(FLOW)
        await rig.engine.parked(parent)
        folder = tmp_path / "sessions" / parent
        folder.mkdir(parents=True, exist_ok=True)
        at = await seq_of(rig, parent, "prompt:requested", "each[0]/sure")
        with pytest.raises(SaysoError):
            await rig.engine.fork(parent, at, actor=BEN, fork_id=other)
        assert [each.name for each in folder.parent.iterdir()] == [parent]
