"""The audit trail of a session, from its journal: who was asked, who decided what on exactly which bytes, what ran, and
what it returned. Pure.

A record tells of one event; events that only move the flow on (timers, edges, passes) have none. What people wrote and
programs returned is a SHA-256 of its canonical JSON, unless the content is asked for. The digest of a node's start is
made as that of an approval which covers it: where the two are equal, what ran is what was approved.
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
    """One line of an audit export. `id` is its idempotency key: an export that is repeated gives the same one.

    `action` is the name of the event (docs/events.md). `covers` is the digest of what an approval lets run, at that
    moment; `digest` that of what the event brought: inputs, a question, an answer, a result. Absent fields are None.
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
    """What kind of question it is: `approval`, `ask`, …"""
    asked: str | None = None
    """Who may answer, separated by spaces; empty where everybody in the thread may."""
    required: int | None = None
    """How many different people have to approve."""
    actor_id: str | None = None
    actor_name: str | None = None
    actor_email: str | None = None
    in_place_of: str | None = None
    """Whom the actor decided for, who was away."""
    simulated: bool | None = None
    """Whether somebody at the terminal only played the actor."""
    decision: str | None = None
    """Which of the offered choices, never what somebody typed."""
    reason: str | None = None
    outcome: str | None = None
    error: str | None = None
    tool: str | None = None
    until: str | None = None
    covers: str | None = None
    digest: str | None = None
    content: Json = None
    flow_revision: str | None = None
    """The version of the folder of flows: a commit, or what its `REVISION` says."""
    actor_account: str | None = None
    """The account of the operating system from which it was done at a terminal."""
    claimed: bool | None = None
    """Whether the actor went by another name there than that of the account."""

    def to_json(self) -> dict[str, Json]:
        """The record for a machine, without the fields that are None."""
        fields = zip(self.__struct_encode_fields__, astuple(self), strict=True)
        return {name: value for name, value in fields if value is not None}


def audit(events: Iterable[Event], *, after: int = 0, content: bool = False) -> Iterator[AuditRecord]:
    """The records of a journal that starts at its first event, those after event `after`; with what was said and returned
    where `content` is asked for."""
    trail = _Trail(content)
    for event in events:
        record = trail.take(event)
        if record is not None and event.seq > after:
            yield record


class _Trail:
    """What later records need of earlier events: the session with its pinned flow, and its questions."""

    def __init__(self, content: bool) -> None:
        self._content = content
        self._known: defaultdict[str | None, dict[str, Any]] = defaultdict(dict)

    def take(self, event: Event) -> AuditRecord | None:
        """The record of an event, None for one that nobody has to account for."""
        asked = event.prompt_id if isinstance(event, PromptEvent) else None
        known = self._known[asked]
        known |= event.remembered()
        if not event.audited:
            return None
        session = self._known[None]
        told: dict[str, Any] = {**session, **_facts(event), **_actor(event), **event.columns(known)}
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


def _actor(event: Event) -> dict[str, Any]:
    who: Mapping[str, Json] = getattr(event, "actor", None) or {}
    instead = who.get("for") or {}
    return {
        "actor_id": who.get("id"),
        "actor_name": who.get("name"),
        "actor_email": who.get("email"),
        "actor_account": who.get("account"),
        "claimed": is_claimed(who) or None,
        "in_place_of": instead.get("id"),
        "simulated": who.get("simulated"),
    }


def _facts(event: Event) -> dict[str, Any]:
    """The fields of an event that are columns of their own."""
    error = getattr(event, "error", None) or {}
    return {
        "node_type": getattr(event, "node_type", None),
        "attempt": getattr(event, "attempt", None),
        "prompt_id": getattr(event, "prompt_id", None),
        "reason": getattr(event, "reason", None),
        "error": error.get("type"),
        "until": getattr(event, "until", None),
        "outcome": getattr(event, "outcome", None) or getattr(event, "status", None),
    }
