"""Base of all events: a wire name, the phases in which it may happen, its change to the state, and the events it
requires."""

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
    """Return the phases of an event that leaves the phase unchanged."""
    return {phase: phase for phase in phases}


def moves(to: Phase, *phases: Phase) -> dict[Phase, Phase]:
    """The phases in which an event can happen that leads to another one."""
    return dict.fromkeys(phases, to)


WORK = within("running", "pausing", "finalizing")
OUTCOMES = WORK | within("held", "unreachable")
"""Phases of outcomes: running work may end even while nothing starts."""
ANY_OPEN = within("running", "waiting", "pausing", "held", "unreachable")
ALWAYS = ANY_OPEN | within("finalizing")
CLOCKS = within("running", "waiting")
"""Phases in which clocks notify people; not while the session is held or unreachable."""
ENDS = moves("finalizing", "running", "pausing", "finalizing")

COMPLETED = ("node:completed", "container:childCompleted", "agent:toolResult")
FAILED = ("node:failing", "node:error", "agent:toolResult")
ANY_OUTCOME = (*COMPLETED, *FAILED)
"""Events that a node is owed once its question was answered or its time has come."""


class EventMeta(StructMeta):
    """Class keywords of events: `tag` is the name on the wire, `phases` the session's phase after the event by the
    phase before it. In any other phase the event cannot happen. `audit` is the field whose digest the audit trail
    holds, empty to record only the fact; without it there is no record."""

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
    """Base of all events. `seq` orders the session; `timestamp` is the only clock that the fold sees."""

    type: ClassVar[str]
    """The event's name on the wire."""
    phases: ClassVar[Mapping[Phase, Phase]]
    """The session's phase after the event, by the phase before it."""
    audit: ClassVar[str | None]
    """Field whose digest the audit trail holds; empty to record only the fact, None for no record."""
    seq: int
    timestamp: str
    path: str | None = None

    @property
    def transition(self) -> str:
        """The name under which the table of transitions knows this event."""
        return self.type

    def fold(self, state: State) -> State:
        """Return the state after the event. Raises `MalformedJournal` with the reason if it cannot follow."""
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
        """Return the tool call that a model requests with it."""
        return None

    # --- for the audit trail (`engine.journal.audit`)

    @property
    def audited(self) -> bool:
        """True if it is audited."""
        return self.audit is not None

    @property
    def brought(self) -> Json:
        """The part of which the trail has the digest."""
        return getattr(self, self.audit) if self.audit else None

    def remembered(self) -> dict[str, Any]:
        """Return the facts that later records need about the session, or about the event's question."""
        return {}

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return additional columns; `known` holds the remembered facts of its question."""
        return {}

    # --- place and encoding

    @property
    def at(self) -> str:
        """Return the event's path. Raises `MalformedJournal` if it has none."""
        if self.path is None:
            raise MalformedJournal("has no path")
        return self.path

    def no_path(self) -> None:
        """Raises `MalformedJournal` where an event about the whole session has a path."""
        if self.path is not None:
            raise MalformedJournal(f"it belongs to the session and must have no path, but has {self.path}")

    def to_wire(self) -> dict[str, Json]:
        """The JSON object; absent fields are left out."""
        wire: dict[str, Json] = {"type": self.type}
        for name, value in zip(self.__struct_encode_fields__, astuple(self), strict=True):
            if value is not None:
                wire[name] = value
        return wire

    def to_bytes(self) -> bytes:
        """Return the stored form of the event. Raises `NotJson` if a payload is not plain JSON."""
        # Not by msgspec, which silently writes NaN as null and a set as a list.
        return encode(self.to_wire())


class NodeEvent(Event):
    """About a node: in a container that of the container, in a conversation that of the agent."""

    node_id: str


class PromptEvent(Event):
    """About a question."""

    prompt_id: str
