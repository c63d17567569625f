"""The records of the tables: their fields are the columns of the database, in order."""

from __future__ import annotations

import pytest

from engine.storage import tables
from engine.storage.open import MemoryStore
from engine.storage.tables import Table

TABLES = {name.lower(): found for name, found in vars(tables).items() if isinstance(found, Table)}
UNSEALED = {"n", "mac"}


def columns(table: str) -> list[str]:
    """The columns of a table of a new database."""
    name = {"heads": "sessions", "forms": "flows"}.get(table, table)
    found = MemoryStore().database.connect().execute("SELECT name FROM pragma_table_info(?)", (name,))
    # The text of a flow has no MAC: its digest, which each session seals, holds it.
    return [str(column) for (column,) in found if (table, column) != ("forms", "body")]


@pytest.mark.parametrize("name", TABLES)
def test_the_fields_of_a_record_are_the_columns_of_its_table(name: str) -> None:
    """What the MAC covers is all of a row but its number, which is covered where it says something."""
    covered = TABLES[name].columns
    stored = columns(name)
    assert covered == tuple(column for column in stored if column not in UNSEALED - {covered[0]})
