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
from engine.nodes.types.fields import Config, Duration, Person, Shown, Span, Text
from engine.nodes.types.prompts import GOTO

_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,}|#[^\s#@<>]{1,80}")
_BOT_ID = re.compile(r"[AB][A-Z0-9]{2,}")


def _channel(value: Any) -> str:
    if not isinstance(value, str) or not _CHANNEL.fullmatch(value):
        raise ValueError(f"{kind_of(value)} names no channel: write its id (C012345) or its name (#ops)")
    return value


def _bot_id(value: Any) -> str:
    if not isinstance(value, str) or not _BOT_ID.fullmatch(value):
        raise ValueError(
            f"{kind_of(value)} names no app: write its id (A012345) or its bot's (B012345); names can be anybody's"
        )
    return value


Channel: TypeAlias = Annotated[
    str, BeforeValidator(_channel), WithJsonSchema({"type": "string", "title": "channel"})
]


def _bots(value: Any) -> bool | list[str]:
    if isinstance(value, list):
        return [_bot_id(item) for item in value]
    if not isinstance(value, bool):
        raise ValueError(f"expected true, false or a list of ids, not {kind_of(value)}")
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

    mention: Text | None = Field(
        None, description="Words after a mention of the bot, with inputs in braces: `rollback {service}`."
    )
    message: Text | None = Field(
        None,
        description="Words in a message of a channel that the bot is in, no mention needed, with inputs in braces: "
        "`{service} is down`. They may stand anywhere in the message; `*` stands for any words.",
    )
    reaction: Text | None = Field(
        None,
        description="An emoji by name, without colons: whoever reacts to a message with it starts the flow.",
    )
    shortcut: Shown | None = Field(
        None,
        description="What the flow is called in the list that the message shortcut *Run a flow* shows.",
    )
    schedule: Text | None = Field(
        None,
        description="A cron expression of five fields: `0 9 * * mon-fri`. The run lives in the thread of a message "
        "that the bot posts in `channel`.",
    )
    webhook: Text | None = Field(
        None,
        description="A name: a signed `POST` to `/hooks/NAME` of the address in `SAYSO_METRICS` starts the flow, each body "
        "once. The run lives in the thread of a message in `channel`.",
    )
    channels: Annotated[list[Channel], Field(min_length=1)] | None = Field(
        None,
        description="Where `message` and `reaction` count: ids (`C012345`) or names (`#ops`). Left out: in every channel "
        "that the bot is in.",
    )
    from_bots: Bots = Field(
        False,
        description="Whether messages of apps count for `message`: `true`, or the ids of those that do (`B012345`, "
        "`A012345`). Left out: people only.",
    )
    dedupe: Duration | None = Field(
        None,
        description="For `message`: within this time of one that started a run, others like it start none; the run's "
        "thread says how many there were.",
    )
    dedupe_by: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="The inputs that make two messages alike. Left out: all that the pattern captures.",
    )
    message_as: Text | None = Field(
        None,
        description="The input that gets the text of the message, for `message`, `reaction` and `shortcut`.",
    )
    link_as: Text | None = Field(
        None, description="The input that gets the link to that message, for the same three."
    )
    channel: Channel | None = Field(
        None,
        description="For `schedule` and `webhook`: the channel that its message is posted in. Required there.",
    )
    timezone: Text = Field(
        "UTC", description="For `schedule`: the time zone of the expression, such as `Europe/Berlin`."
    )
    missed: Span = Field(
        3600.0,
        description="For `schedule`: a run that was missed while the bot was down is made up for once, if it was due at "
        "most so long ago. `0s`: never.",
    )
    verify: Literal["github", "bearer"] = Field(
        "github",
        description="For `webhook`, how the sender proves itself: `github`, by `X-Hub-Signature-256` over the body (GitHub, and "
        "others that sign like it); `bearer`, by `Authorization: Bearer` with the secret (Alertmanager, curl).",
    )
    secret: Text | None = Field(
        None, description="For `webhook`: the name of the secret that the sender has. Required there."
    )
    body_as: Text | None = Field(
        None, description="For `webhook`: the input, of type `object`, that gets the JSON that was sent."
    )
    events: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="For `webhook` with `verify: github`: the events (`X-GitHub-Event`) that start the flow. GitHub signs "
        "the body, not this header: choose the events at GitHub as well, and rely on the body.",
    )
    inputs: dict[str, Any] = Field(
        default_factory=dict, description="Values of inputs, as they stand here: nothing is evaluated."
    )


Count: TypeAlias = Annotated[int, Field(ge=1)]


class LimitsDoc(Config):
    """Limits of each run of the flow."""

    deadline: Duration = Field(
        DEFAULT_DEADLINE, description="How long a question waits that has no `timeout` of its own."
    )
    max_open_prompts: Count = Field(50, description="How many questions may be open at the same time.")
    max_node_runs: Count = Field(
        10_000,
        description="How many nodes may run in all, each round and each try counted; more fail the flow.",
    )
    max_depth: Count = Field(16, description="How deep containers and called flows may stand in each other.")
    concurrency: Count = Field(8, description="How many nodes may run at the same time.")
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="How many dollars all agents of a run may cost together. Before a call of a model that could pass it, "
        "people are asked.",
    )
    max_tokens_total: Count | None = Field(
        None, description="How many tokens they may use together, sent and answered; likewise."
    )
    max_turns: Count | None = Field(
        None, description="How many calls of a model they may make together; likewise."
    )


class RetryDoc(Config):
    """Retries after a failure, before `on_error` applies."""

    attempts: Count = Field(description="How many tries there are in all, the first one included.")
    backoff: Literal["fixed", "exponential"] = Field(
        "fixed", description="Whether the wait before each try is `delay`, or doubles from there."
    )
    delay: Span = Field(1.0, description="How long to wait before the second try. No process waits with it.")
    max_delay: Duration = Field(300.0, description="The longest wait between two tries.")
    jitter: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="By which part of itself a wait is made shorter or longer by chance, from 0 to 1."
    )


OnLimit: TypeAlias = Literal["fail", "continue", "ask"]


class EdgeDoc(Config):
    """Leads from one node to another."""

    from_: Text = Field(alias="from", description="The id of the node that it comes from.")
    to: Text = Field(description="The id of the node that it leads to, in the same list.")
    when: Any = Field(
        None,
        description="A condition in `{{ }}`, evaluated once `from` has ended. When false, the edge is dead.",
    )
    type: Literal["forward", "loop"] = Field(
        "forward", description="`loop` leads back: what comes after `to` runs once more."
    )
    max_iterations: Count | None = Field(
        None,
        description="How often a loop edge may be taken; 1 means one time back. Required for loop edges.",
    )
    on_limit: OnLimit | None = Field(
        None,
        description="What happens when a loop edge that was taken so often would be taken once more. `fail` (which is what "
        "holds when it says nothing): the flow, or the round that the edge stands in, fails. `continue`: it goes on without "
        "going back. `ask`: people say whether it goes back once more, goes on, or stops.",
    )
    gate: Literal["any", "all"] | None = Field(
        None,
        description="What `to` waits for: `all` its edges to be resolved, one of them taken (which is what holds when "
        "none of its edges says anything), or `any` one to be taken. Not for loop edges.",
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require an end and no gate for loop edges, and no number of iterations for others."""
        if raw.get("type") == "loop":
            if raw.get("max_iterations") is None:
                yield Fault((), "a loop edge needs `max_iterations`", "1 means one time back")
            if raw.get("gate") is not None:
                yield Fault(("gate",), "a loop edge has no gate: nothing waits for it", on_key=True)
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

    id: Text = Field(description="The node's name in expressions: small letters, digits and `_`.")
    type: Text = Field(description="What it does: one of the node types below.")
    name: Shown | None = Field(None, description="The node's name for people. Left out: the id.")
    with_: dict[str, Any] | None = Field(None, alias="with", description="The configuration, by type.")
    if_: Any = Field(
        None,
        alias="if",
        description='A condition in `{{ }}` that must give true or false: `"{{ inputs.sure }}"`. '
        "When it is false the node is skipped and its output is null.",
    )
    timeout: Duration | None = Field(
        None,
        description="How long the work may take; for types that do work outside (shell, http, python) and for types "
        "that hold other nodes. What is over time is cancelled.",
    )
    on_crash: Literal["again", "ask"] | None = Field(
        None,
        description="What to do when the bot died while the node ran: run it `again` with the same idempotency key, "
        "or `ask` a person. Left out: `again` for what has no effects, `ask` for shell, python and for http that is "
        "no GET.",
    )
    # The shape is checked by hand: pydantic's errors for a union name all of its members.
    retry: Annotated[
        Any, WithJsonSchema({"anyOf": [{"enum": ["safe", "never"]}, {"type": "object"}, {"type": "null"}]})
    ] = Field(
        None,
        description="How often to try again after a failure: a mapping, see [Retries](#retries). Also short for "
        "`on_crash`: `safe` is `again`, `never` is `ask`.",
    )
    on_error: OnError = Field(
        "fail",
        description="What a failure of the node does, when no try is left: `fail` fails what it stands in, and with it "
        "the flow; `continue` goes on with the output null; `ask` asks in the thread whether to try again, skip it or "
        "abort; `goto:<id>` goes to a node of the same list.",
    )
    on_failure: Nodes | None = Field(
        None, description="Nodes that run after the node has failed, before `on_error` counts."
    )
    body: Nodes | None = Field(None, description="The nodes of a `foreach` or a `loop`.")
    edges: list[EdgeDoc] | None = Field(None, description="The edges between the nodes of `body`.")
    branches: NamedNodes | None = Field(None, description="The branches of a `parallel`, by name.")
    cases: NamedNodes | None = Field(None, description="The cases of a `switch`, by value.")
    default: Nodes | None = Field(None, description="What a `switch` runs when no case fits.")


class FlowDoc(Config):
    """A flow file."""

    flow: Text = Field(description="The name: small letters, digits, `_` and `-`.")
    description: str | None = Field(None, description="What it is for, in lists and help.")
    inputs: dict[str, InputDoc] = Field(default_factory=dict, description="What a start takes, by name.")
    triggers: list[TriggerDoc] = Field(default_factory=list, description="What starts it beside its name.")
    allowed_to_start: Annotated[list[Person], Field(min_length=1)] | None = Field(
        None,
        description="Who may start it: user ids, e-mail addresses, user groups (`@sre`), `channel`, and `local:<user>` for "
        "`sayso start-flow`. Left out: the members of the channel.",
    )
    channels: Annotated[list[Channel], Field(min_length=1)] | None = Field(
        None,
        description="Where it may be started: ids (`C012345`) or names (`#ops`). Left out: wherever the bot is.",
    )
    limits: LimitsDoc = Field(
        default_factory=lambda: LimitsDoc.model_validate({}), description="What no run exceeds."
    )
    lock: Text | None = Field(
        None,
        description="A name, with `{{ }}`, that one session at a time may hold: taken before the first node, until the end.",
    )
    on_conflict: Literal["queue", "refuse"] = Field(
        "queue",
        description="What a start does while another session holds the lock: wait for its turn, or fail and say who has it.",
    )
    tools: dict[str, ToolDoc] = Field(
        default_factory=dict,
        description="Tools for agents, by name; see [Tools of your own](#tools-of-your-own).",
    )
    nodes: Nodes = Field(description="The steps, in order.")
    edges: list[EdgeDoc] | None = Field(
        None, description="The edges between `nodes`, when they are a graph; see [Graphs](#graphs)."
    )
    finally_: Nodes | None = Field(
        None,
        alias="finally",
        description="Nodes that run at the end of every run, however it ended. They ask nobody.",
    )


NodeDoc.model_rebuild()
FlowDoc.model_rebuild()
