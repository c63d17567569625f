"""Files of sessions that continue on another machine: two engines over one store and one place for blobs, each with a
home of its own."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.decide.commands import Answer
from engine.language.errors import BlobLost, StorageError
from engine.nodes.runtime.folder import FileRefused, session_folder
from engine.nodes.runtime.kept_files import keep, kept_digests
from engine.run import shared_files
from engine.run.shared_files import SharedFiles
from engine.storage.blobs import Blobs, _copied
from engine.storage.group_commit import Writer
from engine.testing import CrashingStore, nth
from tests.support import bucket
from tests.support.engine import ANA, Backing, EngineRig, abandon, running, shell_runners

MAKE = r"""mkdir -p deep/er empty; printf one > deep/er/a; printf two > 'b c'; chmod 750 'b c'; ln -s /etc/passwd out
ln -s deep/er/a in; printf x > "$(printf 'n\377')"; mkfifo pipe"""
LOOK = "find . -mindepth 1 | LC_ALL=C sort | cat -v; cat deep/er/a 'b c' in; stat -c %a 'b c'; readlink out; rm deep/er/a"
FLOW = f"""
nodes:
  - {{id: make, type: shell, with: {{script: {json.dumps(MAKE)}}}}}
  - {{id: q, type: ask, with: {{message: How?}}}}
  - {{id: look, type: shell, with: {{script: {json.dumps(LOOK)}}}}}
  - {{id: again, type: ask, with: {{message: And?}}}}
  - {{id: back, type: shell, with: {{run: [find, deep]}}}}
"""
FOUND = "./b c\n./deep\n./deep/er\n./deep/er/a\n./empty\n./in\n./nM-^?\n./out\nonetwoone750\n/etc/passwd\n"


class Machines:
    """Engines over one store and one bucket."""

    def __init__(self, backing: Backing, folder: Path, blobs: Blobs) -> None:
        self._backing, self._folder, self.blobs = backing, folder, blobs

    def home(self, name: str) -> Path:
        """The home of a machine."""
        return self._folder / name

    @asynccontextmanager
    async def on(self, name: str, store: Any = None, **options: Any) -> AsyncIterator[EngineRig]:
        """An engine on this machine."""

        def files(writer: Writer) -> SharedFiles:
            return SharedFiles(self.blobs, writer, self.home(name))

        options = {"runners": shell_runners(), "files": files, **options}
        async with running(store or self._backing.open(), self.home(name), **options) as rig:
            yield rig

    def folder(self, name: str, session_id: str) -> Path:
        """A session's folder on a machine."""
        return session_folder(self.home(name), session_id)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.long)])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """Where files are for all machines; in a bucket in the long version."""
    return bucket.in_bucket() if request.param == "s3" else Blobs(f"file://{tmp_path}/shared", {})


@pytest.fixture
def machines(backing: Backing, tmp_path: Path, blobs: Blobs) -> Machines:
    """Machines that share a store."""
    return Machines(backing, tmp_path, blobs)


async def output(rig: EngineRig, session_id: str, node: str) -> str:
    """What a program printed."""
    return str((await rig.engine.state(session_id)).nodes[node].output["stdout"])


async def there_and_back(machines: Machines) -> list[str]:
    """What a session finds in its folder that continued on another machine, which removed a file of it."""
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(FLOW)).session_id
        await two.reply(session_id, "well")
        assert await output(two, session_id, "look") == FOUND
        assert (await one.reply(session_id, "fine")).status == "complete"
        return (await output(one, session_id, "back")).split()


async def test_a_session_that_goes_on_elsewhere_has_its_folder(machines: Machines) -> None:
    """Files with their permissions, links as links, empty folders, names that are no text; and back again, without what was
    removed there."""
    assert await there_and_back(machines) == ["deep", "deep/er"]


async def test_a_bucket_is_such_a_place(machines: Machines) -> None:
    """The same through a real socket, with S3's protocol."""
    machines.blobs = bucket.in_bucket()
    assert await there_and_back(machines) == ["deep", "deep/er"]


async def test_only_what_changed_is_put(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that changes one of two files costs that one and a manifest, one that changes none costs nothing."""
    put = Blobs.put
    puts = []

    async def counted(self: Blobs, session_id: str, source: Any) -> str:
        puts.append(await put(self, session_id, source))
        return puts[-1]

    monkeypatch.setattr(Blobs, "put", counted)
    flow = "nodes: [{id: a, type: shell, with: {script: 'echo 1 > a; echo 2 > b'}}, {id: b, type: shell, with: {script: 'echo 3 > b'}}, {id: c, type: shell, with: {script: cat a b}}]"
    async with machines.on("one") as one:
        await one.settled(flow)
    assert len(puts) == 2 + 1 + 1 + 1


ASKS = "nodes: [{id: a, type: shell, with: {script: 'echo 1 > a'}}, {id: q, type: ask, with: {message: How?}}, {id: b, type: shell, with: {script: 'cat a; ls'}}]"


async def crashed_at_the_end_of_a_node(machines: Machines) -> str:
    """What a session finds elsewhere whose process died when the end of its first node was committed, after that was done once
    more."""
    store = CrashingStore(machines._backing.open(), before=nth(2))
    async with machines.on("one", store) as one:
        session_id = await one.start(ASKS.replace("id: a, ", "id: a, on_crash: again, "))
        await asyncio.gather(*one.engine.sessions.active[session_id].tasks.values())
        abandon(store.inner)
    assert store.dead
    assert len(list(machines.blobs._listed(session_id))) == 2
    async with machines.on("two") as two:
        assert await two.engine.files._stored(session_id) is None
        await two.engine.apply(session_id, None)
        await two.engine.parked(session_id)
        await two.reply(session_id, "well")
        return await output(two, session_id, "b")


async def test_a_crash_before_the_commit_leaves_no_name(machines: Machines) -> None:
    """Blobs are there that nothing names; the node runs again where the session continues, and its files count."""
    assert await crashed_at_the_end_of_a_node(machines) == "1\na\n"


async def test_what_an_interrupted_node_left_is_gone(machines: Machines) -> None:
    """Elsewhere and here alike: the folder is what the last node that ended left."""
    async with machines.on("one") as one:
        session_id = (await one.settled(ASKS)).session_id
    (machines.folder("one", session_id) / "a").write_text("half of it")
    (machines.folder("one", session_id) / "half").touch()
    async with machines.on("one") as one:
        await one.reply(session_id, "well")
        assert await output(one, session_id, "b") == "1\na\n"


def name_first(patch: pytest.MonkeyPatch) -> None:
    """The seeded fault: the manifest is named by the commit, and put when the process finds time."""

    async def later(self: Blobs, session_id: str, source: Any) -> str:
        return _copied(source, io.BytesIO())

    patch.setattr(Blobs, "put", later)


async def test_a_name_before_its_blob_is_noticed(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: were blobs put after the commit that names them, a crash would leave a session without its files."""
    async with machines.on("one") as one:
        with monkeypatch.context() as patch:
            name_first(patch)
            session_id = (await one.settled(ASKS)).session_id
    async with machines.on("two") as two:
        state = await two.reply(session_id, "well")
    assert state.error is not None
    assert state.error["type"] == "blob_lost"


async def test_a_folder_that_is_taken_as_it_lies_is_noticed(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: were the row read once, a session that comes back would find what was removed elsewhere."""
    current = SharedFiles._current

    async def as_it_lies(self: SharedFiles, session_id: str, epoch: int) -> Any:
        if (copy := self._copies.get(session_id)) is not None:
            copy.epoch = epoch
        return await current(self, session_id, epoch)

    monkeypatch.setattr(SharedFiles, "_current", as_it_lies)
    assert "deep/er/a" in await there_and_back(machines)


async def test_a_node_waits_for_a_bucket_that_is_away(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has ended once its files are kept; the log has a sentence meanwhile."""
    put = Blobs.put
    tried = asyncio.Event()
    back = asyncio.Event()

    async def away(self: Blobs, session_id: str, source: Any) -> str:
        if not back.is_set():
            tried.set()
            raise StorageError("s3://files cannot keep files of sessions now: nobody answers")
        return await put(self, session_id, source)

    monkeypatch.setattr(Blobs, "put", away)
    async with machines.on("one") as one:
        session_id = await one.start(ASKS)
        with caplog.at_level(logging.ERROR):
            await tried.wait()
        assert "node:completed" not in await one.types(session_id)
        back.set()
        state = await one.engine.parked(session_id)
        assert state.nodes["a"].status == "completed"
    assert "an outcome waits: s3://files cannot keep files of sessions now" in caplog.text


async def test_a_node_does_not_begin_before_its_files_are_here(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that continues elsewhere waits for a bucket that is away, and continues by itself."""
    get = Blobs.get
    tried, back = asyncio.Event(), asyncio.Event()

    async def away(self: Blobs, *rest: Any) -> None:
        if not back.is_set():
            tried.set()
            raise StorageError("s3://files cannot read files of sessions now: nobody answers")
        await get(self, *rest)

    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(ASKS)).session_id
        monkeypatch.setattr(Blobs, "get", away)
        await two.engine.resume(session_id, "well", actor=ANA)
        await tried.wait()
        assert not machines.folder("two", session_id).exists()
        back.set()
        await two.engine.parked(session_id)
        assert await output(two, session_id, "b") == "1\na\n"


async def test_a_file_that_came_with_an_answer_is_there(machines: Machines) -> None:
    """It was put into the folder where the answer was read, beside what another machine had left there."""
    flow = ASKS.replace("message: How?", "message: How?, accept: files")
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(flow)).session_id
        asked = await two.open_prompt(session_id)
        here = machines.folder("two", session_id) / "files" / asked.prompt_id
        here.mkdir(parents=True)
        (here / "given").write_text("given")
        given = [{"name": "given", "path": str(here / "given"), "size": 5, "type": "text/plain"}]
        await two.engine.apply(session_id, Answer(asked.prompt_id, ANA, "k", files=given))
        await two.engine.parked(session_id)
        assert await output(two, session_id, "b") == "1\na\nfiles\n"
        path = f"files/{asked.prompt_id}/given"
        assert await one.engine.files.read(session_id, path, 10) == b"given"


async def test_a_file_is_read_from_where_it_was_left(machines: Machines) -> None:
    """By who has no such folder: files alone, and none that is too large."""
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(FLOW)).session_id
        files = two.engine.files
        assert await files.read(session_id, "b c", 10) == b"two"
        assert (
            await files.read(session_id, str(machines.folder("two", session_id) / "deep/er/a"), 10) == b"one"
        )
        for path, most in (("in", 10), ("deep", 10), ("none", 10), ("../x", 10), ("b c", 2)):
            with pytest.raises(FileRefused):
                await files.read(session_id, path, most)
        assert await files.read("session-none", "a", 10) is None
        assert not machines.folder("two", session_id).exists()


async def test_a_fork_has_the_files_of_its_session(machines: Machines) -> None:
    """Also where the session was never, and then they are the fork's own."""
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(ASKS)).session_id
        seq = (await two.engine.state(session_id)).seq
        fork_id = await two.engine.fork(session_id, seq, actor=ANA)
        machines.blobs.remove(session_id)
        await one.reply(fork_id, "well")
        assert await output(one, fork_id, "b") == "1\na\n"


async def test_what_a_model_was_shown_is_in_an_export_from_elsewhere(machines: Machines) -> None:
    """What is kept beside the folder goes with it."""
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = await one.start(ASKS.replace("echo 1 > a", "sleep 60"))
        digest = keep(machines.folder("one", session_id), b"a picture")
        await one.engine.pause(session_id, actor=ANA)
        assert digest.encode() in await two.engine.export(session_id)
        assert kept_digests(machines.folder("two", session_id)) == {digest}


async def test_a_file_that_cannot_be_read_is_told(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    """Only that one is missing elsewhere."""
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    flow = ASKS.replace("echo 1 > a", "echo 1 > a; echo 2 > b; chmod 0 b")
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(flow)).session_id
        assert "will be missing" in caplog.text
        await two.reply(session_id, "well")
        assert await output(two, session_id, "b") == "1\na\n"


async def test_a_blob_that_is_gone_fails_the_node(machines: Machines) -> None:
    """With its own error, which a flow can handle; nothing runs in a folder that is not what it was."""
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(ASKS)).session_id
        machines.blobs.remove(session_id)
        with pytest.raises(BlobLost):
            await two.engine.files.ready(session_id, 99)
        state = await two.reply(session_id, "well")
        assert state.status == "failed"
        assert not machines.folder("two", session_id).exists()


async def test_two_nodes_side_by_side_lose_nothing(machines: Machines) -> None:
    """Whoever ends last has put what both have left."""
    side = "nodes: [{id: p, type: parallel, branches: {x: [{id: a, type: shell, with: {script: 'echo 1 > a'}}], y: [{id: b, type: shell, with: {script: 'echo 2 > b'}}]}}, {id: q, type: ask, with: {message: How?}}, {id: c, type: shell, with: {script: cat a b}}]"
    async with machines.on("one") as one, machines.on("two") as two:
        session_id = (await one.settled(side)).session_id
        await two.reply(session_id, "well")
        assert await output(two, session_id, "c") == "1\n2\n"


async def test_what_is_known_of_folders_is_forgotten_only_where_no_node_runs(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again; what a node has removed and written stays so at its end."""
    monkeypatch.setattr(shared_files, "_KNOWN", 0)
    assert await there_and_back(machines) == ["deep", "deep/er"]
