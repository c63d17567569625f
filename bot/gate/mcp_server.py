"""`sayso mcp`: an MCP server with which an agent asks people, runs flows, and writes flows. For the first two it asks the gate, as
every door does; the last is of the program's user alone, over standard input and output.

To a client that declares the extension `io.modelcontextprotocol/tasks` a tool gives a task, whose id is the request's. For all others a
tool answers within 45 seconds, since progress does not extend a client's time-out: with the answer, or with `pending` and the
key. The same call with the same key continues waiting for the same request, also from another process.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

import anyio
import anyio.to_thread
import mcp.types as types
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl

from bot.gate.client import Client, NoGate, NoToken
from engine.language.errors import SaysoError

WAIT_SECONDS = 45.0
TASKS = "io.modelcontextprotocol/tasks"
_POLL_MS = 2000
_KNOWN_SECONDS, _MOST_KNOWN = 30.0, 1000
"""For how long a token that counts may connect without the gate being asked, and how many such are remembered. Each request to the
gate has the token nevertheless."""


_FLOW = "flow_"


_KEY = {
    "type": "string",
    "description": "Names this request. The same call with the same key gets the same answer, also after a restart; without a key "
    "it is a new request, whose key is in the answer.",
}
_TEXT = {"type": "string"}


def _result(**more: Any) -> dict[str, Any]:
    """The schema of what a tool gives."""
    states = ["allowed", "denied", "answered", "pending", "busy"]
    return {
        "type": "object",
        "properties": {
            "state": {"type": "string", "enum": states},
            "key": _KEY,
            "request": {"type": "string"},
            "reason": {"type": "string"},
            **more,
        },
        "required": ["state"],
    }


_OURS = [
    types.Tool(
        name="ask_human",
        description="Ask a person a question in Slack and wait for the answer. If the state is `pending`, call it again with the "
        "same arguments and key.",
        input_schema={
            "type": "object",
            "properties": {
                "message": {**_TEXT, "description": "The question."},
                "choices": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 25},
                "form": {"type": "object", "description": "Fields to fill in: `properties` and `required`."},
                "reason": _TEXT,
                "key": _KEY,
            },
            "required": ["message"],
            "additionalProperties": False,
        },
        output_schema=_result(answer={"description": "`{text}`, `{value, label}`, or `{values}` of a form."}),
    ),
    types.Tool(
        name="request_approval",
        description="Ask people whether a call may be made, and wait. `allowed` counts once, for exactly the `arguments` in the "
        "answer. If the state is `pending`, call it again with the same arguments and key.",
        input_schema={
            "type": "object",
            "properties": {
                "tool": {**_TEXT, "description": "What will be called."},
                "arguments": {"type": "object", "description": "All its arguments."},
                "reason": {**_TEXT, "description": "Reason to show to the approvers."},
                "key": _KEY,
            },
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        },
        output_schema=_result(arguments={"type": "object"}),
    ),
    types.Tool(
        name="check_request",
        description="Show the state of a request. This does not hand out an approval: make the same call again for that.",
        input_schema={
            "type": "object",
            "properties": {"request": _TEXT},
            "required": ["request"],
            "additionalProperties": False,
        },
        output_schema=_result(answer={}),
    ),
]


class _TaskParams(types.RequestParams):
    task_id: str


class Local(Protocol):
    """Tools that need no gate."""

    instructions: str

    @property
    def tools(self) -> list[types.Tool]:
        """The tools as a client lists them."""

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what a tool gives. Raises `SaysoError`."""


class Door:
    """The tools of one server. `gate` returns the caller's client; if it raises `NoToken`, only the `local` ones are
    offered."""

    def __init__(self, gate: Callable[[Any], Client], session: str, local: Local | None = None) -> None:
        self._gate, self._session, self._local = gate, session, local
        self._names = [tool.name for tool in local.tools] if local else []
        self.server: Server[Any] = Server(
            "sayso",
            on_list_tools=self._list,
            on_call_tool=self._call,
            version="1",
            instructions=local.instructions if local else None,
        )
        self.server.extensions = {TASKS: {}}
        for method, do in (("tasks/get", "look"), ("tasks/update", ""), ("tasks/cancel", "cancel")):
            self.server.add_request_handler(method, _TaskParams, partial(self._task, do))

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        tools = list(self._local.tools if self._local else [])
        try:
            told = await anyio.to_thread.run_sync(partial(self._gate(ctx).post, "flows"))
            tools += [*_OURS, *map(_flow_tool, told["flows"])]
        except NoToken:
            pass
        except (NoGate, OSError):
            if self._local is None:
                raise
            tools += _OURS  # a call says why the gate cannot be asked
        return types.ListToolsResult(tools=tools)

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        given, meta = dict(params.arguments or {}), ctx.meta or {}
        takes_tasks = TASKS in ((meta.get(types.CLIENT_CAPABILITIES_META_KEY) or {}).get("extensions") or {})
        if self._local is not None and params.name in self._names:
            try:
                return _told(await anyio.to_thread.run_sync(self._local.call, params.name, given))
            except SaysoError as error:
                return _refused(str(error))
        try:
            if params.name == "check_request":
                ask = partial(self._gate(ctx).post, "look", request=str(given["request"]))
                return _told(_answer(await anyio.to_thread.run_sync(ask), ""))
            wanted = self._wanted(params.name, given)
            use = meta.get("claudecode/toolUseId")
            if isinstance(use, str):
                wanted["within"] = {"call": use, "arguments": dict(params.arguments or {})}
            ask = partial(self._gate(ctx).ask, wanted, 0 if takes_tasks else WAIT_SECONDS)
            answer = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
            if takes_tasks and answer["state"] == "open":
                look = partial(self._gate(ctx).post, "look", request=answer["request"], take=True)
                return {"resultType": "task", **_as_task(await anyio.to_thread.run_sync(look))}
            return _told(_answer(answer, wanted["call"]))
        except (NoGate, OSError, KeyError, TypeError) as error:
            return _refused(f"{type(error).__name__}: {error}. Nothing was allowed.")

    async def _task(self, do: str, ctx: Any, params: _TaskParams) -> dict[str, Any]:
        """Look at a task, or cancel it. It never waits for input of the client, so there is nothing to update."""
        ask = partial(self._gate(ctx).post, do or "look", request=params.task_id, take=do == "look")
        try:
            told = await anyio.to_thread.run_sync(ask)
        except NoGate as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        return {"resultType": "complete", **(_as_task(told) if do == "look" else {})}

    def _wanted(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The request that a call of a tool is. Raises `NoGate`, `KeyError`."""
        key, reason = given.pop("key", None), given.pop("reason", "")
        tool, arguments, kind = name, given, "question"
        if name == "request_approval":
            tool, arguments, kind = str(given["tool"]), dict(given["arguments"]), "approval"
        elif name.startswith(_FLOW):
            tool, kind = name.removeprefix(_FLOW), "flow"
        elif name != "ask_human":
            raise NoGate(f"there is no tool {name}")
        return {
            "kind": kind,
            "door": "mcp",
            "session": self._session,
            "call": str(key) if key else secrets.token_hex(16),
            "tool": tool,
            "arguments": arguments,
            "reason": str(reason),
            "machine": socket.gethostname(),
        }


def _flow_tool(flow: dict[str, Any]) -> types.Tool:
    """A listed flow as a tool, with its inputs and the outputs of its nodes."""
    schema = {**flow["inputs"], "properties": {**flow["inputs"].get("properties", {}), "key": _KEY}}
    return types.Tool(
        name=_FLOW + flow["name"],
        description=f"Run the flow {flow['name']} in Slack. {flow['description'] or ''} With one `key` it runs once.".strip(),
        input_schema=schema,
        output_schema=_result(outputs={**flow["outputs"], "description": "The outputs of its nodes, by id."}),
    )


def _answer(answer: dict[str, Any], key: str) -> dict[str, Any]:
    """An answer of the gate, in the words of the tools."""
    states = {"open": "pending", "done": "answered"}
    told = {"state": states.get(answer["state"], answer["state"]), "reason": answer.get("reason") or ""}
    if key:
        told["key"] = key
    if answer.get("request"):
        told["request"] = answer["request"]
    if answer["state"] == "allowed" and "arguments" in answer:
        told["arguments"] = answer["arguments"]
    if answer["state"] == "done":
        told["answer"] = told["outputs"] = answer["outputs"]
    return told


def _as_task(told: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a request, as a task."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    task = {"taskId": told["request"], "status": "working", "createdAt": told["since"], "lastUpdatedAt": now}
    task |= {"ttlMs": None, "pollIntervalMs": _POLL_MS}
    if told["state"] != "open":
        result = _told(_answer(told, "")).model_dump(by_alias=True, mode="json", exclude_none=True)
        task |= {"status": "completed", "result": result}
    return task


def _told(told: dict[str, Any]) -> types.CallToolResult:
    text = types.TextContent(type="text", text=json.dumps(told))
    return types.CallToolResult(content=[text], structured_content=told)


def _refused(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def serve_stdio(local: Local) -> None:
    """Serve one client until its input ends; without a token only the `local` tools. Raises `NoGate` for settings that cannot be
    read."""
    with suppress(NoToken):
        Client.configured()
    server = Door(lambda ctx: Client.configured(), f"{socket.gethostname()}:{os.getcwd()}", local).server

    async def work() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(work)


class _Verifier:
    """Accepts connections with a token of the gate."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: dict[str, float] = {}
        """Until when a token is known, by its hash."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the gate, unless it knew the token a moment ago."""
        known = sha256(token.encode()).hexdigest()
        if self._known.get(known, -1.0) < time.monotonic():
            self._known.pop(known, None)
            try:
                await anyio.to_thread.run_sync(partial(Client(self._url, token).post, "flows"))
            except (NoGate, OSError):
                return None
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[known] = time.monotonic() + _KNOWN_SECONDS
        return AccessToken(token=token, client_id=known, scopes=[])


def serve_http(url: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve clients with a token over streamable HTTP on this machine, until a signal. Raises `OSError`."""
    import uvicorn

    def gate(ctx: Any) -> Client:
        return Client(url, ctx.request.headers["authorization"].partition(" ")[2].strip())

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    here = f"http://127.0.0.1:{listening.getsockname()[1]}"
    auth = AuthSettings(issuer_url=AnyHttpUrl(here), resource_server_url=None)
    app = Door(gate, "mcp").server.streamable_http_app(auth=auth, token_verifier=_Verifier(url))
    ready(f"{here}/mcp")
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
