"""What outlives its session and is read by others: stored once, changed in turn, and never believed unless it verifies."""

from __future__ import annotations

import pytest

from engine.journal.records import KeptRow
from engine.language.errors import Corrupt, KeptMoved
from engine.storage.store import Store
from tests.storage.storagekit import NOW, SqliteBackend, at, reaped

ROW = KeptRow("n1", "note", "channel:C1", 1, at(60), b"{}")


def test_a_row_is_stored_once_and_found_by_its_scope(store: Store) -> None:
    """A second one with its id and `rev` 1 is a no-op, so a step that is carried out again doubles nothing."""
    store.consume([], NOW, [ROW, ROW.but(kept_id="n2", scope="flow:x")])
    store.consume([], NOW, [ROW.but(body=b"other")])
    assert store.kept.rows("note", ["channel:C1"]) == [ROW]
    assert [row.kept_id for row in store.kept.rows("note")] == ["n1", "n2"]
    assert store.kept.rows("other") == []
    assert store.kept.row("n3") is None


def test_a_change_names_the_one_before(store: Store) -> None:
    """Whoever changes what another one has changed meanwhile is told to look again, and nothing is stored."""
    store.consume([], NOW, [ROW])
    store.consume([], NOW, [ROW.but(rev=2, body=b"second")])
    for late in (ROW.but(rev=2, body=b"late"), ROW.but(rev=4), ROW.but(kept_id="n9", rev=2)):
        with pytest.raises(KeptMoved):
            store.consume([], NOW, [late])
    found = store.kept.row("n1")
    assert found is not None
    assert (found.rev, found.body) == (2, b"second")


@pytest.mark.parametrize("column", ["kept_id", "kind", "scope", "expires_at", "body"])
def test_a_row_that_was_changed_is_not_read(backend: SqliteBackend, store: Store, column: str) -> None:
    """It is left out of lists; asked for by itself it is an error that says so, and it cannot be changed further."""
    store.consume([], NOW, [ROW])
    backend.change("kept", 0, column, b"note" if column == "scope" else b"n7")
    assert store.kept.rows("note") == []
    if column != "kept_id":
        with pytest.raises(Corrupt, match="changed outside"):
            store.kept.row("n1")
        with pytest.raises(Corrupt):
            store.consume([], NOW, [ROW.but(rev=2)])


def test_what_is_over_is_deleted_with_the_retention(store: Store) -> None:
    """Later than its end by as long as sessions are kept."""
    store.consume([], NOW, [ROW])
    reaped(store, at(60), at(0))
    assert store.kept.rows("note") == [ROW]
    reaped(store, at(61), at(0))
    assert store.kept.rows("note") == []
