"""Lines as values: the parts of a line, to which each place gives its own form. Pure.

A line is a tuple of parts. A part that is a `str` is our own text, which may have `*bold*` and `code` in it. All others
are values. Some places have little room: texts are measured as Slack sizes them, which suits the others as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from engine.language.codec import Json
from engine.language.template import shown

Actor: TypeAlias = Mapping[str, Json]
Ids: TypeAlias = Mapping[str, str] | None
"""Known ids by e-mail address and `@group`."""
_DOUBLED = '"\\\n\t'
"""Characters that JSON writes as two."""


class Icon(Struct, frozen=True):
    """An emoji before a line, for places where those are usual."""

    sign: str


class Said(Struct, frozen=True):
    """The text of a person, a program or a flow, on one line of at most `most` characters. No markup counts in it."""

    text: str
    most: int = 1_000


class Code(Struct, frozen=True):
    """The same where it is a name or a command."""

    text: str
    most: int = 1_000


class Link(Struct, frozen=True):
    """Words of ours that lead to an address."""

    address: str
    label: str


class People(Struct, frozen=True):
    """People who did something."""

    actors: Sequence[Actor]


class Whom(Struct, frozen=True):
    """People who are asked, by the entries of `approvers` or `who`, or a channel by its id. With `call` they are notified,
    where that is usual."""

    entries: Sequence[str]
    requester: Actor
    ids: Ids = None
    call: bool = True


class When(Struct, frozen=True):
    """A time, UTC, told as its `form` says: with its `day`, or what a `clock` shows, or that to the `second`."""

    at: str
    form: str = "day"


Part: TypeAlias = str | Icon | Said | Code | Link | People | Whom | When
Words: TypeAlias = tuple[Part, ...]
"""A line; empty if there is nothing to say."""


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names as a list, each once: `Ana, Ben and Cleo`. Of more than `most` the rest is counted."""
    found = list(dict.fromkeys(names))
    if len(found) > most:
        found = [*found[:most], f"{len(found) - most} more"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def joined(parts: Iterable[Part | Words], separator: str) -> Words:
    """Several parts of a line, with a separator between them. Those that say nothing are left out."""
    made: Words = ()
    for part in filter(None, parts):
        words = part if isinstance(part, tuple) else (part,)
        made += (separator, *words) if made else words
    return made


class Step(Struct, frozen=True):
    """A line about a step: the sign of its state (empty where the line only counts others), its name, and what there is
    to say of it. `depth` is the number of containers around it."""

    sign: str
    label: Words
    detail: Words = ()
    depth: int = 0

    @property
    def words(self) -> Words:
        """All of it on one line."""
        sign = f"{self.sign} " if self.sign else ""
        return (sign, *joined((self.label, self.detail), " · "))


# --- sizes -------------------------------------------------------------------------------------------------


def weight(text: str) -> int:
    """Return the size of a text in JSON, in UTF-16 units: never less than Slack's count."""
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return units + sum(map(text.count, _DOUBLED))


def clip(text: str, most: int) -> str:
    """Return plain text of at most `most` units, with an ellipsis if it was cut. Not for mrkdwn."""
    if len(text) <= most and weight(text) <= most:
        return text
    room, kept = most - 1, []
    for char in text:
        room -= 2 if char in _DOUBLED or char > "\uffff" else 1
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + "…"


def one_line(text: str, most: int) -> str:
    """Return a text on one line of at most `most` characters, for small places."""
    return clip(" ".join(shown(text).split()), most)
