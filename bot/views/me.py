"""A modal of the Home: who answers while somebody is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from bot.config.profiles import Profile, Profiles
from bot.inbound.decisions import Accept, Errors, Opened, Opening, Submission, Verdict
from bot.rendering.blocks import Block, context, field_block, modal, words
from bot.rendering.text import date, whom
from bot.views.service import Kind
from bot.wire.users import People
from engine.journal.records import Consumed, InboxRow
from engine.language import working_hours
from engine.language.codec import Json
from engine.storage.group_commit import Writer

UNTIL, STAND_IN = "until", "stand_in"
_ZONE_SECONDS = 1.0


@dataclass(eq=False, repr=False)
class Me(Kind):
    """`sayso:open:me`."""

    name = "me"

    _profiles: Profiles
    _people: People
    _writer: Writer
    _now: Callable[[], str]
    _changed: Callable[[str], None]

    async def open(self, opening: Opening) -> Opened:
        """The current settings."""
        mine = await self._profiles.of(opening.user)
        zone = await self._zone(opening.user)
        person: Block = {"type": "users_select", "action_id": STAND_IN, "placeholder": words("Nobody")}
        until: Block = {"type": "datepicker", "action_id": UNTIL}
        if mine.away(self._now()):
            person["initial_user"] = mine.stand_in
            until["initial_date"] = working_hours.written(str(mine.away_until), "%Y-%m-%d", zone or "UTC")
        blocks = [
            field_block(STAND_IN, "I am away: who answers for me", person, optional=True),
            field_block(UNTIL, "until I am back on", until, optional=True),
            context(
                "Their decisions are recorded under their name, on your behalf. You can still decide yourself."
            ),
        ]
        meta: dict[str, Json] = {"user": opening.user, "zone": zone}
        return modal("While I am away", blocks, kind=self.name, meta=meta, submit="Save")

    async def check(self, submission: Submission) -> Verdict:
        """A person with a day, and not oneself."""
        person = submission.given(STAND_IN).get("selected_user")
        day = submission.given(UNTIL).get("selected_date")
        errors = {}
        if bool(person) != bool(day):
            errors[UNTIL if person else STAND_IN] = (
                "Choose both a stand-in and an end date, or leave both empty."
            )
        if person == submission.user:
            errors[STAND_IN] = "That is you. Please choose someone else."
        zone = str(submission.meta.get("zone") or await self._zone(submission.user) or "UTC")
        until = working_hours.day_begins(day, zone) if day else None
        if until is not None and until <= self._now():
            errors[UNTIL] = "Choose a day in the future."
        if errors:
            return Errors(errors)
        return Accept({"awayUntil": until, "standIn": person})

    async def _zone(self, user: str) -> str | None:
        """Somebody's timezone, if Slack says it soon: a modal must be opened, and a submission answered, within three
        seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ZONE_SECONDS):
                return await self._people.timezone(user)
        return None

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """It holds from now on."""
        await self._profiles.keep(data["user"], Profile(data["awayUntil"], data["standIn"]))
        await self._writer.call(self._writer.store.consume, [Consumed(row.id, "applied")], self._now(), [])
        self._changed(data["user"])
        return True


def about(profile: Profile, now: str) -> str:
    """The absence of somebody in a line; empty where they are here."""
    if not profile.away(now):
        return ""
    return f"🏖️ You are away until {date(str(profile.away_until))}: {whom([str(profile.stand_in)], None)} answers instead of you."
