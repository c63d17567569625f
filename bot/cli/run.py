"""`run`: a flow in this terminal."""

from __future__ import annotations

from bot.cli.finding import actor_for, find_flow
from bot.cli.following import Mode, follow
from bot.cli.place import Place
from bot.terminal import Follower, new_session_id
from engine.codec import Json
from engine.engine import Engine
from engine.flow import coerce_inputs


def run_flow(place: Place, name: str, given: dict[str, Json], as_name: str | None, mode: Mode) -> int:
    """Start a flow here and follow it. Raises `SaysoError` before anything is started."""
    settings = place.settings()
    flow = find_flow(settings, name)
    coerce_inputs(flow, given)
    session_id, actor = new_session_id(), actor_for(settings, as_name)

    async def begin(engine: Engine, follower: Follower) -> None:
        await engine.start(flow, given, actor=actor, session_id=session_id)

    return follow(place, session_id, actor, mode, begin)
