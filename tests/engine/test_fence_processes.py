"""A worker that is stopped between the commit that starts a node and the start of its program, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from engine.decide.commands import Abort
from engine.storage import lanes, postgres_workers
from engine.storage.postgres import open_postgres
from tests.storage.storagekit import python
from tests.support import postgres
from tests.support.engine import ANA, counted, running, served, shell_runners, until

pytestmark = pytest.mark.process

WORKER = """
import asyncio, os, signal, sys
from pathlib import Path
from engine.storage import lanes, postgres_workers
lanes.LIMIT_SECONDS, postgres_workers.BEAT_SECONDS = 0.6, 0.05
from engine.nodes.runtime import process
from engine.storage.postgres import open_postgres
from tests.support import postgres
from tests.support.engine import running, shell_runners

url, home, where, flow = sys.argv[1:]

def stand_still():
    os.kill(os.getpid(), signal.SIGSTOP)

def before_its_program(real):
    def stdin(text):
        stand_still()
        return real(text)
    return stdin

async def main():
    async with running(open_postgres(url, postgres.KEY), Path(home), runners=shell_runners()) as rig:
        if where == "before its launch":
            rig.engine.observe(lambda before, after, events: after.launched and stand_still())
        else:
            process._stdin = before_its_program(process._stdin)
        session_id = await rig.start(flow)
        live = rig.engine.sessions.active.get(session_id)
        if live is not None:
            await live.parked.wait()
        print("left", flush=True)

asyncio.run(main())
"""
FLOW = 'nodes: [{{id: a, type: shell, on_crash: again, with: {{script: "echo ran >> {log}"}}}}]'


def stopped(pid: int) -> bool:
    """Whether a process freezes."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("aborted", [False, True], ids=["taken over", "aborted"])
@pytest.mark.parametrize("where", ["before its launch", "before its program"])
async def test_a_frozen_worker_runs_nothing_that_is_not_its_own_any_more(
    tmp_path: Path, where: str, aborted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process continues or ends the session, the program of a worker that wakes up does not run."""
    monkeypatch.setattr(lanes, "LIMIT_SECONDS", 0.6)
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", 0.05)
    url, log = postgres.new_database(), tmp_path / "log"
    worker = python(WORKER, url, str(tmp_path / "worker"), where, FLOW.format(log=log))
    try:
        await until(lambda: stopped(worker.pid))
        assert counted(log) == []
        async with running(open_postgres(url, postgres.KEY), tmp_path, runners=shell_runners()) as rig:
            await until(lambda: rig.store.sessions.orphans() != [])
            [session_id] = rig.store.sessions.orphans()
            if aborted:
                await rig.engine.apply(session_id, Abort(ANA))
            async with served(rig.engine):
                await rig.engine.parked(session_id)
                theirs = counted(log)
                os.kill(worker.pid, signal.SIGCONT)
                assert worker.stdout is not None
                assert (await asyncio.to_thread(worker.stdout.readline)).strip() == "left"
            assert theirs == counted(log) == ([] if aborted else ["ran"])
            assert "node:interrupted" in await rig.types(session_id)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
