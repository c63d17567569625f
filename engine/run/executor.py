"""Runs the begun nodes of a process: starts them, tells them to leave, and hands their outcomes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from engine.decide.behaviours import conversations
from engine.decide.commands import Command
from engine.decide.evaluate import node_at
from engine.journal.folds.agents import TURN
from engine.journal.queries import doomed, launched
from engine.journal.state import NodeRun, in_finally, scope_of
from engine.nodes.runtime.runner import Runner
from engine.nodes.types.meter import Meter
from engine.run.active import ActiveSession
from engine.run.job import Job, JobRunner, no_secrets

if TYPE_CHECKING:
    from engine.messages.turns import TurnEvent

log = logging.getLogger("sayso.engine")


class Executor:
    """The running nodes of a process's sessions.

    `left` is told each time that a session has one running node less.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        home: Path,
        secret: Callable[[str], str] | None,
        left: Callable[[ActiveSession], None],
    ) -> None:
        self.jobs = JobRunner(runners, home, secret or no_secrets, self._metered, self._streamed)
        self.on_outcome: Callable[[ActiveSession, Command], Awaitable[None]]
        """Makes an outcome durable."""
        self.on_lost: Callable[[BaseException], None]
        """Told why an outcome could not be recorded."""
        self.meters: dict[str, dict[str, Meter]] = {}
        """The progress that running nodes report, by session and path; nothing of it is stored."""
        self.on_meter: Callable[[str], None] = lambda session_id: None
        """Called with a session whose node said so."""
        self.on_stream: Callable[[str, str, TurnEvent], None] = lambda session_id, path, event: None
        """Told what a model says in a turn, by session and path, while it says it; nothing of it is stored."""
        self._left = left

    def launch(self, live: ActiveSession) -> None:
        """Start the work of every node that is begun and not being worked on."""
        assert live.flow is not None
        for path in launched(live.state):
            if live.state.phase == "finalizing" and not in_finally(path):
                continue
            run = live.state.nodes[path]
            name = f"{path}#{run.attempt}"
            if name not in live.tasks:
                live.stops[name] = asyncio.Event()
                live.tasks[name] = asyncio.create_task(self._work(live, path, run, name), name=name)

    async def _work(self, live: ActiveSession, path: str, run: NodeRun, name: str) -> None:
        """Run → classify → record, and whatever happens, be gone afterwards."""
        try:
            command = await self.jobs.perform(self._job(live, path, run, name))
            await self.on_outcome(live, command)
        except asyncio.CancelledError:
            # Left behind at a shutdown: its start is durable, so the next claim finds it interrupted.
            raise
        except BaseException as error:
            log.critical("%s: the outcome of %s could not be recorded: %s", live.session_id, path, error)
            self.on_lost(error)
            raise
        finally:
            live.tasks.pop(name, None)
            live.stops.pop(name, None)
            self._left(live)

    def _job(self, live: ActiveSession, path: str, run: NodeRun, name: str) -> Job:
        assert live.flow is not None
        node = node_at(live.flow, live.state, path)
        if run.type == TURN:
            # What is said is in the journal already, and is not written once more with each call.
            run = structs.replace(run, input=conversations().request(live.flow, live.state, path))
        called = live.flow.lists[live.state.frames[scope_of(path)].list_id].flow
        file = live.flow.file if called == live.flow.name else live.flow.flows[called].file
        # A tool may find a secret where another one left it: in a file, in what a server remembers.
        secrets = live.flow.secrets if "/tool[" in path and run.type != TURN else frozenset()
        return Job(live.session_id, path, run, node, file, live.stops[name], secrets)

    def stop_the_flow(self, live: ActiveSession) -> None:
        """Tell all that is not part of `finally` to leave."""
        for name, stop in live.stops.items():
            if not in_finally(name):
                stop.set()

    def stop_doomed(self, live: ActiveSession) -> None:
        """Tell what still runs inside a container that is being given up to leave."""
        for path in launched(live.state):
            if doomed(live.state, path):
                live.stops[f"{path}#{live.state.nodes[path].attempt}"].set()

    def _metered(self, session_id: str, path: str, meter: Meter | None) -> None:
        """A node says how far it is, or has ended."""
        known = self.meters.setdefault(session_id, {})
        if meter is not None:
            known[path] = meter
            self.on_meter(session_id)
            return
        known.pop(path, None)
        if not known:
            self.meters.pop(session_id, None)

    def _streamed(self, session_id: str, path: str, event: TurnEvent) -> None:
        """A model says something. Whoever shows it must not disturb it."""
        try:
            self.on_stream(session_id, path, event)
        except Exception:
            log.exception("what %s of %s says could not be shown", path, session_id)
