"""What the tests of providers share: one way to say what a provider will answer, for every provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.language.codec import Json
from engine.messages.messages import Message, user
from engine.messages.turns import Tool, TurnRequest, TurnResult
from engine.models.claude import ClaudeProvider
from engine.models.provider import Provider, complete
from engine.models.scripted import ScriptedProvider, script_from
from tests.support.claude_server import ClaudeServer, Failure, Reply, call

LOGS = Tool("logs", "Reads logs.", {"type": "object", "properties": {"host": {"type": "string"}}})
ASK = Tool("ask_human", "Asks a person.", {"type": "object", "properties": {}})


def request(*messages: Message, **changes: Any) -> TurnRequest:
    """A request with two tools."""
    given: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 500, "tools": (LOGS, ASK), **changes}
    return TurnRequest(messages=messages or (user("Why is it failing?"),), **given)


class Rig(Protocol):
    """A provider, and a way to say what it answers next."""

    provider: Provider

    def say(
        self,
        text: str = "",
        *,
        thinking: str = "",
        tools: tuple[tuple[str, dict[str, Any]], ...] = (),
        cut: bool = False,
    ) -> None:
        """The next answer."""

    def fail(self, code: str, retry_after: float | None = None) -> None:
        """The next answer is this error."""

    def left(self) -> int:
        """How many answers were not asked for."""


FAILURES: dict[str, tuple[int, str, str]] = {
    "rate_limited": (429, "rate_limit_error", "slow down"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "unavailable": (500, "api_error", "Internal server error"),
    "request_invalid": (400, "invalid_request_error", "model: no such field"),
    "context_too_long": (
        400,
        "invalid_request_error",
        "prompt is too long: 1000001 tokens > 1000000 maximum",
    ),
    "access_denied": (403, "permission_error", "not yours"),
}
"""How the API says each error: status, type, message."""


@dataclass
class ClaudeRig:
    """Claude's provider with the real SDK, against the local server."""

    server: ClaudeServer
    provider: ClaudeProvider
    calls: int = 0

    async def ask(self, *messages: Message, **changes: Any) -> TurnResult:
        """The answer to a request; see `request`."""
        return await complete(self.provider, request(*messages, **changes))

    def say(
        self,
        text: str = "",
        *,
        thinking: str = "",
        tools: tuple[tuple[str, dict[str, Any]], ...] = (),
        cut: bool = False,
    ) -> None:
        blocks: list[dict[str, Any]] = []
        if thinking:
            blocks.append({"type": "thinking", "thinking": thinking, "signature": f"sig-{thinking}=="})
        if text:
            blocks.append({"type": "text", "text": text})
        for name, given in tools:
            self.calls += 1
            blocks.append(call(name, given, f"toolu_{self.calls}"))
        self.server.queue(Reply(blocks, cut_after="content_block_stop" if cut else None))

    def fail(self, code: str, retry_after: float | None = None) -> None:
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        self.server.queue(Failure(*FAILURES[code], headers))

    def left(self) -> int:
        return len(self.server.replies)


@dataclass
class ScriptedRig:
    """The scripted provider."""

    turns: list[dict[str, Any]] = field(default_factory=list)
    provider: ScriptedProvider = field(default_factory=lambda: ScriptedProvider(script_from([])))

    def _add(self, turn: dict[str, Any]) -> None:
        self.turns.append(turn)
        self.provider.script = script_from(self.turns)

    def say(
        self,
        text: str = "",
        *,
        thinking: str = "",
        tools: tuple[tuple[str, dict[str, Any]], ...] = (),
        cut: bool = False,
    ) -> None:
        calls = [{"name": name, "input": given} for name, given in tools]
        self._add({"text": text, "thinking": thinking, "tools": calls, "cut": cut})

    def fail(self, code: str, retry_after: float | None = None) -> None:
        self._add({"error": {"kind": code, "retry_after": retry_after}})

    def left(self) -> int:
        return len(self.turns) - self.provider.position


def tool_result_block(tool_use_id: str, content: str | Sequence[Json], *, is_error: bool = False) -> Json:
    """What a tool gave: text, or blocks of text, pictures and documents."""
    block = {
        "type": "tool_result",
        "tool_use_id": tool_use_id,
        "content": content if isinstance(content, str) else list(content),
    }
    return {**block, "is_error": True} if is_error else block


def tool_uses(result: TurnResult) -> list[Json]:
    """The tool calls that an answer asks for, in its order."""
    return [block for block in result.content if block["type"] == "tool_use"]


def assistant(*blocks: str | Json) -> Message:
    """A model's message; texts become text blocks."""
    return Message("assistant", user(*blocks).content)
