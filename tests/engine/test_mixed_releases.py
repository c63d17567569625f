"""Two releases in separate processes over one Postgres database: the older one leaves records of the newer one alone."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest

from engine.journal.events import SCHEMA_VERSION, decode_event
from engine.journal.fold import derive_state
from engine.journal.records import InboxItem
from engine.run.remote_commands import item
from engine.run.stored import utc_now
from engine.storage.postgres import open_postgres
from engine.storage.store import Store
from tests.support import postgres, prefork
from tests.support.engine import ANA, check_starts, until
from tests.support.releases import NEWER, main, of_release, ran


def _worker(url: str, folder: str, release: int) -> None:
    logging.disable(logging.CRITICAL)
    main(url, folder, str(release))


class Fleet:
    """The processes, and people who answer whatever is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, postgres.new_database()
        self.store: Store = open_postgres(self.url, postgres.KEY)
        self.workers: list[prefork.Forked] = []
        self.sessions: list[str] = []
        self._said: set[str] = set()

    async def add(self, release: int) -> None:
        """Start a worker of this release."""
        worker = prefork.call(_worker, self.url, str(self.folder), release)
        self.workers.append(worker)
        await until(lambda: (self.folder / f"serves-{worker.pid}").exists())

    async def replace(self, release: int, *, kill: bool) -> None:
        """A worker of this release comes, and then the oldest one goes."""
        await self.add(release)
        old = self.workers.pop(0)
        if kill:
            old.kill()
        else:
            old.terminate()
            assert old.wait(20) == 0

    def begin(self, count: int) -> list[str]:
        """Ask for so many sessions."""
        names = [f"session-{len(self.sessions) + n}" for n in range(count)]
        self.sessions += names
        rows = [InboxItem(f"start:{name}", "start", b"{}", name, f"T1:C1:{name}") for name in names]
        self.store.inbox.ingest(rows, utc_now())
        return names

    def events(self, session: str) -> list[dict[str, object]]:
        """The journal as it is there, whatever wrote it."""
        with of_release(NEWER):
            there = self.store.sessions.head(session) is not None
            return [orjson.loads(body) for body in self.store.sessions.journal(session)] if there else []

    def answer(self, sessions: Sequence[str]) -> None:
        """Answer everything that these ask and that was not answered yet."""
        for session in sessions:
            for event in self.events(session):
                prompt = str(event.get("promptId"))
                if event["type"] == "prompt:requested" and prompt not in self._said:
                    self._said.add(prompt)
                    asked = item(
                        f"answer:{prompt}", session, "answer", actor=ANA, promptId=prompt, text="yes"
                    )
                    row = InboxItem(asked.key, asked.kind, asked.payload, session, f"T1:C1:{session}")
                    self.store.inbox.ingest([row], utc_now())

    async def until_ended(self, sessions: list[str]) -> None:
        """Answer these until they have ended."""

        def ended() -> bool:
            self.answer(sessions)
            return all(self.status(name) == "complete" for name in sessions)

        await until(ended, pause=0.02)

    async def until_asked(self, sessions: list[str], times: int) -> None:
        """Return once each of these has asked so often."""

        def asked(name: str) -> int:
            return sum(event["type"] == "prompt:requested" for event in self.events(name))

        await until(lambda: all(asked(name) >= times for name in sessions), pause=0.02)

    def status(self, session: str) -> str | None:
        """How a session stands."""
        head = self.store.sessions.head(session)
        return None if head is None else head.status


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A database with nobody at work yet."""
    made = Fleet(tmp_path)
    yield made
    for worker in made.workers:
        worker.kill()
    made.store.close()


def check(fleet: Fleet) -> None:
    """Nothing was lost, doubled, or taken for damage."""
    with of_release(NEWER):
        for session in fleet.sessions:
            head = fleet.store.sessions.head(session)
            assert head is not None
            assert (head.status, head.quarantined) == ("complete", None)
            events = [decode_event(body) for body in fleet.store.sessions.journal(session)]
            derive_state(events)
            check_starts(events)
            answers = Counter(event.prompt_id for event in events if event.type == "prompt:answered")
            assert list(answers.values()) == [1, 1]
    assert max(Counter(map(tuple, ran(fleet.folder))).values()) == 1
    assert fleet.store.inbox.rows() == []
    assert fleet.store.inbox.dead_letters() == []
    assert fleet.store.outbox.due(now="9999") == []


async def test_an_upgrade_and_a_rollback_under_load_lose_and_double_nothing(fleet: Fleet) -> None:
    """Sessions that the newer release wrote wait while only the older one is there, and those of the older one continue."""
    for _ in range(2):
        await fleet.add(SCHEMA_VERSION)
    first = fleet.begin(3)
    await fleet.until_asked(first, 1)
    fleet.answer(fleet.sessions)
    await fleet.replace(NEWER, kill=False)
    second = fleet.begin(3)
    await fleet.until_asked(second, 1)
    await fleet.replace(NEWER, kill=True)
    fleet.answer(fleet.sessions)
    newer = fleet.begin(2)
    await fleet.until_asked(newer, 1)
    for kill in (True, False):
        await fleet.replace(SCHEMA_VERSION, kill=kill)
    fleet.answer(fleet.sessions)
    older = fleet.begin(2)
    await fleet.until_ended(older)
    waiting = {row.session_id for row in fleet.store.inbox.rows(limit=None)}
    assert set(newer) <= waiting, "the older release answers nothing for the newer one"
    assert [fleet.status(name) for name in newer] == ["paused", "paused"]
    await fleet.replace(NEWER, kill=False)
    await fleet.until_ended(fleet.sessions)
    await until(lambda: not fleet.store.inbox.rows())
    check(fleet)


async def test_what_only_the_newer_release_knows_is_left_to_it(fleet: Fleet) -> None:
    """A kind of row, and a word of a request, that the older one does not know: with both there, the newer one takes them."""
    await fleet.add(SCHEMA_VERSION)
    (session,) = fleet.begin(1)
    await fleet.until_asked([session], 1)
    asked = str(next(e["promptId"] for e in fleet.events(session) if e["type"] == "prompt:requested"))
    reply = item("answer:kind", session, "answer", actor=ANA, promptId=asked, text="yes")
    dance = item("dance", session, "dance", actor=ANA)
    fleet.store.inbox.ingest(
        [InboxItem(dance.key, dance.kind, dance.payload, session, f"T1:C1:{session}")], utc_now()
    )
    fleet.store.inbox.ingest(
        [InboxItem(reply.key, "newer", reply.payload, session, f"T1:C1:{session}")], utc_now()
    )
    other = fleet.begin(1)
    await fleet.until_ended(other)
    assert {row.key for row in fleet.store.inbox.rows()} >= {"dance", "answer:kind"}
    await fleet.add(NEWER)
    await until(lambda: [row.key for row in fleet.store.inbox.rows()] == ["dance"])
    row = fleet.store.inbox.row("answer:kind")
    assert row is not None
    assert row.outcome == "applied"
