"""Types of values with expressions, from the type of each expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from engine.language.codec import Json
from engine.language.diagnostics import Path
from engine.types.lattice import ANY, TEXTS, Type, list_of, mapping_of, of_value, union

Pieces: TypeAlias = "list[str | Type]"
Record: TypeAlias = Mapping[Path, Pieces]
"""Parts of each text by its path: literal text, or the type of an expression."""


def type_of(value: Json, path: Path, record: Record) -> Type:
    """Return the type of a value whose expressions were recorded."""
    if isinstance(value, str):
        pieces = record.get(path)
        if pieces is None:
            return ANY if "{{" in value else of_value(value)
        alone = single(pieces)
        return TEXTS if alone is None else alone
    if isinstance(value, dict):
        return mapping_of({key: type_of(item, (*path, key), record) for key, item in value.items()})
    if isinstance(value, list):
        return list_of(
            union(type_of(item, (*path, index), record) for index, item in enumerate(value))
            if value
            else None
        )
    return of_value(value)


def single(pieces: Pieces) -> Type | None:
    """Return the type of the single expression of a text that otherwise has only white space, or None."""
    solid = [piece for piece in pieces if not isinstance(piece, str) or piece.strip()]
    return solid[0] if len(solid) == 1 and isinstance(solid[0], Type) else None
