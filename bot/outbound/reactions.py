"""Reactions on messages: what was taken or refused, and how a run stands on the message that started it.

They are the least of what people see, so nothing waits for them, and what Slack refuses of them is no error. A message
gets at most two marks for a run and loses at most one: the first one is left out where the run is over by then, and the
next try of a run leaves that of the one before it until it is over itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bot.outbound.calls import UNREACT, Posted
from bot.outbound.posts import DROPPED, Outcome, Sent, result_of
from bot.outbound.sender import Send, Sender
from bot.rendering.marks import WAITING
from bot.wire.client import Permanent
from engine.journal.records import OutboxRow
from engine.language.codec import Json

log = logging.getLogger("sayso.outbound")

DROP_SECONDS = 120.0
"""Seconds for which a mark waits for its turn on a message without one: then it is dropped."""


def is_first(row: OutboxRow) -> bool:
    """True if the message has no mark of this run, nor of an earlier try."""
    return row.kind == "mark" and "name" not in result_of(row)


@dataclass(eq=False, repr=False)
class Reactions(Sender):
    """Sends reactions, until Slack says that the app may not."""

    allowed: bool = True

    def kinds(self) -> dict[str, Send]:
        """By kind of row."""
        return {"reaction": self.reaction, "mark": self.mark}

    async def reaction(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Add one reaction."""
        try:
            if self.allowed:
                await self.calls.react(Posted(data["channel"], data["ts"]), data["name"])
        except Permanent as fault:
            self._refused(fault)
        return Sent({"done": True})

    async def mark(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Show how a run stands, then take away what stood there before. What is done is recorded in between: a process that
        dies there repeats a call that changes nothing."""
        where, name, before = Posted(data["channel"], data["ts"]), data["name"], result_of(row)
        shown, over = before.get("name"), before.get("over", [])
        if not self.allowed:
            return Sent(DROPPED)
        if name == WAITING.reaction and shown is not None:
            name = shown
        if name == WAITING.reaction and not self.calls.budget.fits(UNREACT):
            return Sent(DROPPED)
        try:
            if shown != name:
                await self.calls.react(where, name)
                over = [one for one in (*over, shown) if one not in (None, name)]
                if over:
                    await self.ledger.keep(row, {"name": name, "over": over})
            for one in over:
                await self.calls.unreact(where, one)
        except Permanent as fault:
            self._refused(fault)
        return Sent({"name": name})

    def _refused(self, fault: Permanent) -> None:
        """The message may be gone, or takes no more reactions. Without the right to react there are none from now on."""
        if fault.reason != "missing_scope":
            log.info("a reaction was not taken: %s", fault)
        elif self.allowed:
            self.allowed = False
            log.warning(
                "Reactions are off until sayso restarts: the app lacks the scope reactions:write (sayso manifest)."
            )
