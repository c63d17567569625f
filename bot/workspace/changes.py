"""One place that hears of every change, so that pages, waiting tests and the saved file never miss one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Push:
    """News for the pages. `to` holds the ids of the people who may see it; None means everyone."""

    body: Json
    to: frozenset[str] | None = None


@dataclass(slots=True)
class _Waiter:
    predicate: Callable[[], Any]
    done: asyncio.Future[Any]
    missing: LookupError | None = None


class Changes:
    """Tells listeners and waiters about changes. Used on one event loop only."""

    # A predicate may look at something outside the workspace (what a handler of the app collected), which
    # no change here announces; so waiting predicates are looked at again this often, in seconds.
    OUTSIDE_INTERVAL = 0.05

    def __init__(self) -> None:
        self.listeners: list[Callable[[Push | None], None]] = []
        self._waiters: list[_Waiter] = []

    def tell(self, body: Json, to: frozenset[str] | None = None) -> None:
        """Announce a change that pages should show."""
        self._announce(Push(body, to))

    def touch(self) -> None:
        """Announce a change that no page shows (a recorded call, an acknowledgement)."""
        self._announce(None)

    def _announce(self, push: Push | None) -> None:
        for listener in list(self.listeners):
            listener(push)
        self._look_again()

    def _look_again(self) -> None:
        for waiter in list(self._waiters):
            if waiter.done.done():
                continue
            try:
                value = waiter.predicate()
            except LookupError as problem:
                # `messages[-1]` before there is one: not yet true, rather than a mistake.
                waiter.missing = problem
            except Exception as problem:
                waiter.done.set_exception(problem)
            else:
                if value:
                    waiter.done.set_result(value)

    async def wait_for(self, predicate: Callable[[], Any], timeout: float) -> Any:
        """The first true value of `predicate`, which is called after every change; TimeoutError after
        `timeout` seconds. A LookupError of the predicate means not yet; what else it raises is raised
        here."""
        waiter = _Waiter(predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            self._look_again()
            async with asyncio.timeout(timeout):
                while not waiter.done.done():
                    await asyncio.wait({waiter.done}, timeout=self.OUTSIDE_INTERVAL)
                    self._look_again()
                return await waiter.done
        except TimeoutError as problem:
            raise problem from waiter.missing
        finally:
            self._waiters.remove(waiter)
