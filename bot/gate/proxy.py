"""`sayso gate proxy`: is between an MCP client and a server over standard input and output, and asks about calls of tools.

It relays lines. A `tools/call` is held until the gate has allowed it, and then the same bytes continue, or canonical JSON where
people changed its arguments; everything else passes untouched, so any revision of the protocol works. What two readers could
take for different things (a key that stands twice or in another letter case, NaN, a line end within a line) is refused, since
the server could read another call in it.

A held call that is cancelled, or not decided in time, is dropped and never sent later. The first definition of a tool that is
seen is pinned by the gate: calls of a tool whose definition has changed are asked about, whatever a rule allows.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn

from bot.gate.client import Ambiguous, Client, NoGate, folded, read_json

_MOST_BYTES = 64 * 2**20
_LEAVE_SECONDS = 5.0
"""Seconds that a server has to end once its client is gone."""
_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Characters that some readers treat as a line end."""
_ENVELOPE, _PARAMS = ("jsonrpc", "id", "method", "params"), ("name", "arguments", "_meta")
"""Keys by which a call is known. A reader that ignores the letter case would find one where this one finds none."""


def read_line(line: bytes) -> Any:
    """Parse a line strictly, so that all readers agree. Raises `Ambiguous`."""
    try:
        text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        if _LINE_ENDS.search(text):
            raise Ambiguous("a line break within the line")
        said = read_json(text)
        for one in said if isinstance(said, list) else [said]:
            _exact(one, _ENVELOPE)
            if isinstance(one, dict) and one.get("method") == "tools/call":
                _exact(one.get("params"), _PARAMS)
        return said
    except (ValueError, RecursionError) as error:
        raise Ambiguous(str(error)) from error


def _exact(value: Any, names: Sequence[str]) -> None:
    for key in value if isinstance(value, dict) else ():
        if key not in names and folded(key) in names:
            raise Ambiguous(f"the key {key!r} appears in another letter case")


def _key(value: Any) -> str:
    """An id as the loosest reader compares it: 1, 1.0 and "1" are one."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _canonical(value: Any) -> bytes:
    """Return JSON in the one form that a value has: keys sorted, nothing between them, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Proxy:
    """The relay between one client and one server."""

    def __init__(self, gate: Client, name: str, wait: float) -> None:
        self._gate, self._name, self._wait = gate, name, wait
        self._held: dict[str, asyncio.Task[None]] = {}
        """Calls that are asked about, by their id."""
        self._lists: set[str] = set()
        self._listed: dict[str, str] = {}
        """The digest of the definition of each tool, as the server told it last."""
        self._server: asyncio.subprocess.Process

    async def run(self, command: Sequence[str]) -> int:
        """Relay until one of the two ends; the server's exit code. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        reader = await standard_input()
        pipe = asyncio.subprocess.PIPE
        self._server = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_MOST_BYTES
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._server.terminate)
        assert self._server.stdout is not None
        answers = asyncio.create_task(each(self._server.stdout, self._from_server))
        asks = asyncio.create_task(each(reader, self._from_client))
        await asyncio.wait([answers, asks], return_when=asyncio.FIRST_COMPLETED)
        for task in self._held.values():
            task.cancel()
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await answers
                return await self._server.wait()
        except TimeoutError:
            self._server.kill()
            return 1

    async def _from_server(self, line: bytes) -> None:
        if self._lists:
            self._pin(line)
        _write(line)

    def _pin(self, line: bytes) -> None:
        """Take the definitions of tools from a page of a listing that was asked for."""
        try:
            said = json.loads(line)
            key = _key(said.get("id"))
            if key in self._lists and ("result" in said or "error" in said):
                self._lists.discard(key)
                for tool in (said.get("result") or {}).get("tools") or ():
                    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                        text = json.dumps(tool, sort_keys=True)
                        self._listed[tool["name"]] = sha256(text.encode()).hexdigest()
        except (ValueError, TypeError, AttributeError, RecursionError):
            return  # no listing: the client says what is wrong with it

    async def _from_client(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            said = read_line(line)
        except Ambiguous as error:
            reply(None, error={"code": -32700, "message": f"sayso gate: the line was refused: {error}"})
            return
        several = isinstance(said, list)
        calls = [one for one in (said if several else [said]) if isinstance(one, dict)]
        if several and any(one.get("method") == "tools/call" for one in calls):
            for one in calls:
                if "id" in one:
                    message = "sayso gate: send tool calls one at a time"
                    reply(one["id"], error={"code": -32600, "message": message})
            return
        method, key = (calls[0].get("method"), _key(calls[0].get("id"))) if calls else (None, "")
        if method == "tools/call":
            if calls[0].get("id") is None or key in self._held:
                message = "sayso gate: a tool call needs its own id"
                reply(calls[0].get("id"), error={"code": -32600, "message": message})
                return
            self._held[key] = asyncio.create_task(self._ask(line, calls[0], key))
            return
        if method == "tools/list":
            self._lists.add(key)
        if method == "notifications/cancelled":
            held = self._held.pop(_key((calls[0].get("params") or {}).get("requestId")), None)
            if held is not None:
                held.cancel()
                return  # the server was told nothing of it
        await self._send(line)

    async def _ask(self, line: bytes, call: dict[str, Any], key: str) -> None:
        """Hold a call until it is decided, and send it on as it came."""
        decided: str | bytes
        try:
            decided = await self._decided(line, call)
        except (NoGate, OSError, KeyError, TypeError, AttributeError, ValueError) as error:
            decided = f"The gate gave no answer ({error}). The call was not made."
        if self._held.pop(key, None) is None:
            return  # it was cancelled meanwhile
        if isinstance(decided, bytes):
            await self._send(decided)
        else:
            reply(call["id"], result={"content": [{"type": "text", "text": decided}], "isError": True})

    async def _decided(self, line: bytes, call: dict[str, Any]) -> str | bytes:
        """The line that continues, or why the call is not made."""
        params = call["params"]
        tool, arguments = params["name"], params.get("arguments")
        if arguments is None:
            arguments = {}
        if not isinstance(tool, str) or not isinstance(arguments, dict):
            raise TypeError("a call needs the name of a tool, and its arguments as an object")
        wanted = {
            "kind": "approval",
            "door": "proxy",
            "session": f"{socket.gethostname()}:{os.getcwd()}:{self._name}",
            "call": secrets.token_hex(16),
            "tool": f"mcp__{self._name}__{tool}",
            "arguments": arguments,
            "machine": socket.gethostname(),
            "listing": self._listed.get(tool, ""),
        }
        use = (params.get("_meta") or {}).get("claudecode/toolUseId")
        if isinstance(use, str):
            wanted["within"] = {"call": use}
        answer = await asyncio.to_thread(partial(self._gate.ask, wanted, self._wait))
        by, reason = ", ".join(answer.get("by") or ()) or "the gate", answer.get("reason") or ""
        if answer["state"] == "open":
            return "Pending: people are asked in Slack. The call was not made. Make the same call again to keep waiting."
        if answer["state"] == "allowed":
            if _canonical(answer["arguments"]) != _canonical(arguments):
                return _canonical({**call, "params": {**params, "arguments": answer["arguments"]}})
            return line
        return f"Denied by {by}. {reason} The call was not made.".replace("  ", " ")

    async def _send(self, line: bytes) -> None:
        stdin = self._server.stdin
        assert stdin is not None
        stdin.write(line if line.endswith(b"\n") else line + b"\n")
        await stdin.drain()


async def standard_input() -> asyncio.StreamReader:
    """Return a reader for the client's output."""
    reader = asyncio.StreamReader(limit=_MOST_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def each(reader: asyncio.StreamReader, take: Any) -> None:
    """Take line after line, until there is none."""
    while line := await reader.readline():
        taken: Awaitable[None] = take(line)
        await taken


def reply(id_: Any, **told: Any) -> None:
    """Answer the client instead of the server."""
    _write(json.dumps({"jsonrpc": "2.0", "id": id_, **told}).encode() + b"\n")


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def serve(make: Callable[[Client], Proxy], command: Sequence[str]) -> NoReturn:
    """Relay between this process's standard input and output and a server, and end the process. Raises `NoGate`, `OSError`."""
    gate = Client.configured()

    async def work() -> None:
        code = await make(gate).run(command)
        os._exit(max(code, 0))  # a call that still waits in a thread holds the process no longer

    asyncio.run(work())
    raise AssertionError("the process has ended")
