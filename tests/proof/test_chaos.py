"""A fleet that is killed, frozen, cut off and left without its server, while people answer: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from bot.rendering.blocks import EVENT_TYPE
from tests.proof.chaos import Chaos, Person, Verdict, chaos, done, effects, said_twice, verdict
from tests.support.acting import Workspace
from tests.support.namespaces import allowed
from tests.support.proving import PROVE_SEED

pytestmark = [pytest.mark.process, pytest.mark.timeout(1_800)]
SMALL = ["socket", "socket", "worker", "worker", "worker"]
LARGE = [*SMALL, "worker", "worker"]
SHORT = ["kill", "freeze", "cut", "kill", "restart", "kill"]
ONCE = ["restart", "crash", "outage", "long_outage", "end_backends", "restart_pooler", "roll", "deafen"]
LONG = ["kill"] * 20 + ["freeze", "cut", "unplug"] * 3 + ONCE


async def lived(
    made: Chaos, workspace: Workspace, log: Path, count: int, acts: list[str], gap: float
) -> Verdict:
    """So many people begin one after the other, and end, while these things break."""
    people = [Person(workspace, number, log) for number in range(count)]

    async def in_turn(person: Person) -> None:
        await asyncio.sleep(person.number * gap)
        await person.live()

    breaking = asyncio.create_task(made.run(acts, 2.0))
    try:
        async with asyncio.timeout(600 + 20 * len(acts)):
            await asyncio.gather(*map(in_turn, people), breaking)
            await made.settled()
    except TimeoutError:
        print("not over in time; done so far:", dict(made.done))
    finally:
        breaking.cancel()
    found = verdict(made, people, log)
    print(
        f"{count} sessions; {found.line()}; {dict(made.done)}; posts a channel and second {posts(workspace):.2f}"
    )
    for name, counts in made.lines.items():
        print(f"{name}: log lines of a process, p50 {median(counts):.0f}, most {max(counts)}")
    return found


def posts(workspace: Workspace) -> float:
    """Posts a second in the channel and the minute that had most."""
    minutes = Counter(
        (call.channel, int(call.at) // 60) for call in workspace.calls_to("chat.postMessage") if call.ok
    )
    return max(minutes.values()) / 60


async def test_a_fleet_in_chaos_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Every session ends with each effect, answer and message once, and with those that are its own."""
    async with chaos(tmp_path, SMALL, 1) as (made, workspace):
        found = await lived(made, workspace, tmp_path / "log", 8, SHORT, 1.5)
    assert not found.anything(), found


@pytest.mark.long
@pytest.mark.parametrize("seed", [PROVE_SEED, PROVE_SEED + 1, PROVE_SEED + 2], ids=["today", "next", "third"])
async def test_a_large_fleet_in_long_chaos(tmp_path: Path, seed: int) -> None:
    """The same with more of everything, by the seed of the day and two more: the server crashes and is away, connections are
    ended, a release replaces another one, every second process is behind PgBouncer, which restarts, and some clocks are an hour
    ahead. Where we may, each process has a network of its own, which is unplugged."""
    apart = allowed()
    acts = [act for act in random.Random(seed).sample(LONG, len(LONG)) if apart or act != "unplug"]
    async with chaos(tmp_path, LARGE, seed, wrong_clocks=0.2, apart=apart, behind_pooler=True) as (
        made,
        workspace,
    ):
        found = await lived(made, workspace, tmp_path / "log", 60, acts, 1.5)
    assert not found.anything(), (seed, found)


GOOD = [line for number in range(3) for line in effects(number)]


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (GOOD, ""),
        (GOOD[1:], "lost"),
        ([*GOOD, GOOD[0]], "doubled"),
        ([line.replace("one-n1", "one-n2") for line in GOOD], "lost swapped"),
        ([line.replace("two-n1 n1", "two-n1") for line in GOOD], "lost swapped"),
    ],
)
def test_what_went_wrong_is_seen(lines: list[str], wrong: str) -> None:
    """Seeded faults in what was done: an effect that is missing, or twice, an answer of another session, a file that is gone."""
    found = done(lines, range(3))
    assert [name for name, what in vars(found).items() if what] == wrong.split()


def test_what_was_said_twice_is_seen() -> None:
    """Two messages under one key are one too many."""
    one = {"metadata": {"event_type": EVENT_TYPE, "event_payload": {"key": "tell:1"}}}
    assert said_twice([one, {"text": "no key"}]) == []
    assert said_twice([one, dict(one)]) == ["tell:1"]
