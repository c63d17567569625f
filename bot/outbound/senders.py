"""Sending of rows, each by its kind. Rendered from the session as it is now, not as it was when the row was written."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bot.faces.end import end
from bot.faces.run import holder_thread
from bot.outbound.calls import AGENT_REFUSED, DELETED, Place, Posted
from bot.outbound.deliveries import undelivered
from bot.outbound.posts import (
    DROPPED,
    Failed,
    Outcome,
    Sent,
    is_uncertain,
    position,
    posted_of,
    result_of,
)
from bot.outbound.sender import Send, Sender, root_of, thread_of
from bot.rendering.blocks import Rendered
from bot.rendering.calls import REQUESTS, tally
from bot.rendering.notes import end_note, note
from bot.rendering.text import addresses, mentioning
from bot.wire.client import Permanent
from engine.journal.phases import ENDED
from engine.journal.records import InboxItem, OutboxRow
from engine.language.codec import Json, decode, encode
from engine.language.errors import SchemaTooNew
from prompt_state.question_row import thread_key

log = logging.getLogger("sayso.outbound")

_GONE = (*DELETED, "channel_not_found", "is_archived", "not_in_channel")


@dataclass(eq=False, repr=False)
class Rows(Sender):
    """Sends every row: messages by itself, and all others through those whose kinds they are."""

    bot_user_id: str
    others: Mapping[str, Send]

    def __post_init__(self) -> None:
        self._kinds: dict[str, Send] = {
            "note": self._note,
            "edit": self._edit,
            "root": self._root,
            "tally": self._tally,
            "ephemeral": self._ephemeral,
            "respond": self._respond,
            "status": self._status,
            "suggest": self._suggest,
            **self.others,
        }

    async def send(self, row: OutboxRow) -> Outcome:
        """Do what the row says."""
        send = self._kinds.get(row.kind)
        if send is None:
            raise SchemaTooNew(f"This release sends no rows of kind {row.kind!r}.")
        return await send(row, decode(row.payload))

    def refused(self, row: OutboxRow, reason: str, message: str) -> Failed:
        """Return the effects of a row that Slack refuses for good."""
        result: dict[str, Json] = {**result_of(row), "error": reason, "message": message}
        if posted_of(row) is not None:
            result["gone"] = reason in _GONE
        if row.kind == "root":
            return Failed(result, [_rooted(decode(row.payload), {"refused": reason})])
        return Failed(result, undelivered(row, message) if row.kind == "message" else ())

    # --- messages ------------------------------------------------------------------------------------------

    async def _note(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        if "text" not in data:
            state = await self.state_at(data)
            flow = await self.sessions.flow(state.session_id)
            holder = await self.link(root_of(holder_thread(state.error)))
            said = end(state, flow, by=data.get("by"), reason=data.get("reason"), holder=holder)
            message = end_note(said, row.key, self.bot_user_id)
            return Sent(position(await self.poster.once(row, thread_of(state), message)))
        message = note(data["text"], row.key)
        if data.get("blocks"):
            message = Rendered(message.text, data["blocks"], message.metadata)
        place = Place(data["channel"], data.get("threadTs"))
        return Sent(position(await self.poster.once(row, place, message)))

    async def _edit(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        where = Posted(data["channel"], data["ts"])
        await self.calls.edit(where, note(data["text"]))
        return Sent(position(where))

    async def _root(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post the message that a thread begins with, and continue with what was to happen in it."""
        posted = await self.poster.once(row, Place(data["channel"]), note(data["text"], row.key))
        return Sent(position(posted), [_rooted(data, {"posted": position(posted)})])

    async def _tally(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Count the requests of a thread in the message that it begins with."""
        root = await self.ledger.row(data["root"])
        where, writer = posted_of(root), self.ledger.writer
        if root is None or where is None:
            return Sent(DROPPED)
        heads = await writer.call(writer.store.sessions.heads, thread_key=data["thread"], limit=None)
        asked = [head for head in heads if head.flow_name in REQUESTS]
        waiting = sum(head.status not in ENDED for head in asked)
        text = f"{decode(root.payload)['text']}\n{tally(len(asked), waiting)}"
        await self.calls.edit(where, note(text, root.key))
        return Sent(position(where))

    # --- what is seen by one person, or is not a message ------------------------------------------------------

    async def _ephemeral(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        place = Place(data["channel"], data.get("threadTs"))
        text = await self._mentioning(data["text"])
        return await self._at_most_once(row, self.calls.whisper, place, data["user"], note(text))

    async def _respond(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        text = await self._mentioning(data["text"])
        return await self._at_most_once(row, self.calls.respond, data["responseUrl"], note(text).text)

    async def _mentioning(self, text: str) -> str:
        """A text for one reader, with mentions instead of the e-mail addresses that Slack knows."""
        return mentioning(text, await self.names(addresses(text)))

    async def _at_most_once(
        self, row: OutboxRow, send: Callable[..., Awaitable[None]], *args: object
    ) -> Outcome:
        """Nobody can look up what only one person sees, so what may have been seen is not sent again, unless it says
        something else now."""
        if is_uncertain(row):
            return Failed({"error": "outcome_unknown"})
        await self.ledger.attempt(row)
        await send(*args)
        return Sent({"done": True, "attempt": row.attempts + 1})

    async def _status(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        place = Place(data["channel"], data["threadTs"])
        tell = self.calls.set_status(place, data["status"], data["title"], data["by"])
        return await self._as_agent(tell)

    async def _suggest(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        return await self._as_agent(self.calls.suggest(data["channel"], data["prompts"]))

    async def _as_agent(self, call: Awaitable[None]) -> Outcome:
        """Make a call for agents only. A refusal by Slack is harmless and only noted."""
        try:
            await call
        except Permanent as fault:
            log.info("Slack refuses agent features: %s", fault)
            await self.ledger.note(AGENT_REFUSED, str(fault))
        return Sent({"done": True})


def _rooted(data: dict[str, Json], outcome: dict[str, Json]) -> InboxItem:
    """Return the effect of a message that was to begin a thread: it was posted, or Slack refused it. In its thread's
    lane, so that replies there wait for it."""
    then, posted = data["then"], outcome.get("posted")
    payload = {**then.get("payload", {}), **outcome}
    team = payload.get("team")
    lane = thread_key(team, posted["channel"], posted["ts"]) if posted and team else None
    return InboxItem(then["key"], then["kind"], encode(payload), thread_key=lane)
