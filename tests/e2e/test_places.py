"""Where people talk to the bot: direct messages, private channels, threads that it did not start, and places that are
closed to it."""

from __future__ import annotations

import asyncio

from bot.start.schedules import wanted_item
from engine.run.stored import utc_now
from tests.e2e.test_conversation import TWO, reactions, whispers
from tests.support.acting import Acts
from tests.support.bot import ThreadView, start_flow, whispered, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

# --- direct messages -----------------------------------------------------------------------------------------


@in_town({"two": TWO})
async def test_words_beside_the_thread_of_a_direct_message_answer_what_waits(
    workspace: TownWorkspace,
) -> None:
    """If one flow waits, a message outside its thread answers it; if two wait, sayso does not guess."""
    direct = workspace.dm("ana")
    thread = ThreadView(workspace, direct.id, await workspace.post("ana", direct, "two"))
    await thread.says("First question")
    ts = await workspace.post("ana", direct, "one")
    await thread.says("Second question")
    await workspace.wait_for(lambda: "white_check_mark" in str(_message(workspace, direct.id, ts)))
    other = ThreadView(workspace, direct.id, await workspace.post("ana", direct, "two"))
    await other.says("First question")
    lost = ThreadView(workspace, direct.id, await workspace.post("ana", direct, "which of them?"))
    await lost.says("reply in the thread of the one you mean")
    await thread.reply("ana", "two")
    await thread.says("first=one second=two")


def _message(workspace: Acts, channel: str, ts: str) -> object:
    return next(message for message in workspace.messages(channel) if message["ts"] == ts)


@in_town({"two": TWO})
async def test_a_direct_message_missed_while_the_bot_was_down_is_found(
    workspace: TownWorkspace, bot: Town
) -> None:
    """A start in a direct message counts after the restart."""
    direct = workspace.dm("ana")
    await asyncio.sleep(5)
    await bot.close()
    thread = ThreadView(workspace, direct.id, await workspace.post("ana", direct, "two"))
    await bot.open()
    await thread.says("First question")


# --- private channels and threads that were there before -----------------------------------------------------


@in_town({"two": TWO})
async def test_a_private_channel_is_like_any_other(workspace: TownWorkspace, bot: Town) -> None:
    """Start, reply, decision and the catch-up of a missed reply work in a private channel."""
    channel = workspace.add_channel("war-room", is_private=True)
    thread = await start_flow(workspace, "ana", channel.id, "two", says="First question")
    await bot.close()
    await thread.reply("ana", "one")
    await bot.open()
    await thread.says("Second question")
    await thread.reply("ana", "two")
    await thread.says("first=one second=two")


@in_town({"two": TWO})
async def test_a_mention_in_a_thread_of_people_attaches_to_that_thread(workspace: TownWorkspace) -> None:
    """The session lives in the thread in which the bot was called, and takes plain replies there."""
    root = await workspace.post("ben", "ops", "checkout is slow today")
    thread = ThreadView(workspace, "ops", root)
    early = await thread.reply("cleo", "I see it too")
    await thread.reply("ana", "@sayso two")
    await thread.says("First question")
    await thread.reply("ana", "one")
    await thread.says("Second question")
    await thread.reply("ana", "two")
    await thread.says("first=one second=two")
    assert reactions(thread, early) == []


@in_town({"two": TWO, "more": TWO.replace("flow: two", "flow: more")})
async def test_a_second_mention_in_a_thread_starts_a_second_session_there(workspace: TownWorkspace) -> None:
    """Two sessions share a thread: a flow's name starts another, a reply is asked which one it is for, and `status`
    tells of both; a mention with other words is a reply."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First question")
    await thread.reply("ana", "@sayso one")
    await thread.says("Second question")
    await thread.reply("ana", "@sayso run more")
    await thread.says("First question", timeout=20)
    await workspace.wait_for(lambda: len(_asked(thread, "First question")) == 2)
    await thread.reply("ana", "status")
    told = words(await thread.says("started"))
    await workspace.wait_for(
        lambda: any("*two* is" in text and "*more* is" in text for text in thread.texts())
    )
    assert told
    await thread.reply("ana", "second answer")
    menu = await thread.says("Several questions are open here")
    await thread.press("ana", menu, _label(menu, "Second question"))
    await thread.says("first=one second=second answer")


@in_town({"two": TWO, "more": TWO.replace("flow: two", "flow: more")})
async def test_control_words_are_for_those_sessions_that_their_author_may_steer(
    workspace: TownWorkspace,
) -> None:
    """Of two sessions in a thread each person pauses and cancels their own; who has none there is told so."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First question")
    await thread.reply("ben", "@sayso more")
    await workspace.wait_for(lambda: len(_asked(thread, "First question")) == 2)
    await thread.reply("ben", "pause")
    told = words(await thread.says("is paused by Ben Okafor"))
    assert "*more* is paused" in told
    assert "*two*" not in told
    await thread.reply("cleo", "resume")
    await workspace.wait_for(lambda: bool(whispers(workspace, "cleo")))
    await thread.reply("ben", "resume")
    assert "*more* continues" in words(await thread.says("continues."))
    await thread.reply("ben", "cancel")
    asked = await thread.says("Cancel *more*?")
    await thread.press("ben", asked, "Cancel run")
    assert (
        (await thread.says("was cancelled by"))["text"]
        .splitlines()[0]
        .endswith("cancelled by <@U0LOCALBEN>.")
    )
    await thread.reply("ana", "one")
    await thread.says("Second question")


def _asked(thread: ThreadView, question: str) -> list[str]:
    """The ts of the messages that put this question."""
    return [
        str(message["ts"])
        for message in thread.messages()
        if question in words(message)
        and "sayso_post" in str(message.get("metadata"))
        and "prompt:" in str(message["blocks"])
    ]


def _label(message: dict[str, object], part: str) -> str:
    elements = [
        element
        for block in message["blocks"]  # type: ignore[attr-defined]  # blocks are lists of objects
        for element in block.get("elements", [])
        if element.get("type") == "button"
    ]
    return next(str(element["text"]["text"]) for element in elements if part in element["text"]["text"])


# --- threads that the bot begins -----------------------------------------------------------------------------


@in_town({"two": TWO})
async def test_a_reply_before_the_session_of_a_slash_command_is_there_is_not_missed(
    workspace: TownWorkspace,
) -> None:
    """A reply under the bot's message before its session has begun is read once it has."""
    workspace.faults.fail("users.info", times=2)
    await workspace.slash("ana", "ops", "/sayso", "run two")

    def root() -> str:
        found = [str(m["ts"]) for m in workspace.messages("ops") if "started" in m.get("text", "")]
        return found[0]

    await workspace.wait_for(root)
    thread = ThreadView(workspace, "ops", root())
    await thread.reply("ana", "status")
    await thread.says("First question", timeout=30)
    await thread.says("*two* is", timeout=30)


@in_town({"two": TWO})
async def test_a_slash_command_where_the_bot_may_not_post_says_so(workspace: TownWorkspace) -> None:
    """The person who used the command sees that nothing was started, why, and what to do."""
    await workspace.slash("ana", "random", "/sayso", "run two")
    await whispered(workspace, "ana", "was not started")
    text = next(text for text in whispers(workspace, "ana") if "was not started" in text)
    assert "the bot is not in" in text
    assert "/invite" in text


REPORT = "flow: report\nnodes:\n  - {id: n, type: noop}\n"


@in_town({"report": REPORT}, admins=frozenset({"ben@example.com"}))
async def test_a_schedule_where_the_bot_may_not_post_tells_the_admins(
    workspace: TownWorkspace, bot: Town
) -> None:
    """A failed schedule sends the admins a direct message, at most one a day."""
    workspace.admin.archive(workspace.channel("releases"))
    place = workspace.channel("releases").id
    for minute in ("1", "2"):
        due = wanted_item(f"schedule:report:{minute}", "report", place, {}, why="scheduled: 0 9 * * *")
        bot.store.inbox.ingest([due], utc_now())
    direct = workspace.dm("ben").id
    await workspace.wait_for(lambda: bool(workspace.messages(direct)))
    last = "rooted:schedule:report:2"
    await workspace.wait_for(
        lambda: (row := bot.store.inbox.row(last)) is not None and row.outcome == "refused"
    )
    (message,) = workspace.messages(direct)
    assert "*report* was not started" in str(message["text"])
    assert "is archived" in str(message["text"])
