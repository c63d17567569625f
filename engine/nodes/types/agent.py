"""The `agent` node: a conversation with Claude. Tools and approvals of an agent are in `engine.flow.agent_document`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema

from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.nodes.types.fields import Config, Duration, NodeId, Shown, Text, text_like
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
    raise ValueError(
        f"expected a file from an `ask`, or a file name in the session's folder, not {kind_of(value)}"
    )


AgentFile: TypeAlias = Annotated[
    Any, BeforeValidator(_file), WithJsonSchema({"type": ["string", "object"], "title": "file"})
]
"""A file that the model is shown: an entry of `files` of an `ask`, or a name in the session's folder."""


class CompactConfig(Config):
    """Settings for compacting an agent's conversation."""

    at: Annotated[int, Field(ge=50_000)] = COMPACT_AT
    """The number of tokens; earlier if the model's context is nearly full."""
    instructions: Annotated[str, Field(min_length=1, max_length=16_000)] | None = None
    """Instructions for the summary, instead of Claude's own."""


class RetryConfig(Config):
    """Changes for the next call if people choose *Try again* after an unusable answer of the model."""

    model: Text | None = None
    """The model from then on."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The longest answer from then on, in tokens."""
    thinking: Literal["off"] | None = None
    """`off`: no more thinking, if the model allows that."""


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


_DOMAIN = re.compile(r"\*|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/\S*)?", re.ASCII)
Domain: TypeAlias = Annotated[
    str,
    text_like(_DOMAIN, "{} is not a host name: write example.com, example.com/docs, or `*` for any"),
    WithJsonSchema({"type": "string", "pattern": _DOMAIN.pattern}),
]


class WebConfig(Config):
    """Limits of Claude's access to the web."""

    domains: Annotated[list[Domain], Field(min_length=1)]
    """The hosts, including subdomains, or `*` for any."""
    max_uses: Annotated[int, Field(ge=1, le=20)] = 5
    """The most uses in one model call."""


class CodeConfig(Config):
    """Code that Claude writes and runs in a container of Anthropic's, without a network."""


class ServerToolsConfig(Config):
    """Tools that run at Anthropic: nobody approves their calls, and what they give is in the answer."""

    web_search: WebConfig | None = None
    """Search the web."""
    web_fetch: WebConfig | None = None
    """Read pages whose addresses were mentioned."""
    code_execution: CodeConfig | None = None
    """Run code."""


MemoryWrite: TypeAlias = Literal["approve", "auto", "off"]


class MemoryConfig(Config):
    """Notes that an agent keeps for later runs."""

    write: MemoryWrite
    """`approve`: people approve each note first. `auto`: nobody is asked. `off`: no memory."""
    scope: Literal["channel", "flow"] = "channel"
    """Readers of the notes: agents in the run's channel, or agents of this flow. Notes from a channel that is not
    public stay there."""
    keep: Duration = 90 * 86400.0
    """Time for which notes are kept."""


class AgentConfig(Config):
    """Lets Claude work on a task with tools.

    Each model call and each tool call is a step that never runs twice. The agent can ask people. People can decide
    which calls may run (`approvals`), write to it while it works, and stop it. `tools`, `approvals`, `output` and
    `context` are read when the flow is loaded.
    """

    prompt: Shown
    """The task."""
    system: str | None = None
    """Claude's role and the rules to follow."""
    model: Text | None = None
    """The model. Default: the configured one."""
    max_tokens: Annotated[int, Field(ge=1)] = MAX_TOKENS
    """The longest answer of the model, in tokens, including its thinking."""
    thinking: Literal["auto", "off"] | None = None
    """`off`: no thinking before an answer, if the model allows that. Default: `auto`."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """The effort for an answer. Default: the model's default."""
    fallbacks: Annotated[list[Text], Field(min_length=1)] | None = None
    """Models to use, in this order, if the model declines to answer."""
    cache: Literal["auto", "5m", "1h", "off"] | None = None
    """Time for which Claude caches the prompt. Default: `auto`, an hour if people are asked, else five minutes."""
    tool_search: Literal["auto", "bm25", "regex", "off"] | None = None
    """Search for tools of MCP servers: by words (`bm25`) or by patterns (`regex`). Default: `auto`, which
    is `bm25` for more than 30 tools."""
    server_tools: ServerToolsConfig | None = None
    """Tools that run at Anthropic; only those listed here."""
    compact: CompactConfig | None = None
    """Rules for summarising the conversation: `at` this many tokens, with these `instructions`."""
    retry_with: RetryConfig | None = None
    """Changes that *Try again* makes after a model call without a usable answer."""
    temperature: Any = Field(None, exclude=True)
    """Ignored: no current model supports it."""
    max_turns: Annotated[int, Field(ge=1)] = MAX_TURNS
    """The most model calls; then a person is asked."""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """The most dollars; a person is asked before it costs more."""
    max_tokens_total: Annotated[int, Field(ge=1)] | None = None
    """The most tokens of all its calls together; a person is asked before it uses more."""
    context: Annotated[list[AgentContextEntry], BeforeValidator(_known)] = Field(
        default_factory=list, exclude=True
    )
    """Data for the agent: conversations of earlier agents by their ids; `thread`, the earlier messages in the run's
    thread; `channel:20`, the last messages of its channel. One place, or a list."""
    name: Text | None = None
    """Its name in the thread: `name: do this`. Default: the node's id."""
    listen: Literal["mention", "requester", "thread"] | None = None
    """The messages it gets: those that mention the bot (`mention`), all of the requester and admins (`requester`),
    or also other messages in the thread, as data (`thread`). Default: `requester`."""
    guests: Literal["allow", "data", "refuse"] | None = None
    """Messages of guests and other organisations: like anybody's (`allow`), only as data (`data`), or ignored
    unless they may instruct it (`refuse`). Default: `allow`."""
    follow_up: Duration | None = None
    """Time for which the agent listens in its thread after its answer. A reply continues the conversation. Then the
    flow ends. Default: not at all."""
    files: list[AgentFile] | None = None
    """Files and images for the agent: those of an `ask` (`{{ nodes.<id>.files }}`), or names in the run's folder."""
    output: dict[str, Any] | None = Field(None, exclude=True)
    """A JSON Schema for the answer, which becomes `data` in the output. A wrong answer gets one correction."""
    tools: list[Any] = Field(default_factory=list, exclude=True)
    """The tools it can use; see [Tools](#tools-of-an-agent)."""
    approvals: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """The tool calls that people decide first, by tool name; see [Approvals of tool
    calls](#approvals-of-tool-calls)."""

    memory: MemoryWrite | MemoryConfig | None = Field(None, exclude=True)
    """Notes for later runs: `approve`, `auto`, `off`, or a mapping. The agent reads them when it starts, and writes
    them with the tool `remember`. Default: `off`."""
    grants: Literal["off", "run", "flow"] = Field("off", exclude=True)
    """`run`: people who approve a call can allow similar calls for the rest of this run. `flow`: also in the runs
    of its thread, or of this flow in its channel. `off`: people decide each call."""


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
            f"`temperature` of `{node_id}` is ignored: Claude does not accept it",
            "leave it out; use `prompt` to say how answers may vary",
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
                f"sayso has no price for {model}, so `{node_id}` stops at its first call if there is a cap "
                "in dollars",
                "set SAYSO_PRICES (docs/budgets.md), or use another model",
            )


_STATIC = frozenset({"tools", "approvals", "output", "context", "grants", "memory"})
"""Fields that are fixed in the flow. They are part of the plan, and are not recorded."""

SPEC = NodeSpec(
    config=AgentConfig,
    outputs={
        "text": "The last answer.",
        "data": "The answer as JSON that matches `output`; null without `output`.",
        "turns": "The number of model calls.",
        "usage": "The tokens of all its calls, by kind.",
        "cost": "Their cost, in dollars.",
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
