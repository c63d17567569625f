"""Bounds of the gate with a bot in this process: one answer for one call, for a time, for a token that counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.gate import requests
from bot.gate.requests import Wanted
from bot.gate.tokens import UnknownToken, make_token, revoke_token
from engine.journal.records import InboxRow
from tests.gate.conftest import RULES
from tests.gate.test_faults import Case
from tests.support.acting import Workspace
from tests.support.bot import MovedClock, bot_here, words
from tests.support.workspace import running_workspace

FLOW = "flow: release\nnodes: [{id: pause, type: wait, with: {for: 1h}}]\n"


@asynccontextmanager
async def bot_of(workspace: Workspace, folder: Path, clock: MovedClock) -> AsyncIterator[Case]:
    """A bot in this process, with the rules, and a flow that agents may run."""
    (folder / "gate.yml").write_text(RULES)
    here = bot_here(
        workspace,
        folder,
        {"release": FLOW},
        clock=clock,
        SAYSO_GATE="0",
        SAYSO_FLOWS=str(folder / "flows"),
    )
    async with here as bot:
        yield Case(bot, workspace, folder)


@pytest.fixture
def clock() -> MovedClock:
    """A clock that a test puts forward."""
    return MovedClock()


@pytest.fixture
async def case(tmp_path: Path, clock: MovedClock) -> AsyncIterator[Case]:
    """A bot in this process."""
    async with running_workspace() as workspace, bot_of(workspace, tmp_path, clock) as started:
        yield started


async def answer(case: Case, wait: float = 0.0, **fields: Any) -> dict[str, Any]:
    """The whole answer to a request."""
    given = {"kind": "approval", "door": "claude", "session": "s1", "call": "c1", "tool": "Bash"}
    wanted = Wanted(**{**given, "arguments": {"command": "make deploy"}, **fields})
    return await case.bot.requests.ask(case.tokens[0], wanted, wait, lambda: False)


async def test_each_call_of_a_managed_agent_is_its_own_request(case: Case) -> None:
    """Two equal calls that wait for a confirmation are asked about one by one, and closing one leaves the other open."""
    first, second = [await answer(case, door="agents", call=call) for call in ("e1", "e2")]
    assert first["request"] != second["request"]
    given = {"kind": "approval", "door": "agents", "session": "s1", "tool": "Bash"}
    closed = Wanted(call="e1", arguments={"command": "make deploy"}, **given)  # type: ignore[arg-type]
    assert await case.bot.requests.withdraw(case.tokens[0], closed) == {"withdrawn": True}
    assert await case.ask(call="e2", door="agents") == "open"


async def test_a_request_that_is_just_being_posted_can_be_cancelled(case: Case) -> None:
    """An agent that cancels at once is not told that it did while people are asked all the same."""
    asked = await answer(case)
    await case.bot.requests.cancel(case.tokens[0], asked["request"])
    assert (await case.bot.requests.look(case.tokens[0], asked["request"], take=True))["state"] == "denied"


async def test_a_script_that_changes_at_once_closes_the_question_about_the_old_one(case: Case) -> None:
    """Nobody is left with two questions of which one can have no effect."""
    before, after = [
        await answer(case, scripts={"make.sh": {"sha256": sha256, "size": 1}}) for sha256 in ("aa", "bb")
    ]
    assert before["request"] != after["request"]
    looked = [
        await case.bot.requests.look(case.tokens[0], one["request"], take=False) for one in (before, after)
    ]
    assert [one["state"] for one in looked] == ["denied", "open"]


async def allowed_hook(case: Case, tool: str, arguments: dict[str, Any]) -> None:
    """People allow a call at the hook."""
    assert (await answer(case, tool=tool, arguments=arguments))["state"] == "open"
    await case.press("ben")
    assert (await answer(case, 10, tool=tool, arguments=arguments))["state"] == "allowed"


@pytest.mark.parametrize(
    ("tool", "arguments"), [("drop", {"host": "web-3"}), ("restart", {"host": "web-4"}), ("restart", {})]
)
async def test_an_allow_of_the_hook_is_none_for_another_request(
    case: Case, tool: str, arguments: dict[str, Any]
) -> None:
    """What a door says of the hook's call is that very request, or people are asked; the request itself is allowed once."""
    asked = {"tool": "restart", "arguments": {"host": "web-3"}}
    await allowed_hook(case, "mcp__sayso__request_approval", asked)
    within = {"call": "c1", "arguments": asked}
    other = {"door": "mcp", "call": "m1", "tool": tool, "arguments": arguments, "within": within}
    assert (await answer(case, **other))["state"] == "open"
    for call, state in (("m2", "allowed"), ("m3", "open")):
        assert (await answer(case, door="mcp", call=call, within=within, **asked))["state"] == state


async def test_an_allow_of_the_hook_counts_as_long_as_its_approval(case: Case, clock: MovedClock) -> None:
    """A day later the next door asks people."""
    store, now, person = case.bot.engine.store, case.bot.machine.now(), case.workspace.user("ana").id
    case.tokens[0] = make_token(store, "claude-code:laptop", person, 9, now)[0]
    await allowed_hook(case, "mcp__x__note", {"n": 1})
    clock.forward(86400 + 60)
    again = {"door": "proxy", "call": "p1", "within": {"call": "c1"}}
    assert (await answer(case, tool="mcp__x__note", arguments={"n": 1}, **again))["state"] == "open"


@pytest.mark.parametrize("label", ["Allow once", "Deny"])
async def test_a_token_that_is_revoked_while_it_waits_gets_no_answer(case: Case, label: str) -> None:
    """The press comes after the revocation."""
    waiting = asyncio.create_task(case.ask(wait=30))
    await case.workspace.wait_for(lambda: case.bot.requests._waiting[case.tokens[0].id])
    store, now = case.bot.engine.store, case.bot.machine.now()
    await case.bot.engine.writer.call(revoke_token, store, case.tokens[0].id, now)
    await case.press("ben", label)
    with pytest.raises(UnknownToken):
        await waiting


async def test_open_requests_and_their_rate_are_counted_through_a_restart(
    tmp_path: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten are open, and a bot that is started again takes no eleventh."""
    async with running_workspace() as workspace:
        async with bot_of(workspace, tmp_path, clock) as case:
            token = case.tokens[0]
            assert {await case.ask(f"make {n}", f"c{n}") for n in range(10)} == {"open"}
            assert await case.ask("make more", "more") == "busy"
        async with bot_of(workspace, tmp_path, clock) as case:
            case.tokens = [token]
            assert await case.ask("make more", "more") == "busy"
            assert await case.ask("make 3", "c3") == "open"
            monkeypatch.setattr(requests, "MOST_OPEN", 100)
            monkeypatch.setattr(requests, "RATE", 10)
            assert await case.ask("make more", "more") == "busy"
            clock.forward(61)
            assert await case.ask("make more", "more") == "open"


async def test_the_message_on_top_counts_requests_and_no_flows(case: Case) -> None:
    """A flow that an agent runs in its thread is not a request that waits for people."""
    await answer(case, kind="flow", tool="release", call="f1", arguments={})

    def root() -> str:
        return next((words(one) for one in case.workspace.messages("ops") if "works for" in words(one)), "")

    await case.workspace.wait_for(root, timeout=20)
    assert await case.ask() == "open"
    await case.workspace.wait_for(lambda: "1 waiting" in root(), timeout=20)
    assert "1 request, 1 waiting" in root()


async def test_old_requests_are_not_walked_through(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of a thousand is found by a few looks, and of none but the last it is looked at how it stands."""
    looks: list[str] = []

    async def stored(key: str) -> Any:
        looks.append(key)
        number = int(key.rpartition(":")[2])
        return InboxRow(number, key, "x", b"{}", None, None, "", None, None) if number < count else None

    monkeypatch.setattr(case.bot.requests.notices, "stored", stored)
    for count in (0, 1, 2, 3, 4, 5, 7, 8, 1000):
        looks.clear()
        number, last = await case.bot.requests._latest("base")
        assert (number, last.key if last else None) == (count, f"base:{count - 1}" if count else None)
        assert len(looks) <= 21


async def test_a_press_counts_for_one_call_and_another_that_runs_is_an_alarm(case: Case) -> None:
    """Two equal calls join one question: where the second one runs on the allow of the first, people are told."""
    assert [await case.ask(call=call) for call in ("c1", "c2")] == ["open", "open"]
    await case.press("ben")
    assert await case.ask(call="c1", wait=10) == "allowed"
    given = {"kind": "approval", "door": "claude", "session": "s1", "tool": "Bash"}
    for call, alarm in (("c1", False), ("c2", True)):
        ran = Wanted(call=call, arguments={"command": "make deploy"}, **given)  # type: ignore[arg-type]
        assert await case.bot.requests.ran(case.tokens[0], ran) == {"alarm": alarm}


async def test_a_dialog_that_was_denied_is_asked_about_again_later(case: Case) -> None:
    """Claude Code gives a dialog no id: an equal call is another one."""
    assert await case.ask(interactive=True) == "open"
    await case.press("ben", "Deny")
    assert await case.ask(interactive=True, wait=10) == "denied"
    given = {"kind": "approval", "door": "claude", "session": "s1", "tool": "Bash", "interactive": True}
    over = Wanted(call="c1", arguments={"command": "make deploy"}, **given)  # type: ignore[arg-type]
    await case.bot.requests.withdraw(case.tokens[0], over)
    assert await case.ask(interactive=True) == "open"


async def test_a_server_that_hides_a_pinned_definition_is_asked_about(case: Case) -> None:
    """Where a proxy saw no definition of a tool that has one, a rule does not allow the call; a hook never sees one."""
    assert await case.ask("git status", listing="first", door="proxy") == "allowed"
    assert await case.ask("git status", "c2", door="proxy") == "open"
    assert await case.ask("git status", "c3") == "allowed"


@pytest.mark.parametrize("tool", ["x`\n*Approved*", "x\u202ey", "x" * 201])
async def test_a_name_that_poses_as_text_is_refused(case: Case, tool: str) -> None:
    """A tool's name is in the text of the question."""
    with pytest.raises(requests.Refused):
        await answer(case, tool=tool)


async def test_waits_of_a_token_are_bounded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the answer comes at once: a compromised agent keeps the bot busy with so many."""
    monkeypatch.setattr(requests, "MOST_WAITING", 1)
    waiting = asyncio.create_task(case.ask(wait=60))
    await case.workspace.wait_for(lambda: case.bot.requests._waiting[case.tokens[0].id])
    assert await asyncio.wait_for(case.ask(call="c2", wait=60), 20) == "open"
    waiting.cancel()
