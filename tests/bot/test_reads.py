"""How often catch-up reads by itself, and who comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.config.settings import Rate
from bot.wire.client import ReadBudget
from tests.support.inprocess import Town, play, town

REPLIES = "conversations.replies"
TALK = """
flow: talk
nodes:
  - {id: a, type: ask, with: {message: "Say it", who: [channel]}}
  - {id: b, type: message, with: {text: "heard {{ nodes.a.text }}"}}
"""
THREADS = 12


@asynccontextmanager
async def back_after_replies(folder: Path, **settings: object) -> AsyncIterator[tuple[Town, list[str], int]]:
    """A bot that comes back to twelve threads, each with a reply that nobody heard; how many calls were made before."""
    async with town(folder, {"talk": TALK}, **settings) as place:
        roots = [await place.start("ana", "talk") for _ in range(THREADS)]
        await place.close()
        place.sockets.away = True
        for root in roots:
            place.say("ben", "missed", root)
        place.sockets.away = False
        before = len(place.calls)
        await place.open()
        yield place, roots, before


def heard(place: Town, root: str) -> bool:
    """Whether the reply in this thread was taken."""
    return any("heard" in message["text"] for message in place.thread(root))


def test_catch_up_keeps_to_its_budget(tmp_path: Path) -> None:
    """After an absence so many threads are read at once as a part of the budget, the others at its pace, and all in the end."""

    async def story() -> None:
        async with back_after_replies(tmp_path, catch_up=Rate(8, 60.0)) as (place, roots, before):
            begin = place.seconds()
            await place.until(lambda: len(place.called(REPLIES, before)) >= 2)
            assert place.seconds() - begin < 5
            await place.until(lambda: all(heard(place, root) for root in roots), most=200)
            assert 60 <= place.seconds() - begin <= 90
            assert len(place.called(REPLIES, before)) == THREADS

    play(story)


def test_a_thread_in_which_somebody_writes_is_read_at_once(tmp_path: Path) -> None:
    """While many threads wait to be read, a reply in one of them does not wait for the others, and stands behind what was missed there."""

    async def story() -> None:
        async with back_after_replies(tmp_path, catch_up=Rate(4, 3600.0)) as (place, roots, before):
            await place.until(lambda: place.called(REPLIES, before))
            (first,) = place.called(REPLIES, before)
            root = next(root for root in roots if root != first.args["ts"])
            place.say("ana", "now", root)
            await place.until(lambda: heard(place, root))
            assert any("heard missed" in message["text"] for message in place.thread(root))
            assert [call.args["ts"] for call in place.called(REPLIES, before)] == [first.args["ts"], root]

    play(story)


def test_after_a_refusal_for_haste_nothing_is_read_until_the_time_is_over(tmp_path: Path) -> None:
    """Slack's 429 holds catch-up for as long as Slack says, then it reads all, and nothing is lost."""

    async def story() -> None:
        async with town(tmp_path, {"talk": TALK}) as place:
            roots = [await place.start("ana", "talk") for _ in range(2)]
            await place.close()
            place.sockets.away = True
            for root in roots:
                place.say("ben", "missed", root)
            place.sockets.away = False
            place.limited[REPLIES] = [20, 20, 20]
            before, begin = len(place.calls), place.seconds()
            await place.open()
            await place.until(lambda: all(heard(place, root) for root in roots), most=300)
            refused = [call for call in place.called(REPLIES, before) if not call.answer["ok"]]
            assert len(refused) == 3
            assert place.seconds() - begin >= 60
            assert len(place.called(REPLIES, before)) == 3 + 2

    play(story)


async def test_nobody_is_held_up_by_a_budget_that_is_switched_off() -> None:
    """Without a rate every call may be made at once, until Slack asks to wait."""
    now, waits = [0.0], list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    budget = ReadBudget(None, lambda: now[0], sleep)
    for _ in range(1000):
        await budget.take(REPLIES)
    assert waits == []
    budget.block(REPLIES, 30.0)
    await budget.take("conversations.history")
    assert waits == []
    await budget.take(REPLIES)
    assert waits == [30.0]


@pytest.mark.parametrize(("rate", "at_once", "then"), [(Rate(40, 60.0), 10, 1.5), (Rate(1, 60.0), 1, 60.0)])
async def test_a_part_of_the_budget_may_be_used_at_once(rate: Rate, at_once: int, then: float) -> None:
    """A quarter of what a budget allows goes at once, the rest evenly."""
    now, waits = [0.0], list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    budget = ReadBudget(rate, lambda: now[0], sleep)
    for _ in range(at_once):
        await budget.take(REPLIES)
    assert waits == []
    await budget.take(REPLIES)
    await budget.take(REPLIES)
    assert waits == pytest.approx([then, then])


async def test_catch_up_stands_back_while_something_else_has_to_be_read() -> None:
    """As long as anything that cannot wait is being read, the budget gives nothing out."""
    budget = ReadBudget(None, lambda: 0.0)
    with budget.hurry():
        taking = asyncio.create_task(budget.take(REPLIES))
        with budget.hurry():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not taking.done()
    await taking
