"""The shape of a flow file: which fields there are and what they take. The reference and the schema come from here.

These models say nothing of what hangs together (ids, types, expressions); `engine.flow.load` checks that.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from engine.codec import Json
from engine.nodes.configs import Config, Duration, Text

InputType: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]
DEFAULT_DEADLINE = 30 * 86400.0
"""How long a question stays open when neither it nor the flow says so, in seconds."""


class ItemsDoc(Config):
    """What the items of an array are."""

    type: InputType = Field("string", description="The type of every item.")


class InputDoc(Config):
    """One input."""

    type: InputType = Field(
        "string", description="`string`, `number`, `integer`, `boolean`, `array` or `object`."
    )
    description: str | None = Field(None, description="What it is, for the people who are asked for it.")
    default: Json = Field(None, description="The value when none is given. It is not evaluated.")
    required: bool | None = Field(
        None,
        description="Whether a run cannot start without it. Left out: required when there is no `default`. "
        "An input that is not required and has no default is null.",
    )
    choices: Annotated[list[Any], Field(min_length=1)] | None = Field(
        None, description="The only values allowed; for an array, the only items."
    )
    items: ItemsDoc | None = Field(None, description="For an array: `{type: ...}` of its items.")


class TriggerDoc(Config):
    """What starts the flow without its name."""

    mention: Text = Field(
        description="Words after a mention of the bot, with inputs in braces: `rollback {service}`."
    )


class LimitsDoc(Config):
    """What no run of the flow exceeds."""

    deadline: Duration = Field(
        DEFAULT_DEADLINE, description="How long a question waits that has no `timeout` of its own."
    )


class NodeDoc(Config):
    """One step."""

    id: Text = Field(description="The node's name in expressions: small letters, digits and `_`.")
    type: Text = Field(description="What it does: one of the node types below.")
    name: Text | None = Field(None, description="The node's name for people. Left out: the id.")
    with_: dict[str, Any] | None = Field(None, alias="with", description="The configuration, by type.")
    if_: Any = Field(
        None,
        alias="if",
        description='A condition in `{{ }}` that must give true or false: `"{{ inputs.sure }}"`. '
        "When it is false the node is skipped and its output is null.",
    )
    timeout: Duration | None = Field(
        None, description="How long the work may take; for types that do work outside (shell, http)."
    )
    on_crash: Literal["again", "ask"] | None = Field(
        None,
        description="What to do when the bot died while the node ran: run it `again` with the same idempotency key, "
        "or `ask` a person. Left out: `again` for what has no effects, `ask` for shell and for http that is no GET.",
    )
    retry: Literal["safe", "never"] | None = Field(
        None, description="Short for `on_crash`: `safe` is `again`, `never` is `ask`."
    )
    on_error: Literal["fail", "continue"] = Field(
        "fail", description="What a failure of the node does: it fails the flow, or the flow goes on."
    )


class FlowDoc(Config):
    """A flow file."""

    flow: Text = Field(description="The name: small letters, digits, `_` and `-`.")
    description: str | None = Field(None, description="What it is for, in lists and help.")
    inputs: dict[str, InputDoc] = Field(default_factory=dict, description="What a start takes, by name.")
    triggers: list[TriggerDoc] = Field(default_factory=list, description="What starts it beside its name.")
    limits: LimitsDoc = Field(LimitsDoc(), description="What no run exceeds.")  # type: ignore[call-arg]
    nodes: Annotated[list[NodeDoc], Field(min_length=1)] = Field(description="The steps, in order.")
