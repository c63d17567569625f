"""Reactions on messages: what was taken or refused, and how a run is on the message that started it.

They are the least of what people see, so nothing waits for them, and what Slack refuses of them is not an error. A message
has the mark of each run that it started. It gets at most two for a run and loses at most one: the first one is left out
where the run has ended by then, and the next try of a run leaves that of the one before it until it has ended itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from bot.faces.marks import WAITING, reaction_of
from bot.outbound.calls import UNREACT, Hold, Posted
from bot.outbound.posts import DROPPED, Outcome, Sent, result_of
from bot.outbound.sender import STALE_SECONDS, Send, Sender
from bot.wire.client import Permanent
from engine.journal.phases import ENDED
from engine.journal.records import Head, OutboxRow
from engine.language.codec import Json

log = logging.getLogger("sayso.outbound")

DROP_SECONDS = 120.0
"""Seconds for which a mark waits for its turn on a message without one: then it is dropped."""


def is_first(row: OutboxRow) -> bool:
    """True if the message has no mark of this run, nor of an earlier try, and none that may be there."""
    return row.kind == "mark" and not {"name", "unsure"} & result_of(row).keys()


@dataclass(eq=False, repr=False)
class Reactions(Sender):
    """Sends reactions, until Slack says that the app may not."""

    allowed: bool = True

    def kinds(self) -> dict[str, Send]:
        """By kind of row."""
        return {"reaction": self.reaction, "mark": self.mark}

    async def reaction(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Add one reaction."""
        if self.allowed:
            await self._done(self.calls.react(Posted(data["channel"], data["ts"]), data["name"]))
        return Sent({"done": True})

    async def mark(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show how the runs of this flow stand that the message started, then take away what stands for none of its runs any
        more. What is about to be changed is recorded before: an answer can be lost, and the runs may then stand otherwise."""
        if not self.allowed:
            return Sent(DROPPED)
        where, before = Posted(data["channel"], data["ts"]), result_of(row)
        runs = await self._runs(row, data)
        wanted = {name for _, name in runs}
        put = [one for one in (*before.get("over", ()), before.get("name")) if one]
        unsure = [one for one in before.get("unsure", ()) if one not in put]
        new = [one for one in dict.fromkeys(name for is_own, name in runs if is_own) if one not in put]
        if WAITING.reaction in new and not self.calls.budget.fits(UNREACT):
            new.remove(WAITING.reaction)
        over = [one for one in [*unsure, *put] if one not in wanted]
        stay = [one for one in put if one in wanted]
        if new or over:
            await self.ledger.keep(row, {**_record(stay), "unsure": [*over, *new]})
        refused = [name for name in new if not await self._done(self.calls.react(where, name))]
        for one in over:
            await self._done(self.calls.unreact(where, one))
        for name in refused if over and self.allowed else ():
            # A message takes so many reactions of one app: now there is room.
            await self._done(self.calls.react(where, name))
        return Sent(_record([*stay, *new]))

    async def _runs(self, row: OutboxRow, data: dict[str, Json]) -> list[tuple[bool, str]]:
        """The mark of each run that the message started, with True for the runs of this row's flow. Of the tries of a run the
        last one that has ended counts, or else the first."""
        own, writer = await self.ledger.head(row.session_id or ""), self.ledger.writer
        if own is None or own.thread_key is None:
            return [(True, data["name"])]
        heads: list[Head] = await writer.call(
            writer.store.sessions.heads, thread_key=own.thread_key, limit=None
        )
        known = {head.session_id for head in heads}
        tried = {head.parent_session_id for head in heads if head.status in ENDED}
        found = []
        for head in reversed(heads):
            again = head.parent_session_id in known and head.status not in ENDED
            if head.quarantined is None and head.session_id not in tried and not again:
                state = await self.sessions.state(head.session_id)
                if state.seq < head.seq:
                    raise Hold(STALE_SECONDS, f"{head.session_id} is not at {head.seq} yet")
                if (state.thread or {}).get("messageTs") == data["ts"]:
                    found.append((head.flow_name == own.flow_name, reaction_of(state)))
        return found

    async def _done(self, call: Awaitable[None]) -> bool:
        """Make a call; False where Slack refuses it."""
        try:
            await call
        except Permanent as fault:
            # The message may be gone, or takes no more reactions. Without the right to react there are none from now on.
            if fault.reason != "missing_scope":
                log.info("a reaction failed: %s", fault)
            elif self.allowed:
                self.allowed = False
                log.warning(
                    "Reactions are off until sayso restarts: the app lacks the scope reactions:write (sayso manifest)."
                )
            return False
        return True


def _record(put: Sequence[str]) -> dict[str, Json]:
    """The marks that a row has put on its message: the latest as `name`, the others as `over`."""
    if not put:
        return DROPPED
    return {"name": put[-1], "over": list(put[:-1])} if put[1:] else {"name": put[-1]}
