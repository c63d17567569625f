"""The child of `test_kill.py`: one engine over a real database, which may kill itself at the n-th write.

Run as `python -m tests.engine.killed_child FOLDER POINT`. POINT is `none`, or `before:N` / `after:N`: SIGKILL right
before or right after the N-th commit of this process. It answers every question about an interruption with the
words in `FOLDER/answers`, one line each time, and the flow's own question with `continue`; it writes a line to
`FOLDER/asked` before each answer about an interruption. It ends when the session has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.decide.commands import Answer
from engine.journal.records import Commit
from engine.journal.state import State
from engine.language.errors import Refused, SessionError
from engine.nodes.runtime.table import runners
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.run.flow_files import load_flow_file
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from engine.testing import CrashingStore, nth
from tests.support.engine import ANA, everybody

SESSION = "session-0badcafe"


def deadly(inner: Store, point: str) -> Store:
    """A store that kills its own process before or after a commit (`before:2`); any other point is not a death."""
    when, _, number = point.partition(":")
    at = nth(int(number or 0))

    def dies(batch: Sequence[Commit]) -> bool:
        if at(batch):
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    return CrashingStore(inner, **({when: dies} if when in ("before", "after") else {})).store


async def drive(folder: Path, point: str) -> None:
    """Bring the session to its end, or die."""
    store = deadly(open_sqlite(folder / "sayso.db"), point)
    engine = Engine(store, policy=everybody, runners=runners(), home=folder)
    await engine.open()
    service = asyncio.create_task(Dispatcher(engine).run())
    if await engine.writer.call(engine.store.sessions.head, SESSION) is None:
        flow = load_flow_file(folder / "flow.yml")
        await engine.start(flow, {}, actor=ANA, session_id=SESSION)
    while not (state := await engine.state(SESSION)).ended:
        assert not service.done(), service.exception()
        if state.open_prompts:
            await answer(engine, folder, state)
        await asyncio.sleep(0.005)
    (folder / "ended").write_text(state.status)


async def answer(engine: Engine, folder: Path, state: State) -> None:
    """Say what a person says: `continue` to the flow, the next of the prepared words to an interruption."""
    prompt = state.prompts[next(iter(state.open_prompts))]
    value, text, key = None, "go on", f"person:{prompt.prompt_id}"
    if prompt.kind == "interrupted":
        value = (folder / "answer").read_text().strip()
        with (folder / "asked").open("a") as file:
            file.write(f"{prompt.prompt_id} {prompt.path} {value}\n")
    try:
        await engine.resume(
            SESSION, Answer(prompt.prompt_id, ANA, key, value=value, text=text if value is None else None)
        )
    except (Refused, SessionError) as refusal:
        print(f"refused: {refusal}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), sys.argv[2]))
