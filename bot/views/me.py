"""How somebody wants to be told of questions, and who answers while they are away: a modal of the Home."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from bot.config.profiles import Profile, Profiles
from bot.inbound.decisions import Accept, Errors, Opened, Opening, Submission, Verdict
from bot.rendering.blocks import Block, context, field_block, modal, option, words
from bot.rendering.text import date, whom
from bot.views.service import Kind
from bot.wire.users import People
from engine.journal.records import Consumed, InboxRow
from engine.language import timestamps, working_hours
from engine.language.codec import Json
from engine.storage.group_commit import Writer

WHEN = {"at_once": "At once", "digest": "Once a day, together", "never": "Never"}
DIRECT, FROM, TO, UNTIL, STAND_IN = "direct", "from", "to", "until", "stand_in"
_WEEK = ["mon", "tue", "wed", "thu", "fri"]


class Me(Kind):
    """`sayso:open:me`."""

    name = "me"

    def __init__(
        self,
        profiles: Profiles,
        people: People,
        writer: Writer,
        now: Callable[[], str],
        changed: Callable[[str], None] = lambda user: None,
    ) -> None:
        self._profiles = profiles
        self._people = people
        self._writer = writer
        self._now = now
        self._changed = changed

    async def open(self, opening: Opening) -> Opened:
        """What is set now."""
        mine = await self._profiles.of(opening.user)
        zone = str((mine.hours or {}).get("timezone") or await self._people.timezone(opening.user))
        menu = [option(label, value) for value, label in WHEN.items()]
        direct: Block = {"type": "radio_buttons", "action_id": DIRECT, "options": menu}
        direct["initial_option"] = menu[list(WHEN).index(mine.direct)]
        person: Block = {"type": "users_select", "action_id": STAND_IN, "placeholder": words("Nobody")}
        until: Block = {"type": "datepicker", "action_id": UNTIL}
        if mine.away(self._now()):
            person["initial_user"] = mine.stand_in
            until["initial_date"] = working_hours.written(str(mine.away_until), "%Y-%m-%d", zone)
        hint = f"Mondays to Fridays, in {zone}. Leave both empty for any time."
        blocks = [
            field_block(DIRECT, "Questions in a direct message", direct),
            field_block(FROM, "My work begins", _clock(FROM, mine), optional=True),
            field_block(TO, "and ends", _clock(TO, mine), optional=True, hint=hint),
            field_block(STAND_IN, "I am away: who answers for me", person, optional=True),
            field_block(UNTIL, "until I am back on", until, optional=True),
            context("What they decide is recorded as theirs, in your place. You can still decide yourself."),
        ]
        meta: dict[str, Json] = {"user": opening.user, "zone": zone}
        return modal("How I am told", blocks, kind=self.name, meta=meta, submit="Save")

    async def check(self, submission: Submission) -> Verdict:
        """Two times or none, a person with a day, and not oneself."""
        begin, end = (submission.given(name).get("selected_time") for name in (FROM, TO))
        person = submission.given(STAND_IN).get("selected_user")
        day = submission.given(UNTIL).get("selected_date")
        errors = {}
        if bool(begin) != bool(end) or (begin and begin == end):
            errors[TO] = "Please give two different times, or none."
        if bool(person) != bool(day):
            errors[UNTIL if person else STAND_IN] = "Please give a person and a day, or neither."
        if person == submission.user:
            errors[STAND_IN] = "That is you. Please choose somebody else."
        zone = str(submission.meta.get("zone") or "UTC")
        until = _morning(day, zone) if day else None
        if until is not None and until <= self._now():
            errors[UNTIL] = "That day has begun already."
        if errors:
            return Errors(errors)
        hours: dict[str, Json] | None = None
        if begin:
            hours = {"days": list(_WEEK), "from": begin, "to": end, "timezone": zone}
        direct = (submission.given(DIRECT).get("selected_option") or {}).get("value") or "at_once"
        return Accept({"direct": direct, "hours": hours, "awayUntil": until, "standIn": person})

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """It holds from now on."""
        before = await self._profiles.of(data["user"])
        profile = replace(
            before,
            direct=data["direct"],
            hours=data["hours"],
            away_until=data["awayUntil"],
            stand_in=data["standIn"],
        )
        await self._profiles.keep(data["user"], profile)
        await self._writer.call(self._writer.store.consume, [Consumed(row.id, "applied")], self._now(), [])
        self._changed(data["user"])
        return True


def about(profile: Profile, now: str) -> str:
    """What somebody set, in a line."""
    when = f"Direct messages: {WHEN[profile.direct].lower()}"
    if profile.hours is not None:
        when += f", {profile.hours['from']} to {profile.hours['to']} on weekdays"
    if not profile.away(now):
        return f"{when}."
    return f"{when}. 🏖️ You are away until {date(str(profile.away_until))}: {whom([str(profile.stand_in)], None)} answers in your place."


def _clock(name: str, mine: Profile) -> Block:
    made: Block = {"type": "timepicker", "action_id": name}
    return {**made, "initial_time": mine.hours[name]} if mine.hours is not None else made


def _morning(day: str, zone: str) -> str:
    """The beginning of a day, on the clocks of a place."""
    hours = {"days": list(working_hours.DAYS), "from": "00:00", "to": "24:00", "timezone": zone}
    start = f"{day}T00:00:00.000Z"
    # Days begin up to fourteen hours before they do in UTC.
    for hour in range(-14, 14):
        moment = timestamps.after(start, hour * 3600)
        if working_hours.written(moment, "%Y-%m-%d %H", zone) == f"{day} 00":
            return moment
    return working_hours.after(start, 0.0, working_hours.of(hours))
