"""What every provider is, and `complete` for who needs no stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from engine.messages.turns import Finished, TurnEvent, TurnRequest, TurnResult


class Provider(Protocol):
    """Answers turns. May be used by several conversations at once."""

    def stream(
        self, request: TurnRequest, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """The events of one turn, the last one `Finished`. Raises `ProviderError`.

        Setting `abort` cuts the turn within a second: the next event is `Finished`, marked as interrupted.
        Close the generator (`contextlib.aclosing`) when leaving before its end, so that the connection is closed.
        """

    async def close(self) -> None:
        """Let go of connections. May be called more than once."""


async def complete(
    provider: Provider,
    request: TurnRequest,
    abort: asyncio.Event | None = None,
    *,
    on_event: Callable[[TurnEvent], None] | None = None,
) -> TurnResult:
    """One whole turn; `on_event` hears every event. Raises `ProviderError`."""
    async with aclosing(provider.stream(request, abort)) as events:
        async for event in events:
            if on_event is not None:
                on_event(event)
            if isinstance(event, Finished):
                return event.result
    raise RuntimeError(f"{type(provider).__name__} ended a turn without Finished and without an error")
