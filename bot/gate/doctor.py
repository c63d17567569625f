"""`sayso gate doctor`: whether an agent's calls really reach the gate, and whether the gate is a boundary for it. It runs as
the agent's user. Also the settings of Claude Code that make it ask.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bot.gate.client import Client, NoGate
from bot.gate.hook import DOCTOR

BLOCKS_SINCE = (2, 1, 295)
"""The release of Claude Code that takes `onFailure: block`."""
MOST_MS = 150.0
_SECONDS = 60
"""Seconds that a hook may take longer than the wait."""


MANAGED = (
    Path("/etc/claude-code/managed-settings.json"),
    Path("/Library/Application Support/ClaudeCode/managed-settings.json"),
)
_ASKS = ("PreToolUse", "PermissionRequest")


class Finding(NamedTuple):
    """Result of a check; `good` is None for advice."""

    good: bool | None
    text: str


def claude_settings(wait: float, *, interactive: bool) -> dict[str, Any]:
    """The hooks of Claude Code's settings."""
    flags = f" --wait {wait:g}" + (" --interactive" if interactive else "")
    hook = {
        "type": "command",
        "command": f"sayso gate hook --client claude{flags}",
        "timeout": int(wait) + _SECONDS,
        "onFailure": "block",
    }
    asks = "PermissionRequest" if interactive else "PreToolUse"
    return {"hooks": {name: [{"matcher": "*", "hooks": [hook]}] for name in (asks, "PostToolUse")}}


def look(home: Path, rules: Path) -> Iterator[Finding]:
    """Look at the gate, the hook, the settings and the files, as this user."""
    places = [home, rules]
    try:
        gate = Client.configured()
        places += map(Path, gate.post("flows").get("files", ()))
        yield Finding(True, f"The gate answers at {gate.url} and accepts the token.")
    except (NoGate, OSError) as error:
        yield Finding(False, f"The gate cannot be reached: {error}")
    yield _hook()
    program = os.environ.get("SAYSO_CLAUDE", "claude")
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        yield Finding(None, f"{program} is not installed here.")
    else:
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", told.strip())
        version = tuple(map(int, found.groups())) if found else ()
        blocks = f"failing hooks block since {'.'.join(map(str, BLOCKS_SINCE))}"
        yield Finding(version >= BLOCKS_SINCE, f"Claude Code {told.strip()}; {blocks}.")
    config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    managed = next((path for path in MANAGED if path.exists()), None)
    settings = (
        managed if managed and any(_hooks(managed, asks) for asks in _ASKS) else config / "settings.json"
    )
    yield _settings(settings, Path(".claude/settings.json"))
    if os.access(settings if settings.exists() else settings.parent, os.W_OK):
        yield Finding(
            None,
            f"This user can write {settings}: an agent that runs as this user can remove its hook. Managed "
            f"settings ({MANAGED[0]}), owned by root, prevent this.",
        )
    stores = [path for place in places if os.access(place, os.X_OK) for path in place.glob("*.db")]
    folders = [place.parent for place in places if place.suffix == ".yml" and os.access(place, os.F_OK)]
    mine = [str(path) for path in dict.fromkeys([*places, *folders, *stores]) if os.access(path, os.W_OK)]
    if mine:
        yield Finding(
            None,
            f"This user can write {', '.join(mine)}: an agent that runs as this user can bypass the gate. "
            "Run the agent as a separate user.",
        )
    else:
        yield Finding(True, "This user cannot write the store or gate.yml.")


def _hook() -> Finding:
    event = {
        "session_id": "sayso-doctor",
        "hook_event_name": "PreToolUse",
        "tool_name": DOCTOR,
        "tool_input": {},
        "tool_use_id": "doctor",
        "cwd": os.getcwd(),
        "agent_id": "doctor",
    }
    command = [sys.executable, "-m", "bot.cli", "gate", "hook", "--client", "claude", "--wait", "0"]
    best, done = float("inf"), None
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run(command, input=json.dumps(event), capture_output=True, text=True, check=False)
        best = min(best, (time.monotonic() - began) * 1000)
    assert done is not None
    try:
        decision = json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"]
    except (ValueError, KeyError):
        return Finding(False, f"The hook gave no decision (exit {done.returncode}): {done.stderr.strip()}")
    if decision != "deny":
        return Finding(False, f"The hook said {decision} to a test call.")
    quick = True if best <= MOST_MS else None
    return Finding(quick, f"The hook works; it took {best:.0f} ms.")


def _settings(user: Path, project: Path) -> Finding:
    """Settings of a project are not loaded where a session is resumed from another folder: they do not count."""
    hooks = [hook for asks in _ASKS for hook in _hooks(user, asks)]
    if not hooks:
        only = any(_hooks(project, asks) for asks in _ASKS)
        where = f"Only {project} asks the gate, and it is not loaded everywhere. " if only else ""
        return Finding(
            False, f"{where}{user} does not ask the gate: add the output of `sayso gate settings`."
        )
    for matcher, hook in hooks:
        waits = re.search(r"--wait ([0-9.]+)", hook["command"])
        wait = float(waits[1]) if waits else 300.0
        if (
            matcher not in ("*", "")
            or hook.get("onFailure") != "block"
            or float(hook.get("timeout") or 0) <= wait
        ):
            return Finding(
                False,
                f"The hook of {user} needs `matcher: *`, `onFailure: block`, and a `timeout` above {wait:g} s.",
            )
    return Finding(True, f"{user} asks the gate about every call, and blocks the call if that fails.")


def _hooks(path: Path, name: str) -> list[tuple[str, dict[str, Any]]]:
    """The hooks of a settings file that ask the gate, with their matchers."""
    try:
        entries = json.loads(path.read_text("utf-8"))["hooks"][name]
        return [
            (entry.get("matcher", ""), hook)
            for entry in entries
            for hook in entry["hooks"]
            if "gate hook" in str(hook.get("command"))
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
