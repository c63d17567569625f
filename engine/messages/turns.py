"""A turn as plain values: what is asked, what a stream tells, how it ended. Pure, so that the core may use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TypeAlias

from engine.language.codec import Json
from engine.messages.messages import Message


@dataclass(frozen=True)
class Tool:
    """A tool that the model may ask for. `input_schema` is a JSON Schema of an object."""

    name: str
    description: str
    input_schema: Json

    def to_json(self) -> Json:
        """The tool as the Messages API has it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}


@dataclass(frozen=True)
class TurnRequest:
    """One call of a model: the whole conversation so far, and what it may do.

    `max_tokens` limits the answer, thinking included. `temperature` is refused by current models: leave it None.
    `stop` are texts at which the model stops.
    """

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    system: str = ""
    tools: tuple[Tool, ...] = ()
    temperature: float | None = None
    stop: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """The request as the Messages API has it, without what is only about sending (streaming, caching)."""
        body: dict[str, Json] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": [message.to_json() for message in self.messages],
        }
        if self.system:
            body["system"] = [{"type": "text", "text": self.system}]
        if self.tools:
            body["tools"] = [tool.to_json() for tool in self.tools]
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.stop:
            body["stop_sequences"] = list(self.stop)
        return body


@dataclass(frozen=True)
class Usage:
    """Tokens of a turn, as they are billed: the five numbers overlap nowhere.

    `input_tokens` excludes what was read from the cache or written to it. `output_tokens` includes thinking.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    """Written to be kept for five minutes."""
    cache_write_1h_tokens: int = 0
    """Written to be kept for an hour."""

    @property
    def prompt_tokens(self) -> int:
        """Everything that was sent, wherever it was read from."""
        return (
            self.input_tokens + self.cache_read_tokens + self.cache_write_tokens + self.cache_write_1h_tokens
        )

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            **{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(Usage)}
        )

    def to_json(self) -> Json:
        """The five numbers by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, int]) -> Usage:
        """The inverse of `to_json`; what is not there is 0."""
        return cls(**{item.name: data.get(item.name, 0) for item in fields(cls)})


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended. `content` are the assistant's blocks, verbatim; `model` is the one that answered.

    `stop_reason` is the provider's word: `end_turn`, `tool_use`, `max_tokens`, `stop_sequence`, `pause_turn`,
    `refusal`, `model_context_window_exceeded`, `compaction`. An interrupted turn has none: its content is what may stand in the
    conversation (whole blocks and the text so far, which may be nothing), and its usage what was known by then.
    """

    content: tuple[Json, ...]
    stop_reason: str | None
    usage: Usage
    model: str
    request_id: str | None = None
    interrupted: bool = False
    stop_details: Json = None
    """Of a refusal `{category, explanation, recommended_model, …}`, each of which may be None."""
    transformations: tuple[Json, ...] = ()
    """What the provider left out of the request: `{type: thinking_dropped | …, path, reason}`."""
    container: Json = None
    """Where the model's code ran: `{id, expires_at}`."""

    @property
    def text(self) -> str:
        """All text of the answer."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def tool_uses(self) -> tuple[Json, ...]:
        """The tool calls that the model asks for, in its order."""
        return tuple(block for block in self.content if block["type"] == "tool_use")

    def message(self) -> Message | None:
        """The answer as the next message of the conversation; None where nothing of it can be one."""
        return Message("assistant", self.content) if self.content else None


# --- what a stream says --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextDelta:
    """More text of the block with this index."""

    index: int
    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """More thinking of the block with this index; for showing that something goes on, not for keeping."""

    index: int
    text: str


@dataclass(frozen=True)
class ToolStarted:
    """The model begins to ask for a tool; its input is not known yet."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class ToolInputDelta:
    """More of a tool's input, as a piece of JSON text."""

    index: int
    json: str


@dataclass(frozen=True)
class BlockDone:
    """A block is whole; this is the block that `Finished` will have at the end."""

    index: int
    block: Json


@dataclass(frozen=True)
class Finished:
    """The turn has ended; always the last event, and there is none after an error."""

    result: TurnResult


TurnEvent: TypeAlias = TextDelta | ThinkingDelta | ToolStarted | ToolInputDelta | BlockDone | Finished
