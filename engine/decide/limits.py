"""Limits of loops and loop edges: the errors they give, and the question about one that is used up. Pure.

`on_limit: ask` asks people once a loop had all its rounds, or a loop edge was taken as often as it may be, and would go on.
The question of a loop stands at the loop, that of an edge at the node that it leaves. Each answer allows one time more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.decide.question import option, step_prompt
from engine.flow import Node
from engine.flow.model import Edge
from engine.forms.question import Question
from engine.journal.state import AGAIN, Asked, State, visit_of
from engine.language.codec import Json

KIND = "limit"
"""The kind of these questions."""

STOP = "fail"
"""The answer after which it fails."""


def loop_prompt(node: Node, rounds: int, attempt: int) -> Question:
    """The question about a loop that had all its rounds; `attempt` is that of the loop."""
    return _prompt(node, f" is not over, and {_used_up(rounds, 'round')}.", attempt)


def edge_prompt(node: Node, edge: Edge, times: int) -> Question:
    """The question about a loop edge that was taken as often as it may be."""
    return _prompt(node, f" leads back to `{edge.to}` again, and {_used_up(times, 'time')}.")


def _used_up(count: int, word: str) -> str:
    return f"the one {word} is used up" if count == 1 else f"the {count} {word}s are used up"


def _prompt(node: Node, text: str, attempt: int | None = None) -> Question:
    again, go_on = option(AGAIN, "Once more", "primary"), option("continue", "Go on")
    stop = option(STOP, "Stop", "danger")
    text += " Once more, go on without, or stop?"
    return step_prompt(node, KIND, text, again, go_on, stop, attempt=attempt)


def _asked(state: State, path: str) -> list[Asked]:
    """The questions about this loop, in this attempt, or about the loop edge of this visit of a node."""
    attempt = state.nodes[path].attempt
    return [
        prompt
        for prompt in state.prompts.values()
        if prompt.path == path and prompt.kind == KIND and prompt.attempt in (None, attempt)
    ]


def times_more(state: State, path: str) -> int:
    """How often people let this loop, in this attempt, have another round."""
    return sum((prompt.answer or {}).get("value") == AGAIN for prompt in _asked(state, path))


def loop_error(state: State, path: str, rounds: int) -> dict[str, Json]:
    """The error of a loop that would have another round."""
    node_id = state.nodes[path].node_id
    return _error(f"node {node_id}: still not over after {_times(rounds, 'round')}{_why(state, path)}")


def edge_error(state: State, path: str, edge: Edge, times: int) -> dict[str, Json]:
    """The error of a pass whose loop edge, which leaves the node at `path`, would be taken once more."""
    taken = f"it was taken {_times(times, 'time')} and leads back again"
    return _error(f"edge {edge.from_} -> {edge.to}: {taken}{_why(state, path)}")


def _why(state: State, path: str) -> str:
    """Who stopped it, or that the file did."""
    for prompt in _asked(state, path):
        if (prompt.answer or {}).get("value") == STOP:
            return f"; stopped by {(prompt.actor or {}).get('name') or (prompt.actor or {}).get('id')}"
        if prompt.status == "expired":
            return "; nobody said in time whether it goes on"
    return " (max_iterations)"


def _times(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def unreached_error(finals: Sequence[str]) -> dict[str, Json]:
    """The error of a graph that ends without any of its final nodes."""
    named = ", ".join(f"`{name}`" for name in finals)
    told = (
        f"the final node {named} was not reached"
        if len(finals) == 1
        else f"no final node was reached ({named})"
    )
    return {"type": "unreached", "message": f"{told}: no edge that leads there was taken"}


def _error(message: str) -> dict[str, Json]:
    return {"type": "limit", "message": message}


def told(limit: Mapping[str, Json]) -> str:
    """An entry of `State.limits` in words."""
    word, path = ("time" if limit["to"] else "round"), str(limit["path"])
    if limit["to"]:
        # Which visit it was is said by how often the edge was taken.
        path = f"{path.removesuffix(f'~{visit_of(path)}')} → {limit['to']}"
    return f"{path} after {_times(int(limit['times']), word)}"
