"""Orders and reachability in graphs of nodes: plain functions over positions in a list and pairs of them.

Sets of nodes are integers, one bit per position: a union is one operation for any number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]
"""An edge, from one position to another."""


def successors(count: int, pairs: Iterable[Pair]) -> list[list[int]]:
    """Return the targets of each position's edges, in the order of the edges."""
    found: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        found[source].append(target)
    return found


def topological(count: int, pairs: Sequence[Pair]) -> list[int]:
    """The positions so that every edge leads forward, otherwise as listed; those on or behind a circle are left out."""
    following = successors(count, pairs)
    missing = [0] * count
    for _, target in pairs:
        missing[target] += 1
    order: list[int] = []
    ready = [position for position in range(count) if not missing[position]]
    while ready:
        position = heappop(ready)
        order.append(position)
        for target in following[position]:
            missing[target] -= 1
            if not missing[target]:
                heappush(ready, target)
    return order


def ancestors(count: int, pairs: Sequence[Pair]) -> list[int]:
    """Return for each position the set of those from which edges lead to it. Edges of a circle do not count."""
    sets = [0] * count
    following = successors(count, pairs)
    for position in topological(count, pairs):
        reached = sets[position] | 1 << position
        for target in following[position]:
            sets[target] |= reached
    return sets


def circles(count: int, pairs: Sequence[Pair]) -> Iterator[tuple[int, list[int]]]:
    """Circles of edges, at least one for each that must be cut: the number of its last edge, and its positions."""
    following: list[list[Pair]] = [[] for _ in range(count)]
    for number, (source, target) in enumerate(pairs):
        following[source].append((number, target))
    state = [0] * count  # 0 not seen, 1 on the way, 2 done
    for start in range(count):
        if state[start]:
            continue
        way, open_edges = [start], [iter(following[start])]
        state[start] = 1
        while way:
            step = next(open_edges[-1], None)
            if step is None:
                state[way.pop()] = 2
                open_edges.pop()
                continue
            number, target = step
            if state[target] == 1:
                yield number, way[way.index(target) :]
            elif not state[target]:
                state[target] = 1
                way.append(target)
                open_edges.append(iter(following[target]))
