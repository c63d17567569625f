"""Which agent says what, where that is not plain: in a pass of a loop, in a branch, or beside another one at work."""

from __future__ import annotations

from bot.agent_intents import agent_of
from bot.outbound.outcomes import Sessions
from bot.rendering.flow import around, place_of
from engine.errors import SaysoError
from engine.state import State

_KEPT = 500


class Speakers:
    """What agents are called above what they say. Once it is said of one it stays, whoever else is done meanwhile."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._called: dict[tuple[str, str], str] = {}

    async def of(self, session_id: str, turn: str) -> str:
        """The place of the agent that this turn belongs to, ready for mrkdwn; empty for one that is alone."""
        agent = agent_of(turn)
        key = (session_id, agent)
        if key not in self._called:
            if len(self._called) >= _KEPT:
                self._called.clear()
            self._called[key] = await self._place(session_id, agent)
        return self._called[key]

    async def _place(self, session_id: str, agent: str) -> str:
        try:
            state = await self._sessions.state(session_id)
            flow = await self._sessions.flow(session_id)
        except SaysoError:
            return ""
        return place_of(state, flow, agent) if around(state, flow, agent) or _others(state, agent) else ""


def _others(state: State, agent: str) -> bool:
    """Whether another agent is under way."""
    return any(one.agent is not None and path != agent for path, one in state.containers.items())
