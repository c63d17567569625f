"""Whether what expressions give fits the fields that they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path
from engine.nodes.types.spec import NodeSpec
from engine.types.lattice import BOOLEAN, LIST, MAPPING, NULL, NUMBER, TEXT, Type, shown, words
from engine.types.pieces import Pieces, Record, single

_MOST_VALUES = 8


class _Sample(NamedTuple):
    """A value that an expression may give. `typical`: another one of its kind could fit where this one does not."""

    value: Json
    typical: bool = False


def unfit(spec: NodeSpec, with_: Mapping[str, Json], record: Record) -> Iterator[Fault]:
    """The expressions under a `with` that give what their field does not take, as far as that is known."""
    choices = {path: _samples(pieces, path, spec) for path, pieces in record.items()}
    choices = {path: samples for path, samples in choices.items() if samples}
    told: set[Path] = set()
    for turn in range(max(map(len, choices.values()), default=0)):
        chosen = {path: samples[min(turn, len(samples) - 1)] for path, samples in choices.items()}
        for fault, of_kind in spec.misfits(_filled(with_, ("with",), chosen)):
            path: Path = ("with", *fault.path)
            sample = chosen.get(path)
            if sample is None or path in told or (sample.typical and not of_kind):
                continue
            told.add(path)
            yield Fault(path, _misfit(record[path], sample, fault), _remedy(sample, fault))


def _filled(value: Json, path: Path, chosen: Mapping[Path, _Sample]) -> Json:
    if path in chosen:
        return chosen[path].value
    if isinstance(value, dict):
        return {key: _filled(item, (*path, key), chosen) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, (*path, index), chosen) for index, item in enumerate(value)]
    return value


def _samples(pieces: Pieces, path: Path, spec: NodeSpec) -> list[_Sample]:
    alone = single(pieces)
    if alone is not None and str(path[1]) not in spec.markup:
        return list(_of_type(alone))
    options: list[list[str]] = []
    for piece in pieces:
        if isinstance(piece, str):
            options.append([piece])
        elif piece.unknown or (piece.kinds & (TEXT | LIST | MAPPING) and piece.values is None):
            return [_Sample("x", typical=True)]
        else:
            options.append([_written(sample.value) for sample in _of_type(piece)])
    return [_Sample("".join(parts)) for parts in list(product(*options))[:_MOST_VALUES]]


_OTHERS: tuple[tuple[int, Json], ...] = ((BOOLEAN, True), (LIST, []), (MAPPING, {}))


def _of_type(found: Type) -> Iterator[_Sample]:
    if found.unknown:
        return
    if found.nullable:
        yield _Sample(None)
    for value in sorted(found.values or (), key=str)[:_MOST_VALUES]:
        yield _Sample(value)
    if found.values is None and found.kinds & NUMBER:
        yield _Sample(1)
    if found.values is None and found.kinds & TEXT:
        yield _Sample("x", typical=True)
    yield from (_Sample(value) for kind, value in _OTHERS if found.kinds & kind)


def _written(value: Json) -> str:
    return "true" if value is True else "null" if value is None else str(value)


def _misfit(pieces: Pieces, sample: _Sample, fault: Fault) -> str:
    alone = single(pieces)
    if alone is None:
        return f"this gives texts such as {sample.value!r}: {fault.message}"
    if sample.value is None:
        because = f" ({alone.why})" if alone.why else ""
        return f"this may be null{because}: {fault.message}"
    if not alone.values:
        return f"this gives {words(alone.without(NULL))}: {fault.message.split(', not ')[0]}"
    may = "may give" if len(alone.values) > 1 else "gives"
    return f"this {may} {shown(sample.value)}: {fault.message}"


def _remedy(sample: _Sample, fault: Fault) -> str | None:
    if sample.value is None:
        return "guard it with `if`, or with `default(..., true)`"
    if isinstance(sample.value, int) and "no unit" in fault.message:
        return "write the unit behind it: `{{ ... }}s`"
    return fault.hint
