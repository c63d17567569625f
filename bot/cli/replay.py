"""`replay`: recorded runs of a flow under another text of it, before that is served. Nothing is run, asked or stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.cli.lookup import find_flow
from bot.terminal.console import Exit, Place, UsageError, clean, opened, plural, print_json
from engine.decide.against import Compared, against
from engine.flow import Flow
from engine.journal.events import Event, decode_event
from engine.journal.phases import in_words
from engine.journal.snapshot import read_export
from engine.language.errors import FlowError, SnapshotRefused
from engine.run.export import contents, flow_in
from engine.run.stored import stored_flow

Recorded = tuple[Sequence[Event], Flow]


def replay(
    place: Place,
    name: str,
    new_text: str | None,
    folder: Path | None,
    *,
    last: int,
    markdown: bool,
    as_json: bool,
) -> int:
    """Compare recorded runs with a text; 1 where a run would go another way, an approval would change, or a waiting run could
    not continue. Raises `SaysoError`."""
    new = find_flow(place.settings(), new_text or name)
    recorded = _exported(folder) if folder is not None else _stored(place, name, last)
    found = [against(events, old, new) for events, old in recorded if old.name == name]
    if not found:
        raise UsageError(f"There is no recorded run of {name} {f'in {folder}' if folder else 'here'}.")
    different = [one for one in found if not one.same]
    if as_json:
        print_json(
            {
                "flow": name,
                "against": new.file,
                "same": not different,
                "runs": [one.to_json() for one in found],
            }
        )
    else:
        for line in (_markdown if markdown else _lines)(name, new.file, found):
            print(line)
    return Exit.FAILED if different else Exit.OK


def _stored(place: Place, name: str, last: int) -> Iterator[Recorded]:
    """The last runs of a flow in the store, newest first; those on hold, or whose text cannot be read here, are left out."""
    settings = place.settings()
    with opened(settings, f"no run of {name}") as store:
        heads = store.sessions.heads(limit=None)
        mine = [head for head in heads if head.flow_name == name and head.quarantined is None]
        for head in mine[:last]:
            try:
                flow, _ = stored_flow(store, head.flow_digest)
            except FlowError:
                continue
            yield [decode_event(row) for row in store.sessions.journal(head.session_id)], flow


def _exported(folder: Path) -> Iterator[Recorded]:
    """The runs in files of `sayso sessions export`. Raises `UsageError` for a folder without any, and for what is no such
    file."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.")
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise UsageError(f"{folder} has no files from `sayso sessions export`.")
    for path in files:
        try:
            file = read_export(path.read_bytes())
            yield contents(file)[0], flow_in(file)
        except SnapshotRefused as error:
            raise UsageError(f"{path}: {error}") from error


def _told(one: Compared) -> Iterator[str]:
    if one.first is not None:
        yield f"first difference: {one.first}"
    yield from one.approvals
    if one.plan is not None:
        yield from (f"it waits and could not continue: {problem}" for problem in one.plan.problems)
        if not one.plan.problems and one.plan.waits:
            yield f"it waits at {', '.join(one.plan.waits)} and could continue there"


def _summary(name: str, file: str, found: Sequence[Compared]) -> str:
    different = sum(not one.same for one in found)
    approvals = sum(len(one.approvals) for one in found)
    changed = f", {plural(approvals, 'approval')} would change" if approvals else ""
    return f"{plural(len(found), 'run')} of {name} under {file}: {different} would differ{changed}."


def _lines(name: str, file: str, found: Sequence[Compared]) -> Iterator[str]:
    for one in found:
        told = list(_told(one))
        yield f"{one.session_id}  {in_words(one.standing)}{'' if told else ', no difference'}"
        yield from (f"  {clean(line)}" for line in told)
    yield _summary(name, file, found)


def _markdown(name: str, file: str, found: Sequence[Compared]) -> Iterator[str]:
    """The same as a comment for a pull request."""
    yield f"**{_summary(name, file, found)}**"
    different = [one for one in found if not one.same]
    if different:
        yield ""
        yield "| run | | under the new version |"
        yield "|---|---|---|"
        for one in different:
            told = "<br>".join(clean(line).replace("|", "\\|").replace("<", "&lt;") for line in _told(one))
            yield f"| `{one.session_id}` | {in_words(one.standing)} | {told} |"
