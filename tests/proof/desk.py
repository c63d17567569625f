"""One engine after the other over one store, worked by hand: the test says which node does its work and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine.flow import Flow
from engine.journal.fold import derive_state
from engine.journal.snapshot import to_json
from engine.journal.state import State
from engine.language.codec import Json
from engine.run.engine import Engine
from tests.proof.flows import of_text
from tests.proof.world import Bench, Effects
from tests.support.engine import ANA, SESSION, Backing, Clock, EngineRig, running


class Desk:
    """A life of the engine, and what happens in it."""

    def __init__(self, rig: EngineRig, bench: Bench) -> None:
        self.rig = rig
        self.bench = bench
        self.engine: Engine = rig.engine

    async def work(self, *paths: str) -> None:
        """These nodes do their work, one after the other, and their outcomes are recorded."""
        for path in paths:
            await self.bench.let(path)
            live = self.engine.sessions.active[SESSION]
            tasks = [task for name, task in live.tasks.items() if name.startswith(f"{path}#")]
            await asyncio.wait(tasks)

    async def pause(self, reason: str = "lunch") -> State:
        """A person pauses the session."""
        return await self.engine.pause(SESSION, actor=ANA, reason=reason)

    async def resume(self, message: str = "go on") -> State:
        """A person lets it continue."""
        return await self.engine.resume(SESSION, message, actor=ANA)

    async def state(self) -> State:
        """The state as it is stored."""
        return await self.engine.state(SESSION)

    async def types(self) -> list[str]:
        """The journal, as types."""
        return [event.type for event in await self.engine.journal(SESSION)]

    async def stack(self) -> list[dict[str, Json]]:
        """The containers around the place where it is."""
        found: list[dict[str, Json]] = (await self.engine.inspect(SESSION))["containerStack"]
        return found

    async def derived(self) -> dict[str, Json]:
        """The document of the state that the journal folds to."""
        return to_json(derive_state(await self.engine.journal(SESSION)))


class Office:
    """The store and the world outside, which outlive every engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backing = Backing("memory", folder)
        self.effects = Effects()
        self.clock = Clock()

    @property
    def done(self) -> list[str]:
        """The paths whose work was done, in order."""
        return [str(entry["key"]).partition(":")[2] for entry in self.effects.all()]

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Desk]:
        """A fresh engine; at the end all its memory is gone."""
        bench = Bench(self.effects)
        runners = {"shell": bench, "http": bench, "python": bench}
        async with running(
            self.backing.open(), self.folder, runners=runners, now=self.clock, **options
        ) as rig:
            try:
                yield Desk(rig, bench)
            finally:
                bench.gone.set()

    @asynccontextmanager
    async def started(self, text: str, **inputs: Json) -> AsyncIterator[Desk]:
        """A fresh engine in which this flow was just started."""
        async with self.open() as desk:
            await desk.engine.start(flow_named(text), inputs, actor=ANA, session_id=SESSION)
            yield desk


def flow_named(text: str) -> Flow:
    """The flow of a text without a head."""
    return of_text(f"flow: case\n{text}")
