"""Whom an entry of `approvers` and `who` means, and how people are named to whoever is refused. Pure.

Entries: a user id, an e-mail address, `@group`, `local:<user>`, `channel` (members of the
session's channel), `requester` (who started it).
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.decide.target import Target
from engine.language.actors import Actor

UNKNOWN = "Slack could not say who you are just now. Please try again in a moment."


def is_listed(actor: Actor, entries: Iterable[str], target: Target) -> bool:
    """Whether one of these entries means this person."""
    return any(_matches(actor, entry.strip(), target) for entry in entries)


def _matches(actor: Actor, entry: str, target: Target) -> bool:
    if entry == "requester":
        return is_requester(actor, target)
    if entry.startswith("local:"):
        return actor.kind == "local" and actor.id == entry
    if actor.kind == "local" and not actor.simulated:
        return False
    if entry == "channel":
        return target.has_channel and actor.in_channel is True
    if entry.startswith("@"):
        return _fold(entry[1:]) in {_fold(group) for group in actor.groups}
    if "@" in entry:
        return actor.email is not None and _fold(actor.email) == _fold(entry)
    return actor.id == entry


def _fold(text: str) -> str:
    """Without case, in ASCII only: elsewhere folding makes different addresses equal (`ß` and `ss`)."""
    return text.lower() if text.isascii() else text


def is_requester(actor: Actor, target: Target) -> bool:
    """Whether this person started the session."""
    return target.requester_id is not None and actor.id == target.requester_id


def in_channel(actor: Actor, verb: str) -> str | None:
    """Why somebody who is not in the session's channel may not do this; None for its members."""
    if actor.in_channel is True:
        return None
    return UNKNOWN if actor.in_channel is None else f"Only members of this channel can {verb}."


# --- words -------------------------------------------------------------------------------------------------

_NAMED = 6
"""People that a sentence names before it counts the rest."""


def only_these(entries: Iterable[str], verb: str, target: Target) -> str:
    """The sentence for whoever is not listed."""
    listed = list(dict.fromkeys(entry.strip() for entry in entries))
    if not listed:
        return f"Nobody can {verb}: the flow lists nobody who may."
    ask = " Ask one of them." if len(listed) > 1 else ""
    return f"Only {in_words(listed, target, 'and')} can {verb}.{ask}"


def in_words(entries: Iterable[str], target: Target, word: str) -> str:
    """The people of these entries, the last one joined with `word`."""
    names = list(dict.fromkeys(named(entry, target) for entry in entries))
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return (
        names[0] if len(names) == 1 else f" {word} ".join([", ".join(names[:-1]), names[-1]]) if names else ""
    )


def named(entry: str, target: Target) -> str:
    """What the people of an entry are called."""
    if entry == "channel":
        return "members of this channel"
    if entry == "requester":
        entry = target.requester_id or ""
        if entry not in target.names and not entry.startswith("local:"):
            return "the person who started this"
    name = target.names.get(entry)
    if entry.startswith("local:"):
        return f"{name or entry.removeprefix('local:')} at the terminal"
    return name or entry
