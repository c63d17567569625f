"""The work of one node: what its runner gets, and what its outcome means to the core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.decide.commands import Command, NodeBroke, NodeCut, NodeDone
from engine.flow import Node
from engine.journal.state import NodeRun
from engine.language.errors import SaysoError
from engine.nodes.runtime.folder import SESSIONS
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Runner
from engine.nodes.runtime.secrets import without_secrets
from engine.nodes.types.meter import Meter

if TYPE_CHECKING:
    from engine.messages.turns import TurnEvent

log = logging.getLogger("sayso.engine")


_NO_RUNNER = (
    "Nothing here runs nodes of type `{}`: give the engine a runner for it. `engine.Runtime` has all of them."
)


def no_secrets(name: str) -> str:
    """Where no secrets are configured, none can be had."""
    raise SaysoError(f"No secrets are configured here, so secret {name} cannot be used.")


@dataclass(frozen=True)
class Job:
    """One execution of one node: where, what, by which flow file, and how it is told to leave."""

    session_id: str
    path: str
    run: NodeRun
    node: Node
    file: str
    stop: asyncio.Event
    secrets: frozenset[str] = frozenset()
    """The names of secrets whose values nothing that it gives may have, since a model reads it."""


@dataclass(frozen=True)
class JobRunner:
    """Runs jobs with the runners and folders of a process."""

    runners: Mapping[str, Runner]
    home: Path
    secret: Callable[[str], str]
    meter: Callable[[str, str, Meter | None], None] = lambda session_id, path, meter: None
    """Told how far a node of a session is; None when it has ended."""
    stream: Callable[[str, str, TurnEvent], None] = lambda session_id, path, event: None
    """Told what a model says in a turn of a session, while it says it."""

    def folder(self, session_id: str) -> Path:
        """Where the nodes of a session work; it is made by the first that needs it."""
        return self.home / SESSIONS / session_id

    async def perform(self, job: Job) -> Command:
        """Run the node to its end and say how it ended. Raises nothing: a runner that raises has failed."""
        try:
            return await self._perform(job)
        finally:
            self.meter(job.session_id, job.path, None)

    async def _perform(self, job: Job) -> Command:
        path, run = job.path, job.run
        try:
            runner = self.runners.get(run.type)
            if runner is None:
                return NodeBroke(
                    path, run.attempt, {"type": "internal", "message": _NO_RUNNER.format(run.type)}
                )
            outcome = await runner(run.input, self._context(job))
            if job.secrets:
                outcome = await asyncio.to_thread(without_secrets, outcome, job.secrets, self.secret)
            return classify(path, run.attempt, outcome, left=job.stop.is_set())
        except Exception as error:
            log.exception("node %s of %s raised", path, job.session_id)
            message = f"node {run.node_id}: {type(error).__name__}: {error}"
            return NodeBroke(path, run.attempt, {"type": "internal", "message": message})

    def _context(self, job: Job) -> NodeContext:
        return NodeContext(
            session_id=job.session_id,
            path=job.path,
            idempotency_key=f"{job.session_id}:{job.path}",
            attempt=job.run.attempt,
            workdir=self.folder(job.session_id),
            flow_dir=Path(job.file).parent if job.file else None,
            secret=self.secret,
            timeout=job.node.timeout,
            saved=job.run.saved,
            aborted=job.stop,
            flow_file=Path(job.file) if job.file else None,
            meter=lambda meter: self.meter(job.session_id, job.path, meter),
            stream=lambda event: self.stream(job.session_id, job.path, event),
            progress=lambda line: log.debug("%s %s: %s", job.session_id, job.path, line),
        )


def classify(path: str, attempt: int, outcome: Completed | Failed | Interrupted, *, left: bool) -> Command:
    """What an outcome means. A node that was cut although nobody told it to leave was lost by the other side."""
    match outcome:
        case Completed(output):
            return NodeDone(path, attempt, output)
        case Failed(kind, message, details):
            return NodeBroke(path, attempt, {"type": kind, "message": message, "details": details})
        case Interrupted("left", message, saved):
            return NodeCut(path, attempt, "left", message, saved)
        case Interrupted("cut", message) if not left:
            return NodeCut(path, attempt, "lost", message)
        case Interrupted(reason, message):
            return NodeCut(path, attempt, reason, message)
