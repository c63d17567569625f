"""`run`: a flow in this terminal."""

from __future__ import annotations

from bot.cli.lookup import actor_for, find_flow
from bot.terminal.cli_context import Place
from bot.terminal.follow import Mode, follow
from bot.terminal.follower import Follower, new_session_id
from engine.flow import coerce_inputs
from engine.language.codec import Json
from engine.run.engine import Engine


def run_flow(place: Place, name: str, given: dict[str, Json], as_name: str | None, mode: Mode) -> int:
    """Start a flow here and follow it. Raises `SaysoError` before anything is started."""
    settings = place.settings()
    flow = find_flow(settings, name)
    coerce_inputs(flow, given)
    session_id, actor = new_session_id(), actor_for(settings, as_name)

    async def begin(engine: Engine, follower: Follower) -> None:
        await engine.start(flow, given, actor=actor, session_id=session_id)

    return follow(place, session_id, actor, mode, begin)
