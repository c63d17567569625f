"""The app's Home of one person: made anew whenever it is opened."""

from __future__ import annotations

from collections.abc import Sequence

from bot.config.library import Library
from bot.inbound.decisions import Opened, Opening, Show
from bot.rendering.home import (
    MOST_RECENT,
    MOST_RUNNING,
    MOST_WAITING,
    HomePage,
    Run,
    Waiting,
    home_view,
    words_home,
)
from bot.views.service import Kind
from bot.wire.users import Links, LookupFailed, People, Spot
from engine.decide.policy import Gate
from engine.journal.state import State
from engine.journal.transitions import ENDED
from engine.language.actors import requester_of
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.run.engine import Engine
from prompt_state import store as prompts
from prompt_state.policy import may_act_on
from prompt_state.question_row import PromptState

_LOOKED_AT = 100
"""Sessions that are looked at for one Home; beyond them only newer ones are shown."""

_OPEN = ("running", "paused")


class HomeKind(Kind):
    """`app_home_opened`, and the button that shows it anew."""

    name = "home"

    def __init__(self, engine: Engine, library: Library, people: People, gate: Gate, links: Links) -> None:
        self._engine = engine
        self._library = library
        self._people = people
        self._gate = gate
        self._links = links

    async def open(self, opening: Opening) -> Opened:
        """What this person may see. Whoever cannot be looked up sees the flows only."""
        try:
            actor = await self._people.actor({"user": opening.user, "channel": ""}, in_channel=False)
        except LookupFailed:
            return Show(words_home("Slack could not say who you are just now. Please open this again."))
        if actor.deleted or actor.is_bot or actor.is_stranger:
            return Show(words_home("This is for members of the workspace."))
        waiting = await self._waiting(opening)
        running = await self._runs(opening, _OPEN, MOST_RUNNING + 1)
        recent = await self._runs(opening, ENDED, MOST_RECENT)
        spots = [_spot(prompt) for prompt in waiting] + [_root(state) for state in [*running, *recent]]
        links = await self._links.those_known(spot for spot in spots if spot is not None)
        names = {state.session_id: state.flow_name for state in running}
        page = HomePage(
            waiting=[
                Waiting(prompt, await self._flow_name(prompt, names), links.get(_spot(prompt) or ("", "")))
                for prompt in waiting
            ],
            running=[Run(state, links.get(_root(state) or ("", ""))) for state in running],
            recent=[Run(state, links.get(_root(state) or ("", ""))) for state in recent],
            flows=self._library.refresh(),
            now=self._engine.now(),
        )
        return Show(home_view(page))

    # --- what is seen --------------------------------------------------------------------------------------

    async def _waiting(self, opening: Opening) -> list[PromptState]:
        """The open questions that this person may answer, the newest first."""
        found = []
        asked = await self._engine.writer.call(prompts.waiting, self._engine.store)
        for prompt in reversed(asked):
            if prompt.channel and await self._may_answer(opening, prompt):
                found.append(prompt)
            if len(found) > MOST_WAITING:
                break
        return found

    async def _may_answer(self, opening: Opening, prompt: PromptState) -> bool:
        data: dict[str, Json] = {"user": opening.user, "channel": prompt.channel}
        entries = [*(prompt.approvers or ()), *(prompt.who or ())]
        try:
            actor = await self._people.actor(data, entries=entries)
        except LookupFailed:
            return False
        # Whoever cannot read the thread does not get its question here either.
        if not actor.in_channel:
            return False
        requester: dict[str, Json] = {"id": prompt.requester_id, "name": prompt.requester_name}
        return bool(may_act_on(actor, [prompt], self._gate.target(requester, True)))

    async def _runs(self, opening: Opening, statuses: Sequence[str], most: int) -> list[State]:
        """Sessions in channels that this person is in, their own first, then the newest."""
        heads = await self._engine.writer.call(self._engine.store.heads, statuses=statuses, limit=_LOOKED_AT)
        found: list[State] = []
        for head in heads:
            if head.thread_key is None or head.quarantined is not None:
                continue
            if not await self._is_in(opening.user, head.thread_key.split(":")[1]):
                continue
            try:
                found.append(await self._engine.verified_state(head.session_id))
            except SaysoError:
                continue
        mine = opening.user
        found.sort(key=lambda state: state.updated_at, reverse=True)
        found.sort(key=lambda state: requester_of(state.actor) != mine)
        return found[:most]

    async def _is_in(self, user: str, channel: str) -> bool:
        try:
            return await self._people.is_member(user, channel)
        except LookupFailed:
            return False

    async def _flow_name(self, prompt: PromptState, names: dict[str, str]) -> str:
        if prompt.session_id not in names:
            head = await self._engine.writer.call(self._engine.store.head, prompt.session_id)
            names[prompt.session_id] = head.flow_name if head is not None else ""
        return names[prompt.session_id]


def _spot(prompt: PromptState) -> Spot | None:
    """Where a question stands; while it is being posted, its thread."""
    ts = prompt.message_ts or prompt.thread_ts
    return (prompt.channel, ts) if prompt.channel and ts else None


def _root(state: State) -> Spot | None:
    thread = state.thread or {}
    return (thread["channel"], thread["threadTs"]) if thread.get("threadTs") else None
