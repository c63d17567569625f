"""Shape of a flow file: its fields and their values. The reference and the schema are made from here.

These models do not relate fields to each other (ids, types, expressions); `engine.flow.reading` checks that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.flow.agent_document import ToolDoc
from engine.flow.input_document import InputDoc
from engine.flow.model import DEFAULT_DEADLINE
from engine.language.codec import Json
from engine.language.diagnostics import Fault, kind_of
from engine.nodes.types.fields import Config, Duration, Person, Shown, Span, Text, text_like
from engine.nodes.types.prompts import GOTO

_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,}|#[^\s#@<>]{1,80}")
_BOT_ID = re.compile(r"[AB][A-Z0-9]{2,}")


Channel: TypeAlias = Annotated[
    str,
    text_like(_CHANNEL, "{} is not a channel: write its id (C012345) or its name (#ops)"),
    WithJsonSchema({"type": "string", "title": "channel"}),
]


def _bots(value: Any) -> bool | list[str]:
    if not isinstance(value, bool | list):
        raise ValueError(f"expected true, false or a list of ids, not {kind_of(value)}")
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, str) or not _BOT_ID.fullmatch(item):
            raise ValueError(
                f"{kind_of(item)} is not an app: write its id (A012345) or its bot's id (B012345); anybody can take a name"
            )
    return value


Bots: TypeAlias = Annotated[
    Any,
    BeforeValidator(_bots),
    WithJsonSchema(
        {
            "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
            "title": "true, or list of text",
        }
    ),
]


class TriggerDoc(Config):
    """Starts the flow without its name. Each has exactly one of `mention`, `message`, `reaction`, `shortcut`,
    `schedule` and `webhook`; the rest says more about it."""

    mention: Text | None = None
    """Words after a mention of the bot, with inputs in braces: `rollback {service}`."""
    message: Text | None = None
    """Words in a message of a channel that the bot is in, no mention needed, with inputs in braces: `{service} is
    down`. They can appear anywhere in the message; `*` stands for any words."""
    reaction: Text | None = None
    """An emoji name, without colons. A reaction with it to a message starts the flow."""
    shortcut: Shown | None = None
    """The flow's name in the list of the message shortcut *Run a flow*."""
    schedule: Text | None = None
    """A cron expression with five fields: `0 9 * * mon-fri`. The bot posts a message in `channel`; the run lives in
    its thread."""
    webhook: Text | None = None
    """A name. A signed `POST` to `/hooks/NAME` at the address in `SAYSO_METRICS` starts the flow, once for each
    body. The run lives in the thread of a message in `channel`."""
    channels: Annotated[list[Channel], Field(min_length=1)] | None = None
    """The channels for `message` and `reaction`: ids (`C012345`) or names (`#ops`). Default: every channel that the
    bot is in."""
    from_bots: Bots = False
    """True if `message` also matches messages of apps, or a list of the apps' ids (`B012345`, `A012345`). Default:
    people only."""
    dedupe: Duration | None = None
    """For `message`: after a message starts a run, equal messages start none for this time. The run's thread says
    how many there were."""
    dedupe_by: Annotated[list[Text], Field(min_length=1)] | None = None
    """The inputs that make two messages equal. Default: all captured inputs."""
    message_as: Text | None = None
    """For `message`, `reaction` and `shortcut`: the input that gets the text of the message."""
    link_as: Text | None = None
    """For the same three: the input that gets the link to the message."""
    channel: Channel | None = None
    """For `schedule` and `webhook` (required): the channel to post in."""
    timezone: Text = "UTC"
    """For `schedule`: the time zone of the expression, such as `Europe/Berlin`."""
    missed: Span = 3600.0
    """For `schedule`: after an outage, the latest missed run starts late, if it was due at most this long ago.
    `0s`: never."""
    verify: Literal["github", "bearer"] = "github"
    """For `webhook`, how the sender authenticates: `github`, by `X-Hub-Signature-256` over the body (GitHub and
    compatible senders); `bearer`, by `Authorization: Bearer` with the secret (Alertmanager, curl)."""
    secret: Text | None = None
    """For `webhook` (required): the name of the sender's secret."""
    body_as: Text | None = None
    """For `webhook`: the input, of type `object`, that gets the JSON body."""
    events: Annotated[list[Text], Field(min_length=1)] | None = None
    """For `webhook` with `verify: github`: the events (`X-GitHub-Event`) that start the flow. GitHub signs the
    body, not this header: choose the events at GitHub as well, and rely on the body."""
    inputs: dict[str, Any] = Field(default_factory=dict)
    """Literal values of inputs. They are not evaluated."""


Count: TypeAlias = Annotated[int, Field(ge=1)]


class LimitsDoc(Config):
    """Limits of each run of the flow."""

    deadline: Duration = DEFAULT_DEADLINE
    """The timeout of questions without their own `timeout`."""
    max_open_prompts: Count = 50
    """The most questions that may be open at the same time."""
    max_node_runs: Count = 10_000
    """The most node runs, counting each iteration and attempt. One more fails the flow."""
    max_depth: Count = 16
    """The deepest nesting of containers and called flows."""
    concurrency: Count = 8
    """The most nodes that may run at the same time."""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """The most dollars for all agents of a run together. Before a model call that could exceed it, people are
    asked."""
    max_tokens_total: Count | None = None
    """The most tokens for all agents of a run together, sent and received. Before it is exceeded, people are asked."""
    max_turns: Count | None = None
    """The most model calls for all agents of a run together. Before it is exceeded, people are asked."""


class RetryDoc(Config):
    """Retries after a failure, before `on_error` applies."""

    attempts: Count
    """The number of attempts, including the first."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    """Wait `delay` before each attempt, or double it each time."""
    delay: Span = 1.0
    """The wait before the second attempt. No process waits meanwhile."""
    max_delay: Duration = 300.0
    """The longest wait between two attempts."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The fraction, from 0 to 1, by which each wait varies at random."""


OnLimit: TypeAlias = Literal["fail", "continue", "ask"]


class EdgeDoc(Config):
    """An edge from one node to another."""

    from_: Text = Field(alias="from")
    """The id of the node where the edge starts."""
    to: Text
    """The id of the node where the edge ends, in the same list."""
    when: Any = None
    """A condition in `{{ }}`, evaluated once `from` has ended. If it is false, the edge is dead."""
    type: Literal["forward", "loop"] = "forward"
    """`loop` leads back: `to` and the nodes after it run again."""
    max_iterations: Count | None = None
    """The number of times that a loop edge can be taken; 1 means once back. Required for loop edges."""
    on_limit: OnLimit | None = None
    """Action when a loop edge at its limit would be taken again. `fail` (default): the flow, or the iteration
    with the edge, fails. `continue`: the flow continues without going back. `ask`: people choose to go back once
    more, continue, or stop."""
    gate: Literal["any", "all"] | None = None
    """The moment at which `to` starts: once `all` its edges are resolved and at least one is taken (default), or once
    `any` one is taken. Not for loop edges."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require an end and no gate for loop edges, and no number of iterations for others."""
        if raw.get("type") == "loop":
            if raw.get("max_iterations") is None:
                yield Fault((), "a loop edge needs `max_iterations`", "1 means one time back")
            if raw.get("gate") is not None:
                yield Fault(("gate",), "a loop edge cannot have a gate: nothing waits for it", on_key=True)
        elif raw.get("type", "forward") == "forward":
            for name in ("max_iterations", "on_limit"):
                if raw.get(name) is not None:
                    hint = "write `type: loop` when it leads back"
                    yield Fault((name,), f"`{name}` is for loop edges", hint, on_key=True)


# Checked by hand, for the sake of a hint.
OnError: TypeAlias = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["fail", "continue", "ask"]},
                {"type": "string", "pattern": f"^{GOTO.pattern}$", "title": "goto: and an id"},
            ]
        }
    ),
]
Nodes: TypeAlias = Annotated[list["NodeDoc"], Field(min_length=1)]
NamedNodes: TypeAlias = Annotated[dict[str, Nodes], Field(min_length=1)]


class NodeDoc(Config):
    """One step."""

    id: Text
    """The node's name in expressions: lowercase letters, digits and `_`."""
    type: Text
    """Its work: one of the node types below."""
    name: Shown | None = None
    """The node's name for people. Default: the id."""
    with_: dict[str, Any] | None = Field(None, alias="with")
    """The configuration, by type."""
    if_: Any = Field(None, alias="if")
    """A condition in `{{ }}` that must be true or false: `"{{ inputs.sure }}"`. If it is false, the node is skipped
    and its output is null."""
    timeout: Duration | None = None
    """The longest time for the work, for types that do outside work (shell, http, python) and for containers. After
    that it is cancelled."""
    on_crash: Literal["again", "ask"] | None = None
    """Action if the bot died while the node ran: run it `again` with the same idempotency key, or `ask` a
    person. Default: `again` for nodes without effects, `ask` for shell, python and http other than GET."""
    # The shape is checked by hand: pydantic's errors for a union name all of its members.
    retry: Annotated[
        Any, WithJsonSchema({"anyOf": [{"enum": ["safe", "never"]}, {"type": "object"}, {"type": "null"}]})
    ] = None
    """Retries after a failure: a mapping, see [Retries](#retries). Also short for `on_crash`: `safe` is `again`,
    `never` is `ask`."""
    on_error: OnError = "fail"
    """Action when the node has failed and no retry is left: `fail` fails the container and so the flow;
    `continue` continues with a null output; `ask` asks in the thread to retry, skip or abort; `goto:<id>` jumps to
    a node of the same list."""
    on_failure: Nodes | None = None
    """Nodes that run after the node has failed, before `on_error` applies."""
    body: Nodes | None = None
    """The nodes of a `foreach` or a `loop`."""
    edges: list[EdgeDoc] | None = None
    """The edges between the nodes of `body`."""
    branches: NamedNodes | None = None
    """The branches of a `parallel`, by name."""
    cases: NamedNodes | None = None
    """The cases of a `switch`, by value."""
    default: Nodes | None = None
    """The nodes that a `switch` runs if no case matches."""


class FlowDoc(Config):
    """A flow file."""

    flow: Text
    """The name: lowercase letters, digits, `_` and `-`."""
    description: str | None = None
    """The purpose, shown in lists and help."""
    inputs: dict[str, InputDoc] = Field(default_factory=dict)
    """The inputs of a start, by name."""
    triggers: list[TriggerDoc] = Field(default_factory=list)
    """Other ways to start it."""
    allowed_to_start: Annotated[list[Person], Field(min_length=1)] | None = None
    """People who may start it: user ids, e-mail addresses, user groups (`@sre`), `channel`, and `local:<user>` for
    `sayso start-flow`. Default: the members of the channel."""
    channels: Annotated[list[Channel], Field(min_length=1)] | None = None
    """Channels in which it may be started: ids (`C012345`) or names (`#ops`). Default: wherever the bot is."""
    limits: LimitsDoc = Field(default_factory=lambda: LimitsDoc.model_validate({}))
    """Limits of each run."""
    lock: Text | None = None
    """A name, with `{{ }}`, that one run can hold at a time, from its first node to its end."""
    on_conflict: Literal["queue", "refuse"] = "queue"
    """If another run holds the lock: wait for its turn, or fail and name the holder."""
    tools: dict[str, ToolDoc] = Field(default_factory=dict)
    """Tools for agents, by name; see [Tools of your own](#tools-of-your-own)."""
    nodes: Nodes
    """The steps, in order."""
    edges: list[EdgeDoc] | None = None
    """The edges between `nodes`, if they form a graph; see [Graphs](#graphs)."""
    finally_: Nodes | None = Field(None, alias="finally")
    """Nodes that run at the end of every run, however it ended. They cannot ask people."""


NodeDoc.model_rebuild()
FlowDoc.model_rebuild()
