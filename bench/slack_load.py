"""What people wait for while Slack enforces its limits: the bot against the local workspace with `Faults.limit`.

Nearly all of it is in simulated time: the real bot with the real Bolt and slack_sdk on one event loop, where ten minutes
take some seconds (`tests/support/simulated.py`). A call takes a tenth of a second there, and nothing takes processor. The
burst is measured a second time with a bot process, sockets and HTTP. The server is the strict one of
`bot/workspace/limits.py`: sliding minutes, refused calls count.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.nodes import folder_in
from bench.processes import running_bot
from bench.report import Row, median, quantile
from bench.rig import ANA, everybody, thread_of
from bench.slack_town import ASKS, FLOWS, Load, finished
from bot.workspace.limits import POST, RESPONSE
from engine.flow.load import load_flow
from engine.run.engine import Engine
from prompt_state.question_row import projection
from tests.support.acting import Acts, Workspace
from tests.support.inline import InlineWriter
from tests.support.inprocess import Town, play
from tests.support.simulated import inhabited_town

CALL_SECONDS = 0.1
DRAIN_SECONDS = 900.0
"""How long is waited for what is left once the load has ended."""
BETWEEN = 0.4
"""Seconds between the starts of threads that wait quietly, on average: 10,000 in an hour."""
SPELL = 10.0
EDIT, REACT = "chat.update", "reactions.add"
UNLIMITED_STARTS = dict.fromkeys(("SAYSO_RATE_PERSON", "SAYSO_RATE_CHANNEL", "SAYSO_RATE_WORKSPACE"), "off")
LIMITED = (POST, EDIT, RESPONSE, REACT, "users.info", "conversations.members")
"""The methods that are limited in turn."""


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about Slack's limits."""
    minutes, threads = (2.0, 40) if quick else (10.0, 200)
    sizes = [(200, 6, None)] if quick else [(1_000, 30, 15.0), (10_000, 100, 180.0)]
    return [
        *_in_town(base, lambda folder: _alone(folder)),
        *_in_town(base, lambda folder: _steady(folder, 24, minutes, 2)),
        *_in_town(base, lambda folder: _steady(folder, 16, minutes, 2)),
        *_in_town(base, lambda folder: _burst(folder, threads)),
        *asyncio.run(_burst_for_real(base, threads)),
        *_in_town(base, _each_in_turn),
        *_in_town(base, _long_spell),
        *_in_town(base, _halved),
        *(
            row
            for size in sizes
            for row in _in_town(base, lambda folder, size=size: _caught_up(folder, *size))
        ),
    ]


def _in_town(base: Path, story: Callable[[Path], Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    with folder_in(base) as folder, listening():
        return play(lambda: story(folder))


@asynccontextmanager
async def limited_town(folder: Path, channels: int) -> AsyncIterator[tuple[Load, Town]]:
    """A bot at the pace for Slack in a workspace with Slack's limits, and people in so many channels."""
    async with inhabited_town(folder, FLOWS, slack_limits={}) as (workspace, town):
        places = [workspace.add_channel(f"load-{number}").id for number in range(channels)]
        town.bot._bot.workspace_url = "https://acme.slack.com/"  # where links are made, not asked for
        await asyncio.sleep(90)  # what the start took of the limits is free again
        workspace.faults.slow("*", CALL_SECONDS)
        workspace.faults.limit()
        yield Load(workspace, places, town.seconds), town


async def _drained(load: Load, town: Town, end: float) -> float:
    """Seconds from the end of a load until the bot had nothing more to do; its last write tells."""
    while not town.quiet() and load.clock() - end < DRAIN_SECONDS:  # noqa: ASYNC110 - nothing in here signals
        await asyncio.sleep(5)
    return max(0.0, load.last_write - end)


# --- a steady load -----------------------------------------------------------------------------------------


async def _alone(folder: Path) -> list[Row]:
    """One flow with nothing beside it: what it costs once it is known who people are."""
    rows = []
    for name, most, edits in (("two", 8, 3), ("one", 5, None)):
        async with limited_town(_below(folder, name), 1) as (load, town):
            await load.start(1, name)
            await _drained(load, town, load.clock())
            load.first_call = len(load.workspace.calls)
            await load.start(1, name)
            await _drained(load, town, load.clock())
            calls = load.carried_out()
            asked = "two questions" if name == "two" else "one question"
            note = ", ".join(f"{count} {method}" for method, count in sorted(calls.items()))
            rows.append(Row(f"calls of a flow with {asked}", calls.total(), "calls", limit=most, note=note))
            marks = load.marks().total()
            rows.append(Row(f"marks on the message that started it, {asked}", marks, "calls", limit=3))
            if edits is not None:
                rows.append(Row(f"edits of a flow with {asked}", calls[EDIT], "edits", limit=edits))
    return rows


def _below(folder: Path, name: str) -> Path:
    place = folder / name
    place.mkdir()
    return place


async def _steady(folder: Path, a_minute: int, minutes: float, channels: int) -> list[Row]:
    async with limited_town(folder, channels) as (load, town):
        tasks, end = await load.steady(a_minute, minutes), load.clock()
        await finished(tasks, DRAIN_SECONDS)
        drained = await _drained(load, town, end)
        note = (
            f"{len(load.runs)} flows in {minutes:g} minutes and {channels} channels, {load.unfinished()} never ended, "
            f"{load.doubled()} messages twice, {load.unheard} presses not acknowledged"
        )
        rows = [*_waits(load, note), Row("drained after the end", drained, "s", limit=120)]
        if a_minute < 20:
            late = [
                *load.to_disarmed(by_press=False),
                *load.to_disarmed(by_press=True),
                *load.to_final_card(),
            ]
            rows.append(Row("every edit within", max(late), "s", limit=2))
        return [_named(row, f"{a_minute} flows a minute") for row in rows]


def _named(row: Row, what: str) -> Row:
    return replace(row, name=f"{what}: {row.name}")


def _waits(load: Load, note: str) -> list[Row]:
    flows, calls = max(1, len(load.runs)), load.carried_out()
    nexts, said, pressed = load.to_next(), load.to_disarmed(by_press=False), load.to_disarmed(by_press=True)
    return [
        Row("answer to next question, p50", median(nexts), "s", note=note),
        Row("answer to next question, p99", quantile(nexts, 0.99), "s", limit=10),
        Row("buttons disarmed after words, p99", quantile(said, 0.99), "s", limit=30),
        Row("buttons disarmed after a press, p99", quantile(pressed, 0.99), "s", limit=2),
        Row("final card, p99", quantile(load.to_final_card() or [0.0], 0.99), "s"),
        Row("calls answered with 429", load.refused_share(), "%", limit=2),
        Row("calls a flow", calls.total() / flows, "calls", limit=8),
        Row("edits a flow", calls[EDIT] / flows, "edits", limit=3),
        Row("marks a flow", load.marks().total() / flows, "calls", limit=3),
    ]


# --- bursts ------------------------------------------------------------------------------------------------


async def _burst(folder: Path, threads: int) -> list[Row]:
    async with limited_town(folder, 10) as (load, _):
        tasks = [asyncio.ensure_future(load.start(number, answers=0)) for number in range(threads)]
        await until_asked(load, threads, DRAIN_SECONDS)
        rows = _first_questions(load, f"{threads} threads at once in ten channels")
        await finished(tasks, 0.0)
        return rows


async def _burst_for_real(base: Path, threads: int) -> list[Row]:
    """The same with a bot process, sockets and HTTP, for three minutes at most."""
    with folder_in(base) as home, folder_in(base) as flows:
        for name, text in FLOWS.items():
            (flows / f"{name}.yml").write_text(text)
        async with Workspace() as workspace:
            places = [workspace.add_channel(f"load-{number}").id for number in range(10)]
            async with running_bot(workspace, home, flows, **UNLIMITED_STARTS):
                await workspace.connected(2)
                workspace.faults.limit()
                load = Load(workspace, places, time.time)
                tasks = [asyncio.ensure_future(load.start(number, answers=0)) for number in range(threads)]
                await until_asked(load, threads, 180.0)
                rows = _first_questions(load, f"the same with a process and HTTP, {threads} threads")
                await finished(tasks, 0.0)
                return rows


async def until_asked(load: Load, threads: int, most: float) -> None:
    begin = load.clock()
    while load.asked() < threads and load.clock() - begin < most:  # noqa: ASYNC110 - nothing in here signals
        await asyncio.sleep(0.25)


def _first_questions(load: Load, what: str) -> list[Row]:
    firsts = load.to_first()
    note = f"{load.refused_share():.1f} % of the calls answered with 429"
    return [
        Row(f"{what}: first question, p50", median(firsts), "s", limit=15, note=note),
        Row(f"{what}: first question, the last", max(firsts), "s", limit=25),
    ]


# --- spells ------------------------------------------------------------------------------------------------


ABOUT_LIMITS = re.compile(
    r"limit|asks to wait|response_url|\b(chat|conversations|reactions|users)\.[a-z]+[A-Za-z]*\b"
)


class Told(logging.Handler):
    """What the bot logs of limits."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line that is about a limit."""
        line = record.getMessage()
        if ABOUT_LIMITS.search(line):
            self.lines.append(line)


@contextmanager
def listening() -> Iterator[Told]:
    """What is logged in here."""
    told, logger = Told(), logging.getLogger("sayso")
    before, spread = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(told)
    try:
        yield told
    finally:
        logger.removeHandler(told)
        logger.setLevel(before)
        logger.propagate = spread


async def _each_in_turn(folder: Path) -> list[Row]:
    """Sixteen flows a minute, and for ten seconds each method in turn is refused."""
    async with limited_town(folder, 4) as (load, _):
        flows = asyncio.ensure_future(load.steady(16, len(LIMITED) + 1))
        worst: Counter[str] = Counter()
        notes, slow = [], [0.0]
        await asyncio.sleep(45)
        for method in LIMITED:
            begin = load.clock()
            with listening() as told:
                load.workspace.faults.ratelimit(method, retry_after=round(SPELL), seconds=SPELL)
                await asyncio.sleep(55)
            refused, probes = spell_of(load.calls(begin), method)
            if not refused:
                notes.append(f"{method} was not called")
                continue
            lines = sum(method in line for line in told.lines)
            notes.append(f"{method} {refused}/{probes}/{lines}")
            worst |= Counter(refused=refused, probes=probes, lines=lines)
            if method != POST:
                slow += load.to_next(begin, begin + 2 * SPELL)
        await finished(await flows, 60.0)
        note = "refusals, calls until one was taken, and log lines: " + ", ".join(notes)
        what = "429 on each method in turn"
        return [
            Row(f"{what}: refusals, at most", worst["refused"], "calls", limit=1, note=note),
            Row(f"{what}: calls until one was taken, at most", worst["probes"], "calls", limit=1),
            Row(f"{what}: log lines, at most", worst["lines"], "lines", limit=2),
            Row(f"{what}: answer to next question meanwhile, the latest", max(slow), "s", limit=2),
        ]


def spell_of(calls: Sequence[Any], method: str) -> tuple[int, int]:
    """Of a method that was refused for a while: how often it was called meanwhile, and how often after that until one
    call had its answer. Posts and answers to presses are counted by channel; the worst one is told."""
    found = []
    mine = [call for call in calls if call.method == method]
    by_channel = method in (POST, RESPONSE)
    for channel in {call.channel if by_channel else "" for call in mine}:
        own = [call for call in mine if not by_channel or call.channel == channel]
        refused = [call for call in own if call.status == 429]
        if not refused:
            continue
        later = [call for call in own if call.at > refused[-1].at]
        first = next((call.at for call in later if call.ok), refused[-1].at)
        found.append((len(refused), sum(call.at <= first + CALL_SECONDS / 2 for call in later)))
    return max(found, default=(0, 0))


async def _long_spell(folder: Path) -> list[Row]:
    """`Retry-After: 60` on edits for five minutes."""
    async with limited_town(folder, 4) as (load, town):
        flows = asyncio.ensure_future(load.steady(16, 7.0))
        await asyncio.sleep(60)
        begin = load.clock()
        load.workspace.faults.ratelimit(EDIT, retry_after=60, seconds=300)
        tasks, end = await flows, load.clock()
        await finished(tasks, DRAIN_SECONDS)
        drained = await _drained(load, town, end)
        refused = sum(call.status == 429 for call in load.calls(begin))
        note = (
            f"{refused} calls refused, {load.unfinished()} flows never ended, drained after {drained:.0f} s"
        )
        nexts = load.to_next(begin, begin + 300)
        what = "Retry-After: 60 on edits for five minutes"
        return [Row(f"{what}: answer to next question, p99", quantile(nexts, 0.99), "s", limit=2, note=note)]


async def _halved(folder: Path) -> list[Row]:
    """All limits are halved after a minute, and nobody says so."""
    async with limited_town(folder, 4) as (load, town):
        flows = asyncio.ensure_future(load.steady(16, 6.0))
        await asyncio.sleep(60)
        begin = load.clock()
        load.workspace.faults.limit(0.5)
        tasks, end = await flows, load.clock()
        await finished(tasks, DRAIN_SECONDS)
        drained = await _drained(load, town, end)
        what = "limits halved without notice"
        note = f"from two minutes after; drained after {drained:.0f} s"
        return [
            Row(
                f"{what}: calls answered with 429",
                load.refused_share(begin + 120),
                "%",
                limit=5,
                note=note,
            ),
            Row(f"{what}: answer to next question, p99", quantile(load.to_next(begin), 0.99), "s", limit=10),
            Row(f"{what}: flows lost", load.unfinished(), "flows", limit=0),
            Row(f"{what}: messages twice", load.doubled(), "messages", limit=0),
        ]


# --- catching up -------------------------------------------------------------------------------------------


async def _caught_up(folder: Path, waiting: int, moved: int, wanted: float | None) -> list[Row]:
    """Threads that wait in twenty channels; in some of them somebody answered while the bot was away."""
    async with inhabited_town(folder, FLOWS) as (workspace, town):
        places = [workspace.add_channel(f"load-{number}").id for number in range(20)]
        asked = Load(workspace, places, town.seconds)
        tasks = [asked.start(number, "one", answers=0) for number in range(2 * moved)]
        await asyncio.gather(*tasks)
        await town.settle(most=DRAIN_SECONDS)
        await town.close()
        await _wait_quietly(workspace, town, places, waiting - 2 * moved)
        town.settings = replace(town.settings, slack_limits={})
        await asyncio.sleep(3600)
        answered = asked.runs[::2]
        for run in answered:
            await workspace.post("ana", run.channel, "Go on", thread_ts=run.root)
        workspace.faults.slow("*", CALL_SECONDS)
        workspace.faults.limit()
        begin = town.seconds()
        await town.open()
        meanwhile = Load(workspace, places, town.seconds)
        late = await _first_meanwhile(meanwhile, lambda: all(run.result for run in answered))
        caught = max((run.result or town.seconds()) - begin for run in answered)
        note = f"{len(meanwhile.calls())} calls, {meanwhile.refused_share():.1f} % answered with 429"
        what = f"{waiting:,} waiting threads of which {moved} moved"
        return [
            Row(f"{what}: caught up", caught, "s", limit=wanted, note=note),
            Row(f"{what}: a first question meanwhile, the latest", late, "s", limit=2),
        ]


async def _wait_quietly(workspace: Acts, town: Town, places: Sequence[str], count: int) -> None:
    """Threads with a question that is open, as the bot leaves them, in which nobody says anything: the sessions are begun
    without it, which takes a tenth of the processor."""
    core, stands, chance = workspace.core, dict[str, Any](), random.Random(7)
    store, flow = town.store.another(), load_flow(FLOWS["one"], "one.yml")
    engine = Engine(
        store,
        policy=everybody,
        runners={},
        home=town.folder,
        extensions=[projection],
        label="bench",
        now=town.engine.now,
        writer=InlineWriter(store),
        shown=lambda: dict(stands),
    )
    await engine.open()
    for number in range(count):
        channel = core.state.channel(places[number % len(places)])
        root = core.post(core.state.user("ana"), channel, "@sayso one")["ts"]
        asked = core.post(core.state.bot_user, channel, ASKS[0], thread_ts=root)["ts"]
        stands = {"channel": channel.id, "ts": asked, "threadTs": root}
        thread = thread_of(core.state.team_id, channel.id, root)
        await engine.parked(await engine.start(flow, {}, actor=ANA, thread=thread))
        await asyncio.sleep(chance.expovariate(1 / BETWEEN))
    await engine.close()
    store.close()


async def _first_meanwhile(load: Load, done: Callable[[], bool]) -> float:
    """Start a flow now and then until something is so; how long the latest first question took."""
    begin, number, tasks = load.clock(), 0, []
    while not done() and load.clock() - begin < 20_000:
        tasks.append(asyncio.ensure_future(load.start(number, "one")))
        number += 1
        await asyncio.sleep(7)
    await finished(tasks, 60.0)
    return max(load.to_first(), default=0.0)
