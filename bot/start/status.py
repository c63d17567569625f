"""How sessions stand, as words for people: of a thread, of a channel, and where their questions are asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from bot.outbound.lock_queues import behind
from bot.rendering import phrases
from bot.rendering.flow import around
from engine.journal.records import Head
from engine.journal.state import State
from engine.language.errors import SchemaTooNew
from engine.run.engine import Engine
from prompt_state.question_row import PromptState

_MOST_SHOWN = 30
_MOST_LIVING = 10_000


class SessionStatus:
    """Reads sessions; writes nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of(self, heads: Sequence[Head]) -> str:
        """Where these sessions stand; what was set aside is left out."""
        sound = [head for head in heads if head.quarantined is None]
        found = [(state, await self._engine.flow_of(state.session_id)) for state in await self._states(sound)]
        queued = {state.session_id: await behind(self._engine.writer, state) for state, _ in found}
        return phrases.status_text(found, self._engine.now(), queued)

    async def places(self, meant: Sequence[PromptState]) -> dict[str, str]:
        """Where these prompts stand in their sessions, as mrkdwn."""
        places = {}
        for prompt in meant:
            state = await self._engine.verified_state(prompt.session_id)
            flow = await self._engine.flow_of(prompt.session_id)
            places[prompt.prompt_id] = " › ".join(around(state, flow, prompt.path))
        return places

    async def running(self, channel: str) -> str:
        """What runs in a channel."""
        here = (await self._living_in(channel))[:_MOST_SHOWN]
        return phrases.running_text(await self._states(here))

    async def _states(self, heads: Sequence[Head]) -> list[State]:
        """How these sessions stand, but for those that are left to a newer release."""
        found = []
        for head in heads:
            with suppress(SchemaTooNew):
                found.append(await self._engine.verified_state(head.session_id))
        return found

    async def threads(self, channel: str) -> list[str]:
        """The threads of a conversation in which something goes on."""
        return list(dict.fromkeys(str(head.thread_key) for head in await self._living_in(channel)))

    async def _living_in(self, channel: str) -> list[Head]:
        heads = await self._engine.writer.call(
            self._engine.store.heads, statuses=("running", "paused"), limit=_MOST_LIVING
        )
        return [
            head
            for head in heads
            if head.quarantined is None and (head.thread_key or "").split(":")[1:2] == [channel]
        ]
