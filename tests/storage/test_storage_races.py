"""If several processes do the same thing at once, one wins, nothing is lost, and nothing exists twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from engine.storage.open import open_store
from engine.storage.store import Store
from tests.storage.races import FAULTS, RACES, prepare, verdict
from tests.storage.storagekit import KEY, python
from tests.support import postgres
from tests.support.prefork import Forked
from tests.support.proving import PROVE

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("races")]

WORKER = "import sys; from tests.storage.races import main; main(sys.argv[1], int(sys.argv[2]))"
ROUNDS = 200 if PROVE else 3
UNTIL_FOUND = 200
_numbers = count()


class Racers:
    """Processes that work on one database, and this one's connection to it."""

    def __init__(self, url: str, number: int) -> None:
        self.store: Store = open_store(url, KEY)
        self._processes: list[Forked] = [python(WORKER, url, str(me)) for me in range(number)]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def round(self, race: str, fault: str = "") -> object:
        """What comes of a race."""
        number = next(_numbers)
        prepare(race, self.store, number)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{race}|{number}|{fault}\n")
            process.stdin.flush()
        return verdict(race, self.store, number, [self._answer(process) for process in self._processes])

    @staticmethod
    def _answer(process: Forked) -> Any:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def close(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
            process.wait()
        self.store.close()


@pytest.fixture(scope="module")
def on_postgres() -> Iterator[Racers]:
    """Six processes on Postgres."""
    racers = Racers(postgres.new_database(), 6)
    yield racers
    racers.close()


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racers]:
    """Three processes on SQLite, where there is one writer at a time anyhow."""
    racers = Racers(f"sqlite:///{tmp_path_factory.mktemp('races')}/sayso.db", 3)
    yield racers
    racers.close()


def right(found: object) -> bool:
    """Whether all that a verdict names is so."""
    return all(found) if isinstance(found, tuple) else found is True


@pytest.mark.parametrize("race", RACES)
def test_a_race_on_postgres_has_one_winner(on_postgres: Racers, race: str) -> None:
    """However often it is run."""
    for _ in range(ROUNDS):
        assert right(found := on_postgres.round(race)), found


@pytest.mark.parametrize("race", [race for race in RACES if race != "caps"])
def test_a_race_on_sqlite_has_one_winner(on_sqlite: Racers, race: str) -> None:
    """If several processes create, claim, store or consume the same thing at once, one of them succeeds, each time."""
    for _ in range(ROUNDS):
        assert right(found := on_sqlite.round(race)), found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_without_a_cure_is_noticed(on_postgres: Racers, fault: str) -> None:
    """Each cure is one that its race would miss."""
    race = FAULTS[fault][1]
    for _ in range(UNTIL_FOUND):
        try:
            if not right(on_postgres.round(race, fault)):
                return
        except (TypeError, AssertionError):
            return  # a part of it failed, and gave no answer of the usual form
    pytest.fail(f"{race} did not notice it")
