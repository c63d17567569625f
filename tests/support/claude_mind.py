"""A model that answers by how far the conversation has come, so that it says the same whoever asks it and how often.

It counts what it would bill, also for answers that nobody hears. `Direct` is a provider that asks it without a network:
the request is checked as the API would check it, and the answer comes event by event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import orjson

from engine.messages.errors import InvalidRequest
from engine.messages.models import ModelFacts, shipped
from engine.messages.prices import DEFAULTS, cost, price_of
from engine.messages.request import betas
from engine.messages.stream import Assembly
from engine.messages.turns import Finished, TurnEvent, TurnRequest, Usage
from engine.models.claude import body_of
from engine.models.provider import refuse_illegal
from tests.support.claude_binding import Bindings, unmarked
from tests.support.claude_rules import Refusal, check
from tests.support.claude_server import Failure, Raw, Reply, events

Says: TypeAlias = Callable[[int, dict[str, Any]], Reply | Failure | Raw]
"""What is said at a place of the conversation (from 0: how many answers with tool calls it has) to a request."""

BYTES_A_TOKEN = 3


class Mind:
    """The model. `answers` are its replies in their order, or a function that makes them.

    A `dear` one has a token for each byte and writes all that it reads to the cache: nothing can cost more.
    """

    def __init__(self, answers: Sequence[list[dict[str, Any]]] | Says, *, dear: bool = False) -> None:
        self.dear = dear
        self._says: Says = answers if callable(answers) else lambda place, body: Reply(list(answers[place]))
        self.requests: list[dict[str, Any]] = []
        self.billed = Decimal(0)
        self.thoughts: dict[str, str] = {}
        self.bindings = Bindings()
        self.refused: list[str] = []
        """What was wrong with requests that the API would have refused."""

    def __call__(self, body: dict[str, Any]) -> Reply | Failure | Raw:
        """Answer a legal request. What was asked for and said is billed, whoever hears it."""
        self.requests.append(body)
        reply = self._says(place_of(body), body)
        if isinstance(reply, Reply):
            reply.usage = self._bill(body, reply)
        return reply

    def _bill(self, body: dict[str, Any], reply: Reply) -> dict[str, int]:
        """Count what a call costs; its tokens as the API tells them."""
        size = 1 if self.dear else BYTES_A_TOKEN
        read, wrote = tokens(_read(body), size), tokens(reply.blocks, size)
        assert wrote <= body["max_tokens"], "the model says more than it may"
        usage = Usage(0 if self.dear else read, wrote, cache_write_tokens=read if self.dear else 0)
        self.billed += cost(usage, price_of(body["model"], DEFAULTS))
        return {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
        }

    def messages(self, number: int = -1) -> bytes:
        """The conversation of a request as bytes, without the marks for the cache."""
        return orjson.dumps(unmarked(self.requests[number]["messages"]))


def place_of(body: dict[str, Any]) -> int:
    """How far a conversation is: the answers in it that asked for tools."""
    return sum(
        message["role"] == "assistant" and any(block["type"] == "tool_use" for block in message["content"])
        for message in body["messages"]
    )


def tokens(value: Any, size: int = BYTES_A_TOKEN) -> int:
    """Tokens of what is sent or said, of so many bytes each."""
    return -(-len(orjson.dumps(value)) // size)


def _read(body: dict[str, Any]) -> Any:
    return unmarked([body.get("system"), body.get("tools"), body["messages"]])


class Direct:
    """A provider that asks a mind in this process; see `Provider`."""

    def __init__(self, mind: Mind) -> None:
        self._mind = mind

    async def stream(
        self, request: TurnRequest, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """One turn; whoever waits gets a chance after each event."""
        refuse_illegal(request)
        body = body_of(request)
        try:
            check(body, self._mind.thoughts, betas(body))
            dropped = self._mind.bindings.check(body)
        except Refusal as error:
            self._mind.refused.append(str(error))
            raise InvalidRequest(str(error)) from error
        reply = self._mind(body)
        assert isinstance(reply, Reply)
        reply.blocks = self._mind.bindings.bind(body, reply.blocks)
        thoughts = (block for block in reply.blocks if block["type"] == "thinking")
        self._mind.thoughts |= {block["signature"]: block["thinking"] for block in thoughts}
        assembly = Assembly(f"req_{len(self._mind.requests)}", model=request.model)
        for name, data in events(reply, request.model, dropped):
            await asyncio.sleep(0)
            if abort is not None and abort.is_set():
                yield Finished(assembly.interrupted())
                return
            for told in assembly.take(data):
                yield told
            if reply.cut_after == name:
                break
        yield Finished(assembly.finish())

    async def facts(self, model: str) -> ModelFacts:
        """See `Provider`."""
        return shipped(model)

    async def close(self) -> None:
        """Nothing is held."""
