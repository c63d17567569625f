"""Calls that people allow always, from the menu of an approval to the button that takes it back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.cli.grants import _as_json
from bot.config.settings import AgentSettings
from bot.rendering.approvals import OPEN
from bot.rendering.grants import REVOKE
from bot.workspace.state import View
from engine.decide.agents.grants import standing
from engine.journal.state import State
from tests.e2e.test_calls_card import ASKED, member, state_of
from tests.e2e.test_home_decisions import press_home, shows
from tests.support.engine import flow_of
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, inhabited_town, simulated

ALLOWS = ASKED.replace("tools: [mark]", "tools: [mark, ask_human]\n      grants: run")
SCRIPT = """
turns:
  - tools: [{name: mark, input: {host: web-1}}]
  - tools: [{name: mark, input: {host: web-2}}]
  - tools: [{name: ask_human, input: {question: "More?"}}]
  - tools: [{name: mark, input: {host: web-3}}]
  - text: Marked.
"""


@asynccontextmanager
async def waiting(
    folder: Path, host: str = "web-1", flow: str = ALLOWS, turns: str = SCRIPT
) -> AsyncIterator[tuple[Town, str]]:
    """A bot whose agent wants to make a call; and the thread."""
    script = folder / "asked.yml"
    script.write_text(turns.replace("web-1", json.dumps(host)))
    async with inhabited_town(folder, {"asked": flow}, agents=AgentSettings(script=script)) as (_, bot):
        root = await bot.start("ana", "asked")
        await bot.until(lambda: "wants to use" in str(bot.thread(root)))
        yield bot, root


async def allow(bot: Town, root: str, pattern: str, shown: str) -> Any:
    """Approve the call as ana, and allow calls that fit this pattern (none: as the form shows it); what Slack is answered."""
    view = await form_of(bot, root)
    assert view.values["pattern:host"]["pattern:host"]["value"].strip() == shown.strip()
    answer = await bot.submit(
        "ana", view, {"pattern:host": {"pattern:host": {"value": pattern}}} if pattern else {}
    )
    await bot.settle()
    return answer


@asynccontextmanager
async def allowed(
    folder: Path, pattern: str = "web-*", host: str = "web-1", edited: str | None = None
) -> AsyncIterator[tuple[Town, str]]:
    """A bot whose agent has made a call that ana changed, approved and allowed always; and the thread. It has asked for
    more."""
    async with waiting(folder, host) as (bot, root):
        if edited is not None:
            message, where = bot.find(root, f"{OPEN}edit")
            view = await opened(bot, message, where, where[1]["value"])
            await bot.submit("ana", view, {"field:host": {"value": {"value": edited}}})
            await bot.settle()
        await allow(bot, root, pattern, edited or host)
        yield bot, root


async def opened(bot: Town, message: Any, where: Any, value: str) -> View:
    """What ana sees after this press."""
    before = bot.view_of("ana")
    await bot.press("ana", message, where, value)
    await bot.until(lambda: bot.view_of("ana") not in (None, before))
    view = bot.view_of("ana")
    assert view is not None
    return view


async def form_of(bot: Town, root: str) -> View:
    """The form that `Always allow…` opens for ana."""
    message, where = bot.find(root, f"{OPEN}more")
    (entry,) = [one["value"] for one in where[1]["options"] if one["text"]["text"] == "Always allow…"]
    return await opened(bot, message, where, entry)


def grants_of(bot: Town, state: State) -> list[dict[str, Any]]:
    """What is always allowed now, as the CLI lists it."""
    return [_as_json(state, grant) for grant in standing(state, bot.engine.now())]


@simulated
async def test_a_call_that_fits_what_is_allowed_runs_unasked_and_the_thread_says_by_whom(
    tmp_path: Path,
) -> None:
    """The second call asks nobody; its line names who allows it, and the approval says until when."""
    async with allowed(tmp_path) as (bot, root):
        state = await state_of(bot)
        (grant,) = grants_of(bot, state)
        assert (grant["used"], grant["fields"]) == (1, {"host": {"like": "web-*"}})
        said = str(bot.thread(root))
        assert "always allowed by Ana" in said
        assert "is always allowed by <@U0LOCALANA> until <!date^" in said
        assert len([one for one in state.prompts.values() if one.kind == "approval"]) == 1


@simulated
async def test_what_is_taken_back_in_the_thread_is_asked_about_again(tmp_path: Path) -> None:
    """A press of `Revoke` on the approval; the next call waits for people. It works behind a restart too."""
    async with allowed(tmp_path) as (bot, root):
        await bot.close()
        await bot.open()
        message, where = bot.find(root, REVOKE)
        await bot.press("ana", message, where, where[1]["value"])
        await bot.settle()
        assert grants_of(bot, await state_of(bot)) == []
        bot.say("ana", "yes", root)
        await bot.settle()
        assert len((await state_of(bot)).open_prompts) == 1
        assert "this is revoked" in str(bot.thread(root))


@simulated
async def test_a_pattern_that_the_call_does_not_fit_is_refused_in_the_form(tmp_path: Path) -> None:
    """Nothing is decided: the field says why."""
    async with waiting(tmp_path) as (bot, root):
        answer = await allow(bot, root, "db-*", "web-1")
        assert "this call does not match" in answer["errors"]["pattern:host"]
        state = await state_of(bot)
        assert len(state.open_prompts) == 1
        assert not state.grants


@simulated
async def test_a_text_with_space_around_it_is_allowed_as_it_is(tmp_path: Path) -> None:
    """A field that nobody changed stands for exactly what the call has, though Slack gives it back without that space."""
    async with allowed(tmp_path, "web-1", "web-1 \n") as (bot, _):
        (grant,) = grants_of(bot, await state_of(bot))
        assert grant["fields"] == {"host": {"is": "web-1 \n"}}


@simulated
async def test_home_and_the_word_grants_list_what_is_allowed(tmp_path: Path) -> None:
    """Each with who said so and until when; on the Home with the button that takes it back."""
    async with allowed(tmp_path) as (bot, _):
        space = TownWorkspace(bot)
        await space.open_home("ana")
        await shows(space, "ana", "is always allowed by")
        since = len(bot.calls)
        root = bot.say("ana", f"<@{bot.core.state.bot_user_id}> grants")
        await bot.settle()
        assert "always allowed by" in str([call.args for call in bot.calls[since:]]), root
        await press_home(space, "ana", "Revoke")
        await shows(space, "ana", "is always allowed by", gone=True)
        assert grants_of(bot, await state_of(bot)) == []


WIDE = ALLOWS.replace("grants: run", "grants: flow")
WIDE_SCRIPT = """
turns:
  - tools: [{name: mark, input: {host: web-1}}]
  - text: Marked.
"""


@asynccontextmanager
async def allowed_widely(folder: Path, turns: str = WIDE_SCRIPT) -> AsyncIterator[tuple[Town, str, str]]:
    """A bot one of whose runs has ended, unless it does more, in which ana has allowed its call in all runs of the flow; its
    thread, and the grant."""
    async with waiting(folder, flow=WIDE, turns=turns) as (bot, root):
        chosen = {"selected_option": {"value": "flow"}}
        await bot.submit("ana", await form_of(bot, root), {"in": {"in": chosen}})
        await bot.settle()
        (row,) = bot.store.kept.rows("grant")
        yield bot, root, row.kept_id


@simulated
async def test_a_grant_of_a_flow_counts_in_the_next_run_of_its_channel_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    """Behind a restart too: the second run asks nobody and names who allowed it; `grants revoke` ends that."""
    async with allowed_widely(tmp_path) as (bot, _, grant):
        await bot.close()
        await bot.open()
        root = await bot.start("ana", "asked")
        said = str(bot.thread(root))
        assert "Marked." in said
        assert "always allowed by Ana" in said
        mention = f"<@{bot.core.state.bot_user_id}>"
        listed = str(bot.thread(await bot.start("ana", "grants"))[1:])
        assert grant in listed
        assert "in runs of *asked* in this channel" in listed
        assert "used 1 time" in listed
        back = str(bot.thread(bot.say("ben", f"{mention} grants revoke {grant}")))
        await bot.settle()
        assert "No calls are always allowed here" in str(bot.thread(await bot.start("ana", "grants")))
        third = await bot.start("ana", "asked")
        assert "wants to use" in str(bot.thread(third)), back
        assert "Marked." not in str(bot.thread(third))
        (row,) = bot.store.kept.rows("grant")
        (end,) = json.loads(row.body)["changes"]
        assert (end["did"], end["by"]["name"]) == ("revoked", "Ben Okafor")


@simulated
async def test_what_was_given_is_taken_back_also_where_the_flow_allows_no_more_of_it(tmp_path: Path) -> None:
    """The run went over to a text with `grants: run`; others that keep the earlier one must not continue by it."""
    turns = WIDE_SCRIPT.replace(
        "- text", '- tools: [{name: ask_human, input: {question: "More?"}}]\n  - text'
    )
    async with allowed_widely(tmp_path, turns) as (bot, root, _):
        (head,) = bot.store.sessions.heads()
        await bot.engine.migrate(head.session_id, flow_of(ALLOWS), actor=member(bot, "ana"))
        message, where = bot.find(root, REVOKE)
        await bot.press("ana", message, where, where[1]["value"])
        await bot.settle()
        (row,) = bot.store.kept.rows("grant")
        assert row.expires_at <= bot.engine.now()


@simulated
async def test_the_button_takes_back_what_a_run_that_is_over_has_given(tmp_path: Path) -> None:
    """On the Home of who gave it."""
    async with allowed_widely(tmp_path) as (bot, root, _):
        space = TownWorkspace(bot)
        await space.open_home("ana")
        await shows(space, "ana", "is always allowed by")
        await press_home(space, "ana", "Revoke")
        await bot.until(lambda: "Revoked" in str(bot.thread(root)))
        await space.open_home("ana")
        await shows(space, "ana", "is always allowed by", gone=True)
