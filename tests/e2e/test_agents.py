"""Agents in threads: the real bot and the real SDK, against a local workspace and a local server for Claude."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.acting import Workspace
from tests.support.bot import ThreadView, running_bot, start_flow, whispered, words
from tests.support.claude_binding import grows
from tests.support.claude_server import ClaudeServer, Reply, call, claude_server, text
from tests.support.simulated import inhabited_town

INVESTIGATE = """
flow: investigate
nodes:
  - id: diagnose
    type: agent
    with:
      prompt: "Why is web slow?"
      tools:
        - ask_human
        - shell: {commands: ["echo *"], on_crash: again}
  - id: tell
    type: message
    with: {text: "Found: {{ nodes.diagnose.text }}"}
"""
APPROVED = INVESTIGATE.replace(
    "  - id: tell",
    """      approvals:
        shell: [approve, edit, reject]
  - id: tell""",
)


@pytest.fixture
async def claude() -> AsyncIterator[ClaudeServer]:
    """A server in Claude's place."""
    async with claude_server() as server:
        yield server


def marks(thread: ThreadView, ts: str) -> set[str]:
    """The reactions on a message of the thread."""
    message = next(message for message in thread.messages() if message["ts"] == ts)
    return {reaction["name"] for reaction in message.get("reactions") or []}


def preformatted(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The texts that a message shows exactly as they are, in code blocks."""
    rich = [element for block in message["blocks"] for element in block.get("elements") or []]
    return [text for one in rich if one["type"] == "rich_text_preformatted" for text in one["elements"]]


async def test_an_agent_is_seen_at_work(claude: ClaudeServer, tmp_path: Path) -> None:
    """Its text and its call are in one message of the thread, a question is asked, and the end is told."""
    ask = call("ask_human", {"question": "Which web?", "choices": ["web-1", "web-2"]}, "t2")
    claude.queue(
        Reply(
            [{"type": "text", "text": "Let me **look**."}, call("shell", {"command": "echo fine"}, "t1")],
            "tool_use",
        ),
        Reply([ask], "tool_use"),
        text("It is web-2, see https://evil.example/x <!here>"),
    )
    async with inhabited_town(tmp_path, {"investigate": INVESTIGATE}, env=claude.environ()) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "investigate")
        message = await thread.says("Let me **look**.")
        await thread.says("⚙️ shell: `echo fine` ✅")
        question = await thread.says("Question for")
        await thread.press("ana", question, "web-2")
        await thread.says("Found: ")
        assert thread.count("ask_human:") == 0, "the question is a message of its own"
        final = await thread.says("It is web-2, see `https://evil.example/x` < !here>")
    assert claude.refused == []
    told = thread.find("Found: ")
    assert told is not None
    assert float(told["ts"]) > float(final["ts"]), "what the flow says next stands below what the agent said"
    assert float(final["ts"]) > float(question["ts"]) > float(message["ts"])
    assert thread.count("Let me **look**.") == 1
    assert "t2" in str(claude.requests[2].body)
    assert "web-2" in str(claude.requests[2].body["messages"][-1])


async def test_a_message_steers_a_running_agent(claude: ClaudeServer, tmp_path: Path) -> None:
    """A message while the model speaks is marked as kept, is in the next call, and is marked as read then. What a
    colleague says is left alone."""
    slow = text("I look at the logs", hold_after="text_delta")
    claude.queue(slow, text("Only web-2 then."))
    async with inhabited_town(tmp_path, {"investigate": INVESTIGATE}, env=claude.environ()) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "investigate", says="writing …")
        chatter = await thread.reply("ben", "Lunch?")
        ts = await thread.reply("ana", "Look at web-2 only")
        await workspace.wait_for(lambda: marks(thread, ts) == {"eyes"})
        slow.go.set()
        await workspace.wait_for(lambda: marks(thread, ts) == {"eyes", "white_check_mark"})
        second = await thread.says("Only web-2 then.")
    assert float(second["ts"]) > float(ts)
    assert "Look at web-2 only" in str(claude.requests[1].body["messages"][-1])
    assert marks(thread, chatter) == set()
    assert "Lunch" not in str(claude.requests[1].body)


async def test_stop_keeps_the_partial_text_and_resume_goes_on(claude: ClaudeServer, tmp_path: Path) -> None:
    """`stop` cuts the stream; what was said stays, marked; `resume` with words continues with them."""
    slow = text("I restart everything now", hold_after="text_delta")
    claude.queue(slow, text("All right, nothing is restarted."))
    async with inhabited_town(tmp_path, {"investigate": INVESTIGATE}, env=claude.environ()) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "investigate", says="writing …")
        await thread.reply("ana", "stop")
        await thread.says("stopped here")
        assert not thread.count("writing …")
        kept = await thread.reply("ana", "Look at web-2 first")
        await workspace.wait_for(lambda: marks(thread, kept) == {"eyes"})
        await whispered(workspace, "ana", "The agent will read")
        await thread.reply("ana", "resume do not restart anything")
        await thread.says("All right, nothing is restarted.")
    last = str(claude.requests[1].body["messages"][-1])
    assert 0 < last.index("Look at web-2 first") < last.index("do not restart anything")


async def test_a_call_is_approved_as_it_is_shown(claude: ClaudeServer, tmp_path: Path) -> None:
    """The exact call is shown with its buttons; it runs once it is approved, and a rejection is the model's to read."""
    first = Reply([call("shell", {"command": "echo one"}, "t1")], "tool_use")
    second = Reply([call("shell", {"command": "echo two"}, "t2")], "tool_use")
    claude.queue(first, second, text("Done."))
    async with inhabited_town(tmp_path, {"investigate": APPROVED}, env=claude.environ()) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "investigate", says="⚙️ shell: `echo one` …")
        gate = await thread.asks()
        assert {"type": "text", "text": "echo one"} in preformatted(gate)
        await thread.approve("ana", gate)
        await thread.says("⚙️ shell: `echo one` ✅")
        await thread.says("⚙️ shell: `echo two` …")
        gate = await thread.asks()
        await thread.reject("ana", gate)
        await thread.says("⚙️ shell: `echo two` ❌")
        await thread.says("Found: Done.")


async def test_words_to_an_agent_that_waits_for_a_decision_are_kept_and_that_is_said(
    claude: ClaudeServer, tmp_path: Path
) -> None:
    """They decide nothing: their author is told that the agent reads them later, and it does."""
    claude.queue(Reply([call("shell", {"command": "echo one"}, "t1")], "tool_use"), text("Done."))
    async with inhabited_town(tmp_path, {"investigate": APPROVED}, env=claude.environ()) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "investigate")
        gate = await thread.asks()
        await thread.reply("ana", "yes, but gently")
        await whispered(workspace, "ana", "once the question above is answered")
        assert len(claude.requests) == 1
        await thread.approve("ana", gate)
        await thread.says("Found: Done.")
    assert "yes, but gently" in str(claude.requests[1].body["messages"][-1])


@pytest.mark.process
async def test_a_kill_in_the_middle_of_a_stream_leaves_one_text(
    workspace: Workspace, claude: ClaudeServer, tmp_path: Path
) -> None:
    """`kill -9` while the model speaks: the next process asks again, and its whole text stands where half a one stood."""
    slow = text("I was about to say more", hold_after="text_delta")
    claude.queue(slow, text("I was about to say more, and now I did."))
    async with running_bot(workspace, tmp_path, {"investigate": INVESTIGATE}, **claude.environ()) as bot:
        thread = await start_flow(workspace, "ana", "ops", "investigate")
        half = await thread.says("writing …")
        await bot.kill()
        slow.go.set()
        await bot.start()
        await thread.says("Found: ")
        await workspace.wait_for(lambda: not thread.count("writing …"))
    whole = thread.find("and now I did.")
    assert whole is not None
    texts = [message for message in thread.messages() if "I was about to say more" in words(message)]
    assert [message["ts"] for message in texts][:1] == [half["ts"]]
    assert len(texts) == 2, "the agent's message, and what the flow tells"


BESIDE = """
flow: beside
nodes:
  - id: each
    type: foreach
    with: {items: [web-1, web-2], as: host, concurrency: 2}
    body:
      - {id: look, name: Look, type: agent, with: {prompt: "Why is {{ host }} slow?"}}
  - {id: sum, type: agent, with: {prompt: "Sum it up"}}
"""


async def test_of_several_agents_each_says_which_one_it_is(claude: ClaudeServer, tmp_path: Path) -> None:
    """In passes of a loop and beside others an agent's message is headed by its place; one that is alone needs none."""

    def answer(body: Any) -> Reply:
        asked = str(body["messages"][0])
        return text(next((f"It is {host}." for host in ("web-1", "web-2") if host in asked), "The sum."))

    claude.mind = answer
    async with inhabited_town(tmp_path, {"beside": BESIDE}, env=claude.environ()) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "beside")
        for host in ("web-1", "web-2"):
            assert f"🤖 each › {host} › Look" in words(await thread.says(f"It is {host}."))
        assert "🤖" not in words(await thread.says("The sum."))


@pytest.mark.process
async def test_an_agent_that_rests_is_woken_after_a_kill(
    workspace: Workspace, claude: ClaudeServer, tmp_path: Path
) -> None:
    """The process dies while it listens. A reply that came meanwhile, and one that comes later, continue in the same conversation:
    each request is the one before with more behind it."""
    flow = INVESTIGATE.split("  - id: tell")[0] + "      follow_up: 7d\n"
    claude.queue(text("It was the disk."), text("db-2 is fine."), text("So is db-3."))
    async with running_bot(workspace, tmp_path, {"investigate": flow}, **claude.environ()) as bot:
        thread = await start_flow(workspace, "ana", "ops", "investigate", says="It was the disk.")
        await thread.says("Listening")
        await bot.kill()
        await thread.reply("ana", "and db-2?")
        await bot.start()
        await thread.says("db-2 is fine.")
        await thread.reply("ana", "and db-3?")
        await thread.says("So is db-3.")
        await thread.reply("ana", "done")
        await thread.says("no longer listens")
        await thread.says("Completed")
    assert claude.refused == []
    bodies = [request.body for request in claude.requests]
    assert len(bodies) == 3
    grows(bodies)
    said = [str(body["messages"][-1]) for body in bodies]
    assert ["and db-2?" in said[1], "and db-3?" in said[2]] == [True, True]
    assert thread.count("It was the disk.") == 1
