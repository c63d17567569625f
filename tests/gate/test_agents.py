"""`sayso gate agents` with the official SDK: what Managed Agents wait for is asked in Slack, and confirmed once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from bot.gate.agents import Agents
from tests.gate.conftest import RULES, Gate
from tests.gate.test_hooks import Hooks
from tests.support import prefork
from tests.support.bot import ThreadView, words
from tests.support.managed_agents import KEY, ManagedAgents, managed_agents

pytestmark = pytest.mark.process


async def until(api: ManagedAgents, holds: Callable[[], bool]) -> None:
    """Wait for what the server of sessions got: the workspace tells nothing of that."""
    async with asyncio.timeout(40):
        while not holds():
            await api.asked.wait()
            api.asked.clear()


class Poller:
    """The door as a process, with a server of sessions."""

    def __init__(self, gate: Gate, hooks: Hooks, api: ManagedAgents) -> None:
        self.gate, self.api = gate, api
        self.env = {**hooks.env, "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": KEY}

    async def look(self, *words_: str, **env: str) -> str:
        """Look once; what it tells."""
        line = ["-m", "bot.cli", "gate", "agents", "--once", *words_]
        done = prefork.start(line, cwd=self.gate.folder, env={**self.env, **env}, read=("anthropic",))
        _, told = await asyncio.to_thread(done.communicate)
        assert "Traceback" not in told, told
        return told

    async def watch(self) -> asyncio.subprocess.Process:
        """Look again and again, until it is killed."""
        return await asyncio.create_subprocess_exec(
            *prefork.front("-m", "bot.cli", "gate", "agents", "--every", "1", read=("anthropic",)),
            env=self.env,
            cwd=self.gate.folder,
        )

    async def decide(self, command: str, label: str = "Allow once") -> ThreadView:
        """Ben decides about a command."""
        ts, value = await self.gate.workspace.wait_for(lambda: self.asked(command, label), timeout=20)
        await self.gate.workspace.press("ben", "ops", ts, text=label, value=value)
        await self.gate.workspace.wait_for(lambda: not self.asked(command), timeout=20)
        return await self.gate.thread()

    def asked(self, command: str, label: str = "Allow once") -> tuple[str, str] | None:
        """The message that asks about a command, and the value of its button, while it has one."""
        for root in self.gate.workspace.messages("ops"):
            for message in self.gate.workspace.messages("ops", root["ts"]):
                found = False
                for block in message.get("blocks", ()):
                    if found and block["type"] == "actions":
                        for one in block["elements"]:
                            if one["text"]["text"] == label:
                                return message["ts"], one["value"]
                    # The buttons of a call stand right behind it; a decided one has none.
                    found = command in json.dumps(block) or (found and "make" not in json.dumps(block))
        return None


@pytest.fixture
async def api() -> AsyncIterator[ManagedAgents]:
    """A server of sessions."""
    async with managed_agents() as server:
        yield server


@pytest.fixture
async def poller(gate: Gate, api: ManagedAgents) -> Poller:
    """The door."""
    return Poller(gate, Hooks(gate, await gate.url()), api)


async def test_only_what_waits_for_a_person_is_asked_and_confirmed(
    gate: Gate, api: ManagedAgents, poller: Poller
) -> None:
    """Rules decide, people decide, one of two is left; results of tools, and sessions that wait for words, are left alone."""
    (gate.folder / "gate.yml").write_text(RULES.replace("Bash", "bash"))
    one, two, other = api.session("one"), api.session("two"), api.session("other", "agent_2")
    api.session("quiet").end_turn()
    allowed, asked = one.call("git status"), one.call("make deploy", session_thread_id="sthr_1")
    given, mine = one.call("make free", "allow"), one.add("agent.custom_tool_use", name="ours", input={})
    denied = two.call("x", name="delete_row", input={"id": 7}, mcp_server_name="db")
    one.wait_for(given, mine, allowed, asked)
    two.wait_for(denied)
    other.wait_for(other.call("make other"))
    await poller.look("--agent", "agent_1")
    [first] = one.confirmations()
    assert (first["tool_use_id"], first["result"]) == (allowed, "allow")
    [second] = two.confirmations()
    assert (second["result"], "runbook" in second["deny_message"]) == ("deny", True)
    assert other.confirmations() == []
    thread = await poller.decide("make deploy")
    assert "Managed Agents in sesn_one" in words(thread.messages()[1])
    await poller.look("--agent", "agent_1")
    await poller.look("--agent", "agent_1")
    assert [event["tool_use_id"] for event in one.confirmations()] == [allowed, asked]
    assert api.refused == []


async def test_a_confirmation_whose_arrival_is_unknown_is_not_sent_twice(
    gate: Gate, api: ManagedAgents, poller: Poller
) -> None:
    """500 after it was taken, 503 before, 429 with `retry-after`: people are asked once, and each is confirmed once."""
    session = api.session()
    first, second = session.call("make a"), session.call("make b")
    session.wait_for(first, second)
    watching = await poller.watch()
    try:
        await gate.workspace.wait_for(lambda: poller.asked("make b"), timeout=20)
        api.failures.append(("LOST", 500, {}))
        await poller.decide("make a")
        await until(api, lambda: session.due() == [second])
        api.failures.extend(
            [("POST", 503, {}), ("POST", 429, {"retry-after": "1"}), ("GET", 429, {"retry-after": "1"})]
        )
        await poller.decide("make b", "Deny")
        await until(api, lambda: session.status == "running")
    finally:
        watching.kill()
        await watching.wait()
    assert [event["result"] for event in session.confirmations()] == ["allow", "deny"]
    assert api.refused == []
    assert (await gate.thread()).count("may have run") == 0


async def test_what_was_answered_elsewhere_is_closed_and_says_so(
    gate: Gate, api: ManagedAgents, poller: Poller
) -> None:
    """In the console, by continuing, by an archive, or by a deletion, also while the door was not there; not by an error."""
    sessions = {name: api.session(name) for name in ("console", "resumed", "archived", "deleted", "waits")}
    calls = {name: session.call(f"make {name}") for name, session in sessions.items()}
    for name, session in sessions.items():
        session.wait_for(calls[name])
    await poller.look()
    for name in sessions:
        await gate.workspace.wait_for(lambda name=name: poller.asked(f"make {name}"), timeout=20)
    api.failures.append(("EVENTS", 400, {}))
    assert "sesn_console: " in await poller.look()
    [kept] = (gate.folder / "state" / "sayso" / "gate" / "agents").iterdir()
    assert set(json.loads(kept.read_text())) == set(calls.values()), "an error closes nothing"
    confirmed = {"type": "user.tool_confirmation", "tool_use_id": calls["console"], "result": "allow"}
    sessions["console"].confirm(confirmed)
    sessions["resumed"].status = "running"
    sessions["archived"].archived = True
    del api.sessions["sesn_deleted"]
    await poller.look()
    for name in ("console", "resumed", "archived", "deleted"):
        await gate.workspace.wait_for(lambda name=name: not poller.asked(f"make {name}"), timeout=20)
    assert poller.asked("make waits")

    def closed() -> int:
        roots = [message["ts"] for message in gate.workspace.messages("ops")]
        said = [words(one) for root in roots for one in gate.workspace.messages("ops", root)]
        return sum("answered in the console" in one for one in said)

    await gate.workspace.wait_for(lambda: closed() == 4, timeout=20)
    sessions["resumed"].wait_for(calls["resumed"])
    await poller.look()
    await poller.decide("make resumed")
    await poller.look()
    assert [event["result"] for event in sessions["resumed"].confirmations()] == ["allow"]
    assert api.refused == []


async def test_killed_anywhere_it_confirms_once_or_asks_again(
    gate: Gate, api: ManagedAgents, poller: Poller
) -> None:
    """Door and bot are killed between the question, the press, the handing out and the confirmation."""
    session = api.session()
    call = session.call("make deploy")
    session.wait_for(call)
    await poller.look()
    await gate.bot.kill()
    assert "Could not be reached" in await poller.look()
    await gate.bot.start()
    poller.env["SAYSO_GATE_URL"] = await gate.url()
    await poller.decide("make deploy")
    await gate.bot.kill()
    await gate.bot.start()
    poller.env["SAYSO_GATE_URL"] = await gate.url()
    killed = (
        "import os, sys; from anthropic.resources.beta.sessions import Events; "
        "Events.send = lambda *given, **more: os._exit(9); from bot.cli import main; main()"
    )
    door = await asyncio.create_subprocess_exec(
        *prefork.front("-c", killed, "gate", "agents", "--once", read=("anthropic",)),
        env=poller.env,
        cwd=gate.folder,
    )
    assert await door.wait() == 9
    await poller.look()
    assert session.confirmations() == [], "it was handed out: people are asked anew"
    thread = await poller.decide("make deploy")
    await thread.says("may have run")
    both = [asyncio.create_task(poller.look()) for _ in range(2)]
    await asyncio.gather(*both)
    assert [event["result"] for event in session.confirmations()] == ["allow"]
    assert api.refused == []


async def test_a_wrong_key_and_a_wrong_token_send_nothing(
    gate: Gate, api: ManagedAgents, poller: Poller
) -> None:
    """It says so, and the session continues waiting."""
    session = api.session()
    session.wait_for(session.call("git status"))
    assert "No key" in await poller.look(ANTHROPIC_API_KEY="")
    assert "invalid x-api-key" in await poller.look(ANTHROPIC_API_KEY="guess")
    assert "unknown" in await poller.look(SAYSO_GATE_TOKEN="guess")
    (gate.folder / "gate.yml").write_text("gate: [")
    assert "not asked about bash: " in await poller.look()
    assert session.confirmations() == []


async def test_a_call_that_the_gate_refuses_holds_up_no_other(
    gate: Gate, api: ManagedAgents, poller: Poller
) -> None:
    """One that is too large, and one that is not an exact JSON, are told; those behind them, also of the same session, are asked."""
    (gate.folder / "gate.yml").write_text(RULES.replace("Bash", "bash"))
    one, two = api.session("one"), api.session("two")
    large, odd = one.call("x" * 2**20), one.call("\ud800")
    first, second = one.call("git status"), two.call("git status")
    one.wait_for(large, odd, first)
    two.wait_for(second)
    told = await poller.look()
    assert told.count("not asked about bash") == 2
    assert [event["tool_use_id"] for event in one.confirmations() + two.confirmations()] == [first, second]


def test_a_key_keeps_its_calls_apart_from_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another key waits for is not closed, and no file of theirs is where deferred sessions are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gate: Any = Allows()
    made = [Agents(gate, Anthropic(api_key=key), None, print) for key in (KEY, "sk-other")]
    made[0]._keep("e1", {"session": "s"})
    assert [Agents(gate, Anthropic(api_key=key), None, print)._asked for key in (KEY, "sk-other")] == [
        {"e1": {"session": "s"}},
        {},
    ]
    assert list((tmp_path / "sayso" / "gate").glob("*.json")) == []
    assert KEY not in "".join(map(str, tmp_path.rglob("*")))


class Allows:
    """A gate that allows every call."""

    def post(self, do: str, **given: Any) -> dict[str, Any]:
        """The answer."""
        return {"state": "allowed", "arguments": given["arguments"], "by": ["gate.yml"]}


def _unread(self: Agents, session: str) -> list[Any]:
    """The calls of a session, without a look at its confirmations."""
    return list(self._api.events.list(session, types=["agent.tool_use"]))


def _again(self: Anthropic, **options: Any) -> Anthropic:
    """The SDK as it is: it sends again what it thinks was lost."""
    return self


@pytest.mark.parametrize(
    ("owner", "attribute", "fault"),
    [(None, "", None), (Agents, "_waiting", _unread), (Anthropic, "with_options", _again)],
    ids=["sound", "confirmations are not read", "a lost sending is repeated unread"],
)
async def test_a_seeded_fault_confirms_twice(
    api: ManagedAgents,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    attribute: str,
    fault: Any,
) -> None:
    """Sound, a confirmation that was taken and answered with 500 is sent once; with either fault twice."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if owner is not None:
        monkeypatch.setattr(owner, attribute, fault)
    session = api.session()
    first = session.call("make a")
    session.wait_for(first, session.call("make b"))
    api.failures.append(("LOST", 500, {}))
    sdk = Anthropic(api_key=KEY, base_url=api.url)
    gate: Any = Allows()
    agents = Agents(gate, sdk, None, lambda text: None)
    for _ in range(3):
        await asyncio.to_thread(agents.look)
    confirmed = [event["tool_use_id"] for event in session.confirmations()]
    assert confirmed.count(first) == 1
    assert (api.refused == []) == (owner is None), api.refused
