"""The base of all events: a wire name, the phases in which it may happen, what it changes, and what must follow it."""

from collections.abc import Mapping
from typing import Any, ClassVar, dataclass_transform

from msgspec import Struct, StructMeta
from msgspec.structs import astuple

from engine.journal.phases import Phase
from engine.journal.state import Call, Owed, State
from engine.language.codec import Json, encode
from engine.language.errors import MalformedJournal

SCHEMA_VERSION = 1
"""Version of the events' schema, stored beside every journal row. It counts up with every release that adds an event
or a field, or gives one another meaning: an older release then leaves the session to a newer one."""


def within(*phases: Phase) -> dict[Phase, Phase]:
    """The phases in which an event can happen that changes none."""
    return {phase: phase for phase in phases}


def moves(to: Phase, *phases: Phase) -> dict[Phase, Phase]:
    """The phases in which an event can happen that leads to another one."""
    return dict.fromkeys(phases, to)


WORK = within("running", "pausing", "finalizing")
OUTCOMES = WORK | within("held", "unreachable")
"""What runs comes to its outcome also while nothing starts."""
ANY_OPEN = within("running", "waiting", "pausing", "held", "unreachable")
ALWAYS = ANY_OPEN | within("finalizing")
CLOCKS = within("running", "waiting")
"""What a clock says to people; not while the session is held or cannot reach them."""
ENDS = moves("finalizing", "running", "pausing", "finalizing")

COMPLETED = ("node:completed", "container:childCompleted", "agent:toolResult")
FAILED = ("node:failing", "node:error", "agent:toolResult")
ANY_OUTCOME = (*COMPLETED, *FAILED)
"""The events that a node is owed whose question was answered, or whose time has come."""


class EventMeta(StructMeta):
    """Class keywords of events: `tag` is the name on the wire, `phases` the session's phase after the event by the phase
    before it. In any other phase the event cannot happen. `audit` is the field of which the audit trail has the digest, empty
    where it has the fact alone; without it there is no record."""

    def __new__(
        meta,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        tag: str | None = None,
        phases: Mapping[Phase, Phase] | None = None,
        audit: str | None = None,
        kw_only: bool = True,
        **config: Any,
    ) -> Any:
        if tag is not None:
            namespace |= {"type": tag, "phases": phases, "audit": audit}
        return super().__new__(meta, name, bases, namespace, tag=tag, kw_only=kw_only, **config)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Event(
    Struct,
    metaclass=EventMeta,
    kw_only=False,
    frozen=True,
    rename="camel",
    tag_field="type",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What all events share. `seq` orders the session; `timestamp` is the only clock that the fold ever sees."""

    type: ClassVar[str]
    """The event's name on the wire."""
    phases: ClassVar[Mapping[Phase, Phase]]
    """The session's phase after the event, by the phase before it."""
    audit: ClassVar[str | None]
    """The field of which the audit trail has the digest; empty where it has the fact alone, None where it has no record."""
    seq: int
    timestamp: str
    path: str | None = None

    @property
    def transition(self) -> str:
        """The name under which the table of transitions knows this event."""
        return self.type

    def fold(self, state: State) -> State:
        """The state after the event. Raises `MalformedJournal` with the reason where it cannot follow."""
        raise NotImplementedError

    def owes(self, before: State) -> tuple[Owed, ...]:
        """The events that follow in the same step, by the state before this one."""
        return ()

    @property
    def done(self) -> bool:
        """True if it says that something was done that must not be done a second time."""
        return False

    @property
    def call(self) -> Call | None:
        """The call of a tool that a model asks for with it."""
        return None

    # --- what the audit trail has of it (`engine.journal.audit`)

    @property
    def audited(self) -> bool:
        """Whether somebody has to account for it."""
        return self.audit is not None

    @property
    def brought(self) -> Json:
        """The part of which the trail has the digest."""
        return getattr(self, self.audit) if self.audit else None

    def remembered(self) -> dict[str, Any]:
        """What later records have of the session, or of the question that the event is about."""
        return {}

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Columns that only such events have; `known` is what is remembered of its question."""
        return {}

    # --- where it happened, and how it is written

    @property
    def at(self) -> str:
        """The event's path. Raises `MalformedJournal` where it has none."""
        if self.path is None:
            raise MalformedJournal("has no path")
        return self.path

    def no_path(self) -> None:
        """Raises `MalformedJournal` where an event about the whole session has a path."""
        if self.path is not None:
            raise MalformedJournal(f"it is about the session and has no path, but says {self.path}")

    def to_wire(self) -> dict[str, Json]:
        """The JSON object; absent fields are left out."""
        wire: dict[str, Json] = {"type": self.type}
        for name, value in zip(self.__struct_encode_fields__, astuple(self), strict=True):
            if value is not None:
                wire[name] = value
        return wire

    def to_bytes(self) -> bytes:
        """The event as it is stored. Raises `NotJson` when a payload is not plain JSON."""
        # Not by msgspec, which writes NaN as null and a set as a list without a word.
        return encode(self.to_wire())


class NodeEvent(Event):
    """About a node: in a container that of the container, in a conversation that of the agent."""

    node_id: str


class PromptEvent(Event):
    """About a question."""

    prompt_id: str
