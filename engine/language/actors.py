"""Actors: a person in Slack, a person at the terminal, or sayso itself. Plain values.

An actor carries the facts on which the policy decides, looked up before the decision. If a lookup failed, `facts_known`
is False, and the policy refuses. Only `record()` is journaled: facts age, but the decisions made on them stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from engine.language.codec import Json, nfc

ActorKind: TypeAlias = Literal["slack", "local", "system"]

_LOCAL = "local:"
CHANNEL = "channel"
"""The part of sayso that pauses sessions in a channel that outsiders can now read."""
TRIGGERS = ("schedule", "message", "webhook")
"""Parts of sayso that may start a session if its flow says so; such a session has no requester."""
_SYSTEM = "system:"
_SLACK_ID = re.compile(r"[UW][A-Z0-9]{2,}")


class Actor(Struct, frozen=True):
    """A person or a part of sayso. `id` is a Slack user id (`U...`), `local:<user>` at the terminal, or
    `system:<part>`."""

    id: str
    kind: ActorKind = "slack"
    name: str | None = None
    """For display only: names are neither unique nor stable, so no decision depends on them."""
    team_id: str | None = None
    email: str | None = None
    is_bot: bool = False
    is_app: bool = False
    """True if a workflow or an app wrote this (`app_id` is set), even in a person's name."""
    deleted: bool = False
    is_restricted: bool = False
    is_ultra_restricted: bool = False
    is_stranger: bool = False
    """Belongs to another organisation (Slack Connect)."""
    groups: frozenset[str] = frozenset()
    """Current handles of this person's user groups, without `@`."""
    in_channel: bool | None = None
    """True if this person is a member of the session's channel; None if unknown."""
    edited: bool = False
    """True if the text was changed after it was sent, so that its original meaning is unknown."""
    account: str | None = None
    """Operating system account of a person at a terminal, whatever name they use."""
    simulated: bool = False
    """True if somebody at the terminal plays this person (`run --as NAME`)."""
    facts_known: bool = False
    """True if every lookup of these facts succeeded."""
    manager: str | None = None
    """Manager of this person, by id or e-mail address."""
    timezone: str | None = None
    absent: tuple[Actor, ...] = ()
    """Absent people for whom this person is the stand-in, with their own facts."""

    @classmethod
    def local(cls, user: str, account: str | None = None) -> Actor:
        """Return the person at the terminal, who needs no lookup."""
        return cls(id=_LOCAL + user, kind="local", name=user, account=account, facts_known=True)

    @classmethod
    def pretend(cls, name: str) -> Actor:
        """Return the person that `run --as NAME` plays, named as a flow names people: user id, e-mail, `@group`, or a
        plain name."""
        group, email = name.startswith(("@", "rota:")), "@" in name[1:]
        local = (
            fold(name) if "@" in name else name.removeprefix(_LOCAL)
        )  # in any case one address is one person
        return cls(
            id=name if _SLACK_ID.fullmatch(name) else _LOCAL + local,
            kind="local",
            name=name,
            email=name if email and not group else None,
            groups=frozenset({name.removeprefix("@")}) if group else frozenset(),
            simulated=True,
            facts_known=True,
        )

    @classmethod
    def itself(cls, part: str, name: str = "sayso") -> Actor:
        """Return sayso itself (`timer`, `recovery`, ...). The policy allows it no action of a person, except that
        `TRIGGERS` start what a flow lets them start."""
        return cls(id=_SYSTEM + part, kind="system", name=name, facts_known=True)

    @property
    def is_trigger(self) -> bool:
        """True if this is a part of sayso that starts sessions."""
        return self.kind == "system" and self.id.removeprefix(_SYSTEM) in TRIGGERS

    @property
    def is_channel_watch(self) -> bool:
        """True if this is the part of sayso that watches over channels."""
        return self.kind == "system" and self.id == _SYSTEM + CHANNEL

    def record(self) -> dict[str, Json]:
        """Return the journaled fields of an actor: id, name, address, account, the person they stand in for, and
        whether they were only played."""
        told = ("id", "name", "email", "manager", "timezone", "account")
        record: dict[str, Json] = {key: getattr(self, key) for key in told if getattr(self, key) is not None}
        if self.absent:
            record["for"] = {"id": self.absent[0].id, "name": self.absent[0].name}
        if self.simulated:
            record["simulated"] = True
        return record


def named(record: Mapping[str, Json]) -> dict[str, Json]:
    """Return an actor's record for expressions: unknown `name` and `email` are null."""
    return {"id": None, "name": None, "email": None, **record}


def requester_named(record: Mapping[str, Json]) -> dict[str, Json]:
    """Return the record of the requester for expressions, with their manager and timezone."""
    return {"manager": None, "timezone": None, **named(record)}


ACCOUNT = "account:"


def account_of(record: Mapping[str, Json]) -> set[Json]:
    """Return the account of an actor's record as an id; empty if unknown. Two names of one account count as one person."""
    account = record.get("account")
    return {f"{ACCOUNT}{account}"} if account else set()


def is_claimed(record: Mapping[str, Json]) -> bool:
    """True if somebody at a terminal goes by another name than that of their account."""
    return bool(account_of(record)) and record.get("id") != f"{_LOCAL}{record.get('account')}"


def seats(record: Mapping[str, Json]) -> set[Json]:
    """Return the ids that this actor votes for: their own, that of their account, and that of the person they stand in
    for."""
    return {record.get("id"), (record.get("for") or record).get("id"), *account_of(record)}


def fold(text: str) -> str:
    """An entry or an address without case, in ASCII only: elsewhere folding makes different ones equal (`ß` and `ss`)."""
    return text.lower() if text.isascii() else str(nfc(text))


def one_by_one(entries: Iterable[str], barred: Iterable[str] = ()) -> int | None:
    """Return the number of listed people without the barred ones; None if an entry may be any number of people."""
    people = {fold(entry) for entry in entries}
    if any(entry.startswith("@") or entry == "channel" for entry in people):
        return None
    return len(people.difference(map(fold, barred)))


def requester_of(record: Mapping[str, Json]) -> str | None:
    """Return the id of the person who started a session, or None if no person did."""
    actor_id = record.get("id")
    return actor_id if isinstance(actor_id, str) and actor_id and not actor_id.startswith(_SYSTEM) else None
