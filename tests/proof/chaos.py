"""Chaos: a fleet of real bots on a real Postgres, people who answer, and a seed that says what is killed when.

Each process reaches the server through a link of its own, some of them behind a pooler. Nodes write what they do into a log. A person who is asked about an
interrupted node looks there first, as people should. Afterwards the log, the threads and the journals say whether anything was
lost, done twice, said twice, or given to the wrong session.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bot.rendering.blocks import EVENT_TYPE
from bot.workspace import elements
from bot.workspace.state import WorkspaceError
from engine.journal.events import decode_event
from engine.storage.lanes import LIMIT_SECONDS
from engine.storage.postgres import open_postgres
from tests.support import postgres
from tests.support.acting import Workspace
from tests.support.bot import BotProcess, ThreadView, start_flow, words
from tests.support.engine import check_starts
from tests.support.fleet import KEY, Fleet
from tests.support.namespaces import ENTER, Namespace
from tests.support.pg_link import Link, linked
from tests.support.pgbouncer import Pooler, pooled
from tests.support.workspace import running_workspace

Json = dict[str, Any]
EFFECTS = ("first", "second", "third", "fourth")
CHANNELS = ("ops", "releases")
UNLIMITED = {f"SAYSO_RATE_{what}": "off" for what in ("PERSON", "CHANNEL", "WORKSPACE")}
AN_HOUR_OFF = """import time
real = time.time
time.time = lambda: real() + 3600
"""
RUN = """import runpy
runpy.run_module("bot.cli", run_name="__main__", alter_sys=True)"""


def flow(log: Path) -> str:
    """A session that has four effects, and asks for two words and one decision between them."""

    def effect(name: str, said: str = "") -> str:
        script = f'sleep 0.05; echo "$SAID" >> {log}; sleep 0.05'
        return f"  - {{id: {name}, type: shell, with: {{script: '{script}', env: {{SAID: \"{name} {{{{ inputs.n }}}} {said}\"}}}}}}"

    return "\n".join(
        [
            "flow: chaos",
            "inputs: {n: {type: string}}",
            "nodes:",
            "  - {id: file, type: shell, on_crash: again, with: {script: 'echo \"$N\" > kept', env: {N: '{{ inputs.n }}'}}}",
            effect("first"),
            "  - {id: one, type: ask, with: {message: 'One {{ inputs.n }}?'}}",
            effect("second", "{{ nodes.one.text }}"),
            "  - {id: gate, type: approval, with: {message: 'Gate {{ inputs.n }}?', approvers: [channel]}}",
            effect("third"),
            "  - {id: two, type: ask, with: {message: 'Two {{ inputs.n }}?'}}",
            "  - {id: kept, type: shell, on_crash: again, with: {run: [cat, kept]}}",
            effect("fourth", "{{ nodes.two.text }} {{ nodes.kept.stdout | trim }}"),
            "  - {id: tell, type: message, with: {text: 'Finished {{ inputs.n }}'}}",
        ]
    )


def effects(number: int) -> list[str]:
    """What a session must have done, by its number."""
    n = f"n{number}"
    return [f"first {n}", f"second {n} one-{n}", f"third {n}", f"fourth {n} two-{n} {n}"]


# --- people ------------------------------------------------------------------------------------------------


class Person:
    """Whoever started a session, and does what it asks until it says that it is finished. Words are said once; who presses a button
    that still stands after a while presses again, as people do."""

    def __init__(self, workspace: Workspace, number: int, log: Path) -> None:
        self.workspace, self.number, self.log = workspace, number, log
        self.thread: ThreadView | None = None
        self.said: set[str] = set()
        self._again: dict[str, float] = {}
        self._look_at = 0.0
        """When they look at the thread again: sixty people who look at every change are more than one process can serve."""

    async def live(self) -> None:
        """From the start to the end."""
        channel = CHANNELS[self.number % len(CHANNELS)]
        self.thread = await start_flow(self.workspace, "ana", channel, f"chaos n=n{self.number}")
        while (act := await self.workspace.wait_for(self._next, timeout=900)) is not True:
            await act()

    def _next(self) -> Any:
        """What is to be done next: True for nothing more, None for nothing now."""
        assert self.thread is not None
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return None
        self._look_at = now + 0.5
        if self.thread.find(f"Finished n{self.number}") is not None:
            return True
        for word in ("one", "two"):
            if word not in self.said and self.thread.find(f"{word.title()} n{self.number}?") is not None:
                return lambda word=word: self._say(word)
        for message in self.thread.messages():
            labels = [elements.label_of(one) for _, one in elements.elements(message.get("blocks", []))]
            if self._again.get(message["ts"], 0.0) > now:
                continue
            if "Run it again" in labels:
                return lambda message=message: self._decide(message)
            if "Approve" in labels:
                return lambda message=message: self._press(message, "Approve")
        return None

    async def _say(self, word: str) -> None:
        assert self.thread is not None
        self.said.add(word)
        await self.thread.reply("ana", f"{word}-n{self.number}")

    async def _decide(self, message: Json) -> None:
        """A node was interrupted: it is done, or it is not."""
        await asyncio.sleep(0.5)  # what it had started may still be at it
        name = next(name for name in EFFECTS if re.search(rf"\b{name}\b", words(message)))
        done = any(line.startswith(f"{name} n{self.number} ") for line in self._lines())
        await self._press(message, "It was done" if done else "Run it again")

    def _lines(self) -> list[str]:
        return [f"{line} " for line in self.log.read_text().splitlines()] if self.log.exists() else []

    async def _press(self, message: Json, label: str) -> None:
        assert self.thread is not None
        self._again[message["ts"]] = asyncio.get_running_loop().time() + 5.0
        with suppress(WorkspaceError):
            await self.thread.press("ana" if label != "Approve" else "ben", message, label)


# --- the fleet ---------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A process with its link to the server."""

    bot: BotProcess
    role: str
    link: Link
    namespace: Namespace | None = None
    """The network that it is in, where it is none of ours."""
    expected: bool = False
    """Somebody ends it on purpose."""


class Chaos:
    """The fleet, who keeps it going, and who breaks it."""

    def __init__(self, fleet: Fleet, server: Any, stack: AsyncExitStack, seed: int) -> None:
        self.fleet, self.server, self._stack = fleet, server, stack
        self.random = random.Random(seed)
        self.wrong_clocks = 0.0
        """The part of the processes whose clock is an hour ahead."""
        self.away = False
        """True while the server is away, or its connections are ended."""
        self.apart = False
        """True if each process has a network of its own."""
        self.pooler: Pooler | None = None
        """PgBouncer before the server, for every second process."""
        self.members: list[Member] = []
        self.ended_badly: list[str] = []
        """What was said last by those that nobody killed."""
        self.done: Counter[str] = Counter()
        self.lines: dict[str, list[int]] = {}
        """By what happened to the server: how many lines each process logged about it."""

    async def add(self, role: str) -> Member:
        """Start one."""
        program, namespace, listener = "", None, None
        if self.apart:
            namespace = Namespace(f"chaos{os.getpid()}-{len(self.fleet.bots)}")
            self._stack.callback(namespace.close)
            await namespace.forward(urlsplit(self.fleet.workspace.api_url).port or 80)
            listener, program = namespace.listener(), ENTER.format(namespace.name)
        url = self.server.get_uri()
        if self.pooler is not None and len(self.fleet.bots) % 2:
            url = self.pooler.url
        link = await self._stack.enter_async_context(linked(url, listener))
        home = self.fleet.folder / f"home{len(self.fleet.bots)}"
        home.mkdir()
        env = self.fleet.env | {"SAYSO_DATABASE_URL": link.url}
        bot = BotProcess(self.fleet.workspace, home, self.fleet.folder / "flows", ("--role", role), **env)
        if self.random.random() < self.wrong_clocks:
            program += AN_HOUR_OFF
        if program:
            bot.command = ("-c", program + RUN)
        self.fleet.bots.append(bot)
        member = Member(bot, role, link, namespace)
        self.members.append(member)
        await bot.launch()
        return member

    async def keep(self) -> None:
        """Start another one for each that ended, as whoever runs a fleet does."""
        while True:
            for member in [one for one in self.members if one.bot.process.returncode is not None]:
                self.members.remove(member)
                began = any("ready" in line.lower() for line in member.bot.lines)
                if not member.expected and (began or not self.away):
                    self._note(member.bot)
                await self.add(member.role)
            await asyncio.sleep(0.05)

    def _note(self, bot: BotProcess) -> None:
        code = bot.process.returncode
        self.ended_badly.append("\n".join([f"{bot.arguments} ended with {code}:", *bot.lines[-30:]]))

    def one(self, *roles: str) -> Member:
        """Any that lives."""
        living = [
            m for m in self.members if m.bot.process.returncode is None and (not roles or m.role in roles)
        ]
        return self.random.choice(living)

    # -- what breaks

    async def kill(self) -> None:
        """`kill -9`."""
        member = self.one()
        member.expected = True
        self.fleet.kill(member.bot)

    async def freeze(self, seconds: float = 10.0) -> None:
        """SIGSTOP for longer than others wait; when it wakes it works beside them."""
        member = self.one("worker")
        await member.bot.said("ready")
        self.fleet.freeze(member.bot)
        await asyncio.sleep(seconds)
        self.fleet.wake(member.bot)

    async def cut(self, seconds: float = 5.0) -> None:
        """Nothing passes between one and the server."""
        member = self.one()
        member.link.cut()
        await asyncio.sleep(seconds)
        member.link.mend()

    async def unplug(self, seconds: float = 5.0) -> None:
        """One has no network at all: what it sends is lost, and it reaches neither the server nor Slack."""
        member = self.one()
        assert member.namespace is not None, "each has a network of its own"
        member.namespace.unplug()
        await asyncio.sleep(seconds)
        member.namespace.plug()

    async def deafen(self) -> None:
        """Notifications never reach one from here on."""
        self.one().link.deaf = True

    @asynccontextmanager
    async def _told(self, name: str) -> AsyncIterator[None]:
        """Count the lines that each process logs until some seconds after this. Who starts meanwhile may end: whoever runs it starts
        it again."""
        before = {member.bot: len(member.bot.lines) for member in self.members}
        self.away = True
        yield
        await asyncio.sleep(LIMIT_SECONDS)
        self.away = False
        counts = [len(bot.lines) - count for bot, count in before.items() if bot.process.returncode is None]
        self.lines.setdefault(name, []).extend(counts)

    async def restart(self) -> None:
        """The server restarts in order."""
        async with self._told("restart"):
            await asyncio.to_thread(postgres.restart, self.server, "fast")

    async def crash(self) -> None:
        """The server restarts without saying goodbye."""
        async with self._told("crash"):
            await asyncio.to_thread(postgres.restart, self.server, "immediate")

    async def restart_pooler(self, seconds: float = 2.0) -> None:
        """PgBouncer ends with all that it carries, and is back a little later."""
        assert self.pooler is not None, "some are behind a pooler"
        async with self._told("restart of the pooler"):
            await asyncio.to_thread(self.pooler.stop)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.pooler.start)

    async def outage(self, seconds: float = 8.0) -> None:
        """The server is away."""
        async with self._told(f"outage of {seconds:.0f} s"):
            await asyncio.to_thread(postgres.stop, self.server)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(postgres.start, self.server)

    async def long_outage(self) -> None:
        """The server is away for longer than anything waits."""
        await self.outage(45.0)

    async def end_backends(self, times: int = 30, seconds: float = 8.0) -> None:
        """All connections to the server are ended, again and again."""
        async with self._told("backends ended"):
            with closing(psycopg.connect(self.server.get_uri(), autocommit=True)) as raw:
                for _ in range(times):
                    raw.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE backend_type = 'client backend' AND pid != pg_backend_pid()"
                    )
                    await asyncio.sleep(seconds / times)

    async def roll(self) -> None:
        """A new release: of each process a new one starts, and the old one is stopped once that is ready."""
        for old in list(self.members):
            new = await self.add(old.role)
            await new.bot.said("ready", timeout=120)
            old.expected = True
            self.members.remove(old)
            if old.bot.process.returncode is None and await old.bot.terminate() != 0:
                self._note(old.bot)

    async def settled(self, seconds: float = 240.0) -> None:
        """Return once every session has ended and nothing is to be handled or sent; or when the time is over, in which Slack
        takes as many updates as there are cards to close."""
        store = await asyncio.to_thread(open_postgres, self.server.get_uri(), KEY.encode())

        def open_work() -> int:
            heads = store.sessions.heads(statuses=("running", "paused"), limit=None)
            return (
                len(heads) + len(store.inbox.rows(limit=None)) + len(store.outbox.due(now="9999", limit=None))
            )

        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while await asyncio.to_thread(open_work):  # noqa: ASYNC110 - processes of their own
                        await asyncio.sleep(0.1)
        finally:
            store.close()

    async def run(self, acts: list[str], every: float) -> None:
        """Do these, one after the other, and another as soon as `every` seconds have passed."""
        for name in acts:
            began = asyncio.get_running_loop().time()
            with suppress(IndexError):
                await getattr(self, name)()
                self.done[name] += 1
            await asyncio.sleep(max(0.0, began + every - asyncio.get_running_loop().time()))


@asynccontextmanager
async def chaos(
    folder: Path,
    roles: list[str],
    seed: int,
    flows: dict[str, str] | None = None,
    *,
    wrong_clocks: float = 0.0,
    apart: bool = False,
    behind_pooler: bool = False,
) -> AsyncIterator[tuple[Chaos, Workspace]]:
    """A fleet of these roles that is kept going, on a server of its own, beside a local workspace."""
    async with AsyncExitStack() as stack:
        server = postgres.server(postgres.folder(f"chaos{seed}"))
        stack.callback(server.cleanup)
        workspace = await stack.enter_async_context(running_workspace())
        env = {"SAYSO_BLOBS": f"file://{folder}/blobs", **UNLIMITED}
        flows = flows or {"chaos": flow(folder / "log")}
        bots = Fleet(workspace, folder, flows, server.get_uri(), **env)
        stack.push_async_callback(bots.close)
        made = Chaos(bots, server, stack, seed)
        made.wrong_clocks, made.apart = wrong_clocks, apart
        if behind_pooler:
            made.pooler = stack.enter_context(pooled(server.get_uri(), more="default_pool_size = 30"))
        for role in roles:
            await made.add(role)
        await asyncio.gather(*(member.bot.said("ready") for member in made.members))
        keeping = asyncio.create_task(made.keep())
        stack.callback(keeping.cancel)
        yield made, workspace


# --- what came of it ----------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What went wrong."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    swapped: list[str] = field(default_factory=list)
    said_twice: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    ended_badly: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    def anything(self) -> bool:
        """Whether there is any."""
        return any(vars(self).values())

    def line(self) -> str:
        """All of it in a line."""
        counts = {name: len(found) for name, found in vars(self).items()}
        return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())


def verdict(made: Chaos, people: list[Person], log: Path) -> Verdict:
    """Compare what was done and said with what should have been."""
    found = done(log.read_text().splitlines(), [person.number for person in people])
    found.ended_badly = made.ended_badly
    found.tracebacks = [line for bot in made.fleet.bots for line in bot.lines if "Traceback" in line]
    for person in people:
        if person.thread is None:
            found.open.append(f"{person.number} has not begun")
            continue
        if person.thread.find(f"Finished n{person.number}") is None:
            found.open.append(f"{person.number} has not finished: {person.thread.texts()[-1:]}")
        found.said_twice += said_twice(person.thread.messages())
    store = open_postgres(made.server.get_uri(), KEY.encode())
    try:
        for head in store.sessions.heads(limit=None):
            check_starts([decode_event(row) for row in store.sessions.journal(head.session_id)])
            if head.status != "complete":
                found.open.append(f"{head.session_id}: {head.status} {head.quarantined or ''}")
        found.open += [f"inbox {row.key}" for row in store.inbox.rows(limit=None)]
        found.open += [f"outbox {row.key}" for row in store.outbox.due(now="9999", limit=None)]
        found.open += [f"dead {row.key}" for row in store.inbox.dead_letters()]
    finally:
        store.close()
    return found


def done(lines: list[str], numbers: Iterable[int]) -> Verdict:
    """Compare what is in the log with what these sessions must have done."""
    there = Counter(line.strip() for line in lines)
    wanted = Counter(line for number in numbers for line in effects(number))
    return Verdict(
        lost=sorted((wanted - there).elements()),
        doubled=sorted(line for line, count in there.items() if count > 1),
        swapped=sorted(line for line in there if line not in wanted),
    )


def said_twice(messages: Iterable[Json]) -> list[str]:
    """What stands twice in a thread: posted under one key, and no copy was disarmed."""
    marks = [message.get("metadata") or {} for message in messages]
    keys = Counter(
        str(mark["event_payload"]["key"]) for mark in marks if mark.get("event_type") == EVENT_TYPE
    )
    return [key for key, count in keys.items() if count > 1]
