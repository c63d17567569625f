"""`validate` and `schema`: flow files are read and checked, never executed."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli.exits import Exit, UsageError
from bot.cli.output import plural, print_json
from bot.cli.place import Place

if TYPE_CHECKING:
    from engine.codec import Json
    from engine.errors import Problem


def validate(place: Place, paths: list[Path], *, as_json: bool) -> int:
    """Check files and folders; every problem is printed. Raises `UsageError` when there is nothing to check."""
    if not paths:
        paths = [_default_folder(place)]
    checked: dict[str, tuple[str | None, tuple[Problem, ...]]] = {}
    for path in paths:
        checked.update(_check_folder(path) if path.is_dir() else _check_file(path))
    bad = sum(1 for _, problems in checked.values() if problems)
    if as_json:
        print_json({"ok": not bad, "files": [_as_json(file, *found) for file, found in checked.items()]})
    else:
        _print(checked, bad)
    return Exit.INVALID_FLOW if bad else Exit.OK


def schema() -> int:
    """Print the JSON Schema of flow files."""
    from engine.flow.schema import flow_schema

    print_json(flow_schema())
    return Exit.OK


def manifest_command(place: Place, *, show_all: bool) -> int:
    """Print the app's manifest. Raises `UsageError` where there is no folder of flows, `FlowError` for a broken one."""
    from bot.manifest import manifest_text
    from engine.flow import load_flows

    if show_all:
        print(manifest_text(None), end="")
        return Exit.OK
    flows, errors = load_flows(_default_folder(place))
    for error in errors.values():
        raise error
    print(manifest_text(flows.values()), end="")
    return Exit.OK


def _default_folder(place: Place) -> Path:
    folder = place.settings().flows
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Name flow files or folders: sayso validate FILE")
    return Path(os.path.relpath(folder))


def _check_file(path: Path) -> dict[str, tuple[str | None, tuple[Problem, ...]]]:
    from engine.errors import FlowError
    from engine.flow import load_flow_file

    try:
        return {str(path): (load_flow_file(path).name, ())}
    except FlowError as error:
        return {str(path): (None, error.problems)}


def _check_folder(path: Path) -> dict[str, tuple[str | None, tuple[Problem, ...]]]:
    """All flows of a folder together: two of one name are a problem too."""
    from engine.flow import load_flows

    flows, errors = load_flows(path)
    found: dict[str, tuple[str | None, tuple[Problem, ...]]] = {
        flow.file: (flow.name, ()) for flow in flows.values()
    }
    found |= {file: (None, error.problems) for file, error in errors.items()}
    if not found:
        raise UsageError(f"There are no flows in {path}: a flow file's name ends with .yml or .yaml.")
    return dict(sorted(found.items()))


def _as_json(file: str, flow: str | None, problems: tuple[Problem, ...]) -> dict[str, Json]:
    return {"file": file, "ok": not problems, "flow": flow, "problems": [asdict(item) for item in problems]}


def _print(checked: dict[str, tuple[str | None, tuple[Problem, ...]]], bad: int) -> None:
    for _, problems in checked.values():
        for problem in problems:
            print(problem)
    total = sum(len(problems) for _, problems in checked.values())
    if bad:
        print(
            f"{plural(total, 'problem')} in {plural(bad, 'file')}; {plural(len(checked) - bad, 'file')} without."
        )
    else:
        names = ", ".join(sorted(flow or "" for flow, _ in checked.values()))
        print(f"{plural(len(checked), 'flow')} without problems: {names}")
