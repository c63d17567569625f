"""The options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.cli.declare import argument, flag, option

FILE: dict[str, Any] = {"dir_okay": False}
"""An option that names a file."""
HERE: dict[str, Any] = {"dir_okay": False, "exists": True}
"""One that is there."""

JSON = flag("--json", "Print JSON on standard output.", "as_json")
AS = option("--as NAME", "Play somebody (@group, e-mail, id, name); recorded as simulated.", name="as_name")
NO_INPUT = flag("--no-input", "Ask nothing here: run until people are needed.")
WAIT = option(
    "--wait/--no-wait",
    "Stay while only time or a lock can move the session. Without a terminal: leave with 3. [at a terminal]",
    bool,
)
MODE = (NO_INPUT, WAIT, JSON)
WHICH = flag("--dry-run", "Only say which.")
WHY = option("--reason", "Reason to show.")
SESSION = argument("ID", "A session's id, or the beginning of it.", "text")._replace(ids="session")
PROMPT = argument("ID", "A question's id, or the beginning of it.", "prompt_id")._replace(ids="prompt")
FLOW = argument("FLOW", "A flow's name, or its file.", "name")
FLOWS = argument("[FLOW...]", "Flow files or folders.", "flows", list[Path], None, exists=True)
INPUTS = (
    option("-i --input KEY=VALUE", "An input; may be repeated.", list[str], name="inputs"),
    option("--inputs-file", "Inputs as a YAML or JSON file.", Path, **HERE),
)
LETTERS = (
    argument("[ID...]", "Ids or keys, as `sayso inbox list` shows them.", "ids", list[str], None),
    flag("--all", "All of them.", "every"),
    JSON,
)
