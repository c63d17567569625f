"""`validate`, `schema`, `manifest`, `graph` and `explain`: flow files are read, checked, drawn and described, never executed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bot.cli.lookup import find_flow, find_session
from bot.terminal.console import Exit, Place, UsageError, opened, plural, print_json, width, wrapped, writable
from engine.flow.docs import diagram
from engine.flow.docs.diagram import mermaid
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.history import marks, tree
from engine.language.errors import FlowError
from engine.run.stored import stored_flow

if TYPE_CHECKING:
    from engine.language.codec import Json
    from engine.language.errors import Problem


class Checked(NamedTuple):
    """Result of checking a file: the name of its flow, if it is one, problems, and warnings."""

    flow: str | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def validate(place: Place, paths: list[Path], *, strict: bool, as_json: bool) -> int:
    """Check files and folders; every problem and warning is printed; with `strict` a warning is a problem. Raises
    `UsageError` when there is nothing to check."""
    from bot.gate.rules import NAME

    if not paths:
        paths = [_default_folder(place)]
    checked: dict[str, Checked] = {}
    for path in paths:
        named = path.name == NAME and path.is_file()
        is_rules = named and re.search(r"^gate:", path.read_text("utf-8", "replace"), re.M) is not None
        checked.update(_check_folder(path) if path.is_dir() else _check_file(path, is_rules=is_rules))
    for path in paths:
        # The rules beside a folder of flows are checked with it.
        rules = path.absolute().parent / NAME
        if path.is_dir() and rules.is_file():
            checked.update(_check_file(Path(os.path.relpath(rules)), is_rules=True))
    if strict:
        checked = {file: Checked(one.flow, one.problems + one.warnings) for file, one in checked.items()}
    bad = sum(1 for one in checked.values() if one.problems)
    if as_json:
        print_json({"ok": not bad, "files": [_as_json(file, one) for file, one in checked.items()]})
        return Exit.INVALID_FLOW if bad else Exit.OK
    for one in checked.values():
        for problem in one.problems:
            print(problem)
        for warning in one.warnings:
            print(warning._replace(message=f"warning: {warning.message}"))
    if bad:
        total, sound = sum(len(one.problems) for one in checked.values()), len(checked) - bad
        rest = f"; {plural(sound, 'file')} without" if sound else ""
        print(f"{plural(total, 'problem')} in {plural(bad, 'file')}{rest}.")
        return Exit.INVALID_FLOW
    names = ", ".join(sorted(one.flow or "" for one in checked.values()))
    doubts = sum(len(one.warnings) for one in checked.values())
    told = f", {plural(doubts, 'warning')}" if doubts else ""
    print(f"{plural(len(checked), 'flow')} without problems{told}: {names}")
    return Exit.OK


def schema(place: Place) -> int:
    """Print the JSON Schema of flow files."""
    from engine.flow.docs.schema import flow_schema

    print_json(flow_schema())
    return Exit.OK


def manifest_command(place: Place, *, show_all: bool, agent: bool) -> int:
    """Print the app's manifest. Raises `UsageError` where there is no folder of flows, `FlowError` for a broken one."""
    from bot.wire.manifest import AGENT_WARNING, manifest_text
    from engine.run.flow_files import load_flows

    if agent:
        print(AGENT_WARNING, end="", file=sys.stderr)
    if show_all:
        print(manifest_text(None, agent=agent), end="")
        return Exit.OK
    flows, errors = load_flows(_default_folder(place))
    for error in errors.values():
        raise error
    print(manifest_text(flows.values(), agent=agent), end="")
    return Exit.OK


def _default_folder(place: Place) -> Path:
    folder = place.settings().flows
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Name flow files or folders: sayso validate FILE")
    return Path(os.path.relpath(folder))


def _check_file(path: Path, *, is_rules: bool) -> dict[str, Checked]:
    from bot.gate.rules import NAME, RulesFile
    from engine.run.flow_files import flow_warnings, load_flow_file

    try:
        if is_rules:
            RulesFile(path).read()
            return {str(path): Checked(NAME)}
        flow = load_flow_file(path)
        return {str(path): Checked(flow.name, (), tuple(flow_warnings([flow])))}
    except FlowError as error:
        return {str(path): Checked(None, error.problems)}


def _check_folder(path: Path) -> dict[str, Checked]:
    """All flows of a folder together: two of one name are a problem too."""
    from engine.run.flow_files import flow_warnings, load_flows

    flows, errors = load_flows(path)
    doubts = flow_warnings(flows.values())
    found = {
        flow.file: Checked(flow.name, (), tuple(doubt for doubt in doubts if doubt.file == flow.file))
        for flow in flows.values()
    }
    found |= {file: Checked(None, error.problems) for file, error in errors.items()}
    if not found:
        raise UsageError(
            f"There are no flows in {path}: the name of a flow file ends with .yml or .yaml and does not "
            "begin with a dot."
        )
    return dict(sorted(found.items()))


def _as_json(file: str, found: Checked) -> dict[str, Json]:
    told = {name: [item._asdict() for item in getattr(found, name)] for name in ("problems", "warnings")}
    return {"file": file, "ok": not found.problems, "flow": found.flow, **told}


def explain_command(place: Place, name: str) -> int:
    """Print a flow in sentences. Raises `UnknownFlow`, `FlowError`, `UsageError`."""
    from engine.flow.docs.explain import explained

    for line in explained(find_flow(place.settings(), name)).splitlines():
        begins = re.match(r" *(?:- |\d+\. )?", line)
        indent = len(begins[0]) if begins else 0
        print("\n".join(wrapped(line, width(), hanging=" " * indent)))
    return Exit.OK


def graph_command(place: Place, name: str | None, session: str | None, svg: Path | None) -> int:
    """Print the Mermaid text, or write the SVG. A session is drawn with its own text of the flow.

    Raises `UsageError`, `UnknownFlow`, `FlowError`, `UnknownSession`, `Corrupt`.
    """
    found: dict[tuple[str, str], str] = {}
    title = None
    if session is None:
        if name is None:
            raise UsageError("Name a flow or a session: sayso graph FLOW, or sayso graph --session ID.")
        flow = find_flow(place.settings(), name)
    else:
        with opened(place.settings(), f"no session {session!r}") as store:
            head = find_session(store, session)
            events = [decode_event(row) for row in store.sessions.journal(head.session_id)]
            flow, _ = stored_flow(store, head.flow_digest)
        found = marks(tree(events, flow))
        state = derive_state(events)
        if state.phase == "held":
            found |= {key: "held" for key, status in found.items() if status == "waiting"}
        title = f"{flow.name}: {head.session_id}, {state.stands}"
    if svg is None:
        print(mermaid(flow, found), end="")
        return Exit.OK
    with writable(svg):
        svg.write_text(diagram.svg(flow, found, title), "utf-8")
    print(f"Written to {svg}.")
    return Exit.OK
