"""Whether a session's thread can be posted in, seen from what Slack answers to its rows.

A channel that was archived, or that the bot was removed from, is no fault of a row: the row waits, its session
becomes unreachable, and the row is tried again now and then. The first one that Slack takes brings the session back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.outbound.posts import Outcome, Sent, Sessions, posted_of
from bot.wire.client import Permanent
from engine.journal.records import Head, InboxItem, OutboxRow
from engine.language import timestamps
from engine.language.codec import decode
from engine.run import remote_commands
from engine.storage.group_commit import Writer

CLOSED = ("is_archived", "not_in_channel", "channel_not_found", "is_inactive")
"""What Slack says where a channel takes nothing of ours until a person changes that."""

UNSHOWN_SECONDS = 86400.0
"""After how long a question that could not be shown makes its session unreachable."""

_KINDS = ("prompt", "close", "card", "message", "remind", "escalate", "handed", "agent")
"""Rows that go into a session's thread."""

_ELSEWHERE = ("to", "update", "ephemeral_to")
"""Fields of a `message` node by which it goes somewhere else, or to one person."""


class Reachability:
    """What follows for sessions from what Slack did with their rows."""

    def __init__(self, writer: Writer, sessions: Sessions) -> None:
        self._writer = writer
        self._sessions = sessions

    async def lost(self, row: OutboxRow, fault: Permanent) -> Sequence[InboxItem] | None:
        """What follows where the thread cannot be posted in; None where that is not what this refusal means.

        A question is never given up: whatever Slack has against it, nobody could answer what nobody sees."""
        hopeless = row.kind == "prompt" and posted_of(row) is None
        if (fault.reason not in CLOSED and not hopeless) or row.session_id is None or not in_thread(row):
            return None
        state = await self._sessions.state(row.session_id)
        if state.ended or not state.thread or (state.phase == "finalizing" and row.kind != "prompt"):
            # Nobody waits for it any more: such rows fail as any other.
            return None
        if state.phase not in ("running", "waiting"):
            return []
        key = f"unreachable:{row.key}:{state.seq}"
        return [remote_commands.item(key, state.session_id, "unreachable", reason=fault.reason)]

    def unshown(self, row: OutboxRow, now: str) -> Sequence[InboxItem]:
        """What follows for a question that could not be shown for a day, or a card above it, whatever the reason."""
        late = timestamps.seconds_between(row.created_at, now) >= UNSHOWN_SECONDS
        if (
            row.kind not in ("prompt", "card")
            or row.session_id is None
            or not late
            or posted_of(row) is not None
        ):
            return []
        return [
            remote_commands.item(
                f"unreachable:{row.key}:unshown", row.session_id, "unreachable", reason="not_shown"
            )
        ]

    async def regained(self, row: OutboxRow, outcome: Outcome) -> Sequence[InboxItem]:
        """What follows where Slack took something for a session that was out of reach."""
        taken = isinstance(outcome, Sent) and "ts" in outcome.result
        if not taken or row.session_id is None or not in_thread(row):
            return []
        head = await self._writer.call(self._writer.store.head, row.session_id)
        if head is None or head.phase != "unreachable":
            return []
        return [remote_commands.item(f"reachable:{row.key}:{head.seq}", row.session_id, "reachable")]

    async def waiting_in(self, channel: str, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Those of some pending rows that wait for this channel."""
        found = []
        for row in rows:
            head: Head | None = None
            if row.session_id is not None and row.not_before is not None and in_thread(row):
                head = await self._writer.call(self._writer.store.head, row.session_id)
            if head is not None and (head.thread_key or "").split(":")[1:2] == [channel]:
                found.append(row)
        return found

    async def cards_in(self, channel: str, lanes: Iterable[str]) -> list[str]:
        """Those of some lanes of cards whose session lives in this channel."""
        found = []
        for lane in list(lanes):
            head = await self._writer.call(self._writer.store.head, lane.removeprefix("card:"))
            if head is not None and (head.thread_key or "").split(":")[1:2] == [channel]:
                found.append(lane)
        return found


def in_thread(row: OutboxRow) -> bool:
    """Whether a row goes into its session's thread."""
    if row.kind != "message":
        return row.kind in _KINDS
    config = decode(row.payload)["config"]
    return not any(config.get(field) for field in _ELSEWHERE)
