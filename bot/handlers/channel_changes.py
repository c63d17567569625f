"""Changes of channels and of our messages: archived, left, rejoined, deleted. Inbox rows → commands. Also the notes
about dead letters, and about sessions that do not verify.

These events only speed up what posting finds out anyway (`bot.outbound.destinations`), so a lost one costs only time.
Only the deletion of a question's message is known from its event alone, until it is edited.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from bot.inbound import decisions
from bot.intents.session_rows import direct_row, note_to, question_key, sharing, tell_requester
from bot.outbound.notices import Notices
from bot.outbound.posts import opens
from bot.rendering import phrases
from bot.rendering.card import card_key
from engine.decide.commands import Command, Gone, Unreachable
from engine.decide.prompt_timers import MOST_REPOSTS
from engine.journal.records import Consumed, Head, InboxRow, Row
from engine.language.actors import CHANNEL, Actor
from engine.language.codec import decode
from engine.language.errors import Refused, SaysoError, SessionError, StorageError
from engine.run.engine import Engine
from prompt_state import question_row as prompts
from prompt_state.question_row import PromptState

log = logging.getLogger("sayso.changes")


class ChannelChanges:
    """Handlers for changes of channels and messages. `back` is called with channels that take posts again."""

    def __init__(self, notices: Notices, back: Callable[[str], Awaitable[None]]) -> None:
        self._notices = notices
        self._engine = notices.engine
        self._back = back

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """Return the handlers by kind of inbox row."""
        return {
            decisions.CHANNEL: self.channel,
            decisions.DELETED: self.deleted,
            decisions.SHARED: self.shared,
        }

    async def channel(self, row: InboxRow) -> bool:
        """A channel was closed to the bot, or opened."""
        data = decode(row.payload)
        if data["reason"] is None:
            await self._back(data["channel"])
            return await self._notices.consume(row, "applied")
        for head in await self._notices.living(data["channel"]):
            await self._apply(head.session_id, Unreachable(data["reason"]))
        return await self._notices.consume(row, "applied")

    async def shared(self, row: InboxRow) -> bool:
        """Pause the runs of a channel that another organisation can now read, until somebody who may steer them says
        `resume`."""
        channel = decode(row.payload)["channel"]
        said: list[Row] = []
        for head in await self._notices.living(channel):
            if head.phase == "held":
                continue
            try:
                reason = "because this channel is shared with another organisation now"
                await self._engine.pause(head.session_id, actor=Actor.itself(CHANNEL), reason=reason)
            except (SessionError, Refused) as error:
                log.info("%s is not paused: %s", head.session_id, error)
                continue
            note_key = f"shared:{row.key}:{head.session_id}"
            said.append(note_to(head.thread_key or "", note_key, phrases.shared_text(head.flow_name)))
        return await self._notices.consume(row, "applied", *said)

    async def deleted(self, row: InboxRow) -> bool:
        """A message of ours was deleted: if it showed an open question, that is shown again."""
        data = decode(row.payload)
        store = self._engine.writer.store
        open_here = await self._engine.writer.call(prompts.waiting, store.prompts, thread_key=row.thread_key)
        lost = [prompt for prompt in open_here if prompt.message_ts == data["ts"]]
        for other in lost[1:]:  # calls that shared a message; none of them was shown anew before
            await self._apply(other.session_id, Gone(other.prompt_id, data["ts"]))
        if lost:
            session_id, prompt_id = lost[0].session_id, lost[0].prompt_id
            state = await self._engine.verified_state(session_id)
            prompt = state.prompts.get(prompt_id)
            if prompt is not None and prompt.reposts >= MOST_REPOSTS:
                rows = tell_requester(state, f"deleted:{prompt_id}", "deleted", promptId=prompt_id)
                return await self._notices.consume(row, "refused", *rows)
            consumed = [Consumed(row.id, "applied")]
            await self._engine.apply(session_id, Gone(prompt_id, data["ts"]), consumed=consumed)
            return True
        if any([await self._being_posted(prompt) for prompt in open_here]):
            # It may be this very message, whose location is not recorded yet.
            return False
        return await self._notices.consume(row, "ignored")

    async def _being_posted(self, prompt: PromptState) -> bool:
        if prompt.status != "requested":
            return False
        state = await self._engine.verified_state(prompt.session_id)
        slot = question_key(sharing(state, state.prompts[prompt.prompt_id])[0])
        writer, row_of = self._engine.writer, self._engine.store.outbox.row
        posting = await writer.call(row_of, slot)
        if posting is None or posting.state == "failed":
            return False
        card = await writer.call(row_of, card_key(prompt.session_id))
        on_card = card is not None and opens(card) == prompt.prompt_id
        return posting.attempts > 0 or on_card

    async def _apply(self, session_id: str, command: Command) -> None:
        try:
            await self._engine.apply(session_id, command)
        except StorageError:
            raise
        except SaysoError as error:
            log.info("%s: %s", session_id, error)


class DeadLetters:
    """Makes the intents for rows that are set aside."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def told(self, row: InboxRow) -> Sequence[Row]:
        """Return the intents that report it; empty for rows without an author, as when a channel was archived."""
        # A retry under another id that failed again is reported again.
        key, thread = f"dead:{row.key}:{row.id}", row.thread_key
        if thread is None and row.session_id is not None:
            thread = (await self._engine.head(row.session_id)).thread_key
        if thread is not None:
            return [note_to(thread, key, phrases.dead_letter_text(row.key))]
        person = decode(row.payload).get("user")
        return [direct_row(key, person, phrases.dead_letter_text(row.key))] if person else ()


def quarantine_rows(head: Head, lacks: str | None) -> Sequence[Row]:
    """Return the note to the thread of a session whose records do not verify, or that lacks a node type here."""
    return _note(head, "quarantine", phrases.quarantine_text(head.flow_name, head.session_id, lacks))


def newer_rows(head: Head) -> Sequence[Row]:
    """Return the note to the thread of a session that is left to a newer release."""
    return _note(head, "newer", phrases.newer_text(head.flow_name))


def _note(head: Head, about: str, text: str) -> Sequence[Row]:
    key = f"{about}:{head.session_id}"
    return [] if head.thread_key is None else [note_to(head.thread_key, key, text)]
