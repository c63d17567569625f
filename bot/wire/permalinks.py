"""Links to messages, as Slack gives them. A link never changes, so each is asked for once."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable

from slack_sdk.web.async_client import AsyncWebClient

from bot.wire.users import LookupFailed

log = logging.getLogger("sayso.links")

KEPT = 2_000
MOST_SECONDS = 2.0
"""What is shown waits no longer for links."""

Spot = tuple[str, str]
"""A message: its channel and its ts."""


class Links:
    """Permalinks."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client
        self._kept: OrderedDict[Spot, str] = OrderedDict()

    async def to(self, channel: str, ts: str) -> str:
        """The link to one message. Raises `LookupFailed`."""
        spot = (channel, ts)
        if spot not in self._kept:
            try:
                answer = await self._client.chat_getPermalink(channel=channel, message_ts=ts)
            except Exception as error:
                raise LookupFailed(f"Slack gave no link to a message in {channel}: {error}") from error
            self._kept[spot] = str(answer["permalink"])
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(spot)
        return self._kept[spot]

    async def those_known(self, spots: Iterable[Spot]) -> dict[Spot, str]:
        """The links to these messages, as far as Slack gives them in time. Never raises."""
        wanted = list(dict.fromkeys(spots))
        found: dict[Spot, str] = {}

        async def one(spot: Spot) -> None:
            try:
                found[spot] = await self.to(*spot)
            except LookupFailed as error:
                log.info("%s", error)

        try:
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.gather(*map(one, wanted))
        except TimeoutError:
            log.info("%d of %d links did not come in time", len(wanted) - len(found), len(wanted))
        return found
