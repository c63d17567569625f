"""Messages sent while the bot was away are read, or their authors are told: edits, absences from a channel, archives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.inbound import decisions, payloads
from bot.inbound.triggers import DEAF
from engine.language.codec import decode
from tests.support.acting import Admin
from tests.support.inprocess import Called, DirectApp, Town
from tests.support.simulated import in_town

TALK = """
flow: talk
nodes:
  - {id: a, type: ask, with: {message: "Say it", who: [channel]}}
  - {id: b, type: message, with: {text: "heard {{ nodes.a.text }}"}}
"""
GATE = """
flow: gate
nodes:
  - {id: a, type: approval, with: {message: "Go?", approvers: [channel]}}
  - {id: b, type: message, with: {text: "went"}}
"""


@asynccontextmanager
async def missing(place: Town) -> AsyncIterator[None]:
    """The bot is down meanwhile, and back at the end."""
    await place.close()
    place.sockets.away = True
    yield
    place.sockets.away = False
    await place.open()
    await place.settle()


def shown(place: Town, root: str) -> str:
    """The texts of a thread."""
    return "\n".join(message["text"] for message in place.thread(root))


def edit(place: Town, ts: str, text: str) -> None:
    """Ana writes something else in the place of a message of hers."""
    message = place.core.state.message(place.channel().id, ts)
    assert message is not None
    place.core.edit(place.channel(), message, {"text": text})


def whispers(place: Town, since: int = 0) -> list[Called]:
    """What only Ana was told about an edit."""
    return [call for call in place.told("ana", since) if "dit" in call.args["text"]]


@in_town({"talk": TALK})
async def test_a_reply_from_while_the_bot_was_down_is_read_at_its_start(place: Town) -> None:
    """A reply that Slack did not deliver is found in the thread of the waiting session."""
    root = await place.start("ana", "talk")
    async with missing(place):
        place.say("ana", "meanwhile", root)
    await place.until(lambda: "heard meanwhile" in shown(place, root), most=300)


@in_town({"talk": TALK})
async def test_a_reply_from_while_no_socket_was_open_is_read_once_there_is_one(
    place: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the bot keeps running, only the reopened socket reveals the gap."""
    opened: list[bool] = []
    monkeypatch.setattr(DirectApp, "reconnected", lambda self: bool(opened and opened.pop()))
    root = await place.start("ana", "talk")
    place.sockets.away = True
    place.say("ana", "meanwhile", root)
    place.sockets.away = False
    opened.append(True)
    await place.until(lambda: "heard meanwhile" in shown(place, root), most=300)


@in_town({"talk": TALK})
async def test_a_reply_that_was_edited_before_anybody_heard_it_counts_as_it_is_now(place: Town) -> None:
    """Said and edited while the bot was down: the current words answer, once, and nobody is told of an edit."""
    root = await place.start("ana", "talk")
    async with missing(place):
        edit(place, place.say("ana", "won", root), "one")
    assert "heard one" in shown(place, root)
    async with missing(place):
        pass
    assert whispers(place) == []


@in_town({"talk": TALK})
async def test_a_mention_that_was_edited_before_anybody_heard_it_starts_its_flow(place: Town) -> None:
    """A slip that was mended while the bot was down is not a slip."""
    bot = place.core.state.bot_user_id
    await asyncio.sleep(5)
    async with missing(place):
        root = place.say("ana", f"<@{bot}> tlak")
        edit(place, root, f"<@{bot}> talk")
    assert "Say it" in shown(place, root)
    assert whispers(place) == []


@in_town({"talk": TALK})
async def test_whoever_edits_what_was_heard_is_told_though_the_bot_was_down(place: Town) -> None:
    """Heard, then edited while the bot was down: what was written first counts, and its author is told once."""
    root = await place.start("ana", "talk")
    ts = place.say("ana", "one", root)
    await place.settle()
    second = await place.start("ana", "talk")
    async with missing(place):
        edit(place, second, f"<@{place.core.state.bot_user_id}> never mind")
        edit(place, ts, "two")
    assert "heard one" in shown(place, root)
    said = [call.args["text"] for call in whispers(place)]
    assert said == ["Your edit was ignored: the flow runs with the original message."]
    async with missing(place):
        pass
    assert len(whispers(place)) == 1


TWICE = TALK.replace(
    "  - {id: b,", '  - {id: c, type: ask, with: {message: "And?", who: [channel]}}\n  - {id: b,'
)


@in_town({"talk": TWICE})
async def test_an_edit_of_what_was_read_before_is_found_where_the_thread_is_read(place: Town) -> None:
    """Missed and edited, so it was taken as it was by then; edited again in the next absence, in which somebody writes
    below it: its author is told, once."""
    root = await place.start("ana", "talk")
    async with missing(place):
        ts = place.say("ana", "won", root)
        edit(place, ts, "one")
    taken = place.store.inbox.row(f"message:{place.core.state.team_id}:{place.channel().id}:{ts}")
    message = place.core.state.message(place.channel().id, ts)
    assert taken is not None
    assert message is not None
    assert float(decode(taken.payload)["editedTs"]) == pytest.approx(float(message["edited"]["ts"]))
    async with missing(place):
        await asyncio.sleep(60)
        edit(place, ts, "two")
        place.say("ana", "more", root)
    assert "heard one" in shown(place, root)
    assert [call.args["text"] for call in whispers(place)] == [
        "Your edit was ignored: the original message counts."
    ]
    async with missing(place):
        pass
    assert len(whispers(place)) == 1


def test_an_edit_that_was_read_is_no_edit_when_slack_tells_of_it_late() -> None:
    """A message that was read after an edit is as it was by then; a later edit is one."""
    home = decisions.Home("T1", "A1", "U0BOT")
    said = {"type": "message", "user": "U1", "text": "one", "ts": "100.5", "thread_ts": "100.0"}
    found = payloads.missed({**said, "edited": {"user": "U1", "ts": "102.0"}}, home, "C1", DEAF)
    assert found is not None
    for ts, read in (("101.0", True), ("102.0", True), ("103.0", False)):
        change = {"message": {**said, "text": "other", "edited": {"user": "U1", "ts": ts}}}
        event = {"type": "message", "subtype": "message_changed", "channel": "C1", **change}
        edited = payloads.read({"type": "event_callback", "team_id": "T1", "event": event}, home)
        assert isinstance(edited, decisions.Take)
        assert payloads.read_before(decode(edited.item.payload), decode(found[0].payload)) is read


FORM = TALK.replace("who: [channel]", "form: {properties: {n: {type: number}}}").replace(".text", ".values.n")


@in_town({"talk": FORM})
async def test_an_edit_of_a_reply_in_a_thread_that_waits_is_told_though_the_bot_was_down(place: Town) -> None:
    """A reply that was refused and is mended by an edit: its author is told to send it as a new message."""
    root = await place.start("ana", "talk")
    ts = place.say("ana", "many", root)
    await place.settle()
    async with missing(place):
        edit(place, ts, "4")
    assert [call.args["text"] for call in whispers(place)] == [
        "Your edit was ignored. Please send it as a new message."
    ]
    assert "heard" not in shown(place, root)


@in_town({"talk": TALK})
async def test_an_edit_that_arrives_before_its_message_was_read_is_not_held_against_it(place: Town) -> None:
    """The message was missed, its edit came live: the words that both have are taken, and nobody is told otherwise."""
    root = await place.start("ana", "talk")
    await place.close()
    place.sockets.away = True
    ts = place.say("ana", "won", root)
    place.sockets.away = False
    await place.open()
    edit(place, ts, "one")
    await place.settle()
    heard = "heard one" in shown(place, root)
    assert heard or "heard won" in shown(place, root)
    assert len(whispers(place)) == (0 if heard else 1)


@in_town({"talk": TALK})
async def test_a_mention_that_an_edit_adds_starts_nothing_also_not_later(place: Town) -> None:
    """Written to somebody else and then edited: its author is told that edits are not read, and a restart reads no more
    into it."""
    root = place.say("ana", "talk")
    edit(place, root, f"<@{place.core.state.bot_user_id}> talk")
    await place.settle()
    assert [call.args["text"] for call in whispers(place)] == [
        "Edits are not read. Please send it as a new message."
    ]
    async with missing(place):
        pass
    assert place.store.sessions.heads() == []
    assert len(whispers(place)) == 1


@in_town({"gate": GATE})
async def test_an_edited_text_never_approves(place: Town) -> None:
    """Whatever it says, and however late it is read."""
    root = await place.start("ana", "gate")
    async with missing(place):
        edit(place, place.say("ben", "no", root) and place.say("ana", "hm", root), "approve")
    assert "went" not in shown(place, root)
    (prompt,) = place.store.prompts.rows()
    assert prompt.status == "shown"


@in_town({"talk": TALK})
async def test_a_reply_from_while_the_bot_was_out_of_the_channel_is_read_when_it_is_invited(
    place: Town,
) -> None:
    """Without a restart: the threads of the channel, and mentions in it."""
    root = await place.start("ana", "talk")
    bot, ops = place.core.state.users[place.core.state.bot_user_id], place.channel()
    place.core.leave(bot, ops)
    await place.settle()
    place.say("ana", "meanwhile", root)
    mention = place.say("ana", f"<@{bot.id}> talk")
    await place.settle()
    assert "heard" not in shown(place, root)
    place.core.join(bot, ops)
    await place.until(lambda: "heard meanwhile" in shown(place, root), most=300)
    await place.until(lambda: "Say it" in shown(place, mention), most=300)


@in_town({"talk": TALK})
async def test_a_reply_that_no_event_told_of_is_read_after_an_unarchive(place: Town) -> None:
    """The events of an archived channel may be lost; what is in its threads is read once it is none any more."""
    root, admin = await place.start("ana", "talk"), Admin(place.core)
    admin.archive(place.channel())
    await place.until(lambda: place.store.sessions.heads()[0].phase == "unreachable")
    place.channel().is_archived = False
    place.sockets.away = True
    place.say("ana", "meanwhile", root)
    place.sockets.away = False
    place.channel().is_archived = True
    admin.archive(place.channel(), archived=False)
    await place.until(lambda: "heard meanwhile" in shown(place, root), most=300)


@in_town({"talk": TALK})
async def test_a_reply_is_read_when_a_thread_is_within_reach_again_though_no_event_says_so(
    place: Town,
) -> None:
    """The invitation itself was missed: the first post that Slack takes shows that the thread can be read again."""
    root, ops = await place.start("ana", "talk"), place.channel()
    Admin(place.core).archive(ops)
    await place.until(lambda: place.store.sessions.heads()[0].phase == "unreachable")
    place.sockets.away, ops.is_archived = True, False
    place.say("ana", "meanwhile", root)
    place.sockets.away = False
    await place.until(lambda: "heard meanwhile" in shown(place, root), most=7200)
