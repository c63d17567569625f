"""Which agent says what, where that is not plain: in a pass of a loop, in a branch, or beside another one at work."""

from __future__ import annotations

from collections.abc import Mapping

from bot.intents.agent_rows import agent_of
from bot.outbound.outcomes import Sessions
from bot.rendering.flow import around, label_of
from engine.journal.state import State
from engine.language.codec import Json
from engine.language.errors import SaysoError

_KEPT = 500


class Speakers:
    """What agents are called above what they say. Once it is said of one it stays, whoever else is done meanwhile."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._called: dict[tuple[str, str], str] = {}

    async def of(self, data: Mapping[str, Json]) -> str:
        """The place of the agent that said an entry, ready for mrkdwn; empty for one that is alone. `data` is what the
        entry's row says."""
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
        return " › ".join([*outside, label_of(flow, agent)])
