"""A turn as plain values: what is asked, what a stream tells, how it ended. Pure, so that the core may use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TypeAlias

from engine.language.codec import Json
from engine.messages.messages import Message


@dataclass(frozen=True)
class Tool:
    """A tool that the model may ask for. `input_schema` is a JSON Schema of an object; a tool that the provider runs has
    none. `more` are its other fields in the Messages API."""

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
    """One call of a model: the whole conversation so far, and what it may do.

    `max_tokens` limits the answer, thinking included. `stop` are texts at which the model stops. `settings` are the other
    fields of the body (`thinking`, `output_config`, …; see `engine.messages.request`). `cache` says for how long what the
    next call repeats is kept: `5m`, `1h` or `off`. `user` is whom the call is for: the provider is told a hash of it.
    A request of a conversation that was opened has its `body`, and that is sent: what else it says of tools and system is there
    to be read. With `drop`, the API leaves out thinking that is bound to another beginning.
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
    """Where code of earlier calls ran at the provider: this call's may go on there."""
    summing: Mapping[str, Json] | None = None
    """The conversation is summed up, in place of an answer: the API's `compaction`; empty where the last message asks for it."""

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
        """The request as the Messages API has it, without what is only about sending (streaming, caching, whom for)."""
        body: dict[str, Json] = self.frame()
        if self.container is not None:
            body["container"] = self.container
        if self.summing is not None:
            # A summary has no form, and stops nowhere.
            kept = {name: value for name, value in body.get("output_config", {}).items() if name != "format"}
            body = {name: body[name] for name in body if name not in ("output_config", "stop_sequences")}
            body |= {"output_config": kept} if kept else {}
            body |= {"compaction": dict(self.summing)} if self.summing else {}
        return {**body, "messages": [message.to_json() for message in self.messages]}

    def frame(self) -> dict[str, Json]:
        """The request without its messages: what a conversation is opened with, and sends in every call."""
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
    cut_call: bool = False
    """The answer ends within a tool call, which is left out."""
    stop_details: Json = None
    """Of a refusal `{category, explanation, recommended_model, …}`, each of which may be None."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many blocks of earlier thinking the provider left out of the request, by the reason."""
    container: Json = None
    """Where the model's code ran: `{id, expires_at}`."""
    parts: tuple[Json, ...] = ()
    """What each model used in each round, `{model, usage}`, where that is more than one round of the model asked for."""
    context: int | None = None
    """Tokens of the conversation with this answer, where that is not the sum of the usage."""
    searches: int = 0
    """Searches in the web, which cost apart."""

    @property
    def text(self) -> str:
        """All text of the answer."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")


# --- what a stream says --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextDelta:
    """More text of the block with this index."""

    index: int
    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """More of the block of thinking with this index. Reasoning is not shown by the provider: what comes are notes on how
    the model gets on."""

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
