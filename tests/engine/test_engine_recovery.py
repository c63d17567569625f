"""What a crash, a shutdown, a zombie or a damaged row does to sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.decide.commands import Answer, Message, Shown
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.records import PromptRow, PutOutbox
from engine.journal.snapshot import fold, read_document
from engine.journal.state import State
from engine.language.errors import Corrupt, Fenced, Owned, SaysoError, SessionQuarantined
from engine.run import stepper
from engine.storage.tables import session_number
from prompt_state.question_row import PromptState, project
from tests.storage.storagekit import claim
from tests.support.engine import (
    ANA,
    Backing,
    Clock,
    EngineRig,
    abandon,
    check_starts,
    running,
    served,
    until,
)

WORK = "nodes: [{id: a, type: shell, with: {run: [wait]}}, {id: b, type: shell, with: {run: [now]}}]"
SAFE = WORK.replace("type: shell,", "type: shell, on_crash: again,", 1)
STUBBORN = WORK.replace("[wait]", "[stubborn]")
ASK = "nodes: [{id: a, type: shell, with: {run: [now]}}, {id: q, type: ask, with: {message: How?}}]"
WAIT = "nodes: [{id: w, type: wait, with: {for: 10m}}, {id: b, type: shell, with: {run: [now]}}]"


async def left_behind(backing: Backing, tmp_path: Path, flow: str) -> str:
    """A session whose process died while node `a` ran."""
    store = backing.open()
    async with running(store, tmp_path) as rig:
        session_id = await rig.start(flow)
        await rig.shop.running("a")
        abandon(store)
        # The dead process does nothing more: its epoch has ended before it could record anything.
        thief = backing.open()
        claim(thief, session_id, thief.register("thief"), rig.clock.now)
        thief.close()
    return session_id


# --- what is cached -----------------------------------------------------------------------------------------


TWO = """
nodes:
  - {id: one, type: ask, with: {message: One?}}
  - {id: two, type: ask, with: {message: Two?}}
"""


async def test_a_command_is_decided_on_what_is_stored(backing: Backing, tmp_path: Path) -> None:
    """Another process continues with a session that this one has in memory: neither what this one decides of it nor what
    it refuses may come from that memory."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = (await rig.settled(TWO)).session_id
        async with running(backing.open(), tmp_path) as other:
            second = await other.reply(session_id, "first")
        [prompt_id] = second.open_prompts
        assert prompt_id not in rig.engine.sessions._cached[session_id].state.prompts
        state = await rig.engine.resume(session_id, Answer(prompt_id, ANA, "answer:7", text="second"))
        assert state.status == "complete"
        assert [state.nodes[path].output["text"] for path in ("one", "two")] == ["first", "second"]


async def test_a_session_that_another_process_took_is_left_to_it(backing: Backing, tmp_path: Path) -> None:
    """What is in memory does not help to take a session from a process that lives."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = (await rig.settled(ASK)).session_id
        thief = backing.open()
        claim(thief, session_id, thief.register("thief"), rig.clock.now)
        with pytest.raises(Owned):
            await rig.engine.apply(session_id, None)
        with pytest.raises(Owned):
            await rig.engine.resume(session_id, "fine", actor=ANA)
        assert rig.engine.sessions.stale() == frozenset()
        thief.close()
        assert (await rig.reply(session_id, "fine")).status == "complete"


# --- crashes and shutdowns ----------------------------------------------------------------------------------


async def test_a_safe_node_that_was_running_at_a_crash_runs_again(backing: Backing, tmp_path: Path) -> None:
    """With `on_crash: again` it runs with the same key and the next attempt."""
    session_id = await left_behind(backing, tmp_path, SAFE)
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        work = await rig.shop.running("a")
        assert (work.attempt, work.context.idempotency_key) == (2, f"{session_id}:a")
        await rig.shop.finish("a")
        assert (await rig.engine.parked(session_id)).status == "complete"
        check_starts(await rig.engine.journal(session_id))


async def test_a_crash_before_anything_was_begun_loses_nothing(backing: Backing, tmp_path: Path) -> None:
    """A session that was started while its process was leaving is taken up by the next one."""
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.drain(0)
        session_id = await rig.start(WORK.replace("[wait]", "[now]"))
        assert rig.shop.ran == []
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.committed.until("session:end", session_id)
        assert rig.shop.ran == ["a", "b"]


async def test_a_shutdown_lets_running_nodes_finish(backing: Backing, tmp_path: Path) -> None:
    """A node that ends within the patience is recorded as completed; what follows starts in the next process."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = await rig.start(WORK)
        await rig.shop.running("a")
        leaving = asyncio.create_task(rig.engine.drain(30))
        await rig.shop.finish("a")
        await leaving
        assert (await rig.types(session_id))[-1] == "node:completed"
        assert rig.shop.ran == ["a"]
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.committed.until("session:end", session_id)
        assert rig.shop.ran == ["b"]


@pytest.mark.parametrize(("flow", "then"), [(WORK, "prompt:requested"), (SAFE, "node:started")])
async def test_a_shutdown_cuts_what_does_not_finish(
    backing: Backing, tmp_path: Path, flow: str, then: str
) -> None:
    """A node that is cut off is recorded as interrupted before the process ends; then people are asked, or it runs again."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = await rig.start(flow)
        await rig.shop.running("a")
        await rig.engine.drain(0)
        assert "node:interrupted" in await rig.types(session_id)
        head = rig.store.sessions.head(session_id)
        assert head is not None
        assert head.owner is None
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        if then == "node:started":
            await rig.shop.finish("a")
            assert (await rig.engine.parked(session_id)).status == "complete"
        else:
            assert (await rig.open_prompt(session_id)).kind == "interrupted"
            assert rig.shop.ran == []


async def test_a_step_that_is_being_committed_at_a_shutdown_is_cut_too(rig: EngineRig) -> None:
    """A node that is launched by a commit which was in progress when the shutdown began does not outlive it."""
    starting = asyncio.create_task(rig.start(WORK))
    await until(lambda: bool(rig.live()), pause=0)
    await rig.engine.drain(0)
    session_id = await starting
    assert rig.engine._tasks() == []
    assert "node:interrupted" in await rig.types(session_id)


async def test_a_node_that_does_not_leave_is_left_behind_and_found_interrupted(
    backing: Backing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown ends although a node looks at nothing; the next engine finds its start without an outcome."""
    monkeypatch.setattr("engine.run.engine.LEAVE_SECONDS", 0.01)
    async with running(backing.open(), tmp_path) as rig:
        session_id = await rig.start(STUBBORN)
        await rig.shop.running("a")
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.apply(session_id, None)
        assert (await rig.open_prompt(session_id)).kind == "interrupted"
        assert "node:interrupted" in await rig.types(session_id)


async def test_an_answer_again_during_a_shutdown_starts_the_node_later(
    backing: Backing, tmp_path: Path
) -> None:
    """The answer is durable at once; the node runs in the next process and nobody is asked twice."""
    session_id = await left_behind(backing, tmp_path, WORK)
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.apply(session_id, None)
        await rig.engine.drain(0)
        await rig.answer(session_id, "again")
        assert rig.shop.ran == []
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.shop.finish("a")
        assert (await rig.engine.parked(session_id)).status == "complete"
        assert (await rig.types(session_id)).count("prompt:requested") == 1


async def test_an_abort_that_crashed_is_carried_out_by_the_next_process(
    backing: Backing, tmp_path: Path
) -> None:
    """An abort that was committed while a node ran ends the session at the next start."""
    store = backing.open()
    async with running(store, tmp_path) as rig:
        session_id = await rig.start(STUBBORN)
        await rig.shop.running("a")
        await rig.engine.abort(session_id, actor=ANA)
        abandon(store)
        async with running(backing.open(), tmp_path) as other, served(other.engine):
            await other.committed.until("session:end", session_id)
            assert (await other.engine.state(session_id)).status == "aborted"
        await rig.shop.finish("a")
        assert (await rig.types(session_id))[-2:] == ["node:interrupted", "session:end"]


# --- owners -------------------------------------------------------------------------------------------------


async def test_a_session_of_a_living_process_is_not_taken(backing: Backing, tmp_path: Path) -> None:
    """Another process is refused, and sweeps pass it by."""
    async with running(backing.open(), tmp_path) as one, running(backing.open(), tmp_path) as two:
        session_id = await one.start(WORK)
        await one.shop.running("a")
        with pytest.raises(Owned):
            await two.engine.apply(session_id, None)
        async with served(two.engine):
            pass
        assert two.live() == []
        await one.shop.finish("a")
        assert (await one.engine.parked(session_id)).status == "complete"


async def test_a_zombie_writes_nothing_and_stops_its_work(backing: Backing, tmp_path: Path) -> None:
    """A process considered dead notices at its next write: nothing is stored, and its node is stopped."""
    store = backing.open()
    async with running(store, tmp_path) as zombie, running(backing.open(), tmp_path) as heir:
        session_id = await zombie.start(STUBBORN)
        work = await zombie.shop.running("a")
        abandon(store)
        await heir.engine.apply(session_id, None)
        before = await heir.types(session_id)
        with pytest.raises((Fenced, Owned)):
            await zombie.engine.abort(session_id, actor=ANA)
        assert work.context.aborted.is_set()
        await zombie.shop.finish("a")
        await zombie.engine.parked(session_id)
        assert await heir.types(session_id) == before
        assert (await heir.open_prompt(session_id)).kind == "interrupted"
        assert zombie.live() == []


async def test_a_zombies_outcome_is_dropped(backing: Backing, tmp_path: Path) -> None:
    """The outcome of a node whose session was taken over is not recorded, and ends nothing."""
    store = backing.open()
    async with running(store, tmp_path) as zombie, running(backing.open(), tmp_path) as heir:
        session_id = await zombie.start(SAFE)
        await zombie.shop.running("a")
        abandon(store)
        await heir.engine.apply(session_id, None)
        await heir.shop.running("a")
        await zombie.shop.finish("a")
        await zombie.engine.parked(session_id)
        assert (await heir.engine.state(session_id)).nodes["a"].status == "started"
        await heir.shop.finish("a")
        assert (await heir.engine.parked(session_id)).status == "complete"
        assert heir.shop.ran == ["a", "b"]


# --- timers over a restart ----------------------------------------------------------------------------------


async def test_a_timer_fires_after_a_restart(backing: Backing, tmp_path: Path) -> None:
    """A wait whose time came while nobody ran has ended at the next start."""
    now = Clock()
    async with running(backing.open(), tmp_path, now=now) as rig:
        session_id = (await rig.settled(WAIT)).session_id
    now.advance(30 * 86400)
    async with running(backing.open(), tmp_path, now=now) as rig, served(rig.engine):
        await rig.committed.until("session:end", session_id)
        assert (await rig.types(session_id)).count("timer:fired") == 1
        assert rig.store.timers.rows() == []


# --- damaged rows -------------------------------------------------------------------------------------------


SELECT = {
    "journal": "SELECT body FROM journal WHERE session = ? ORDER BY seq LIMIT 1",
    "snapshots": "SELECT body FROM snapshots WHERE session_id = ?",
    "sessions": "SELECT chain FROM sessions WHERE session_id = ?",
}
UPDATE = {
    "journal": "UPDATE journal SET body = ? WHERE session = ? AND seq = 1",
    "snapshots": "UPDATE snapshots SET body = ? WHERE session_id = ?",
    "sessions": "UPDATE sessions SET chain = ? WHERE session_id = ?",
}


def damage(backing: Backing, table: str, session_id: str) -> None:
    """Change one bit of a row of a session, as a broken disk or a curious person would."""
    db = backing.connect()
    key = session_number(session_id) if table == "journal" else session_id
    (value,) = next(iter(db.execute(SELECT[table], (key,))))
    db.execute(UPDATE[table], (flipped(value), key))
    db.close()


def flipped(value: bytes) -> bytes:
    """The bytes with one bit changed in the middle."""
    middle = len(value) // 2
    return value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :]


async def two_waiting(backing: Backing, tmp_path: Path) -> tuple[str, str]:
    """Two sessions that wait, with everything durable."""
    async with running(backing.open(), tmp_path) as rig:
        return (await rig.settled(ASK)).session_id, (await rig.settled(ASK)).session_id


async def test_a_snapshot_that_another_release_wrote_is_rebuilt(rig: EngineRig) -> None:
    """A snapshot that verifies but cannot be read (another version) is ignored as well."""
    from engine.journal.records import Commit, Stored

    session_id = (await rig.settled(ASK)).session_id
    head = rig.store.sessions.head(session_id)
    assert head is not None
    epoch = claim(rig.store, session_id, rig.engine.sessions.owner, rig.clock.now)
    step = Commit(
        session_id,
        epoch,
        head.seq,
        rig.clock.now,
        "paused",
        "waiting",
        snapshot=b'{"version":0}',
        release=True,
    )
    assert rig.store.commit([step]) == [Stored()]
    assert (await rig.engine.state(session_id)).phase == "waiting"
    assert (await rig.reply(session_id, "fine")).status == "complete"


@pytest.mark.parametrize("table", ["journal", "sessions"])
async def test_a_damaged_journal_or_head_sets_the_session_aside(
    table: str, backing: Backing, tmp_path: Path
) -> None:
    """Nothing of it runs, its thread is told in the same transaction, and other sessions continue."""
    session_id, other = await two_waiting(backing, tmp_path)
    damage(backing, table, session_id)
    db = backing.connect()
    db.execute("DELETE FROM snapshots")
    db.close()
    async with running(backing.open(), tmp_path) as rig:
        note = PutOutbox(f"quarantine:{session_id}", "lane", "note", b"{}")
        rig.engine.sessions.on_quarantine = lambda head, reason: [note]
        with pytest.raises((SessionQuarantined, Corrupt)):
            await rig.engine.apply(session_id, None)
        with pytest.raises(SessionQuarantined):
            await rig.engine.apply(session_id, None)
        head = rig.store.sessions.head(session_id)
        assert head is not None
        assert head.quarantined
        assert [row.key for row in rig.store.outbox.due(now=rig.clock.now)] == [note.key]
        assert (await rig.reply(other, "fine")).status == "complete"
        assert rig.shop.ran == []
        assert rig.live() == []


async def test_a_damaged_head_stops_no_sweep(backing: Backing, tmp_path: Path) -> None:
    """Of two sessions that a crash left, the damaged one is set aside and the other one continues."""
    damaged = await left_behind(backing, tmp_path, SAFE)
    sound = await left_behind(backing, tmp_path, SAFE)
    damage(backing, "sessions", damaged)
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.shop.finish("a")
        assert (await rig.engine.parked(sound)).status == "complete"
        assert rig.shop.ran == ["a", "b"]
    store = backing.open()
    head = store.sessions.head(damaged)
    assert head is not None
    assert head.quarantined
    store.close()


async def test_a_damaged_flow_sets_the_session_aside(backing: Backing, tmp_path: Path) -> None:
    """A pinned flow that is not the one that was pinned is never run."""
    session_id, _ = await two_waiting(backing, tmp_path)
    change_flow(backing)
    async with running(backing.open(), tmp_path) as rig:
        with pytest.raises(SessionQuarantined):
            await rig.engine.resume(session_id, "fine", actor=ANA)


def change_flow(backing: Backing) -> None:
    """Let every pinned flow run something else."""
    db = backing.connect()
    db.execute("UPDATE flows SET body = cast(replace(cast(body AS TEXT), 'now', 'rm') AS BLOB)")
    db.close()


async def test_a_quarantined_session_refuses_every_command(rig: EngineRig) -> None:
    """Answers, aborts and messages are refused with the reason; nothing is written."""
    session_id = (await rig.settled(ASK)).session_id
    rig.store.quarantine(session_id, "for a test", rig.clock.now)
    before = list(rig.store.sessions.journal(session_id))
    calls: list[Any] = [
        rig.engine.abort(session_id, actor=ANA),
        rig.engine.resume(session_id, "x", actor=ANA),
        rig.engine.apply(session_id, None),
    ]
    for call in calls:
        with pytest.raises(SaysoError, match="for a test"):
            await call
    assert (await rig.engine.inspect(session_id))["phase"] == "quarantined"
    assert list(rig.store.sessions.journal(session_id)) == before


async def test_the_kept_state_is_the_fold_of_the_journal(rig: EngineRig) -> None:
    """What the engine keeps while running equals the fold over what it stored, at every commit."""
    from engine.journal.fold import derive_state

    kept: list[Any] = []
    rig.engine.subscribe(lambda state, events: kept.append((state, list(events))))
    session_id = (await rig.settled(ASK)).session_id
    await rig.reply(session_id, "fine")
    journal = await rig.engine.journal(session_id)
    folded: list[Any] = []
    for state, events in kept:
        folded += events
        assert derive_state(folded) == state
    assert folded == journal


# --- snapshots ----------------------------------------------------------------------------------------------


LONG = """
limits: {max_node_runs: 10000}
nodes:
  - id: each
    type: foreach
    with: {items: "{{ range(1500) | list }}"}
    body: [{id: work, type: set, with: {number: "{{ item }}"}}]
  - {id: q, type: ask, with: {message: Done?}}
"""


async def snapshots_of_a_long_run(backing: Backing, tmp_path: Path) -> tuple[list[int], int]:
    """Where snapshots were taken in a long session that never paused before its end, and its last event."""
    seqs: list[int] = []
    async with running(backing.open(), tmp_path) as rig:
        commit = rig.store.commit

        def noted(batch: Any) -> Any:
            seqs.extend(one.seq + len(one.events) for one in batch if one.snapshot)
            return commit(batch)

        rig.store.commit = noted  # type: ignore[method-assign]
        state = await rig.settled(LONG)
        loaded = rig.store.sessions.load(state.session_id)
        assert derive_state(map(decode_event, rig.store.sessions.journal(state.session_id))) == state
        assert len(loaded.events) < state.seq / 2
    return seqs, state.seq


async def test_a_long_session_has_snapshots_before_it_pauses(backing: Backing, tmp_path: Path) -> None:
    """Killed anywhere, it is loaded from a snapshot and a tail that is no longer than twice that; and few are taken."""
    seqs, last = await snapshots_of_a_long_run(backing, tmp_path)
    assert 2 <= len(seqs) <= 8
    assert seqs[0] < last / 3


async def test_snapshots_only_at_a_pause_are_noticed(
    backing: Backing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: a session that was killed before its first pause would be read from its first event on."""
    taken = stepper._snapshot
    monkeypatch.setattr(
        stepper,
        "_snapshot",
        lambda live, after, stored: taken(live, after, stored) if after.status == "paused" else None,
    )
    seqs, last = await snapshots_of_a_long_run(backing, tmp_path)
    assert [seq for seq in seqs if seq < last / 3] == []


def rows_of_prompts(before: State, after: State, events: Sequence[Event]) -> Sequence[PromptRow]:
    """What a bot commits with the events: the rows of the questions."""
    return project(after, events)


async def test_every_pause_leaves_one_snapshot(backing: Backing, tmp_path: Path) -> None:
    """The commit that pauses writes the state instead of the last one, its question names it, and the end deletes it."""
    async with running(backing.open(), tmp_path, extensions=[rows_of_prompts]) as rig:
        session_id = (await rig.settled(TWO)).session_id
        for reply in ("first", "second"):
            loaded = rig.store.sessions.load(session_id)
            assert (loaded.snapshot_seq, loaded.events) == (loaded.head.seq, ())
            assert loaded.snapshot is not None
            assert read_document(loaded.snapshot) == await rig.engine.state(session_id)
            prompt = await rig.open_prompt(session_id)
            row = rig.store.prompts.row(prompt.prompt_id)
            assert row is not None
            assert PromptState.from_bytes(row.body).snapshot_seq == loaded.snapshot_seq
            await rig.engine.apply(session_id, Shown(prompt.prompt_id, {"channel": "C1", "ts": "1.2"}))
            assert rig.store.sessions.load(session_id).events == ()
            await rig.reply(session_id, reply)
        assert rig.store.sessions.load(session_id).snapshot is None


SNAPSHOT_LOST = {
    "deleted": "DELETE FROM snapshots WHERE session_id = :session",
    "flipped": "UPDATE snapshots SET body = CAST(substr(body, 1, 20) || x'00' || substr(body, 22) AS BLOB)",
    "without its place": "UPDATE snapshots SET seq = 1",
    "older": "INSERT OR REPLACE INTO snapshots SELECT * FROM older",
    "another session's": """INSERT OR REPLACE INTO snapshots
        SELECT :session, seq, chain, body, mac FROM snapshots WHERE session_id <> :session""",
}


@pytest.mark.parametrize("how", SNAPSHOT_LOST)
async def test_a_lost_snapshot_is_the_journal_read_again(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a missing or wrong snapshot, a session is restored from its journal and continues, and the log says so once."""
    file = Backing("sqlite", tmp_path)
    async with running(file.open(), tmp_path) as rig:
        session_id = (await rig.settled(TWO)).session_id
        db = file.connect()
        db.execute("CREATE TABLE older AS SELECT * FROM snapshots")
        await rig.settled(TWO)
        paused = await rig.reply(session_id, "first")
    db.execute(SNAPSHOT_LOST[how], {"session": session_id} if ":session" in SNAPSHOT_LOST[how] else {})
    db.execute("DROP TABLE older")
    db.close()
    async with running(file.open(), tmp_path) as rig:
        for _ in range(2):
            assert fold(rig.store.sessions.load(session_id)) == paused
        state = await rig.reply(session_id, "second")
        assert state.status == "complete"
        assert derive_state(map(decode_event, rig.store.sessions.journal(session_id))) == state
    said = [line for line in caplog.messages if "The journal is read in its place." in line]
    assert len([line for line in said if session_id in line]) == 1


async def read_by_an_answer(backing: Backing, tmp_path: Path) -> list[bytes]:
    """The events that an answer reads after a restart, in a session of some thousand."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = (await rig.settled(LONG)).session_id
    store, read = backing.open(), []
    async with running(store, tmp_path) as rig:
        events = store.sessions._events

        def noted(*about: Any) -> Any:
            read.extend(found := events(*about))
            return found

        store.sessions._events = noted  # type: ignore[method-assign]
        assert (await rig.reply(session_id, "yes")).status == "complete"
    return read


async def test_an_answer_reads_no_history(backing: Backing, tmp_path: Path) -> None:
    """After a restart an answer reads only the snapshot and no journal events, however long the journal is."""
    assert await read_by_an_answer(backing, tmp_path) == []


async def test_an_answer_reads_the_head_once(backing: Backing, tmp_path: Path) -> None:
    """After a restart: what is loaded is one moment of the store, and the statement that stores the answer compares it with
    what is there by then."""
    session_id, _ = await two_waiting(backing, tmp_path)
    store, read = backing.open(), []
    async with running(store, tmp_path) as rig:
        find = store.sessions._find

        def noted(name: str) -> Any:
            read.append(name)
            return find(name)

        store.sessions._find = noted  # type: ignore[method-assign]
        await rig.engine.apply(session_id, Message("fine", ANA, "k"))
    assert read == [session_id]


async def test_a_pause_without_its_snapshot_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: only what runs gets snapshots, so that an answer reads the events up to its pause."""
    taken = stepper._snapshot
    monkeypatch.setattr(
        stepper,
        "_snapshot",
        lambda live, after, stored: None if after.status == "paused" else taken(live, after, stored),
    )
    assert await read_by_an_answer(Backing("sqlite", tmp_path), tmp_path) != []
