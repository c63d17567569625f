"""A turn as plain values: the request, the events of its stream, the result. Pure, so that the core may use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TypeAlias

from engine.language.codec import Json
from engine.messages.messages import Message


@dataclass(frozen=True)
class Tool:
    """A tool for the model. `input_schema` is a JSON Schema of an object; a tool that the provider runs has none.
    `more` are its other fields in the Messages API."""

    name: str
    description: str
    input_schema: Json
    more: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The tool as the Messages API has it."""
        if self.input_schema is None:
            return {"name": self.name, **self.more}
        told = {"name": self.name, "description": self.description, "input_schema": self.input_schema}
        return {**told, **self.more}


@dataclass(frozen=True)
class TurnRequest:
    """One call of a model: the whole conversation so far, and its options.

    `max_tokens` limits the answer, thinking included. `stop` are texts at which the model stops. `settings` are the
    other fields of the body (`thinking`, `output_config`, …; see `engine.messages.request`). `cache` is the lifetime of
    the cached prompt: `5m`, `1h` or `off`. `user` is the person that the call is for: the provider gets a hash. A
    request of an opened conversation has its `body`, and that is sent: its other fields about tools and system are
    informative. With `drop`, the API leaves out thinking that is bound to another beginning.
    """

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    system: str = ""
    tools: tuple[Tool, ...] = ()
    stop: tuple[str, ...] = ()
    settings: Mapping[str, Json] = field(default_factory=dict)
    cache: str = "5m"
    user: str = ""
    body: Mapping[str, Json] | None = None
    drop: bool = False
    container: str | None = None
    """Provider's container of code in earlier calls, which this call may continue to use."""
    summing: Mapping[str, Json] | None = None
    """The conversation is summed up, instead of an answer: the API's `compaction`; empty where the last message asks for it."""

    @classmethod
    def opened(
        cls, body: Mapping[str, Json], model: str, messages: tuple[Message, ...], max_tokens: int
    ) -> TurnRequest:
        """A request that begins with this body."""
        return cls(
            model,
            messages,
            max_tokens,
            system="\n\n".join(block["text"] for block in body.get("system") or ()),
            tools=tuple(
                Tool(tool["name"], tool.get("description") or "", tool.get("input_schema"))
                for tool in body.get("tools") or ()
            ),
            stop=tuple(body.get("stop_sequences") or ()),
            body=body,
        )

    def to_json(self) -> Json:
        """Return the request body, without transport options (stream, cache control, metadata)."""
        body: dict[str, Json] = self.frame()
        if self.container is not None:
            body["container"] = self.container
        if self.summing is not None:
            # A summary has no form and no stop texts.
            kept = {name: value for name, value in body.get("output_config", {}).items() if name != "format"}
            body = {name: body[name] for name in body if name not in ("output_config", "stop_sequences")}
            body |= {"output_config": kept} if kept else {}
            body |= {"compaction": dict(self.summing)} if self.summing else {}
        return {**body, "messages": [message.to_json() for message in self.messages]}

    def frame(self) -> dict[str, Json]:
        """Return the request without its messages: the fixed part that opens a conversation, sent in every call."""
        body: dict[str, Json] = {"model": self.model, "max_tokens": self.max_tokens}
        if self.body is not None:
            return {**self.body, **body}
        if self.system:
            body["system"] = [{"type": "text", "text": self.system}]
        if self.tools:
            body["tools"] = [tool.to_json() for tool in self.tools]
        if self.stop:
            body["stop_sequences"] = list(self.stop)
        return {**body, **self.settings}


@dataclass(frozen=True)
class Usage:
    """Tokens of a turn, as they are billed: the five numbers do not overlap.

    `input_tokens` excludes tokens read from the cache or written to it. `output_tokens` includes thinking.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    """Tokens cached for five minutes."""
    cache_write_1h_tokens: int = 0
    """Tokens cached for an hour."""

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
        """Parse the output of `to_json`; missing numbers are 0."""
        return cls(**{item.name: data.get(item.name, 0) for item in fields(cls)})


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn. `content` are the assistant's blocks, verbatim; `model` is the one that answered.

    `stop_reason` is the provider's word: `end_turn`, `tool_use`, `max_tokens`, `stop_sequence`, `pause_turn`,
    `refusal`, `model_context_window_exceeded`, `compaction`. An interrupted turn has none: its content is the part that
    may stay in the conversation (whole blocks and the text so far, possibly empty), and its usage the last known one.
    """

    content: tuple[Json, ...]
    stop_reason: str | None
    usage: Usage
    model: str
    request_id: str | None = None
    interrupted: bool = False
    cut_call: bool = False
    """The answer ends within a tool call, which is left out."""
    stop_details: Json = None
    """For a refusal `{category, explanation, recommended_model, …}`, each of which may be None."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of blocks of earlier thinking that the provider left out of the request, by reason."""
    container: Json = None
    """Container that ran the model's code: `{id, expires_at}`."""
    parts: tuple[Json, ...] = ()
    """Usage of each model in each round, `{model, usage}`, unless it is a single round of the requested model."""
    context: int | None = None
    """Tokens of the conversation with this answer, where that is not the sum of the usage."""
    searches: int = 0
    """Searches in the web, which cost apart."""

    @property
    def text(self) -> str:
        """Return all text of the answer."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")


# --- events of a stream --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextDelta:
    """More text of the block with this index."""

    index: int
    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """More of the block of thinking with this index. The provider does not show reasoning, but notes on the model's
    progress."""

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
    """The turn has ended; always the last event, and missing after an error."""

    result: TurnResult


TurnEvent: TypeAlias = TextDelta | ThinkingDelta | ToolStarted | ToolInputDelta | BlockDone | Finished
