"""One server per home: of any number of starts, one serves, and the others name it."""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import signal
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from bot.cli import app
from bot.cli import serve as serve_commands
from bot.terminal.console import Exit
from engine.storage.leases import Holder, lease, read_holder
from tests.cli.clikit import Cli, until
from tests.cli.test_serving import ASKS, dev_url, page
from tests.support.proving import PROVE

pytestmark = [pytest.mark.process, pytest.mark.timeout(1800)]
ROUNDS = 200 if PROVE else 1
STARTS = multiprocessing.get_context("forkserver")
STARTS.set_forkserver_preload(["bot.cli.serve", "tests.cli.test_one_server"])


async def test_a_second_dev_offers_the_page_that_is_there(cli: Cli) -> None:
    """It prints the first one's address, says who serves since when, changes nothing, and ends with 9."""
    cli.write("flows/asks.yml", ASKS)
    with cli.started("dev", "--port", "0", "--no-open") as process:
        url = await dev_url(process)
        state = cli.cwd / ".sayso/dev/workspace.json"
        before = state.read_bytes()
        done = cli.run("dev", "--no-open")
        assert (done.code, f"{url}/" in done.out, state.read_bytes()) == (Exit.SERVED, True, before), done
        assert f"`sayso dev`, process {process.pid} on " in done.err
        beside = cli.run("run", "flows/asks.yml", "--no-input")
        assert beside.code == Exit.PAUSED, beside


async def test_a_health_check_tells_a_server_that_works_from_one_that_does_not(cli: Cli) -> None:
    """A bot that serves is alive; one whose event loop freezes, and one that was killed, are not."""
    cli.write("flows/asks.yml", ASKS)
    look = ("--home", ".sayso/dev", "doctor", "--live")
    with cli.started("dev", "--port", "0", "--no-open") as process:
        await dev_url(process)
        alive = cli.run(*look)
        assert (alive.code, f"process {process.pid} on" in alive.out) == (Exit.OK, True), alive
        process.send_signal(signal.SIGSTOP)
        os.utime(cli.cwd / ".sayso/dev/sayso.db.serving", (0, 0))
        hung = cli.run(*look, "--json")
        assert (hung.code, hung.json["ok"], hung.json["server"]["pid"]) == (Exit.FAILED, False, process.pid)
        process.kill()
        process.wait(10)
        assert "No process serves" in cli.run(*look).out


async def test_a_server_beats_as_long_as_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again while its event loop runs, and no longer than its work."""
    monkeypatch.setattr(serve_commands, "BEAT_SECONDS", 0.001)
    beats: asyncio.Queue[None] = asyncio.Queue()

    async def three() -> None:
        for _ in range(3):
            await beats.get()

    with lease(tmp_path / "sayso.db", "sayso start", "now") as held:
        monkeypatch.setattr(held, "beat", lambda: beats.put_nowait(None))
        await serve_commands._beating(held, three())
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert all(task.cancelling() for task in others)


def serve(home: Path, barrier: Barrier) -> None:
    """`sayso dev` in a process of its own, at the same instant as its rivals."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    barrier.wait(60)
    os._exit(app.run(["--home", str(home), "dev", str(home.parent / "flows"), "--port", "0", "--no-open"]))


def race(home: Path) -> ForkServerProcess:
    """Two starts at one instant: the one that serves, after the other refused."""
    barrier = STARTS.Barrier(2)
    both = [STARTS.Process(target=serve, args=(home, barrier), daemon=True) for _ in range(2)]
    for each in both:
        each.start()
    until(lambda: any(each.exitcode is not None for each in both), "one of them refuses")
    (served,) = [each for each in both if each.exitcode is None]
    (refused,) = [each for each in both if each is not served]
    assert refused.exitcode == Exit.SERVED
    return served


def address(home: Path, pid: int | None) -> str:
    """The address that the server with this process id wrote down."""

    def there() -> Holder | None:
        holder = read_holder(home / "dev/sayso.db.serving")
        return holder if holder is not None and holder.pid == pid and holder.address else None

    until(lambda: there() is not None, "the server says where it is")
    holder = there()
    assert holder is not None
    assert holder.address is not None
    return holder.address.rstrip("/")


def kept(home: Path) -> tuple[int, int]:
    """How many starts and how many questions the workspace's file has."""
    saved = json.loads((home / "dev/workspace.json").read_text())
    texts = [message["text"] for channel in saved["messages"].values() for message in channel.values()]
    return sum(text.endswith("> asks") for text in texts), sum("Why?" in text for text in texts)


def test_of_two_starts_at_one_instant_exactly_one_serves(cli: Cli) -> None:
    """Race after race, ended by a kill or in order: one server each time, each thread kept, each question asked once."""
    cli.write("flows/asks.yml", ASKS)
    home = cli.cwd / ".sayso"
    for number, end in zip(range(1, ROUNDS + 1), itertools.cycle([signal.SIGKILL, signal.SIGTERM])):
        served = race(home)
        url = address(home, served.pid)
        said = {"as": "U0LOCALANA", "channel": "C0LOCALOPS", "text": "@sayso asks"}
        page(url, "/page/post", **said)
        until(lambda number=number: kept(home)[1] >= number, "the question of this round")  # type: ignore[misc]
        assert served.pid is not None
        os.kill(served.pid, end)
        served.join(30)
        assert kept(home) == (number, number)
