"""Shared parts of everything that sends rows: the store, the calls, and lookups of sessions, channels and people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bot.outbound.calls import Calls, Hold, Place, Posted
from bot.outbound.destinations import Names, Places
from bot.outbound.posts import Ledger, Outcome, Poster, Sessions
from bot.wire.client import Permanent
from engine.flow import Flow
from engine.journal.records import OutboxRow
from engine.journal.state import Asked, State
from engine.language.codec import Json

log = logging.getLogger("sayso.outbound")

Send: TypeAlias = Callable[[OutboxRow, dict[str, Json]], Awaitable[Outcome]]
"""Sends a row. Raises `Hold` where the row has to wait, and `SlackFault` where Slack did not do it."""

STALE_SECONDS = 0.1
"""Seconds to wait for a state that has not caught up with its row."""

LINK_SECONDS = 3.0
"""A message without an address in it rather than one much later."""


@dataclass(eq=False, repr=False)
class Sender:
    """Sends some kinds of rows."""

    ledger: Ledger
    calls: Calls
    poster: Poster
    places: Places
    names: Names
    sessions: Sessions

    async def state_at(self, data: dict[str, Json]) -> State:
        """The session of a row as it is now. Raises `Hold` where the row is ahead of what is known."""
        state = await self.sessions.state(data["sessionId"])
        if state.seq < data.get("seq", 0):
            raise Hold(STALE_SECONDS, f"{state.session_id} is not at {data['seq']} yet")
        return state

    async def about(self, data: dict[str, Json]) -> tuple[State, Flow, Asked]:
        """The prompt that a row is about, in its session as it is now. Raises `Hold` as `state_at`."""
        state = await self.state_at(data)
        prompt = state.prompts.get(data["promptId"])
        if prompt is None:
            raise Hold(STALE_SECONDS, f"{data['promptId']} is ahead of its session")
        return state, await self.sessions.flow(data["sessionId"]), prompt

    async def ids(self, *prompts: Asked) -> Mapping[str, str]:
        """The ids of those who are asked, as far as Slack knows them."""
        lists = [prompt.approvers or prompt.who or () for prompt in prompts]
        return await self.names(str(entry) for entries in lists for entry in entries)

    async def link(self, where: Posted | None, thread_ts: str | None = None) -> str | None:
        """The address of a message, in its thread; None where Slack does not give it in time."""
        if where is None:
            return None
        try:
            async with asyncio.timeout(LINK_SECONDS):
                return await self.calls.permalink(where, thread_ts)
        except Exception as error:
            log.info("the address of a message is not known: %s", error)
            return None


def thread_of(state: State) -> Place:
    """Return the thread of a session. Raises `Permanent` if it has none."""
    if not state.thread:
        raise Permanent("no_thread", f"{state.session_id} has no thread")
    return Place(state.thread["channel"], state.thread["threadTs"])


def root_of(thread: str | None) -> Posted | None:
    """Return the message that the thread with this key begins with."""
    return None if thread is None else Posted(*thread.split(":", 2)[1:])
