"""What is said in place of doing something: to the whole thread, or to the author of a row alone.

A row is consumed together with the words that tell its author why nothing was caused, so that both come once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TypeAlias

from bot.intents.session_rows import ephemeral_row, note_row
from bot.rendering.text import for_reader
from bot.wire.users import LookupFailed, UnknownPerson
from engine.decide.policy import Gate, authorize
from engine.journal.records import Consumed, InboxRow, PutOutbox, Row
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.run.engine import Engine
from prompt_state.question_row import thread_key

log = logging.getLogger("sayso.conversation")

Handler: TypeAlias = Callable[[InboxRow], Awaitable[bool]]
"""Handles an inbox row; False holds it."""

PATIENCE_SECONDS = 30.0
"""How long a press waits for facts about its author before that person is asked to press again."""


class Notices:
    """Says what came of inbox rows, and consumes them with it."""

    def __init__(self, engine: Engine, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate

    async def consume(self, row: InboxRow, outcome: str, *rows: Row) -> None:
        """The row is done with, and this follows from it."""
        await self._engine.writer.call(
            self._engine.store.consume, [Consumed(row.id, outcome)], self._engine.now(), list(rows)
        )

    async def tell(
        self,
        row: InboxRow,
        data: dict[str, Json],
        text: str,
        outcome: str,
        *,
        thread_ts: str | None = None,
        blocks: list[Json] | None = None,
        key: str | None = None,
    ) -> bool:
        """Say something in the thread, where everybody sees it; under the same `key` only once."""
        thread_ts = thread_ts or str(data.get("threadTs") or data.get("ts"))
        lane = thread_key(data["team"], data["channel"], thread_ts)
        said = note_row(key or f"note:{row.key}", lane, data["channel"], thread_ts, text, blocks=blocks)
        await self.consume(row, outcome, said)
        return True

    async def whisper(
        self, row: InboxRow, data: dict[str, Json], text: str, outcome: str, *, key: str | None = None
    ) -> bool:
        """Tell only the author; under the same `key` only once."""
        await self.consume(row, outcome, whispered(row, data, text, key))
        return True

    async def look(self, row: InboxRow, data: dict[str, Json], actor: Actor, text: str) -> bool:
        """Say how things stand, to whoever may see it."""
        verdict = authorize(actor, "status", self._gate.target({}, True))
        if not verdict.allowed:
            return await self.whisper(row, data, verdict.reason or "", "refused")
        return await self.tell(row, data, text, "told")

    # --- where Slack does not say who somebody is -----------------------------------------------------------

    async def nobody(self, row: InboxRow, error: UnknownPerson) -> bool:
        """Words of somebody whom Slack does not know count for nothing, and hold up nobody else's."""
        log.warning("%s is ignored: %s", row.key, error)
        await self.consume(row, "ignored")
        return True

    async def not_looked_up(self, row: InboxRow, data: dict[str, Json], error: LookupFailed) -> bool:
        """A press waits for a moment until Slack says who that was; then that person is asked to press again."""
        waited = timestamps.seconds_between(row.received_at, self._engine.now())
        if waited < PATIENCE_SECONDS and not isinstance(error, UnknownPerson):
            return False
        log.warning("press %s given up: %s", row.key, error)
        return await self.whisper(
            row, data, "Slack could not say who you are just now. Please press again.", "refused"
        )


def whispered(row: InboxRow, data: dict[str, Json], text: str, key: str | None = None) -> PutOutbox:
    """Words for the author of a row only; they are no mrkdwn."""
    key = key or f"ephemeral:{row.key}"
    return ephemeral_row(key, data["channel"], data["user"], data.get("threadTs"), for_reader(text))


def held(row: InboxRow, error: Exception) -> bool:
    """The row stays in the inbox and is tried again. The log says so once for each reason."""
    _log_held(row.key, str(error))
    return False


def retried(handle: Handler) -> Handler:
    """A handler whose row is held while Slack does not answer a lookup."""

    async def handler(row: InboxRow) -> bool:
        try:
            return await handle(row)
        except LookupFailed as error:
            return held(row, error)

    return handler


@lru_cache(maxsize=1000)
def _log_held(key: str, reason: str) -> None:
    log.warning("%s is held: %s", key, reason)
