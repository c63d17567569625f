"""The child of `test_lock_processes.py`: one engine over a real database that starts a session with a lock.

Run as `python -m tests.engine.lock_child FOLDER SESSION POINT`; POINT as in `killed_child`. The process serves only its
own session, and ends when that has ended: so a lock goes from process to process.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from engine.nodes.runtime.table import runners
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.run.flow_files import load_flow_file
from engine.storage.sqlite import open_sqlite
from tests.engine.killed_child import deadly
from tests.support.engine import ANA, everybody


async def drive(folder: Path, session_id: str, point: str) -> None:
    """Bring the session to its end, or die."""
    store = deadly(open_sqlite(folder / "sayso.db"), point)
    engine = Engine(store, policy=everybody, runners=runners(), home=folder)
    await engine.open()
    service = Dispatcher(engine, wants=lambda head: head.session_id == session_id)
    over = asyncio.Event()
    engine.subscribe(lambda state, events: over.set() if state.ended else None)
    serving = asyncio.create_task(service.run())
    if await engine.writer.call(engine.store.sessions.head, session_id) is None:
        flow = load_flow_file(folder / "flow.yml")
        await engine.start(flow, {"who": session_id}, actor=ANA, session_id=session_id)
    if not (await engine.state(session_id)).ended:
        waiting = asyncio.create_task(over.wait())
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
    service.stop()
    await serving
    await engine.close()
    store.close()


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), *sys.argv[2:]))
