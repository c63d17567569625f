"""A session as it is stored, for whoever only looks: that takes no event loop, and no engine."""

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
"""The rooms that say what a text of a flow means."""


def utc_now() -> str:
    """Now, as it is stored."""
    return timestamps.to_text(datetime.now(UTC))


def stored_state(store: Store, session_id: str) -> State:
    """The state of a session as an engine would load it, for whoever only looks.

    Raises `UnknownSession`, `Corrupt`, `MalformedJournal`.
    """
    state = fold(store.sessions.load(session_id))
    return state if state is not None else derive_state(map(decode_event, store.sessions.journal(session_id)))


def stored_flow(store: Store, digest: str) -> tuple[Flow, bool]:
    """The flow that is pinned under this digest, and whether its text was read for that: then a form is to be kept. Raises
    `FlowError`, `SchemaTooNew`, `StorageError`."""
    form = store.flows.form(digest, release())
    flow = None if form is None else flow_from_form(form, digest)
    if flow is not None:
        return flow, False
    return flow_from_body(store.flows.text(digest)), True


def known_flow(store: Store, name: str, file: str, text: str) -> Flow | None:
    """The flow that a file has, where this release has read the same text for a session of this store and nothing beside the
    text says what is wrong with it: no other flow, no package, no code. Raises `StorageError`."""
    digest = Flow(name, file, text, {}).digest
    form = store.flows.form(digest, release())
    flow = None if form is None else flow_from_form(form, digest)
    return None if flow is None or flow.runs_code else flow


def flow_form(flow: Flow) -> FlowForm | None:
    """The form of a flow for this release; None where it has none."""
    form = form_of(flow)
    return None if form is None else FlowForm(flow.digest, release(), form)


@cache
def release() -> str:
    """What tells the sources apart that read flows, as Python tells whether a compiled module is that of its source: where
    they are, their sizes, and when they were written. A form of others is none of ours."""
    found = hashlib.sha256()
    for room in _READERS:
        for folder in import_module(f"engine.{room}").__path__:
            for file in sorted(os.scandir(folder), key=lambda file: file.name):
                if file.name.endswith(".py"):
                    at = file.stat()
                    found.update(f"{file.path}:{at.st_size}:{at.st_mtime_ns}\n".encode())
    return found.hexdigest()
