"""The workspace as one JSON file: written soon after each change, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from bot.workspace.changes import Changes, Push
from bot.workspace.errors import WorkspaceError
from bot.workspace.state import State, state_from_json

SAVE_DELAY = 0.2  # seconds; changes in between are written together


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
        changes.listeners.append(self._changed)

    def _changed(self, push: Push | None) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVE_DELAY, self.save_now)

    def save_now(self) -> None:
        """Write now."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        save(self.state, self.path)
