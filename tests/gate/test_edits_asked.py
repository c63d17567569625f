"""*Edit…* on requests, with the real bot and the doors: what is handed out is what people approved, and it has its own digest."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.decide.covered_nodes import digest
from engine.language.codec import decode
from tests.gate.conftest import RULES, Gate, gated
from tests.gate.test_hooks import Hooks, event
from tests.gate.test_proxy import call, wired
from tests.support.acting import Workspace
from tests.support.bot import ThreadView, words

pytestmark = pytest.mark.process


def labels(message: dict[str, Any]) -> list[str]:
    """The texts of a message's buttons."""
    rows = (block["elements"] for block in message.get("blocks", ()) if block["type"] == "actions")
    return [one["text"]["text"] for row in rows for one in row]


async def edits(thread: ThreadView, user: str, message: dict[str, Any], **values: Any) -> dict[str, Any]:
    """The answer to a modal that is filled in with these values."""
    workspace = thread.workspace
    await thread.press(user, message, "Edit…")
    await workspace.wait_for(lambda: workspace.views(user))
    view = workspace.views(user)[-1]
    given = {f"field:{name}": value for name, value in values.items()}
    answer = dict(await workspace.submit_view(user, view["id"], given))
    if "errors" in answer:
        await workspace.close_view(user, view["id"])
    return answer


async def shows(thread: ThreadView, ts: str, part: str) -> dict[str, Any]:
    """The message at this place, once it says this."""

    def found() -> dict[str, Any] | None:
        return next((m for m in thread.messages() if m["ts"] == ts and part in words(m)), None)

    return dict(await thread.workspace.wait_for(found, timeout=20))


async def test_ben_changes_a_call_and_cleo_approves_it(gate: Gate) -> None:
    """The hook prints the changed input, its digest is recorded, and the call as it was first asked is an alarm."""
    hooks = Hooks(gate, await gate.url())
    asked = event("make deploy", description="Deploy")
    asked["tool_input"] |= {"timeout": 5, "env": ["A=1"]}
    waiting = asyncio.create_task(hooks.decision(asked, "--wait", "60"))
    thread = await gate.thread()
    message = await thread.asks()
    assert labels(message) == ["Allow once", "Deny", "Edit…"]
    assert words(message).count("make deploy") == 1, "the values of the form are not shown beside the call"
    assert "No changes to save" in str((await edits(thread, "ben", message))["errors"])
    assert "JSON" in str((await edits(thread, "ben", message, env="[A=1]"))["errors"])
    assert "must keep its type" in str((await edits(thread, "ben", message, env='{"A": 1}'))["errors"])
    assert "errors" not in await edits(thread, "ben", message, command="make docs", env='["A=2"]')
    message = await shows(thread, message["ts"], "make deploy → *make docs*")
    await thread.says("edited the proposal")
    await thread.approve("ben", message)
    assert (await gate.ask("", call="toolu_1", session="5e55-10n", arguments=asked["tool_input"]))[
        "state"
    ] == "open"
    await thread.approve("cleo", message)
    decision, reason, given = await waiting
    wanted = {"command": "make docs", "timeout": 5, "env": ["A=2"]}
    assert (decision, given) == ("allow", wanted)
    assert "Cleo" in reason
    with closing(sqlite3.connect(gate.bot.home / "sayso.db")) as store:
        [(payload,)] = store.execute("SELECT payload FROM inbox WHERE key LIKE 'gate:out:%'").fetchall()
    assert decode(payload)["digest"] == digest("call", {"tool": "Bash", "arguments": wanted})
    proxied = {"door": "proxy", "within": {"call": "toolu_1"}}
    assert (await gate.ask("", "p0", arguments=asked["tool_input"], **proxied))["state"] == "open"
    assert (await gate.ask("", "p1", arguments=wanted, **proxied))["state"] == "allowed", "the hook has asked"
    ran = {**asked, "hook_event_name": "PostToolUse"}
    assert (await hooks.run({**ran, "tool_input": wanted})).stdout == b"{}\n"
    assert b"alarm" in (await hooks.run(ran)).stdout
    await thread.says("something else was approved")


async def test_a_changed_call_reaches_the_server_as_canonical_json(gate: Gate, tmp_path: Path) -> None:
    """Everything else of the message stays; the hook's allow of the changed call counts for that call."""
    async with wired(gate, tmp_path) as wire:
        await wire.send(call(1, what="first", list=[True]))
        thread = await gate.thread()
        message = await thread.asks()
        assert "errors" not in await edits(thread, "ben", message, list="[1]")
        await thread.approve("cleo", await shows(thread, message["ts"], "Changed by"))
        assert (await wire.answer())["id"] == 1
        params = '{"arguments":{"list":[1],"what":"first"},"name":"note"}'
        assert wire.got() == [f'{{"id":1,"jsonrpc":"2.0","method":"tools/call","params":{params}}}'.encode()]


STRICT = RULES.replace(
    "otherwise:",
    """  - when: {tool: Bash, arguments: {command: "prod *"}}
    then: {ask: {approvers: [dev@example.com]}}
otherwise:""",
)


async def test_a_change_does_not_lead_around_another_rule(workspace: Workspace, tmp_path: Path) -> None:
    """Those who decide about one call do not make another one of it that others decide about, or nobody."""
    async with gated(workspace, tmp_path, STRICT) as gate:
        assert (await gate.ask("make deploy"))["state"] == "open"
        thread = await gate.thread()
        message = await thread.asks()
        await edits(thread, "ben", message, command="prod deploy")
        await thread.approve("cleo", await shows(thread, message["ts"], "Changed by"))
        answer = await gate.ask("make deploy", wait=20)
        assert (answer["state"], "another rule" in answer["reason"]) == ("denied", True)
        await thread.says("This was not handed out")
        asked = asyncio.create_task(gate.ask("make deploy", "c2", wait=30))
        message = await thread.workspace.wait_for(
            lambda: next((m for m in thread.messages() if "Edit…" in labels(m)), None), timeout=20
        )
        await edits(thread, "ben", message, command="git status -s")
        await thread.approve("cleo", await shows(thread, message["ts"], "Changed by"))
        answer = await asked
        assert (answer["state"], answer["arguments"]) == ("allowed", {"command": "git status -s"})


async def test_what_cannot_be_changed_shows_no_button_for_it(gate: Gate) -> None:
    """Managed Agents take no changed input: their calls run as shown or not at all."""
    assert (await gate.ask("make deploy", door="agents"))["state"] == "open"
    message = await (await gate.thread()).asks()
    assert labels(message) == ["Allow once", "Deny"]
