"""Messages about a suspended store: to the threads of open sessions, in `sayso doctor`, and in `sayso store release`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator

from bot.intents.session_rows import note_to
from bot.rendering.text import escape
from engine.decide.agents.kinds import KINDS
from engine.decide.due import due
from engine.flow.load import flow_from_body
from engine.journal.records import Head, PutOutbox
from engine.language.errors import SaysoError, StoreSuspended
from engine.run.stored import stored_state
from engine.run.supervision import wait_at_most
from engine.storage.backoff import waited_out
from engine.storage.group_commit import Writer
from engine.storage.store import Store

log = logging.getLogger("sayso")

LOOK_SECONDS = 1.0
"""Seconds between checks whether somebody has released the store."""


def may_repeat(store: Store) -> Iterator[tuple[Head, str]]:
    """Yield the open sessions, each with its stored state: later work may be repeated."""
    for head in store.sessions.heads(statuses=("running", "paused"), limit=None):
        yield head, _stands(store, head)


def _stands(store: Store, head: Head) -> str:
    try:
        state = stored_state(store, head.session_id)
        next_ones = [
            work.path for work in due(flow_from_body(store.flows.text(head.flow_digest)), state, KINDS)
        ]
    except SaysoError as error:
        return f"cannot be read: {error}"
    asked = sorted({state.prompts[prompt_id].path for prompt_id in state.open_prompts})
    places = [
        *(f"`{path}` runs" for path in state.launched),
        *(f"`{path}` is next" for path in next_ones),
        *(f"`{path}` waits for an answer" for path in asked),
    ]
    return f"{', '.join(places) or head.phase}, as of {head.updated_at}"


def notices(store: Store, reason: str) -> list[PutOutbox]:
    """Return one message for each thread of an open session; the same ones for the same reason."""
    which, found = hashlib.sha256(reason.encode()).hexdigest()[:12], list[PutOutbox]()
    for head, stands in may_repeat(store):
        if head.thread_key is None:
            continue
        text = (
            f"⏸️ *{escape(head.flow_name)}* (`{head.session_id}`) is suspended: the stored data is older than "
            f"the last acknowledged state, or was changed from outside. As stored: {escape(stands)}. Later work "
            "may be done a second time, and later answers may be asked for again. Nothing runs until a sayso "
            "admin has checked the store (`sayso doctor`) and released it (`sayso store release`). Messages "
            "here are read after that."
        )
        found.append(note_to(head.thread_key, f"{which}:{head.session_id}", text))
    return found


async def until_released(writer: Writer, now: str, stopping: asyncio.Event) -> None:
    """Return once the store is not suspended; its threads are told meanwhile. Raises `StoreSuspended` when told to stop."""

    async def look() -> str | None:
        return await writer.call(writer.store.suspended)

    reason = await look()
    if reason is None:
        return
    log.critical("%s", StoreSuspended(reason))
    await writer.call(writer.store.outbox.give_notice, await writer.call(notices, writer.store, reason), now)
    while (reason := await waited_out(look, "the check of a suspended store")) is not None:
        await wait_at_most(LOOK_SECONDS, stopping)
        if stopping.is_set():
            raise StoreSuspended(reason)
    log.warning("the store was released; waiting work continues")
