"""The audit trail of a session, from its journal: who was asked, who decided what on exactly which bytes, what ran, and
what it returned. Pure.

A record tells of one event; events that only move the flow on (timers, edges, passes) have none. What people wrote and
programs returned is a SHA-256 of its canonical JSON, unless the content is asked for. The digest of a node's start is
made as that of an approval which covers it: where the two are equal, what ran is what was approved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from engine.journal import events as ev
from engine.journal.events import Event
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


COLUMNS = AuditRecord.__struct_encode_fields__


def audit(events: Iterable[Event], *, after: int = 0, content: bool = False) -> Iterator[AuditRecord]:
    """The records of a journal that starts at its first event, those after event `after`; with what was said and returned
    where `content` is asked for."""
    trail = _Trail(content)
    for event in events:
        record = trail.take(event)
        if record is not None and event.seq > after:
            yield record


class _Trail:
    """What later records need of earlier events: the session, its pinned flow, and its questions."""

    def __init__(self, content: bool) -> None:
        self._content = content
        self._session: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}
        self._covers: dict[str, str | None] = {}
        self._offered: dict[str, set[Json]] = {}

    def take(self, event: Event) -> AuditRecord | None:
        """The record of an event, None for one that nobody has to account for."""
        if isinstance(event, ev.SessionStarted):
            thread = event.thread or {}
            self._session = {
                "session_id": event.session_id,
                "flow": event.flow_name,
                "flow_digest": event.flow_digest,
                "flow_revision": event.flow_revision,
                "thread_key": thread.get("key"),
            }
        if isinstance(event, ev.FlowMigrated):
            self._session |= {"flow_digest": event.flow_digest, "flow_revision": None}
        if isinstance(event, ev.PromptRequested):
            self._kinds[event.prompt_id] = str(event.prompt.get("kind"))
            self._offered[event.prompt_id] = {option["value"] for option in event.prompt.get("options") or ()}
        if isinstance(event, ev.PromptRequested | ev.PromptEdited):
            covers = event.prompt.get("covers") if isinstance(event, ev.PromptRequested) else event.covers
            self._covers[event.prompt_id] = (covers or {}).get("digest")
        if type(event) not in _BODIES or _silent(event):
            return None
        body = _BODIES[type(event)](event)
        told: dict[str, Any] = {**self._session, **_facts(event), **_actor(event)}
        if isinstance(event, ev.PromptEvent):
            told |= {"kind": self._kinds.get(event.prompt_id), "covers": self._covers.get(event.prompt_id)}
        if isinstance(event, ev.PromptAnswered):
            value = event.answer.get("value")
            offered = isinstance(value, str) and value in self._offered.get(event.prompt_id, ())
            told["decision"] = value if offered else None
        if body is not None:
            told["digest"] = sha256(canonical(body)).hexdigest()
            told["content"] = body if self._content else None
        session = told["session_id"]
        return AuditRecord(
            id=f"{session}/{event.seq}",
            time=event.timestamp,
            seq=event.seq,
            action=event.type,
            path=event.path,
            **told,
        )


def _silent(event: Event) -> bool:
    """Whether an event of an audited kind is the machine's own step: a pause that no person made, a model's words."""
    match event:
        case ev.FlowPaused():
            return not event.held
        case ev.AgentMessage():
            return event.source != "person"
        case ev.AgentOutcome():
            return event.actor is None
        case _:
            return False


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
    """The fields of an event that are columns of their own, and what it decided."""
    error = getattr(event, "error", None) or {}
    found: dict[str, Any] = {
        "node_type": getattr(event, "node_type", None),
        "attempt": getattr(event, "attempt", None),
        "prompt_id": getattr(event, "prompt_id", None),
        "reason": getattr(event, "reason", None),
        "error": error.get("type"),
        "tool": getattr(event, "tool", None) if isinstance(event, ev.GrantGiven) else None,
        "until": getattr(event, "until", None),
        "outcome": getattr(event, "outcome", None) or getattr(event, "status", None),
    }
    match event:
        case ev.PromptRequested():
            names = event.prompt.get("approvers") or event.prompt.get("who") or ()
            found |= {"asked": " ".join(names), "required": event.prompt.get("required")}
        case ev.PromptEscalated():
            found["asked"] = " ".join(event.to)
        case ev.PromptVoted():
            found["decision"] = event.vote
        case ev.PromptAnswered():
            found["reason"] = event.answer.get("reason")
        case ev.PromptHanded():
            found["asked"] = event.to
        case ev.AgentOutcome():
            found["decision"] = event.how
        case ev.AgentToolRequested():
            found["tool"] = event.name
        case _:
            pass
    return found


def _nothing(event: Any) -> Json:
    return None


_BODIES: dict[type[Event], Callable[[Any], Json]] = {
    ev.SessionStarted: lambda event: event.given,
    ev.FlowMigrated: _nothing,
    ev.FlowPausing: _nothing,
    ev.FlowPaused: _nothing,
    ev.SessionMessage: lambda event: event.message,
    ev.SessionAborted: _nothing,
    ev.SessionEnd: _nothing,
    ev.NodeStarted: lambda event: {"type": event.node_type, "with": event.input},
    ev.ChildStarted: lambda event: {"type": event.node_type, "with": event.input},
    ev.NodeCompleted: lambda event: event.output,
    ev.ChildCompleted: lambda event: event.output,
    ev.NodeFailed: lambda event: event.error,
    ev.NodeRetried: lambda event: event.error,
    ev.NodeSkipped: _nothing,
    ev.NodeInterrupted: _nothing,
    ev.AgentMessage: lambda event: event.content,
    ev.AgentToolRequested: lambda event: event.input,
    ev.AgentToolResult: lambda event: event.content,
    ev.AgentOutcome: lambda event: event.content,
    ev.AgentBudget: lambda event: event.caps,
    ev.PromptRequested: lambda event: event.prompt,
    ev.PromptEdited: lambda event: event.values,
    ev.PromptVoted: _nothing,
    ev.PromptHanded: _nothing,
    ev.PromptAnswered: lambda event: event.answer,
    ev.PromptExpired: _nothing,
    ev.PromptEscalated: _nothing,
    ev.PromptCancelled: _nothing,
    ev.GrantGiven: lambda event: event.fields,
    ev.GrantUsed: _nothing,
    ev.GrantRevoked: _nothing,
    ev.GrantExpired: _nothing,
}
"""The events that are audited, and of which part of each the digest is."""
