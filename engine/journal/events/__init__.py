"""Facts of a session, in the past tense: a closed union, tagged by wire names that we own.

May import: `state`, `queries`, `grammar` and any other module of `journal` that reads no events.

Wire names and fields are those of the pause/resume and event-sourced-containers specifications, in camelCase. Every
event has `seq` (1, 2, 3, ... within its session) and `timestamp` (UTC, ISO-8601); events that have a place have `path`.
A written event is never rewritten: readers upcast.

The class of an event has its rules: the phases in which it can happen, `fold`, which refuses an impossible event before
it derives the new state, and `owes`, the events that follow in the same step. Code shared by several events is in the
module of their subject; nothing changes a state in place.

Reading an event checks every field. Making one checks nothing but its names: mypy does the rest. Content from a node, a
model or a person that is not JSON is refused by `engine.language.codec` when the event is written.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""

# ruff: noqa: F403

from msgspec import DecodeError, Struct, ValidationError

from engine.journal.events import agents, containers, grants, nodes, prompts, session, timers
from engine.journal.events.agents import *
from engine.journal.events.base import SCHEMA_VERSION as SCHEMA_VERSION
from engine.journal.events.base import Event as Event
from engine.journal.events.base import NodeEvent as NodeEvent
from engine.journal.events.base import PromptEvent as PromptEvent
from engine.journal.events.containers import *
from engine.journal.events.grants import *
from engine.journal.events.nodes import *
from engine.journal.events.prompts import *
from engine.journal.events.session import *
from engine.journal.events.timers import *
from engine.language.codec import decode
from engine.language.errors import MalformedJournal, NotJson, SchemaTooNew
from engine.language.structs import decoder

EVENTS: dict[str, type[Event]] = {
    kind.type: kind
    for module in (session, nodes, containers, agents, prompts, grants, timers)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
    if "phases" in vars(kind)
}
"""The class of each event, by its name on the wire, in the order of these modules."""


class _Named(Struct):
    """The part of an event that names its type."""

    type: str


def decode_event(data: bytes) -> Event:
    """The event that these bytes are. Raises `SchemaTooNew` for an event or a field that this release does not know, and
    `MalformedJournal`, naming the event, for anything else that it does not write."""
    try:
        # One decoder per type: building one for all types takes longer than reading most journals.
        return decoder(EVENTS[decoder(_Named).decode(data).type]).decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise _refusal(data, error) from error


def _refusal(data: bytes, error: Exception) -> MalformedJournal | SchemaTooNew:
    """Return the reason why bytes are not an event."""
    try:
        fields = decode(data)
    except NotJson as no_json:
        return MalformedJournal(f"not an event of schema {SCHEMA_VERSION}: {no_json}")
    name = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(name, str):
        return MalformedJournal(f"not an event of schema {SCHEMA_VERSION}: it has no type")
    kind = EVENTS.get(name)
    if kind is None:
        return SchemaTooNew(f"This release does not know the event {name!r}: a newer release wrote it.")
    unknown = fields.keys() - {"type", *kind.__struct_encode_fields__}
    if unknown and isinstance(error, ValidationError):
        told = f"{name} has no field {', '.join(sorted(unknown))}"
        return SchemaTooNew(f"This release does not know all of an event ({told}): a newer release wrote it.")
    return MalformedJournal(
        f"not an event of schema {SCHEMA_VERSION}: event {fields.get('seq')} ({name}): {error}"
    )
