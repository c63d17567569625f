"""Lives in processes of their own: a drop is SIGKILL right after a commit, the store is a file, effects are lines
in another file, and nothing else passes from one life to the next."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

import orjson

from engine.storage.sqlite import open_sqlite
from tests.proof.flows import flow
from tests.proof.lives import Counts, Life, Run, Stuck, finished, live
from tests.proof.world import Effects
from tests.support import prefork


def child(folder: str, name: str, life: Life) -> None:
    """One life. It leaves its counts behind unless it was killed."""
    logging.disable(logging.CRITICAL)
    home = Path(folder)
    store, effects = open_sqlite(home / "sayso.db"), Effects(home / "effects")
    counts = asyncio.run(live(flow(name), life, store, effects, home, kill=True))
    (home / "counts").write_bytes(orjson.dumps([counts.ended, counts.commits, counts.acts]))


def one_life(folder: Path, name: str, life: Life) -> Counts | None:
    """Live it in a new process; None when that process was killed."""
    code = prefork.call(child, str(folder), name, life).wait(60)
    if code == -signal.SIGKILL:
        return None
    assert code == 0, f"the life {life} of {name} ended with {code}"
    return Counts(*orjson.loads((folder / "counts").read_bytes()))


@dataclass
class Processes:
    """Runs of one flow, each in a folder of its own under `folder`."""

    name: str
    folder: Path
    runs: int = field(default=0)

    def run(self, lives: Iterable[Life]) -> Run:
        """A run through these lives, and lives without an end after them."""
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        total, count = Counts(), 0
        for life in chain(lives, repeat(Life())):
            counts, count = one_life(folder, self.name, life), count + 1
            if counts is not None:
                total.commits, total.acts = total.commits + counts.commits, total.acts + counts.acts
                if counts.ended:
                    break
            if count > 1000:
                raise Stuck("a thousand lives and no end")
        return finished(open_sqlite(folder / "sayso.db"), Effects(folder / "effects"), total, count)
