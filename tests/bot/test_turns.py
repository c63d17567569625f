"""When a worker looks for what woke all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bot.serve.roles import TURN_SECONDS, Replica

ROLES = {"bot-1-a": "worker", "bot-2-b": "socket", "bot-3-c": "all", "bot-4-d": "worker"}
WORKERS = [owner for owner, role in ROLES.items() if role != "socket"]


def turn(owner: str, lanes: int = 0) -> float:
    """The turn of one of these processes, in places."""
    peers = {other: role for other, role in ROLES.items() if other != owner}
    store = SimpleNamespace(lanes=SimpleNamespace(owner=owner), peers=lambda: peers, shared=True)
    replica = Replica(cast(Any, SimpleNamespace(store=store)), ROLES[owner])
    return replica.turn(lanes) / TURN_SECONDS


def test_idle_workers_look_one_after_the_other() -> None:
    """The first at once: it has the processors to itself. Those that do no work take no turn."""
    assert [turn(owner) for owner in WORKERS] == [0, 1, 2]


def test_a_busy_worker_leaves_what_comes_to_others() -> None:
    """With each lane in hand it looks later, and where all are as busy somebody still looks at once."""
    assert [turn(WORKERS[0], lanes) for lanes in (0, 1, 2)] == [0, 1, 2]
    assert sorted(turn(owner, 4) for owner in WORKERS) == [0, 1, 2]
