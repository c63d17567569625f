"""A process that the proofs kill, starve of disk, and let race: one engine on a real database.

`python -m tests.proof.child live FOLDER PATIENCE` brings the session of `FOLDER/flow.yml` to its end, from wherever
it stands. It answers the n-th iteration's question with the n-th line of `FOLDER/replies`, and one about an
interruption with the word in `FOLDER/word` (noted in `FOLDER/asked`). It exits with 0 when the session has ended,
with `STOPPED` after an error of ours, with `STUCK` after PATIENCE seconds without a step; anything else is a bug.

`... answer FOLDER NAME` waits for a line on stdin, asks through the inbox that the open prompt be answered by that
person, and prints what became of it; `... resume FOLDER NAME` does it with an engine of its own.
`... ingest FOLDER` stores one row for each line on stdin, and prints the line once the row is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

import engine.run.dispatcher
import engine.storage.connection
from engine.decide.commands import Answer
from engine.journal.records import InboxItem
from engine.journal.state import State
from engine.language.codec import decode
from engine.language.errors import Refused, SaysoError, SessionError, StorageBroken, StorageError
from engine.nodes.runtime.table import runners
from engine.run import remote_commands
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.run.flow_files import load_flow_file
from engine.run.stored import utc_now
from engine.storage.sqlite import open_sqlite
from tests.support.engine import ANA, everybody

SESSION = "session-0badcafe"
STOPPED, STUCK = 3, 4


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Engine]:
    """An engine over the folder's database, open, and closed at the end. Raises `StorageError`."""
    # One thread for files: then the n-th call of a kind is the same one in every life.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    store = open_sqlite(folder / "sayso.db")
    own = Engine(
        store, policy=everybody, runners=runners(), home=folder / "home", snapshot_dir=folder / "snapshots"
    )
    await own.open()
    try:
        yield own
    finally:
        await own.close()
        store.close()


# --- one life of a session -------------------------------------------------------------------------------


async def live(folder: Path, patience: float) -> int:
    """Bring the session to its end; the exit code."""
    async with opened(folder) as own:
        service = Dispatcher(own)
        serving = asyncio.create_task(service.run())
        try:
            if await own.writer.call(own.writer.store.sessions.head, SESSION) is None:
                flow = load_flow_file(folder / "flow.yml")
                await own.start(flow, {}, actor=ANA, session_id=SESSION)
            return await advance(own, folder, serving, patience)
        finally:
            service.stop()
            await asyncio.wait({serving})


async def advance(own: Engine, folder: Path, serving: asyncio.Task[None], patience: float) -> int:
    """Answer what is asked until the session has ended, or nothing has moved for so many seconds."""
    loop = asyncio.get_running_loop()
    moved, seq = loop.time(), -1
    while loop.time() - moved < patience:
        if serving.done():
            await serving
        try:
            state = await own.state(SESSION)
            if state.ended:
                await own.parked(SESSION)
                (folder / "ended").touch()
                return 0
            if state.seq != seq:
                moved, seq = loop.time(), state.seq
            await answer(own, folder, state)
        except StorageBroken:
            raise
        except StorageError as error:
            tell(error)
        await asyncio.sleep(0.01)
    return STUCK


async def answer(own: Engine, folder: Path, state: State) -> None:
    """Say what a person says to the first open prompt, if there is one."""
    if not state.open_prompts:
        return
    prompt = state.prompts[next(iter(state.open_prompts))]
    value, text = None, ""
    if prompt.kind == "interrupted":
        value = (folder / "word").read_text().strip()
        # Made, not written to: what the person does is not to fail with the disk that is being proven.
        (folder / "asked").mkdir(exist_ok=True)
        (folder / "asked" / f"{prompt.prompt_id} {prompt.path.replace('/', ' ')}").touch()
    else:
        index = int(prompt.path.split("[")[1].split("]")[0])
        text = (folder / "replies").read_text().splitlines()[index]
    try:
        key = f"person:{prompt.prompt_id}"
        await own.resume(
            SESSION, Answer(prompt.prompt_id, ANA, key, value=value, text=text if value is None else None)
        )
    except (Refused, SessionError) as refusal:
        tell(refusal)


def tell(error: BaseException) -> None:
    """Say on stderr what went wrong; a disk that takes nothing takes this neither."""
    with contextlib.suppress(OSError):
        os.write(2, f"{type(error).__name__}: {error}\n".encode())


# --- races and acknowledgements --------------------------------------------------------------------------


def go() -> None:
    """Say that everything is ready, and wait for the word."""
    print("ready", flush=True)
    sys.stdin.readline()


async def ask_for_answer(folder: Path, name: str) -> str:
    """What the CLI does beside a process that serves: insert a request, and wait for what becomes of it."""
    store = open_sqlite(folder / "sayso.db")
    (prompt_id,) = (folder / "prompt").read_text().split()
    actor = replace(ANA, id=f"U0{name}", name=name)
    item = remote_commands.item(f"cli:{name}", SESSION, "answer", actor=actor, promptId=prompt_id, text=name)
    go()
    store.inbox.ingest([item], utc_now())
    try:
        while (row := store.inbox.row(item.key)) is None or row.outcome is None:  # noqa: ASYNC110 - no signal
            await asyncio.sleep(0.01)
        return f"{row.outcome} {decode(row.result)['error'] if row.result else ''}".strip()
    finally:
        store.close()


async def resume_alone(folder: Path, name: str) -> str:
    """Answer the prompt with an engine of one's own."""
    async with opened(folder) as own:
        (prompt_id,) = (folder / "prompt").read_text().split()
        actor = replace(ANA, id=f"U0{name}", name=name)
        go()
        try:
            await own.resume(SESSION, Answer(prompt_id, actor, f"own:{name}", text=name))
            await own.parked(SESSION)
            return "applied"
        except SaysoError as error:
            return f"refused {error.code}"


def ingest(folder: Path) -> None:
    """Store rows, and acknowledge each as Slack is acknowledged to: after `ingest` returned, not before."""
    store = open_sqlite(folder / "sayso.db")
    go()
    for line in sys.stdin:
        key = line.strip()
        assert store.inbox.ingest([InboxItem(key, "message", b"{}")], utc_now()) != [None]
        os.write(1, f"{key}\n".encode())


def main(verb: str, folder: Path, more: list[str]) -> int:
    """One life; its exit code."""
    # Small, so that short flows have checkpoints in their middle, and a life that failed a step tries again soon.
    engine.storage.connection.CHECKPOINT_PAGES = 30
    engine.run.dispatcher.SWEEP_SECONDS = 0.2
    try:
        match verb:
            case "live":
                return asyncio.run(live(folder, float(more[0])))
            case "answer":
                print(asyncio.run(ask_for_answer(folder, more[0])), flush=True)
            case "resume":
                print(asyncio.run(resume_alone(folder, more[0])), flush=True)
            case "ingest":
                ingest(folder)
        return 0
    except SaysoError as error:
        tell(error)
        return STOPPED
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
        return 1


if __name__ == "__main__":
    # Not `sys.exit`: flushing to a disk that takes nothing would change the code.
    os._exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
