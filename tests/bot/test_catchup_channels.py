"""What was missed is read by channel: one page says of many threads which of them moved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from bot.handlers.catchup import PAGE
from bot.handlers.delivered import NOTED_SECONDS, Delivered
from tests.simulation.mutants import skips_on_reply_count_alone
from tests.support.simulated import simulated
from tests.support.threads import BEGAN, Threads

REPLIES, HISTORY = "conversations.replies", "conversations.history"
HOUR, DAY = 3600.0, 86400.0


@simulated
async def test_one_page_says_that_no_thread_of_a_channel_moved() -> None:
    """Fifty threads whose last word is known take one call, and none of them is read."""
    place = Threads()
    for number in range(50):
        place.wait(0, HOUR + 60 * number)
    catchup = place.catchup()
    await place.read(catchup)
    assert len(place.called(HISTORY)) == 1
    assert place.called(REPLIES) == []
    assert catchup.complete


@simulated
async def test_a_thread_in_which_only_the_bot_spoke_is_not_read() -> None:
    """Nobody else replied, so nothing can have been missed; Slack lists at most some of those who did, and their number."""
    place = Threads()
    alone, crowded = place.wait(0, HOUR, talk=False), place.wait(0, HOUR - 60, talk=False)
    place.state.messages[place.ids[0]][crowded.split(":")[2]]["reply_users_count"] = 2
    await place.read(place.catchup())
    assert [args["ts"] for args in place.called(REPLIES)] == [crowded.split(":")[2]]
    assert alone != crowded


@simulated
async def test_what_was_missed_is_found_in_threads_and_between_them() -> None:
    """A reply in a thread that moved, and a mention in the channel, from the same page."""
    place = Threads()
    keys = [place.wait(0, HOUR + 60 * number, talk=False) for number in range(5)]
    reply = place.reply(keys[3], 100)
    mention = place.say(0, 90, text=f"<@{place.state.bot_user_id}> talk")
    await place.read(place.catchup())
    assert place.found() == {reply, mention}
    assert [args["ts"] for args in place.called(REPLIES)] == [keys[3].split(":")[2]]
    assert len(place.called(HISTORY)) == 1


@pytest.mark.parametrize("fault", [False, True], ids=["as it is", "with the fault"])
@simulated
async def test_a_reply_is_found_where_another_one_was_deleted(fault: bool, monkeypatch: Any) -> None:
    """A new reply is found although the number of replies did not change; a seeded fault that counts replies fails here."""
    if fault:
        skips_on_reply_count_alone(monkeypatch)
    place = Threads()
    key = place.wait(0, HOUR, talk=False)
    first = place.reply(key, 600)
    catchup = place.catchup()
    await place.read(catchup)
    assert place.found() == {first}
    place.state.remove_message(place.ids[0], first)
    second = place.reply(key, 0)
    root = place.state.message(place.ids[0], key.split(":")[2])
    assert root is not None
    assert root["reply_count"] == 2
    await place.read(catchup)
    assert (second in place.found()) is not fault


@simulated
async def test_threads_with_the_newest_questions_are_read_first() -> None:
    """Of those that moved, whatever channel they are in."""
    place = Threads(2)
    keys = [place.wait(number % 2, HOUR * (9 - number), talk=False) for number in range(8)]
    for key in keys:
        place.reply(key, 100)
    catchup = place.catchup()
    await place.read(catchup)
    read = [args["ts"] for args in place.called(REPLIES)]
    # The first two are read while the second channel is not known yet.
    assert read[0] == keys[7].split(":")[2]
    assert read[2:] == sorted(read[2:], key=float, reverse=True)


@simulated
async def test_lonely_threads_from_far_back_are_read_as_they_are() -> None:
    """Where each of them would take a page of its own, the page is left out."""
    place = Threads()
    for number in range(6 * PAGE):
        place.say(0, 100 + 100 * number)
    keys = [place.wait(0, DAY * (10 + 10 * number), talk=False) for number in range(3)]
    reply = place.reply(keys[2], 50)
    await place.read(place.catchup())
    assert place.found() == {reply}
    assert len(place.called(HISTORY)) == 5
    assert len(place.called(REPLIES)) == 3


@simulated
async def test_threads_that_lie_close_together_far_back_share_a_page() -> None:
    """The page begins at the newest of them: what lies in between is not read."""
    place = Threads()
    for number in range(3 * PAGE):
        place.say(0, 100 + 60 * number)
    for number in range(5 * PAGE):
        place.say(0, 2 * DAY + 60 * number)
    keys = [place.wait(0, 30 * DAY + 600 * number, talk=False) for number in range(10)]
    reply = place.reply(keys[4], 50)
    await place.read(place.catchup())
    assert place.found() == {reply}
    assert len(place.called(REPLIES)) == 1
    assert [args.get("latest") for args in place.called(HISTORY)][-1] == keys[0].split(":")[2]
    assert len(place.called(HISTORY)) == 3


@simulated
async def test_a_root_that_is_gone_from_its_channel_is_looked_for_as_a_thread() -> None:
    """What a page does not show though it should may be gone: that is known when it is read."""
    place = Threads()
    key = place.wait(0, HOUR, talk=False)
    del place.state.messages[place.ids[0]][key.split(":")[2]]
    catchup = place.catchup()
    await place.read(catchup)
    assert len(place.called(REPLIES)) == 1
    assert catchup.complete


@simulated
async def test_a_channel_that_could_not_be_read_stays_due_with_its_threads() -> None:
    """The next attempt finds what was missed there; the other channels do not wait for it."""
    place = Threads(2)
    keys = [place.wait(number, HOUR, talk=False) for number in range(2)]
    replies = {place.reply(key, 100) for key in keys}
    catchup, place.fails = place.catchup(), {HISTORY: "internal_error"}
    await place.read(catchup)
    assert not catchup.complete
    assert all(catchup.unread(key) for key in keys)
    place.fails.clear()
    await catchup.run()
    assert catchup.complete
    assert place.found() == replies


@simulated
async def test_a_channel_that_is_closed_to_the_bot_is_left_alone() -> None:
    """Its threads cannot be read either, so nobody asks for them one by one."""
    place = Threads()
    place.wait(0, HOUR)
    catchup, place.fails = place.catchup(), {HISTORY: "not_in_channel"}
    await place.read(catchup)
    assert catchup.complete
    assert place.called(REPLIES) == []


@simulated
async def test_a_gap_while_a_channel_is_read_makes_it_due_again() -> None:
    """The page may be older than what was missed in the second gap."""
    place = Threads()
    key = place.wait(0, HOUR, talk=False)
    catchup = place.catchup()
    reading = asyncio.create_task(place.read(catchup))
    while not place.called(HISTORY):  # noqa: ASYNC110 - nothing in here signals
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await catchup.begin()
    late = place.reply(key, 0)
    await reading
    await catchup.run()
    assert len(place.called(HISTORY)) >= 2
    assert place.found() == {late}
    assert catchup.complete


@simulated
async def test_a_long_read_says_how_far_it_has_come(caplog: Any) -> None:
    """In words, and now and then in the log; nothing where nothing is due."""
    caplog.set_level(logging.INFO, "sayso.catchup")
    place = Threads(200)
    for number in range(200):
        place.wait(number, HOUR, talk=False)
    catchup = place.catchup()
    reading = asyncio.create_task(place.read(catchup))
    await asyncio.sleep(30.0)
    said = catchup.progress()
    assert said is not None
    assert "of 200 channels" in said
    assert "of 200 threads" in said
    await reading
    assert catchup.progress() is None
    assert any("of 200 channels" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("threads", "moved", "most"), [(1_000, 30, 15.0), (10_000, 100, 180.0)])
@simulated
async def test_thousands_of_waiting_threads_are_read_within_the_limits(
    threads: int, moved: int, most: float
) -> None:
    """In twenty channels, over three days: all that moved are found in time, and Slack refuses nothing."""
    place = Threads(20)
    keys = [place.wait(number % 20, 600 + 3 * DAY * number / threads) for number in range(threads)]
    replies = {place.reply(key, 100) for key in keys[:: threads // moved][:moved]}
    catchup = place.catchup()
    assert await place.read(catchup) <= most
    assert place.found() >= replies
    assert len(place.store.inbox.rows(limit=None)) >= len(place.called(REPLIES)) == moved
    assert catchup.complete
    assert place.refused == 0


@simulated
async def test_whoever_writes_in_a_thread_does_not_wait_for_thousands_of_others() -> None:
    """Ten calls a minute are left for the threads in which somebody writes while all is read."""
    place = Threads(2)
    keys = [place.wait(number % 2, HOUR + 60 * number, talk=False) for number in range(150)]
    for key in keys:
        place.reply(key, 100)
    catchup = place.catchup()
    reading = asyncio.create_task(place.read(catchup))
    await asyncio.sleep(30.0)
    before = place.seconds()
    for key in keys[-10:]:
        assert await catchup.ensure(key) == 1
    assert place.seconds() - before <= 2.0
    await reading
    assert place.refused == 0


@simulated
async def test_a_read_in_the_background_does_not_wait_with_the_only_turn() -> None:
    """Slack takes one read at a time after a refusal: who writes in the thread needs that turn to read it first. What could
    not be read is due again."""
    place = Threads()
    key = place.wait(0, HOUR, talk=False)
    place.reply(key, 100)
    catchup = place.catchup()
    budget = catchup.client.budget
    async with budget.turn(REPLIES) as refused:
        refused.refused_for = 1.0
    async with budget.turn(REPLIES):  # the one that tries, and is not answered
        reading = asyncio.create_task(place.read(catchup))
        await asyncio.sleep(5.0)
    # Now the turn is the reader's, who has not gone on yet.
    async with asyncio.timeout(60.0):
        await catchup.ensure(key)
        await reading
        await catchup.run()
    assert catchup.complete
    assert len(place.found()) == 1


# --- what was delivered ------------------------------------------------------------------------------------


async def passed(place: Threads, delivered: Delivered, *, carried: bool = True, unread: bool = False) -> None:
    """Time passes until what was noted is old enough."""
    for _ in range(3):
        await asyncio.sleep(NOTED_SECONDS)
        await delivered.settle(lambda key: unread, lambda since: carried)


async def read_after(place: Threads, key: str, live: Callable[[Delivered, str], Any], **given: bool) -> bool:
    """Whether a thread is read after a gap: somebody replied while the bot listened."""
    delivered = Delivered(place.writer, asyncio.get_running_loop().time)
    catchup = place.catchup(delivered=delivered)
    await place.read(catchup)
    ts = place.reply(key, 100)
    live(delivered, ts)
    await passed(place, delivered, **given)
    place.calls.clear()
    await place.read(catchup)
    return bool(place.called(REPLIES))


@simulated
async def test_a_thread_whose_last_word_was_delivered_is_not_read_again() -> None:
    """Ten minutes later nothing older is still on its way."""
    place = Threads()
    key = place.wait(0, HOUR)
    assert not await read_after(place, key, lambda delivered, ts: delivered.note(key, ts))


@pytest.mark.parametrize("why", ["not delivered", "gap", "lost", "deaf", "unread"])
@simulated
async def test_a_thread_is_read_again_where_something_older_may_have_been_lost(why: str) -> None:
    """A thread is read again after a gap, after an unacknowledged event, while a socket may be deaf, and while it waits to be read."""
    place = Threads()
    key = place.wait(0, HOUR)

    def live(delivered: Delivered, ts: str) -> None:
        if why != "not delivered":
            delivered.note(key, ts)
        if why in ("gap", "lost"):
            (delivered.begin if why == "gap" else delivered.lost)()

    assert await read_after(place, key, live, carried=why != "deaf", unread=why == "unread")


@simulated
async def test_a_mark_of_what_was_delivered_skips_no_message_when_the_thread_is_read() -> None:
    """It says that a thread needs no read; once it is read, it is read from where the last read ended."""
    place = Threads()
    key = place.wait(0, HOUR)
    swallowed = place.reply(key, 300)
    place.store.marks.move(f"known:{key}", f"{BEGAN - 200:.6f}")
    later = place.reply(key, 100)
    await place.read(place.catchup())
    assert {swallowed, later} <= place.found()
