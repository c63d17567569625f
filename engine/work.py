"""The work of one node: what its runner gets, and what its outcome means to the core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.commands import Command, NodeBroke, NodeCut, NodeDone
from engine.errors import SaysoError
from engine.flow import Flow
from engine.nodes.port import Completed, Failed, Interrupted, NodeContext, Runner
from engine.state import NodeRun

log = logging.getLogger("sayso.engine")


def no_secrets(name: str) -> str:
    """Where no secrets are configured, none can be had."""
    raise SaysoError(f"No secrets are configured here, so secret {name} cannot be used.")


@dataclass(frozen=True)
class Workplace:
    """What all nodes of a process share."""

    runners: Mapping[str, Runner]
    home: Path
    secret: Callable[[str], str]

    async def perform(
        self, flow: Flow, session_id: str, path: str, run: NodeRun, aborted: asyncio.Event
    ) -> Command:
        """Run the node to its end and say how it ended. Raises nothing: a runner that raises has failed."""
        node = flow.nodes[run.position]
        try:
            context = self._context(flow, session_id, path, run, aborted)
            outcome = await self.runners[node.type](run.input, context)
            return classify(path, run.attempt, outcome, left=aborted.is_set())
        except Exception as error:
            log.exception("node %s of %s raised", path, session_id)
            message = f"node {run.node_id}: {type(error).__name__}: {error}"
            return NodeBroke(path, run.attempt, {"type": "internal", "message": message})

    def _context(
        self, flow: Flow, session_id: str, path: str, run: NodeRun, aborted: asyncio.Event
    ) -> NodeContext:
        return NodeContext(
            session_id=session_id,
            path=path,
            idempotency_key=f"{session_id}:{path}",
            attempt=run.attempt,
            workdir=self.home / "sessions" / session_id,
            flow_dir=Path(flow.file).parent if flow.file else None,
            secret=self.secret,
            timeout=flow.nodes[run.position].timeout,
            aborted=aborted,
            progress=lambda line: log.debug("%s %s: %s", session_id, path, line),
        )


def classify(path: str, attempt: int, outcome: Completed | Failed | Interrupted, *, left: bool) -> Command:
    """What an outcome means. A node that was cut although nobody told it to leave was lost by the other side."""
    match outcome:
        case Completed(output):
            return NodeDone(path, attempt, output)
        case Failed(kind, message, details):
            return NodeBroke(path, attempt, {"type": kind, "message": message, "details": details})
        case Interrupted("cut", message) if not left:
            return NodeCut(path, attempt, "lost", message)
        case Interrupted(reason, message):
            return NodeCut(path, attempt, reason, message)
