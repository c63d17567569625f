"""What the decision on an approval does to its node. Pure.

An approval that was approved completes, and so does any other question that was answered. One that was rejected, by people
or by its timeout, is a failure of the type `rejected`: nothing that follows starts, unless the flow says so (`on_reject`,
or whatever handles failures). `on_reject` is read from the input that the node began with: a question that was asked
before there was `on_reject` has none, and completes either way, as it did then.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.decide.step import Turn
from engine.journal.queries import REJECTED, verdict
from engine.language.codec import Json


def conclude(turn: Turn, path: str, output: dict[str, Json]) -> None:
    """The question of a node is decided: the node completes with this output, or fails where that rejects it."""
    run = turn.state.nodes[path]
    on_reject = str((run.input or {}).get("on_reject") or "continue")
    if output.get("decision") != "reject" or on_reject == "continue":
        turn.complete(path, output)
    elif on_reject == "stop":
        turn.fail(path, rejection(run.node_id, output))
    else:
        turn.fail_for_good(path, rejection(run.node_id, output), on_reject.removeprefix("goto:"))


def rejection(node_id: str, output: Mapping[str, Json]) -> dict[str, Json]:
    """The error of a rejected approval: `{type, message, by, reason, at, values}`, as its output would have been."""
    told = {name: output.get(name) for name in ("by", "reason", "at", "values")}
    return {"type": REJECTED, "message": f"{node_id} was {verdict(told)}", **told}
