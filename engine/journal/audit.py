"""Audit trail of a session, from its journal: the people asked, who decided what on exactly which bytes, what ran, and
what it returned. Pure.

A record describes one event; events that only advance the flow (timers, edges, passes) have none. Texts of people and
output of programs appear as the SHA-256 of their canonical JSON, unless the content is requested. The digest of a
node's start is made like that of an approval which covers it: if the two are equal, what ran is what was approved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from engine.journal.events import Event, PromptEvent
from engine.language.actors import is_claimed
from engine.language.codec import Json, canonical


class AuditRecord(Struct, rename="camel", kw_only=True):
    """One line of an audit export. `id` is its idempotency key, the same in every export.

    `action` is the name of the event (docs/events.md). `covers` is the digest of what an approval allows to run, at
    that moment; `digest` that of the event's content: inputs, a question, an answer, a result. Absent fields are None.
    """

    id: str
    time: str
    session_id: str
    flow: str
    flow_digest: str
    thread_key: str | None = None
    seq: int
    action: str
    path: str | None = None
    node_type: str | None = None
    attempt: int | None = None
    prompt_id: str | None = None
    kind: str | None = None
    """Kind of the question: `approval`, `ask`, …"""
    asked: str | None = None
    """Entries of the people who may answer, separated by spaces; empty if everybody in the thread may."""
    required: int | None = None
    """Number of different people who have to approve."""
    actor_id: str | None = None
    actor_name: str | None = None
    actor_email: str | None = None
    in_place_of: str | None = None
    """Absent person for whom the actor decided."""
    simulated: bool | None = None
    """True if somebody at the terminal only played the actor."""
    decision: str | None = None
    """Value of the chosen option, never typed text."""
    reason: str | None = None
    outcome: str | None = None
    error: str | None = None
    tool: str | None = None
    until: str | None = None
    covers: str | None = None
    digest: str | None = None
    content: Json = None
    flow_revision: str | None = None
    """Version of the folder of flows: a commit, or the content of its `REVISION`."""
    actor_account: str | None = None
    """The account of the operating system from which it was done at a terminal."""
    claimed: bool | None = None
    """True if the actor used another name there than that of the account."""

    def to_json(self) -> dict[str, Json]:
        """The record for a machine, without the fields that are None."""
        fields = zip(self.__struct_encode_fields__, astuple(self), strict=True)
        return {name: value for name, value in fields if value is not None}


def audit(events: Iterable[Event], *, after: int = 0, content: bool = False) -> Iterator[AuditRecord]:
    """Yield the records after event `after` of a journal given from its first event; with texts and results if
    `content` is set."""
    trail = _Trail(content)
    for event in events:
        record = trail.take(event)
        if record is not None and event.seq > after:
            yield record


class _Trail:
    """Context for later records: the session with its pinned flow, and its questions."""

    def __init__(self, content: bool) -> None:
        self._content = content
        self._known: defaultdict[str | None, dict[str, Any]] = defaultdict(dict)

    def take(self, event: Event) -> AuditRecord | None:
        """Return the record of an event, or None if it is not audited."""
        asked = event.prompt_id if isinstance(event, PromptEvent) else None
        known = self._known[asked]
        known |= event.remembered()
        if not event.audited:
            return None
        session = self._known[None]
        who: Mapping[str, Json] = getattr(event, "actor", None) or {}
        instead = who.get("for") or {}
        # The fields of an event that are columns of their own.
        error = getattr(event, "error", None) or {}
        told: dict[str, Any] = {
            **session,
            "node_type": getattr(event, "node_type", None),
            "attempt": getattr(event, "attempt", None),
            "prompt_id": getattr(event, "prompt_id", None),
            "reason": getattr(event, "reason", None),
            "error": error.get("type"),
            "until": getattr(event, "until", None),
            "outcome": getattr(event, "outcome", None) or getattr(event, "status", None),
            "actor_id": who.get("id"),
            "actor_name": who.get("name"),
            "actor_email": who.get("email"),
            "actor_account": who.get("account"),
            "claimed": is_claimed(who) or None,
            "in_place_of": instead.get("id"),
            "simulated": who.get("simulated"),
            **event.columns(known),
        }
        if asked is not None:
            told |= {"kind": known.get("kind"), "covers": known.get("covers")}
        if event.brought is not None:
            told["digest"] = sha256(canonical(event.brought)).hexdigest()
            told["content"] = event.brought if self._content else None
        return AuditRecord(
            id=f"{session['session_id']}/{event.seq}",
            time=event.timestamp,
            seq=event.seq,
            action=event.type,
            path=event.path,
            **told,
        )
