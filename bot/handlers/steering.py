"""Who may speak to an agent that is under way.

What is said is kept with the session and stands in the agent's next call; the marks on it say so
(`bot.intents.agent_rows.marks`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.rendering import phrases
from engine.decide.commands import Answer, Command, Steer
from engine.decide.policy import Gate, authorize
from engine.journal.records import Head
from engine.journal.state import State
from engine.language.actors import Actor
from engine.run.engine import Engine


def takes_messages(state: State) -> bool:
    """Whether an agent is under way that hears what people say."""
    if state.ended or state.phase == "finalizing":
        return False
    return any(
        run.agent is not None and run.error is None and path in state.active
        for path, run in state.containers.items()
    )


def told_later(state: State, command: Command) -> str | None:
    """What people are told whose words count and change nothing yet; None where they do."""
    if state.phase == "held" and isinstance(command, Answer | Steer):
        return phrases.RECORDED if isinstance(command, Answer) else phrases.KEPT
    waits = state.phase == "waiting" and bool(state.open_prompts)
    return phrases.LATER if waits and isinstance(command, Steer) else None


async def steerable(engine: Engine, gate: Gate, actor: Actor, heads: Sequence[Head]) -> tuple[str, ...]:
    """The sessions of a thread with an agent that takes messages from this person."""
    found = []
    for head in heads:
        if head.quarantined is None and head.status in ("running", "paused"):
            state = await engine.state(head.session_id)
            allowed = authorize(actor, "steer", gate.target(state.actor, True)).allowed
            if allowed and takes_messages(state):
                found.append(head.session_id)
    return tuple(found)
