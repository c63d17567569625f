"""The names that flow files give themselves, found without reading them as flows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from engine.flow.load import is_flow_file

_NAMED = re.compile(r"^flow:[ \t]*[\"']?([^\s\"'#]+)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)


def flow_name(file: Path) -> str | None:
    """Return the name of a file's flow from a line of its text, even if the file is otherwise invalid."""
    try:
        # Nobody who presses the tab key waits for a pipe.
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    except OSError:
        return None
    found = _NAMED.search(text)
    return found and found[1]


def flow_names(folder: Path) -> Iterator[str]:
    """Yield the names of the flows of a folder."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = flow_name(file) if is_flow_file(file.name) else None
        if name is not None:
            yield name
