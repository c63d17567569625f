"""Cost of model calls as rows beside a step's events: reserved when a call begins, settled when it has ended. Pure.

A call that was cut off, lost in a crash, or failed during its answer keeps its reservation: it may have been charged,
and the daily cap must hold. A call that was not sent, or was refused before any answer, costs nothing, as its event
says (`engine.decide.outages`), so an hour of refusals does not use up the day. A settled cost counts on the day its
call began.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal

from msgspec import Struct

from engine.journal.events import CallOutcome, Event, Failure, Start
from engine.journal.queries import TURN
from engine.journal.records import NANO, PutSpend, Row, SettleSpend
from engine.journal.state import State
from engine.language.codec import Json


def nanos(dollars: Json) -> int:
    """Dollars as billionths, never less than they are."""
    return int((Decimal(str(dollars)) * NANO).to_integral_value(ROUND_CEILING))


class SpendRows(Struct, frozen=True):
    """The extension that writes them, with the cap of a day in dollars (UTC days); None is without one."""

    cap: Decimal | None = None

    def __call__(self, before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
        """Return the reservations and settlements of a step. A journal imported as a whole (a fork, an imported
        session) has calls that ended, which were paid for elsewhere."""
        rows: list[Row] = []
        for event in events:
            if isinstance(event, Start):
                run = after.nodes.get(event.path or "")
                reserved = (event.input or {}).get("reserved") if event.node_type == TURN else None
                is_it = run is not None and (run.status, run.attempt) == ("started", event.attempt)
                if reserved is not None and is_it:
                    row = PutSpend(
                        session_id=after.session_id,
                        path=event.path or "",
                        attempt=event.attempt,
                        flow_name=after.flow_name,
                        day=event.timestamp[:10],
                        amount=nanos(reserved),
                        cap=None if self.cap is None or event.input.get("exempt") else nanos(self.cap),
                    )
                    rows.append(row)
            elif isinstance(event, CallOutcome):
                rows += _ended(before, after, event)
            elif isinstance(event, Failure):
                # A call that cost nothing frees its reservation; the next attempt reserves again.
                run = before.nodes.get(event.path or "")
                if run is not None and run.status == "started" and event.unpaid:
                    rows.append(SettleSpend(after.session_id, event.path or "", run.attempt, 0))
        return rows

    about = (Start, CallOutcome, Failure)
    """Events that can produce rows."""


def _ended(before: State, after: State, event: CallOutcome) -> list[Row]:
    run = before.nodes.get(event.turn or "")
    if event.turn is None or event.cost is None or run is None:
        return []
    return [SettleSpend(after.session_id, event.turn, run.attempt, nanos(event.cost), event.sure)]
