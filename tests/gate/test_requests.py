"""Requests of agents over HTTP, with the real bot: asked once, handed out once, and answered by others alone."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bot.gate.rules import read_rules
from tests.gate.conftest import RULES, Gate, gated
from tests.support.acting import Workspace
from tests.support.bot import words

pytestmark = pytest.mark.process


async def test_an_approval_is_handed_out_once_and_asked_about_anew_after_that(gate: Gate) -> None:
    """The agent waits, Ben allows, the call runs; the same call again asks people, who read that it may have run."""
    asked = asyncio.create_task(gate.ask("make deploy", wait=30, reason="The release is due.\n*now*"))
    thread = await gate.thread()
    message = await thread.asks()
    shown = words(message)
    assert "claude-code:laptop" in shown
    assert "make deploy" in shown
    assert "\n> The release is due. " in message["text"], "the agent's words are quoted, in one line"
    await thread.approve("ben", message)
    answer = await asked
    assert (answer["state"], answer["arguments"]) == ("allowed", {"command": "make deploy"})
    assert (await gate.post("look", request=answer["request"]))[1]["state"] == "allowed"
    again = await gate.ask("make deploy")
    assert again["state"] == "open"
    assert again["request"] != answer["request"]
    assert "may have run" in words(await thread.says("which was allowed at"))


async def test_a_second_asking_joins_and_survives_every_kill(gate: Gate) -> None:
    """Killed while it waits, the agent asks again under another id; the bot is killed too; people are asked once."""
    first = await gate.ask("make deploy", "c1")
    await gate.bot.kill()
    await gate.bot.start()
    second = await gate.ask("make deploy", "c2", wait=0.2)
    assert (second["state"], second["request"]) == ("open", first["request"])
    thread = await gate.thread()
    message = await thread.asks()
    await gate.bot.kill()
    await gate.bot.start()
    await thread.approve("ben", message)
    assert (await gate.ask("make deploy", "c2", wait=20))["state"] == "allowed"
    assert thread.count("wants to use") == 1


async def test_two_that_wait_for_one_press_get_one_allow(gate: Gate) -> None:
    """Whoever comes second is asked about again."""
    both = [asyncio.create_task(gate.ask("make deploy", call, wait=4)) for call in ("c1", "c2")]
    thread = await gate.thread()
    await thread.approve("ben", await thread.asks())
    answers = await asyncio.gather(*both)
    assert sorted(answer["state"] for answer in answers) == ["allowed", "open"]


async def test_a_denial_stays_and_other_arguments_are_refused(gate: Gate) -> None:
    """The same call gets the same denial; under its id nothing else can be asked."""
    asked = asyncio.create_task(gate.ask("make deploy", wait=30))
    thread = await gate.thread()
    await thread.reject("ben", await thread.asks())
    answer = await asked
    assert answer["state"] == "denied"
    assert (await gate.ask("make deploy"))["state"] == "denied"
    assert (await gate.ask("make destroy"))["error"] == "refused"
    assert (await gate.ask("make deploy", "c2"))["state"] == "open"


async def test_an_agent_has_no_way_to_answer(gate: Gate) -> None:
    """Nothing that it can send decides; that the person behind it cannot either is shown by a seeded fault."""
    assert (await gate.ask("make deploy"))["state"] == "open"
    wanted = {"kind": "approval", "door": "x", "session": "s1", "call": "c1", "tool": "Bash", "arguments": {}}
    for do in ("answer", "approve", "press"):
        assert (await gate.post(do, **wanted))[0] == 400


async def test_rules_decide_without_people_and_a_changed_file_counts_at_once(gate: Gate) -> None:
    """Allow and deny by rule; an edit counts for the next request, also while one waits; a broken file allows nothing."""
    assert (await gate.ask("git status -s", "r1"))["state"] == "allowed"
    assert (await gate.ask("git status; rm -rf /", "r2"))["state"] == "open"
    denied = await gate.ask("x", "r3", tool="mcp__db__delete_row")
    assert (denied["state"], denied["reason"]) == ("denied", "Deletions go through the runbook.")
    rules = gate.folder / "gate.yml"
    rules.write_text(RULES.replace("git status*", "git log*"))
    assert (await gate.ask("git status -s", "r4"))["state"] == "open"
    for broken in ("gate: [", "", RULES.replace("allow", "alow")):
        rules.write_text(broken)
        wanted = {"kind": "approval", "door": "claude", "session": "s1", "call": "r5", "tool": "Bash"}
        status, answer = await gate.post("ask", arguments={"command": "git log"}, **wanted)
        assert (status, "state" in answer) == (409, False)
    rules.unlink()
    assert "state" not in await gate.ask("git log", "r5")


async def test_what_ran_is_compared_with_what_was_approved(gate: Gate) -> None:
    """Other arguments than those that were approved, and calls that nobody asked about, are an alarm."""
    asked = asyncio.create_task(gate.ask("make deploy", wait=30))
    thread = await gate.thread()
    await thread.approve("ben", await thread.asks())
    await asked
    ran = {"kind": "approval", "door": "claude", "session": "s1", "tool": "Bash"}
    good = await gate.post("ran", call="c1", arguments={"command": "make deploy"}, **ran)
    assert good == (200, {"alarm": False})
    bad = await gate.post("ran", call="c1", arguments={"command": "make destroy"}, **ran)
    assert bad == (200, {"alarm": True})
    await thread.says("something else was approved")
    assert await gate.post("ran", call="nobody", arguments={"command": "x"}, **ran) == (200, {"alarm": True})
    await thread.says("without asking the gate")


async def test_tokens_are_bound_and_revocable_and_see_their_own_requests(gate: Gate) -> None:
    """A stranger gets 401, another agent reads nothing of this one, a revoked token asks no more."""
    first = await gate.ask("make deploy")
    other = gate.login("codex:desk", "ben")
    assert (await gate.post("look", token=other, request=first["request"]))[0] == 409
    assert (await gate.post("look", token="guess", request=first["request"]))[0] == 401
    token_id = next(line.split()[0] for line in gate.sayso("gate", "tokens").splitlines() if "codex" in line)
    gate.sayso("gate", "revoke", token_id)
    assert (await gate.post("look", token=other, request=first["request"]))[0] == 401
    assert gate.token not in gate.sayso("gate", "tokens")


async def test_a_body_that_is_read_in_two_ways_is_refused(gate: Gate) -> None:
    """Duplicate keys and NaN are no arguments."""
    head = '{"kind": "approval", "door": "d", "session": "s", "call": "c", "tool": "Bash", "arguments": '
    for arguments in ('{"command": "git status", "command": "rm -rf /"}', '{"command": NaN}', '{"n": 1e999}'):
        status, answer = await gate.post("ask", body=f"{head}{arguments}}}".encode())
        assert (status, "state" in answer) == (400, False)


async def test_a_flooding_agent_is_slowed_and_its_person_is_told_once(gate: Gate) -> None:
    """Of five hundred requests in a minute ten are asked, on one message; the others are refused, and Ana reads why once."""
    many = range(0, 500, 25)
    answers = [
        answer
        for start in many
        for answer in await asyncio.gather(
            *(gate.ask(f"make {n}", f"c{n}") for n in range(start, start + 25))
        )
    ]
    states = [answer["state"] for answer in answers]
    assert (states.count("open"), states.count("busy")) == (10, 490)
    assert "Wait until people have answered" in answers[-1]["reason"]

    def told() -> list[str]:
        said = (message["text"] for message in gate.workspace.messages(gate.workspace.dm("ana")))
        return [text for text in said if "sends too many requests" in text]

    await gate.workspace.wait_for(told, timeout=20)
    thread = await gate.thread()
    await thread.says("10 calls need approval")
    assert len(told()) == 1
    assert len(thread.messages()) == 2, "the message that counts them, and the one with all of them"


def allow_buttons(message: dict[str, Any]) -> list[str]:
    """The values of the buttons that allow a call."""
    rows = (block["elements"] for block in message.get("blocks", ()) if block["type"] == "actions")
    return [one["value"] for row in rows for one in row if one["text"]["text"] == "Allow once"]


async def test_ten_at_once_are_one_message_and_decided_one_by_one_or_together(gate: Gate) -> None:
    """Nine are left when one is denied, and one press allows them; the message on top counts."""
    asked = [asyncio.create_task(gate.ask(f"make {n}", f"c{n}", wait=60)) for n in range(10)]
    thread = await gate.thread()
    message = await thread.says("10 calls need approval")
    assert len(thread.messages()) == 2
    assert len(set(allow_buttons(message))) == 10
    assert "Edit…" not in json.dumps(message, ensure_ascii=False), "with so many it is on Home"
    assert "*claude-code:laptop*, for" in message["text"]
    deny = allow_buttons(message)[3].rpartition("|")[0] + "|1"
    await gate.workspace.press("ben", "ops", message["ts"], text="Deny", value=deny)
    message = await thread.says("9 of 10 calls need approval")
    await thread.press("cleo", message, "Approve all (9)")
    answers = await asyncio.gather(*asked)
    assert sorted(answer["state"] for answer in answers) == ["allowed"] * 9 + ["denied"]
    message = await thread.says("*10 calls*, all decided")
    assert allow_buttons(message) == []
    await thread.says("10 requests, all decided")
    assert len(thread.messages()) == 2


async def test_ten_at_once_stand_once_each_when_the_bot_is_killed(gate: Gate) -> None:
    """Killed while they are posted, each request has its buttons on one message, and they count."""
    asked = [asyncio.create_task(gate.ask(f"make {n}", f"c{n}", wait=60)) for n in range(10)]
    await (await gate.thread()).says("need")
    await gate.bot.kill()
    await asyncio.gather(*asked, return_exceptions=True)
    await gate.bot.start()
    for n in range(10):
        assert (await gate.ask(f"make {n}", f"c{n}"))["state"] == "open"
    thread = await gate.thread()

    def values() -> list[str]:
        return [value for message in thread.messages() for value in allow_buttons(message)]

    await gate.workspace.wait_for(lambda: len(values()) >= 10, timeout=30)
    await gate.workspace.settled()
    assert len(values()) == len(set(values())) == 10
    for value in values():
        message = next(one for one in thread.messages() if value in allow_buttons(one))
        await gate.workspace.press("ben", "ops", message["ts"], text="Allow once", value=value)
    states = [(await gate.ask(f"make {n}", f"c{n}", wait=20))["state"] for n in range(10)]
    assert states == ["allowed"] * 10


async def test_ten_at_once_are_decided_together(gate: Gate) -> None:
    """On Home one form decides all ten; each is recorded, and handed out, by itself."""
    asked = [asyncio.create_task(gate.ask(f"make {n}", f"c{n}", wait=60)) for n in range(10)]
    workspace = gate.workspace
    await workspace.open_home("ben")
    await workspace.wait_for(lambda: "10 alike" in json.dumps(workspace.home("ben") or {}), timeout=30)
    home = workspace.home("ben") or {}
    await workspace.press_in_view("ben", home["id"], text="Decide 10 together…")
    await workspace.wait_for(lambda: workspace.views("ben"))
    view = workspace.views("ben")[-1]
    assert await workspace.submit_view("ben", view["id"], {"decision": "approve"}) == {"closed": True}
    answers = await asyncio.gather(*asked)
    assert sorted(answer["arguments"]["command"] for answer in answers) == sorted(
        f"make {n}" for n in range(10)
    )
    assert {answer["state"] for answer in answers} == {"allowed"}


async def always(gate: Gate, message: dict[str, Any], patterns: dict[str, str], **more: str) -> None:
    """Ben allows a call always, with these patterns."""
    workspace = gate.workspace
    menu = next(block["accessory"] for block in message["blocks"] if "accessory" in block)
    value = next(one["value"] for one in menu["options"] if one["value"].startswith("always|"))
    await workspace.press("ben", "ops", message["ts"], action_id=menu["action_id"], value=value)
    await workspace.wait_for(lambda: workspace.views("ben"))
    view = workspace.views("ben")[-1]
    filled = {**{f"pattern:{name}": text for name, text in patterns.items()}, **more}
    assert await workspace.submit_view("ben", view["id"], filled) == {"closed": True}


async def test_a_call_is_allowed_for_a_time_in_a_folder_until_somebody_takes_that_back(gate: Gate) -> None:
    """Whatever fits is allowed without a press, in this folder, for this token, and for nothing that a shell acts on."""
    here = {"machine": "laptop", "place": "/srv/checkout"}
    with_words = {"arguments": {"command": "npm test cart", "description": "Run the tests"}}
    asked = asyncio.create_task(gate.ask("", wait=30, **here, **with_words))
    thread = await gate.thread()
    message = await thread.asks()
    await always(gate, message, {"command": "npm test *"}, **{"for": "3600.0"})
    assert (await asked)["state"] == "allowed"
    closed = await thread.says("for this agent in this folder")
    allowed = await gate.ask("npm test basket", "c2", session="s2", **here)
    assert (allowed["state"], allowed["by"]) == ("allowed", ["Ben Okafor"])
    assert (await gate.ask("npm test x; rm -rf /", "c3", session="s3", **here))["state"] == "open"
    assert (await gate.ask("npm test basket", "c4", session="s4", place="/srv", machine="laptop"))[
        "state"
    ] == "open"
    other = gate.login("codex:desk", "ana")
    again = {"kind": "approval", "door": "d", "session": "s5", "call": "c", "tool": "Bash"}
    again |= {"arguments": {"command": "npm test basket"}, **here}
    assert (await gate.post("ask", token=other, **again))[1]["state"] == "open"
    assert "npm test *" in gate.sayso("grants", "list")
    await thread.press("ben", closed, "Revoke")
    await thread.says("Revoked")
    assert (await gate.ask("npm test basket", "c6", session="s6", **here))["state"] == "open"


async def test_a_grant_is_bound_to_the_people_whom_the_rule_asks(gate: Gate) -> None:
    """With another rule they are asked again; a rule that denies counts before it."""
    asked = asyncio.create_task(gate.ask("npm test", wait=30))
    thread = await gate.thread()
    await always(gate, await thread.asks(), {})
    assert (await asked)["state"] == "allowed"
    assert (await gate.ask("npm test", "c2"))["state"] == "allowed"
    rules = gate.folder / "gate.yml"
    rules.write_text(RULES.replace("[ben@example.com, cleo@example.com]", "[cleo@example.com]"))
    assert (await gate.ask("npm test", "c3"))["state"] == "open"
    rules.write_text(RULES.replace("*delete*", "Bash"))
    assert (await gate.ask("npm test", "c4"))["state"] == "denied"


async def test_a_rule_is_proposed_after_equal_approvals_of_three_sessions(gate: Gate) -> None:
    """Posted once, as text that can be pasted and allows these calls; nothing is applied by itself."""

    def messages() -> list[dict[str, Any]]:
        roots = gate.workspace.messages("ops")
        return [one for root in roots for one in gate.workspace.messages("ops", root["ts"])]

    def said(text: str) -> list[str]:
        return [message["text"] for message in messages() if text in message["text"]]

    for number in (1, 1, 2, 3, 4):
        test = {"session": f"s{number}", "arguments": {"command": "npm test", "description": "x"}}
        asked = asyncio.create_task(gate.ask("", f"c{number}", 30, **test))

        def waits() -> Any:
            return next((message for message in messages() if allow_buttons(message)), None)

        message = await gate.workspace.wait_for(waits)
        assert not said("put this into") or number == 4
        await gate.workspace.press("ben", "ops", message["ts"], text="Allow once")
        assert (await asked)["state"] == "allowed"
    await gate.workspace.wait_for(lambda: said("put this into"))
    await gate.workspace.settled()
    (proposal,) = said("put this into")
    rule = proposal.partition("```")[2].partition("```")[0].replace("&amp;", "&")
    text = RULES.replace("rules:\n", f"rules:\n  {rule}\n")
    rules = read_rules(text)
    assert (
        rules.decide("claude-code:laptop", "Bash", {"command": "npm test", "description": "y"}).kind
        == "allow"
    )
    assert rules.decide("claude-code:laptop", "Bash", {"command": "npm test; x"}).kind == "ask"
    assert (await gate.ask("npm test", "c9", session="s9"))["state"] == "open"


async def test_a_request_that_waits_keeps_its_rule_when_the_file_is_edited(gate: Gate) -> None:
    """It stays open and can be allowed; the next one is decided by the file as it is then. Each records which file that was."""
    assert (await gate.ask("make deploy"))["state"] == "open"
    (gate.folder / "gate.yml").write_text(RULES.replace("*delete*", "Bash"))
    assert (await gate.ask("make deploy", "c2"))["state"] == "denied"
    assert (await gate.ask("make deploy"))["state"] == "open"
    thread = await gate.thread()
    await thread.approve("ben", await thread.asks())
    assert (await gate.ask("make deploy", wait=20))["state"] == "allowed"
    with closing(sqlite3.connect(gate.bot.home / "sayso.db")) as store:
        rows = store.execute(
            "SELECT payload FROM inbox WHERE kind IN ('gate.noted', 'gate.request')"
        ).fetchall()
    kept = [json.loads(payload) for (payload,) in rows]
    digests = {sha256(text.encode()).hexdigest() for text in (RULES, RULES.replace("*delete*", "Bash"))}
    assert {one["rules"] for one in kept if "rules" in one} == digests


async def test_a_question_is_asked_where_calls_are_denied(gate: Gate) -> None:
    """`otherwise: deny` is about calls; and a call that a rule decides the same way again stores nothing more."""
    rules = gate.folder / "gate.yml"
    rules.write_text(RULES.partition("otherwise:")[0] + "otherwise: {deny: Nothing else.}\n")
    assert (await gate.ask("make deploy"))["state"] == "denied"
    arguments = {"message": "Which colour?"}
    assert (await gate.ask("", "q", kind="question", tool="ask_human", arguments=arguments))[
        "state"
    ] == "open"
    for _ in range(3):
        assert (await gate.ask("git status", "r"))["state"] == "allowed"
    with closing(sqlite3.connect(gate.bot.home / "sayso.db")) as store:
        [[kept]] = store.execute("SELECT count(*) FROM inbox WHERE kind = 'gate.noted'")
    assert kept == 3, "one for each call"


async def test_credentials_in_arguments_are_in_the_digest_and_not_in_slack(gate: Gate) -> None:
    """Nothing in Slack shows them, and what is handed out has them."""
    secret = "ghp_" + "a1B2" * 9
    command = f"curl -H 'Authorization: {secret}' https://api.github.com"
    asked = asyncio.create_task(gate.ask(command, wait=30))
    thread = await gate.thread()
    message = await thread.asks()
    assert "a credential of 40 characters" in words(message)
    await thread.approve("ben", message)
    assert (await asked)["arguments"] == {"command": command}
    assert secret not in json.dumps(thread.messages())
    assert (await gate.ask(command.replace("a1B2", "c3D4"), "c1"))["error"] == "refused"


async def test_large_arguments_are_asked_about_whole(workspace: Workspace, tmp_path: Path) -> None:
    """200 kB, and numbers that JSON readers disagree about, come back as they were."""
    async with gated(workspace, tmp_path) as gate:
        large = {"content": "x" * 200_000, "number": 12345678901234567, "text": "a\u202eb\x07"}
        asked = asyncio.create_task(gate.ask("", wait=30, tool="Write", arguments=large))
        thread = await gate.thread()
        await thread.approve("ben", await thread.asks())
        answer = await asked
        assert (answer["state"], answer["arguments"]) == ("allowed", large)
