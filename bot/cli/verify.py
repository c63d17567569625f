"""`verify`: whether the history of a session can have happened, and whether anybody changed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bot.cli.lookup import find_session, need_database
from bot.config.settings import Settings
from bot.terminal.cli_context import Place, database_file, opened
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.output import clean, print_json
from engine.decide.verify import verify
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.events import Event, decode_event
from engine.journal.snapshot import read_export
from engine.journal.state import State
from engine.journal.state_json import to_json
from engine.language.codec import Json, canonical, encode
from engine.language.errors import Corrupt, FlowError, MalformedJournal, SnapshotRefused
from engine.run.export import check_signature
from engine.storage.macs import Sealer
from engine.storage.private_files import read_key


@dataclass
class Verdict:
    """What was found: `problem` says which event is wrong and why; None where all of it can have happened."""

    session_id: str
    events: int
    signed: bool
    """Whether the MACs were checked; without the key only the order was."""
    status: str | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Json]:
        """The verdict for a machine."""
        return {
            "sessionId": self.session_id,
            "verifies": self.problem is None,
            "events": self.events,
            "checked": ["order", "signature"] if self.signed else ["order"],
            "status": self.status,
            "problem": self.problem,
        }


def verify_history(place: Place, what: str, *, as_json: bool) -> int:
    """Check an exported file or a session of this home. Raises `UsageError`, `SnapshotRefused`, `StorageError`."""
    file = Path(what)
    verdict = _of_file(place.settings(), file) if file.is_file() else _of_session(place, what)
    if as_json:
        print_json(verdict.to_json())
    else:
        print(_told(verdict))
    return Exit.OK if verdict.problem is None else Exit.STORE


def _told(verdict: Verdict) -> str:
    name = clean(verdict.session_id)
    if verdict.problem is not None:
        return f"{name} does not verify: {clean(verdict.problem)}"
    checked = (
        "and nobody changed it"
        if verdict.signed
        else ("but only its order was checked: the key that signed it is not here (SAYSO_SECRET_KEY)")
    )
    return f"{name} verifies: its {verdict.events} events can have happened ({verdict.status}), {checked}."


# --- an exported file ----------------------------------------------------------------------------------------


def _of_file(settings: Settings, path: Path) -> Verdict:
    try:
        file = read_export(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    sealer = _sealer(settings)
    verdict = Verdict(str(file["sessionId"]), len(file["journal"]), signed=False)
    try:
        state = _history(
            (encode(event) for event in file["journal"]), flow_from_body(canonical(file["flow"]))
        )
        _is_its_state(file, state)
        verdict.status = state.status
        verdict.signed = sealer is not None
        if sealer is not None:
            check_signature(file, sealer)
    except (MalformedJournal, FlowError, SnapshotRefused) as error:
        verdict.problem = str(error)
    return verdict


def _sealer(settings: Settings) -> Sealer | None:
    """The key of this home, as far as there is one; no database is opened for it."""
    key, database = settings.secret_key, database_file(settings)
    if key is None and database is not None:
        key = read_key(database.with_name(f"{database.name}.key"))
    return None if key is None else Sealer(key)


def _is_its_state(file: dict[str, Json], state: State) -> None:
    """The state beside the journal is what the journal says."""
    if file["sessionId"] != state.session_id:
        raise MalformedJournal(
            f"the file is of session {file['sessionId']}, its journal of {state.session_id}"
        )
    if canonical(file["state"]) != canonical(to_json(state)):
        raise MalformedJournal("the state in the file is not what its journal gives")


# --- a session of this home ----------------------------------------------------------------------------------


def _of_session(place: Place, text: str) -> Verdict:
    settings = place.settings()
    need_database(settings, f"no file and no session {text!r}")
    with opened(settings) as store:
        head = find_session(store, text)
        verdict = Verdict(head.session_id, head.seq, signed=True)
        try:
            rows = list(store.journal(head.session_id))
            state = _history(rows, None)
            flow = flow_from_body(store.flow(state.flow_digest))
            verdict.status = _history(rows, flow).status
        except (Corrupt, MalformedJournal, FlowError) as error:
            verdict.problem = str(error)
    return verdict


def _history(rows: Iterable[bytes], flow: Flow | None) -> State:
    events: list[Event] = [decode_event(row) for row in rows]
    try:
        return verify(events, flow)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        # Values of another form than any release writes, deep in an event.
        raise MalformedJournal(f"an event holds something that none can hold: {error!r}") from error
