"""A local server that speaks the Messages API over HTTP, with server-sent events, and breaks where it is told to.

It listens on a free port of 127.0.0.1, answers from a queue of replies, refuses what the real API refuses
(`claude_rules`) and records every request. It waits for events that a test sets, never for seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.claude_binding import Bindings
from tests.support.claude_rules import VERSION, Refusal, check
from tests.support.listening import listening

KEY = "sk-test-0123456789"
PIECE = 9
"""Characters in a delta: words are cut in the middle, and JSON too."""


@dataclass
class Reply:
    """An answer of the model: its blocks, streamed piece by piece.

    `cut_after` ends the stream after the first event of that name (`message_start`, `text_delta`, ...), and
    `""` before the first; `abrupt` drops the connection where else the response just ends. With `hold_after` the
    stream freezes there until `go` is set; `reached` says that it does.
    """

    blocks: list[dict[str, Any]]
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    container: dict[str, Any] | None = None
    usage: dict[str, Any] = field(default_factory=lambda: {"input_tokens": 100, "output_tokens": 20})
    cut_after: str | None = None
    abrupt: bool = False
    hold_after: str | None = None
    error_after: tuple[str, str] | None = None
    """After which event the stream tells an error of which type."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has closed the connection in the middle."""


@dataclass
class Failure:
    """A refusal with a status."""

    status: int
    type: str
    message: str = "told to"
    headers: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Raw:
    """Any bytes at all."""

    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200


def text(said: str, **settings: Any) -> Reply:
    """A reply of text."""
    return Reply([{"type": "text", "text": said}], **settings)


def call(name: str, given: dict[str, Any], id: str) -> dict[str, Any]:
    """A block that asks for a tool."""
    return {"type": "tool_use", "id": id, "name": name, "input": given}


@dataclass
class Recorded:
    """A request as it came."""

    headers: dict[str, str]
    body: Any
    refused: str | None = None
    text: str = ""
    """The body as it was sent."""
    dropped: list[Any] = field(default_factory=list)
    """Thinking in it that is bound to another beginning, as the answer tells it."""
    arrived: float = field(default_factory=time.perf_counter)
    """When it came, in seconds of this machine's clock."""
    answered: float | None = None
    """When the last byte of its answer was sent."""


class ClaudeServer:
    """The server; `url` is what `ANTHROPIC_BASE_URL` is set to."""

    def __init__(self) -> None:
        self.replies: deque[Reply | Failure | Raw] = deque()
        self.requests: list[Recorded] = []
        self.mind: Callable[[Any], Reply | Failure | Raw] | None = None
        """Answers what nothing is queued for, by what is asked."""
        self.thoughts: dict[str, str] = {}
        self.models: dict[str, dict[str, Any]] = {}
        """What the models endpoint says, by model; of others it knows nothing."""
        self.looked_up: list[str] = []
        self.tokens: int | None = None
        """What is counted for any request; None: nobody counts."""
        self.counted: list[dict[str, Any]] = []
        self.bindings = Bindings()
        self.url = ""
        self.auth = "authorization"
        """The header in which it reads the key."""

    @property
    def refused(self) -> list[str]:
        """Why requests were refused; a test that is not about that asserts that there is none."""
        return [request.refused for request in self.requests if request.refused is not None]

    def environ(self) -> dict[str, str]:
        """The settings of a client of this server."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": KEY}

    def queue(self, *replies: Reply | Failure | Raw) -> None:
        """Answer the next requests so."""
        self.replies.extend(replies)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages."""
        recorded = Recorded({name.lower(): value for name, value in request.headers.items()}, None)
        self.requests.append(recorded)
        request_id = f"req_{len(self.requests)}"
        if recorded.headers.get(self.auth) != (KEY if self.auth == "x-api-key" else f"Bearer {KEY}"):
            recorded.refused = "invalid key"
            return _error(401, "authentication_error", "invalid bearer token", request_id)
        try:
            recorded.text = await request.text()
            recorded.body = json.loads(recorded.text)
            if recorded.headers.get("anthropic-version") != VERSION:
                raise Refusal("anthropic-version: header is required")
            named = recorded.headers.get("anthropic-beta", "").split(",")
            check(recorded.body, self.thoughts, [beta for beta in named if beta])
            recorded.dropped = self.bindings.check(recorded.body)
        except (Refusal, json.JSONDecodeError) as error:
            recorded.refused = str(error)
            return _error(400, "invalid_request_error", str(error), request_id)
        if not self.replies and self.mind is None:
            raise AssertionError("a request came and there is no reply for it")
        reply = self.replies.popleft() if self.replies or self.mind is None else self.mind(recorded.body)
        if isinstance(reply, Failure):
            return _error(reply.status, reply.type, reply.message, request_id, reply.headers, reply.details)
        if isinstance(reply, Raw):
            return web.Response(
                body=reply.body, status=reply.status, headers={"content-type": reply.content_type}
            )
        return await self._stream(request, reply, request_id)

    async def model(self, request: web.Request) -> web.Response:
        """GET /v1/models/{id}."""
        name = request.match_info["id"]
        self.looked_up.append(name)
        if name not in self.models:
            return _error(404, "not_found_error", f"model: {name}", "req_model")
        return web.json_response({"id": name, "type": "model", **self.models[name]})

    async def _stream(self, request: web.Request, reply: Reply, request_id: str) -> web.StreamResponse:
        number = len(self.requests) - 1
        asked = self.requests[number]
        reply.blocks = self.bindings.bind(asked.body, reply.blocks)
        self.thoughts |= {
            block["signature"]: block["thinking"] for block in reply.blocks if block["type"] == "thinking"
        }
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "request-id": request_id}
        )
        await response.prepare(request)
        try:
            for name, data in [("", None), *events(reply, asked.body["model"], asked.dropped)]:
                if data is not None:
                    await response.write(sse(data))
                if not await self._go_on(request, response, reply, name):
                    return response
        except (ConnectionError, asyncio.CancelledError):
            reply.gone.set()
            raise
        await response.write_eof()
        asked.answered = time.perf_counter()
        return response

    async def _go_on(
        self, request: web.Request, response: web.StreamResponse, reply: Reply, name: str
    ) -> bool:
        """Break, wait or continue after the event of this name."""
        if reply.hold_after == name:
            reply.hold_after = None
            reply.reached.set()
            await reply.go.wait()
        if reply.error_after is not None and reply.error_after[0] == name:
            told = {"type": "error", "error": {"type": reply.error_after[1], "message": "told to"}}
            await response.write(sse(told))
            await response.write_eof()
            return False
        if reply.cut_after == name:
            if reply.abrupt and request.transport is not None:
                request.transport.abort()
            else:
                await response.write_eof()
            return False
        return True


def sse(data: dict[str, Any]) -> bytes:
    """An event as it is sent."""
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def events(reply: Reply, model: str, dropped: Sequence[Any] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a reply with their names: a delta's is its own type."""
    start = {**reply.usage, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    if dropped:
        message["input_transformations"] = list(dropped)
    yield (
        "message_start",
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": start}},
    )
    yield "ping", {"type": "ping"}
    for index, block in enumerate(reply.blocks):
        opening, deltas = _opened(block)
        yield (
            "content_block_start",
            {"type": "content_block_start", "index": index, "content_block": opening},
        )
        for delta in deltas:
            yield str(delta["type"]), {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    calls = any(block["type"] == "tool_use" for block in reply.blocks)
    reason = reply.stop_reason or ("tool_use" if calls else "end_turn")
    usage = {"output_tokens": reply.usage["output_tokens"]}
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": reply.stop_details}
    if reply.container is not None:
        delta["container"] = reply.container
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and the deltas that make it whole."""
    if block["type"] == "text":
        return {**block, "text": ""}, [
            {"type": "text_delta", "text": piece} for piece in _pieces(block["text"])
        ]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] in ("tool_use", "server_tool_use", "mcp_tool_use"):
        given = block["input"]
        written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        pieces = _pieces(written) if given else [""]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": each} for each in pieces]
    return block, []


def _pieces(said: str) -> list[str]:
    return [said[start : start + PIECE] for start in range(0, len(said), PIECE)]


def _error(
    status: int,
    type: str,
    message: str,
    request_id: str,
    headers: dict[str, str] | None = None,
    details: dict[str, Any] | None = None,
) -> web.Response:
    error = {"type": type, "message": message, **({"details": details} if details else {})}
    body = {"type": "error", "error": error, "request_id": request_id}
    return web.json_response(body, status=status, headers={"request-id": request_id, **(headers or {})})


@asynccontextmanager
async def claude_server() -> AsyncIterator[ClaudeServer]:
    """A running server."""
    server = ClaudeServer()
    app = web.Application(client_max_size=32 * 1024 * 1024)
    app.router.add_post("/v1/messages", server.handle)
    app.router.add_get("/v1/models/{id}", server.model)
    async with listening(app) as server.url:
        yield server
