"""Open sessions whose flows use node types of installed packages: which of them lack one, and which have it back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decide.reinstalled import restored
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.records import Head
from engine.language.errors import FlowError, SaysoError, StorageBroken, StorageError
from engine.run.engine import Engine
from engine.run.sessions import stored_state
from engine.storage.port import Store

log = logging.getLogger("sayso")


@dataclass
class Needs:
    """`lacking` has the sessions by what they lack, in a sentence; `back` those that wait for a type that is here."""

    lacking: dict[str, list[Head]] = field(default_factory=dict)
    back: list[Head] = field(default_factory=list)


def needs(store: Store) -> Needs:
    """What the open sessions of a store need of packages. Sessions that cannot be read are left out."""
    found = Needs()
    flows: dict[str, Flow | None] = {}
    for head in store.heads(statuses=("running", "paused"), limit=None):
        if head.quarantined is not None:
            continue
        if head.flow_digest not in flows:
            flows[head.flow_digest] = _of_packages(store, head.flow_digest)
        flow = flows[head.flow_digest]
        if flow is None:
            continue
        for why in flow.absent.values():
            found.lacking.setdefault(why, []).append(head)
        if _has_back(store, head, flow):
            found.back.append(head)
    return found


def _of_packages(store: Store, digest: str) -> Flow | None:
    """The flow of that digest, if it uses types of packages; reading one costs more than most sessions are worth."""
    try:
        body = store.flow(digest)
        return flow_from_body(body) if b'"types":' in body else None
    except (FlowError, StorageError):
        return None


def _has_back(store: Store, head: Head, flow: Flow) -> bool:
    try:
        return bool(restored(flow, stored_state(store, head.session_id)))
    except SaysoError:
        return False


async def look_after(engine: Engine, wants: Callable[[Head], bool]) -> None:
    """Log what is lacking, and let those of the wanted sessions go on that waited for a type that is here again."""
    found = await engine.writer.call(lambda: needs(engine.store))
    for why, heads in found.lacking.items():
        log.warning("%s: %d open sessions use it; what needs it waits", why, len(heads))
    for head in filter(wants, found.back):
        try:
            await engine.apply(head.session_id, None)
        except StorageBroken:
            raise
        except SaysoError as error:
            log.warning("%s: %s", head.session_id, error)
