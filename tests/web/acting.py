"""A bot that serves a session with the real policy, for whoever acts on a page with changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bot.handlers.web_requests import WebRequests
from bot.web.access import Access
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.decide.policy import Gate
from engine.language.actors import Actor
from engine.run.dispatcher import Dispatcher, LocalWakeups
from tests.support import roomful
from tests.web.conftest import Json, Visitor, visited

FLOW = """flow: gated
nodes:
  - {id: ask, type: approval, with: {message: "Go?", approvers: ["local:ana", U0BEN]}}
  - {id: after, type: shell, with: {run: [go]}, on_crash: again}
"""
SLACK = {
    "U0BEN": Actor(id="U0BEN", name="ben", team_id="T0", in_channel=True, facts_known=True),
    "U0EVE": Actor(id="U0EVE", name="eve", team_id="T0", in_channel=True, facts_known=True),
}


class Slack(People):
    """Who somebody is, without Slack."""

    def __init__(self) -> None:
        self.away = 0

    async def actor(self, data: Json, **asked: Any) -> Actor:  # type: ignore[override]  # the same, in fewer words
        """Somebody of `SLACK`."""
        if self.away:
            self.away -= 1
            raise LookupFailed("Slack is away")
        if data["user"] not in SLACK:
            raise UnknownPerson("Slack knows nobody by that id")
        return SLACK[data["user"]]


@asynccontextmanager
async def served(
    home: Path, who: Actor, slack: Slack | None = None, access: Access | None = None, flow: str = FLOW
) -> AsyncIterator[tuple[Visitor, str]]:
    """A session that asks, a bot that serves it with the real policy, and somebody on a page with changes."""
    async with roomful.engine_at(
        home / "sayso.db", policy=Gate("T0", allow_local=True), label="bot"
    ) as engine:
        session_id = await roomful.started(engine, flow, {})
        handlers = WebRequests(engine, slack or Slack()).handlers()
        service = Dispatcher(
            engine,
            handlers=handlers,
            wakeups=LocalWakeups(partial(engine.writer.call, engine.store.changed), 0.01),
        )
        serving = asyncio.create_task(service.run())
        async with visited(
            home, write=True, access=access or Access(Actor.local("ana"), time.monotonic)
        ) as visitor:
            visitor.log_in_as(who)
            try:
                yield visitor, session_id
            finally:
                service.stop()
                await serving
