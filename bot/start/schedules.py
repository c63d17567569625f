"""Starts flows at the times that they name. Durable: a time is ingested under a key of its own, so it counts once
whatever is killed, and a mark says up to when times were looked at.

After a gap only the latest missed time is made up for, and only if it is not too long ago: nobody wants last night's
report twelve times. A clock that jumps back fires nothing twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

from bot.config.library import Library
from bot.inbound.triggers import Listening
from engine.flow import Flow
from engine.flow.model import Trigger
from engine.journal.records import InboxItem
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.errors import StorageError
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.schedules")

WANTED = "slack.wanted"
WANTED_ROOTED = "slack.wanted_rooted"
"""Kinds of inbox rows: what is wanted, and the same once its message stands."""


def wanted_item(
    key: str,
    flow: str,
    place: str,
    inputs: Mapping[str, Json],
    *,
    why: str,
    icon: str = "⏰",
    local: str | None = None,
    account: str | None = None,
    user: str | None = None,
    by: str = "schedule",
) -> InboxItem:
    """A flow that is wanted in a channel, by id or `#name`. `why` stands on its message, after the `icon` of what started
    it, if that was nobody; `local` is who wants it at the
    terminal, from which `account`; `user` the id of somebody of Slack; `by` the part of sayso that does otherwise."""
    data: dict[str, Json] = {
        "flow": flow,
        "place": place,
        "inputs": dict(inputs),
        "why": why,
        "icon": icon,
        "local": local,
        "by": by,
        **({"account": account} if account else {}),
        **({"user": user} if user else {}),
    }
    return InboxItem(key, WANTED, encode(data))


LOOK_SECONDS = 20.0
"""Longest interval in seconds between looks at the clock: files change, and clocks jump."""

GRACE_SECONDS = 90.0
"""Seconds by which a time may be noticed late without counting as missed."""


@dataclass(eq=False, repr=False)
class Schedules:
    """The schedules of the served flows."""

    library: Library
    writer: Writer
    _: KW_ONLY
    now: Callable[[], str]
    taken: Callable[[], None]
    jumped: Callable[[], bool] = lambda: False

    async def run(self) -> None:
        """Look whenever a time may have come, forever."""
        while True:
            wait = await self.look()
            await asyncio.sleep(min(wait, LOOK_SECONDS))

    async def look(self) -> float:
        """Ingest what is due now; seconds until the next time of all schedules. A clock that jumped is confirmed first."""
        if self.jumped():
            return LOOK_SECONDS
        now = timestamps.from_text(self.now())
        wait = float("inf")
        for flow, trigger in Listening(self.library.refresh).triggers("schedule"):
            try:
                await self._look_at(flow, trigger, now)
            except StorageError as error:
                log.error("the schedule %s of %s is checked later: %s", trigger.pattern, flow.name, error)
            except Exception:
                # One flow's schedule must not keep the others back; what it missed is made up for at the next look.
                log.exception("the schedule %s of %s was not checked", trigger.pattern, flow.name)
            wait = min(wait, (following(trigger, now) - now).total_seconds())
        return max(0.05, wait)

    async def _look_at(self, flow: Flow, trigger: Trigger, now: datetime) -> None:
        text = "\n".join((trigger.pattern, trigger.timezone, trigger.channel or ""))
        scope = f"schedule:{flow.name}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        mark = await self.writer.call(self.writer.store.marks.ts, scope)
        if mark is None:
            # Seen for the first time: what was before is not for it.
            await self.writer.call(self.writer.store.marks.move, scope, f"{now.timestamp():.6f}")
            return
        latest = latest_before(trigger, now)
        if latest.timestamp() <= float(mark):
            return
        late = (now - latest).total_seconds()
        when = timestamps.to_text(latest)
        if late > max(trigger.missed, GRACE_SECONDS):
            log.warning("%s was due at %s, which is too long ago to catch up", flow.name, when)
        else:
            why = f"scheduled: {trigger.pattern} ({trigger.timezone})"
            if late > GRACE_SECONDS:
                why += f", due at {when}, caught up now"
            place = trigger.channel or ""
            item = wanted_item(f"{scope}:{when}", flow.name, place, trigger.values, why=why)
            if (await self.writer.ingest([item], self.now()))[0] is not None:
                self.taken()
        await self.writer.call(self.writer.store.marks.move, scope, f"{latest.timestamp():.6f}")


def latest_before(trigger: Trigger, now: datetime) -> datetime:
    """The last time of a schedule that is not after `now`, in UTC."""
    # The library gives times before the one it is told.
    local = (now + timedelta(seconds=1)).replace(microsecond=0).astimezone(ZoneInfo(trigger.timezone))
    return next(CronSim(trigger.pattern, local, reverse=True)).astimezone(UTC)


def following(trigger: Trigger, now: datetime) -> datetime:
    """The first time of a schedule after `now`, in UTC."""
    return next(CronSim(trigger.pattern, now.astimezone(ZoneInfo(trigger.timezone)))).astimezone(UTC)
