"""Changes from the page: each is a request in the inbox with whoever asks for it, and what the policy makes of
it there counts. Nothing is decided here.

Somebody of Slack acts by their id: the running bot, which alone can ask Slack, looks up the facts on which the policy
decides (`bot.handlers.web_requests`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType

from msgspec.structs import replace

from bot.config.settings import Settings
from bot.inbound.decisions import WEB
from bot.start.asked import LOOK_SECONDS, asked_item, started
from bot.terminal.follower import terminal_label
from engine.decide.commands import Action
from engine.decide.policy import ROTA, Gate, Target, authorize
from engine.decide.question import refuse_long
from engine.flow import Flow, coerce_inputs
from engine.forms.question import Question
from engine.journal.phases import ENDED
from engine.journal.queries import next_try
from engine.journal.records import Head, InboxItem
from engine.journal.state import State
from engine.language.actors import Actor, requester_of
from engine.language.codec import Json, encode
from engine.language.errors import SaysoError, SessionEnded, SessionError, SessionQuarantined, UnknownSession
from engine.run import remote_commands
from engine.run.session import RequestRefused, receipt_of
from engine.run.stored import utc_now
from engine.storage.group_commit import Writer

REPLY_SECONDS = 10.0
"""The time for which the page waits until a living process has taken a request; it is kept in any case."""
_NO_ID = "Your login does not include your Slack ID, so you can look but change nothing. To make changes, log in with Slack."
_AT_TERMINAL = (
    "This run belongs to a terminal, so it can't be changed from here. Ask the person who started it."
)
FIELDS: Mapping[str, tuple[str, ...]] = {
    "answer": ("promptId", "value", "text", "values", "reason", "nonce"),
    "revoke": ("promptId",),
    "abort": ("reason",),
    "pause": ("reason",),
    "resume": ("text",),
    "retry": (),
}
"""Requests that the page can make, and the fields that it takes (`engine.run.remote_commands`)."""

_TYPES: Mapping[str, type | UnionType] = {"values": dict, "value": str | int | float}
"""Types of fields that are no text: what no handler can read would block the rows behind it."""


class Acts:
    """Changes of one store, as logged in people ask for them."""

    def __init__(self, writer: Writer, settings: Settings, command: Callable[..., str]) -> None:
        """`command` makes command lines that work for this home."""
        self._writer = writer
        self._settings = settings
        self._command = command

    async def ask(self, actor: Actor, session_id: str, do: str, given: Mapping[str, Json]) -> dict[str, Json]:
        """Put a request into the inbox, and wait a moment for its outcome; `session` in the answer is the session that tries
        this one again. Raises `RequestRefused`, `SaysoError`."""
        if do not in FIELDS:
            raise RequestRefused("bad_request", f"This page has no request {do!r}.")
        if unknown := given.keys() - {"session", "do", *FIELDS[do]}:
            raise RequestRefused("bad_request", f"The request {do!r} has no field {min(unknown)!r}.")
        refuse_long(dict(given))
        head = await self._writer.call(self._head, session_id, do, actor)
        fields = {name: given[name] for name in FIELDS[do] if given.get(name) is not None}
        for name, value in fields.items():
            if not isinstance(value, _TYPES.get(name, str)):
                raise RequestRefused("bad_request", f"{name} has the wrong type.")
        key = f"web:{os.urandom(12).hex()}"
        if actor.kind == "local":
            item = remote_commands.item(key, head.session_id, do, actor=actor, **fields)
        else:
            item = InboxItem(key, WEB, encode({"do": do, "user": actor.id, **fields}), head.session_id)
        await self._writer.ingest([item], utc_now())
        there = partial(self._served, head)
        receipt = await receipt_of(self._writer, item.key, seconds=REPLY_SECONDS, served=there)
        done: dict[str, Json] = {"outcome": receipt.outcome, "there": receipt.there}
        if do == "retry" and receipt.outcome == "applied":
            done["session"] = next_try(head.session_id)
        return done

    def no_start(self, actor: Actor, flow: Flow) -> str | None:
        """The reason why somebody may not start a flow, as far as it is known here: the bot knows channels, groups and
        rotas. None if they may."""
        if (problem := self.looks_only(actor)) is not None:
            return str(problem)
        listed = flow.allowed_to_start
        if (
            actor.kind == "slack"
            and listed
            and any("@" in entry or entry.startswith(ROTA) for entry in listed)
        ):
            return None
        known = replace(actor, team_id="", in_channel=True, facts_known=True)
        asked = Question(kind="start", who=listed)
        return authorize(known, "start", Target("", prompt=asked, allow_local=True, allow_guests=True)).reason

    def refusal(self, actor: Actor, action: Action, state: State, asked: Question | None) -> str | None:
        """The reason why somebody may not do this to a session; None if they may. Of people of Slack only the bot knows
        enough to say, but for one thing: whoever asked for something cannot approve it where that is excluded."""
        admins, guests = self._settings.admins, self._settings.allow_guests
        if actor.kind == "local":
            return Gate(None, admins, guests, allow_local=True)(actor, action, state, asked)
        if asked is None or not asked.exclude_requester or requester_of(state.actor) != actor.id:
            return None
        known = replace(actor, team_id="", in_channel=True, facts_known=True)
        return Gate("", admins, guests)(known, action, state, asked)

    async def start(self, actor: Actor, flow: Flow, channel: Json, inputs: Json) -> dict[str, Json]:
        """Ask the bot to start a flow in a channel, and wait a moment for its session. Raises `RequestRefused`,
        `InvalidInputs`."""
        if (problem := self.looks_only(actor)) is not None:
            raise problem
        if not isinstance(channel, str) or not channel.strip():
            raise RequestRefused("bad_request", "Please give a channel: #NAME or its ID.")
        if not isinstance(inputs, dict):
            raise RequestRefused("bad_request", 'The inputs must be an object: {"NAME": VALUE}.')
        coerce_inputs(flow, inputs)
        item = asked_item(
            os.urandom(8).hex(), flow.name, channel.strip(), inputs, actor, "in the control room"
        )
        await self._writer.ingest([item], utc_now())
        look = partial(started, self._writer.store, item.key, flow.name)
        deadline = time.monotonic() + REPLY_SECONDS
        while (found := await self._writer.call(look)).thread_ts is None:
            if not found.there or time.monotonic() >= deadline:
                break
            await asyncio.sleep(LOOK_SECONDS)
        outcome = "started" if found.session_id else "queued"
        return {"outcome": outcome, "session": found.session_id, "there": found.there}

    def is_admin(self, actor: Actor) -> bool:
        """True if somebody has this machine, or is listed as an admin."""
        listed = {entry.lower() for entry in self._settings.admins}
        return actor.kind == "local" or bool(listed & {actor.id.lower(), (actor.email or "").lower()} - {""})

    async def letter(self, actor: Actor, key: str, *, again: bool) -> dict[str, Json]:
        """Hand a dead letter to the bot again, or drop it. Raises `RequestRefused` for whoever is no admin."""
        if not self.is_admin(actor):
            raise RequestRefused("not_allowed", "Dead letters are for admins (SAYSO_ADMINS).")
        done = await self._writer.call(partial(self._writer.store.inbox.decide_letter, key, again=again))
        return {"outcome": "applied" if done else "gone"}

    def looks_only(self, actor: Actor) -> SaysoError | None:
        """The reason why this person can change nothing here at all; None if they can ask for it."""
        return RequestRefused("not_allowed", _NO_ID) if actor.kind == "slack" and not actor.id else None

    def closed(self, actor: Actor, head: Head) -> SaysoError | None:
        """The reason why this person can change nothing about a session here; None if they can ask for it."""
        if (problem := self.looks_only(actor)) is not None:
            return problem
        if head.quarantined:
            return SessionQuarantined(f"Session {head.session_id} is on hold: {head.quarantined}")
        if actor.kind == "slack" and not head.thread_key:
            return RequestRefused("not_allowed", _AT_TERMINAL)
        if not head.thread_key and not self._served(head):
            return SessionError(
                f"This run belongs to a terminal, and no terminal has it open. Continue it there: {self.go_on(head)}"
            )
        return None

    def go_on(self, head: Head) -> str:
        """The command that goes on with a session of a terminal."""
        return self._command("sessions", "retry" if head.status == "failed" else "resume", head.session_id)

    def _head(self, session_id: str, do: str, actor: Actor) -> Head:
        head = self._writer.store.sessions.head(session_id)
        if head is None:
            raise UnknownSession(f"There is no session {session_id}.")
        if head.status in ENDED and do != "retry" and not head.quarantined:
            raise SessionEnded(f"Session {session_id} has already ended; nothing was changed.")
        if problem := self.closed(actor, head):
            raise problem
        return head

    def _served(self, head: Head) -> bool:
        label = "bot" if head.thread_key else terminal_label(head.session_id)
        return label in self._writer.store.serving()
