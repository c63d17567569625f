"""Starts flows, for every way in: one check, one rate limit, and one place that refuses.

A way in makes a `Wish` and says, with a `Told`, how whoever wished it hears of a refusal. A row is consumed in the
commit that starts its session, or together with the words of the refusal; while Slack does not say who somebody is,
it is held.

A flow whose thread begins with a message of the bot (by a slash command, a form, a schedule, or `start-flow`)
takes two rows: the one that wishes for it posts the message, and once that stands, or Slack refused it, a
second one starts the flow.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from bot.config.library import Library
from bot.config.settings import Rate, Rates, Settings
from bot.inbound import decisions
from bot.intents.session_rows import (
    direct_row,
    ephemeral_row,
    note_to,
    reaction_row,
    respond_row,
    root_row,
)
from bot.outbound.notices import Notices
from bot.rendering import phrases
from bot.rendering.phrases import not_begun_text, root_text
from bot.rendering.text import escape, for_reader, plain
from bot.start.schedules import WANTED, WANTED_ROOTED
from bot.wire.users import Channels, LookupFailed, People, UnknownPerson
from engine.decide.policy import authorize
from engine.flow import Flow
from engine.forms.question import Question
from engine.journal.records import Consumed, InboxRow, Row
from engine.language.actors import Actor
from engine.language.codec import Json, decode, encode
from engine.language.errors import SaysoError, StorageError, UnknownFlow
from prompt_state.question_row import thread_key

log = logging.getLogger("sayso.start")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was started; `text` (mrkdwn) says why. `quiet`: this was said a moment ago already."""

    text: str
    quiet: bool = False


Told: TypeAlias = Callable[[Refusal], Sequence[Row]]
"""The rows that tell a refusal."""


def _nowhere(refusal: Refusal) -> Sequence[Row]:
    """Nobody in Slack is told; the inbox row has the reason."""
    return ()


def in_thread(row: InboxRow, data: Mapping[str, Json], thread_ts: str) -> Told:
    """A message in the thread, for everybody."""
    return lambda refusal: [_note(row, data, thread_ts, refusal.text)]


def to_presser(row: InboxRow, data: Mapping[str, Json]) -> Told:
    """The answer to a slash command; for a button press, a message that only the presser sees."""

    def told(refusal: Refusal) -> Sequence[Row]:
        if data.get("responseUrl"):
            return [respond_row(f"respond:{row.key}", data["responseUrl"], refusal.text)]
        text = for_reader(plain(refusal.text))
        return [_ephemeral(row, data, data.get("threadTs"), text)]

    return told


def to_author(row: InboxRow, data: Mapping[str, Json], thread_ts: str | None) -> Told:
    """A message that only the acting person sees; if an app or sayso itself acted, text on the message."""
    if data.get("user") and data.get("app") is None:
        return lambda refusal: [_ephemeral(row, data, thread_ts, refusal.text)]
    return _on_message(row, data, data["ts"])


def to_speaker(row: InboxRow, data: Mapping[str, Json]) -> Told:
    """Somebody happened to say the words, and may not even know that a flow listens: told once in a while."""
    told = to_author(row, data, None)
    return lambda refusal: (
        () if refusal.quiet and data.get("user") and data.get("app") is None else told(refusal)
    )


def _on_message(row: InboxRow, data: Mapping[str, Json], ts: str) -> Told:
    """A message in the thread of the message with which a start began; a mark on that one where this was said already."""

    def told(refusal: Refusal) -> Sequence[Row]:
        if refusal.quiet:
            return [reaction_row(f"refused:{row.key}", data["channel"], ts, "no_entry")]
        return [_note(row, data, ts, f"⛔ Nothing was started. {refusal.text}")]

    return told


def _note(row: InboxRow, data: Mapping[str, Json], thread_ts: str, text: str) -> Row:
    return note_to(thread_key(data["team"], data["channel"], thread_ts), f"note:{row.key}", text)


def _ephemeral(row: InboxRow, data: Mapping[str, Json], thread_ts: str | None, text: str) -> Row:
    return ephemeral_row(f"ephemeral:{row.key}", data["channel"], data["user"], thread_ts, text)


class Over(NamedTuple):
    """A limit is reached. `first`: nobody was told so since it was; `text` says which one and until when."""

    text: str
    first: bool


class RateLimits:
    """Counts starts within moving windows."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._starts: dict[tuple[str, str], deque[float]] = {}
        self._told: dict[tuple[str, str], float] = {}

    def over(self, person: str | None, channel: str) -> Over | None:
        """The limit that one more start would pass, or None. Nothing is counted."""
        now = self._clock()
        for key, rate, whose in self._scopes(person, channel):
            starts = self._within(key, rate, now)
            if len(starts) >= rate.most:
                until = starts[0] + rate.seconds
                first = self._told.get(key, 0.0) <= now
                self._told[key] = until
                left = until - now
                flows = "1 flow" if rate.most == 1 else f"{rate.most} flows"
                wait = max(1, round(left))
                span = f"{rate.seconds / 60:g} min" if rate.seconds >= 60 else f"{rate.seconds:g} s"
                limit = f"{whose} {flows} within {span}, which is the limit."
                return Over(f"{limit} Nothing was started; try again in {wait} s.", first)
        return None

    def count(self, person: str | None, channel: str) -> None:
        """Something was started."""
        now = self._clock()
        for key, rate, _ in self._scopes(person, channel):
            self._within(key, rate, now).append(now)

    def _scopes(self, person: str | None, channel: str) -> list[tuple[tuple[str, str], Rate, str]]:
        limits = [
            (("person", person), self._rates.person, "You have started"),
            (("channel", channel), self._rates.channel, "In this channel people and triggers have started"),
            (("workspace", ""), self._rates.workspace, "In this workspace people and triggers have started"),
        ]
        return [
            ((kind, scope), rate, whose)
            for (kind, scope), rate, whose in limits
            if rate is not None and scope is not None
        ]

    def _within(self, key: tuple[str, str], rate: Rate, now: float) -> deque[float]:
        starts = self._starts.setdefault(key, deque())
        while starts and starts[0] <= now - rate.seconds:
            starts.popleft()
        return starts


@dataclass(frozen=True, slots=True)
class Wish:
    """A flow that somebody wants. `data` has the team and the channel, and for a person what `People` looks up."""

    flow: str
    inputs: Mapping[str, Json]
    data: Mapping[str, Json]
    actor: Actor | None = None
    """None: the person in `data`, who is looked up."""
    in_channel: bool | None = None
    """Membership of that person, as the payload itself shows it."""
    message_ts: str | None = None
    """The message that begins it, on which a reaction shows how it stands: somebody's words, or what was posted for it."""


@dataclass(eq=False, repr=False)
class Starter:
    """Starts sessions in threads."""

    notices: Notices
    library: Library
    people: People
    channels: Channels
    limits: RateLimits
    settings: Settings

    # --- what ways in ask for ------------------------------------------------------------------------------

    async def start(self, row: InboxRow, wish: Wish, thread_ts: str, told: Told) -> bool:
        """Start a flow in a thread, and consume the row with it. Raises `StorageError`."""
        refusal = await self._started(row, wish, thread_ts)
        return refusal is None or await self.refuse(row, refusal, told)

    async def begin_thread(
        self, row: InboxRow, wish: Wish, kind: str, payload: Mapping[str, Json], text: str, told: Told
    ) -> bool:
        """Post the message that the thread begins with; a row of this kind starts the flow once it stands. Nothing is
        posted for whoever may not start it. Raises `StorageError`."""

        by_itself = wish.actor is not None and wish.actor.kind == "system"
        refusal = None if by_itself else await self._refusal(wish)
        if refusal is not None:
            return await self.refuse(row, refusal, told)
        then: dict[str, Json] = {"kind": kind, "key": f"rooted:{row.key}", "payload": dict(payload)}
        return await self.notices.consume(
            row, "rooting", root_row(f"root:{row.key}", wish.data["channel"], text, then)
        )

    async def refuse(self, row: InboxRow, refusal: Refusal, told: Told) -> bool:
        """Consume the row with the reason why nothing was started, and tell it."""
        result = encode({"error": "refused", "message": plain(refusal.text)})
        return await self.notices.consume(row, "refused", *told(refusal), result=result)

    async def person(self, wish: Wish) -> Actor:
        """Return the person who wishes it, with the groups relevant for the permission. Raises `LookupFailed`."""
        if wish.actor is not None:
            return wish.actor
        flow = self.library.refresh().get(wish.flow)
        entries = (flow.allowed_to_start or ()) if flow is not None else ()
        return await self.people.actor(dict(wish.data), entries=entries, in_channel=wish.in_channel)

    async def startable(self, data: Mapping[str, Json], most: int) -> list[Flow]:
        """The first flows that the sender of `data` may start in its channel. Raises `LookupFailed`."""
        found: list[Flow] = []
        for _, flow in sorted(self.library.refresh().items()):
            actor = await self.people.actor(dict(data), entries=flow.allowed_to_start or (), in_channel=True)
            if self._forbidden(flow, actor) is None and await self._elsewhere(flow, data["channel"]) is None:
                found.append(flow)
            if len(found) == most:
                break
        return found

    async def inputs_of(self, session_id: str, channel: str) -> Mapping[str, Json]:
        """The inputs of a session whose thread is in this channel; none of another one."""
        engine = self.notices.engine
        head = await engine.writer.call(engine.store.sessions.head, session_id)
        if head is None or (head.thread_key or "").split(":")[1:2] != [channel]:
            return {}
        state = await engine.verified_state(session_id)
        return state.given if state.inputs is None else state.inputs

    # --- whether, and then starting ------------------------------------------------------------------------

    async def _refusal(self, wish: Wish) -> Refusal | None:
        """Why this would not be started, asked before a message for it is posted; whether it is, `_started` decides."""
        actor = await self.person(wish)
        try:
            flow = self.library.get(wish.flow)
        except UnknownFlow as error:
            return Refusal(escape(str(error)))
        reason = self._forbidden(flow, actor)
        if reason is not None:
            return Refusal(escape(reason))
        return await self._limited(flow, wish, actor)

    def _forbidden(self, flow: Flow, actor: Actor) -> str | None:
        asked = Question(kind="start", who=flow.allowed_to_start)
        return authorize(actor, "start", self.notices.gate.target({}, True, asked)).reason

    async def _started(self, row: InboxRow, wish: Wish, thread_ts: str) -> Refusal | None:
        actor = await self.person(wish)
        team, channel = wish.data["team"], wish.data["channel"]
        key = thread_key(team, channel, thread_ts)
        thread: dict[str, Json] = {"team": team, "channel": channel, "threadTs": thread_ts, "key": key}
        if wish.message_ts is not None:
            thread["messageTs"] = wish.message_ts
        try:
            flow = self.library.get(wish.flow)
            refusal = await self._limited(flow, wish, actor)
            if refusal is not None:
                return refusal
            consumed, actor = [Consumed(row.id, "started")], await self.people.profiled(actor)
            revision = await self.library.revision(flow)
            await self.notices.engine.start(
                flow, wish.inputs, actor=actor, thread=thread, consumed=consumed, revision=revision
            )
        except (LookupFailed, StorageError):
            raise
        except SaysoError as error:
            return Refusal(escape(str(error)))
        self.limits.count(_counted(actor), channel)
        # A run of a flow whose file was broken since says that it is of the version before.
        fault = self.library.faults().get(wish.flow)
        if fault is not None:
            said = note_to(thread["key"], f"stale:{row.key}", phrases.stale_flow_text(wish.flow, fault))
            await self.notices.put(said)
        return None

    async def _limited(self, flow: Flow, wish: Wish, actor: Actor) -> Refusal | None:
        """Why this flow is not started in this channel, or not so often."""
        channel = wish.data["channel"]
        refusal = await self._elsewhere(flow, channel)
        if refusal is not None:
            return refusal
        over = self.limits.over(_counted(actor), channel)
        return None if over is None else Refusal(escape(over.text), quiet=not over.first)

    async def _elsewhere(self, flow: Flow, channel: str) -> Refusal | None:
        direct = channel.startswith("D")
        if (
            self.settings.channels
            and channel not in self.settings.channels
            and not (direct and "dm" in self.settings.channels)
        ):
            return Refusal("Flows cannot be started here: SAYSO_CHANNELS does not list this channel.")
        if not await self.channels.among(channel, flow.channels):
            entries = flow.channels or ()
            places = ", ".join(escape(one) if one.startswith("#") else f"<#{one}>" for one in entries)
            return Refusal(f"`{flow.name}` cannot be started here, only in {places}.")
        return None


def _counted(actor: Actor) -> str | None:
    """Return the person whose rate this start counts for."""
    return None if actor.kind == "system" else actor.id


# --- threads that the bot begins ---------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class ThreadStarts:
    """Begins threads, and starts flows in them.

    `admins` are told what nobody else would notice.
    """

    starter: Starter
    channels: Channels
    notices: Notices
    team: str
    admins: Collection[str] = ()

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {
            decisions.ROOTED: self.rooted,
            WANTED: self.wanted,
            WANTED_ROOTED: self.wanted_rooted,
        }

    # --- by a person in Slack ------------------------------------------------------------------------------

    async def begin(self, row: InboxRow, data: dict[str, Json], flow: str, inputs: dict[str, Json]) -> bool:
        """Start a flow for the person who pressed a button or used a command."""
        wish = Wish(flow, inputs, data)
        try:
            wish = replace(wish, actor=await self.starter.person(wish))
        except UnknownPerson as error:
            return await self.notices.not_looked_up(row, data, error)
        payload = {**data, "flow": flow, "inputs": inputs}
        text = root_text(data["user"], flow)
        told = to_presser(row, data)
        return await self.starter.begin_thread(row, wish, decisions.ROOTED, payload, text, told)

    async def rooted(self, row: InboxRow) -> bool:
        """The message stands: start the flow in its thread."""
        data = decode(row.payload)
        if "refused" not in data:
            ts = data["posted"]["ts"]
            wish = Wish(data["flow"], data["inputs"], data, message_ts=ts)
            return await self.starter.start(row, wish, ts, in_thread(row, data, ts))
        place = f"<#{data['channel']}>"
        text = not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
        if data.get("responseUrl"):
            return await self.starter.refuse(row, Refusal(text), to_presser(row, data))
        said = direct_row(f"direct:{row.key}", data["user"], text)
        return await self.starter.refuse(row, Refusal(text), lambda refusal: [said])

    # --- by a schedule, or from the command line -----------------------------------------------------------

    async def wanted(self, row: InboxRow) -> bool:
        """A flow that is wanted in a channel. A terminal that waits for the answer reads it in the row."""
        data = decode(row.payload)
        channel = await self.channels.id_of(data["place"])
        if channel is None:
            return await self._not_rooted(row, {**data, "channel": None, "refused": "not_in_channel"})
        payload = {**data, "team": self.team, "channel": channel}
        if data.get("user"):
            # Somebody of Slack wants it outside of Slack: what they may start is what they may start in that channel.
            try:
                if await self.starter.people.is_member(data["user"], channel):
                    return await self.begin(row, payload, data["flow"], data["inputs"])
            except LookupFailed as error:
                return await self.notices.not_looked_up(row, payload, error)
            place = escape(data["place"])
            refusal = Refusal(f"You are not in {place}. Join it first, or choose another channel.")
            return await self.starter.refuse(row, refusal, _nowhere)
        wish = Wish(data["flow"], data["inputs"], payload, actor=_wisher(data))
        text = f"{data['icon']} *{escape(data['flow'])}* · {escape(data['why'])}".strip()
        return await self.starter.begin_thread(row, wish, WANTED_ROOTED, payload, text, _nowhere)

    async def wanted_rooted(self, row: InboxRow) -> bool:
        """The message stands: start the flow in its thread."""
        data = decode(row.payload)
        if "refused" in data:
            return await self._not_rooted(row, data)
        ts = data["posted"]["ts"]
        wish = Wish(data["flow"], data["inputs"], data, actor=_wisher(data), message_ts=ts)
        return await self.starter.start(row, wish, ts, _on_message(row, data, ts))

    async def _not_rooted(self, row: InboxRow, data: Mapping[str, Json]) -> bool:
        """Slack refused the message: the command line reads it in the row, of a schedule the admins are told."""
        words = not_begun_text(data["flow"], data["place"], data["refused"])
        log.error("%s", words)
        told: list[Row] = []
        if not data.get("local"):
            channel, day = data["channel"], self.notices.engine.now()[:10]
            place = f"<#{channel}>" if channel else escape(data["place"])
            text = not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
            scope = f"{data['flow']}:{data['place']}:{day}"
            told = [
                direct_row(f"unrooted:{admin}:{scope}", admin, f"⛔ {text} ({escape(data['why'])})")
                for admin in sorted(self.admins)
                if not admin.startswith("@")
            ]
        return await self.starter.refuse(row, Refusal(escape(words)), lambda refusal: told)


def _wisher(data: Mapping[str, Json]) -> Actor:
    """The caller of `start-flow`, or the schedule or webhook."""
    part = data.get("by", "schedule")
    return (
        Actor.local(data["local"], data.get("account"))
        if data.get("local")
        else Actor.itself(part, f"a {part}")
    )
