"""Several bots at work on one Postgres database: nothing is lost, and nothing is done or said twice."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import psycopg
import pytest

from bot.doctor.fleet import check_fleet
from bot.serve.gaps import READ
from engine.storage.lanes import CHORES, SEND
from engine.storage.rows import GAP
from tests.e2e.test_slice import two_steps
from tests.support import postgres
from tests.support.acting import Workspace
from tests.support.bot import ThreadView, counted, start_flow
from tests.support.engine import until
from tests.support.fleet import fleet
from tests.support.proving import sampled

pytestmark = pytest.mark.process
UNLIMITED = {"SAYSO_RATE_PERSON": "off", "SAYSO_RATE_CHANNEL": "off", "SAYSO_RATE_WORKSPACE": "off"}


async def begun(workspace: Workspace, number: int) -> list[ThreadView]:
    """So many threads in which the flow asks."""
    threads = [await start_flow(workspace, "ana", ("ops", "releases")[n % 2], "steps") for n in range(number)]
    await asyncio.gather(*(thread.says("What now?") for thread in threads))
    return threads


async def answered(threads: list[ThreadView]) -> None:
    """Each is answered, and ends."""
    for number, thread in enumerate(threads):
        await thread.reply("ana", f"n{number}")
    await asyncio.gather(*(thread.says("All is done", timeout=90) for thread in threads))


def check(threads: list[ThreadView], log: Path) -> None:
    """Every effect is there once, and every message."""
    effects = ["before"] * len(threads) + [f"after:n{n}" for n in range(len(threads))]
    assert sorted(counted(log)) == sorted(effects)
    for thread in threads:
        assert thread.count("All is done") == 1, thread.texts()
        assert thread.count("What now?") <= 2, thread.texts()


SLOW = """
flow: slow
nodes:
  - id: work
    type: shell
    on_crash: again
    with: {{script: 'echo began >> "$LOG"; [ $(wc -l < "$LOG") -gt 1 ] || sleep 60', env: {{LOG: "{log}"}}}}
  - {{id: tell, type: message, with: {{text: "All is done"}}}}
"""


async def test_what_a_killed_bot_ran_goes_on_at_the_other(workspace: Workspace, tmp_path: Path) -> None:
    """It is killed in a node that may run again: the other one notices within seconds, and runs it."""
    log = tmp_path / "log"
    flows = {"slow": SLOW.format(log=log)}
    async with fleet(workspace, tmp_path, flows, "all", "worker", **UNLIMITED) as bots:
        thread = await start_flow(workspace, "ana", "ops", "slow")
        await until(lambda: counted(log) == ["began"])
        running = next(bot for bot in bots.bots if str(log) in children(bot.process.pid))
        await bots.add("all")
        bots.kill(running)
        await thread.says("All is done")
        assert counted(log) == ["began", "began"]
        assert thread.count("All is done") == 1


def children(pid: int) -> str:
    """The environments of what a process runs."""
    found = ""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            with contextlib.suppress(OSError):
                found += Path(f"/proc/{child}/environ").read_text(errors="replace") + children(int(child))
    return found


async def test_a_bot_that_is_stopped_hands_over(workspace: Workspace, tmp_path: Path) -> None:
    """A rolling restart: each is stopped once its successor is there, and every thread ends as if nothing had happened."""
    log = tmp_path / "log"
    async with fleet(workspace, tmp_path, two_steps(log), "all", **UNLIMITED) as bots:
        threads = await begun(workspace, 3)
        for _ in range(2):
            old = bots.bots[-1]
            await bots.add("all")
            assert await old.terminate() == 0
        await answered(threads)
        check(threads, log)
        await until(lambda: bots.holder(CHORES) is bots.bots[-1], pause=0.1)


async def test_a_bot_that_is_stopped_leaves_posting_to_others_at_once(
    workspace: Workspace, tmp_path: Path
) -> None:
    """While what it runs has its time to end, another one posts."""
    log = tmp_path / "log"
    flows = {"slow": SLOW.format(log=log)}
    async with fleet(workspace, tmp_path, flows, "all", **UNLIMITED) as bots:
        thread = await start_flow(workspace, "ana", "ops", "slow")
        await until(lambda: counted(log) == ["began"])
        (old,) = bots.bots
        (new,) = await bots.add("all")
        ended = asyncio.ensure_future(old.terminate())
        await until(lambda: bots.holder(SEND) is new)
        assert not ended.done()
        assert await ended == 0
        await thread.says("All is done")


async def test_what_was_said_while_the_bot_was_out_of_a_channel_is_read(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Nobody delivers it, and all since the last gap was read: whoever does the chores learns by the invitation that more is due."""
    log = tmp_path / "log"
    async with fleet(workspace, tmp_path, two_steps(log), "all", **UNLIMITED) as bots:
        threads = await begun(workspace, 1)
        with bots.database() as store:
            await until(lambda: store.marks.ts(GAP) == store.marks.ts(READ), pause=0.05)
        workspace.leave(workspace.bot_user_id, "ops")
        await threads[0].reply("ana", "n0")
        workspace.join(workspace.bot_user_id, "ops")
        await threads[0].says("All is done")
        check(threads, log)


async def test_what_slack_sends_to_a_frozen_bot_after_it_was_given_up_is_read(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Its connections are still open: what goes there is acknowledged by nobody, and all was read a moment before."""
    log = tmp_path / "log"
    async with fleet(workspace, tmp_path, two_steps(log), "all", "all", **UNLIMITED) as bots:
        threads = await begun(workspace, 4)
        bots.freeze(bots.bots[0])
        await until(lambda: len(bots.members()) == 1, pause=0.1)
        with bots.database() as store:
            await until(lambda: store.marks.ts(GAP) == store.marks.ts(READ), pause=0.1)
        workspace.faults.ack_timeout = 100
        await answered(threads)
        check(threads, log)


async def test_what_slack_took_from_a_killed_poster_is_posted_by_no_other(
    workspace: Workspace, tmp_path: Path
) -> None:
    """It is killed before it knows that the message stands: whoever sends then looks it up."""
    log = tmp_path / "log"
    async with fleet(workspace, tmp_path, two_steps(log), "all", "all", **UNLIMITED) as bots:
        threads = await begun(workspace, 1)
        poster = bots.holder(SEND)
        assert poster is not None
        workspace.faults.effect_then_fail("chat.postMessage")
        await threads[0].reply("ana", "n0")
        await threads[0].says("All is done")
        bots.kill(poster)
        await until(lambda: bots.holder(CHORES) not in (None, poster), pause=0.1)
        other = next(bot for bot in bots.bots if bot is not poster)
        with bots.database() as store:
            await until(lambda: store.counts().oldest_outbox is None, pause=0.1)
        assert bots.holder(SEND) is other
        check(threads, log)


async def test_doctor_says_which_role_nobody_has(workspace: Workspace, tmp_path: Path) -> None:
    """What people say is stored, and nobody runs a flow: that is a finding until a worker starts."""
    async with fleet(workspace, tmp_path, {}, "socket") as bots:
        with bots.database() as store:
            found = [check.text for check in check_fleet(store) if check.level == "fail"]
            assert found == ["no process has the role worker: no session runs, and nothing is posted"]
            await bots.add("worker")
            assert all(check.level == "ok" for check in check_fleet(store))


# --- a sender that freezes -----------------------------------------------------------------------------------

QUESTION = """
flow: asks
nodes:
  - {id: question, type: ask, with: {message: "What now?"}}
  - {id: tell, type: message, with: {text: "All is done"}}
"""
GATE = 4711
"""An advisory lock: while a test has it, no sender gets past its first attempt."""
HELD = {
    "inside its attempt": "CREATE TRIGGER held BEFORE UPDATE",
    "after its attempt": "CREATE CONSTRAINT TRIGGER held AFTER UPDATE",
}


def gated(url: str, where: str) -> None:
    """Let each first attempt at a question wait for the gate: in the middle of its transaction, or in its commit."""
    late = "DEFERRABLE INITIALLY DEFERRED" if "CONSTRAINT" in HELD[where] else ""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(
            "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS"
            f" 'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END'"
        )
        raw.execute(
            f"{HELD[where]} ON outbox {late} FOR EACH ROW"
            " WHEN (OLD.attempts = 0 AND NEW.attempts = 1 AND NEW.kind = 'show') EXECUTE FUNCTION gate()"
        )


@pytest.mark.parametrize("where", sampled(list(HELD), ["after its attempt"]))
async def test_a_frozen_sender_posts_nothing_that_another_one_has_posted(
    workspace: Workspace, tmp_path: Path, where: str
) -> None:
    """A sender frozen during its attempt, or before the request, leaves only one live copy of each question."""
    url = postgres.new_database()
    gated(url, where)
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
    blocked = "SELECT count(*) FROM pg_locks WHERE locktype IN ('tuple', 'transactionid') AND NOT granted"
    async with fleet(workspace, tmp_path, {"asks": QUESTION}, "all", "all", url=url, **UNLIMITED) as bots:
        with psycopg.connect(url, autocommit=True) as gate:
            gate.execute("SELECT pg_advisory_lock(%s)", (GATE,))
            thread = await start_flow(workspace, "ana", "ops", "asks")
            await until(lambda: gate.execute(waiting, (GATE,)).fetchone() != (0,))
            frozen = bots.holder(SEND)
            assert frozen is not None
            bots.freeze(frozen)
            gate.execute("SELECT pg_advisory_unlock_all()")
            if where == "inside its attempt":
                await until(lambda: gate.execute(blocked).fetchone() != (0,))
            else:
                await thread.says("What now?", timeout=40)
        bots.wake(frozen)
        await thread.says("What now?", timeout=40)
        await thread.reply("ana", "on")
        await thread.says("All is done", timeout=40)
    live = [text for text in thread.texts() if "What now?" in text and "use the other copy" not in text]
    assert len(live) == thread.count("All is done") == 1, thread.texts()


BLOCKS = """
flow: blocks
nodes:
  - id: work
    type: python
    on_crash: again
    with: {{call: "blocking:work", args: {{seconds: {seconds}, log: "{log}"}}}}
  - {{id: tell, type: message, with: {{text: "All is done"}}}}
"""
BLOCKING = """
import time

async def work(seconds: int, log: str) -> None:
    with open(log, "a+") as file:
        file.write("began\\n")
        file.seek(0)
        if file.read().count("began") == 1:
            time.sleep(seconds)
"""


@pytest.mark.parametrize(
    ("seconds", "begun"), [(6, 1), pytest.param(45, 2, marks=pytest.mark.long)], ids=["busy", "hung"]
)
async def test_a_node_that_blocks_its_process(
    workspace: Workspace, tmp_path: Path, seconds: int, begun: int
) -> None:
    """For longer than a silent process lives nobody takes over, since its signs of life continue; for half a minute somebody does. The
    log says why all freezes, and when that has ended nothing is done or said twice."""
    log = tmp_path / "log"
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "blocking.py").write_text(BLOCKING)
    flows = {"blocks": BLOCKS.format(seconds=seconds, log=log)}
    async with fleet(workspace, tmp_path, flows, "all", "worker", **UNLIMITED) as bots:
        thread = await start_flow(workspace, "ana", "ops", "blocks")
        await thread.says("All is done", timeout=60)
        assert counted(log) == ["began"] * begun

        def told() -> list[str]:
            return [line for bot in bots.bots for line in bot.lines if "event loop" in line]

        await until(lambda: len(told()) == 2, pause=0.1, within=60)
        await asyncio.sleep(2)
        assert len(told()) == 2, told()
        assert counted(log) == ["began"] * begun
        assert thread.count("All is done") == 1
