"""What agents say, in the thread: while it comes, when it is whole, and whatever fails or is killed in between.

Real outbox, real slack_sdk, the local workspace over its sockets.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.intents.agent_rows import (
    agent_rows,
    compacted_row,
    cut_row,
    said_rows,
    text_key,
    tools_key,
    tools_rows,
    writing_row,
)
from bot.outbound.agent_messages import Pieces
from bot.rendering.agents import MOST_PART
from engine.journal.events import AgentMessage, NodeRetried
from engine.journal.state import State
from engine.messages.turns import TextDelta
from tests.bot.outbound_kit import ASK, Rig, running_rig
from tests.support.workspace import Json

TURN = "diagnose/turn[1]"
NEXT = "diagnose/turn[2]"


def text(*parts: str) -> list[Json]:
    """An assistant's content of text blocks."""
    return [{"type": "text", "text": part} for part in parts]


def call(name: str = "shell", **values: Any) -> Json:
    """An assistant's block that asks for a tool."""
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": values}


async def started(rig: Rig, channel: str = "ops") -> tuple[str, State]:
    """A session that waits, and its state."""
    session_id = await rig.start(ASK, channel)
    if rig.outbound is None:
        rig.send()
    await rig.shown(session_id)
    await rig.settled(f"card:{session_id}")
    return session_id, await rig.engine.state(session_id)


async def writing(rig: Rig, words: str) -> tuple[str, State]:
    """A session whose agent has said these words and writes on, as the thread shows."""
    session_id, state = await started(rig)
    hears(rig, session_id, words)
    await until_said(rig, session_id, [f"{words.strip()}\n✍️ _writing …_"])
    return session_id, state


def shows(message: Json) -> str:
    """What a message of an agent shows: its markdown, and its small print."""
    lines = []
    for block in message.get("blocks") or []:
        if block["type"] == "markdown":
            lines.append(block["text"])
        elif block["type"] == "context":
            lines += [element["text"] for element in block["elements"]]
    return "\n".join(lines)


async def said(rig: Rig, session_id: str) -> list[str]:
    """What the agent's messages show, in the order of the thread; questions, cards and notes left out."""
    found = []
    for message in await rig.thread(session_id):
        key = ((message.get("metadata") or {}).get("event_payload") or {}).get("key", "")
        if key.startswith("agent:"):
            found.append(shows(message))
    return found


def hears(rig: Rig, session_id: str, words: str, turn: str = TURN) -> None:
    """The model says more."""
    assert rig.outbound is not None
    rig.outbound.streams.heard(session_id, turn, TextDelta(0, words))


def retried(rig: Rig, state: State) -> None:
    """The model call failed and is made again later: the event that says so, as it is on the wire."""
    assert rig.outbound is not None
    failed = {"error": {"type": "stream_cut", "message": "cut"}, "attempt": 1, "timer_id": "t", "due_at": "x"}
    event = NodeRetried(seq=1, timestamp="x", path=TURN, node_id="turn[1]", **failed)
    rig.outbound.streams.happened(state, [event])


async def until_said(rig: Rig, session_id: str, wanted: list[str]) -> None:
    """Wait until the agent's messages show this."""

    async def there() -> bool:
        return await said(rig, session_id) == wanted

    try:
        await rig.until(there)
    except TimeoutError:
        assert await said(rig, session_id) == wanted


# --- what stays --------------------------------------------------------------------------------------------


async def test_a_turn_stands_in_one_message_and_its_calls_get_their_marks(rig: Rig) -> None:
    """Text and calls of a turn are one message; a call's line says that it runs, and then how it went."""
    session_id, state = await started(rig)
    content = [
        *text("I look at **the pods**."),
        call(command="kubectl get pods"),
        call("logs", service="web"),
    ]
    await rig.put(*said_rows(state, TURN, content, interrupted=False))
    await rig.settled(tools_key(session_id, TURN))
    await until_said(
        rig,
        session_id,
        ["I look at **the pods**.\n⚙️ shell: `kubectl get pods` …\n⚙️ logs: `web` …"],
    )
    results = {f"{TURN}/tool[1]": {"isError": True}}
    await rig.put(*tools_rows(state, TURN, content, results))
    await rig.put(*tools_rows(state, TURN, content, {**results, f"{TURN}/tool[0]": {"isError": False}}))
    await rig.settled(tools_key(session_id, TURN))
    lines = "⚙️ shell: `kubectl get pods` ✅\n⚙️ logs: `web` ❌"
    assert await said(rig, session_id) == [f"I look at **the pods**.\n{lines}"]


async def test_questions_have_no_line_and_answers_that_are_data_are_not_shown(rig: Rig) -> None:
    """A question is a message of its own, and data is for the flow."""
    session_id, state = await started(rig)
    content = [*text("One thing."), call("ask_human", question="Which?"), call("logs", service="web")]
    await rig.put(*said_rows(state, TURN, content, interrupted=False))
    await rig.put(*said_rows(state, NEXT, text('{"fixed": true}'), interrupted=False, structured=True))
    await rig.settled(text_key(session_id, NEXT))
    assert await said(rig, session_id) == ["One thing.\n⚙️ logs: `web` …"]


async def test_turns_share_a_message_until_something_stands_below(rig: Rig) -> None:
    """The next turn is added to the last message; after anything else in the thread it begins a new one."""
    session_id, state = await started(rig)
    await rig.put(*said_rows(state, TURN, text("One."), interrupted=False))
    await rig.put(*said_rows(state, NEXT, text("Two."), interrupted=False))
    await rig.settled(text_key(session_id, NEXT))
    assert await said(rig, session_id) == ["One.\nTwo."]
    thread = state.thread or {}
    ts = await rig.workspace.post("ana", thread["channel"], "And?", thread_ts=thread["threadTs"])
    assert rig.outbound is not None
    rig.outbound.said(thread["key"], ts)
    await rig.put(*said_rows(state, "diagnose/turn[3]", text("Three."), interrupted=False))
    await rig.settled(text_key(session_id, "diagnose/turn[3]"))
    assert await said(rig, session_id) == ["One.\nTwo.", "Three."]


async def test_a_long_text_goes_on_in_further_messages(rig: Rig) -> None:
    """A text that is too long for one message is shown whole in several, and code is closed and opened again."""
    session_id, state = await started(rig)
    long = "```\n" + "".join(f"line {number}\n" for number in range(900)) + "```\nThe end."
    await rig.put(*said_rows(state, TURN, text(long), interrupted=False))
    await rig.settled(text_key(session_id, TURN, 2))
    shown = await said(rig, session_id)
    assert len(shown) == 3
    assert all(len(one) <= MOST_PART + 10 and one.count("```") % 2 == 0 for one in shown)
    lines = [line for one in shown for line in one.splitlines() if line.startswith("line")]
    assert lines == [f"line {number}" for number in range(900)]


async def test_an_interrupted_text_says_so(rig: Rig) -> None:
    """What a stop cut short stays in the thread and is marked."""
    session_id, state = await started(rig)
    await rig.put(*said_rows(state, TURN, text("I was about to"), interrupted=True))
    await rig.settled(text_key(session_id, TURN))
    assert await said(rig, session_id) == ["I was about to\n✋ _stopped here_"]


async def test_a_shortened_conversation_is_noted(rig: Rig) -> None:
    """Compaction is told in one line."""
    session_id, state = await started(rig)
    await rig.put(compacted_row(state, TURN, 42))
    await rig.settled(f"agent:{session_id}:{TURN}:compacted")
    (note,) = await said(rig, session_id)
    assert "42 earlier messages are now kept as a summary" in note


async def test_thinking_that_was_left_out_is_noted_once(rig: Rig) -> None:
    """The API says so with every answer from then on; people read it once."""
    session_id, state = await started(rig)
    for number, turn in enumerate((TURN, NEXT)):
        event = AgentMessage(
            seq=90 + number,
            timestamp=state.created_at,
            path="diagnose",
            node_id="diagnose",
            role="assistant",
            source="model",
            content=text(f"Answer {number}."),
            turn=turn,
            dropped={"prefix_binding_mismatch": 2},
        )
        await rig.put(*agent_rows(state, state, event, [event]))
        await rig.settled(text_key(session_id, turn))
    await rig.settled(f"agent:{session_id}:diagnose:dropped")
    assert (
        "\n".join(await said(rig, session_id)).count("earlier thinking in this conversation was dropped") == 1
    )


# --- while it comes ----------------------------------------------------------------------------------------


async def test_text_is_shown_while_it_comes_and_is_whole_at_the_end(rig: Rig) -> None:
    """The first words are posted at once, more of them by editing, and the whole text takes their place."""
    session_id, state = await writing(rig, "The pods ")
    hears(rig, session_id, "restart")
    await until_said(rig, session_id, ["The pods restart\n✍️ _writing …_"])
    await rig.put(*said_rows(state, TURN, text("The pods restart often."), interrupted=False))
    await until_said(rig, session_id, ["The pods restart often."])


async def test_a_turn_that_begins_again_takes_the_place_of_the_first_attempt(rig: Rig) -> None:
    """After a failed stream the new attempt's text is in the same message, and nothing of the old one is left."""
    session_id, state = await started(rig)
    long = "old " * 1_500
    hears(rig, session_id, long)

    async def two() -> bool:
        return len(await said(rig, session_id)) == 2

    await rig.until(two)
    retried(rig, state)
    hears(rig, session_id, "new")
    await rig.put(*said_rows(state, TURN, text("new text"), interrupted=False))
    await until_said(rig, session_id, ["new text"])


async def test_words_of_a_failed_call_are_gone_before_the_next_one_speaks(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model call that failed is made again later, hours later perhaps: what it said is not part of the answer."""
    session_id, state = await writing(rig, "Half an answer that nobody")
    await rig.settled(text_key(session_id, TURN))
    drawn, draw = asyncio.Event(), Pieces.draw

    async def told(self: Pieces, *args: Any, **more: Any) -> None:
        await draw(self, *args, **more)
        drawn.set()

    monkeypatch.setattr(Pieces, "draw", told)
    retried(rig, state)
    await drawn.wait()
    assert await said(rig, session_id) == ["✍️ _writing …_"]


async def test_a_broken_text_that_nothing_follows_is_taken_away(rig: Rig) -> None:
    """If the attempt that counts says nothing and only calls a tool, the words of the broken one are gone."""
    session_id, state = await writing(rig, "Never mind")
    await rig.put(*said_rows(state, TURN, [call(command="ls")], interrupted=False))
    await rig.settled(tools_key(session_id, TURN))
    await until_said(rig, session_id, ["⚙️ shell: `ls` …"])


async def test_a_turn_that_is_given_up_does_not_stay_open(rig: Rig) -> None:
    """Text of a turn that never ends (an abort, a failure) is marked as cut off; where none was shown, nothing is."""
    session_id, state = await writing(rig, "Half a")
    await rig.put(cut_row(state, TURN), cut_row(state, NEXT))
    await rig.settled(text_key(session_id, NEXT))
    await until_said(rig, session_id, ["Half a\n✂️ _cut off here; this is not part of the conversation_"])


# --- failures ----------------------------------------------------------------------------------------------


async def test_a_limit_while_streaming_delays_and_loses_nothing(rig: Rig) -> None:
    """Slack limits edits for a while: the text comes later, and whole."""
    session_id, state = await writing(rig, "a ")
    rig.workspace.faults.ratelimit("chat.update", times=2, retry_after=0)
    hears(rig, session_id, "b ")
    await until_said(rig, session_id, ["a b\n✍️ _writing …_"])
    rig.workspace.faults.ratelimit("chat.update", times=2, retry_after=0)
    await rig.put(*said_rows(state, TURN, text("a b c"), interrupted=False))
    await until_said(rig, session_id, ["a b c"])


async def test_edits_that_fail_do_not_keep_the_text_away(rig: Rig) -> None:
    """Every edit fails for a time, some of them after their effect: at the end the whole text is there, once."""
    session_id, state = await writing(rig, "a ")
    rig.workspace.faults.fail("chat.update", times=3)
    rig.workspace.faults.effect_then_fail("chat.update", times=1)
    await rig.put(*said_rows(state, TURN, text("a b c"), interrupted=False))
    await rig.settled(text_key(session_id, TURN))
    assert await said(rig, session_id) == ["a b c"]


async def test_a_message_that_somebody_deleted_is_posted_anew(rig: Rig) -> None:
    """The text of an agent is there at the end although its message was deleted while it was written."""
    session_id, state = await writing(rig, "a ")
    row = await rig.row(text_key(session_id, TURN))
    where = await rig.settled(row.key)
    await rig.client.chat_delete(channel=where["channel"], ts=where["ts"])
    await rig.put(*said_rows(state, TURN, text("a b c"), interrupted=False))
    await until_said(rig, session_id, ["a b c"])


async def test_a_kill_while_it_is_written_leaves_neither_two_texts_nor_an_open_one(rig: Rig) -> None:
    """The process dies with half a text in the thread: the whole one takes its place after the start."""
    session_id, state = await writing(rig, "Half a")
    await rig.crash()
    rig.send()
    await rig.put(*said_rows(state, TURN, text("Half a text, whole."), interrupted=False))
    await until_said(rig, session_id, ["Half a text, whole."])


async def test_a_kill_between_the_post_and_its_record_posts_nothing_again(rig: Rig) -> None:
    """The answer to the first post is lost with the process: the message is found by its key and edited."""
    session_id, state = await started(rig)
    rig.workspace.faults.effect_then_fail("chat.postMessage")
    hears(rig, session_id, "Half a")

    async def there() -> bool:
        return bool(await said(rig, session_id))

    await rig.until(there)
    await rig.crash()
    rig.send()
    await rig.put(*said_rows(state, TURN, text("Whole."), interrupted=False))
    await until_said(rig, session_id, ["Whole."])


class Killing:
    """Lets the process know of nothing any more from the `at`-th record of the outbox on."""

    def __init__(self, at: int) -> None:
        self.left = at

    @property
    def struck(self) -> bool:
        """Whether it came to that."""
        return self.left <= 0

    async def __call__(self, method: str) -> None:
        """Before each call of the store."""
        if method in ("attempt", "finish"):
            self.left -= 1
            if self.left <= 0:
                raise RuntimeError("killed")


async def test_a_kill_at_every_record_shows_each_text_once(tmp_path: Path) -> None:
    """Whatever was recorded when the process died, text, calls and the next turn are there once after the start."""
    for at in range(1, 30):
        (tmp_path / str(at)).mkdir()
        async with running_rig(tmp_path / str(at)) as rig:
            killing = Killing(at)
            await killed_and_started_again(rig, killing)
        if not killing.struck:
            break
    assert 4 < at < 29


async def killed_and_started_again(rig: Rig, killing: Killing) -> None:
    """Two turns of an agent, a kill, and a start; each text is there once at the end."""
    session_id, state = await started(rig)
    rig.writer.before = killing
    content = [*text("One."), call(command="ls")]
    await rig.put(*said_rows(state, TURN, content, interrupted=False))
    await rig.put(*tools_rows(state, TURN, content, {f"{TURN}/tool[0]": {"isError": False}}))
    await rig.put(*said_rows(state, NEXT, text("Two."), interrupted=False))

    async def over() -> bool:
        row = await rig.row(text_key(session_id, NEXT))
        return killing.struck or row.state == "sent"

    await rig.until(over)
    await rig.crash()
    rig.writer.before = None
    rig.send()
    await rig.settled(tools_key(session_id, TURN))
    await rig.settled(text_key(session_id, NEXT))
    shown = "\n".join(await said(rig, session_id))
    assert shown == "One.\n⚙️ shell: `ls` ✅\nTwo."


async def test_a_text_that_was_begun_and_never_ended_is_not_posted_by_the_next_process(rig: Rig) -> None:
    """A row for text that only the dead process knew shows nothing by itself."""
    session_id, state = await started(rig)
    await rig.put(writing_row(state, TURN, 0))
    result = await rig.settled(text_key(session_id, TURN))
    assert result["dropped"] is True
    assert await said(rig, session_id) == []


async def test_what_another_program_says_with_the_bots_token_is_not_taken_for_the_agents_words(
    rig: Rig,
) -> None:
    """The agent's post was lost: a message of the bot's without a key stays as it is, and the text is posted."""
    session_id, state = await started(rig)
    (root, *_) = await rig.thread(session_id)
    await rig.client.chat_postMessage(
        channel=rig.workspace.channel("ops").id, thread_ts=root["ts"], text="backup done"
    )
    rig.workspace.faults.fail("chat.postMessage", times=1, status=500)
    await rig.put(*said_rows(state, TURN, text("Found it."), interrupted=False))
    await until_said(rig, session_id, ["Found it."])
    assert "backup done" in [message["text"] for message in await rig.thread(session_id)]


async def test_an_edit_does_not_wait_for_a_thread_with_the_turn_that_the_thread_may_need(rig: Rig) -> None:
    """Whoever changes a thread may wait for the very turn that an edit has reserved: the edit gives it back, and comes later."""
    session_id, _ = await writing(rig, "Looking ")
    assert rig.outbound is not None
    pieces = rig.outbound._pieces
    row = await rig.row(text_key(session_id, TURN))
    assert row is not None
    async with pieces.lock(row.lane), asyncio.timeout(10):
        await rig.outbound.streams._bring(pieces.lives[session_id, TURN], 0, row)
    hears(rig, session_id, "further ")
    await until_said(rig, session_id, ["Looking further\n✍️ _writing …_"])


@pytest.mark.parametrize("ends", ["an answer that is data", "a call that is given up"])
async def test_a_text_of_which_nothing_stays_is_kept_no_longer(rig: Rig, ends: str) -> None:
    """A turn that showed nothing has ended for this process too: neither its words nor the task that shows them are kept."""
    session_id, state = await started(rig)
    assert rig.outbound is not None
    streams = rig.outbound.streams
    streams.heard(session_id, TURN, TextDelta(0, " "))
    (task,) = streams._tasks.values()
    data = ends == "an answer that is data"
    rows = (
        said_rows(state, TURN, text("{}"), interrupted=False, structured=True)
        if data
        else [cut_row(state, TURN)]
    )
    await rig.put(*rows)
    await rig.settled(text_key(session_id, TURN))
    await asyncio.wait_for(task, 5)
    assert streams.pieces.lives == {}
