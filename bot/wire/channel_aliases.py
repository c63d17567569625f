"""Channels that got another id: Slack does that to a private channel that is shared with another organisation.

What is stored keeps the id under which a session began. What comes in is read as if it still had that id, and calls
go to the channel as it is called now; so no thread, question or mark has to move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from engine.storage.group_commit import Writer

_SCOPE = "alias:"
_CARRIERS = ("channel", "channel_id")


class Aliases:
    """Ids of channels, old and new."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}
        self._first: dict[str, str] = {}

    async def load(self, writer: Writer) -> None:
        """Read what was learnt before."""
        found = await writer.call(writer.store.marks.rows, _SCOPE)
        for scope, _ in sorted(found, key=lambda entry: float(entry[1])):
            _, old, new = scope.split(":")
            self._learn(old, new)

    async def rename(self, writer: Writer, old: str, new: str, ts: str) -> None:
        """A channel got another id, as the event at `ts` says. Durable on return."""
        await writer.call(writer.store.marks.move, f"{_SCOPE}{old}:{new}", ts)
        self._learn(old, new)

    def _learn(self, old: str, new: str) -> None:
        first = self.first(old)
        if first != new:
            self._first[new] = first
            self._now[first] = new

    def first(self, channel: str) -> str:
        """The id that a channel had when it was first known."""
        return self._first.get(channel, channel)

    def now(self, channel: str) -> str:
        """The id that a channel has now."""
        return self._now.get(channel, channel)

    def inward(self, payload: Any) -> Any:
        """A payload with the first ids in the places of later ones."""
        return self._mapped(payload) if self._first else payload

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._first.get(value, value)
        if isinstance(value, Mapping):
            return {key: self._mapped(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._mapped(item) for item in value]
        return value

    def outward(self, arguments: Any) -> Any:
        """The arguments of a call with the ids that channels have now."""
        if not self._now or not isinstance(arguments, Mapping):
            return arguments
        return {
            key: self.now(value) if key in _CARRIERS and isinstance(value, str) else value
            for key, value in arguments.items()
        }


class AliasedClient(AsyncWebClient):
    """A client that calls channels as they are called now."""

    def __init__(self, *args: Any, aliases: Aliases | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self.aliases = aliases or Aliases()

    async def api_call(self, api_method: str, **named: Any) -> Any:
        """See slack_sdk."""
        for carrier in ("data", "params", "json"):
            if carrier in named:
                named[carrier] = self.aliases.outward(named[carrier])
        return await super().api_call(api_method, **named)
