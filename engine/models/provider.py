"""Interface of providers, their common checks before a turn, `complete` for callers without a stream, and waiting that
can be aborted.

The same requests are refused by all providers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from engine.messages.errors import InvalidRequest
from engine.messages.messages import legal
from engine.messages.models import ModelFacts
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

    async def facts(self, model: str) -> ModelFacts:
        """Return the facts about a model; this release's if nobody can be asked."""

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
    raise RuntimeError(f"{type(provider).__name__} ended a turn without Finished or an error")


# --- abort -------------------------------------------------------------------------------------------------


T = TypeVar("T")

GRACE = 0.5
"""Seconds that closing something may take before it is left alone."""


class Aborted(Exception):
    """The signal was set; what was waited for has been cancelled."""


class Abortable:
    """Waits for one thing after the other until a signal is set. `close` it at the end.

    As `asyncio.timeout` does, it cancels the task that waits and takes the cancellation back: a task of its own for
    each of hundreds of events would cost more than the events.
    """

    def __init__(self, signal: asyncio.Event | None) -> None:
        self._signal = signal
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._watcher: asyncio.Future[Any] | None = None
        if signal is not None:
            self._watcher = asyncio.ensure_future(signal.wait())
            self._watcher.add_done_callback(self._on_signal)

    async def run(self, work: Awaitable[T]) -> T:
        """The result of this work. Raises `Aborted` when the signal is set before it is there."""
        task = asyncio.current_task()
        if self._signal is None or task is None:
            return await work
        if self._signal.is_set():
            asyncio.ensure_future(work).cancel()
            raise Aborted
        self._waiting, before = task, task.cancelling()
        try:
            return await work
        except asyncio.CancelledError:
            if self._cancelled and task.uncancel() <= before:
                raise Aborted from None
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Wait for the signal no longer."""
        if self._watcher is not None:
            self._watcher.cancel()

    def _on_signal(self, watcher: asyncio.Future[Any]) -> None:
        """Cancel the waiting task. The loop calls this while the task is suspended, so the cancellation arrives there."""
        if self._waiting is not None and not watcher.cancelled():
            self._cancelled = True
            self._waiting.cancel()


async def settle(task: asyncio.Future[Any]) -> None:
    """Give a task a moment to end, then leave it cancelled; how it ended interests nobody."""
    await asyncio.wait({task}, timeout=GRACE)
    task.cancel()
    if task.done() and not task.cancelled():
        task.exception()


# --- checks ------------------------------------------------------------------------------------------------


MAX_LISTED = 5


def refuse_illegal(request: TurnRequest) -> None:
    """Raise `InvalidRequest` for what no API would take; nothing is sent then."""
    flaws = legal(request.messages)
    if flaws:
        listed = "; ".join(str(flaw) for flaw in flaws[:MAX_LISTED])
        more = f"; and {len(flaws) - MAX_LISTED} more" if len(flaws) > MAX_LISTED else ""
        raise InvalidRequest(f"the conversation cannot be sent: {listed}{more}")
    if request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, not {request.max_tokens}")
    names = [tool.name for tool in request.tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"two tools have the name {twice[0]}")
