"""Requests for a session that travel through the inbox: from the CLI to the process that owns the session, and from
code that showed a prompt or delivered a message. JSON: `{do, actor, ...}`.

A request is consumed in the commit of the step that it causes; a refused one is consumed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

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
    Revoke,
    Shown,
    Steer,
    Unreachable,
)
from engine.flow import Flow
from engine.journal.records import InboxItem, InboxRow
from engine.language.actors import Actor
from engine.language.codec import Json, canonical, copy, decode, encode
from engine.language.errors import NotJson, SaysoError, SchemaTooNew


class BadRequest(SaysoError):
    """A request that no release can read."""

    code = "bad_request"


_UNREADABLE = (NotJson, KeyError, TypeError, ValueError)
_ACTOR_FACTS = Actor.__struct_fields__


def actor_json(actor: Actor) -> dict[str, Json]:
    """An actor with all its facts."""
    # Not `asdict`, which copies every value deeply; these are all plain.
    facts = {name: getattr(actor, name) for name in _ACTOR_FACTS}
    absent = [actor_json(one) for one in actor.absent]
    return {**facts, "groups": sorted(actor.groups), "absent": absent}


def actor_from(data: dict[str, Json] | Actor) -> Actor:
    """The actor of `actor_json`. Raises `SchemaTooNew` for one with a fact that this release does not know."""
    if isinstance(data, Actor):
        return data
    _known(data.keys() - set(_ACTOR_FACTS), "a fact of a person")
    absent = tuple(actor_from(one) for one in data.get("absent") or ())
    return Actor(**{**data, "groups": frozenset(data["groups"]), "absent": absent})


def item(key: str, session_id: str, do: str, *, actor: Actor | None = None, **fields: Json) -> InboxItem:
    """A request as an inbox item."""
    payload: dict[str, Json] = {"do": do, **fields}
    if actor is not None:
        payload["actor"] = actor_json(actor)
    return InboxItem(key=key, kind="request", payload=encode(payload), session_id=session_id)


def command(row: InboxRow) -> Command:
    """The command that a request asks for. Raises `BadRequest`, and `SchemaTooNew` for one of a newer release."""
    return made(row.key, lambda: decode(row.payload))


def own_command(key: str, do: str, *, actor: Actor, **fields: Json) -> Command:
    """Return the command of a request of this process, which needs no inbox. Raises `BadRequest`."""
    try:
        return made(key, lambda: {**copy(fields), "do": do, "actor": actor})
    except SchemaTooNew as error:
        raise BadRequest(str(error)) from error  # nobody of another release has asked


def made(key: str, read: Callable[[], dict[str, Any]]) -> Command:
    """Return the command of a stored request. Raises `BadRequest` and `SchemaTooNew`."""
    try:
        data = read()
        word = data["do"]
        _known({word} - _WORDS.keys(), "the request")
        make, parts = _WORDS[word]
        names = parts.split()
        _known(data.keys() - {"do", "actor", *(name.rstrip("?") for name in names)}, f"of a request {word!r}")
        return make(*(_part(key, data, name) for name in names))
    except _UNREADABLE as error:
        raise BadRequest(f"not a request of this release: {error!r}") from error


def _known(unknown: set[str], what: str) -> None:
    """Leave unknown content to the newer release that wrote it."""
    if unknown:
        raise SchemaTooNew(f"This release does not know {what} {min(unknown)!r}: a newer release wrote it.")


def _part(key: str, data: dict[str, Any], name: str) -> Any:
    if name == "key":
        return key
    if name.endswith("?"):
        return data.get(name[:-1])
    return _READ[name](data[name]) if name in _READ else data[name]


_READ: dict[str, Callable[[Any], Any]] = {"actor": actor_from, "values": dict}
"""The parts that are not passed on as they came."""

_WORDS: dict[str, tuple[Callable[..., Command], str]] = {
    "shown": (Shown, "promptId shown"),
    "gone": (Gone, "promptId ts"),
    "unreachable": (Unreachable, "reason"),
    "reachable": (Reachable, ""),
    "delivered": (NodeDone, "path attempt output"),
    "undelivered": (NodeBroke, "path attempt error"),
    "answer": (Answer, "promptId actor key value? text? values? reason? files? nonce? always?"),
    "edit": (Edit, "promptId actor key values nonce?"),
    "handOver": (HandOver, "promptId actor key to"),
    "revoke": (Revoke, "promptId actor key"),
    "message": (Message, "text actor key"),
    "steer": (Steer, "text actor key"),
    "abort": (Abort, "actor reason?"),
    "pause": (Hold, "actor reason?"),
    "resume": (Resume, "text actor key"),
}
"""The command of each word, and its parts in the order of the command's fields; `?`: may be left out. `key` is the row's."""


class Retry(Struct, frozen=True):
    """A request to try a failed session again."""

    actor: Actor


class Migration(Struct, frozen=True):
    """A request to continue with another text."""

    flow: Flow
    actor: Actor


def session_request(row: InboxRow) -> Retry | Migration | None:
    """Return the request if it takes more than a command; None for any other. Raises `BadRequest`, `FlowError`."""
    try:
        data = decode(row.payload)
        if data["do"] == "retry":
            return Retry(actor_from(data["actor"]))
        if data["do"] != "migrate":
            return None
        from engine.flow.load import flow_from_body

        return Migration(flow_from_body(canonical(data["flow"])), actor_from(data["actor"]))
    except _UNREADABLE as error:
        raise BadRequest(f"not a request of this release: {error!r}") from error
