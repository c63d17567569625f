"""Tools of MCP servers: a client for each server that is used, kept open by the process and shared by its
sessions; and what a tool gave, as the output of a node.

A connection is opened by the first call, by a task of its own that also closes it; one whose server has gone is replaced
by the next call. What a call does in the server is unknown to us, so nothing is ever sent twice: an answer that was lost
after the request went out is an interruption. `isError` of a result is a result, for the model to read.

The library is large, so only functions here import it. Which servers there are says `engine.nodes.runtime.mcp_servers`.

An output is plain JSON of a bounded size, without secrets: `{content, isError, structured}`: `content` has
blocks `{type: text, text}` and `{type: image, data, mimeType}`. What is neither text nor a picture that can
be shown is told of in words.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from engine.language.codec import Json, copy, encode
from engine.language.diagnostics import suggest
from engine.language.errors import NotJson, SaysoError
from engine.messages.messages import IMAGE_TYPES
from engine.messages.turns import Tool
from engine.nodes.runtime.mcp_servers import McpUnconfigured, Server, find, resolved
from engine.nodes.runtime.redact import Redactor
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome, first_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

_log = logging.getLogger("sayso.mcp")


OPEN_WITHIN = 30.0
"""Seconds that a server may take to start and to greet."""
LIST_WITHIN = 30.0
CLOSE_WITHIN = 6.0
MOST_TOOLS = 500
_MOST_ABOUT = 4000
_LAST_WORDS = 600


class McpLost(SaysoError):
    """A server cannot be reached, or has gone."""

    code = "mcp"


class McpServers:
    """The servers that a file names, each with at most one connection; and the runner of nodes of type `mcp`.

    `secret` gives the value of a secret, or raises a `SaysoError`.
    """

    def __init__(self, file: Path, secret: Callable[[str], str]) -> None:
        self._file = file
        self._secret = secret
        self._open: dict[str, _Connection] = {}

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Call what `config` says: server, tool, arguments. See `Runner`."""
        return await self.call(config["server"], config["tool"], config.get("arguments") or {}, ctx)

    async def call(self, server: str, tool: str, arguments: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Call a tool and say how that ended."""
        work = asyncio.ensure_future(self._call(server, tool, arguments, ctx))
        try:
            reason = await first_of(work, ctx.aborted, ctx.timeout)
            if reason is None:
                return work.result()
            sent = (connection := self._open.get(server)) is not None and connection.ready.done()
        finally:
            work.cancel()
        await asyncio.wait({work}, timeout=1.0)
        name = f"{tool} of the MCP server {server}"
        if reason == "cut":
            return Interrupted("cut", f"{name} was left because the session is leaving")
        late = f"{name} had not answered after {ctx.timeout:g} s"
        return Interrupted("timeout", late) if sent else Failed("timeout", late)

    async def list_tools(self, server: str) -> list[Tool]:
        """The tools of a server, by its own names. Raises `SaysoError`."""
        connection = await self._connection(server)
        try:
            async with asyncio.timeout(OPEN_WITHIN + LIST_WITHIN):
                return await _listed(await connection.client(), connection.redactor)
        except Exception as error:
            raise await self._lost(connection, error) from error

    async def mcp_tools(self, server: str, names: Sequence[str]) -> list[Tool]:
        """Those of a server's tools that are wanted, named as the model knows them. Raises `SaysoError`."""
        known = {tool.name: tool for tool in await self.list_tools(server)}
        for name in names:
            if name not in known:
                hint = suggest(name, known)
                raise McpUnconfigured(
                    f"the MCP server {server} has no tool {name}{f' ({hint})' if hint else ''}"
                )
        return [
            Tool(f"{server}__{name}", known[name].description, known[name].input_schema) for name in names
        ]

    async def close(self) -> None:
        """Close all connections; their programs end."""
        connections, self._open = list(self._open.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _call(self, server: str, tool: str, arguments: dict[str, Json], ctx: NodeContext) -> Outcome:
        for again in (True, False):
            try:
                connection = await self._connection(server)
                client = await connection.client()
            except SaysoError as error:
                return Failed(error.code, str(error))
            try:
                meta: Any = {"sayso/idempotencyKey": ctx.idempotency_key}
                result = await client.call_tool(tool, arguments, meta=meta)
                return Completed(_output_of(result, connection.redactor))
            except Exception as error:
                if not (again and _unknown_session(error)):
                    return await self._without_answer(connection, tool, error)
                await self._lost(connection, error)
        raise AssertionError("the second try ends in an outcome")

    async def _without_answer(self, connection: _Connection, tool: str, error: Exception) -> Outcome:
        """What an error means that came after the request was given to the client."""
        from mcp import MCPError

        name = f"{tool} of the MCP server {connection.server.name}"
        if isinstance(error, MCPError) and not connection.is_lost(error):
            return Failed("mcp_error", connection.told(f"{name}: {error}"))
        lost = await self._lost(connection, error)
        return Interrupted("cut", connection.told(f"{name}: the answer was lost ({lost})"))

    async def _lost(self, connection: _Connection, error: Exception) -> SaysoError:
        """Forget a connection that is of no more use; the error to raise."""
        if isinstance(error, SaysoError):
            return error
        if self._open.get(connection.server.name) is connection:
            del self._open[connection.server.name]
        await connection.close()
        return McpLost(connection.told(f"the MCP server {connection.server.name}: {_reason(error)}"))

    async def _connection(self, name: str) -> _Connection:
        server = find(self._file, name)
        connection = self._open.get(name)
        if connection is not None and not connection.usable(server):
            del self._open[name]
            await connection.close()
            connection = self._open.get(name)
        if connection is None:
            connection = self._open[name] = _Connection(server, self._secret)
        return connection


def _unknown_session(error: Exception) -> bool:
    """Whether a server over HTTP was started anew and did not take the request: it does not know us any more."""
    from mcp import MCPError

    return isinstance(error, MCPError) and str(error) == "Session terminated"


async def _listed(client: Client, redactor: Redactor) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    while len(found) < MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        found += [
            Tool(tool.name, redactor.text(_clean(tool.description or ""))[:_MOST_ABOUT], _schema(tool))
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            break
    return found[:MOST_TOOLS]


def _schema(tool: Any) -> Json:
    """What a tool takes; the API refuses every call over one schema that is none of an object."""
    schema = tool.input_schema
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else {"type": "object"}


def _reason(error: BaseException) -> str:
    """The one thing that went wrong: task groups wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__


# --- one connection --------------------------------------------------------------------------------------


class _Connection:
    """One server, opened and closed by a task of its own, as its library wants it."""

    def __init__(self, server: Server, secret: Callable[[str], str]) -> None:
        self.server = server
        self._secret = secret
        self._used: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self.ended = asyncio.Event()
        "Set when the server says nothing more."
        self.ready: asyncio.Future[Client] = self._loop.create_future()
        self._keeper = self._loop.create_task(self._keep(), name=f"mcp {server.name}")

    @property
    def redactor(self) -> Redactor:
        """Takes out the secrets that the server was given."""
        return Redactor(self._used)

    def told(self, text: str) -> str:
        """A text of this server's as it may be shown."""
        return self.redactor.text(_clean(text))

    def usable(self, server: Server) -> bool:
        """Whether it may serve the next call: the same server, not gone, on this event loop."""
        same = self.server == server and self._loop is asyncio.get_running_loop()
        return same and not (self.ended.is_set() or self._keeper.done() or self._closing.is_set())

    def is_lost(self, error: Any) -> bool:
        """Whether this error of the client says that the connection has ended."""
        from mcp.types import CONNECTION_CLOSED

        return bool(self.ended.is_set() or error.code == CONNECTION_CLOSED)

    async def client(self) -> Client:
        """The client, when the server has greeted. Raises `SaysoError`."""
        return await asyncio.shield(self.ready)

    async def close(self) -> None:
        """Close it; returns when its program has ended, or will without us."""
        self._closing.set()
        if self._loop is not asyncio.get_running_loop():
            return
        await asyncio.wait({self._keeper}, timeout=CLOSE_WITHIN)
        self._keeper.cancel()

    async def _keep(self) -> None:
        errors = _LastWords()
        try:
            async with AsyncExitStack() as stack:
                # In a thread: it takes long enough for everything else to notice.
                await asyncio.to_thread(importlib.import_module, "mcp")
                # What it logs quotes what servers say, with secrets in it as they come.
                logging.getLogger("mcp").setLevel(logging.CRITICAL)
                async with asyncio.timeout(OPEN_WITHIN):
                    client = await self._opened(stack, errors.file)
                self.ready.set_result(client)
                await self._closing.wait()
        except asyncio.CancelledError:
            self._fail(McpLost(f"the MCP server {self.server.name} was closed"))
            raise
        except Exception as error:
            self._fail(self._failure(error, errors.text()))
        finally:
            self.ended.set()
            errors.close()

    def _fail(self, error: SaysoError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # it is no news where nobody waits any more
        elif not self._closing.is_set():
            _log.warning("MCP server %s: %s", self.server.name, error)

    def _failure(self, error: Exception, last: str) -> SaysoError:
        if isinstance(error, SaysoError):
            return error
        why = f"no answer within {OPEN_WITHIN:g} s" if isinstance(error, TimeoutError) else _reason(error)
        said = f"; it wrote: {last}" if last else ""
        return McpLost(self.told(f"the MCP server {self.server.name} cannot be used: {why}{said}"))

    async def _opened(self, stack: AsyncExitStack, errors: TextIO) -> Client:
        from mcp import Client

        transport = self._program(errors) if self.server.url is None else await self._address(stack)
        return await stack.enter_async_context(Client(_watched(transport, self.ended)))

    def _program(self, errors: TextIO) -> Any:
        from mcp import StdioServerParameters, stdio_client

        server = self.server
        env = resolved(server.env, self._secret, self._used)
        command = server.command or ""
        parameters = StdioServerParameters(command=command, args=list(server.args), env=env, cwd=server.cwd)
        return stdio_client(parameters, errlog=errors)

    async def _address(self, stack: AsyncExitStack) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = resolved(self.server.headers, self._secret, self._used)
        # An answer may take as long as the tool does; how long that is says the node's timeout.
        limits = httpx2.Timeout(OPEN_WITHIN, read=None)
        client = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=limits))
        return streamable_http_client(self.server.url or "", http_client=client)


@contextlib.asynccontextmanager
async def _watched(transport: Any, ended: asyncio.Event) -> AsyncIterator[tuple[Any, Any]]:
    """The same transport; `ended` is set when its server says nothing more."""
    async with transport as (reading, writing):
        yield _Reading(reading, ended), writing


class _Reading:
    """What comes from a server, until it ends."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._ended.set()
            raise

    async def __aenter__(self) -> _Reading:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class _LastWords:
    """The end of what a program writes to its error output: what there is to say when it does not start."""

    def __init__(self) -> None:
        self._ours, theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self.file: TextIO = os.fdopen(theirs, "w")
        self._kept = b""
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def text(self) -> str:
        """The last words, on one line."""
        self._read()
        return " ".join(self._kept.decode("utf-8", "replace").split())[-_LAST_WORDS:]

    def close(self) -> None:
        """Listen no more."""
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)
        self.file.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._ours, 65536):
                self._kept = (self._kept + data)[-4 * _LAST_WORDS :]


# --- results -----------------------------------------------------------------------------------------------


MOST_TEXT = 256 * 1024
"""Characters of text that are kept of one call."""
MOST_IMAGE = 1_400_000
"""Characters in base64 of a picture that is kept: 1 MiB."""
MOST_PARTS = 200

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _output_of(result: CallToolResult, redactor: Redactor) -> dict[str, Json]:
    """The output of the node for this result."""
    parts = [_part(part) for part in result.content[:MOST_PARTS]]
    if len(result.content) > MOST_PARTS:
        parts.append(_text(f"({len(result.content) - MOST_PARTS} more parts were left out)"))
    room = MOST_TEXT
    for part in parts:
        if part["type"] == "text":
            part["text"] = _cut(redactor.text(part["text"]), room)
            room = max(0, room - len(part["text"]))
    return {
        "content": parts,
        "isError": bool(result.is_error),
        "structured": _structured(result.structured_content, redactor),
    }


def _clean(text: str) -> str:
    """Text that a journal takes."""
    return _UNSTORABLE.sub("\ufffd", text)


def _part(part: Any) -> dict[str, Json]:
    kind = part.type
    if kind == "text":
        return _text(part.text)
    if kind == "image":
        return _image(part.data, part.mime_type)
    if kind == "resource_link":
        return _text(f"(a resource: {part.name}, {part.uri})")
    if kind == "resource":
        inner = part.resource
        text = getattr(inner, "text", None)
        told = (
            f"(resource {inner.uri})\n{text}"
            if isinstance(text, str)
            else f"(resource {inner.uri}, which is no text)"
        )
        return _text(told)
    return _text(f"(a part of type {kind}, which cannot be shown)")


def _image(data: str, media_type: str) -> dict[str, Json]:
    if media_type not in IMAGE_TYPES:
        return _text(f"(a picture of type {media_type[:60]}, which cannot be shown)")
    if len(data) > MOST_IMAGE:
        return _text(f"(a picture of {len(data) * 3 // 4 // 1024:,} KiB, too large to be shown)")
    return {"type": "image", "data": _clean(data), "mimeType": media_type}


def _text(text: str) -> dict[str, Json]:
    return {"type": "text", "text": _clean(text)}


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    head, tail = room - room // 2, room // 2
    return f"{text[:head]}\n[... {len(text) - head - tail:,} characters left out ...]\n{text[len(text) - tail :]}"


def _structured(value: Any, redactor: Redactor) -> Json:
    if value is None:
        return None
    try:
        plain = copy(value)
        return redactor.json(plain) if len(encode(plain)) <= MOST_TEXT else None
    except NotJson:
        return None
