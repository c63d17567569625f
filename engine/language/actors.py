"""Who does something: a person in Slack, a person at the terminal, or sayso itself. A plain value.

An actor carries the facts on which the policy decides, looked up before the decision. Facts that could not be
looked up leave `facts_known` false, and the policy then refuses: an actor is nobody until shown otherwise.
Only `record()` is journaled: facts age, and what was decided on them stands.
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
"""The part of sayso that pauses what goes on in a channel that strangers can read from now on."""
TRIGGERS = ("schedule", "message", "webhook")
"""Parts of sayso that may start a session, because its flow says so: nobody is its requester."""
_SYSTEM = "system:"
_SLACK_ID = re.compile(r"[UW][A-Z0-9]{2,}")


class Actor(Struct, frozen=True):
    """One who acts. `id` is a Slack user id (`U...`), `local:<user>` at the terminal, or `system:<part>`."""

    id: str
    kind: ActorKind = "slack"
    name: str | None = None
    """For display only: names are neither unique nor stable, so nothing is decided on them."""
    team_id: str | None = None
    email: str | None = None
    is_bot: bool = False
    is_app: bool = False
    """A workflow or an app wrote this (`app_id` is set), even where it speaks in a person's name."""
    deleted: bool = False
    is_restricted: bool = False
    is_ultra_restricted: bool = False
    is_stranger: bool = False
    """Belongs to another organisation (Slack Connect)."""
    groups: frozenset[str] = frozenset()
    """Handles of this person's user groups, without `@`, as they are now."""
    in_channel: bool | None = None
    """Whether this person is a member of the session's channel; None when that is not known."""
    edited: bool = False
    """The text was changed after it was sent, so nobody can say what was first meant."""
    account: str | None = None
    """Of somebody at a terminal: the account of the operating system, whatever name they go by."""
    simulated: bool = False
    """Played by whoever sits at the terminal (`run --as NAME`)."""
    facts_known: bool = False
    """Every lookup that these facts need has succeeded."""
    manager: str | None = None
    """Whose report this person is, by id or e-mail address."""
    timezone: str | None = None
    absent: tuple[Actor, ...] = ()
    """Those who are away and said that this person decides in their place, with their own facts."""

    @classmethod
    def local(cls, user: str, account: str | None = None) -> Actor:
        """The person at the terminal: nothing needs to be looked up."""
        return cls(id=_LOCAL + user, kind="local", name=user, account=account, facts_known=True)

    @classmethod
    def pretend(cls, name: str) -> Actor:
        """Whom `run --as NAME` plays, named as a flow names people: user id, e-mail, `@group`, or a plain name."""
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
        """sayso itself (`timer`, `recovery`, ...). The policy lets it do nothing that is a person's to do, except that
        those of `TRIGGERS` start what a flow lets them start."""
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
        """What is journaled of an actor: who, under which name and address, from which account, in whose place, and whether
        it was only played."""
        told = ("id", "name", "email", "manager", "timezone", "account")
        record: dict[str, Json] = {key: getattr(self, key) for key in told if getattr(self, key) is not None}
        if self.absent:
            record["for"] = {"id": self.absent[0].id, "name": self.absent[0].name}
        if self.simulated:
            record["simulated"] = True
        return record


def named(record: Mapping[str, Json]) -> dict[str, Json]:
    """An actor's record as expressions have it: `name` and `email` are null where they are not known."""
    return {"id": None, "name": None, "email": None, **record}


def requester_named(record: Mapping[str, Json]) -> dict[str, Json]:
    """The record of who started a session, with whose report they are and where."""
    return {"manager": None, "timezone": None, **named(record)}


ACCOUNT = "account:"


def account_of(record: Mapping[str, Json]) -> set[Json]:
    """The account of an actor's record, as an id; none where it is not known. Who goes by two names there is one."""
    account = record.get("account")
    return {f"{ACCOUNT}{account}"} if account else set()


def is_claimed(record: Mapping[str, Json]) -> bool:
    """True if somebody at a terminal goes by another name than that of their account."""
    return bool(account_of(record)) and record.get("id") != f"{_LOCAL}{record.get('account')}"


def seats(record: Mapping[str, Json]) -> set[Json]:
    """Whose voice an actor's record is, by id: their own, that of their account, and that of whoever they stand in for."""
    return {record.get("id"), (record.get("for") or record).get("id"), *account_of(record)}


def fold(text: str) -> str:
    """An entry or an address without case, in ASCII only: elsewhere folding makes different ones equal (`ß` and `ss`)."""
    return text.lower() if text.isascii() else str(nfc(text))


def one_by_one(entries: Iterable[str], barred: Iterable[str] = ()) -> int | None:
    """How many people are listed, but for those that are barred; None where an entry may be any number of people."""
    people = {fold(entry) for entry in entries}
    if any(entry.startswith("@") or entry == "channel" for entry in people):
        return None
    return len(people.difference(map(fold, barred)))


def requester_of(record: Mapping[str, Json]) -> str | None:
    """The id of the person who started a session, of the journaled record; None where no person did."""
    actor_id = record.get("id")
    return actor_id if isinstance(actor_id, str) and actor_id and not actor_id.startswith(_SYSTEM) else None
