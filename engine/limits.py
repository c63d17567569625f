"""Limits of loops and loop edges: the errors they give, and the question about one that is used up. Pure.

`on_limit: ask` asks people once a loop had all its rounds, or a loop edge was taken as often as it may be, and would go on.
The question of a loop stands at the loop, that of an edge at the node that it leaves. Each answer allows one time more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.answers import option, step_prompt
from engine.codec import Json
from engine.flow import Node
from engine.flow.model import Edge
from engine.state import AGAIN, State

KIND = "limit"
"""The kind of these questions."""


def loop_prompt(node: Node, rounds: int, attempt: int) -> dict[str, Json]:
    """The question about a loop that had all its rounds; `attempt` is that of the loop."""
    return {**_prompt(node, f" is not over, and {_used_up(rounds, 'round')}."), "attempt": attempt}


def edge_prompt(node: Node, edge: Edge, times: int) -> dict[str, Json]:
    """The question about a loop edge that was taken as often as it may be."""
    return _prompt(node, f" leads back to `{edge.to}` again, and {_used_up(times, 'time')}.")


def _used_up(count: int, word: str) -> str:
    return f"the one {word} is used up" if count == 1 else f"the {count} {word}s are used up"


def _prompt(node: Node, text: str) -> dict[str, Json]:
    again, go_on = option(AGAIN, "Once more", "primary"), option("continue", "Go on")
    stop = option("fail", "Stop", "danger")
    return step_prompt(node, KIND, f"{text} Once more, go on without, or stop?", again, go_on, stop)


def times_more(state: State, path: str) -> int:
    """How often people let this loop, in this attempt, have another round."""
    attempt = state.nodes[path].attempt
    return sum(
        prompt.path == path
        and prompt.kind == KIND
        and prompt.spec.get("attempt") == attempt
        and (prompt.answer or {}).get("value") == AGAIN
        for prompt in state.prompts.values()
    )


def loop_error(node_id: str, rounds: int) -> dict[str, Json]:
    """The error of a loop that would have another round."""
    return _error(f"node {node_id}: still not over after {rounds} rounds (max_iterations)")


def edge_error(edge: Edge, times: int) -> dict[str, Json]:
    """The error of a pass whose loop edge would be taken once more."""
    return _error(
        f"edge {edge.from_} -> {edge.to}: it was taken {times} times (max_iterations) and leads back again"
    )


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
    word = "time" if limit["to"] else "round"
    where = f"{limit['path']} → {limit['to']}" if limit["to"] else limit["path"]
    return f"{where} after {limit['times']} {word}{'s' if limit['times'] != 1 else ''}"
