"""Sessions as files: exported, carried elsewhere, refused where they do not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.decide.commands import Answer
from engine.journal.snapshot import events_in, read_export, to_json
from engine.language.errors import SessionEnded, SnapshotRefused
from tests.support.engine import ANA, Backing, EngineRig, running

KEY = b"k" * 32
FLOW = """
nodes:
  - {id: tell, type: message, with: {text: Begun}}
  - {id: one, type: shell, with: {run: [now, 1]}}
  - {id: q, type: ask, with: {message: And now?}}
  - {id: two, type: shell, with: {run: [now, "{{ nodes.q.text }}"]}}
"""
ASK = "nodes: [{id: q, type: ask, with: {message: First?}}, {id: r, type: ask, with: {message: Second?}}]"


@pytest.fixture
def elsewhere(tmp_path: Path, backing: Backing) -> Backing:
    """The database of another machine."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Backing(backing.kind, folder)


async def waiting(rig: EngineRig) -> str:
    """A session of FLOW that has come to its question; its message was delivered."""
    from engine.decide.commands import NodeDone

    session_id = (await rig.settled(FLOW)).session_id
    await rig.engine.apply(session_id, NodeDone("tell", 1, {"channel": "C1", "ts": "1.1"}))
    state = await rig.engine.parked(session_id)
    assert state.phase == "waiting"
    return session_id


async def test_a_session_goes_on_in_another_store(
    backing: Backing, elsewhere: Backing, tmp_path: Path
) -> None:
    """With the same key the file continues elsewhere: what completed does not run again, nothing is posted again."""
    async with running(backing.open(KEY), tmp_path) as here:
        session_id = await waiting(here)
        data = await here.engine.export(session_id)
        before = await here.engine.state(session_id)
    async with running(elsewhere.open(KEY), tmp_path) as there:
        brought = await there.engine.resume_from_snapshot(data)
        assert to_json(brought) == to_json(before)
        assert there.store.outbox.due(now=there.clock.now) == []
        assert await there.engine.inspect(session_id)
        state = await there.engine.resume_from_snapshot(data, message="moved", actor=ANA)
        state = await there.engine.parked(session_id)
        assert (state.status, there.shop.ran) == ("complete", ["two"])
        assert state.nodes["two"].output["stdout"] == "moved"


async def test_a_session_goes_on_in_its_own_store(rig: EngineRig) -> None:
    """A file of a session that is here exactly so resumes the session itself."""
    session_id = await waiting(rig)
    data = await rig.engine.export(session_id)
    prompt = await rig.open_prompt(session_id)
    await rig.engine.resume_from_snapshot(data, Answer(prompt.prompt_id, ANA, "answer:12", text="here"))
    assert (await rig.engine.parked(session_id)).status == "complete"
    with pytest.raises(SnapshotRefused, match="resume the session itself"):
        await rig.engine.resume_from_snapshot(data, message="again", actor=ANA)
    assert rig.shop.ran == ["one", "two"]


async def test_a_timer_travels(backing: Backing, elsewhere: Backing, tmp_path: Path) -> None:
    """A wait that is carried elsewhere has its timer there."""
    async with running(backing.open(KEY), tmp_path) as here:
        session_id = (await here.settled("nodes: [{id: w, type: wait, with: {for: 10m}}]")).session_id
        data = await here.engine.export(session_id)
    async with running(elsewhere.open(KEY), tmp_path) as there:
        await there.engine.resume_from_snapshot(data)
        assert [timer.session_id for timer in there.store.timers.rows()] == [session_id]


async def test_another_key_is_refused(backing: Backing, elsewhere: Backing, tmp_path: Path) -> None:
    """A file that was signed under another key brings nothing."""
    async with running(backing.open(KEY), tmp_path) as here:
        data = await here.engine.export(await waiting(here))
    async with running(elsewhere.open(b"x" * 32), tmp_path) as there:
        with pytest.raises(SnapshotRefused, match="another key"):
            await there.engine.resume_from_snapshot(data)
        assert there.store.sessions.heads() == []


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an answer": lambda file: file["journal"][-1].update(reason="held"),
    "an event dropped": lambda file: file["journal"].pop(),
    "the state": lambda file: file["state"]["inputs"].update(x=1),
    "the flow": lambda file: file["flow"].update(text=file["flow"]["text"].replace("now", "rm")),
    "the id": lambda file: file.update(sessionId="session-other"),
    "the mac": lambda file: file.update(mac="0" * 64),
    "a mac of another alphabet": lambda file: file.update(mac="é"),
    "no mac at all": lambda file: file.pop("mac"),
    "a mac that is a list": lambda file: file.update(mac=[1]),
    "a journal that is none": lambda file: file.update(journal=7),
    "another version": lambda file: file.update(version=2),
    "something added": lambda file: file.update(more=1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_file_that_was_changed_is_refused(
    change: Callable[[dict[str, Any]], Any], elsewhere: Backing, backing: Backing, tmp_path: Path
) -> None:
    """Whatever is changed in a file, it brings nothing, and the error is `SnapshotRefused`."""
    async with running(backing.open(KEY), tmp_path) as here:
        file = orjson.loads(await here.engine.export(await waiting(here)))
    change(file)
    async with running(elsewhere.open(KEY), tmp_path) as there:
        with pytest.raises(SnapshotRefused):
            await there.engine.resume_from_snapshot(orjson.dumps(file))
        assert there.store.sessions.heads() == []


DEEP = (
    b'{"version":1,"sessionId":"s","state":{},"journal":[],"flow":{},"mac":"","x":' + b"[" * 400 + b"]" * 400
)
"""Nested beyond what can be signed."""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        DEEP + b"}",
    ],
)
async def test_what_is_no_snapshot_file_is_refused(data: bytes, rig: EngineRig) -> None:
    """Any bytes at all give `SnapshotRefused`, never another error."""
    with pytest.raises(SnapshotRefused):
        await rig.engine.resume_from_snapshot(data)


async def test_a_file_of_a_running_session_is_not_brought_elsewhere(
    backing: Backing, elsewhere: Backing, tmp_path: Path
) -> None:
    """Nobody knows what its node did since: bringing it would run the node a second time."""
    async with running(backing.open(KEY), tmp_path) as here:
        session_id = await here.start("nodes: [{id: a, type: shell, with: {run: [wait]}}]")
        await here.shop.running("a")
        data = await here.engine.export(session_id)
        await here.shop.finish("a")
        await here.engine.parked(session_id)
        ended = await here.engine.export(session_id)
    async with running(elsewhere.open(KEY), tmp_path) as there:
        with pytest.raises(SnapshotRefused, match="was running"):
            await there.engine.resume_from_snapshot(data)
        with pytest.raises(SnapshotRefused, match="nothing to resume"):
            await there.engine.resume_from_snapshot(ended)
        assert there.shop.ran == []


async def test_histories_that_parted_are_refused(
    backing: Backing, elsewhere: Backing, tmp_path: Path
) -> None:
    """A session that continued here and there, each in its own way, is at the same event with another history."""
    async with running(backing.open(KEY), tmp_path) as here:
        session_id = (await here.settled(ASK)).session_id
        data = await here.engine.export(session_id)
        async with running(elsewhere.open(KEY), tmp_path) as there:
            await there.engine.resume_from_snapshot(data, message="there", actor=ANA)
            theirs = await there.engine.export(session_id)
        await here.reply(session_id, "here")
        with pytest.raises(SnapshotRefused, match="continued differently here"):
            await here.engine.resume_from_snapshot(theirs, message="x", actor=ANA)
        assert (await here.engine.state(session_id)).nodes["q"].output["text"] == "here"


async def test_a_file_that_is_further_than_here_is_refused(
    backing: Backing, elsewhere: Backing, tmp_path: Path
) -> None:
    """A session that continued elsewhere is resumed there."""
    async with running(backing.open(KEY), tmp_path) as here:
        session_id = (await here.settled(ASK)).session_id
        async with running(elsewhere.open(KEY), tmp_path) as there:
            await there.engine.resume_from_snapshot(
                await here.engine.export(session_id), message="x", actor=ANA
            )
            theirs = await there.engine.export(session_id)
        with pytest.raises(SnapshotRefused, match="where the snapshot was made"):
            await here.engine.resume_from_snapshot(theirs, message="x", actor=ANA)


async def test_a_file_of_a_session_that_has_ended_here(rig: EngineRig) -> None:
    """The same journal, ended: the error says how."""
    session_id = (await rig.settled("nodes: [{id: a, type: noop}]")).session_id
    data = await rig.engine.export(session_id)
    with pytest.raises(SessionEnded, match="is completed"):
        await rig.engine.resume_from_snapshot(data, message="x", actor=ANA)


async def test_a_snapshot_directory_holds_a_file_for_each_paused_session(
    backing: Backing, tmp_path: Path
) -> None:
    """Written at the pause, private, whole, resumable; gone when the session has ended."""
    folder = tmp_path / "snapshots"
    async with running(backing.open(), tmp_path, snapshot_dir=folder) as rig:
        session_id = (await rig.settled(ASK)).session_id
        (file,) = folder.iterdir()
        assert file.name == f"{session_id}.json"
        assert file.stat().st_mode & 0o077 == 0
        await rig.engine.resume_from_snapshot(file.read_bytes(), message="x", actor=ANA)
        (file,) = folder.iterdir()
        assert len(events_in(read_export(file.read_bytes()))) == (await rig.engine.state(session_id)).seq
        await rig.reply(session_id, "y")
        assert list(folder.iterdir()) == []


async def test_what_a_crash_left_in_the_snapshot_directory_goes(backing: Backing, tmp_path: Path) -> None:
    """Half-written files go with their session; files of sessions that ended right before a crash, at the start."""
    folder = tmp_path / "snapshots"
    async with running(backing.open(), tmp_path, snapshot_dir=folder) as rig:
        ended = (await rig.settled("nodes: [{id: a, type: noop}]")).session_id
        open_one = (await rig.settled(ASK)).session_id
        other = (await rig.settled(ASK)).session_id
    for name in (f"{ended}.json", f"{ended}.12.tmp", f"{open_one}.34.tmp", "session-strange.json"):
        (folder / name).write_text("{}")
    async with running(backing.open(), tmp_path, snapshot_dir=folder) as rig:
        assert {file.name for file in folder.iterdir()} == {
            f"{open_one}.json",
            f"{open_one}.34.tmp",
            f"{other}.json",
            "session-strange.json",
        }
        await rig.reply(open_one, "x")
        await rig.reply(open_one, "y")
        assert {file.name for file in folder.iterdir()} == {f"{other}.json", "session-strange.json"}


async def test_orphans_in_the_snapshot_directory_go_when_they_are_old(
    backing: Backing, tmp_path: Path
) -> None:
    """A file of a session that this store does not have is kept for its time; one of a session that waits, forever."""
    folder = tmp_path / "snapshots"
    async with running(backing.open(), tmp_path, snapshot_dir=folder) as rig:
        kept = (await rig.settled(ASK)).session_id
        for name, written in (("session-old", 1_000_000_000), ("session-new", None)):
            (folder / f"{name}.json").write_text("{}")
            if written is not None:
                os.utime(folder / f"{name}.json", (written, written))
        os.utime(folder / f"{kept}.json", (1_000_000_000, 1_000_000_000))
        await rig.engine.tidy_files()
        assert len(list(folder.iterdir())) == 3
        await rig.engine.tidy_files(3600)
        assert {file.name for file in folder.iterdir()} == {f"{kept}.json", "session-new.json"}


async def test_a_snapshot_file_that_cannot_be_written_fails_nothing(backing: Backing, tmp_path: Path) -> None:
    """The file is a copy: where it cannot be written the session continues, and listeners are told."""
    blocked = tmp_path / "snapshots"
    blocked.write_text("a file where the folder should be")
    async with running(backing.open(), tmp_path, snapshot_dir=blocked) as rig:
        session_id = (await rig.settled(ASK)).session_id
        await rig.reply(session_id, "x")
        assert (await rig.reply(session_id, "y")).status == "complete"
        assert [event.type for event in rig.seen][-1] == "session:end"


def json_files(folder: Path) -> list[str]:
    """The names of the JSON files in a folder."""
    return [path.name for path in folder.glob("*.json")]


def test_a_snapshot_file_stays_in_its_folder(tmp_path: Path) -> None:
    """Whatever an id holds, its file stays in the folder."""
    from engine.run.snapshot_files import SnapshotFiles

    folder = tmp_path / "snapshots"
    for session_id in ("../../up", "..", "/etc/x", "a b:c"):
        SnapshotFiles(folder).write(session_id, b"{}")
    assert len(list(folder.iterdir())) == 4
    assert json_files(tmp_path) == []
