"""A scenario: as written in its file (models of its parts), as read (people, results of nodes, steps),
and how it names places in a flow. Pure.

`nodes`, `steps` and `claude` are read part by part in `load`, since what may be in them depends on the flow and on
the people.

A place is named by its path, by the id of a node, or by the agent that something comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from engine.flow import Flow
from engine.journal.state import Asked, of_first_attempt
from engine.language.codec import Json, encode, nfc
from engine.language.diagnostics import Fault, Path, kind_of
from engine.language.timestamps import parse_moment
from engine.language.yaml import Located

if TYPE_CHECKING:
    from engine.models.scripted import Script


Text: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(nfc)]

NODE_STATUS = (
    *("completed", "skipped", "failed", "waiting", "started", "retrying", "interrupted", "stopped"),
    "pending",
)
"""Possible statuses of a node; `pending` has not begun."""


class Part(BaseModel):
    """Base of all parts: no unknown fields, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _people(value: Any) -> Any:
    """A list of names is a mapping without facts."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {nfc(name): {} for name in value}
    if isinstance(value, dict):
        return {nfc(name): {} if facts is None else facts for name, facts in value.items()}
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"expected a moment such as 2026-11-23T09:00:00Z, not {kind_of(value)}")
    return parse_moment(value)


def _list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class PersonDoc(Part):
    """Facts about a person. Left out, the e-mail address is `<name>@example.com`."""

    name: Text | None = None
    email: Text | None = None
    id: Text | None = None
    manager: Text | None = None
    groups: tuple[str, ...] | list[str] = ()
    admin: bool = False
    guest: bool = False
    in_channel: bool = True


class StartDoc(Part):
    """Start of the flow: its person or trigger, and its time. `as` is a person; a trigger starts it without a
    requester. `said` are messages in the thread and its channel, `notes` earlier notes of agents, the newest last."""

    as_: Text | None = Field(None, alias="as")
    trigger: Literal["schedule", "message", "webhook"] | None = None
    at: Annotated[str, BeforeValidator(_moment)] | None = None
    refused: Text | None = None
    said: list[Text] = []
    notes: list[Text] = []


class ErrorDoc(Part):
    """Failure of a node."""

    type: Text = "failed"
    message: Text = "failed by the scenario"
    details: Json = None


class AsksDoc(Part):
    """Question of an MCP server to people, instead of a result."""

    message: Text
    form: dict[str, Json] | None = None
    url: Text | None = None


class FakeDoc(Part):
    """Result of a node when it runs: one of these."""

    output: Json = None
    error: str | ErrorDoc | None = None
    interrupted: Literal["timeout", "lost"] | None = None
    real: bool | None = None
    asks: AsksDoc | None = None


class ExpectDoc(Part):
    """Expected state. Fields that are left out may be anything."""

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
    notes: list[str] | None = None


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
    *("reply", "message", "choose", "approve", "reject", "answer"),
    *("always", "always_in_thread", "always_in_flow", "form", "files", "edit", "revoke", "hand_over"),
    *("pause", "resume", "cancel"),
)
"""Actions of people, if one word is not enough."""

BESIDE = ("on", "refused", "while")
"""Fields that are beside a person in a step."""


# --- the scenario as values --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Act:
    """Action of a person. `verb` is `say` for one word or text, which may be a choice or a reply."""

    person: str
    verb: str
    value: Json
    on: str | None = None
    refused: str | None = None
    during: str | None = None
    """The node that is at work when this is done; None: once nothing is at work any more."""


@dataclass(frozen=True)
class Wait:
    """So many seconds go by."""

    seconds: float


Deed: TypeAlias = Act | Wait | ExpectDoc


@dataclass(frozen=True)
class Step:
    """One step: its number from 1, where it is in the file, and what it is."""

    number: int
    path: Path
    does: Deed


@dataclass(frozen=True)
class Scenario:
    """A scenario that was read and fits its flow."""

    doc: ScenarioDoc
    flow: Flow
    located: Located
    people: Mapping[str, PersonDoc]
    fakes: Mapping[str, tuple[FakeDoc, ...]]
    steps: tuple[Step, ...]
    script: Script | None = None
    """Script of Claude's answers to agents."""

    @property
    def name(self) -> str:
        """Its title."""
        return self.doc.scenario

    @property
    def file(self) -> str:
        """Return the path of its file."""
        return self.located.file

    @property
    def borrowed(self) -> bool:
        """True if Claude's answers are in a separate file, which may have more than needed here."""
        given = self.doc.claude
        return isinstance(given, dict) and set(given) == {"file"}

    def turn_path(self, agent: str, position: int) -> Path:
        """Return the place in the file of a turn of an agent's script."""
        given = self.doc.claude
        if self.borrowed:
            return ("claude", "file")
        if isinstance(given, list):
            return ("claude", position)
        return ("claude", agent if agent in given else "turns", position)

    def place(self, path: Path) -> str:
        """`file:line:column` of a part of the file."""
        problem = self.located.problem(Fault(path, "", on_key=True))
        return f"{problem.file}:{problem.line}:{problem.column}"


def described(value: Any) -> str:
    """A value of the file for people: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


# --- places in a flow --------------------------------------------------------------------------------------


def is_at(path: str, name: str) -> bool:
    """True if a scenario's name means this path: the path itself, or the id of its node."""
    return name in (path, path.rpartition("/")[2].partition("~")[0])


def is_place(path: str, name: str) -> bool:
    """The same, or the agent whose model call or tool call this is."""
    agent, found, _ = path.rpartition("/turn[")
    return is_at(path, name) or (bool(found) and is_at(of_first_attempt(agent), name))


def is_asked(prompt: Asked, name: str) -> bool:
    """True if a scenario's name means this question."""
    return is_place(prompt.path, name) or name == prompt.node_id
