"""Requests for a session that travel through the inbox: from the CLI to the process that owns the session, and
from whoever showed a prompt or delivered a message. JSON: `{do, actor, ...}`.

A request is consumed in the commit of the step that it causes; one that is refused is consumed with the reason.
"""

from __future__ import annotations

from dataclasses import fields

from engine.decide.commands import (
    Abort,
    Answer,
    Command,
    Edit,
    Gone,
    HandOver,
    Hold,
    Message,
    NodeBroke,
    NodeDone,
    Reachable,
    Resume,
    Shown,
    Steer,
    Undo,
    Unreachable,
)
from engine.flow import Flow
from engine.journal.records import InboxItem, InboxRow
from engine.language.actors import Actor
from engine.language.codec import Json, canonical, decode, encode
from engine.language.errors import NotJson, SaysoError


class BadRequest(SaysoError):
    """A request that this release cannot read, of a newer one perhaps."""

    code = "bad_request"


_ACTOR_FACTS = tuple(field.name for field in fields(Actor))


def actor_json(actor: Actor) -> dict[str, Json]:
    """An actor with all its facts."""
    # Not `asdict`: it copies every value deeply, and they are all plain.
    return {**{name: getattr(actor, name) for name in _ACTOR_FACTS}, "groups": sorted(actor.groups)}


def actor_from(data: dict[str, Json]) -> Actor:
    """The actor of `actor_json`."""
    return Actor(**{**data, "groups": frozenset(data["groups"])})


def item(key: str, session_id: str, do: str, *, actor: Actor | None = None, **fields: Json) -> InboxItem:
    """A request as an inbox item."""
    payload: dict[str, Json] = {"do": do, **fields}
    if actor is not None:
        payload["actor"] = actor_json(actor)
    return InboxItem(key=key, kind="request", payload=encode(payload), session_id=session_id)


def command(row: InboxRow) -> Command:
    """The command that a request asks for. Raises `BadRequest` for one that this release does not know."""
    try:
        return _command(row, decode(row.payload))
    except (NotJson, KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"not a request of this release: {error!r}") from error


def _command(row: InboxRow, data: Json) -> Command:
    match data["do"]:
        case "shown":
            return Shown(data["promptId"], data["shown"])
        case "gone":
            return Gone(data["promptId"], data["ts"])
        case "unreachable":
            return Unreachable(data["reason"])
        case "reachable":
            return Reachable()
        case "delivered":
            return NodeDone(data["path"], data["attempt"], data["output"])
        case "undelivered":
            return NodeBroke(data["path"], data["attempt"], data["error"])
        case "answer":
            given = {name: data.get(name) for name in _ANSWER_PARTS}
            return Answer(data["promptId"], actor_from(data["actor"]), row.key, **given)
        case "edit":
            actor = actor_from(data["actor"])
            return Edit(data["promptId"], actor, row.key, dict(data["values"]), data.get("nonce"))
        case "handOver":
            return HandOver(data["promptId"], actor_from(data["actor"]), row.key, data["to"])
        case "undo":
            return Undo(data["promptId"], actor_from(data["actor"]), row.key)
        case "message":
            return Message(data["text"], actor_from(data["actor"]), row.key)
        case "steer":
            return Steer(data["text"], actor_from(data["actor"]), row.key)
        case "abort":
            return Abort(actor_from(data["actor"]), data.get("reason"))
        case "pause":
            return Hold(actor_from(data["actor"]), data.get("reason"))
        case "resume":
            return Resume(data["text"], actor_from(data["actor"]), row.key)
        case other:
            raise ValueError(f"unknown request {other!r}")


_ANSWER_PARTS = ("value", "text", "values", "reason", "files", "nonce")


def migration_of(row: InboxRow) -> tuple[Flow, Actor] | None:
    """The flow to go on with and who says so, where that is what is asked for. Raises `BadRequest`, `FlowError`."""
    from engine.flow.load import flow_from_body

    try:
        data = decode(row.payload)
        if data["do"] != "migrate":
            return None
        return flow_from_body(canonical(data["flow"])), actor_from(data["actor"])
    except (NotJson, KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"not a request of this release: {error!r}") from error
