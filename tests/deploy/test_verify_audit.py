"""An auditor with the script and the public key finds every change of an export, and is told the place."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from deploy.verify_audit import Broken, Verifier, check
from engine.journal.events import Event
from engine.run import evidence
from engine.storage.open import MemoryStore
from tests.engine.histories import histories
from tests.storage.storagekit import NOW, done, new_session, step

HISTORIES = {name: found.events for name, found in histories().items()}
FIRST, SECOND, THIRD = sorted(HISTORIES, key=lambda name: len(HISTORIES[name]))[6:9]
KEY = b"k" * 32


def added(store: MemoryStore, name: str, events: list[Event]) -> None:
    """Store the events of a history that the store does not have yet, and attest them."""
    session_id = f"session-{name}"
    head = store.sessions.head(session_id)
    rows = [
        replace(event, session_id=session_id).to_bytes() if event is events[0] else event.to_bytes()
        for event in events
    ]
    if head is None:
        done(store, new_session(session_id, None, *rows))
    else:
        done(store, step(session_id, head.epoch, head.seq, *rows[head.seq :]))
    assert evidence.attest(store, NOW)


def export(store: MemoryStore, size: int = 0, *, content: bool = False) -> bytes:
    """What an export after the first leaves writes."""
    return b"".join(line + b"\n" for line in evidence.Export(store, size, content=content).lines())


def note(store: MemoryStore, size: int) -> bytes:
    """The checkpoint of that size."""
    return str(store.evidence.leaf(size).note).encode()


@pytest.fixture(name="store")
def two_sessions() -> MemoryStore:
    """Two sessions, of which the first went on after the second was attested."""
    store = MemoryStore(KEY)
    added(store, FIRST, HISTORIES[FIRST][:4])
    added(store, SECOND, HISTORIES[SECOND])
    added(store, FIRST, HISTORIES[FIRST])
    return store


def told(keys: list[str], *files: tuple[str, bytes]) -> str:
    """The sentence about what is wrong; empty if nothing is."""
    try:
        check(keys, list(files))
    except Broken as error:
        return str(error)
    return ""


@pytest.mark.parametrize("content", [False, True])
def test_an_unchanged_export_of_any_flow_verifies(content: bool) -> None:
    """With and without content, whole and in parts."""
    for name, events in HISTORIES.items():
        store = MemoryStore(KEY)
        added(store, name, events[: len(events) // 2])
        size, first = store.evidence.size(), export(store, content=content)
        added(store, name, events)
        keys = evidence.keys(store)
        assert told(keys, ("whole", export(store, content=content))) == "", name
        assert told(keys, ("first", first), ("second", export(store, size, content=content))) == "", name
        assert told(keys, ("second", export(store, size)), ("published", note(store, size))) == "", name


def test_a_flip_of_any_byte_is_found(store: MemoryStore) -> None:
    """In each line of an export, its seal included, and in what was published; the file is named."""
    keys, chance = evidence.keys(store), random.Random(1)
    for name, data in (("export", export(store, content=True)), ("published", note(store, 2))):
        for at in sorted(chance.sample(range(len(data)), min(len(data), 900))):
            flipped = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            assert told(keys, (name, flipped)).startswith(name), at


def test_the_line_of_a_changed_record_is_named(store: MemoryStore) -> None:
    """And the record."""
    lines = export(store).split(b"\n")
    at = next(n for n, line in enumerate(lines) if b'"node:started"' in line)
    lines[at] = lines[at].replace(b"node:started", b"node:skipped")
    assert f"export, line {at + 1}: session" in told(evidence.keys(store), ("export", b"\n".join(lines)))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_cut_or_a_swap_is_found_wherever_it_is(store: MemoryStore, count: int) -> None:
    """Some lines cut, first, last or between, and any line swapped with one behind it."""
    keys, lines = evidence.keys(store), export(store).splitlines(keepends=True)
    for at in range(len(lines) - count + 1):
        cut = lines[:at] + lines[at + count :]
        assert told(keys, ("export", b"".join(cut))).startswith("export"), at
        if at + count < len(lines):
            swapped = lines[:]
            swapped[at], swapped[at + count] = lines[at + count], lines[at]
            assert told(keys, ("export", b"".join(swapped))).startswith("export, line"), at


def test_an_older_copy_of_the_store_is_found(store: MemoryStore) -> None:
    """By a checkpoint that was published, and by an export of before."""
    older = MemoryStore(KEY)
    added(older, FIRST, HISTORIES[FIRST][:4])
    published, size = note(store, store.evidence.size()), store.evidence.size()
    keys, back = evidence.keys(store), ("back", export(older))
    assert told(keys, back) == ""
    assert f"published, line 1: rolled back: {size}" in told(keys, back, ("published", published))
    assert "back, line" in told(keys, ("before", export(store)), back)
    assert "rolled back" in told(keys, ("before", export(store)), back)


def test_two_histories_under_one_key_are_found(store: MemoryStore) -> None:
    """Each verifies alone; together they are a fork, with both places."""
    other = MemoryStore(KEY)
    added(other, FIRST, HISTORIES[FIRST][:4])
    added(other, THIRD, HISTORIES[THIRD])
    added(other, FIRST, HISTORIES[FIRST])
    keys, one, two = evidence.keys(store), ("one", export(store)), ("two", export(other))
    assert (told(keys, one), told(keys, two)) == ("", "")
    for found in (told(keys, one, two), told(keys, one, ("two", note(other, 3)))):
        assert "fork" in found
        assert "two, line" in found
        assert "one, line" in found


def test_a_missing_export_between_two_is_found(store: MemoryStore) -> None:
    """An export that does not go on where the one before ended."""
    size, first = store.evidence.size(), export(store)
    added(store, THIRD, HISTORIES[THIRD])
    later = store.evidence.size()
    evidence.rotate(store, NOW)
    found = told(evidence.keys(store), ("first", first), ("third", export(store, later)))
    assert f"third, line 1: leaves {size} to {later - 1}" in found


def test_a_key_that_was_rotated_signs_nothing_any_more(store: MemoryStore) -> None:
    """The first key is enough for what follows, and what the old key signs beyond is refused."""
    first, old = evidence.keys(store)[0], evidence.signer(store)
    evidence.rotate(store, NOW)
    added(store, THIRD, HISTORIES[THIRD])
    whole = ("whole", export(store))
    assert told([first], whole) == ""
    size = store.evidence.size()
    body, _, _ = note(store, size).decode().partition("\n\n")
    assert old is not None
    forged = old.note(body + "\n").encode()
    assert "valid then" in told([first], whole, ("forged", forged))


@pytest.mark.parametrize("name", ["claim", "close", "record"])
def test_a_verifier_without_one_of_its_checks_is_noticed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Seeded faults: what each check is for is found by it, by line."""
    lines = export(store).splitlines(keepends=True)
    at = max(n for n, line in enumerate(lines) if b'"chain"' in line)
    changed = (
        b"".join(lines[:at] + lines[at + 1 :])
        if name == "close"
        else b"".join(lines).replace(b'"node:started"', b'"node:begun"')
    )
    other = MemoryStore(KEY)
    added(other, THIRD, HISTORIES[THIRD])
    files = [("one", export(store)), ("two", note(other, 2))] if name == "claim" else [("one", changed)]
    before = told(evidence.keys(store), *files)
    monkeypatch.setattr(Verifier, name, lambda *given: None)
    assert before
    assert told(evidence.keys(store), *files) != before
