"""Several calls of an agent that wait for people: one message, decided one by one or with one press."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bot.config.settings import AgentSettings
from bot.rendering.calls import ALL
from engine.decide.commands import Answer, Edit
from engine.journal.events import PromptAnswered, decode_event
from engine.journal.state import State
from engine.language.actors import Actor
from tests.e2e.test_home_killed import Dying, below
from tests.support.inprocess import Town
from tests.support.simulated import inhabited_town, simulated

ASKED = """
flow: asked
tools:
  mark:
    description: Mark a host
    input: {host: {type: string}}
    type: set
    with: {host: "{{ input.host }}"}
nodes:
  - id: look
    type: agent
    with:
      prompt: "Mark the hosts"
      tools: [mark]
      approvals:
        mark:
          - {when: "{{ input.host == 'db' }}", approvers: ["@sre"], exclude_requester: true}
          - {verdicts: [approve, edit, reject, answer]}
"""
MOST_WRITES = 6
"""Writes from the press on until the last call is decided."""
CALLS = "{name: mark, input: {host: web-1}}, {name: mark, input: {host: web-2}}"
SCRIPT = "turns:\n  - {text: I mark them., tools: [CALLS]}\n  - text: Marked.\n"


@asynccontextmanager
async def asked(folder: Path, calls: str = CALLS) -> AsyncIterator[tuple[Town, str]]:
    """A bot whose agent waits for the approval of these calls; and the thread."""
    script = folder / "asked.yml"
    script.write_text(SCRIPT.replace("CALLS", calls))
    async with inhabited_town(folder, {"asked": ASKED}, agents=AgentSettings(script=script)) as (_, bot):
        root = await bot.start("ana", "asked")
        await bot.until(lambda: "need approval" in str(bot.thread(root)))
        await bot.settle()
        yield bot, root


def cards(bot: Town, root: str) -> list[dict[str, Any]]:
    """The messages with calls that wait or waited."""
    return [one for one in bot.thread(root) if "calls" in one["text"].partition("\n")[0]]


def values_of(message: dict[str, Any]) -> list[str]:
    """What the buttons of a message are called, in their order."""
    found = (element for block in message["blocks"] for element in block.get("elements", ()))
    return [str(one["text"]["text"]) for one in found if one.get("type") == "button"]


async def state_of(bot: Town) -> State:
    """The only session."""
    (head,) = bot.store.sessions.heads()
    return await bot.engine.state(head.session_id)


def member(bot: Town, name: str) -> Actor:
    """Somebody of the channel, as the engine gets to know them."""
    team = bot.core.state.team_id
    return Actor(bot.user(name).id, name=name, team_id=team, in_channel=True, facts_known=True)


async def press_all(bot: Town, root: str, who: str) -> None:
    """Press `Approve all`."""
    message, where = bot.find(root, ALL)
    await bot.press(who, message, where, where[1]["value"])


@simulated
async def test_calls_of_one_answer_share_a_message_and_one_press_approves_each_by_itself(
    tmp_path: Path,
) -> None:
    """One message has the buttons of both; the press becomes an answer of each prompt, and the message says so."""
    async with asked(tmp_path) as (bot, root):
        (card,) = cards(bot, root)
        assert values_of(card) == ["Approve all (2)", *(["Approve", "Reject", "Answer…", "Edit…"] * 2)]
        await press_all(bot, root, "ana")
        await bot.until(lambda: "Marked." in str(bot.thread(root)))
        await bot.settle()
        state = await state_of(bot)
        assert [prompt.answered_by for prompt in state.prompts.values()] == ["U0LOCALANA"] * 2
        assert len({prompt.covers["digest"] for prompt in state.prompts.values() if prompt.covers}) == 2
        (card,) = cards(bot, root)
        assert values_of(card) == []
        assert str(card["blocks"]).count("*Approved* by <@U0LOCALANA>") == 2


@simulated
async def test_one_call_is_decided_while_the_other_waits_on_the_same_message(tmp_path: Path) -> None:
    """A press of one call's button decides that one; the other keeps its buttons, and nothing is left for all."""
    async with asked(tmp_path) as (bot, root):
        message, where = bot.find(root, "sayso:option:1")
        await bot.press("ana", message, where, where[1]["value"])
        await bot.settle()
        (card,) = cards(bot, root)
        assert values_of(card) == ["Approve", "Reject", "Answer…", "Edit…"]
        assert "*Rejected* by <@U0LOCALANA>" in str(card["blocks"])
        assert len((await state_of(bot)).open_prompts) == 1


@simulated
async def test_one_press_approves_only_what_its_author_may_decide(tmp_path: Path) -> None:
    """A call that the requester may not approve stays open, and only they are told."""
    async with asked(tmp_path, f"{CALLS}, {{name: mark, input: {{host: db}}}}") as (bot, root):
        since = len(bot.calls)
        await press_all(bot, root, "ana")
        await bot.settle()
        state = await state_of(bot)
        (left,) = [state.prompts[key] for key in state.open_prompts]
        assert left.tool is not None
        assert left.tool["input"] == {"host": "db"}
        assert "1 of them" in str([call.args["text"] for call in bot.told("ana", since)])


async def pressed_while_it_dies(folder: Path, dies_at: int) -> None:
    """Approve all, with a process that dies at this write (0: at none) and another one after it."""
    async with asked(below(folder, dies_at)) as (bot, root):
        since, dying, taken = len(bot.calls), Dying(bot.store, dies_at), True
        try:
            await press_all(bot, root, "ana")
        except AssertionError:  # not acknowledged: Slack says so, and they press again
            taken = False
        if dying.at:
            await bot.until(lambda: dying.dead)
            with suppress(Exception):
                await bot.close()
            await bot.open()
        if not taken:
            await press_all(bot, root, "ana")
        await bot.until(lambda: "Marked." in str(bot.thread(root)))
        await bot.settle()
        assert bot.told("ana", since) == []
        assert len(cards(bot, root)) == 1
        assert values_of(cards(bot, root)[0]) == []
        (head,) = bot.store.sessions.heads()
        events = [decode_event(body) for body in bot.store.sessions.journal(head.session_id)]
        answered = [event.prompt_id for event in events if isinstance(event, PromptAnswered)]
        assert sorted(answered) == sorted((await state_of(bot)).prompts)


@simulated
async def test_a_press_for_all_counts_once_wherever_the_process_dies(tmp_path: Path) -> None:
    """Before each write in turn, from the press to the decision of the last call: each is approved once, none is lost, and
    nobody is told that one was closed already."""
    for number in range(MOST_WRITES + 1):
        await pressed_while_it_dies(tmp_path, number)


@simulated
async def test_a_call_that_was_changed_since_is_not_approved_with_the_others(tmp_path: Path) -> None:
    """Whoever pressed has not seen what it would do now: it stays open, and the other one is approved."""
    async with asked(tmp_path) as (bot, root):
        since = len(bot.calls)
        message, where = bot.find(root, ALL)
        before = await state_of(bot)
        changed, other = (before.prompts[key] for key in before.open_prompts)
        (name,) = changed.editable
        edit = Edit(changed.prompt_id, member(bot, "ana"), "e", {name: "web-9"}, changed.nonce)
        await bot.engine.apply(before.session_id, edit)
        await bot.press("ana", message, where, where[1]["value"])
        await bot.settle()
        state = await state_of(bot)
        assert list(state.open_prompts) == [changed.prompt_id]
        assert state.prompts[other.prompt_id].answered_by == "U0LOCALANA"
        assert bot.told("ana", since) == []


@simulated
async def test_a_message_for_several_calls_that_was_deleted_is_shown_again_for_each(tmp_path: Path) -> None:
    """Each open call gets a message of its own then, and can be decided there."""
    async with asked(tmp_path) as (bot, root):
        (card,) = cards(bot, root)
        bot.core.delete(bot.channel(), card)
        await bot.until(lambda: str(bot.thread(root)).count("wants to use") >= 2)
        await bot.settle()
        state = await state_of(bot)
        assert len({str(prompt.shown) for prompt in state.prompts.values()}) == 2


@simulated
async def test_calls_whose_message_is_found_deleted_when_one_is_decided_are_shown_again(
    tmp_path: Path,
) -> None:
    """No event told of it; the next edit does, and what still waits gets a message of its own."""
    async with asked(tmp_path) as (bot, root):
        (card,) = cards(bot, root)
        before = await state_of(bot)
        first, second = before.open_prompts
        del bot.core.state.messages[bot.channel().id][card["ts"]]
        await bot.engine.resume(
            before.session_id, Answer(first, member(bot, "ana"), "answer:21", value="approve")
        )
        await bot.settle()
        state = await state_of(bot)
        assert [state.prompts[one].open for one in (first, second)] == [False, True]
        assert (state.prompts[second].shown or {})["ts"] != card["ts"]
