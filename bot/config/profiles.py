"""Stand-ins for people who are away: each person's settings, signed in the store like everything else there."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, ValidationError, to_builtins

from engine.language import timestamps
from engine.language.codec import decode, encode
from engine.language.errors import NotJson
from engine.language.structs import convert
from engine.storage.group_commit import Writer
from engine.storage.store import Store

_SCOPE = "person:"


class Profile(Struct, frozen=True, rename="camel"):
    """Settings of a person. Times are UTC text."""

    away_until: str | None = None
    stand_in: str | None = None
    """User id of the person who answers in their place until then."""

    def away(self, now: str) -> bool:
        """True if somebody else answers in their place now."""
        return self.stand_in is not None and self.away_until is not None and now < self.away_until


class Profiles:
    """The profiles of all, read once and kept."""

    def __init__(self, writer: Writer, now: Callable[[], str]) -> None:
        self._writer = writer
        self._now = now
        self._all: dict[str, Profile] | None = None

    async def of(self, user: str) -> Profile:
        """Return the settings of a person, or the defaults."""
        return (await self._profiles()).get(user) or Profile()

    async def absent(self, stand_in: str) -> list[str]:
        """Return the people for whom somebody stands in now."""
        now = self._now()
        found = await self._profiles()
        return [user for user, each in found.items() if each.stand_in == stand_in and each.away(now)]

    async def keep(self, user: str, profile: Profile) -> None:
        """Store the settings of a person. Durable on return."""
        seconds = timestamps.from_text(self._now()).timestamp()
        body = encode(to_builtins(profile)).decode()
        await self._writer.call(self._writer.store.marks.move, _SCOPE + user, f"{seconds:.6f} {body}")
        self._all = None

    def forget(self) -> None:
        """Another process may have kept something."""
        self._all = None

    async def _profiles(self) -> dict[str, Profile]:
        if self._all is None:
            self._all = await self._writer.call(_stored, self._writer.store)
        return self._all


def _stored(store: Store) -> dict[str, Profile]:
    """Return the stored profiles. Those of a newer release are ignored: an unreadable profile names no stand-in."""
    found = {}
    for scope, mark in store.marks.rows(_SCOPE):
        try:
            found[scope.removeprefix(_SCOPE)] = convert(decode(mark.partition(" ")[2].encode()), Profile)
        except (NotJson, ValidationError):
            continue
    return found
