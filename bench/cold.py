"""From nothing to a resumed node: a process that answers a paused session and starts what comes next.

What is timed is `sayso sessions resume ID ANSWER` as a whole process, from its start until the program of the next
node runs (it touches a file). The session was paused by another process, which has ended.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.floor import MILLISECONDS
from bench.nodes import folder_in
from bench.processes import SAYSO, bare_python, timed
from bench.report import Row, median

PAUSED = 3
IMPORT = "import engine.run.engine"
MOST_MILLISECONDS = 200.0
MOST_IMPORT_MILLISECONDS = 80.0
FLOW = """
flow: cold
nodes:
  - {id: question, type: ask, with: {message: "How does it look?"}}
  - {id: after, type: shell, with: {run: [touch, resumed], cwd: %s}}
"""


@dataclass(frozen=True)
class Resumed:
    """One process, in milliseconds since it was begun."""

    next_node: float
    whole: float


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about a cold start."""
    floors, runs, imports = [], [], []
    timed((sys.executable, "-c", IMPORT), base)
    for _ in range(3 if quick else 7):
        floors.append(bare_python(base))
        imports.append(timed((sys.executable, "-c", IMPORT), base)[0] - floors[-1])
        with folder_in(base) as folder:
            runs.append(_resumed(folder))
    floor = median(floors)
    note = f"median of {len(runs)} processes; the floor is a Python that does nothing"
    return [
        Row(
            "cold start to resumed node",
            median([run.next_node for run in runs]),
            "ms",
            floor=floor,
            limit=MOST_MILLISECONDS,
            note=note,
        ),
        Row("cold start to the process's end", median([run.whole for run in runs]), "ms", floor=floor),
        Row(
            "import of the engine",
            median(imports),
            "ms",
            limit=MOST_IMPORT_MILLISECONDS,
            note="`import engine.run.engine`, less a Python that does nothing",
        ),
    ]


def _resumed(folder: Path) -> Resumed:
    """Pause a session in one process and resume it in another."""
    flow = folder / "cold.yml"
    flow.write_text(FLOW % json.dumps(str(folder)))
    _, said = timed((*SAYSO, "--home", "home", "run", flow.name, "--no-input"), folder, code=PAUSED)
    session_id = json.loads(said)["sessionId"]
    began = time.time()
    whole, _ = timed(
        (*SAYSO, "--home", "home", "sessions", "resume", session_id, "Fine", "--no-input"), folder
    )
    touched = (folder / "resumed").stat().st_mtime
    return Resumed((touched - began) * MILLISECONDS, whole)
