"""Slack is down while prompts and answers pile up; limits everywhere; refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.workspace.faults import AwayMode
from engine.language.actors import Actor
from engine.run.remote_commands import item
from prompt_state import question_row as prompt_store
from prompt_state.question_row import PromptState
from tests.support.acting import Acts
from tests.support.bot import ThreadView, counted, start_flow, words
from tests.support.inprocess import Town
from tests.support.simulated import inhabited_town, simulated

STEPS = """
flow: steps
nodes:
  - {{id: first, type: ask, with: {{message: "First?", who: [channel, "local:ops"]}}}}
  - {{id: note, type: shell, with: {{run: [sh, -c, 'echo first >> {file}']}}}}
  - {{id: tell, type: message, with: {{text: "First is done."}}}}
  - {{id: second, type: ask, with: {{message: "Second?", who: [channel, "local:ops"]}}}}
  - {{id: end, type: shell, with: {{run: [sh, -c, 'echo second >> {file}']}}}}
"""


def open_prompts(bot: Town) -> list[PromptState]:
    """The questions that are open."""
    return prompt_store.waiting(bot.store.prompts)


def answer(bot: Town, prompt: PromptState) -> None:
    """Answer a question as somebody at a terminal does: with a request in the inbox."""
    given = {"promptId": prompt.prompt_id, "value": None, "text": "yes", "reason": None}
    actor = Actor.local("ops")
    request = item(f"cli:{prompt.prompt_id}", prompt.session_id, "answer", actor=actor, **given)
    bot.store.inbox.ingest([request], bot.bot.machine.now())


WHY = {
    "restricted_action": "not allowed to post there",
    "missing_scope": "the app lacks a permission",
    "thread_not_found": "the first message of the thread was deleted",
}


def direct(workspace: Acts, part: str) -> str:
    """What Ana was told in a direct message that has this in it; empty while there is none."""
    found = [m["text"] for m in workspace.messages(workspace.dm("ana")) if part in m["text"]]
    return str(found[0]) if found else ""


PLAIN = """
flow: plain
nodes:
  - {{id: first, type: ask, with: {{message: "First?"}}}}
  - {{id: second, type: ask, with: {{message: "Second?"}}}}
  - {{id: end, type: shell, with: {{run: [sh, -c, 'echo end >> {file}']}}}}
"""


def in_order(thread: ThreadView, *parts: str) -> bool:
    """Whether these stand once each in the thread, in this order, under the card."""
    posts = [words(message) for message in thread.messages()[1:]]
    places = [[i for i, text in enumerate(posts) if part in text] for part in parts]
    return all(len(found) == 1 for found in places) and places == sorted(places)


@pytest.mark.parametrize("mode", ["503", "refuse"])
@simulated
async def test_while_slack_is_away_work_goes_on_and_all_is_shown_afterwards_in_order(
    tmp_path: Path, mode: AwayMode
) -> None:
    """Answers at the terminal continue, what is to be said waits, and each thing stands once and in order in the end."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"steps": STEPS.format(file=file)}) as (workspace, bot):
        threads = [await start_flow(workspace, "ana", name, "steps") for name in ("ops", "releases")]
        for thread in threads:
            await thread.says("First?")
        workspace.faults.go_away(mode)
        for prompt in open_prompts(bot):
            answer(bot, prompt)
        await workspace.wait_for(lambda: len(counted(file)) == len(threads))
        await threads[0].reply("ana", "too late")
        calls = len(workspace.calls)
        await workspace.wait_for(lambda: len(workspace.calls) > calls + 3, timeout=40)
        assert not any(thread.find("Second?") for thread in threads)
        workspace.faults.come_back()
        for thread in threads:
            await thread.says("Second?", timeout=60)
            await thread.reply("ana", "yes")
            await thread.says("*Completed*", timeout=60)
        await workspace.settled()
    assert sorted(counted(file)) == ["first", "first", "second", "second"]
    assert all(in_order(thread, "First?", "First is done.", "Second?") for thread in threads)


@pytest.mark.parametrize("error", ["restricted_action", "missing_scope", "thread_not_found"])
@simulated
async def test_a_question_that_slack_refuses_is_not_given_up(tmp_path: Path, error: str) -> None:
    """Its session is out of reach, the requester is told why, and the question can be answered at the terminal."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"plain": PLAIN.format(file=file)}) as (workspace, bot):
        thread = await start_flow(workspace, "ana", "ops", "plain", says="First?")
        await thread.says("🟡 *Waiting*")
        await workspace.settled()
        workspace.faults.fail("chat.postMessage", times=1, error=error)
        await thread.reply("ana", "yes")
        await workspace.wait_for(lambda: direct(workspace, "I cannot post in"))
        assert WHY[error] in direct(workspace, "I cannot post in")
        assert [prompt.path for prompt in open_prompts(bot)] == ["second"]
        channel = workspace.channel("ops")
        workspace.admin.archive(channel)
        workspace.admin.archive(channel, archived=False)
        await thread.says("Second?")
        await thread.reply("ana", "yes")
        await thread.says("*Completed*")
    assert counted(file) == ["end"]


@simulated
async def test_a_question_whose_form_is_refused_is_shown_as_text(tmp_path: Path) -> None:
    """Better plain than not at all, with the command that answers it."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"plain": PLAIN.format(file=file)}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "plain", says="First?")
        await thread.says("🟡 *Waiting*")
        await workspace.settled()
        workspace.faults.fail("chat.postMessage", times=1, error="msg_too_long")
        await thread.reply("ana", "yes")
        asked = await thread.says("Second?")
        assert "sayso prompts answer" in words(asked)
        await thread.reply("ana", "yes")
        await thread.says("*Completed*")
    assert counted(file) == ["end"]


@simulated
async def test_one_missing_right_stops_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cards may not be edited: the log names the right, and questions are asked and answered all the same."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"plain": PLAIN.format(file=file)}) as (workspace, _):
        workspace.faults.fail("chat.update", times=1_000, error="missing_scope")
        thread = await start_flow(workspace, "ana", "ops", "plain", says="First?")
        await thread.reply("ana", "yes")
        await thread.says("Second?")
        await thread.reply("ana", "yes")
        await workspace.wait_for(lambda: counted(file) == ["end"])
    assert "missing_scope" in caplog.text
