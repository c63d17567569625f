"""A worker of one release: `python -m tests.support.releases URL FOLDER RELEASE` serves the sessions of a database until SIGTERM.

`RELEASE` is the schema that it writes, and the newest that it reads; of a newer one than this release's it also takes rows of
the kind `newer`. Its commands leave lines in `FOLDER/ran`. It touches `FOLDER/serves-<pid>` once it serves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from engine.flow import Flow
from engine.journal import snapshot
from engine.journal.events import SCHEMA_VERSION
from engine.journal.records import Consumed, InboxRow
from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, Interrupted, NodeContext, Runner
from engine.run.dispatcher import Dispatcher, RowHandler
from engine.run.engine import Engine
from engine.storage import sealing
from engine.storage.postgres import open_postgres
from tests.support.engine import ANA, everybody, flow_of
from tests.support.postgres import KEY

NEWER = SCHEMA_VERSION + 1
FLOW = """
nodes:
  - {id: one, type: ask, with: {message: "One?"}}
  - {id: work, type: shell, on_crash: again, with: {run: [work]}}
  - {id: two, type: ask, with: {message: "Two?"}}
  - {id: more, type: shell, on_crash: again, with: {run: [more]}}
"""
"""What sessions run that rows of the kind `start` ask for."""


@contextmanager
def of_release(release: int) -> Iterator[None]:
    """What runs meanwhile writes events of this schema, and reads none that are newer."""
    before = sealing.SCHEMA_VERSION
    sealing.SCHEMA_VERSION = snapshot.SCHEMA_VERSION = release
    try:
        yield
    finally:
        sealing.SCHEMA_VERSION = snapshot.SCHEMA_VERSION = before


def ran(folder: Path) -> list[list[Json]]:
    """The commands that ran: session, path and attempt of each."""
    file = folder / "ran"
    return [orjson.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


def _starts(engine: Engine, flow: Flow) -> RowHandler:
    async def start(row: InboxRow) -> bool:
        thread: dict[str, Json] = {"key": row.thread_key, "channel": "C1"}
        done = [Consumed(row.id, "started")]
        await engine.start(flow, {}, actor=ANA, thread=thread, session_id=row.session_id, consumed=done)
        return True

    return start


def _runner(folder: Path) -> Runner:
    async def run(config: dict[str, Json], ctx: NodeContext) -> Completed | Interrupted:
        with (folder / "ran").open("ab") as file:
            file.write(orjson.dumps([ctx.session_id, ctx.path, ctx.attempt]) + b"\n")
        await asyncio.sleep(0.01)
        if ctx.aborted.is_set():
            return Interrupted("cut", "left")
        return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0})

    return run


async def _serve(url: str, folder: Path, release: int) -> None:
    loop, store = asyncio.get_running_loop(), open_postgres(url, KEY)
    engine = Engine(store, policy=everybody, runners={"shell": _runner(folder)}, home=folder)
    handlers: dict[str, RowHandler] = {"start": _starts(engine, flow_of(FLOW))}
    service = Dispatcher(engine, handlers=handlers)
    if release == NEWER:
        service._handlers["newer"] = service._handlers["request"]
    await engine.open()
    store.serve_beside("worker")
    store.listen(lambda: loop.call_soon_threadsafe(service.look))
    loop.add_signal_handler(signal.SIGTERM, service.stop)
    (folder / f"serves-{os.getpid()}").touch()
    await service.run()
    await engine.close()
    store.close()


def main(url: str, folder: str, release: str) -> None:
    """Serve."""
    with of_release(int(release)):
        asyncio.run(_serve(url, Path(folder), int(release)))


if __name__ == "__main__":
    main(*sys.argv[1:])
