"""From a mention to a resumed thread. Files count how often nodes ran."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.acting import Workspace
from tests.support.bot import ThreadView, counted, running_bot, start_flow, words
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated


def two_steps(log: Path) -> dict[str, str]:
    """A flow that writes a word, asks, and writes another word with the reply."""
    return {
        "steps": f"""
flow: steps
nodes:
  - id: before
    type: shell
    with: {{script: 'echo before >> "$LOG"', env: {{LOG: "{log}"}}}}
  - id: question
    type: ask
    with: {{message: "What now?"}}
  - id: after
    type: shell
    with: {{script: 'printf "after:%s\\n" "$SAID" >> "$LOG"', env: {{LOG: "{log}", SAID: "{{{{ nodes.question.text }}}}"}}}}
  - id: tell
    type: message
    with: {{text: "All is done"}}
"""
    }


@pytest.mark.process
async def test_a_reply_after_kill_9_goes_on_where_the_flow_stopped(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Mention, prompt, kill -9, restart, plain reply: the flow continues, and every node has run once."""
    log = tmp_path / "log"
    async with running_bot(workspace, tmp_path, two_steps(log)) as bot:
        thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
        await bot.kill()
        await bot.start()
        await thread.reply("ana", "carry-on")
        await thread.says("All is done")
    assert counted(log) == ["before", "after:carry-on"]
    assert thread.count("What now?") <= 2, "the prompt itself, and the card that names it"


TWO_QUESTIONS = """
flow: two
nodes:
  - {id: first, type: ask, with: {message: "First question"}}
  - {id: second, type: ask, with: {message: "Second question"}}
  - {id: tell, type: message, with: {text: "first={{ nodes.first.text }} second={{ nodes.second.text }}"}}
"""
GATE = """
flow: gate
nodes:
  - id: gate
    type: approval
    with:
      message: "Open the gate?"
      approvers: [ben@example.com, "@sre", ana@example.com]
      exclude_requester: true
  - id: opened
    type: shell
    with: {script: 'echo opened >> "$LOG"', env: {LOG: "LOGFILE"}}
  - {id: tell, type: message, with: {text: "The verdict came from {{ nodes.gate.by[0].name }}"}}
"""


def gate(log: Path) -> dict[str, str]:
    """A flow with one approval."""
    return {"gate": GATE.replace("LOGFILE", str(log))}


@simulated
async def test_two_presses_at_the_same_instant_have_one_winner(tmp_path: Path) -> None:
    """If two people approve at the same instant, one approval counts, and the other person is told who was first."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, gate(log)) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "gate")
        prompt = await thread.says("Open the gate?")
        await asyncio.gather(thread.approve("ben", prompt), thread.approve("dev", prompt))
        await thread.says("The verdict came from")

        def told() -> list[str]:
            whispers = [*workspace.ephemerals("ben"), *workspace.ephemerals("dev")]
            return [whisper["text"] for whisper in whispers]

        await workspace.wait_for(lambda: len(told()) == 1)
        assert "Already answered by" in told()[0]
        closed = await thread.says("*Approved* by")
        assert "Approve\n" not in str(closed.get("blocks")), "the buttons are gone"
    assert counted(log) == ["opened"]


@simulated
async def test_what_is_delivered_twice_has_one_effect(tmp_path: Path) -> None:
    """A redelivered event, a redelivered click and a lost acknowledgement have one effect each."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, {**gate(log), **two_steps(log)}) as (workspace, _):
        workspace.faults.redeliver_next(2)
        thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
        workspace.faults.lose_ack_next(1)
        await thread.reply("ana", "once")
        await thread.says("All is done")
        approval = await start_flow(workspace, "ana", "releases", "gate")
        prompt = await approval.says("Open the gate?")
        workspace.faults.redeliver_next(1)
        await approval.press("ben", prompt, "Approve")
        await approval.says("The verdict came from")
        assert workspace.faults.struck, "the faults did strike"
    assert sorted(counted(log)) == ["after:once", "before", "opened"]


@in_town({"two": TWO_QUESTIONS})
async def test_slash_command_starts_in_the_thread_of_a_message_of_the_bot(workspace: TownWorkspace) -> None:
    """`/sayso run` starts the flow in a thread of its own; list and status answer whoever asked."""
    listed = await workspace.slash("ana", "ops", "/sayso", "list")
    assert "two" in str(listed)
    await workspace.slash("ana", "ops", "/sayso", "run two")

    def roots() -> list[str]:
        return [str(m["ts"]) for m in workspace.messages("ops") if "started" in m.get("text", "")]

    await workspace.wait_for(lambda: len(roots()) == 1)

    thread = ThreadView(workspace, "ops", roots()[0])
    await thread.says("First question")
    status = await workspace.slash("ana", "ops", "/sayso", "status")
    # With a link to its thread, and whom it waits for.
    assert f"|two> is waiting\n   waits for <@{workspace.user('ana').id}>: First question" in status["text"]
    assert thread.root_ts in status["text"]
    await thread.reply("ana", "one")
    await thread.says("Second question")
    await thread.reply("ana", "two")
    await thread.says("first=one second=two")


@pytest.mark.process
async def test_sigterm_drains(workspace: Workspace, tmp_path: Path) -> None:
    """At SIGTERM a running node finishes, its outcome is durable, and the process ends with code 0."""
    log, started, release = tmp_path / "log", tmp_path / "started", tmp_path / "release"
    script = """
echo started >> "$LOG"; touch "$STARTED"
while [ ! -e "$RELEASE" ]; do sleep 0.05; done
echo finished >> "$LOG"
"""
    env = {"LOG": str(log), "STARTED": str(started), "RELEASE": str(release)}
    flow = {
        "flow": "slow",
        "nodes": [
            {"id": "work", "type": "shell", "with": {"script": script, "env": env}},
            {"id": "tell", "type": "message", "with": {"text": "The work is over"}},
        ],
    }
    async with running_bot(workspace, tmp_path, {"slow": json.dumps(flow)}) as bot:
        thread = await start_flow(workspace, "ana", "ops", "slow")
        await workspace.wait_for(started.exists)
        bot.process.terminate()
        await workspace.wait_for(lambda: not workspace.core.sockets.usable())
        assert counted(log) == ["started"]
        release.touch()
        assert await bot.ended() == 0
        assert counted(log) == ["started", "finished"]
        await bot.start()
        await thread.says("The work is over")
    assert counted(log) == ["started", "finished"]


@pytest.mark.process
async def test_an_interrupted_command_is_asked_about_and_never_run_twice(
    workspace: Workspace, tmp_path: Path
) -> None:
    """After kill -9 in the middle of a shell node, a person is asked, and the node runs again only if they say so."""
    log, started = tmp_path / "log", tmp_path / "started"
    flow = f"""
flow: risky
nodes:
  - {{id: ready, type: ask, with: {{message: "Ready?"}}}}
  - id: work
    type: shell
    with: {{script: 'echo ran >> "$LOG"; touch "$STARTED"; sleep 60', env: {{LOG: "{log}", STARTED: "{started}"}}}}
  - {{id: tell, type: message, with: {{text: "Gone on"}}}}
"""
    async with running_bot(workspace, tmp_path, {"risky": flow}) as bot:
        thread = await start_flow(workspace, "ana", "ops", "risky", says="Ready?")
        await thread.reply("ana", "yes")
        # What was posted is known to be there, so that nothing has to be looked for afterwards.
        await thread.says("*Answered*")
        await workspace.wait_for(started.exists)
        await bot.kill()
        await bot.start()
        asked = await thread.says("may or may not have taken effect")
        assert "echo ran" in words(asked)
        styles = [
            found.get("style")
            for block in asked["blocks"]
            for found in block.get("elements", ())
            if "text" in found
        ]
        assert "primary" not in styles
        assert counted(log) == ["ran"]
        await thread.press("cleo", asked, "It was done")
        await workspace.wait_for(lambda: bool(workspace.ephemerals("cleo")))
        await thread.press("ana", asked, "It was done")
        await thread.says("Gone on")
    assert counted(log) == ["ran"]


@in_town({"two": TWO_QUESTIONS})
async def test_a_reply_that_comes_before_its_start_was_handled_is_kept(workspace: TownWorkspace) -> None:
    """While the start of a thread waits for a lookup, replies in it are stored and handled afterwards."""
    workspace.faults.fail("users.info", times=3)
    thread = await start_flow(workspace, "ana", "ops", "two")
    await thread.reply("ana", "status")
    await thread.says("First question", timeout=40)
    await thread.says("is waiting", timeout=40)
