"""The app's Home, and alike approvals that are decided together from there.

A Home is published to whoever opened it in the last quarter of an hour: when they open it, when they press in it, and
when something happens that it shows. One publish a person waits at a time and is rendered when it is sent, so it shows
what is true then however much happened before; one that would show the same again is left out. Slack takes a hundred
publishes a minute.

A crash: who looks at a Home is forgotten, and it is published again when they open it. Buttons of an older Home are
checked like any others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bot.config.library import Library
from bot.config.profiles import Profiles
from bot.inbound.decisions import VIEW, Accept, Errors, Opened, Opening, Submission, Verdict, View
from bot.inbound.meaning import UNKNOWN
from bot.outbound.calls import Hold, Modals
from bot.outbound.destinations import Names
from bot.outbound.notices import Notices
from bot.rendering.home import (
    KINDS,
    MOST_OTHERS,
    MOST_RECENT,
    MOST_RUNNING,
    HomePage,
    Look,
    Run,
    home_view,
    page_of,
    words_home,
)
from bot.rendering.waiting import ANSWER, DECISION, ONE, REASON, TOGETHER, Waiting, alike, together_view
from bot.views.kinds import PromptLookup
from bot.views.me import about
from bot.views.service import BROKEN, Kind
from bot.views.waiting_for import WaitingFor
from bot.wire.client import RateLimited, SlackFault
from bot.wire.users import Links, LookupFailed, People, Spot
from engine.decide.agents import wide_grants
from engine.decide.question import spoken
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.phases import ENDED
from engine.journal.records import InboxItem, InboxRow
from engine.journal.state import State
from engine.language.actors import requester_of
from engine.language.codec import Json, encode
from engine.language.errors import SaysoError
from engine.nodes.runtime.effects import unless_lost
from engine.run.engine import Engine
from engine.storage.fence import WorkPermit
from prompt_state.question_row import PromptState, thread_key

log = logging.getLogger("sayso.views")

LOOKS_SECONDS = 900.0
"""Seconds for which a Home that was opened is kept up to date."""
APART_SECONDS = 0.7
"""The least time between two publishes for one person."""
_LOOKED_AT = 100
"""Sessions that are looked at for one Home; beyond them only newer ones are shown."""
_OPEN = ("running", "paused")
_SHOWN = (
    ev.PromptEvent,
    ev.Boundary,
    ev.FlowPausing,
    ev.FlowPaused,
    ev.FlowResumed,
    ev.SessionUnreachable,
    ev.SessionReachable,
)
"""Events of sessions that change a Home."""


@dataclass
class Watch:
    """Somebody looks at their Home."""

    look: Look
    opened: float
    published: float = float("-inf")
    shows: View = field(default_factory=dict)
    """The view that was published last, without the time."""


@dataclass(eq=False, repr=False)
class HomeKind(Kind):
    """`app_home_opened`, and the controls of a Home."""

    name = "home"

    _engine: Engine
    _library: Library
    _people: People
    _waiting: WaitingFor
    _links: Links
    _screen: Modals
    _clock: Callable[[], float]
    _profiles: Profiles
    _names: Names
    _watches: dict[str, Watch] = field(default_factory=dict, init=False)
    _pending: dict[str, None] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def open(self, opening: Opening) -> Opened:
        """It is published at once, and again for a while when something changes."""
        before = self._watches.get(opening.user)
        look = Look() if before is None else before.look
        watch = Watch(_looked(look, opening.value), self._clock())
        self._watches[opening.user] = watch
        self._publish(opening.user)
        return None

    def happened(self, state: State, events: Sequence[Event]) -> None:
        """A session took a step: Homes that people look at may show it."""
        if any(isinstance(event, _SHOWN) for event in events):
            self.look_around()

    def look_around(self) -> None:
        """Something may have changed: all Homes that people look at are made again."""
        since = self._clock() - LOOKS_SECONDS
        self._watches = {user: watch for user, watch in self._watches.items() if watch.opened >= since}
        for user in self._watches:
            self._publish(user)

    def look_again(self, user: str) -> None:
        """Somebody changed what their Home says."""
        if user in self._watches:
            self._publish(user)

    def _publish(self, user: str) -> None:
        self._pending.setdefault(user)
        self._wake.set()

    async def run(self) -> None:
        """Publish pending views one by one, the longest-waiting person first."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                now = self._clock()
                due = {user: self._due(user, now) for user in self._pending}
                user = min(due, key=lambda each: due[each])
                await asyncio.sleep(due[user] - now)
                del self._pending[user]
                watch = self._watches.get(user)  # who has not looked for long is forgotten meanwhile
                if watch is not None:
                    store = self._engine.store
                    await unless_lost(self._published(user, watch), WorkPermit(store, store.generation()))

    def _due(self, user: str, now: float) -> float:
        watch = self._watches.get(user)
        return now if watch is None else max(now, watch.published + APART_SECONDS)

    async def _published(self, user: str, watch: Watch) -> None:
        try:
            view = await self._view(user, watch.look)
        except Exception:
            # A fault of ours: whoever looks is told.
            log.exception("the Home of %s could not be made", user)
            view = words_home(BROKEN)
        shows = {**view, "blocks": view["blocks"][:-1] or view["blocks"]}
        if shows == watch.shows:
            return
        # Nobody knows which view it has if the answer is lost.
        watch.published, watch.shows = self._clock(), {}
        try:
            await self._screen.publish(user, view)
            watch.shows = shows
        except (SlackFault, Hold) as fault:
            log.warning("the Home of %s was not published: %s", user, fault)
            if isinstance(fault, RateLimited | Hold):
                seconds = fault.seconds if isinstance(fault, Hold) else fault.retry_after
                watch.published += seconds
                self._publish(user)

    # --- what is seen --------------------------------------------------------------------------------------

    async def _view(self, user: str, look: Look) -> View:
        """The Home of this person. A person who cannot be looked up only sees the flows."""
        try:
            actor = await self._people.actor({"user": user, "channel": ""}, in_channel=False)
        except LookupFailed:
            return words_home("Slack could not identify you right now. Please open this again.")
        if actor.deleted or actor.is_bot or actor.is_stranger:
            return words_home("This is only for members of the workspace.")
        waiting, others = await self._waiting.of(user)
        running = await self._runs(user, _OPEN, _LOOKED_AT)
        recent = await self._runs(user, ENDED, MOST_RECENT)
        now = self._engine.now()
        mine = about(await self._profiles.of(user), now)
        kept = wide_grants.current(
            await self._engine.writer.call(self._engine.store.kept.rows, wide_grants.GRANT), now
        )
        allowed = [grant for grant in kept if user in [person.get("id") for person in grant.by]]
        page = HomePage(waiting, [], [], self._library.refresh(), now, others, look, mine, allowed)
        seen = [*page_of(page), *others[:MOST_OTHERS]]
        spots = [_spot(entry.prompt) for entry in seen] + [
            _root(state) for state in [*running[:MOST_RUNNING], *recent]
        ]
        links = await self._links.those_known(spot for spot in spots if spot is not None)
        ids = await self._names(whom for entry in seen for whom in entry.asked)

        def linked(entry: Waiting) -> Waiting:
            link = links.get(_spot(entry.prompt) or ("", ""))
            return Waiting(entry.prompt, entry.flow_name, link, ids)

        def run(state: State) -> Run:
            return Run(state, links.get(_root(state) or ("", "")))

        return home_view(
            replace(
                page,
                waiting=[linked(entry) for entry in waiting],
                others=[linked(entry) for entry in others],
                running=[run(state) for state in running],
                recent=[run(state) for state in recent],
            )
        )

    async def _runs(self, user: str, statuses: Sequence[str], most: int) -> list[State]:
        """Sessions in channels that this person is in, their own first, then the newest."""
        heads = await self._engine.writer.call(
            self._engine.store.sessions.heads, statuses=statuses, limit=_LOOKED_AT
        )
        found: list[State] = []
        for head in heads:
            if head.thread_key is None or head.quarantined is not None:
                continue
            if not await self._waiting.is_in(user, head.thread_key.split(":")[1]):
                continue
            try:
                found.append(await self._engine.verified_state(head.session_id))
            except SaysoError:
                continue
        found.sort(key=lambda state: state.updated_at, reverse=True)
        found.sort(key=lambda state: requester_of(state.actor) != user)
        return found[:most]


def _looked(look: Look, value: str) -> Look:
    """The page that somebody asks for by a control that carries this value."""
    name, _, chosen = value.partition(":")
    if name == "kind" and chosen in KINDS:
        return replace(look, kind=chosen, start=0)
    if name == "flow":
        return replace(look, flow=chosen, start=0)
    if name == "from" and chosen.isdigit():
        return replace(look, start=int(chosen))
    return look if name == "again" else Look()


def _spot(prompt: PromptState) -> Spot | None:
    """The place of a question; while it is being posted, that of its thread."""
    ts = prompt.message_ts or prompt.thread_ts
    return (prompt.channel, ts) if prompt.channel and ts else None


def _root(state: State) -> Spot | None:
    thread = state.thread or {}
    return (thread["channel"], thread["threadTs"]) if thread.get("threadTs") else None


# --- alike approvals, decided together ---------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Together(Kind):
    """`sayso:open:together`: one decision for alike approvals. Each becomes a row of the inbox, as if it was pressed in
    its own thread: decided, refused and recorded by itself."""

    name = TOGETHER

    _notices: Notices
    _waiting: WaitingFor
    _prompts: PromptLookup
    _taken: Callable[[], None]

    async def open(self, opening: Opening) -> Opened:
        """Those that are like the one that the button names."""
        waiting, _ = await self._waiting.of(opening.user)
        for group in alike(waiting).values():
            if any(entry.prompt.prompt_id == opening.value for entry in group):
                return together_view(group, opening.user)
        return "You have no more questions of this kind."

    async def check(self, submission: Submission) -> Verdict:
        """A decision, and questions that are still those that were shown."""
        decision = (submission.given(DECISION).get("selected_option") or {}).get("value")
        reason = spoken(submission.given(REASON).get("value"))
        if decision not in ("approve", "reject"):
            return Errors({DECISION: "Please choose."})
        errors: dict[str, str] = {}
        each: list[Json] = []
        for block in submission.values:
            ticked = submission.given(block).get("selected_options") if block.startswith(ONE) else None
            if not ticked:
                continue
            prompt_id, _, nonce = str(ticked[0]["value"]).partition("|")
            shown = prompt_id == block.removeprefix(ONE)
            asked = await self._prompts.asked(prompt_id, nonce) if shown else UNKNOWN
            if isinstance(asked, str):
                errors[block] = f"{asked} Please deselect it."
                continue
            refused = self._prompts.out_of_question(asked, submission.user, "decide")
            if refused is not None:
                errors[block] = refused
            if decision == "reject" and asked.run.require_reason and not reason:
                errors[REASON] = "Please give a reason."
            row = asked.row
            each.append(
                {"promptId": prompt_id, "nonce": nonce, "channel": row.channel, "threadTs": row.thread_ts}
            )
        if not each and not errors:
            return Errors({DECISION: "Nothing is selected."})
        return (
            Errors(errors)
            if errors
            else Accept({"decision": decision, "reason": reason or None, "each": each})
        )

    async def submit(self, row: InboxRow, data: dict[str, Json]) -> bool:
        """A row for each."""
        told = {name: data[name] for name in ("team", "user", "reason")}
        items = [
            InboxItem(
                f"{row.key}:{one['promptId']}",
                VIEW,
                encode({**told, **one, "kind": ANSWER, "value": data["decision"], "from": "home"}),
                thread_key=thread_key(data["team"], one["channel"], one["threadTs"]),
            )
            for one in data["each"]
        ]
        done = await self._notices.split(row, items)
        self._taken()
        return done
