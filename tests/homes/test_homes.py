"""The homes of released versions open, and every session in them continues: see README.md."""

from __future__ import annotations

import asyncio
import gzip
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine import Runtime
from engine.journal.events import decode_event
from engine.language import timestamps
from engine.language.codec import Json
from engine.storage.store import Store
from tests.homes.scenes import ENCRYPTION, SCENES, SECRET, Model, Scene, play, session_of
from tests.support.postgres import new_database

FOLDER = Path(__file__).parent
HOMES = sorted(path.name for path in FOLDER.iterdir() if path.suffix == ".gz")
MADE = "2026-11-26T12:00:00.000Z"
"""Just after the homes were made: no deadline in them has ended."""
LATER = timestamps.after(MADE, 26 * 86_400)


class Played:
    """A home whose sessions have all gone on: how each ended, and the nodes that were started more than once."""

    def __init__(self) -> None:
        self.status: dict[str, str] = {}
        self.outputs: dict[str, dict[str, Json]] = {}
        self.twice: dict[str, list[str]] = {}


def place(name: str, folder: Path) -> str:
    """The URL of a copy of that home."""
    if name.endswith(".sql.gz"):
        url = new_database("template0")
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(gzip.decompress((FOLDER / name).read_bytes()))
        return url
    with tarfile.open(FOLDER / name) as tar:
        tar.extractall(folder, filter="data")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return f"sqlite:///{folder}/home/sayso.db"


def runtime(url: str, folder: Path, name: str, now: str) -> Runtime:
    """A runtime of this release over a home, at that time."""
    keys = (ENCRYPTION,) if "keys" in name else ()
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return Runtime(url, home=home, provider=Model(), secret_key=SECRET, encryption_keys=keys, now=lambda: now)


def started_twice(store: Store, session_id: str) -> list[str]:
    """The nodes of which the journal has two starts."""
    events = map(decode_event, store.sessions.journal(session_id))
    starts = Counter(
        event.path for event in events if event.type in ("node:started", "container:childStarted")
    )
    return [str(path) for path, times in starts.items() if times > 1]


@pytest.fixture(scope="module", params=HOMES)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A copy of a home, in which everybody has said what they were asked."""
    return asyncio.run(played_to_its_end(request.param, tmp_path_factory.mktemp("home")))


async def played_to_its_end(home: str, folder: Path) -> Played:
    """Let everybody say what they were asked, and then let the time of the others come."""
    found, url = Played(), place(home, folder)
    for late in (False, True):
        async with runtime(url, folder, home, LATER if late else MADE) as open_runtime:
            for number, (name, scene) in enumerate(SCENES.items()):
                if scene.later is not late:
                    continue
                session = await open_runtime.session(session_of(number))
                await play(open_runtime, session, scene.after)
                if late:
                    await session.ended()
                found.status[name], found.outputs[name] = session.status, session.outputs
                found.twice[name] = started_twice(open_runtime.engine.store, session.id)
    return found


def test_there_is_a_home_of_every_kind() -> None:
    """On SQLite and Postgres, plain and encrypted."""
    assert {"v1-keys.sql.gz", "v1-keys.tar.gz", "v1.sql.gz", "v1.tar.gz"} <= set(HOMES)


@pytest.mark.parametrize("name", SCENES)
def test_a_session_goes_on_where_it_waited(played: Played, name: str) -> None:
    """What people say is taken, and the flow ends as it would have ended then."""
    scene: Scene = SCENES[name]
    assert played.status[name] == scene.status
    assert {
        path: _part(played.outputs[name].get(path), wanted) for path, wanted in scene.ends.items()
    } == scene.ends


@pytest.mark.parametrize("name", [name for name in SCENES if name != "retry"])
def test_nothing_that_ran_runs_again(played: Played, name: str) -> None:
    """No node has a second start."""
    assert played.twice[name] == []


def _part(output: Any, wanted: Json) -> Json:
    """The fields of an output that are wanted."""
    if not isinstance(wanted, dict) or not isinstance(output, dict):
        return output
    return {name: value.strip() if isinstance(value := output.get(name), str) else value for name in wanted}
