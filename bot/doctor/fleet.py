"""The processes that serve a database on a server: who lives, in which role, with which lanes, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from bot.doctor.findings import Check
from bot.terminal.console import plural
from engine.language import timestamps
from engine.language.errors import StorageError
from engine.storage.lanes import CHORES, SEND
from engine.storage.store import Store

WITHOUT = {
    "socket": "nothing is received from Slack",
    "worker": "no session runs, and nothing is posted",
}
"""Consequences of a role without a process."""
_DOES = {SEND: "posts in Slack", CHORES: "does the chores"}


def check_listening(store: Store, url: str | None) -> Iterator[Check]:
    """Report how processes learn of each other's work: at once, or by looking twice a second."""
    if url is None and store.pooled():
        polls = (
            "a connection pooler is in front of the database, so each process polls for work twice a second"
        )
        how = "SAYSO_DATABASE_LISTEN_URL can name the direct address of the database"
        yield Check("listening", "ok", f"{polls} ({how})")
    if url is None or not store.shared:
        return
    try:
        heard = store.hears(url)
    except StorageError as error:
        yield Check("listening", "fail", f"SAYSO_DATABASE_LISTEN_URL: {error}")
        return
    if heard:
        yield Check("listening", "ok", "notifications arrive at SAYSO_DATABASE_LISTEN_URL")
    else:
        hint = "Give the direct address of the server, with the same database and schema."
        yield Check("listening", "fail", "no notifications arrive at SAYSO_DATABASE_LISTEN_URL", hint)


def check_fleet(store: Store) -> Iterator[Check]:
    """Report the serving processes with their roles and lanes; and how long the oldest rows have waited."""
    serving = [member for member in store.members() if member.role]
    for member in serving:
        parts = [words for lane, words in _DOES.items() if lane in member.lanes]
        others = len(set(member.lanes) - set(_DOES))
        parts += [f"{plural(others, 'lane')} in hand"] if others else []
        who = f"{member.role}: process {member.owner.split('-')[1]} on {member.host} since {member.since}"
        yield Check("fleet", "ok", ", ".join([who, *parts]))
    roles = {member.role for member in serving}
    for role, undone in WITHOUT.items():
        if serving and not roles & {role, "all"}:
            hint = f"Start one: `sayso start --role {role}`."
            yield Check("fleet", "fail", f"no process has the role {role}: {undone}", hint)
    if serving:
        counts, now = store.counts(), timestamps.to_text(datetime.now(UTC))
        for what, since in (("unhandled", counts.oldest_inbox), ("unsent", counts.oldest_outbox)):
            if since is not None:
                waits = timestamps.seconds_between(since, now)
                yield Check("fleet", "ok", f"the oldest {what} row has waited for {max(0.0, waits):.0f} s")
