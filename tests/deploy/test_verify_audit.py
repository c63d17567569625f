"""An auditor with the script and the public key finds every change of an export, and is told the place.

The changes are generated: each byte flipped, each run of lines cut, each two lines swapped, each earlier state of the store instead of
a later one, and a second history from each point on.
"""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from deploy.verify_audit import Broken, Log, check
from engine.journal.events import Event
from engine.run import evidence
from engine.storage.open import MemoryStore
from tests.engine.histories import histories
from tests.storage.storagekit import NOW, done, new_session, step

SCRIPT = Path(__file__).parents[2] / "deploy/verify_audit.py"
HISTORIES = {name: found.events for name, found in histories().items()}
FIRST, SECOND, THIRD = sorted(HISTORIES, key=lambda name: len(HISTORIES[name]))[6:9]
KEY = b"k" * 32


def added(store: MemoryStore, name: str, events: list[Event], *, attested: bool = True) -> None:
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
    if attested:
        assert evidence.attest(store, NOW)


def export(store: MemoryStore, size: int = 0, *, content: bool = False) -> bytes:
    """What an export after the first leaves writes."""
    return b"".join(line + b"\n" for line in evidence.Export(store, size, content=content).lines())


def note(store: MemoryStore, size: int) -> bytes:
    """The checkpoint of that size."""
    return str(store.evidence.leaf(size).note).encode()


STEPS = [
    (FIRST, HISTORIES[FIRST][:4]),
    (SECOND, HISTORIES[SECOND]),
    (FIRST, HISTORIES[FIRST]),
    (THIRD, HISTORIES[THIRD][:5]),
]
"""A story of a store: what is stored and attested, one after the other."""


def grown_to(count: int, other: int | None = None) -> MemoryStore:
    """A store after so many steps; from step `other` on it has another history than the others."""
    store = MemoryStore(KEY)
    for number, (name, events) in enumerate(STEPS[:count]):
        forked = other is not None and number >= other
        added(store, f"other-{number}" if forked else name, events)
    return store


@pytest.fixture(name="store")
def two_sessions() -> MemoryStore:
    """Two sessions, of which the first continued after the second was attested."""
    return grown_to(3)


def told(keys: list[str], *files: tuple[str, bytes]) -> str:
    """The sentence about what is wrong; empty if nothing is."""
    try:
        check(keys, list(files))
    except Broken as error:
        return str(error)
    return ""


def test_the_script_is_short_and_needs_cryptography_alone() -> None:
    """At most 150 lines; it imports nothing of sayso, and nothing else that Python does not bring."""
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 150
    found = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert found - sys.stdlib_module_names == {"cryptography"}


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_an_unchanged_export_of_any_flow_verifies(name: str, content: bool) -> None:
    """With and without content, whole and in parts, beside what was published."""
    events, store = HISTORIES[name], MemoryStore(KEY)
    added(store, name, events[: len(events) // 2])
    size, first = store.evidence.size(), export(store, content=content)
    added(store, name, events)
    keys, published = evidence.keys(store), ("published", note(store, size) + note(store, size + 1))
    second = ("second", export(store, size, content=content))
    for files in (
        [("whole", export(store, content=content)), published],
        [("first", first), second, published],
        [published, second],
    ):
        assert told(keys, *files) == ""


def test_a_flip_of_any_byte_is_found(store: MemoryStore) -> None:
    """In each line of an export, its seal included, and in what was published; the file is named."""
    keys = evidence.keys(store)
    for name, data in (
        ("export", export(store, content=True)),
        ("published", note(store, 2) + note(store, 3)),
    ):
        for at in range(len(data)):
            flipped = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
            assert told(keys, (name, flipped)).startswith(name), at


def test_the_line_of_a_changed_record_is_named(store: MemoryStore) -> None:
    """And the record."""
    lines = export(store).split(b"\n")
    at = next(n for n, line in enumerate(lines) if b'"node:started"' in line)
    lines[at] = lines[at].replace(b"node:started", b"node:skipped")
    assert f"export, line {at + 1}: session" in told(evidence.keys(store), ("export", b"\n".join(lines)))


def cuts(lines: list[bytes]) -> Iterator[list[bytes]]:
    """The lines without each run of them, one line to all."""
    for first, end in itertools.combinations(range(len(lines) + 1), 2):
        yield lines[:first] + lines[end:]


def swaps(lines: list[bytes]) -> Iterator[list[bytes]]:
    """The lines with each two of them swapped, and with each one a second time."""
    for one, other in itertools.combinations(range(len(lines)), 2):
        swapped = lines[:]
        swapped[one], swapped[other] = lines[other], lines[one]
        yield swapped
    for at, line in enumerate(lines):
        yield [*lines[:at], line, *lines[at:]]


def test_a_cut_or_a_swap_is_found_wherever_it_is(store: MemoryStore) -> None:
    """Each run of lines cut, each two lines swapped, and each line doubled; at each byte of the file an end."""
    keys, data = evidence.keys(store), export(store)
    lines = data.splitlines(keepends=True)
    for changed in itertools.chain(cuts(lines), swaps(lines)):
        assert told(keys, ("export", b"".join(changed))).startswith("export"), changed
    for end in range(len(data)):
        assert told(keys, ("export", data[:end])).startswith("export"), end


def test_a_line_of_another_export_is_found(store: MemoryStore) -> None:
    """Each line of an export with content instead of the same line of the one without, and the other way around."""
    keys, plain, full = evidence.keys(store), export(store), export(store, content=True)
    one, other = plain.splitlines(keepends=True), full.splitlines(keepends=True)
    assert len(one) == len(other)
    for at in range(len(one)):
        for here, there in ((one, other), (other, one)):
            if here[at] != there[at]:
                mixed = b"".join([*here[:at], there[at], *here[at + 1 :]])
                assert told(keys, ("export", mixed)).startswith("export, line"), at


def test_an_older_copy_of_the_store_is_found() -> None:
    """Each earlier state instead of each later one: by a checkpoint that was published, and by an export of before."""
    stores = [grown_to(count) for count in range(1, len(STEPS) + 1)]
    keys = evidence.keys(stores[0])
    for older, later in itertools.combinations(stores, 2):
        back, size = ("back", export(older)), later.evidence.size()
        assert told(keys, back) == ""
        assert "published, line 1: rolled back" in told(keys, back, ("published", note(later, size)))
        assert "back, line" in (found := told(keys, ("before", export(later)), back))
        assert "rolled back: before has" in found
        assert told(keys, back, ("next", export(later, older.evidence.size()))) == ""


def test_two_histories_under_one_key_are_found() -> None:
    """From each step on. Each verifies alone; together they are a fork, with both places, in exports and published."""
    count = len(STEPS)
    for at in range(count):
        real, other = grown_to(count), grown_to(count, at)
        keys, one, two = evidence.keys(real), ("one", export(real)), ("two", export(other))
        assert (told(keys, one), told(keys, two)) == ("", "")
        size = real.evidence.size()
        later = ("two", export(other, size - 1)) if at < count - 1 else two
        for found in (
            told(keys, one, two),
            told(keys, one, later),
            told(keys, one, ("two", note(other, size))),
        ):
            assert "fork" in found, at
            assert found.startswith("two, line"), at
            assert "one, line" in found, at


def test_a_session_that_was_told_anew_is_found() -> None:
    """Even if the installation itself signs it: a later leaf continues where the one before ended."""
    store = MemoryStore(KEY)
    added(store, FIRST, HISTORIES[FIRST][:4])
    [before] = store.evidence.of(f"session-{FIRST}")
    size = store.evidence.size()
    line = before.line.replace('"leaf":1', f'"leaf":{size}')
    row = before.but(line=line)
    signing = evidence.signer(store)
    assert signing is not None
    assert store.evidence.append(size, evidence._signed(store, signing, size, [row]))
    found = told(evidence.keys(store), ("export", export(store)))
    assert "does not continue at the end of the session's last leaf" in found


def test_a_missing_export_between_two_is_found(store: MemoryStore) -> None:
    """An export that does not continue where the one before ended."""
    first, size = export(store), store.evidence.size()
    added(store, THIRD, HISTORIES[THIRD][:5])
    added(store, THIRD, HISTORIES[THIRD])
    later = export(store, store.evidence.size() - 1)
    found = told(evidence.keys(store), ("first", first), ("third", later))
    assert found.startswith(f"third, line 1: leaves from {size} on are in no export")


def test_a_key_that_another_one_followed_signs_nothing_any_more(store: MemoryStore) -> None:
    """The first key is enough for what follows; what it signs beyond is refused, in a checkpoint and in a seal."""
    [first], old = evidence.keys(store), evidence.signer(store)
    assert old is not None
    evidence.rotate(store, NOW)
    added(store, THIRD, HISTORIES[THIRD])
    evidence.rotate(store, NOW)
    added(store, "more", HISTORIES[FIRST])
    whole, size = ("whole", export(store)), store.evidence.size()
    assert told([first], whole) == ""
    assert told(evidence.keys(store), whole) == ""
    assert told([first], whole, ("published", b"".join(note(store, n) for n in (3, 4, 5, 6, 7)))) == ""
    forged = old.note(size, evidence._peaks(store, size))
    assert "valid then" in told([first], ("forged", forged.encode()), whole)
    assert "known key" in told(evidence.keys(store)[1:2], whole)


def test_a_log_of_other_keys_is_not_believed(store: MemoryStore) -> None:
    """Not one under its own key, and not one that gives itself the same name."""
    other = MemoryStore(b"o" * 32)
    added(other, FIRST, HISTORIES[FIRST])
    [key], name = evidence.keys(store), evidence.keys(store)[0].partition("+")[0]
    assert "known key" in told([key], ("export", export(other)))
    named = MemoryStore(b"o" * 32)
    liar = evidence.Signer.of(named, 1, name)
    named.evidence.append(
        0, evidence._signed(named, liar, 0, [evidence._key_leaf(named, 0, NOW, liar, liar)])
    )
    added(named, FIRST, HISTORIES[FIRST])
    assert evidence.keys(named)[0].partition("+")[0] == name
    assert "known key" in told([key], ("export", export(named)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}\n{}\n",
        b"[]\n[]\n",
        b"sayso/",
        b"sayso/x\n1\n\n",
        b"\xff\xfe\n\n",
        b"[" * 99_999 + b"\n\n",
        b"1\n2\n3\n",
    ],
)
def test_what_is_no_evidence_is_refused_in_a_sentence(store: MemoryStore, data: bytes) -> None:
    """Whatever it is; and so is a key that is none."""
    assert told(evidence.keys(store), ("file", data)).startswith("file")
    for key in ("", "sayso/x", "sayso/x+00000000+AAAA", "a+b+c+d"):
        assert told([key], ("file", data)).startswith("the key")


def test_it_runs_alone(store: MemoryStore, tmp_path: Path) -> None:
    """Without sayso, as an auditor runs it: 0 and what was found, or 1 and the place."""
    (tmp_path / "export").write_bytes(export(store))
    (tmp_path / "changed").write_bytes(export(store).replace(b"node:started", b"node:skipped", 1))
    [key] = evidence.keys(store)

    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-I", str(SCRIPT), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, found = run(key, "export")
    assert (code, found[:10]) == (0, "Verified: "), found
    code, found = run(key, "changed")
    assert (code, found[:27]) == (1, "Not verified. changed, line"), found
    assert run(key, "nowhere")[0] == run(key)[0] == 1


@pytest.mark.parametrize("name", ["claim", "add", "export"])
def test_a_verifier_without_one_of_its_checks_is_noticed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Seeded faults: what each part is for is found by nothing else."""
    other = grown_to(3, 1)
    keys = evidence.keys(store)
    files = {
        "claim": [("one", export(store)), ("two", note(other, 3))],
        "add": [("one", export(store))],
        "export": [("one", export(store).replace(b"node:started", b"node:skipped", 1))],
    }[name]
    before = told(keys, *files)
    monkeypatch.setattr(Log, name, lambda *given: None)
    assert (before == "") == (name == "add")
    assert told(keys, *files) != before
