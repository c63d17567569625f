"""The workspace as one JSON file, written whole or not at all.

A change is written before whoever made it gets an answer, for what an app was told to stand in a channel stands there after
a kill too. Once there is so much that writing takes long, it is written soon after instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from bot.workspace.changes import Changes, Push
from bot.workspace.errors import WorkspaceError
from bot.workspace.state import State, state_from_json

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
