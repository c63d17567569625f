"""Sessions that travel as files: checking one, and bringing its session into a store that does not have it."""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine.flow import Flow
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.snapshot import events_in, export, read_export, signed_addition, signed_part
from engine.journal.state import State
from engine.language.codec import Json, canonical, decode, encode
from engine.language.errors import NotJson, SnapshotRefused
from engine.nodes.runtime.folder import FileRefused, copied_folder, session_folder
from engine.nodes.runtime.kept_files import keep, kept_bytes, kept_digests, kept_folder
from engine.storage.group_commit import Writer
from engine.storage.sealing import Sealer

if TYPE_CHECKING:
    from engine.run.shared_files import SharedFiles

_PURPOSE = "snapshot-file"


async def portable_file(writer: Writer, home: Path, session_id: str) -> bytes:
    """Return a session of a store as one portable file, with the files kept beside its folder, signed with the store's key.
    Raises `UnknownSession`, `Corrupt`."""
    sessions = writer.store.sessions
    journal = [decode_event(row) for row in await writer.call(lambda: list(sessions.journal(session_id)))]
    head = await writer.call(sessions.head, session_id)
    assert head is not None, "it has a journal"
    body = await writer.call(writer.store.flows.text, head.flow_digest)
    kept = await asyncio.to_thread(_kept, session_folder(home, session_id))
    file = export(derive_state(journal), journal, body) | ({"kept": kept} if kept else {})
    mac = await writer.call(writer.store.sign, _PURPOSE, signed_part(file))
    return encode({**file, "mac": mac.hex()})


def _kept(workdir: Path) -> dict[str, Json]:
    """The files that conversations have shown, by digest. One that was removed or changed is missing elsewhere as here."""
    found: dict[str, Json] = {}
    for digest in sorted(kept_digests(workdir)):
        with suppress(FileRefused):
            found[digest] = base64.b64encode(kept_bytes(workdir, digest, digest)).decode()
    return found


@contextmanager
def files_brought(file: dict[str, Json], workdir: Path) -> Iterator[None]:
    """Keep the files that a verified file's conversations have shown; they are removed again if the body fails. Raises
    `SnapshotRefused` if they cannot be kept."""
    folder = kept_folder(workdir)
    was_here = folder.exists()
    try:
        try:
            for text in file.get("kept", {}).values():
                keep(workdir, base64.b64decode(text))
        except OSError as error:
            raise SnapshotRefused(
                f"The files of the session cannot be stored in {folder}: {error}"
            ) from error
        yield
    except BaseException:
        if not was_here:
            import shutil  # few sessions are refused

            shutil.rmtree(folder, ignore_errors=True)
        raise


@asynccontextmanager
async def copied_files(
    shared: SharedFiles | None, home: Path, session_id: str, fork_id: str
) -> AsyncIterator[None]:
    """Copy a session's files for its fork; the copy is removed again if the body fails. Raises `FileRefused`, and the
    errors of reading `shared` ones."""
    folders = session_folder(home, session_id), session_folder(home, fork_id)
    async with AsyncExitStack() as stack:
        if shared is None or not await stack.enter_async_context(shared.copied(session_id, fork_id)):
            stack.enter_context(copied_folder(*folders))
            stack.enter_context(copied_folder(*map(kept_folder, folders)))
        yield


async def signed_line(writer: Writer, after: str, events: Sequence[bytes]) -> tuple[bytes, str]:
    """Return later events of a session as a line of its file, whose last line is signed with `after`; and its own
    signature."""
    journal = [decode(event) for event in events]
    mac = await writer.call(writer.store.sign, _PURPOSE, signed_addition(after, journal))
    return encode({"journal": journal, "mac": mac.hex()}), mac.hex()


async def verified_file(writer: Writer, data: bytes) -> dict[str, Json]:
    """A file that carries the signatures it should, decrypted. Raises `SnapshotRefused`, `KeyMissing`."""
    file = read_export(await writer.call(writer.store.disclose, data))
    for signed, mac in _signatures(file):
        _refuse_other_mac(mac, await writer.call(writer.store.sign, _PURPOSE, signed))
    return file


def check_signature(file: dict[str, Json], sealer: Sealer) -> None:
    """The same for a file that was read already, with a key and no store. Raises `SnapshotRefused`."""
    for signed, mac in _signatures(file):
        _refuse_other_mac(mac, sealer.mac(b"sign", _PURPOSE, signed))


def _signatures(file: dict[str, Json]) -> list[tuple[bytes, str]]:
    """Return the signed bytes of a file, line by line, each with its signature."""
    try:
        found = [(signed_part(file), str(file["mac"]))]
        for part in file["added"]:
            found.append((signed_addition(found[-1][1], part["journal"]), str(part["mac"])))
    except NotJson as error:
        raise SnapshotRefused(f"This is not a snapshot file: {error}") from error
    return found


def _refuse_other_mac(given: str, mac: bytes) -> None:
    if not hmac.compare_digest(mac.hex().encode(), given.encode()):
        raise SnapshotRefused("This snapshot was changed, or was signed with another key (SAYSO_SECRET_KEY).")


def contents(file: dict[str, Json]) -> tuple[list[Event], State]:
    """The journal of a verified file, and the state that it folds to."""
    events = [decode_event(encode(event)) for event in events_in(file)]
    return events, derive_state(events)


def flow_in(file: dict[str, Json]) -> Flow:
    """The flow that the session of a verified file pinned. Raises `FlowError`, and `SnapshotRefused` where one of its node
    types cannot be used here."""
    from engine.flow.load import flow_from_body

    flow = flow_from_body(canonical(file["flow"]))
    if flow.absent:
        why = "; ".join(flow.absent.values())
        raise SnapshotRefused(f"{why}: session {file['sessionId']} is imported once this is fixed.")
    return flow


def refuse_other_history(session_id: str, here: Sequence[Event], there: Sequence[Event]) -> None:
    """Raise `SnapshotRefused` unless the session is here exactly as the file has it."""
    if len(here) != len(there):
        raise SnapshotRefused(
            f"Session {session_id} is at event {len(here)} here and the snapshot is at {len(there)}; "
            + (
                "resume the session itself."
                if len(here) > len(there)
                else "continue where the snapshot was made."
            )
        )
    if list(here) != list(there):
        raise SnapshotRefused(
            f"Session {session_id} continued differently here and where the snapshot was made; resume the "
            "session itself."
        )


def refuse_unpaused(state: State) -> None:
    """Raise `SnapshotRefused` for a session that cannot be moved, since no node may run twice."""
    if state.ended:
        raise SnapshotRefused(f"Session {state.session_id} is {state.stands}; there is nothing to resume.")
    if state.phase != "waiting":
        raise SnapshotRefused(
            f"Session {state.session_id} was running when this snapshot was made, so later work of its "
            "nodes is unknown here; take a snapshot while it is paused."
        )
