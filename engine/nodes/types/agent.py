"""The `agent` node: a conversation with Claude. Tools and approvals of an agent are in `engine.flow.agent_document`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema

from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.nodes.types.fields import Config, Duration, NodeId, Shown, Text
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import NUMBERS, TEXTS, Type, mapping_of, schema_type

NODE_ID: TypeAdapter[str] = TypeAdapter(NodeId)

MAX_TOKENS = 32_000
"""Default length limit of an answer, in tokens."""

COMPACT_AT = 150_000
"""From how many tokens on a conversation is summed up, where the flow does not say."""

MAX_TURNS = 50
"""Default limit of an agent's model calls."""


def _file(value: Any) -> str | dict[str, Json]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and isinstance(value.get("path"), str):
        return value
    raise ValueError(f"expected a file of an `ask`, or a name in the session's folder, not {kind_of(value)}")


AgentFile: TypeAlias = Annotated[
    Any, BeforeValidator(_file), WithJsonSchema({"type": ["string", "object"], "title": "file"})
]
"""A file that the model is shown: an entry of `files` of an `ask`, or a name in the session's folder."""


class CompactConfig(Config):
    """Settings for compacting an agent's conversation."""

    at: Annotated[int, Field(ge=50_000)] = Field(
        COMPACT_AT,
        description="From how many tokens on; before that where the model's context is nearly full.",
    )
    instructions: Annotated[str, Field(min_length=1, max_length=16_000)] | None = Field(
        None, description="What the summary has to hold, in place of what Claude asks itself for."
    )


class RetryConfig(Config):
    """Changes for the next call if people choose *Try again* after an unusable answer of the model."""

    model: Text | None = Field(None, description="The model that is asked from then on.")
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How long an answer may be from then on, in tokens."
    )
    thinking: Literal["off"] | None = Field(
        None, description="`off`: it goes on without thinking, where the model can do without."
    )


PLACE = re.compile(r"thread|channel:[1-9][0-9]{0,2}")
"""A place whose messages an agent may be given."""


def contexts(value: Any) -> tuple[Any, ...]:
    """The entries of a `context`, which may be one place."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()


def _known(value: Any) -> Any:
    if isinstance(value, str) and not PLACE.fullmatch(value):
        raise ValueError("expected `thread`, `channel:20`, or a list of ids of earlier agents")
    return list(contexts(value)) if isinstance(value, str) else value


def _context_entry(value: Any) -> Any:
    return value if isinstance(value, str) and PLACE.fullmatch(value) else NODE_ID.validate_python(value)


AgentContextEntry: TypeAlias = Annotated[
    str, BeforeValidator(_context_entry), WithJsonSchema({"type": "string", "title": "agent or place"})
]


def _domain(value: Any) -> str:
    if not isinstance(value, str) or not _DOMAIN.fullmatch(value):
        raise ValueError(
            f"{kind_of(value)} names no host: write example.com, example.com/docs, or `*` for any"
        )
    return value


_DOMAIN = re.compile(r"\*|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/\S*)?", re.ASCII)
Domain: TypeAlias = Annotated[
    str, BeforeValidator(_domain), WithJsonSchema({"type": "string", "pattern": _DOMAIN.pattern})
]


class WebConfig(Config):
    """Limits of Claude's access to the web."""

    domains: Annotated[list[Domain], Field(min_length=1)] = Field(
        description="The hosts, with those below them, or `*` for any."
    )
    max_uses: Annotated[int, Field(ge=1, le=20)] = Field(5, description="How often, in one model call.")


class CodeConfig(Config):
    """Code that Claude writes and runs in a container of Anthropic's, without a network."""


class ServerToolsConfig(Config):
    """Tools that run at Anthropic: nobody approves their calls, and what they give is in the answer."""

    web_search: WebConfig | None = Field(None, description="Search the web.")
    web_fetch: WebConfig | None = Field(None, description="Read pages whose addresses were mentioned.")
    code_execution: CodeConfig | None = Field(None, description="Run code.")


MemoryWrite: TypeAlias = Literal["approve", "auto", "off"]


class MemoryConfig(Config):
    """Notes that an agent keeps for later runs."""

    write: MemoryWrite = Field(
        description="`approve`: people see and approve each note first. `auto`: nobody is asked. `off`: there is no memory."
    )
    scope: Literal["channel", "flow"] = Field(
        "channel",
        description="Who reads them: agents in the session's channel, or agents of this flow. What was noted in a channel that "
        "is not public stays there.",
    )
    keep: Duration = Field(90 * 86400.0, description="For how long they are kept.")


class AgentConfig(Config):
    """Lets Claude work on a task, with tools, until it is done.

    Each model call and each tool call is a step of its own that is never made twice. People can be asked, decide which
    calls may run (`approvals`), write to it while it works, and stop it. `tools`, `approvals`, `output` and `context`
    are read when the flow is loaded.
    """

    prompt: Shown = Field(description="The task.")
    system: str | None = Field(None, description="Who Claude is here and what it has to keep to.")
    model: Text | None = Field(None, description="The model. Left out: the one that is configured.")
    max_tokens: Annotated[int, Field(ge=1)] = Field(
        MAX_TOKENS, description="How long one answer of the model may be, in tokens, what it thinks included."
    )
    thinking: Literal["auto", "off"] | None = Field(
        None,
        description="`off`: it does not think before it answers, where the model can do without. Left out: `auto`.",
    )
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="How much work it puts into an answer. Left out: the model's default."
    )
    fallbacks: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None, description="Models that go on, in this order, where the model declines to answer."
    )
    cache: Literal["auto", "5m", "1h", "off"] | None = Field(
        None,
        description="For how long Claude keeps what is sent again. Left out: `auto`, an hour where people are asked, else "
        "five minutes.",
    )
    tool_search: Literal["auto", "bm25", "regex", "off"] | None = Field(
        None,
        description="Claude looks for tools of MCP servers by words (`bm25`) or patterns (`regex`) and is told of those that "
        "it finds. Left out: `auto`, `bm25` for more than 30 of them.",
    )
    server_tools: ServerToolsConfig | None = Field(
        None, description="Tools that run at Anthropic, each only where it stands here."
    )
    compact: CompactConfig | None = Field(
        None,
        description="When the conversation is summed up, `at` so many tokens, and with which `instructions`.",
    )
    retry_with: RetryConfig | None = Field(
        None, description="What *Try again* changes where the model gave no answer to go on with."
    )
    temperature: Any = Field(
        None, exclude=True, description="Ignored: no current model takes it. Leave it out."
    )
    max_turns: Annotated[int, Field(ge=1)] = Field(
        MAX_TURNS, description="How many model calls there may be; then a person is asked."
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None, description="How many dollars it may cost; a person is asked before it costs more."
    )
    max_tokens_total: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How many tokens all its calls may take together; then a person is asked."
    )
    context: Annotated[list[AgentContextEntry], BeforeValidator(_known)] = Field(
        default_factory=list,
        exclude=True,
        description="What it is given as data: conversations of earlier agents by their ids; `thread`, what was said before in "
        "the session's thread; `channel:20`, the last messages of its channel. One place, or a list.",
    )
    name: Text | None = Field(
        None, description="What people call it in the thread: `name: do this`. Left out: the node's id."
    )
    listen: Literal["mention", "requester", "thread"] | None = Field(
        None,
        description="What it hears: what is said to the bot by name (`mention`), all words of who may steer it "
        "(`requester`), or also what others say in the thread, as data (`thread`). Left out: `requester`.",
    )
    guests: Literal["allow", "data", "refuse"] | None = Field(
        None,
        description="Words of guests and of other organisations: as those of anybody else (`allow`), never more than data "
        "(`data`), or not heard where they may not steer (`refuse`). Left out: `allow`.",
    )
    follow_up: Duration | None = Field(
        None,
        description="How long it listens in its thread after its answer: a reply goes on in the same conversation. The flow "
        "ends after that. Left out: not at all.",
    )
    files: list[AgentFile] | None = Field(
        None,
        description="Files and images that it is shown: those of an `ask` (`{{ nodes.<id>.files }}`), or names in the "
        "session's folder.",
    )
    output: dict[str, Any] | None = Field(
        None,
        exclude=True,
        description="A JSON Schema that the answer must fit; it is `data` of the output. What does not fit is asked for "
        "once more.",
    )
    tools: list[Any] = Field(
        default_factory=list, exclude=True, description="What it can use; see [Tools](#tools-of-an-agent)."
    )
    approvals: dict[str, Any] = Field(
        default_factory=dict,
        exclude=True,
        description="By name of a tool which of its calls people decide first; see "
        "[Approvals of tool calls](#approvals-of-tool-calls).",
    )

    memory: MemoryWrite | MemoryConfig | None = Field(
        None,
        exclude=True,
        description="Notes for later runs: `approve`, `auto`, `off`, or a mapping. It reads those that there are when it begins, "
        "and writes them with the tool `remember`. Left out: `off`.",
    )
    grants: Literal["off", "run", "flow"] = Field(
        "off",
        exclude=True,
        description="`run`: whoever approves a call can allow calls like it for the rest of this run. `flow`: also in the runs "
        "of its thread, or of this flow in its channel. `off`: each is decided.",
    )


def _output(known: Known) -> Type:
    """Return the output type of an agent; `output` defines its data."""
    output = known.with_.get("output")
    return mapping_of(
        {
            "text": TEXTS,
            "data": mapping_of({}) if output is None else schema_type(output),
            "turns": NUMBERS,
            "usage": mapping_of({}, rest=NUMBERS),
            "cost": NUMBERS,
        }
    )


def _warnings(node_id: str, with_: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield warnings for fields that are accepted and ignored, and for models without a price."""
    if with_.get("temperature") is not None:
        yield (
            f"`temperature` of `{node_id}` is ignored: Claude refuses it",
            "leave it out; say in `prompt` what may vary",
        )
    retried = with_.get("retry_with")
    again = retried.get("model") if isinstance(retried, Mapping) else None
    models = [with_.get("model"), *(with_.get("fallbacks") or ()), again]
    if not any(models):
        return
    from engine.messages.prices import lacks_price  # most agents name no model

    for model in filter(None, models):
        if lacks_price(model):
            yield (
                f"sayso knows no price of {model}, so `{node_id}` stops at the first call where a cap in dollars holds",
                "set SAYSO_PRICES (docs/budgets.md), or use another model",
            )


_STATIC = frozenset({"tools", "approvals", "output", "context", "grants", "memory"})
"""Fields that are fixed in the flow. They are part of the plan, and are not recorded."""

SPEC = NodeSpec(
    config=AgentConfig,
    outputs={
        "text": "What it said last.",
        "data": "The answer as JSON that fits `output`; null where there is no `output`.",
        "turns": "How many model calls there were.",
        "usage": "The tokens of all its calls, by kind.",
        "cost": "What they cost, in dollars.",
    },
    output=_output,
    verbatim_fields=_STATIC,
    static_fields=_STATIC,
    schema_fields=frozenset({"output"}),
    exact=("max_cost", "max_tokens_total", "guests"),
    sparse_fields=frozenset(
        (
            "thinking",
            "effort",
            "fallbacks",
            "cache",
            "compact",
            "retry_with",
            "server_tools",
            "tool_search",
            "name",
            "listen",
            "guests",
            "follow_up",
        )
    ),
    warnings=_warnings,
    described={
        "`compact`": CompactConfig,
        "`memory`": MemoryConfig,
        "`retry_with`": RetryConfig,
        "`server_tools`": ServerToolsConfig,
        "`web_search`, `web_fetch`": WebConfig,
    },
    talks=True,
)
