"""What everything that sends rows has: the store, the calls, and lookups of sessions, channels and people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from bot.outbound.calls import Calls, Place, Posted
from bot.outbound.destinations import Names, Places
from bot.outbound.posts import Outcome, Poster, Sessions
from bot.wire.client import Permanent
from engine.journal.records import OutboxRow
from engine.journal.state import State
from engine.language.codec import Json
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.outbound")

Send: TypeAlias = Callable[[OutboxRow, dict[str, Json]], Awaitable[Outcome]]
"""Sends a row. Raises `Hold` where the row has to wait, and `SlackFault` where Slack did not do it."""

STALE_SECONDS = 0.1
"""How long to wait for a state that has not caught up with its row."""

LINK_SECONDS = 3.0
"""A message without an address in it rather than one much later."""


@dataclass(eq=False, repr=False)
class Sender:
    """Sends some kinds of rows."""

    writer: Writer
    calls: Calls
    poster: Poster
    places: Places
    names: Names
    sessions: Sessions
    now: Callable[[], str]

    async def link(self, where: Posted) -> str | None:
        """The address of a message; None where Slack does not give it in time."""
        try:
            async with asyncio.timeout(LINK_SECONDS):
                return await self.calls.permalink(where)
        except Exception as error:
            log.info("the address of a message is not known: %s", error)
            return None


def thread_of(state: State) -> Place:
    """Where a session lives. Raises `Permanent` for one that has no thread."""
    if not state.thread:
        raise Permanent("no_thread", f"{state.session_id} lives in no thread")
    return Place(state.thread["channel"], state.thread["threadTs"])
