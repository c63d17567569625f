"""`init`: a folder to start from, with a flow or a runbook of the cookbook, its scenarios, settings and a check for CI.
Existing files are not changed."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bot.cli.flow_names import flow_name
from bot.config.library import EXAMPLES
from bot.terminal.console import Exit, Place, UsageError
from engine.language.diagnostics import suggest

STARTER = Path(__file__).resolve().parents[1] / "starter"
"""Files of a new folder, without the dots of their names."""
_SCHEMA = "flow.schema.json"
_HINT = f"# yaml-language-server: $schema=../{_SCHEMA}\n"
_PROGRAM = re.compile(r"\btools/[\w-]+\.py\b")
_PRIVATE, _PROGRAM_MODE, _FILE = 0o600, 0o777, 0o666
_PLAIN = {
    ".github/workflows/flows.yml": "workflow.yml",
    ".gitignore": "gitignore",
    ".env": "env",
    "flows/maintenance.yml": "maintenance.yml",
    "flows/scenarios/maintenance.yml": "scenario.yml",
}
"""From where in the folder to a file of `STARTER`."""
_GATE = {"gate.yml": "gate.yml", "flows/scenarios/gate.yml": "gate_table.yml"}
"""The same for the rules of agents, beside the first flow."""


def init_command(place: Place, folder: Path | None, source: str | None, *, list_names: bool) -> int:
    """Make the folder, or list the names of the cookbook. Raises `UsageError`."""
    if list_names:
        for file in _cookbook().values():
            described = re.search(r"^description:[ \t]*(.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            print(f"{flow_name(file) or '':26}{described[1] if described else ''}")
        return Exit.OK
    folder = folder or Path()
    wanted = {name: STARTER / file for name, file in _PLAIN.items()}
    if source == "gate":
        wanted |= {name: STARTER / file for name, file in _GATE.items()}
    elif source is not None:
        wanted = {name: file for name, file in wanted.items() if not name.startswith("flows/")}
        wanted |= dict(_runbook(source.removeprefix("cookbook/")))
    made = [
        name
        for name, file in wanted.items()
        if _write(
            folder / name,
            partial(_content, name, file),
            (_PRIVATE if name == ".env" else _PROGRAM_MODE if os.access(file, os.X_OK) else _FILE),
        )
    ]
    made += [_SCHEMA] if _write(folder / _SCHEMA, _schema, _FILE) else []
    dev = "sayso dev --gate" if source == "gate" else "sayso dev"
    _tell(folder, sorted(made), sorted({*wanted, _SCHEMA} - {*made}), dev)
    return Exit.OK


def _tell(folder: Path, made: list[str], kept: list[str], dev: str) -> None:
    print(
        "\n".join(["Made:", *(f"  {folder / name}" for name in made)] if made else ["Nothing was missing."])
    )
    if kept:
        print(f"Left as they are: {', '.join(kept)}")
    ignored = folder / ".gitignore"
    if ".gitignore" in kept and not (
        ignored.is_file() and ".env" in ignored.read_text("utf-8", "replace").split()
    ):
        print("Add `.env` and `.sayso/` to .gitignore: tokens and state do not belong in a repository.")
    steps = ["sayso validate", "sayso test", dev]
    if folder.resolve() != Path.cwd():
        steps.insert(0, f"cd {'-- ' if str(folder).startswith('-') else ''}{shlex.quote(str(folder))}")
    print("\n".join(["Next:", *(f"  {step}" for step in steps)]))


def _write(file: Path, content: Callable[[], bytes], mode: int) -> bool:
    """Write a file that is not there; whether it was not. Raises `UsageError`."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        if file.parent.is_dir():
            return False
        raise UsageError(f"{file.parent} is a file, not a folder.") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(made, "wb") as opened:
            opened.write(content())
    except BaseException as error:
        # Half of it would be what is there already.
        file.unlink()
        if isinstance(error, OSError):
            raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
        raise
    return True


def _content(name: str, file: Path) -> bytes:
    text = file.read_text(encoding="utf-8")
    if file.name == "workflow.yml":
        text = text.replace("VERSION", version("sayso"))
    is_flow = Path(name).parent == Path("flows") and flow_name(file) is not None
    return ((_HINT if is_flow else "") + text).encode()


def _schema() -> bytes:
    from engine.flow.docs.schema import flow_schema  # reads all node types

    return json.dumps(flow_schema(), indent=2, ensure_ascii=False).encode() + b"\n"


# --- the cookbook ------------------------------------------------------------------------------------------


def _cookbook() -> dict[str, Path]:
    return {file.stem: file for file in sorted(EXAMPLES.glob("*.yml")) if flow_name(file) == file.stem}


def _runbook(name: str) -> Iterator[tuple[str, Path]]:
    """A flow, its script, the scenarios that play it, and the programs that they name. Raises `UsageError`."""
    known = _cookbook()
    if name not in known:
        hint = suggest(name, known, "see sayso init --list")
        raise UsageError(f"There is no {name!r} in the cookbook ({hint}).")
    scenarios = [file for file in sorted((EXAMPLES / "scenarios").glob("*.yml")) if flow_name(file) == name]
    flows = [file for file in (known[name], EXAMPLES / f"{name}.script.yml") if file.exists()]
    for file in (*flows, *scenarios):
        yield f"flows/{file.relative_to(EXAMPLES)}", file
    for program in {found for file in flows for found in _PROGRAM.findall(file.read_text(encoding="utf-8"))}:
        yield f"flows/{program}", EXAMPLES / program
