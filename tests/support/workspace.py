"""A local workspace for tests, and two kinds of apps that connect to it: a real Bolt app, and a bare socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.support.acting import Workspace

Json = dict[str, Any]
ANYTHING = re.compile(".*", re.DOTALL)

# Short waits before events are delivered again, in seconds, so that tests of redelivery stay quick.
QUICK_REDELIVERY = (0.0, 0.02, 0.02)


@asynccontextmanager
async def running_workspace(**options: Any) -> AsyncIterator[Workspace]:
    """A started workspace with quick redelivery."""
    workspace = Workspace(**options)
    workspace.faults.redelivery_delays = QUICK_REDELIVERY
    await workspace.start()
    try:
        yield workspace
    finally:
        await workspace.stop()


def client_of(workspace: Workspace, token: str | None = None) -> AsyncWebClient:
    """The real slack_sdk client for this workspace, without retries of its own."""
    return AsyncWebClient(token or workspace.bot_token, base_url=workspace.api_url, retry_handlers=[])


@dataclass
class RunningApp:
    """A Bolt app that is connected; `bodies` holds every payload that reached it, in order."""

    app: AsyncApp
    client: AsyncWebClient
    handlers: list[AsyncSocketModeHandler] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    retries: list[Json] = field(default_factory=list)

    def events(self, kind: str) -> list[Json]:
        """The payloads of events of this type."""
        return [body for body in self.bodies if body.get("event", {}).get("type") == kind]

    def of(self, kind: str) -> list[Json]:
        """The payloads of this type: block_actions, view_submission, ..."""
        return [body for body in self.bodies if body.get("type") == kind]


def _record(running: RunningApp) -> None:
    @running.app.middleware
    async def record(req: Any, next: Any) -> BoltResponse:
        running.bodies.append(req.body)
        retry = {key: values[0] for key, values in req.headers.items() if key.startswith("x-slack-retry")}
        running.retries.append(retry)
        return await next()  # type: ignore[no-any-return]  # Bolt does not annotate it


def _take_the_rest(app: AsyncApp) -> None:
    """Acknowledge whatever the test did not ask for, as Slack expects of an app."""

    async def take(ack: Any) -> None:
        await ack()

    for listen in (app.event, app.action, app.view, app.view_closed, app.command, app.shortcut):
        listen(ANYTHING)(take)


@asynccontextmanager
async def running_app(
    workspace: Workspace,
    configure: Callable[[AsyncApp], Any] | None = None,
    *,
    sockets: int = 1,
    ping_interval: float = 2.0,
) -> AsyncIterator[RunningApp]:
    """The real Bolt app over the real Socket Mode client. `configure` registers listeners; what they do not
    take is acknowledged. A client that has no answer to a ping for half of `ping_interval` seconds drops its connection:
    that must be more than this process may freeze on a busy machine."""
    client = client_of(workspace)
    running = RunningApp(AsyncApp(client=client), client)
    _record(running)
    if configure is not None:
        configure(running.app)
    _take_the_rest(running.app)
    try:
        for _ in range(sockets):
            app_client = client_of(workspace, workspace.app_token)
            handler = AsyncSocketModeHandler(
                running.app, workspace.app_token, web_client=app_client, ping_interval=ping_interval
            )
            running.handlers.append(handler)
            await handler.connect_async()  # type: ignore[no-untyped-call]  # Bolt does not annotate it
        await workspace.connected(sockets)
        yield running
    finally:
        for handler in running.handlers:
            await handler.close_async()  # type: ignore[no-untyped-call]  # Bolt does not annotate it


@dataclass
class BareSocket:
    """One WebSocket of an app, frame by frame, that acknowledges only what it is told to."""

    socket: aiohttp.ClientWebSocketResponse
    hello: Json

    async def receive(self, timeout: float = 20) -> Json:
        """The next frame; TimeoutError."""
        frame = await self.socket.receive(timeout)
        assert frame.type is aiohttp.WSMsgType.TEXT, f"no text frame but {frame}"
        received: Json = json.loads(frame.data)
        return received

    async def event(self, timeout: float = 20) -> Json:
        """The next envelope of an event that people caused (the app's own posts are acknowledged)."""
        while True:
            envelope = await self.receive(timeout)
            if "bot_id" not in envelope["payload"].get("event", {}):
                return envelope
            await self.ack(envelope)

    async def ack(self, envelope: Json, payload: Json | None = None) -> None:
        """Acknowledge an envelope."""
        answer: Json = {"envelope_id": envelope["envelope_id"]}
        if payload is not None:
            answer["payload"] = payload
        await self.socket.send_json(answer)

    async def drain(self, workspace: Workspace) -> list[Json]:
        """Every frame that the workspace has sent until now: it is told to send a marker, and what comes
        before the marker is returned. With `workspace.settled()` before, nothing can follow."""
        for connection in workspace.core.sockets.connections:
            await connection.send({"type": "marker"})
        frames: list[Json] = []
        while (frame := await self.receive())["type"] != "marker":
            frames.append(frame)
        return frames


@asynccontextmanager
async def bare_socket(workspace: Workspace, *, autoping: bool = True) -> AsyncIterator[BareSocket]:
    """A WebSocket opened by hand, as far as its hello."""
    opened = await client_of(workspace, workspace.app_token).apps_connections_open(
        app_token=workspace.app_token
    )
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(opened["url"], autoping=autoping) as socket,
    ):
        bare = BareSocket(socket, {})
        bare.hello = await bare.receive()
        yield bare


def button(text: str, action_id: str, value: str = "", **fields: Any) -> Json:
    """A button element."""
    made = {"type": "button", "action_id": action_id, "text": {"type": "plain_text", "text": text}, **fields}
    return {**made, "value": value} if value else made


def actions(*elements: Json, block_id: str = "acts") -> Json:
    """An actions block."""
    return {"type": "actions", "block_id": block_id, "elements": list(elements)}


def section(text: str, **fields: Any) -> Json:
    """A section block with mrkdwn text."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **fields}


def text_input(block_id: str, action_id: str = "value", **fields: Any) -> Json:
    """An input block with a plain text input; further fields go to the block."""
    label = {"type": "plain_text", "text": block_id.title()}
    element = {"type": "plain_text_input", "action_id": action_id}
    return {"type": "input", "block_id": block_id, "label": label, "element": element, **fields}


def modal(*blocks: Json, callback_id: str = "form", **fields: Any) -> Json:
    """A modal view."""
    return {
        "type": "modal",
        "callback_id": callback_id,
        "title": {"type": "plain_text", "text": "A form"},
        "submit": {"type": "plain_text", "text": "Send"},
        "blocks": list(blocks),
        **fields,
    }


async def process_output(stream: asyncio.StreamReader, wanted: str, timeout: float = 20) -> list[str]:
    """The lines of another process up to the one that contains `wanted`; TimeoutError."""
    lines: list[str] = []
    async with asyncio.timeout(timeout):
        while line := await stream.readline():
            lines.append(line.decode().rstrip())
            if wanted in lines[-1]:
                return lines
    raise AssertionError(f"the process ended before it said {wanted!r}: {lines}")
