"""How often catch-up reads by itself, and who comes first."""

from __future__ import annotations

import asyncio

from bot.handlers.delivered import NOTED_SECONDS
from tests.support.acting import Admin
from tests.support.inprocess import Town
from tests.support.simulated import in_town

REPLIES = "conversations.replies"
TALK = """
flow: talk
nodes:
  - {id: a, type: ask, with: {message: "Say it", who: [channel]}}
  - {id: b, type: message, with: {text: "heard {{ nodes.a.text }}"}}
"""
THREADS = 12


async def back_after_replies(place: Town) -> tuple[list[str], int]:
    """The bot comes back to twelve threads, each with a reply that nobody heard; how many calls were made before."""
    roots = [await place.start("ana", "talk") for _ in range(THREADS)]
    await place.close()
    place.sockets.away = True
    for root in roots:
        place.say("ben", "missed", root)
    place.sockets.away = False
    before = len(place.calls)
    await place.open()
    return roots, before


def heard(place: Town, root: str) -> bool:
    """Whether the reply in this thread was taken."""
    return any("heard" in message["text"] for message in place.thread(root))


@in_town({"talk": TALK}, slack_limits={REPLIES: {"a_minute": 12, "spare": 4}})
async def test_catch_up_keeps_to_its_budget(place: Town) -> None:
    """After an absence threads are read at once but for the calls that are left to others, then as room comes, and all
    in the end."""
    roots, before = await back_after_replies(place)
    begin = place.seconds()
    await place.until(lambda: len(place.called(REPLIES, before)) >= 8)
    assert place.seconds() - begin < 5
    await place.until(lambda: all(heard(place, root) for root in roots), most=200)
    assert 60 <= place.seconds() - begin <= 90
    assert len(place.called(REPLIES, before)) == THREADS


@in_town({"talk": TALK}, slack_limits={REPLIES: {"a_minute": 2, "spare": 1}})
async def test_a_thread_in_which_somebody_writes_is_read_at_once(place: Town) -> None:
    """While many threads wait to be read, a reply in one of them does not wait for the others, and is behind what was missed there."""
    roots, before = await back_after_replies(place)
    await place.until(lambda: place.called(REPLIES, before))
    (first,) = place.called(REPLIES, before)
    root = next(root for root in roots if root != first.args["ts"])
    place.say("ana", "now", root)
    await place.until(lambda: heard(place, root))
    assert any("heard missed" in message["text"] for message in place.thread(root))
    assert [call.args["ts"] for call in place.called(REPLIES, before)] == [first.args["ts"], root]


@in_town({"talk": TALK})
async def test_after_a_refusal_for_haste_nothing_is_read_until_the_time_is_over(place: Town) -> None:
    """Slack's 429 holds catch-up for as long as Slack says, then it reads all, and nothing is lost."""
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


@in_town({"talk": TALK}, slack_limits={REPLIES: {"a_minute": 3, "spare": 1}})
async def test_status_says_how_far_the_read_has_come(place: Town) -> None:
    """While threads wait to be read, whoever asks how things stand is told; afterwards nothing is said of it."""
    roots, before = await back_after_replies(place)
    await place.until(lambda: place.called(REPLIES, before))
    said = await place.hands.slash(place.user("ana"), place.channel(), "/sayso", "status")
    assert f"of {THREADS} threads are done; about" in str(said)
    await place.until(lambda: all(heard(place, root) for root in roots), most=1000)
    said = await place.hands.slash(place.user("ana"), place.channel(), "/sayso", "status")
    assert "are done" not in str(said)


TWICE = """
flow: twice
nodes:
  - {id: a, type: ask, with: {message: "First?", who: [channel]}}
  - {id: b, type: ask, with: {message: "Second?", who: [channel]}}
  - {id: c, type: message, with: {text: "heard {{ nodes.b.text }}"}}
"""


@in_town({"twice": TWICE})
async def test_a_thread_is_not_read_whose_last_word_came_long_before_the_bot_was_away(place: Town) -> None:
    """What people and the bot said in it was delivered; one in which somebody spoke meanwhile is read."""
    roots = [await place.start("ana", "twice") for _ in range(3)]
    for root in roots:
        place.say("ben", "yes", root)
    await place.settle()
    await asyncio.sleep(3 * NOTED_SECONDS)
    await place.close()
    place.sockets.away = True
    place.say("ben", "missed", roots[1])
    place.sockets.away = False
    before = len(place.calls)
    await place.open()
    await place.until(lambda: heard(place, roots[1]))
    await place.settle()
    assert [call.args["ts"] for call in place.called(REPLIES, before)] == [roots[1]]


@in_town({"talk": TALK})
async def test_a_channel_that_got_another_id_is_read(place: Town) -> None:
    """What was said around the change may not have been delivered."""
    root = await place.start("ana", "talk")
    place.sockets.away = True
    place.say("ben", "missed", root)
    place.sockets.away = False
    Admin(place.core).change_id(place.channel())
    await place.until(lambda: heard(place, root))
