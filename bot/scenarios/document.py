"""A scenario as its file says it: the models of its parts. Pure.

`nodes`, `steps` and `claude` are read part by part in `load`, since what may stand in them depends on the flow and on
the people.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.language.durations import parse_moment

Text: TypeAlias = Annotated[str, Field(min_length=1)]

NODE_STATUS = (
    *("completed", "skipped", "failed", "waiting", "started", "retrying", "interrupted", "stopped"),
    "pending",
)
"""What can have become of a node; `pending` is what has not begun."""


class Part(BaseModel):
    """What all parts share: no unknown fields, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _people(value: Any) -> Any:
    """A list of names is a mapping without facts."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: {} if facts is None else facts for name, facts in value.items()}
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"expected a moment such as 2026-11-23T09:00:00Z, not {kind_of(value)}")
    return parse_moment(value)


def _list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class PersonDoc(Part):
    """What is known of somebody. Left out, the e-mail address is `<name>@example.com`."""

    name: Text | None = None
    email: Text | None = None
    id: Text | None = None
    groups: tuple[str, ...] | list[str] = ()
    admin: bool = False
    guest: bool = False
    in_channel: bool = True


class StartDoc(Part):
    """Who or what starts the flow, and when. `as` is a person; a trigger starts it in nobody's name."""

    as_: Text | None = Field(None, alias="as")
    trigger: Literal["schedule", "message"] | None = None
    at: Annotated[str, BeforeValidator(_moment)] | None = None
    refused: Text | None = None


class ErrorDoc(Part):
    """How a node fails."""

    type: Text = "failed"
    message: Text = "it failed, says the scenario"
    details: Json = None


class FakeDoc(Part):
    """What comes of a node when it runs: one of these."""

    output: Json = None
    error: str | ErrorDoc | None = None
    interrupted: Literal["timeout", "lost"] | None = None
    real: bool | None = None


class ExpectDoc(Part):
    """What must be true now. Fields that are left out may be anything."""

    prompt: Text | None = None
    message: Text | None = None
    kind: Text | None = None
    choices: list[str] | None = None
    asks: list[str] | None = None
    prompts: list[str] | None = None
    posted: Annotated[list[str], BeforeValidator(_list)] | None = None
    status: Literal["running", "paused", "complete", "failed", "aborted"] | None = None
    nodes: dict[str, str] | None = None
    outputs: dict[str, Json] | None = None
    errors: dict[str, str] | None = None
    effects: list[Json] | None = None
    reminded: Text | None = None
    escalated: Text | None = None
    expired: Text | None = None
    said: dict[str, str] | None = None


class ScenarioDoc(Part):
    """The whole file."""

    scenario: Text
    flow: Text
    description: str | None = None
    inputs: dict[str, Json] = {}
    start: StartDoc = Field(default_factory=lambda: StartDoc.model_validate({}))
    people: Annotated[dict[str, PersonDoc], BeforeValidator(_people)] = {}
    secrets: dict[str, str] = {}
    nodes: dict[str, Json] = {}
    claude: Json = None
    steps: list[Json] = []


VERBS = (
    *("reply", "message", "choose", "approve", "reject", "form", "files", "edit", "undo", "hand_over"),
    *("pause", "resume", "cancel"),
)
"""What a person can do, where one word does not say it."""

BESIDE = ("on", "refused", "while")
"""Fields that stand beside a person in a step."""
