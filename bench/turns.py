"""A turn with a model: what the provider adds to the time that the server and its stream take anyway."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import aiohttp

from bench.floor import MILLISECONDS
from bench.report import Row, median, quantile
from engine.messages.messages import Message, user
from engine.messages.turns import Tool, TurnRequest
from engine.models.claude import ClaudeProvider, body_of
from engine.models.provider import complete
from tests.providers.providerkit import assistant, tool_result_block
from tests.support.claude_server import KEY, ClaudeServer, Reply, call, claude_server

ROUNDS = 200
PAIRS = 20
SAID = "The disk of db-1 is full, as it was last week. " * 40


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about turns."""
    turns, reads = asyncio.run(_turns(ROUNDS // 10 if quick else ROUNDS))
    extra = [turn - read for turn, read in zip(turns, reads, strict=True)]
    note = (
        f"{len(turns)} turns of {len(SAID):,} characters in {len(SAID) // 9} pieces and two tool calls, in a conversation of "
        f"{2 * PAIRS + 1} messages, beside reading the same answer as bytes: {median(turns):.1f} and {median(reads):.1f} ms"
    )
    return [
        Row("turn of Claude beyond the server's time, p50", median(extra), "ms", limit=20.0, note=note),
        Row("turn of Claude beyond the server's time, p99", quantile(extra, 0.99), "ms"),
        Row("import of Claude's SDK, before the first turn only", import_time(3), "ms"),
    ]


async def _turns(rounds: int) -> tuple[list[float], list[float]]:
    """What turns took through the provider, and what reading the same answers took; by turns, in milliseconds."""
    turns, reads = [], []
    async with claude_server() as server, aiohttp.ClientSession() as session:
        provider, request = ClaudeProvider(server.environ()), _request()
        body = json.dumps({**body_of(request, caching=True), "stream": True}).encode()
        for _ in range(rounds + 1):
            server.queue(_reply(), _reply())
            turns.append(await _turn(provider, request))
            reads.append(await _read(session, server, body))
        await provider.close()
        if server.refused:
            raise RuntimeError(f"the server refused: {server.refused[0]}")
    return turns[1:], reads[1:]


async def _turn(provider: ClaudeProvider, request: TurnRequest) -> float:
    begin = time.perf_counter()
    result = await complete(provider, request, asyncio.Event())
    taken = (time.perf_counter() - begin) * MILLISECONDS
    if result.text != SAID or [block["type"] for block in result.content].count("tool_use") != 2:
        raise RuntimeError("the turn is not what the server sent")
    return taken


async def _read(session: aiohttp.ClientSession, server: ClaudeServer, body: bytes) -> float:
    """The same request with a plain client, its answer read to the end and not looked at."""
    headers = {
        "authorization": f"Bearer {KEY}",
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
    }
    begin = time.perf_counter()
    async with session.post(f"{server.url}/v1/messages", data=body, headers=headers) as response:
        await response.read()
    return (time.perf_counter() - begin) * MILLISECONDS


def _request() -> TurnRequest:
    messages: list[Message] = [user("Why is it failing?")]
    for number in range(PAIRS):
        messages.append(assistant("I look.", call("logs", {"host": f"db-{number}"}, f"t{number}")))
        messages.append(user(tool_result_block(f"t{number}", "disk full\n" * 50)))
    tool = Tool("logs", "Reads logs.", {"type": "object", "properties": {"host": {"type": "string"}}})
    return TurnRequest("claude-sonnet-5-5", tuple(messages), 4_000, system="Be short.", tools=(tool,))


def _reply() -> Reply:
    return Reply(
        [{"type": "text", "text": SAID}, call("logs", {"host": "a"}, "x1"), call("logs", {"host": "b"}, "x2")]
    )


def import_time(rounds: int) -> float:
    """What the import takes in a process of its own, in milliseconds."""
    script = "import time; b = time.perf_counter(); import anthropic; print(time.perf_counter() - b)"
    taken = [
        float(
            subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        )
        for _ in range(rounds)
    ]
    return median(taken) * MILLISECONDS
