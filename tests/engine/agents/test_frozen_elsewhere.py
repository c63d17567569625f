"""What was sent to a model is the same where a session is brought as a file: the files that it was shown travel with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.journal.snapshot import events_in, read_export
from engine.language.codec import decode, encode
from engine.language.errors import SnapshotRefused
from engine.nodes.runtime.kept_files import kept_digests, kept_folder
from engine.run import export
from engine.run.snapshot_files import SnapshotFiles
from tests.engine.agents.test_frozen_wire import World, opened, thought
from tests.engine.agents.test_frozen_wire import world as world
from tests.support.claude_binding import grows
from tests.support.claude_server import call
from tests.support.engine import ANA, SESSION


def elsewhere(world: World, name: str = "elsewhere") -> World:
    """Another machine with the same key and the same servers."""
    other = World(world.folder.parent / name, world.server)
    shutil.copy(world.folder / "sayso.db.key", other.folder)
    return other


async def exported(world: World) -> bytes:
    """The file of a session whose agent has read two files and asks a person."""
    async with world.life() as engine:
        assert (await world.begin(engine)).phase == "waiting"
        return await engine.export(SESSION)


async def goes_on(there: World, data: bytes) -> None:
    """The session is brought there and goes on to its end."""
    async with there.life() as engine:
        await engine.resume_from_snapshot(data, message="the second one", actor=ANA)
        state = await engine.parked(SESSION)
        assert state.status == "complete", state.error
        assert [event.drop for event in await opened(engine)] == [None]
    assert there.server.refused == []
    grows([request.body for request in there.server.requests])


async def test_a_session_elsewhere_sends_the_files_that_were_sent_here(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine of another release, without the session's folder: its next request begins with the bytes of the last one."""
    data = await exported(world)
    there = elsewhere(world)
    there.upgrade(monkeypatch)
    await goes_on(there, data)
    assert len(world.server.requests) == 4
    assert "line one" in world.server.requests[-1].text
    assert kept_digests(there.workdir) == kept_digests(world.workdir)


async def test_files_that_do_not_travel_are_missed(world: World) -> None:
    """A seeded fault: the file as releases before wrote it. It opens, and people are asked, since the conversation cannot go
    on as it was."""
    with pytest.MonkeyPatch.context() as fault:
        fault.setattr(export, "_kept", lambda workdir: {})
        data = await exported(world)
    assert "kept" not in decode(data)
    async with elsewhere(world).life() as engine:
        await engine.resume_from_snapshot(data, message="the second one", actor=ANA)
        state = await engine.parked(SESSION)
        assert state.phase == "waiting"
        (prompt,) = [state.prompts[key] for key in state.open_prompts]
        assert "which the conversation uses, is missing" in prompt.message
    assert len(world.server.requests) == 2


async def test_a_fork_elsewhere_has_the_files_too(world: World) -> None:
    """A copy of a session that was brought as a file continues with the same bytes."""
    data = await exported(world)
    async with elsewhere(world).life() as engine:
        at = (await engine.resume_from_snapshot(data)).seq
        answers = {"diagnose/turn[2]/tool[0]": "the second one"}
        forked = await engine.fork(SESSION, at, actor=ANA, answers=answers, fork_id="session-fork")
        assert (await engine.parked(forked)).status == "complete"
    assert world.server.refused == []
    grows([request.body for request in world.server.requests])


async def test_a_changed_file_in_an_export_is_refused(world: World) -> None:
    """The signature covers the files; nothing of them stays where the session is refused."""
    file = decode(await exported(world))
    (digest, *_) = file["kept"]
    file["kept"][digest] = "AAAA"
    there = elsewhere(world)
    async with there.life() as engine:
        with pytest.raises(SnapshotRefused, match="changed"):
            await engine.resume_from_snapshot(encode(file))
    assert not kept_folder(there.workdir).exists()


async def test_files_that_cannot_be_kept_refuse_the_session(world: World) -> None:
    """A disk that takes no file: the session is not here, and neither is a part of its files."""
    data = await exported(world)
    there = elsewhere(world)
    kept_folder(there.workdir).parent.mkdir(parents=True)
    kept_folder(there.workdir).write_text("in the way")
    async with there.life() as engine:
        with pytest.raises(SnapshotRefused, match="cannot be stored"):
            await engine.resume_from_snapshot(data)
        assert engine.store.sessions.heads() == []


async def test_the_snapshot_directory_follows_what_was_shown(world: World, tmp_path: Path) -> None:
    """A pause after another file was read writes the file of the session whole: with it the session continues elsewhere."""
    world.snapshots = tmp_path / "snapshots"
    ask = call("ask_human", {"question": "And now?"}, "toolu_again")
    reads = call("read_file", {"path": "second.png"}, "toolu_second")
    asks = call("ask_human", {"question": "Which one?"}, "toolu_ask")
    last = {"type": "text", "text": "The disk is full."}
    say = [thought(each, number=place) for place, each in enumerate((asks, reads, ask, last))]
    world.server.mind = lambda body: say[sum(each["role"] == "assistant" for each in body["messages"])]
    file = SnapshotFiles(world.snapshots).path(SESSION)
    async with world.life() as engine:
        await world.begin(engine)
        assert len(read_export(file.read_bytes())["kept"]) == 2
        shutil.copy(world.folder / "second.png", world.workdir)
        await world.reply(engine, "the second one")
        found = read_export(file.read_bytes())
        assert (found["added"], len(found["kept"])) == ([], 3)
        assert len(events_in(found)) == (await engine.state(SESSION)).seq
    await goes_on(elsewhere(world), file.read_bytes())
