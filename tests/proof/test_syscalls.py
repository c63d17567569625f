"""`kill -9`, a full disk and I/O errors at the system calls of a life: what holds after a restart.

With PROVE=1 at many of them, chosen by a seed (with PROVE_ALL=1 at every call); else at a few. The number of points that were hit is printed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.proof import syscalls
from tests.proof.syscalls import Point
from tests.support.proving import PROVE, part

pytestmark = [pytest.mark.process, pytest.mark.timeout(7200)]
FAULTS = {
    "KILL": "system calls at which a process was killed",
    "ENOSPC": "system calls from which on the disk was full",
    "EIO": "system calls that the disk failed",
}
SAMPLE = {"KILL": 2, "ENOSPC": 1, "EIO": 1}
MANY = {"KILL": 140, "ENOSPC": 70, "EIO": 70}
"""How many of the calls are tried in the short version, and in the long one."""
AT_ONCE = max(2, os.cpu_count() or 2)


@pytest.fixture
async def ptrace() -> None:
    """Skips with the reason where a process cannot be traced; in CI that is a failure."""
    missing = await syscalls.strace_missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"CI must prove this: {missing}")
    if missing:
        pytest.skip(f"no system call can be made to fail here: {missing}")


async def one(folder: Path, point: Point, fault: str) -> bool:
    """A fault at one point, a restart, and what holds then; whether the fault was met."""
    word = "done" if point.number % 2 else "again"
    syscalls.prepare(folder, point.scene, word)
    try:
        met = await syscalls.struck(folder, point, fault)
        before, done = syscalls.rows(folder), syscalls.effects(folder)
        await syscalls.finish(folder)
        syscalls.check(folder, word, before, done)
    except AssertionError as error:
        raise AssertionError(f"{point} {fault}: {error}") from error
    shutil.rmtree(folder)
    return met


async def test_a_fault_at_any_system_call_loses_nothing_and_repeats_nothing(
    ptrace: None, hit: Counter[str], tmp_path: Path
) -> None:
    """Killed, out of space or failed by the disk at any call: a restart finishes, and what completed never runs again."""
    every = [point for scene in ("birth", "life") for point in await syscalls.points(tmp_path / scene, scene)]
    for fault in FAULTS:
        await _strike(every, fault, hit, tmp_path / fault)


async def _strike(every: list[Point], fault: str, hit: Counter[str], folder: Path) -> None:
    chosen = part(every, MANY[fault], fault) if PROVE else syscalls.spread(every, SAMPLE[fault])
    places = asyncio.Semaphore(AT_ONCE)

    async def guarded(point: Point) -> bool:
        async with places:
            return await one(folder / str(point), point, fault)

    outcomes = await asyncio.gather(*(guarded(point) for point in chosen), return_exceptions=True)
    wrong = [repr(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
    met = sum(outcome is True for outcome in outcomes)
    hit[f"{FAULTS[fault]} (of {len(every)})"] += met
    assert not wrong, f"{len(wrong)} of {len(chosen)}:\n" + "\n---\n".join(wrong[:5])
    # The last calls of a thread are not made in every life; a point that is not reached proves nothing.
    assert met >= 0.8 * len(chosen), f"only {met} of {len(chosen)} points were met: too few for a proof"
