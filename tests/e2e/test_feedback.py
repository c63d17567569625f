"""Feedback on an agent's answer: where its buttons stand, what becomes of a press, and how long it is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bot.cli.show import Look, _show
from bot.compose.retention import Retention, at_once, full_round
from bot.config.session_files import SessionFiles
from bot.config.settings import AgentSettings
from bot.handlers import clicks
from bot.intents.agent_rows import FEEDBACK, feedback_in, feedback_row
from bot.rendering.agents import RATE
from bot.terminal.console import Place
from engine.language import timestamps
from engine.language.codec import decode
from tests.support.inprocess import Town
from tests.support.simulated import inhabited_town, simulated

ASKED = """
flow: asked
nodes:
  - id: look
    type: agent
    with: {prompt: "Why is web slow?", tools: [ask_human]}
  - {id: tell, type: message, with: {text: "That was it."}}
"""
ANSWER = "look/turn[2]"
SCRIPT = """
turns:
  - text: I look at it.
    tools: [{name: ask_human, input: {question: "Which web?"}}]
  - text: It is the cache.
"""


@asynccontextmanager
async def answered(folder: Path) -> AsyncIterator[tuple[Town, str]]:
    """A bot whose agent has answered in a thread, which has ended; and its session."""
    script = folder / "asked.yml"
    script.write_text(SCRIPT)
    async with inhabited_town(folder, {"asked": ASKED}, agents=AgentSettings(script=script)) as (_, bot):
        root = await bot.start("ana", "asked")
        bot.say("ana", "web-1", root)
        await bot.until(lambda: "That was it." in str(bot.thread(root)))
        await bot.settle()
        (head,) = bot.store.sessions.heads()
        assert head.status == "complete"
        yield bot, head.session_id


def rated(bot: Town) -> list[tuple[str, str]]:
    """What is recorded of the answer: what was said of it, and by whom."""
    (head,) = bot.store.sessions.heads()
    said = feedback_in(bot.store.outbox.of(head.session_id, FEEDBACK))
    assert {one.turn for one in said} <= {ANSWER}
    return [(one.value, str(one.person["name"])) for one in said]


def root_of(bot: Town) -> str:
    """The message that the only thread begins with."""
    (head,) = bot.store.sessions.heads()
    return str(head.thread_key).split(":")[2]


async def press(bot: Town, who: str, what: str, **changed: Any) -> str:
    """Press a button of the answer as somebody; what that person is told. `changed` are fields of its message."""
    message, (block, element) = bot.find(root_of(bot), RATE)
    button = next(
        one for one in (element["positive_button"], element["negative_button"]) if one["text"]["text"] == what
    )
    since = len(bot.calls)
    await bot.press(who, {**message, **changed}, (block, element), button["value"])
    await bot.settle()
    (told,) = bot.told(who, since)
    return str(told.args["text"])


@simulated
async def test_only_the_final_answer_has_buttons(tmp_path: Path) -> None:
    """Neither what the agent says on its way nor what the flow says."""
    async with answered(tmp_path) as (bot, _):
        (rows,) = [one for one in bot.thread(root_of(bot)) if RATE in str(one.get("blocks"))]
        assert "It is the cache." in str(rows["blocks"])
        assert rows["blocks"][-1]["type"] == "context_actions"


@simulated
async def test_the_last_word_of_each_person_counts(tmp_path: Path) -> None:
    """Each press is answered to its author alone; whoever changes their mind is recorded once, also after a restart."""
    async with answered(tmp_path) as (bot, _):
        before = bot.thread(root_of(bot))
        assert "👍 Noted as helpful" in await press(bot, "ana", "Helpful")
        assert "👍" in await press(bot, "ana", "Helpful")
        assert "👎" in await press(bot, "ben", "Not helpful")
        await bot.close()
        await bot.open()
        assert "👎" in await press(bot, "ana", "Not helpful")
        assert rated(bot) == [("bad", "Ana Ruiz"), ("bad", "Ben Okafor")]
        assert bot.thread(root_of(bot)) == before


async def a_change_is_recorded(folder: Path) -> None:
    """Somebody presses one button and then the other."""
    async with answered(folder) as (bot, _):
        await press(bot, "ana", "Helpful")
        await press(bot, "ana", "Not helpful")
        assert rated(bot) == [("bad", "Ana Ruiz")]


@simulated
async def test_a_first_word_that_stays_is_noticed(tmp_path: Path) -> None:
    """Seeded fault: a second press of the same person changes nothing."""

    def kept(*args: Any) -> Any:
        return feedback_row(*args).but(replace=False)

    with patch.object(clicks, "feedback_row", kept), pytest.raises((AssertionError, ValueError)):
        await a_change_is_recorded(tmp_path)


@simulated
async def test_who_cannot_read_the_channel_has_no_say(tmp_path: Path) -> None:
    """A press that comes all the same is refused, and nothing is recorded."""
    async with answered(tmp_path) as (bot, _):
        bot.newcomer("eve", member=False)
        assert "Only members of this channel can see this." in await press(bot, "eve", "Helpful")
        assert rated(bot) == []


@simulated
async def test_a_press_on_another_message_than_the_answers_does_not_count(tmp_path: Path) -> None:
    """An old copy says so."""
    async with answered(tmp_path) as (bot, _):
        assert "This button is out of date" in await press(bot, "ana", "Helpful", ts="1.000001")
        assert rated(bot) == []


@simulated
async def test_feedback_goes_with_its_session(tmp_path: Path) -> None:
    """Retention deletes both; a press after that is told that the button is not known, and leaves nothing."""
    async with answered(tmp_path) as (bot, session_id):
        await press(bot, "ana", "Helpful")
        message, (block, element) = bot.find(root_of(bot), RATE)
        (row,) = bot.store.outbox.of(session_id, FEEDBACK)
        kept = Retention(bot.store, SessionFiles(bot.settings.home), None, days=1)
        at_once(full_round(kept, timestamps.after(bot.engine.now(), 2 * 86400)))
        assert bot.store.outbox.of(session_id, FEEDBACK) == []
        since = len(bot.calls)
        await bot.press("ana", message, (block, element), element["negative_button"]["value"])
        await bot.settle()
        (told,) = bot.told("ana", since)
        assert "no longer exists" in told.args["text"]
        assert bot.store.outbox.row(row.key) is None


@simulated
async def test_whoever_runs_the_flow_sees_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sayso sessions show` names who said what of which answer, in words and as JSON."""
    async with answered(tmp_path) as (bot, session_id):
        await press(bot, "ana", "Helpful")
        head = bot.store.sessions.head(session_id)
        assert head is not None
        _show(
            bot.store,
            head,
            Place(),
            Look(conversation=False, events=False, at=None, whole=False, as_json=False),
        )
        assert "helpful: look, says Ana Ruiz" in capsys.readouterr().out
        _show(
            bot.store,
            head,
            Place(),
            Look(conversation=False, events=False, at=None, whole=False, as_json=True),
        )
        (said,) = decode(capsys.readouterr().out.encode())["feedback"]
        assert (said["turn"], said["value"], said["person"]["name"]) == (ANSWER, "good", "Ana Ruiz")
