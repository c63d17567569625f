"""The processes that serve a database on a server: who lives, in which role, with which leases, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from bot.doctor.findings import Check
from bot.outbound.shards import SHARDS, lease_of
from bot.terminal.console import plural
from engine.language import timestamps
from engine.storage.leases import LEADER
from engine.storage.store import Store

WITHOUT = {
    "socket": "nothing is taken from Slack",
    "worker": "no session goes on",
    "outbox": "nothing is posted",
}
"""What is not done where nobody has a role."""


def check_fleet(store: Store) -> Iterator[Check]:
    """Who serves, in which role, with which leases; and how long the oldest rows have waited for any of them."""
    shards = [lease_of(shard) for shard in range(SHARDS)]
    serving = [member for member in store.members([LEADER, *shards]) if member.role]
    for member in serving:
        held = [lease for lease in member.leases if lease != LEADER]
        parts = [f"{len(held)} of {SHARDS} channel shards"] if held else []
        parts += [f"{plural(member.others, 'lane')} in hand"] if member.others else []
        parts += ["leads"] if LEADER in member.leases else []
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
