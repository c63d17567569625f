"""Starts that are asked for from outside of Slack (`sayso start-flow`, the control room): the row that the bot carries out, and
what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from bot.start.schedules import wanted_item
from engine.journal.records import InboxItem
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.run.session import RequestRefused
from engine.storage.store import Store
from prompt_state.question_row import thread_key

LOOK_SECONDS = 0.05
"""Seconds between two looks at what became of a start."""


@dataclass(frozen=True)
class Started:
    """Result of a start: the session and its thread, or nothing yet; `there` is true if a bot runs that can start it."""

    there: bool
    session_id: str | None = None
    channel: str | None = None
    thread_ts: str | None = None


def asked_item(
    once: str, flow: str, channel: str, inputs: dict[str, Json], who: Actor, where: str
) -> InboxItem:
    """A start that somebody asks for in a channel, by id or `#name`; the same `once` starts nothing twice. On its message stands
    `where` a local user asked; of somebody of Slack the id counts, and the bot looks up who that is."""
    is_local = who.kind == "local"
    return wanted_item(
        f"start-flow:{once}",
        flow,
        channel,
        inputs,
        why=f"started by {who.name} {where}",
        icon="",
        local=who.name if is_local else None,
        account=who.account if is_local else None,
        user=None if is_local else who.id,
    )


def started(store: Store, key: str, flow: str) -> Started:
    """Result of the start with this key, as far as there is one. Raises `RequestRefused`."""
    there = "bot" in store.serving()
    rooted = store.inbox.row(f"rooted:{key}")
    for row in (store.inbox.row(key), rooted):
        if row is not None and row.outcome == "refused":
            raise RequestRefused.of(row, "The bot refused to start it.")
    if rooted is None or rooted.outcome != "started":
        return Started(there)
    data = decode(rooted.payload)
    channel, ts = data["posted"]["channel"], data["posted"]["ts"]
    heads = store.sessions.heads(thread_key=thread_key(data["team"], channel, ts))
    begun = next((head.session_id for head in heads if head.flow_name == flow), None)
    return Started(there, begun, channel, ts)
