"""Records of a newer release do not count as damage: they are left for that release, logged once, and continue under it."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from bot.doctor.checks import _check_content
from engine.decide.commands import Message
from engine.flow.load import flow_from_body
from engine.journal import snapshot
from engine.journal.events import SCHEMA_VERSION, decode_event
from engine.journal.records import Commit, Head, InboxItem, PutOutbox, Row, Stored
from engine.language.errors import Corrupt, MalformedJournal, SchemaTooNew, SessionQuarantined
from engine.run.remote_commands import actor_json
from engine.run.sessions import Sessions
from engine.storage import sealing
from engine.storage.packing import packed_together
from engine.storage.store import Store
from tests.storage.storagekit import claim
from tests.support.engine import ANA, START, Backing, flow_of, running, served

ASK = "nodes: [{id: q, type: ask, with: {message: How?}}, {id: b, type: set, with: {said: '{{ nodes.q.text }}'}}]"
NEWER = SCHEMA_VERSION + 1


def written(store: Store, session_id: str, **fields: object) -> None:
    """An event that some release added to a paused session, well signed, in a commit of its own."""
    head = store.sessions.head(session_id)
    assert head is not None
    owner = store.register("other")
    epoch = claim(store, session_id, owner, START)
    body = orjson.dumps({"seq": head.seq + 1, "timestamp": START, **fields})
    commit = Commit(session_id, epoch, head.seq, START, head.status, head.phase, events=(body,), release=True)
    assert store.commit([commit]) == [Stored()]


def upgrade(patch: pytest.MonkeyPatch) -> None:
    """The next release, whose events have another schema."""
    patch.setattr(sealing, "SCHEMA_VERSION", NEWER)
    patch.setattr(snapshot, "SCHEMA_VERSION", NEWER)


async def paused(backing: Backing, home: Path) -> str:
    """A session that waits for a reply."""
    async with running(backing.open(), home) as rig:
        return (await rig.settled(ASK)).session_id


SAID = Message("fine", ANA, "k1")


async def test_an_unknown_event_is_left_for_a_newer_release(backing: Backing, tmp_path: Path) -> None:
    """A well-signed event of an unknown type quarantines nothing, changes no record, and keeps no lease."""
    session = await paused(backing, tmp_path)
    written(backing.open(), session, type="node:dreamed", path="q")
    async with running(backing.open(), tmp_path) as rig:
        before = list(rig.store.sessions.journal(session))
        with pytest.raises(SchemaTooNew, match="newer release"):
            await rig.engine.apply(session, SAID)
        head = rig.store.sessions.head(session)
        assert head is not None
        assert (head.quarantined, head.owner, head.status) == (None, None, "paused")
        assert list(rig.store.sessions.journal(session)) == before
        assert rig.live() == []


async def test_an_unknown_field_is_left_for_a_newer_release(backing: Backing, tmp_path: Path) -> None:
    """A field that this release does not know may change what the event means."""
    session = await paused(backing, tmp_path)
    written(backing.open(), session, type="session:message", text="x", actor={}, key="k", mood="good")
    async with running(backing.open(), tmp_path) as rig:
        with pytest.raises(SchemaTooNew):
            await rig.engine.apply(session, SAID)
        assert (await rig.engine.head(session)).quarantined is None


async def test_doctor_names_what_is_left_for_a_newer_release(backing: Backing, tmp_path: Path) -> None:
    """A warning that says what to do, and nothing while there is no such session."""
    session = await paused(backing, tmp_path)
    store = backing.open()
    assert "newer" not in [check.name for check in _check_content(store)]
    written(store, session, type="node:dreamed", path="q")
    [told] = [check for check in _check_content(store) if check.name == "newer"]
    assert (told.level, told.text) == ("warn", f"1 written by a newer release: {session}")
    assert "installed again" in (told.hint or "")


async def test_a_newer_session_goes_on_after_the_upgrade(
    backing: Backing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows carry the schema that they need: the older release leaves the session, the newer one continues with it."""
    session = await paused(backing, tmp_path)
    with monkeypatch.context() as newer:
        upgrade(newer)
        async with running(backing.open(), tmp_path) as rig:
            await rig.engine.pause(session, actor=ANA, reason="lunch")
    async with running(backing.open(), tmp_path) as rig:
        with pytest.raises(SchemaTooNew):
            await rig.engine.resume(session, "fine", actor=ANA)
    upgrade(monkeypatch)
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.resume(session, "go on", actor=ANA)
        assert (await rig.reply(session, "fine")).status == "complete"


async def test_what_is_left_is_said_once(
    backing: Backing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log, and one note for its thread, however often it is looked at."""
    session = await paused(backing, tmp_path)
    written(backing.open(), session, type="node:dreamed", path="q")

    def note(head: Head) -> list[Row]:
        return [PutOutbox(f"newer:{head.session_id}", "lane", "note", b"{}", head.session_id)]

    async with running(backing.open(), tmp_path) as rig:
        rig.engine.sessions.on_newer = note
        with caplog.at_level(logging.WARNING, "sayso.engine"):
            for _ in range(3):
                with pytest.raises(SchemaTooNew):
                    await rig.engine.verified_state(session)
        assert [row.kind for row in rig.store.outbox.due(now=START)] == ["note"]
    told = [record for record in caplog.records if record.name == "sayso.engine"]
    assert len([record for record in told if session in record.getMessage()]) == 1


async def test_a_row_for_a_newer_session_is_kept_unread(backing: Backing, tmp_path: Path) -> None:
    """What is said to it is left in the inbox for the newer release; rows of others pass."""
    session = await paused(backing, tmp_path)
    written(backing.open(), session, type="node:dreamed", path="q")
    async with running(backing.open(), tmp_path) as rig:
        other = (await rig.settled(ASK)).session_id
        for key, about in (("one", session), ("two", other)):
            body = orjson.dumps({"do": "message", "text": "fine", "actor": actor_json(ANA)})
            await rig.engine.writer.ingest([InboxItem(key, "request", body, about)], START)
        async with served(rig.engine):
            await rig.committed.until("session:end", other)
        assert [row.key for row in rig.store.inbox.rows()] == ["one"]


async def test_a_version_that_was_changed_is_damage(backing: Backing, tmp_path: Path) -> None:
    """The version is covered by the row's MAC: nobody gets a session left alone by raising it."""
    session = await paused(backing, tmp_path)
    with closing(backing.open()) as store:
        rows = list(store.sessions.journal(session))
    flow = flow_of(ASK)
    sealer = sealing.Sealer(b"k" * 32)
    origin = sealer.origin(session, None, None, b"")
    new = sealing.NewSession(flow.name, flow.digest, flow.body())
    record = sealing.created(Commit(session, 1, 0, START, "running", "running"), new, origin)
    commit = Commit(session, 1, 0, START, "running", "running", events=tuple(rows))
    row = sealing.linked(sealer, commit, packed_together(rows), origin)
    record = sealing.advanced(sealer, record, commit, row.mac)
    assert sealing.verified_events(sealer, record, [row], seq=0, chain=origin) == tuple(rows)
    with pytest.raises(Corrupt):
        sealing.verified_events(sealer, record, [row.but(version=NEWER)], seq=0, chain=origin)


def test_a_flow_that_a_newer_release_pinned_is_left() -> None:
    """Its text may mean something else there: it is not an invalid flow."""
    with pytest.raises(SchemaTooNew, match="pinned in version 99"):
        flow_from_body(b'{"version":99}')


@pytest.mark.parametrize("body", [b"{}", b'{"type":3}', b"[]", b'{"type":"timer:fired","seq":1}'])
def test_what_no_release_wrote_is_malformed(body: bytes) -> None:
    """Only an unknown name speaks of a newer release; what lacks a type or a field does not."""
    with pytest.raises(MalformedJournal):
        decode_event(body)


async def test_a_release_that_blames_is_found(
    backing: Backing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: a release that sets aside what it does not know loses the session for good."""

    async def blames(self: Sessions, live: object, error: Exception) -> None:
        await self.quarantine(live.session_id, "it does not verify", error)  # type: ignore[attr-defined]

    monkeypatch.setattr(Sessions, "_release_to_newer", blames)
    with pytest.raises(SessionQuarantined):
        await test_an_unknown_event_is_left_for_a_newer_release(backing, tmp_path)
