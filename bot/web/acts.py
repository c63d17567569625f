"""Changes from the page: each is a request in the inbox with whoever asks for it, and what the policy makes of
it there counts. Nothing is decided here.

Somebody of Slack acts by their id: the running bot, which alone can ask Slack, looks up the facts on which the policy decides
(`bot.handlers.web_requests`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType

from bot.config.settings import Settings
from bot.inbound.decisions import WEB
from bot.start.schedules import wanted_item
from bot.terminal.follower import terminal_label
from engine.decide.question import refuse_long
from engine.flow import Flow, coerce_inputs
from engine.journal.phases import ENDED
from engine.journal.records import Head, InboxItem
from engine.language.actors import Actor
from engine.language.codec import Json, decode, encode
from engine.language.errors import SaysoError, SessionEnded, SessionError, SessionQuarantined, UnknownSession
from engine.run import remote_commands
from engine.run.session import RequestRefused, receipt_of
from engine.run.stored import utc_now
from engine.storage.group_commit import Writer
from prompt_state.question_row import thread_key

_LOOK_SECONDS = 0.05
REPLY_SECONDS = 10.0
"""The time for which the page waits until a living process has taken a request; it is kept in any case."""
_NO_ID = "Your login does not say who you are in Slack, so you can only look. Log in with Slack to change something."
_AT_TERMINAL = "This session lives in a terminal, where nobody of Slack acts. Ask whoever ran sayso there."
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
        """Put a request into the inbox, and wait a moment for what becomes of it. Raises `RequestRefused`, `SaysoError`."""
        if do not in FIELDS:
            raise RequestRefused("bad_request", f"There is no request {do!r} on this page.")
        if unknown := given.keys() - {"session", "do", *FIELDS[do]}:
            raise RequestRefused("bad_request", f"A request {do!r} has no field {min(unknown)!r}.")
        refuse_long(dict(given))
        head = await self._writer.call(self._head, session_id, do, actor)
        fields = {name: given[name] for name in FIELDS[do] if given.get(name) is not None}
        for name, value in fields.items():
            if not isinstance(value, _TYPES.get(name, str)):
                raise RequestRefused("bad_request", f"{name} is of another type than this page sends.")
        item = _request(actor, head, do, fields)
        await self._writer.ingest([item], utc_now())
        there = partial(self._served, head)
        receipt = await receipt_of(self._writer, item.key, seconds=REPLY_SECONDS, served=there)
        return {"outcome": receipt.outcome, "there": receipt.there}

    async def start(self, actor: Actor, flow: Flow, channel: str, inputs: dict[str, Json]) -> dict[str, Json]:
        """Ask the bot to start a flow in a channel, and wait a moment for its session. Raises `RequestRefused`, `InvalidInputs`."""
        if actor.kind != "local":
            raise RequestRefused("not_allowed", f"Start it in Slack: @sayso {flow.name}")
        if not channel:
            raise RequestRefused("bad_request", "Please name a channel.")
        coerce_inputs(flow, inputs)
        key, user = f"start-flow:{os.urandom(8).hex()}", self._settings.local_user
        why = f"started by {user} in the control room"
        item = wanted_item(
            key, flow.name, channel, inputs, why=why, icon="▶️", local=user, account=actor.account
        )
        await self._writer.ingest([item], utc_now())
        deadline = time.monotonic() + REPLY_SECONDS
        while time.monotonic() < deadline:
            session_id, there = await self._writer.call(self._begun, key, flow.name)
            if session_id or not there:
                return {
                    "outcome": "started" if session_id else "queued",
                    "session": session_id,
                    "there": there,
                }
            await asyncio.sleep(_LOOK_SECONDS)
        return {"outcome": "queued", "session": None, "there": True}

    def _begun(self, key: str, flow: str) -> tuple[str | None, bool]:
        """The session that a request began, and whether a bot is there to begin it. Raises `RequestRefused`."""
        store = self._writer.store
        there = "bot" in store.serving()
        asked, rooted = (store.inbox.row(each) for each in (key, f"rooted:{key}"))
        for row in (asked, rooted):
            if row is not None and row.outcome == "refused":
                raise RequestRefused.of(row, "The bot refused to start it.")
        if rooted is None or rooted.outcome != "started":
            return None, there
        data = decode(rooted.payload)
        thread = thread_key(data["team"], data["posted"]["channel"], data["posted"]["ts"])
        begun = [head for head in store.sessions.heads(thread_key=thread) if head.flow_name == flow]
        return (begun[0].session_id if begun else None), there

    async def letter(self, actor: Actor, key: str, *, again: bool) -> dict[str, Json]:
        """Hand a dead letter to the bot again, or drop it. Raises `RequestRefused` for whoever is no admin."""
        admins = {entry.lower() for entry in self._settings.admins}
        if actor.kind != "local" and not admins & {actor.id.lower(), (actor.email or "").lower()}:
            raise RequestRefused("not_allowed", "Dead letters are for admins (SAYSO_ADMINS).")
        done = await self._writer.call(partial(self._writer.store.inbox.decide_letter, key, again=again))
        return {"outcome": "applied" if done else "gone"}

    def closed(self, actor: Actor, head: Head) -> SaysoError | None:
        """The reason why this person can change nothing about a session here; None if they can ask for it."""
        if actor.kind == "slack" and not actor.id:
            return RequestRefused("not_allowed", _NO_ID)
        if head.quarantined:
            return SessionQuarantined(f"Session {head.session_id} is on hold: {head.quarantined}")
        if actor.kind == "slack" and not head.thread_key:
            return RequestRefused("not_allowed", _AT_TERMINAL)
        if not head.thread_key and not self._served(head):
            return SessionError(
                f"This run belongs to a terminal, and none has it open now. Go on there: {self.go_on(head)}"
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
            raise SessionEnded(f"Session {session_id} is {head.status} already; nothing was changed.")
        if problem := self.closed(actor, head):
            raise problem
        return head

    def _served(self, head: Head) -> bool:
        label = "bot" if head.thread_key else terminal_label(head.session_id)
        return label in self._writer.store.serving()


def _request(actor: Actor, head: Head, do: str, fields: dict[str, Json]) -> InboxItem:
    key = f"web:{os.urandom(12).hex()}"
    if actor.kind == "local":
        return remote_commands.item(key, head.session_id, do, actor=actor, **fields)
    payload = encode({"do": do, "user": actor.id, **fields})
    return InboxItem(key, WEB, payload, head.session_id)
