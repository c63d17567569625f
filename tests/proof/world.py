"""A deterministic world for runs of flows: what nodes do outside, written to a log that is not part of the store.

A node's effect happens when the driver says so, one at a time, so a run without a pause and one with pauses can do
the same things in the same order. `run: [do, x]` works; `run: [fail, N]` fails the first N times; `run: [tell, x]`
works while a person writes the message `x` into the session; `run: [count, x]` says how many nodes have counted `x`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome


class Effects:
    """What was done outside: one line for each execution. In a file, where processes come and go."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._lines: list[dict[str, Json]] = []

    def all(self) -> list[dict[str, Json]]:
        """Everything that was done, in order."""
        if self.file is None:
            return self._lines
        if not self.file.exists():
            return []
        return [orjson.loads(line) for line in self.file.read_bytes().splitlines()]

    def add(self, key: str, config: dict[str, Json]) -> int:
        """Do it once more; how often it has been done by now."""
        entry = {"key": key, "config": config}
        if self.file is None:
            self._lines.append(entry)
        else:
            with self.file.open("ab") as file:
                file.write(orjson.dumps(entry) + b"\n")
        return sum(done["key"] == key for done in self.all())

    def counted(self, config: dict[str, Json]) -> int:
        """How many nodes have done just this."""
        return len({str(done["key"]) for done in self.all() if done["config"] == config})


class Bench:
    """Runs the nodes of one life of the engine. Once it is `gone`, nothing that it holds has any effect."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.gone = asyncio.Event()
        self._open: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The runner of every type that has effects."""
        go = asyncio.Event()
        async with self._changed:
            self._open[ctx.path] = go
            self._changed.notify_all()
        await first_of(go, ctx.aborted, self.gone)
        self._open.pop(ctx.path, None)
        if self.gone.is_set() or not go.is_set():
            return Interrupted("cut")
        times = self.effects.add(ctx.idempotency_key, config)
        if config.get("run", ["do"])[0] == "count":  # type: ignore[index,union-attr]  # a list of words
            config = {"run": ["do", str(self.effects.counted(config))]}
        return outcome(config, times)

    async def let(self, path: str) -> None:
        """The node at this path does what it does, once it is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: path in self._open)
        self._open[path].set()


async def first_of(*events: asyncio.Event) -> None:
    """Return as soon as one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def outcome(config: dict[str, Any], times: int) -> Outcome:
    """What comes of doing it for the n-th time."""
    if "call" in config:
        return Completed({"called": config["call"], "args": config["args"]})
    if "run" not in config:
        return Completed({"status": 200, "headers": {}, "body": config["url"], "json": None})
    word, *rest = config["run"]
    if word == "fail" and times <= int(rest[0]):
        return Failed("exit_code", f"failed for the {times}. time", {"exit_code": 1})
    return Completed({"stdout": " ".join(rest), "stderr": "", "exit_code": 0, "seconds": 0.0})
