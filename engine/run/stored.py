"""A stored session for readers, without an event loop or an engine."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from functools import cache
from importlib import import_module

from engine.flow.form import flow_from_form, form_of
from engine.flow.load import flow_from_body
from engine.flow.model import Flow
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.records import FlowForm
from engine.journal.snapshot import fold
from engine.journal.state import State
from engine.language import timestamps
from engine.storage.store import Store

_READERS = ("flow", "flow.checks", "forms", "language", "nodes.types", "types")
"""Rooms that define the meaning of a flow's text."""


def utc_now() -> str:
    """Return the current time in its stored form."""
    return timestamps.to_text(datetime.now(UTC))


def stored_state(store: Store, session_id: str) -> State:
    """Return the state of a session as an engine would load it, for readers.

    Raises `UnknownSession`, `Corrupt`, `MalformedJournal`.
    """
    state = fold(store.sessions.load(session_id))
    return state if state is not None else derive_state(map(decode_event, store.sessions.journal(session_id)))


def stored_flow(store: Store, digest: str) -> tuple[Flow, bool]:
    """Return the flow pinned under this digest, and True if its text had to be read: then a form should be kept. Raises
    `FlowError`, `SchemaTooNew`, `StorageError`."""
    form = store.flows.form(digest, release())
    flow = None if form is None else flow_from_form(form, digest)
    if flow is not None:
        return flow, False
    return flow_from_body(store.flows.text(digest)), True


def known_flow(store: Store, name: str, file: str, text: str) -> Flow | None:
    """Return the flow of a file if this release has read the same text for a session of this store and the text alone
    decides its validity: no other flow, package or code. Raises `StorageError`."""
    digest = Flow(name, file, text, {}).digest
    form = store.flows.form(digest, release())
    flow = None if form is None else flow_from_form(form, digest)
    return None if flow is None or flow.runs_code else flow


def flow_form(flow: Flow) -> FlowForm | None:
    """Return the form of a flow for this release, or None if it has none."""
    form = form_of(flow)
    return None if form is None else FlowForm(flow.digest, release(), form)


@cache
def release() -> str:
    """Fingerprint (path, size, mtime) of the modules that parse flows, as for .pyc files. A cached form with another
    fingerprint is ignored."""
    found = hashlib.sha256()
    for room in _READERS:
        for folder in import_module(f"engine.{room}").__path__:
            for file in sorted(os.scandir(folder), key=lambda file: file.name):
                if file.name.endswith(".py"):
                    at = file.stat()
                    found.update(f"{file.path}:{at.st_size}:{at.st_mtime_ns}\n".encode())
    return found.hexdigest()
