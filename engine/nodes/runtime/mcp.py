"""Tools of MCP servers: one client for each server in use, kept open by the process and shared by its sessions.

The first call opens a connection, in a task of its own that also closes it; if its server has gone, the next call
replaces it. The effect of a call in the server is unknown to us, so nothing is ever sent twice: an answer that was lost
after the request went out is an interruption. `isError` of a result is a result, for the model to read.

The library is large, so only functions here import it. The list of servers is in `engine.nodes.runtime.mcp_servers`.

A tool that needs a person returns questions instead of its result (`engine.nodes.runtime.mcp_asks`): the node leaves,
and calls again once people have answered. With a server of an older protocol the call stays open meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from engine.language.codec import Json
from engine.language.diagnostics import suggest
from engine.language.errors import FenceLost, NotJson, SaysoError
from engine.messages.turns import Tool
from engine.nodes.runtime import mcp_asks, mcp_resources
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.mcp_calls import OpenCall, OpenCalls, Question
from engine.nodes.runtime.mcp_oauth import authorization, is_refused
from engine.nodes.runtime.mcp_results import clean, output, output_of
from engine.nodes.runtime.mcp_servers import INSTALL, McpUnconfigured, Server, find, is_installed, resolved
from engine.nodes.runtime.redact import Redactor
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome, first_of

if TYPE_CHECKING:
    from mcp import Client

_log = logging.getLogger("sayso.mcp")


OPEN_WITHIN = 30.0
"""Seconds that a server may take to start and to greet."""
LIST_WITHIN = 30.0
CLOSE_WITHIN = 6.0
MOST_TOOLS = 500
_MOST_ABOUT = 4000
_LAST_WORDS = 600


_NOT_YET = 0.25
"""Seconds after which a call is repeated if its server is not ready."""
_OPEN = "open"
"""Key of a question within an open call, which has no key of its own."""
_Asked: TypeAlias = tuple[str, dict[str, Json]]
"""A tool, and its arguments."""
_Saved: TypeAlias = dict[str, Json]
"""State that an earlier attempt of the call left; see `engine.nodes.runtime.mcp_asks`."""


class _Gone(Exception):
    """An open call that has ended meanwhile."""


class McpLost(SaysoError):
    """A server cannot be reached, or has gone."""

    code = "mcp"


class McpServers:
    """The servers that a file names, each with at most one connection; and the runner of nodes of type `mcp`.

    `secret` gives the value of a secret, or raises a `SaysoError`. People are sent to addresses on `hosts` only.
    """

    def __init__(self, file: Path, secret: Callable[[str], str], hosts: Iterable[str] = ()) -> None:
        self._file = file
        self._hosts = tuple(hosts)
        self._secret = secret
        self._open: dict[str, _Connection] = {}

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Call a tool: server, tool, arguments. See `Runner`."""
        server, tool = str(config["server"]), str(config["tool"])
        work = asyncio.ensure_future(self._call(server, tool, config, ctx))
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
            return Interrupted("cut", f"{name} was stopped because the session is stopping")
        late = f"{name} did not answer within {ctx.timeout:g} s"
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

    async def _call(self, server: str, tool: str, config: Mapping[str, Json], ctx: NodeContext) -> Outcome:
        arguments: dict[str, Json] = config.get("arguments") or {}
        saved: dict[str, Json] = dict(ctx.saved or {})
        for again in (True, False):
            try:
                connection = await self._connection(server)
                client = await connection.client()
            except SaysoError as error:
                return Failed(error.code, str(error))
            await before_effect()
            try:
                if config.get("resources"):
                    parts = await mcp_resources.parts(client, arguments.get("uri"), config["resources"])
                    return Completed(output(parts, connection.redactor))
                return await self._asked(connection, client, (tool, arguments), ctx, saved)
            except _Gone as error:
                return Interrupted("cut", f"{tool} of the MCP server {server}: {error}")
            except mcp_asks.Unaskable as error:
                return Failed("mcp_asks", connection.told(f"{tool} of the MCP server {server}: {error}"))
            except Exception as error:
                from mcp import MCPError

                # A server over HTTP that restarted does not know our session, and did not take the request.
                unknown = isinstance(error, MCPError) and str(error) == "Session terminated"
                if not (again and unknown):
                    name = f"{tool} of the MCP server {connection.server.name}"
                    if isinstance(error, MCPError) and not connection.is_lost(error):
                        return Failed("mcp_error", connection.told(f"{name}: {error}"))
                    lost = await self._lost(connection, error)
                    return Interrupted("cut", connection.told(f"{name}: the answer was lost ({lost})"))
                await self._lost(connection, error)
        raise AssertionError("the second try ends in an outcome")

    async def _asked(
        self,
        connection: _Connection,
        client: Client,
        call: _Asked,
        ctx: NodeContext,
        saved: _Saved,
    ) -> Outcome:
        """Return the result of a call, or the questions that its server has for people."""
        from mcp import MCPError
        from mcp.types import InputRequiredResult

        try:
            open_call = self._under_way(connection, client, call, ctx, saved)
            result = await open_call.next()
        except MCPError as error:
            # A server that no longer knows the state of the call has not run it.
            data = getattr(getattr(error, "error", None), "data", None)
            forgot = isinstance(data, dict) and data.get("reason") == "invalid_request_state"
            known = mcp_asks.forgotten(saved) if forgot and saved.get("state") else None
            if known is None:
                raise
            saved = known
            await before_effect()
            open_call = self._begun(connection, client, call, ctx, {})
            result = await open_call.next()
        name, answered = connection.server.name, mcp_asks.answered(saved)
        if isinstance(result, InputRequiredResult):
            asked = mcp_asks.asks(result.input_requests or {}, self._hosts, connection.told)
            await asyncio.sleep(0 if asked else _NOT_YET)
            return mcp_asks.left(name, asked, result.request_state, answered)
        if isinstance(result, Question):
            # A question within an open call: where it cannot be asked, its server hears so at once.
            outcome: Outcome | None = None
            try:
                asked = [mcp_asks.question(_OPEN, result.params, self._hosts, connection.told)]
                outcome = mcp_asks.left(connection.server.name, asked, None, answered, still_open=True)
            finally:
                if not isinstance(outcome, Interrupted):
                    open_call.answer({"action": "cancel"})
            return outcome
        try:
            return Completed(output_of(result, connection.redactor))
        except NotJson as error:
            return Failed("inexact", connection.told(f"the result of the MCP server {name}: {error}"))

    def _under_way(
        self, connection: _Connection, client: Client, call: _Asked, ctx: NodeContext, saved: _Saved
    ) -> OpenCall:
        """The call: made now, or the one that is open while people were asked. Raises `_Gone`."""
        if not saved.get("open"):
            return self._begun(connection, client, call, ctx, saved)
        open_call = connection.calls.get(ctx.idempotency_key)
        if open_call is None:
            raise _Gone("sayso restarted while people were asked")
        open_call.answer((mcp_asks.responses(saved) or {})[_OPEN])
        return open_call

    def _begun(
        self, connection: _Connection, client: Client, call: _Asked, ctx: NodeContext, saved: _Saved
    ) -> OpenCall:
        meta: Any = {"sayso/idempotencyKey": ctx.idempotency_key}
        told: Any = mcp_asks.responses(saved)
        more = {"input_responses": told, "request_state": saved.get("state"), "meta": meta}
        sent = client.session.call_tool(*call, **more, allow_input_required=True)
        return connection.calls.begin(ctx.idempotency_key, sent)

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
        if not is_installed():
            raise McpUnconfigured(f"MCP servers need a package that is not installed: {INSTALL}")
        connection = self._open.get(name)
        if connection is not None and not connection.usable(server):
            del self._open[name]
            await connection.close()
            connection = self._open.get(name)
        if connection is None:
            connection = self._open[name] = _Connection(server, self._secret)
        return connection


async def _listed(client: Client, redactor: Redactor) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    while len(found) < MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        found += [
            Tool(tool.name, redactor.text(clean(tool.description or ""))[:_MOST_ABOUT], _schema(tool))
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            break
    return found[:MOST_TOOLS]


def _schema(tool: Any) -> Json:
    """Return a tool's input schema; a schema that is not one of an object would make the API refuse every call."""
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
    """One server, opened and closed by a task of its own, as the library requires."""

    def __init__(self, server: Server, secret: Callable[[str], str]) -> None:
        self.server = server
        self._secret = secret
        self._used: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self.calls = OpenCalls()
        self.ended = asyncio.Event()
        "Set when the server has closed its stream."
        self.ready: asyncio.Future[Client] = self._loop.create_future()
        self._keeper = self._loop.create_task(self._keep(), name=f"mcp {server.name}")

    @property
    def redactor(self) -> Redactor:
        """Takes out the secrets that the server was given."""
        return Redactor(self._used)

    def told(self, text: str) -> str:
        """Return a text of this server, cleaned and redacted for display."""
        return self.redactor.text(clean(text))

    def usable(self, server: Server) -> bool:
        """True if it may serve the next call: the same server, not gone, on this event loop."""
        same = self.server == server and self._loop is asyncio.get_running_loop()
        return same and not (self.ended.is_set() or self._keeper.done() or self._closing.is_set())

    def is_lost(self, error: Any) -> bool:
        """True if this error of the client says that the connection has ended."""
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
                # In a thread: it takes long enough to block everything else noticeably.
                await asyncio.to_thread(importlib.import_module, "mcp")
                # Its log quotes servers, secrets included.
                logging.getLogger("mcp").setLevel(logging.CRITICAL)
                await before_effect()
                async with asyncio.timeout(OPEN_WITHIN):
                    client = await self._opened(stack, errors.file)
                self.ready.set_result(client)
                await self._closing.wait()
        except (asyncio.CancelledError, FenceLost):
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
        if self.server.oauth and is_refused(error):
            why = f"its issuer {self.server.oauth['issuer']} gives no access token ({why})"
            return McpUnconfigured(self.told(f"the MCP server {self.server.name} cannot be used: {why}"))
        said = f"; it wrote: {last}" if last else ""
        return McpLost(self.told(f"the MCP server {self.server.name} cannot be used: {why}{said}"))

    async def _opened(self, stack: AsyncExitStack, errors: TextIO) -> Client:
        from mcp import Client

        # In a thread: a program that supplies secrets may take long.
        given = self.server.env if self.server.url is None else self.server.headers
        told = await asyncio.to_thread(resolved, given, self._secret, self._used)
        if self.server.url is None:
            from mcp import StdioServerParameters, stdio_client

            command, args = self.server.command or "", list(self.server.args)
            parameters = StdioServerParameters(command=command, args=args, env=told, cwd=self.server.cwd)
            transport = stdio_client(parameters, errlog=errors)
        else:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            # An answer may take as long as the tool does; how long that is says the node's timeout.
            limits = httpx2.Timeout(OPEN_WITHIN, read=None)
            auth = await asyncio.to_thread(authorization, self.server, self._secret, self._used)
            made = httpx2.AsyncClient(headers=told, timeout=limits, auth=auth)
            sender = await stack.enter_async_context(made)
            transport = streamable_http_client(self.server.url, http_client=sender)
        client = Client(_watched(transport, self.ended), elicitation_callback=self.calls.asked)
        return await stack.enter_async_context(client)


@contextlib.asynccontextmanager
async def _watched(transport: Any, ended: asyncio.Event) -> AsyncIterator[tuple[Any, Any]]:
    """Wrap a transport; `ended` is set when its server closes the stream."""
    async with transport as (reading, writing):
        yield _Reading(reading, ended), writing


class _Reading:
    """Messages from a server, until its stream ends."""

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
    """End of a program's error output, to explain why it did not start."""

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
