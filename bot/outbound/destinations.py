"""Destinations of messages: places outside of the session's thread, names and addresses as mentions, and the names of
speaking agents; and whether a session's thread takes posts, as Slack's answers to its rows tell.

A channel that was archived, or that the bot was removed from, is not a fault of a row: the row waits, its session
becomes unreachable, and the row is retried periodically. The first one that Slack takes brings the session back.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.faces.places import around, label_of
from bot.intents.agent_rows import agent_of
from bot.intents.slots import CARD, QUESTION
from bot.outbound.posts import Ledger, Outcome, Sent, Sessions, later, posted_of
from bot.outbound.turns import in_thread, slot_of
from bot.rendering.text import safe
from bot.wire.client import Permanent, classify, joined_channels
from engine.journal.records import Head, InboxItem, OutboxRow
from engine.journal.state import State
from engine.language import timestamps
from engine.language.actors import requester_of
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.run import remote_commands

log = logging.getLogger("sayso.outbound")


KEEP_SECONDS = 600.0
AGAIN_SECONDS = 2.0
"""Seconds to wait if Slack could not be asked."""
DM = "dm:"
_USER = re.compile(r"[UW][A-Z0-9]{2,}")


class Places:
    """Looks up Slack's ids, and keeps them for a while.

    Raises `Permanent` for what does not exist, and `Hold` where Slack cannot say it now: nothing was posted then.
    """

    def __init__(self, client: AsyncWebClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._named: dict[str, str] = {}
        self._named_at = float("-inf")
        self._direct: dict[str, str] = {}

    async def channel(self, to: str, requester: Mapping[str, Json] | None) -> str:
        """The conversation that `to` means: an id, `#name`, or `dm:` and a person."""
        if to.startswith(DM):
            return await self.direct(await self.person(to.removeprefix(DM), requester))
        return await self._by_name(to.removeprefix("#")) if to.startswith("#") else to

    async def person(self, entry: str, requester: Mapping[str, Json] | None) -> str:
        """The user id of one person: an id, an e-mail address, or `requester`."""
        found = entry
        if entry == "requester":
            found = requester_of(requester or {}) or ""
            if not found:
                raise Permanent("user_not_found", "this run has no requester: no person started it")
        elif "@" in entry:
            answer = await self._ask(self._client.users_lookupByEmail(email=entry))
            found = str(answer["user"]["id"])
        if not _USER.fullmatch(found):
            raise Permanent("user_not_found", f"{entry} is not a member of this workspace")
        return found

    async def direct(self, user: str) -> str:
        """The direct message with somebody. Opening it again changes nothing."""
        if user not in self._direct:
            answer = await self._ask(self._client.conversations_open(users=user))
            self._direct[user] = str(answer["channel"]["id"])
        return self._direct[user]

    async def _by_name(self, name: str) -> str:
        if name not in self._named or self._clock() - self._named_at > KEEP_SECONDS:
            self._named = await self._ask(joined_channels(self._client))
            self._named_at = self._clock()
        if name not in self._named:
            raise Permanent("channel_not_found", f"the bot is not in a channel #{name}: invite it there")
        return self._named[name]

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except Exception as error:
            raise later(error, lambda: AGAIN_SECONDS, "looking up where to post") from error


MOST_SECONDS = 3.0
"""A prompt is shown without mentions rather than much later."""


class Names:
    """Looks ids up and keeps them for a while. What cannot be looked up is shown as it is written."""

    def __init__(
        self, client: AsyncWebClient, clock: Callable[[], float], *, most_seconds: float = MOST_SECONDS
    ) -> None:
        self._client = client
        self._clock = clock
        self._most = most_seconds
        self._kept: dict[str, tuple[float, dict[str, str]]] = {}

    async def __call__(self, entries: Iterable[str]) -> dict[str, str]:
        """The ids of those entries that are known. Never raises."""
        known: dict[str, str] = {}
        try:
            async with asyncio.timeout(self._most):
                for entry in entries:
                    if entry.startswith("@"):
                        known |= await self._keep("@", self._groups, "")
                    elif "@" in entry:
                        known |= await self._keep(entry, self._person, entry)
        except Exception as error:
            log.info("some people could not be looked up and are not mentioned: %s", error)
        return known

    async def _groups(self, _: str) -> dict[str, str]:
        answer = await self._client.usergroups_list()
        return {f"@{group['handle']}": str(group["id"]) for group in answer["usergroups"]}

    async def _person(self, email: str) -> dict[str, str]:
        answer = await self._client.users_lookupByEmail(email=email)
        return {email: str(answer["user"]["id"])}

    async def _keep(self, key: str, ask: Callable[[str], Any], argument: str) -> dict[str, str]:
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept[0] < KEEP_SECONDS:
            return kept[1]
        found: dict[str, str] = {}
        try:
            found = await ask(argument)
        except SlackApiError as error:
            log.info("%s is not mentioned: %s", key, classify(error))
        self._kept[key] = (self._clock(), found)
        return found


_KEPT = 500


class Speakers:
    """Names of agents above their texts. Once given, a name stays, even if other agents end."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._called: dict[tuple[str, str], str] = {}

    async def of(self, data: Mapping[str, Json]) -> str:
        """Return the agent of an entry, as mrkdwn; empty if there is only one. `data` is the entry's row."""
        key = (data["sessionId"], agent_of(data["turn"]))
        if key not in self._called:
            if len(self._called) >= _KEPT:
                self._called.clear()
            self._called[key] = await self._place(*key, data)
        return self._called[key]

    async def _place(self, session_id: str, agent: str, data: Mapping[str, Json]) -> str:
        if "/" not in agent and not data.get("beside"):
            return ""
        try:
            flow = await self._sessions.flow(session_id)
        except SaysoError:
            return ""
        outside = around(State(), flow, agent, data.get("items") or {})
        return safe(" › ".join([*outside, label_of(flow, agent)]))


# --- whether a thread can be posted in ---------------------------------------------------------------------


CLOSED = ("is_archived", "not_in_channel", "channel_not_found", "is_inactive")
"""Slack's errors for a channel that takes no posts until a person changes that."""

UNSHOWN_SECONDS = 86400.0
"""After how long a question that could not be shown makes its session unreachable."""


class Reachability:
    """Effects on sessions of Slack's answers to their rows."""

    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self._ledger = ledger
        self._sessions = sessions

    async def lost(self, row: OutboxRow, fault: Permanent) -> Sequence[InboxItem] | None:
        """Return the effects of a thread that takes no posts; None if this refusal has another meaning.

        A question is never given up: whatever Slack has against it, nobody could answer what nobody sees."""
        unseen = slot_of(row) == QUESTION and posted_of(row) is None
        if (fault.reason not in CLOSED and not unseen) or row.session_id is None or not in_thread(row):
            return None
        state = await self._sessions.state(row.session_id)
        if state.ended or not state.thread or (state.phase == "finalizing" and not unseen):
            # Nobody waits for it any more: such rows fail as any other.
            return None
        if state.phase not in ("running", "waiting"):
            return []
        key = f"unreachable:{row.key}:{state.seq}"
        return [remote_commands.item(key, state.session_id, "unreachable", reason=fault.reason)]

    def unshown(self, row: OutboxRow, now: str) -> Sequence[InboxItem]:
        """Return the effects of a question that could not be shown for a day, or a card above it, whatever the reason."""
        late = timestamps.seconds_between(row.created_at, now) >= UNSHOWN_SECONDS
        seen = slot_of(row) not in (CARD, QUESTION) or posted_of(row) is not None
        if row.session_id is None or not late or seen:
            return []
        return [
            remote_commands.item(
                f"unreachable:{row.key}:unshown", row.session_id, "unreachable", reason="not_shown"
            )
        ]

    async def regained(self, row: OutboxRow, outcome: Outcome) -> Sequence[InboxItem]:
        """Return the effects of a successful post for an unreachable session."""
        taken = isinstance(outcome, Sent) and "ts" in outcome.result
        if not taken or row.session_id is None or not in_thread(row):
            return []
        head = await self._ledger.head(row.session_id)
        if head is None or head.phase != "unreachable":
            return []
        return [remote_commands.item(f"reachable:{row.key}:{head.seq}", row.session_id, "reachable")]

    async def waiting_in(self, channel: str, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Those of some pending rows that wait for this channel."""
        found = []
        for row in rows:
            head: Head | None = None
            if row.session_id is not None and in_thread(row):
                head = await self._ledger.head(row.session_id)
            if head is not None and (head.thread_key or "").split(":")[1:2] == [channel]:
                found.append(row)
        return found
