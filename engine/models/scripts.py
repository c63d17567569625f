"""Scripts in place of Claude: for a first try without a key, and for users' own tests.

Which turn of a script is said follows from the place of the turn in its session and from nothing else, so a process that
goes on after another one was killed says what that one would have said. The n-th model call of an agent gets the n-th
answer of its script; an error, and a stream that is cut, stand before the answer that is given after trying again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from engine.messages.errors import ScriptError
from engine.models.provider import Provider
from engine.models.scripted import Script, ScriptedProvider, Turn, load_script
from engine.nodes.runtime.runner import NodeContext

SCRIPTED = "scripted"
"""What is noted as the model of what a script said."""

SUFFIXES = (".script.yml", ".script.yaml")
"""How the file of a script that belongs to a flow ends: `incident.script.yml` beside `incident.yml`."""

_PLACE = re.compile(r"(?:^|/)(?P<agent>[^/~#\[\]]+)(?:[~#\[][^/]*)?/turn\[(?P<number>\d+)\]$")

_ECHO = (
    "This answer is scripted: no key for Claude is set here (ANTHROPIC_API_KEY), so nobody has thought about what you "
    "asked. With a key Claude answers in this place; a script beside the flow ({file}) can say what should stand here."
)


def place_of(path: str) -> tuple[str, int]:
    """The id of the agent whose model call this is, and the call's number, from 1. Raises `ScriptError`."""
    found = _PLACE.search(path)
    if found is None:
        raise ScriptError(f"{path} is no model call of an agent, so no script says what it answers")
    return found["agent"], int(found["number"])


def position_of(turns: Sequence[Turn], number: int, attempt: int) -> int:
    """Where in a script the `attempt`-th try of the `number`-th call of an agent stands, from 0."""
    answers = [index for index, turn in enumerate(turns) if turn.error is None and not turn.cut]
    if number > len(answers) + 1:
        return len(turns)
    first = answers[number - 2] + 1 if number > 1 else 0
    last = answers[number - 1] if number <= len(answers) else len(turns) - 1
    return min(first + attempt - 1, max(first, last))


def provider_for(script: Script, ctx: NodeContext, *, label: str | None = None) -> Provider:
    """Says what the script has for the model call of this context. With `label` that is noted as the model, and the
    call costs nothing unless the script says what it used. Raises `ScriptError`."""
    agent, number = place_of(ctx.path)
    turns = script.turns_of(agent)
    return ScriptedProvider(
        Script(turns=turns, pace=script.pace), position_of(turns, number, ctx.attempt), label
    )


def script_file(ctx: NodeContext) -> Path | None:
    """The script that lies beside the flow of this context."""
    flow = ctx.flow_file
    if flow is None:
        return None
    return next((file for suffix in SUFFIXES if (file := flow.with_suffix(suffix)).is_file()), None)


def scripted_provider(ctx: NodeContext, file: Path | None = None) -> Provider:
    """Who answers without a key: the script of `file`, else the one beside the flow, else the same words each time.
    Raises `ScriptError`."""
    found = file or script_file(ctx)
    if found is not None:
        return provider_for(load_script(found), ctx, label=SCRIPTED)
    name = ctx.flow_file.with_suffix(SUFFIXES[0]).name if ctx.flow_file is not None else "<flow>.script.yml"
    return ScriptedProvider(Script(turns=(Turn(text=_ECHO.format(file=name)),)), 0, SCRIPTED)
