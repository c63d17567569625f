"""The file of a paused session follows it: whole once, then a line for each pause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.journal.snapshot import events_in, read_export, to_json
from engine.language.codec import encode
from engine.language.errors import SnapshotRefused
from engine.run.sessions import Sessions
from engine.run.snapshot_files import SnapshotFiles
from tests.support.engine import Backing, EngineRig, running

KEY = b"k" * 32
MANY = 12
QUESTIONS = f"""
nodes:
  - id: each
    type: foreach
    with: {{items: "{{{{ range({MANY}) | list }}}}"}}
    body: [{{id: q, type: ask, with: {{message: "What of {{{{ item }}}}?"}}}}]
"""


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that were exported whole, each time."""
    found: list[str] = []
    export = Sessions.export_plain

    async def noted(self: Sessions, session_id: str) -> bytes:
        found.append(session_id)
        return await export(self, session_id)

    monkeypatch.setattr(Sessions, "export_plain", noted)
    return found


async def answered(rig: EngineRig, folder: Path, pauses: int) -> Path:
    """The file of a session that has paused so often."""
    session_id = (await rig.settled(QUESTIONS)).session_id
    for number in range(1, pauses):
        await rig.reply(session_id, f"answer {number}")
    return folder / f"{session_id}.json"


def files_in(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


async def test_a_pause_adds_what_came_since(backing: Backing, tmp_path: Path, exports: list[str]) -> None:
    """However many pauses there were: one line more, and the rest of the file stays as it is."""
    folder = files_in(tmp_path)
    async with running(backing.open(KEY), tmp_path, snapshot_dir=folder) as rig:
        file = await answered(rig, folder, 3)
        session_id, before, sizes = file.stem, file.read_bytes(), []
        for number in range(MANY - 3):
            await rig.reply(session_id, f"again {number}")
            after = file.read_bytes()
            assert after.startswith(before)
            sizes.append(len(after) - len(before))
            before = after
            journal = [event.to_wire() for event in await rig.engine.sessions.journal(session_id)]
            assert events_in(read_export(after)) == journal
        assert max(sizes) < min(sizes) * 1.2
        assert exports == [session_id]
        await rig.reply(session_id, "the last")
        assert list(folder.iterdir()) == []


async def test_a_file_with_lines_goes_on_elsewhere(backing: Backing, tmp_path: Path) -> None:
    """As a whole one does: with the whole journal, and nothing of it twice."""
    folder = files_in(tmp_path)
    async with running(backing.open(KEY), tmp_path, snapshot_dir=folder) as rig:
        data = (await answered(rig, folder, 4)).read_bytes()
        (session_id,) = [head.session_id for head in rig.store.sessions.heads()]
        before = await rig.engine.state(session_id)
    elsewhere = Backing(backing.kind, tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    async with running(elsewhere.open(KEY), tmp_path) as there:
        assert to_json(await there.engine.resume_from_snapshot(data)) == to_json(before)
        assert (await there.reply(session_id, "on")).phase == "waiting"


async def test_a_file_that_is_not_as_it_was_left_is_written_whole(
    backing: Backing, tmp_path: Path, exports: list[str]
) -> None:
    """Taken away, cut by a crash, or left by a process that is gone."""
    folder = files_in(tmp_path)
    async with running(backing.open(KEY), tmp_path, snapshot_dir=folder) as rig:
        file = await answered(rig, folder, 2)
        file.unlink()
        await rig.reply(file.stem, "taken away")
        file.write_bytes(file.read_bytes() + b'{"journal":[')
        await rig.reply(file.stem, "cut")
        assert len(exports) == 3
    async with running(backing.open(KEY), tmp_path, snapshot_dir=folder) as rig:
        await rig.reply(file.stem, "another process")
        assert len(exports) == 4
        journal = [event.to_wire() for event in await rig.engine.sessions.journal(file.stem)]
        assert events_in(read_export(file.read_bytes())) == journal


async def test_a_line_that_a_crash_cut_is_no_line(backing: Backing, tmp_path: Path) -> None:
    """The file is what it was at the pause before, and verifies."""
    folder = files_in(tmp_path)
    async with running(backing.open(KEY), tmp_path, snapshot_dir=folder) as rig:
        file = await answered(rig, folder, 2)
        before = file.read_bytes()
        await rig.reply(file.stem, "more")
        whole = file.read_bytes()
    for cut in (len(before), len(before) + 1, (len(before) + len(whole)) // 2, len(whole) - 1):
        assert events_in(read_export(whole[:cut])) == events_in(read_export(before))


def flipped(line: bytes) -> bytes:
    """The line with another answer in it."""
    return line.replace(b"answer", b"Answer", 1)


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "an answer": lambda lines: [lines[0], flipped(lines[1]), *lines[2:]],
    "a line dropped": lambda lines: [lines[0], *lines[2:]],
    "lines swapped": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "a line twice": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "another first line": lambda lines: [lines[0].replace(b"What", b"Whom"), *lines[1:]],
    "a line of something else": lambda lines: [*lines, encode({"journal": [], "mac": 7})],
    "a line that is no JSON": lambda lines: [*lines, b"{"],
    "a line with more in it": lambda lines: [*lines, encode({"journal": [], "mac": "", "x": 1})],
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_line_that_was_changed_is_refused(backing: Backing, tmp_path: Path, change: str) -> None:
    """Each line is signed with the one before it."""
    folder = files_in(tmp_path)
    async with running(backing.open(KEY), tmp_path, snapshot_dir=folder) as rig:
        file = await answered(rig, folder, 5)
        lines = file.read_bytes().splitlines()
        data = b"\n".join(CHANGES[change](lines)) + b"\n"
        assert data != file.read_bytes()
        with pytest.raises(SnapshotRefused):
            await rig.engine.resume_from_snapshot(data)
        assert (await rig.engine.resume_from_snapshot(file.read_bytes())).phase == "waiting"


def test_nothing_is_added_to_a_file_of_another_length(tmp_path: Path) -> None:
    """Somebody else wrote it, or it is gone."""
    files = SnapshotFiles(tmp_path)
    files.write("session-a", b"{}\n")
    assert files.append("session-a", b"x\n", 4) is None
    assert files.append("session-b", b"x\n", 3) is None
    assert files.append("session-a", b"x\n", 3) == 5
    assert files.path("session-a").read_bytes() == b"{}\nx\n"
