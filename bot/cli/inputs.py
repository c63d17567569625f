"""Inputs of a run from a command line: `key=value`, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bot.terminal.exit_codes import UsageError
from engine.language.codec import Json
from engine.language.errors import FlowError
from engine.language.yaml import decode_source, load_located


def read_inputs(pairs: Sequence[str], file: Path | None) -> dict[str, Json]:
    """Inputs from a file and from `key=value`, which win. Raises `UsageError`, and `FlowError` for a broken file."""
    given = _from_file(file) if file is not None else {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"An input is given as key=value, not {pair!r}.")
        given[key.strip()] = value
    return given


def _from_file(file: Path) -> dict[str, Json]:
    """JSON is YAML, so one reader takes both, with its limits and its places of errors."""
    located = load_located(decode_source(file.read_bytes(), str(file)), str(file))
    if located.problems:
        raise FlowError(located.problems)
    if not isinstance(located.data, dict):
        raise UsageError(f"{file} holds no mapping of inputs; write one `name: value` a line.")
    return dict(located.data)
