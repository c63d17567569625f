"""`run`: a flow in this terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bot.cli.lookup import actor_for, find_flow, read_inputs
from bot.terminal.console import Place, one_line
from bot.terminal.follow import Mode, follow
from bot.terminal.follower import Follower, new_session_id
from engine.flow import coerce_inputs
from engine.run.engine import Engine


def run_command(
    place: Place,
    name: str,
    inputs: list[str],
    inputs_file: Path | None,
    as_name: str | None,
    *,
    as_json: bool,
    **mode: Any,
) -> int:
    """Start a flow here and follow it. Raises `SaysoError` before anything is started."""
    given, settings = read_inputs(inputs, inputs_file), place.settings()
    flow = find_flow(settings, name)
    coerce_inputs(flow, given)
    session_id, actor = new_session_id(), actor_for(settings, as_name)

    async def begin(engine: Engine, follower: Follower) -> None:
        from bot.compose.lacks import lacks  # it brings what a session needs with it

        for text in await asyncio.to_thread(lambda: [*lacks(flow, settings, engine.executor.jobs.secret)]):
            follower.screen.line(follower.screen.paint("yellow", f"! {one_line(text, 300)}"))
        await engine.start(flow, given, actor=actor, session_id=session_id)

    return follow(place, session_id, actor, Mode.of(as_json=as_json, **mode), begin)
