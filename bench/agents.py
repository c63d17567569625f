"""Agents in threads: what comes on top of the model's own time, how soon text is seen, and a cold resume.

The real bot is a process of its own, with the real SDK; Slack and Claude are local servers in this one. What lies
between the last byte of an answer and the next request is all ours: events, commits, the tool call, edits of the
message in the thread, the next request. The tool is a `set` node, which takes no time of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.floor import MILLISECONDS
from bench.nodes import folder_in
from bench.processes import SAYSO, caught_up, running_bot, timed
from bench.report import Row, median, quantile
from bench.turns import import_time
from tests.support.acting import Workspace
from tests.support.claude_server import ClaudeServer, Reply, call, claude_server, text

TURNS = 60
SHOWN = 12
"""Fewer than the starts that one person is allowed in a while, times the people."""
PEOPLE = ("ana", "ben", "cleo", "dev")
MESSAGES = 200
PAUSED = 3
MOST_OVERHEAD = 20.0
MOST_UNSEEN = 1000.0
MOST_RESUME = 1500.0
SAID = "The disk of db-1 is nearly full, as it was last week. " * 8
FLOW = """
flow: talk
tools:
  note:
    description: Keep a note
    input: {text: {type: string}}
    type: set
    with: {kept: "{{ input.text }}"}
nodes:
  - id: diagnose
    type: agent
    with: {prompt: Why is it failing?, tools: [note, ask_human], max_turns: 1000, max_cost: 1000}
"""


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about agents."""
    part = 4 if quick else 1
    gaps, unseen = asyncio.run(_in_threads(base, TURNS // part, SHOWN // part))
    resumes, imports = asyncio.run(_resumes(base, 2 if quick else 5))
    extra = [whole - sdk for whole, sdk in zip(resumes, imports, strict=True)]
    note = (
        f"{len(gaps)} turns with {len(SAID)} characters and a call of a tool that takes no time, in a conversation that "
        f"grows to {2 * len(gaps)} messages; from the last byte of an answer until the next request is there"
    )
    cold = (
        f"`sayso sessions resume` as a process, from its start until the model is asked, {median(resumes):,.0f} ms, less an "
        f"import of the SDK in a process of its own directly before, {median(imports):,.0f} ms"
    )
    return [
        Row("agent turn beyond the model's time, p50", median(gaps), "ms", limit=MOST_OVERHEAD, note=note),
        Row("agent turn beyond the model's time, p99", quantile(gaps, 0.99), "ms"),
        Row("first text of a model in a channel, p50", median(unseen), "ms", limit=MOST_UNSEEN),
        Row("first text of a model in a channel, the latest", max(unseen), "ms", limit=MOST_UNSEEN),
        Row(
            f"cold resume of {MESSAGES} messages, without the SDK",
            median(extra),
            "ms",
            limit=MOST_RESUME,
            note=cold,
        ),
    ]


# --- in threads --------------------------------------------------------------------------------------------------


async def _in_threads(base: Path, turns: int, shown: int) -> tuple[list[float], list[float]]:
    """What turns took beyond the model's time, and how long first words were not seen; in milliseconds."""
    with folder_in(base) as home, folder_in(base) as flows:
        (flows / "talk.yml").write_text(FLOW)
        async with claude_server() as server, Workspace() as workspace:
            async with running_bot(workspace, home, flows, **server.environ()):
                await workspace.connected(2)
                await caught_up(workspace)
                gaps = await _talk(workspace, server, turns)
                unseen = [await _first_words(workspace, server, number) for number in range(shown)]
            if server.refused:
                raise RuntimeError(f"the server refused: {server.refused[0]}")
    return gaps, unseen


async def _talk(workspace: Workspace, server: ClaudeServer, turns: int) -> list[float]:
    """One conversation; the time between each answer and the next request, but the first, which loads things."""
    server.queue(*(_note(number) for number in range(turns + 1)), text("It was the disk."))
    await workspace.post("ana", "ops", "@sayso talk")
    await _asked(workspace, server, turns + 2)
    pairs = zip(server.requests, server.requests[1:], strict=False)
    return [(after.arrived - (before.answered or 0)) * MILLISECONDS for before, after in pairs][1:]


async def _asked(workspace: Workspace, server: ClaudeServer, times: int) -> None:
    """Return once the model was asked so often and has answered."""
    async with asyncio.timeout(120):
        while len(server.requests) < times or server.requests[-1].answered is None:  # noqa: ASYNC110 - no signal
            await asyncio.sleep(0.05)


async def _first_words(workspace: Workspace, server: ClaudeServer, number: int) -> float:
    """From the first piece of an answer until it can be read in the thread, in a channel of its own: Slack takes a
    message a second in each."""
    reply = text(SAID, hold_after="text_delta")
    server.queue(reply)
    channel = f"first-{number}"
    workspace.add_channel(channel)
    ts = await workspace.post(PEOPLE[number % len(PEOPLE)], channel, "@sayso talk")
    await asyncio.wait_for(reply.reached.wait(), 60)
    began = time.perf_counter()
    await workspace.wait_for(lambda: SAID[:8] in json.dumps(workspace.messages(channel, ts)), timeout=30)
    taken = (time.perf_counter() - began) * MILLISECONDS
    reply.go.set()
    await workspace.wait_for(lambda: "writing" not in json.dumps(workspace.messages(channel, ts)), timeout=30)
    return taken


def _note(number: int) -> Reply:
    """An answer that calls the tool."""
    return Reply([{"type": "text", "text": SAID}, call("note", {"text": SAID}, f"toolu_{number}")])


# --- cold --------------------------------------------------------------------------------------------------------


async def _resumes(base: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds from the start of a process that resumes a long conversation until it asks the model, and those of
    an import of the SDK before each."""
    async with claude_server() as server:
        taken, imports = [], []
        for _ in range(rounds):
            with folder_in(base) as folder:
                imports.append(await asyncio.to_thread(import_time, 1))
                taken.append(await _resumed(folder, server))
        if server.refused:
            raise RuntimeError(f"the server refused: {server.refused[0]}")
        return taken, imports


async def _resumed(folder: Path, server: ClaudeServer) -> float:
    (folder / "talk.yml").write_text(FLOW)
    ask = call("ask_human", {"question": "Which one?"}, "toolu_ask")
    server.queue(*_turns(MESSAGES // 2 - 1), Reply([ask]), text("Well."))
    env = server.environ()
    run = (*SAYSO, "--home", "home", "run", "talk.yml", "--no-input")
    _, said = await asyncio.to_thread(timed, run, folder, code=PAUSED, **env)
    session_id, before = json.loads(said)["sessionId"], len(server.requests)
    began = time.perf_counter()
    again = (*SAYSO, "--home", "home", "sessions", "resume", session_id, "The first", "--no-input")
    await asyncio.to_thread(timed, again, folder, **env)
    asked: Any = server.requests[before]
    if len(asked.body["messages"]) != MESSAGES + 1:
        raise RuntimeError(f"the conversation has {len(asked.body['messages'])} messages")
    return float(asked.arrived - began) * MILLISECONDS


def _turns(count: int) -> Iterator[Reply]:
    return (_note(number) for number in range(count))
