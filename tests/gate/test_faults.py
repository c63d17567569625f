"""Seeded faults: what others got wrong, put into the gate; the check of each turns red."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.gate import requests
from bot.gate.requests import Requests, Wanted
from bot.gate.rules import Rules, RulesFile, approval_flow, read_rules
from bot.gate.tokens import Token, make_token
from bot.serve.main import Bot
from engine.flow import Flow
from engine.language.codec import Json
from engine.language.errors import SaysoError
from tests.gate.conftest import RULES
from tests.support.acting import Workspace
from tests.support.bot import ThreadView, bot_here, words
from tests.support.workspace import running_workspace


class Case:
    """A bot in this process, two agents of Ana's, and the people in the workspace."""

    def __init__(self, bot: Bot, workspace: Workspace, folder: Path) -> None:
        self.bot, self.workspace, self.folder = bot, workspace, folder
        ana, now = workspace.user("ana").id, bot.machine.now()
        names = ("claude-code:laptop", "codex:desk")
        self.tokens: list[Token] = [make_token(bot.engine.store, name, ana, 1, now)[0] for name in names]

    async def ask(
        self,
        command: str = "make deploy",
        call: str = "c1",
        agent: int = 0,
        wait: float = 0.0,
        **more: Any,
    ) -> str:
        """How a call stands."""
        fields = {"kind": "approval", "door": "claude", "session": "s1", "call": call, "tool": "Bash", **more}
        wanted = requests.Wanted(arguments={"command": command}, **fields)
        answer = await self.bot.requests.ask(self.tokens[agent], wanted, wait, lambda: False)
        return str(answer["state"])

    async def press(self, user: str, label: str = "Allow once") -> None:
        """Press a button of the first question."""

        def root() -> Any:
            return next((m for m in self.workspace.messages("ops") if "works for" in words(m)), None)

        thread = ThreadView(self.workspace, "ops", (await self.workspace.wait_for(root))["ts"])
        await thread.press(user, await thread.asks(), label)


async def handed_out_once(case: Case) -> None:
    """One press is one allow."""
    assert await case.ask() == "open"
    await case.press("ben")
    assert await case.ask(wait=10) == "allowed"
    assert await case.ask(call="c2") == "open"


async def those_bytes(case: Case) -> None:
    """What was approved is allowed, and nothing else."""
    assert await case.ask() == "open"
    await case.press("ben")
    assert await case.ask("make destroy", "c2", wait=1) == "open"


async def its_own_answer(case: Case) -> None:
    """An allow for one agent is none for another."""
    assert await case.ask() == "open"
    await case.press("ben")
    assert await case.ask(agent=1, wait=1) == "open"


async def no_allow_by_error(case: Case) -> None:
    """Rules that cannot be read allow nothing."""
    assert await case.ask("git status") == "allowed"
    (case.folder / "gate.yml").write_text("gate: [")
    try:
        state = await case.ask("git status", "c2")
    except SaysoError:
        return
    assert state != "allowed"


async def others_answer(case: Case) -> None:
    """The person behind the agent does not decide."""
    assert await case.ask() == "open"
    await case.press("ana")
    assert await case.ask(wait=1) == "open"


async def the_tool_that_was_listed(case: Case) -> None:
    """A tool that is defined otherwise than before is asked about, whatever a rule allows."""
    assert await case.ask("git status", listing="first") == "allowed"
    assert await case.ask("git status", "c2", listing="another") == "open"


async def one_call_of_hook_and_proxy(case: Case) -> None:
    """What the hook was allowed counts once at the proxy, and for that call alone."""
    assert await case.ask() == "open"
    await case.press("ben")
    assert await case.ask(wait=10) == "allowed"
    again = {"door": "proxy", "within": {"call": "c1"}}
    assert await case.ask("make destroy", "p0", **again) == "open"
    assert await case.ask(call="p1", **again) == "allowed"
    assert await case.ask(call="p2", **again) == "open"


async def the_script_that_was_shown(case: Case) -> None:
    """An allow for a script is none for another one of that name."""
    shown = {"deploy.sh": {"sha256": "one", "size": 1}}
    assert await case.ask(scripts=shown) == "open"
    await case.press("ben")
    assert await case.ask(wait=1, scripts={"deploy.sh": {"sha256": "two", "size": 1}}) == "open"


async def _by_anybody(self: Requests, *_: Any) -> list[str]:
    return ["Ben"]


class _Blind(Wanted, frozen=True):
    """A request whose scripts nobody looks at."""

    def __post_init__(self) -> None:
        self.scripts.clear()


async def _always(self: Requests, *_: Any) -> bool:
    return True


def _last_good(self: RulesFile) -> Rules:
    return read_rules(RULES)


def _anyone(asking: Mapping[str, Json], *_: Any) -> Flow:
    return approval_flow({"approvers": [*asking["approvers"], "requester"]})


FAULTS: dict[str, tuple[Any, str, Any, Callable[[Case], Awaitable[None]]]] = {
    "an allow is handed out twice": (Requests, "_hand_out", _always, handed_out_once),
    "other bytes than those that were approved": (requests, "_digest", lambda wanted: "same", those_bytes),
    "the answer of another key": (requests, "_key", lambda name, token, *parts: name, its_own_answer),
    "allow by error": (RulesFile, "read", _last_good, no_allow_by_error),
    "a changed definition is not noticed": (Requests, "_pinned", _always, the_tool_that_was_listed),
    "a call of the hook counts for every other": (Requests, "_used", _by_anybody, one_call_of_hook_and_proxy),
    "another script than the one that was shown": (requests, "Wanted", _Blind, the_script_that_was_shown),
    "the asker answers": (requests, "approval_flow", _anyone, others_answer),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_seeded_fault_turns_its_check_red(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the fault each check holds, with it none does."""
    owner, attribute, fault, check = FAULTS[name]
    for folder in ("sound", "faulty"):
        place = tmp_path / folder
        place.mkdir()
        (place / "gate.yml").write_text(RULES)
        flows = str(place / "flows")
        async with (
            running_workspace() as workspace,
            bot_here(workspace, place, {}, SAYSO_GATE="0", SAYSO_FLOWS=flows) as bot,
        ):
            case = Case(bot, workspace, place)
            if folder == "sound":
                await check(case)
                continue
            monkeypatch.setattr(owner, attribute, fault)
            with pytest.raises(AssertionError):
                await asyncio.wait_for(check(case), 30)
