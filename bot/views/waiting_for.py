"""Open questions by the person who may answer them."""

from __future__ import annotations

from bot.rendering.waiting import Waiting
from bot.wire.users import LookupFailed, People
from engine.decide.policy import Gate
from engine.language.codec import Json
from engine.storage.group_commit import Writer
from engine.storage.store import Store
from prompt_state import question_row as prompts
from prompt_state.question_row import PromptState, may_act_on

_MOST_ASKED = 500
"""Questions that are counted for one person."""


class WaitingFor:
    """Open questions that wait for a person, and the people for whom that person's own runs wait."""

    def __init__(self, writer: Writer, people: People, gate: Gate) -> None:
        self._writer = writer
        self._people = people
        self._gate = gate

    async def of(self, user: str) -> tuple[list[Waiting], list[Waiting]]:
        """The questions that this person may answer, and those of their own runs that only others may; newest first.
        Whoever cannot read a thread does not get its question here either."""
        mine: list[Waiting] = []
        others: list[Waiting] = []
        for entry in await self._writer.call(_asked, self._writer.store):
            if len(mine) >= _MOST_ASKED:
                break
            if await self.may_answer(user, entry.prompt):
                mine.append(entry)
            elif entry.prompt.requester_id == user:
                others.append(entry)
        return mine, others

    async def may_answer(self, user: str, prompt: PromptState) -> bool:
        """True if somebody may answer a question and can read its thread."""
        data: dict[str, Json] = {"user": user, "channel": prompt.channel}
        entries = [*(prompt.approvers or ()), *(prompt.who or ())]
        try:
            if not await self._people.is_member(user, str(prompt.channel)):
                return False
            actor = await self._people.actor(data, entries=entries, in_channel=True)
        except LookupFailed:
            return False
        return bool(may_act_on(actor, [prompt], self._gate.target(prompt.requester, True)))

    async def is_in(self, user: str, channel: str) -> bool:
        """True if somebody is in a channel, as far as Slack says so."""
        try:
            return await self._people.is_member(user, channel)
        except LookupFailed:
            return False


def _asked(store: Store) -> list[Waiting]:
    """The open questions in channels with the names of their flows, newest first."""
    found, names = [], dict[str, str | None]()
    for prompt in reversed(prompts.waiting(store.prompts)):
        if prompt.session_id not in names:
            head = store.sessions.head(prompt.session_id)
            names[prompt.session_id] = None if head is None or head.quarantined else head.flow_name
        name = names[prompt.session_id]
        if name is not None and prompt.channel and prompt.thread_ts:
            found.append(Waiting(prompt, name))
    return found
