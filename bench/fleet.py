"""A fleet on Postgres, and beside it the same kind of work by Procrastinate: who takes over and after how long, how soon a reply
is worked on elsewhere, and what an idle fleet asks of the server.

Two sockets and six workers are processes of their own, on a server of their own with its usual settings, against the local
workspace; they are idle beside 10,000 sessions that wait. Procrastinate is installed into an environment of its own. Its workers are eight too.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.floor import MILLISECONDS
from bench.nodes import folder_in
from bench.report import median, quantile
from bench.rig import ANA, everybody
from bench.slack_town import FLOWS, Load, finished
from bench.takeovers import Log, takeovers
from engine.flow.load import load_flow
from engine.language import timestamps
from engine.run.engine import Engine
from engine.storage.lanes import SEND
from engine.storage.postgres import open_postgres
from tests.support import postgres
from tests.support.acting import Workspace
from tests.support.bot import ThreadView, start_flow
from tests.support.engine import until
from tests.support.fleet import KEY, Fleet, fleet
from tests.support.pgbouncer import pooled
from tests.support.standby import Pair
from tests.support.workspace import running_workspace

ROLES = ("socket", "socket", *["worker"] * 6)
PAUSED = 10_000
LANES = 100_000
CHANNELS = 12
TAKEOVERS = 10
REPLIES = 40
FAILED_OVER = 20
EVENTS_A_SECOND = 50
FLOWS_A_MINUTE = 24
STORED = "stored → worked on in another process"
KILLED = "takeover after `kill -9`"
IDLE = "statements a second of eight idle processes beside {:,} paused sessions"
PROCRASTINATE = "procrastinate==3.10.0"
PEER = Path(__file__).parent / "peers/procrastinate_worker.py"
STATEMENT = re.compile(rb"LOG:  (?:statement|execute)")
POSTS = "SELECT 1 FROM lanes WHERE key = 'send' AND owner NOT LIKE %s"
WAITING = """INSERT INTO lanes SELECT 'lane' || n, now() + n * interval '1 s' + interval '1 day', NULL, 0
 FROM generate_series(1, %s) AS n"""
UNLIMITED = {f"SAYSO_RATE_{what}": "off" for what in ("PERSON", "CHANNEL", "WORKSPACE")}

LONG = """flow: long
nodes:
  - id: work
    type: shell
    on_crash: again
    with:
      script: |
        echo "$SAYSO_SESSION_ID $PPID $(date +%s.%N)" >> {log}
        mkdir {log}.$SAYSO_SESSION_ID 2> /dev/null && sleep 60
        exit 0
"""
REPLY = """flow: reply
nodes:
  - {{id: q, type: ask, with: {{message: "Word?"}}}}
  - {{id: next, type: python, on_crash: again, with: {{call: "noted:noted", args: {{word: "{{{{ nodes.q.text }}}}", log: "{log}"}}}}}}
"""
NOTED = """import time


def noted(word: str, log: str) -> None:
    with open(log, "a") as file:
        file.write(f"{word} {time.time()}\\n")
"""


@dataclass
class Table:
    """Rows of figures: of sayso, of Procrastinate, and what is demanded of sayso on a quiet machine."""

    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self, name: str, value: float, unit: str, most: float | None = None, *, whose: str = "sayso"
    ) -> None:
        """A figure; `most` is the aim."""
        row = self.rows.setdefault(name, {})
        row[whose] = (
            f"{value:,.{0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2}f} {unit}"
        )
        if most is not None:
            row |= {"aim": f"≤ {most:g} {unit}", "reached": "yes" if value <= most else "NO"}

    def spread(
        self,
        name: str,
        values: Sequence[float],
        unit: str,
        p50: float | None,
        p99: float | None,
        **whose: str,
    ) -> None:
        """The middle and the p99 of a measurement that was repeated."""
        self.add(f"{name}, p50", median(values), unit, p50, **whose)
        self.add(f"{name}, p99 of {len(values)}", quantile(values, 0.99), unit, p99, **whose)

    def lines(self) -> list[list[str]]:
        """Headings and rows."""
        columns = ("sayso", "Procrastinate", "aim", "reached")
        return [
            ["what", *columns],
            *([name, *(row.get(one, "") for one in columns)] for name, row in self.rows.items()),
        ]


def measure(base: Path, *, quick: bool) -> Table:
    """Everything, in six minutes; `quick` repeats less."""
    table, part = Table(), 4 if quick else 1
    with folder_in(base) as folder, database_server("fleet") as server:
        peer = Peer(folder, server, Path(base).parent / "procrastinate")
        asyncio.run(_fleet(table, folder, server, part))
        _look(table, server, LANES // part)
        asyncio.run(_pooled(table, folder / "pooled", server, REPLIES // part))
        asyncio.run(_failover(table, folder))
        asyncio.run(_peer(table, peer, part))
    return table


@contextmanager
def database_server(name: str) -> Iterator[Any]:
    """A server of its own."""
    found = postgres.server(postgres.folder(name))
    try:
        yield found
    finally:
        found.cleanup()


def new_database(server: Any, name: str) -> str:
    """The URL of a new database on this server."""
    with psycopg.connect(server.get_uri(), autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return str(server.get_uri(name))


async def statements(server: Any, seconds: float) -> float:
    """How many statements a second reach a server, by its own log."""
    with psycopg.connect(server.get_uri(), autocommit=True) as raw:
        raw.execute("ALTER SYSTEM SET log_statement = 'all'")
        raw.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(1)  # each connection reads it before its next statement
        before = server.log.stat().st_size
        await asyncio.sleep(seconds)
        with server.log.open("rb") as file:
            file.seek(before)
            count = len(STATEMENT.findall(file.read()))
        raw.execute("ALTER SYSTEM RESET log_statement")
        raw.execute("SELECT pg_reload_conf()")
    return count / seconds


# --- sayso ---------------------------------------------------------------------------------------------------------


async def _fleet(table: Table, folder: Path, server: Any, part: int) -> None:
    url = new_database(server, "fleet")
    flows = {"long": LONG.format(log=folder / "long"), "reply": REPLY.format(log=folder / "reply"), **FLOWS}
    _module(folder)
    async with (
        running_workspace() as workspace,
        fleet(workspace, folder, flows, *ROLES, url=url, **UNLIMITED) as bots,
    ):
        places = [workspace.add_channel(f"bench-{number}").id for number in range(CHANNELS)]
        await _limited(table, workspace, places, 0.6 / part)
        await _replies(table, bots, places, REPLIES // part)
        await _acknowledged(table, bots, places, 10 / part)
        await _taken_over(table, bots, Log(folder / "long"), places, TAKEOVERS // part)
        await _sender_stops(table, bots, TAKEOVERS // part)
        await asyncio.to_thread(asyncio.run, _paused(url, folder, PAUSED // part))
        await asyncio.sleep(10 / part)
        table.add(IDLE.format(PAUSED // part), await statements(server, 12 / part), "/s", 40)


def _module(folder: Path) -> None:
    """The function that flows call, beside them."""
    (folder / "flows").mkdir(parents=True)
    (folder / "flows/noted.py").write_text(NOTED)


async def _paused(url: str, folder: Path, count: int) -> None:
    """So many sessions that wait for somebody."""
    with closing(open_postgres(url, KEY.encode())) as store:
        engine = Engine(store, policy=everybody, runners={}, home=folder / "engine")
        await engine.open()
        flow = load_flow("flow: waits\nnodes: [{id: q, type: ask, with: {message: Word?}}]", "waits.yml")
        for _ in range(count // 100):
            await asyncio.gather(*(engine.start(flow, {}, actor=ANA) for _ in range(100)))
        await engine.close()


async def _limited(table: Table, workspace: Workspace, places: Sequence[str], minutes: float) -> None:
    """Calls to Slack that are refused, of the whole fleet, under Slack's limits as the strict workspace counts them."""
    workspace.faults.limit()
    load = Load(workspace, places, time.time)
    await finished(await load.steady(FLOWS_A_MINUTE, minutes), 30)
    workspace.faults.limit(None)
    table.add(
        f"calls to Slack answered with 429 at {FLOWS_A_MINUTE} flows a minute", load.refused_share(), "%", 1
    )
    table.notes.append(
        f"{len(load.calls())} calls to Slack, {load.unfinished()} of {len(load.runs)} flows unfinished, {load.doubled()} messages twice."
    )


async def _asked(workspace: Workspace, places: Sequence[str], count: int) -> list[ThreadView]:
    """So many threads in which the bot has asked for a word."""
    threads = [await start_flow(workspace, "ana", places[n % len(places)], "reply") for n in range(count)]
    await asyncio.gather(*(thread.says("Word?", timeout=120) for thread in threads))
    return threads


async def _answered(bots: Fleet, places: Sequence[str], count: int, word: str) -> list[float]:
    """Milliseconds from each reply that one process stored until another one ran the next node."""
    log, keys = Log(bots.folder / "reply"), {}
    before = len(log.lines())
    threads = await _asked(bots.workspace, places, count)
    await asyncio.sleep(3)  # what belongs to the questions is done by then
    for number, thread in enumerate(threads):
        ts = await thread.reply("ana", f"{word}{number}")
        place = bots.workspace.channel(thread.channel).id
        keys[f"{word}{number}"] = f"message:{bots.workspace.team_id}:{place}:{ts}"
        await asyncio.sleep(0.2)
    await log.until(before + count)
    began, waited = log.times(), []
    with bots.database() as store:
        for name, key in keys.items():
            row = store.inbox.row(key)
            assert row is not None, "what is worked on is in the inbox"
            waited.append((began[name] - timestamps.from_text(row.received_at).timestamp()) * MILLISECONDS)
    return waited


async def _replies(table: Table, bots: Fleet, places: Sequence[str], count: int) -> None:
    waited = await _answered(bots, places, count, "w")
    table.spread(STORED, waited, "ms", 20, 100)


async def _acknowledged(table: Table, bots: Fleet, places: Sequence[str], seconds: float) -> None:
    """People talk in threads, so many times a second."""
    workspace = bots.workspace
    threads = await _asked(workspace, places, CHANNELS)
    before, begin = len(workspace.deliveries), time.perf_counter()
    for number in range(round(seconds * EVENTS_A_SECOND)):
        await asyncio.sleep(max(0.0, begin + number / EVENTS_A_SECOND - time.perf_counter()))
        await threads[number % CHANNELS].reply("ben", f"talk {number}")
    await workspace.settled(60)
    taken = [d.ack_latency * MILLISECONDS for d in workspace.deliveries[before:] if d.ack_latency is not None]
    table.spread(f"acknowledgement at {EVENTS_A_SECOND} events a second", taken, "ms", None, 50)


async def _taken_over(table: Table, bots: Fleet, log: Log, places: Sequence[str], count: int) -> None:
    """After `kill -9`, and from frozen processes."""

    def begin() -> Any:
        return start_flow(bots.workspace, "ana", places[len(log.lines()) % len(places)], "long")

    def bot(process: int) -> Any:
        return next(one for one in bots.bots if one.process.pid == process)

    async def replaced(gone: list[int]) -> None:
        for process in gone:
            await bot(process).ended()
        await bots.add(*["worker"] * len(gone))

    async def woken(frozen: list[int]) -> None:
        for process in frozen:
            bots.wake(bot(process))
        await asyncio.sleep(1)

    killed = await takeovers(log, count, begin, lambda process: bots.kill(bot(process)), replaced)
    table.spread(KILLED, killed, "s", None, 6)
    frozen = await takeovers(log, count, begin, lambda process: bots.freeze(bot(process)), woken)
    table.spread("takeover from a frozen process", frozen, "s", None, 6)


async def _sender_stops(table: Table, bots: Fleet, count: int) -> None:
    """From SIGTERM until another process owns the lane of the sender."""
    taken = []
    with psycopg.connect(bots.url, autocommit=True) as raw:
        for _ in range(count):
            sender = bots.holder(SEND)
            assert sender is not None, "somebody posts"
            begin = time.perf_counter()
            sender.process.send_signal(signal.SIGTERM)
            owner = f"%-{sender.process.pid}-%"
            await until(lambda owner=owner: raw.execute(POSTS, (owner,)).fetchone(), pause=0.002)
            taken.append(time.perf_counter() - begin)
            await sender.ended()
            await bots.add("worker")
    table.spread("planned stop → another process posts", taken, "s", None, 1)


def _look(table: Table, server: Any, count: int) -> None:
    """A look for work among lanes that wait for their time."""
    url = new_database(server, "look")
    with closing(open_postgres(url, KEY.encode())) as store, psycopg.connect(url, autocommit=True) as raw:
        store.register("bench")
        raw.execute(WAITING, (count,))
        raw.execute("ANALYZE lanes")
        taken = []
        for _ in range(300):
            begin = time.perf_counter()
            if store.lanes.take(16):
                raise RuntimeError("a lane was taken whose time has not come")
            taken.append((time.perf_counter() - begin) * MILLISECONDS)
    table.spread(f"look for work among {count:,} lanes", taken, "ms", None, 2)


async def _pooled(table: Table, folder: Path, server: Any, count: int) -> None:
    """Replies where PgBouncer in transaction mode is before the server, and nobody is told of them."""
    _module(folder)
    flows, roles = {"reply": REPLY.format(log=folder / "reply")}, ("socket", "worker", "worker")
    with pooled(new_database(server, "pooled")) as pooler:
        async with (
            running_workspace() as workspace,
            fleet(workspace, folder, flows, *roles, url=pooler.url, **UNLIMITED) as bots,
        ):
            places = [workspace.add_channel(f"bench-{number}").id for number in range(CHANNELS)]
            waited = await _answered(bots, places, count, "p")
    table.spread(f"{STORED}, behind PgBouncer", waited, "ms", 400, None)


async def _failover(table: Table, folder: Path) -> None:
    """The primary is killed and its synchronous standby promoted while people reply."""
    log, pair = Log(folder / "reply"), await asyncio.to_thread(Pair)
    flows = {"reply": REPLY.format(log=log.file)}
    _module(folder / "pair")
    try:
        async with (
            running_workspace() as workspace,
            fleet(workspace, folder / "pair", flows, "all", "all", url=pair.url) as bots,
        ):
            threads = await _asked(workspace, ["ops", "releases"], FAILED_OVER)
            before, killed = len(log.lines()), 0.0
            for number, thread in enumerate(threads):
                if number == FAILED_OVER // 4:
                    killed = time.time()
                    promoted = asyncio.create_task(asyncio.to_thread(pair.fail_over))
                await thread.reply("ana", f"f{number}")
                await asyncio.sleep(0.1)
            await promoted
            done = (await log.until(before + FAILED_OVER))[before:]
            ended = sum(bot.process.returncode is not None for bot in bots.bots)
    finally:
        await asyncio.to_thread(pair.close)
    first = min(float(at) for word, at in done if int(word[1:]) >= FAILED_OVER // 4)
    table.add("failover to a synchronous standby: killed → the next reply is worked on", first - killed, "s")
    table.add(
        f"of {FAILED_OVER} replies meanwhile lost",
        FAILED_OVER - len({word for word, _ in done}),
        "replies",
        0,
    )
    table.add("processes that ended", ended, "processes", 0)


# --- Procrastinate -------------------------------------------------------------------------------------------------


class Peer:
    """Workers of Procrastinate in an environment of its own, which is made once."""

    def __init__(self, folder: Path, server: Any, place: Path) -> None:
        self.folder, self.server, self.url = folder, server, new_database(server, "peer")
        self.workers: dict[int, subprocess.Popen[str]] = {}
        self._python = place / "bin/python"
        if not (place / "made").exists():
            venv.create(place, with_pip=True)
            subprocess.run(
                [self._python, "-m", "pip", "install", "-q", PROCRASTINATE, "psycopg[binary]"], check=True
            )
            (place / "made").touch()

    def run(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """Start a command."""
        command = [str(self._python), str(PEER), arguments[0], self.url, *arguments[1:]]
        return subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE, **more)

    def done(self, *arguments: str) -> str:
        """Run a command; what it printed."""
        with self.run(*arguments, stderr=subprocess.DEVNULL) as process:
            printed, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{arguments[0]} ended with {process.returncode}")
        return str(printed)

    async def add(self, count: int, pace: str) -> None:
        """Start workers, and wait until the database knows them."""
        for _ in range(count):
            process = self.run("work", pace, stderr=subprocess.DEVNULL)
            self.workers[process.pid] = process
        with psycopg.connect(self.url, autocommit=True) as raw:
            alive = "SELECT 1 FROM procrastinate_workers WHERE last_heartbeat > now() - interval '4 s' HAVING count(*) >= %s"
            await until(lambda: raw.execute(alive, (len(self.workers),)).fetchone(), pause=0.05)

    def kill(self, process: int) -> None:
        """`kill -9`."""
        self.workers[process].kill()
        self.workers.pop(process).wait()

    def stop(self) -> None:
        """End all."""
        for process in list(self.workers):
            self.kill(process)


async def _peer(table: Table, peer: Peer, part: int) -> None:
    peer.done("tables")
    try:
        await peer.add(len(ROLES), "quick")
        log = Log(peer.folder / "noted")
        told = await asyncio.to_thread(
            peer.done, "defer", "noted", str(log.file), str(REPLIES // part), "0.1"
        )
        deferred = {word: float(at) for word, at in (line.split() for line in told.splitlines())}
        await log.until(len(deferred))
        waited = [(at - deferred[word]) * MILLISECONDS for word, at in log.times().items()]
        table.spread(STORED, waited, "ms", None, None, whose="Procrastinate")
        long = Log(peer.folder / "long-jobs")

        async def begin() -> None:
            await asyncio.to_thread(peer.done, "defer", "long", str(long.file), "1", "0")

        async def replaced(gone: list[int]) -> None:
            await peer.add(len(gone), "quick")

        taken = await takeovers(long, TAKEOVERS // part, begin, peer.kill, replaced)
        table.spread(KILLED, taken, "s", None, None, whose="Procrastinate")
        await asyncio.to_thread(peer.done, "scheduled", str(PAUSED // part))
        for pace, what in (("quick", "signs each second"), ("plain", "its defaults: signs every 10 s")):
            peer.stop()
            await peer.add(len(ROLES), pace)
            await asyncio.sleep(3)
            rate = await statements(peer.server, 12 / part)
            if pace == "quick":
                table.add(IDLE.format(PAUSED // part), rate, "/s", whose="Procrastinate")
            table.notes.append(f"Procrastinate with {what}: {rate:.1f} statements a second.")
    finally:
        peer.stop()
