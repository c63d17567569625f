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
AS = option("--as NAME", "Act as somebody (@group, e-mail, ID, name); recorded as simulated.", name="as_name")
NO_INPUT = flag("--no-input", "Do not ask here: run until people are needed.")
WAIT = option(
    "--wait/--no-wait",
    "Wait while only time or a lock holds the session up; otherwise exit with 3. [wait in a terminal]",
    bool,
)
MODE = (NO_INPUT, WAIT, JSON)
WHICH = flag("--dry-run", "Only show what would be deleted.")
WHY = option("--reason", "Reason to show.")
SESSION = argument("ID", "A session ID, or its beginning.", "text")._replace(ids="session")
PROMPT = argument("ID", "A question ID, or its beginning.", "prompt_id")._replace(ids="prompt")
FLOW = argument("FLOW", "A flow's name, or its file.", "name")
FLOWS = argument("[FLOW...]", "Flow files or folders.", "flows", list[Path], None, exists=True)
INPUTS = (
    option("-i --input KEY=VALUE", "An input; repeatable.", list[str], name="inputs"),
    option("--inputs-file", "A YAML or JSON file with inputs.", Path, **HERE),
)
LETTERS = (
    argument("[ID...]", "IDs or keys, as `sayso inbox list` shows them.", "ids", list[str], None),
    flag("--all", "All dead letters.", "every"),
    JSON,
)
