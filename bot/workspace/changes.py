"""One place that hears of every change, so that pages, waiting tests and the saved file never miss one; and that file."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.workspace.errors import WorkspaceError
from bot.workspace.state import State, state_from_json

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


SAVE_DELAY = 0.2  # seconds; changes in between are written together
QUICK = 0.02
"""Seconds that writing may take to be waited for."""


def load(path: Path) -> State | None:
    """The saved state, None when there is no file; WorkspaceError `bad_file` names the file and the fault."""
    if not path.exists():
        return None
    try:
        return state_from_json(json.loads(path.read_text("utf-8")))
    except (ValueError, WorkspaceError) as problem:
        text = f"{path} does not hold a saved workspace ({problem}); move it away to start a new one"
        raise WorkspaceError("bad_file", text) from problem


def save(state: State, path: Path) -> None:
    """Write the state so that a reader, or a crash, finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state.to_json(), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Saver:
    """Saves the state after changes."""

    def __init__(self, state: State, path: Path, changes: Changes) -> None:
        self.state, self.path = state, path
        self._timer: asyncio.TimerHandle | None = None
        self._took = 0.0
        changes.listeners.append(self._changed)

    def _changed(self, push: Push | None) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVE_DELAY, self.save_now)

    def settle(self) -> None:
        """Write what was changed, if that is quick."""
        if self._timer is not None and self._took <= QUICK:
            self.save_now()

    def save_now(self) -> None:
        """Write now."""
        began = time.perf_counter()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        save(self.state, self.path)
        self._took = time.perf_counter() - began
