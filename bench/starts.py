"""Processes that do little: an import, and commands of the command line. The floor is a Python that does nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from bench.nodes import folder_in
from bench.processes import SAYSO, bare_python, timed
from bench.report import Row, median
from tests.gate.conftest import gated
from tests.gate.test_hooks import Hooks, event
from tests.support.workspace import running_workspace

FLOW = """
flow: one
nodes: [{id: only, type: shell, with: {run: ["true"]}}]
"""


def measure(base: Path, *, quick: bool) -> list[Row]:
    """One row for each command."""
    with folder_in(base) as folder:
        (folder / "one.yml").write_text(FLOW)
        here = ("--home", "home")
        commands = {
            "import of the engine": ((sys.executable, "-c", "from engine import Runtime, load_flow"), 70.0),
            "sayso --help": ((*SAYSO, "--help"), 80.0),
            "sayso run, one node": ((*SAYSO, *here, "run", "one.yml", "--no-input"), 200.0),
            "sayso sessions list": ((*SAYSO, *here, "sessions", "list"), 150.0),
        }
        for command, _ in commands.values():
            timed(command, folder)
        floors: list[float] = []
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(3 if quick else 15):
            floors.append(bare_python(folder))
            for name, (command, _) in commands.items():
                taken[name].append(timed(command, folder)[0])
        hooks = asyncio.run(_hooks(folder, 3 if quick else 15))
    return [
        Row(name, median(taken[name]), "ms", floor=median(floors), limit=most)
        for name, (_, most) in commands.items()
    ] + [Row("sayso gate hook, decided by a rule", median(hooks), "ms", floor=median(floors), limit=150.0)]


async def _hooks(folder: Path, count: int) -> list[float]:
    """Milliseconds from the start of a hook to its exit, for calls that a rule of a running bot allows."""
    taken: list[float] = []
    async with running_workspace() as workspace, gated(workspace, folder) as gate:
        hooks = Hooks(gate, await gate.url())
        for number in range(count + 1):
            begin = time.perf_counter()
            decision, _, _ = await hooks.decision(event("git status", f"t{number}"))
            taken.append((time.perf_counter() - begin) * 1000)
            assert decision == "allow"
    return taken[1:]
