"""Lives of `tests.proof.child` in which one system call, told by name and number, kills or fails.

`strace` counts the calls of each thread on its own; the child keeps to one thread for the database and one for files.
A flow's effects are files that its shell nodes make without writing to them (`: > first.$$`), so a fault is never one
of the programs' own calls.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.storage.sqlite import open_sqlite
from tests.proof.child import SESSION, STOPPED, STUCK
from tests.support import prefork
from tests.support.engine import check_starts

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("write", "pwrite64", "fsync", "fdatasync", "unlink", "rename", "ftruncate")
QUICK = "--seccomp-bpf"
"""Stops the process at the traced calls only. With it `strace` makes calls fail, but sends no signals."""
FLOW = """
flow: syscalls
nodes:
  - {id: first, type: shell, with: {script: ': > "$DIR/first.$$"', env: {DIR: "%(dir)s"}}}
  - id: rounds
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: q, type: ask, with: {message: "{{ region }}?"}}
      - id: apply
        type: shell
        with:
          script: ': > "$DIR/apply-$REGION-$SAID.$$"'
          env: {DIR: "%(dir)s", REGION: "{{ region }}", SAID: "{{ nodes.q.text }}"}
  - id: shaky
    type: shell
    on_crash: again
    retry: {attempts: 5, backoff: fixed, delay: 50ms}
    with: {script: ': > "$DIR/shaky.$$"; set -- "$DIR"/shaky.*; [ $# -ge 2 ]', env: {DIR: "%(dir)s"}}
  - {id: tally, type: set, with: {regions: "{{ nodes.rounds.iterations | length }}"}}
"""
EFFECTS = {"first": "first", "rounds[0]/apply": "apply-eu-yes", "rounds[1]/apply": "apply-us-no"}
STARTS = ("node:started", "container:childStarted")
ENDS = ("node:completed", "container:childCompleted")


@dataclass(frozen=True)
class Point:
    """Where a life meets its fault. `scene` is `birth` (no database yet) or `life` (an empty one)."""

    scene: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.scene}/{self.name}/{self.number}"


async def strace_missing() -> str | None:
    """Why faults cannot be injected here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    arguments = ("-f", "-e", "trace=rename", "-e", "inject=rename:error=EIO", "true")
    process = await asyncio.create_subprocess_exec(
        "strace", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    return None if process.returncode == 0 else f"strace cannot trace here: {said.decode().strip()[-200:]}"


# --- lives -----------------------------------------------------------------------------------------------


def prepare(folder: Path, scene: str, word: str) -> Path:
    """A folder for a child."""
    (folder / "effects").mkdir(parents=True)
    (folder / "flow.yml").write_text(FLOW % {"dir": folder / "effects"})
    (folder / "replies").write_text("yes\nno\n")
    (folder / "word").write_text(word)
    if scene == "life":
        open_sqlite(folder / "sayso.db").close()
    return folder


async def life(folder: Path, *strace: str, patience: float = 10.0) -> tuple[int, str]:
    """One life of the child, under strace with these arguments if there are any: its exit code, and what it said."""
    child = ["-m", "tests.proof.child", "live", str(folder), str(patience)]
    if not strace:
        read = ("tests.support.engine",)
        done = await asyncio.to_thread(prefork.run, child, cwd=ROOT, env=os.environ, timeout=90, read=read)
        return done.returncode, done.stderr
    process = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-o", str(folder / "trace"), *strace),
        *(sys.executable, *child),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")


async def points(folder: Path, scene: str) -> list[Point]:
    """Every call of a life without a fault: as many of each name as the thread made that made the most."""
    prepare(folder, scene, "done")
    code, said = await life(folder, QUICK, "-e", f"trace={','.join(NAMES)}")
    assert code == 0, said
    calls = re.findall(r"^(\d+) +(\w+)\(", (folder / "trace").read_text(), re.MULTILINE)
    counts = Counter(calls)
    most = {
        name: max((count for (_, other), count in counts.items() if other == name), default=0)
        for name in NAMES
    }
    return [Point(scene, name, number) for name in NAMES for number in range(1, most[name] + 1)]


def spread(points: Sequence[Point], most: int) -> list[Point]:
    """A part of the points: of each name in each scene some, evenly spread, or of every second one its middle."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.scene, point.name), []).append(point)
    share = max(1, most // len(groups))
    chosen: list[Point] = []
    for group in list(groups.values())[:: max(1, len(groups) // most)]:
        if len(group) <= share:
            chosen += group
        elif share == 1:
            chosen.append(group[len(group) // 2])
        else:
            chosen += [group[index * (len(group) - 1) // (share - 1)] for index in range(share)]
    return chosen


async def struck(folder: Path, point: Point, fault: str) -> bool:
    """A life with a fault; whether it met it. `fault` is `KILL`, `ENOSPC` (from that call on) or `EIO` (once)."""
    inject = {
        "KILL": f"signal=KILL:when={point.number}",
        "ENOSPC": f"error=ENOSPC:when={point.number}+",
        "EIO": f"error=EIO:when={point.number}",
    }[fault]
    options = ("-e", f"trace={point.name}", "-e", f"inject={point.name}:{inject}")
    if fault != "KILL":
        options = (QUICK, *options)
    code, said = await life(folder, *options, patience=1.0 if fault == "ENOSPC" else 3.0)
    met = re.search(r"killed by SIGKILL|\(INJECTED\)", (folder / "trace").read_text()) is not None
    if fault == "KILL":
        assert code == (-9 if met else 0), f"{point}: {code} {said}"
    else:
        assert code in (0, STOPPED, STUCK), f"{point} {fault}: exit {code}\n{said}"
    return met


async def finish(folder: Path) -> None:
    """Restart without faults: one life is enough."""
    code, said = await life(folder)
    assert code == 0, f"a restart did not finish: exit {code}\n{said}"


# --- what holds afterwards -------------------------------------------------------------------------------


def rows(folder: Path) -> list[bytes]:
    """The journal as it is stored; none without a session. Read from a copy: opening mends what a restart must mend."""
    copy = folder / "copy"
    copy.mkdir()
    for file in folder.glob("sayso.db*"):
        shutil.copy2(file, copy)
    try:
        store = open_sqlite(copy / "sayso.db")
        try:
            return list(store.sessions.journal(SESSION)) if store.sessions.head(SESSION) is not None else []
        finally:
            store.close()
    finally:
        shutil.rmtree(copy)


def effects(folder: Path) -> Counter[str]:
    """How often each effect was made."""
    return Counter(file.name.rsplit(".", 1)[0] for file in (folder / "effects").iterdir())


def asked(folder: Path) -> Counter[str]:
    """How often a person was asked about each interrupted node."""
    directory = folder / "asked"
    names = (
        [file.name.split(" ", 1)[1].replace(" ", "/") for file in directory.iterdir()]
        if directory.exists()
        else []
    )
    return Counter(names)


def starts_of(events: Sequence[Event]) -> Counter[str | None]:
    """How often each path started."""
    return Counter(event.path for event in events if event.type in STARTS)


def check(folder: Path, word: str, before: Sequence[bytes], done: Counter[str]) -> None:
    """What holds after a fault and a restart. `before` is the journal and `done` the effects between the two."""
    after = rows(folder)
    assert after[: len(before)] == list(before), "what was stored has changed"
    events = [decode_event(row) for row in after]
    earlier = [decode_event(row) for row in before]
    state = derive_state(events)
    assert state.status == "complete", state.status
    assert state.nodes["tally"].output == {"regions": 2}
    check_starts(events)
    starts, seen, questions = starts_of(events), effects(folder), asked(folder)
    for path in (event.path for event in earlier if event.type in ENDS):
        assert starts[path] == starts_of(earlier)[path], f"{path} had completed and started again"
        assert path not in EFFECTS or seen[EFFECTS[path]] == done[EFFECTS[path]], (
            f"{path} had an effect again"
        )
    for path, effect in EFFECTS.items():
        assert starts[path] == 1 + (questions[path] if word == "again" else 0), f"{path} started unasked"
        assert seen[effect] <= starts[path]
        assert seen[effect] >= 1 or (word == "done" and questions[path]), f"{path} never happened"
    assert 2 <= seen["shaky"] <= starts["shaky"]
    assert set(seen) <= {*EFFECTS.values(), "shaky"}
    answered = Counter(
        state.prompts[event.prompt_id].path for event in events if event.type == "prompt:answered"
    )
    assert answered["rounds[0]/q"] == answered["rounds[1]/q"] == 1
    left = list((folder / "snapshots").iterdir()) if (folder / "snapshots").exists() else []
    assert not left, f"files were left: {left}"
