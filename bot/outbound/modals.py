"""The calls that show views: modals and the app's Home. Each raises a `SlackFault` and nothing else.

Nothing here waits or is repeated: a trigger lives for three seconds, and whoever pressed is told to press again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.wire.client import classify, quiet_client


@dataclass(frozen=True, slots=True)
class OpenView:
    """A view that is open, as it was when it was shown: `hash` lets nobody overwrite what came after."""

    view_id: str
    hash: str


class Modals:
    """Slack's views."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = quiet_client(client)

    async def open(self, trigger_id: str, view: dict[str, Any], *, on_top: bool = False) -> OpenView:
        """Open a modal; with `on_top` above the one from which the trigger came."""
        show: Any = self._client.views_push if on_top else self._client.views_open
        return await _shown(show(trigger_id=trigger_id, view=view))

    async def update(self, standing: OpenView, view: dict[str, Any]) -> OpenView:
        """Change a view, unless it was changed meanwhile."""
        call = self._client.views_update(view_id=standing.view_id, hash=standing.hash, view=view)
        return await _shown(call)

    async def publish(self, user: str, view: dict[str, Any], hash: str | None = None) -> OpenView:
        """Show somebody the app's Home; with `hash` unless it was changed meanwhile."""
        return await _shown(self._client.views_publish(user_id=user, view=view, hash=hash))

    async def whisper(self, channel: str, user: str, thread_ts: str | None, text: str) -> None:
        """Say something to one person at once, without the outbox. `text` is mrkdwn that is safe already."""
        call = self._client.chat_postEphemeral(
            channel=channel, user=user, thread_ts=thread_ts, text=text, parse="none", link_names=False
        )
        try:
            await call
        except Exception as error:
            raise classify(error) from error


async def _shown(call: Awaitable[Any]) -> OpenView:
    try:
        view = (await call)["view"]
        return OpenView(str(view["id"]), str(view["hash"]))
    except Exception as error:
        raise classify(error) from error
