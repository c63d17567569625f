"""Replies instead of an action, to the whole thread or to the author of a row alone; reminders, escalations, and
messages to one person elsewhere.

A row is consumed together with the reply that explains why nothing happened, so that both come once.

A reminder or an escalation is a row that follows from a session's clocks. Each has a key of its own (question, and
count or step), so it is posted once despite any crash. Other channels and people each have a lane of their own: a
refusal by Slack blocks no other, and the thread is told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

from bot.intents.session_rows import direct_row, ephemeral_row, note_to
from bot.outbound.calls import Place, Posted
from bot.outbound.posts import DROPPED, Failed, Outcome, Sent, is_uncertain, position
from bot.outbound.sender import Send, Sender, thread_of
from bot.rendering import clocks
from bot.rendering.approvals import handed_text
from bot.rendering.notes import note
from bot.rendering.text import for_reader
from bot.wire.client import Permanent
from bot.wire.users import LookupFailed, UnknownPerson
from engine.decide.policy import Gate, authorize
from engine.journal.records import Consumed, Head, InboxItem, InboxRow, OutboxRow, PutOutbox, Row
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.run.engine import Engine
from prompt_state.question_row import PromptState, thread_key

log = logging.getLogger("sayso.conversation")


_MOST_LIVING = 10_000
PATIENCE_SECONDS = 30.0
"""Seconds for which a click waits for facts about its author before that person is asked to click again."""


class Notices:
    """Says what came of inbox rows, and consumes them with it."""

    def __init__(
        self, engine: Engine, gate: Gate, find: Callable[[str], Awaitable[PromptState | None]]
    ) -> None:
        self.engine = engine
        self.gate = gate
        self.prompt = find
        """A question by its id, open or not."""

    async def consume(self, row: InboxRow, outcome: str, *rows: Row, result: bytes | None = None) -> bool:
        """The row is done with, and this follows from it."""
        return await self._consume([Consumed(row.id, outcome, result)], rows)

    async def split(self, row: InboxRow, items: Sequence[InboxItem], *rows: Row) -> bool:
        """These rows are in place of this one. Their keys are made of its key, so a crash in between doubles none."""
        await self.engine.writer.ingest(items, self.engine.now())
        return await self.consume(row, "applied", *rows)

    async def put(self, *rows: Row) -> bool:
        """This follows from a row that is done with already."""
        return await self._consume([], rows)

    async def _consume(self, consumed: list[Consumed], rows: Sequence[Row]) -> bool:
        engine = self.engine
        await engine.writer.call(engine.store.consume, consumed, engine.now(), list(rows))
        return True

    # --- reading -------------------------------------------------------------------------------------------

    async def heads(self, thread_key: str | None) -> list[Head]:
        """The sessions of a thread."""
        engine = self.engine
        if thread_key is None:
            return []
        heads: list[Head] = await engine.writer.call(engine.store.sessions.heads, thread_key=thread_key)
        return heads

    async def living(self, channel: str) -> list[Head]:
        """The sessions in a channel that have not ended."""
        engine = self.engine
        heads = await engine.writer.call(
            engine.store.sessions.heads, statuses=("running", "paused"), limit=_MOST_LIVING
        )
        return [head for head in heads if (head.thread_key or "").split(":")[1:2] == [channel]]

    async def stored(self, key: str) -> InboxRow | None:
        """Return the row that arrived under this key, done or not."""
        return await self.engine.writer.call(self.engine.store.inbox.row, key)

    # --- words ---------------------------------------------------------------------------------------------

    async def tell(
        self,
        row: InboxRow,
        data: dict[str, Json],
        text: str,
        outcome: str,
        *,
        blocks: list[Json] | None = None,
        key: str | None = None,
    ) -> bool:
        """Say something in the thread, where everybody sees it; under the same `key` only once."""
        thread_ts = str(data.get("threadTs") or data.get("ts"))
        lane = thread_key(data["team"], data["channel"], thread_ts)
        said = note_to(lane, key or f"note:{row.key}", text, blocks=blocks)
        return await self.consume(row, outcome, said)

    async def whisper(
        self, row: InboxRow, data: dict[str, Json], text: str, outcome: str, *, key: str | None = None
    ) -> bool:
        """Tell only the author; under the same `key` only once."""
        return await self.consume(row, outcome, whispered(row, data, text, key))

    async def look(self, row: InboxRow, data: dict[str, Json], actor: Actor, text: str) -> bool:
        """Tell the state, to everyone who may see it."""
        verdict = authorize(actor, "status", self.gate.target({}, True))
        if not verdict.allowed:
            return await self.whisper(row, data, verdict.reason or "", "refused")
        return await self.tell(row, data, text, "told")

    # --- where Slack does not say who somebody is -----------------------------------------------------------

    async def nobody(self, row: InboxRow, error: UnknownPerson) -> bool:
        """Words of somebody whom Slack does not know count for nothing, and hold up nobody else's."""
        log.warning("%s is ignored: %s", row.key, error)
        return await self.consume(row, "ignored")

    async def not_looked_up(self, row: InboxRow, data: dict[str, Json], error: LookupFailed) -> bool:
        """A press waits for a moment until Slack says who that was; then that person is asked to press again."""
        waited = timestamps.seconds_between(row.received_at, self.engine.now())
        if waited < PATIENCE_SECONDS and not isinstance(error, UnknownPerson):
            return False
        log.warning("press %s given up: %s", row.key, error)
        return await self.whisper(
            row, data, "Slack could not identify you right now. Please press again.", "refused"
        )


def whispered(row: InboxRow, data: dict[str, Json], text: str, key: str | None = None) -> PutOutbox:
    """Words for the author of a row only; they are no mrkdwn. On the app's Home nothing can be said: there a direct
    message says it."""
    key, where = key or f"ephemeral:{row.key}", data.get("from")
    if where is not None:
        said = for_reader(text)
        return (
            direct_row(key, data["user"], said)
            if where == "home"
            else ephemeral_row(key, where, data["user"], None, said)
        )
    return ephemeral_row(key, data["channel"], data["user"], data.get("threadTs"), for_reader(text))


def held(row: InboxRow, error: Exception) -> bool:
    """The row stays in the inbox and is tried again. The log says so once for each reason."""
    _log_held(row.key, str(error))
    return False


@lru_cache(maxsize=1000)
def _log_held(key: str, reason: str) -> None:
    log.warning("%s is held: %s", key, reason)


# --- reminders and escalations -----------------------------------------------------------------------------


class Clocks(Sender):
    """Sends the rows of clocks."""

    def kinds(self) -> dict[str, Send]:
        """By kind of row."""
        return {
            "remind": self.remind,
            "escalate": self.escalate,
            "handed": self.handed,
            "tell": self.tell,
            "direct": self.direct,
        }

    # --- in the thread -------------------------------------------------------------------------------------

    async def remind(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Mention those who are asked. Not where it was answered meanwhile, or a later reminder waits behind this one."""
        state, flow, prompt = await self.about(data)
        if (not prompt.open or prompt.reminders > data["count"]) and not is_uncertain(row):
            return Sent(DROPPED)
        names = await self.ids(prompt)
        text = clocks.reminder(state, prompt, flow, names, data["count"], await self._link(prompt))
        return await self._in_thread(row, state, text)

    async def escalate(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Mention the others in the thread, and say who is told elsewhere."""
        state, flow, prompt = await self.about(data)
        if not prompt.open and not is_uncertain(row):
            return Sent(DROPPED)
        told = prompt.escalate[data["step"]]["to"]
        asked = prompt.approvers or prompt.who or ()
        names = await self.names(map(str, [*asked, *(entry.removeprefix("dm:") for entry in told)]))
        text = clocks.escalation(state, prompt, flow, names, data["step"], await self._link(prompt))
        return await self._in_thread(row, state, text)

    async def handed(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Mention the person who was handed a prompt, even if only an e-mail address was given. Skipped if it has ended."""
        state, _, prompt = await self.about(data)
        if not prompt.open and not is_uncertain(row):
            return Sent(DROPPED)
        to = str(data["to"])
        known = await self.names([to])
        return await self._in_thread(row, state, handed_text(prompt, data["by"], known.get(to, to)))

    async def _link(self, prompt: Asked) -> str | None:
        """The address of a prompt's message."""
        shown = prompt.shown or {}
        where = Posted(shown["channel"], shown["ts"]) if shown.get("ts") else None
        return await self.link(where, shown.get("threadTs"))

    async def _in_thread(self, row: OutboxRow, state: State, text: str) -> Outcome:
        return Sent(position(await self.poster.once(row, thread_of(state), note(text, row.key))))

    # --- elsewhere -----------------------------------------------------------------------------------------

    async def tell(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post in another channel or a direct message. What Slack refuses for good is said in the thread."""
        state = await self.state_at(data)
        text = await self._text(row, data, state)
        if text is None:
            return Sent(DROPPED)
        try:
            channel = await self.places.channel(data["to"], state.actor)
            posted = await self.poster.once(row, Place(channel), note(text, row.key))
        except Permanent as fault:
            log.warning("%s: %s", row.key, fault)
            if data["about"] == "escalation":
                told = clocks.refused_target(data["to"], str(fault))
                lane = str((state.thread or {})["key"])
                note_row = note_to(lane, f"{row.key}:refused", told, session_id=state.session_id)
                await self.ledger.put([note_row])
            return Failed({"error": fault.reason, "message": str(fault)})
        return Sent(position(posted))

    async def direct(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """A direct message that belongs to no session."""
        channel = await self.places.channel(f"dm:{data['person']}", None)
        return Sent(position(await self.poster.once(row, Place(channel), note(data["text"], row.key))))

    async def _text(self, row: OutboxRow, data: dict[str, Json], state: State) -> str | None:
        """Return the message, or None if it no longer applies."""
        flow = await self.sessions.flow(state.session_id)
        if data["about"] == "unreachable":
            if state.phase != "unreachable" and not is_uncertain(row):
                return None
            return clocks.out_of_reach(state, flow, data["reason"], data.get("until"))
        _, _, prompt = await self.about(data)
        if not prompt.open and not is_uncertain(row):
            return None
        if data["about"] == "deleted":
            return clocks.deleted_too_often(state, prompt, flow)
        return clocks.told_elsewhere(state, prompt, flow, await self._link(prompt))
