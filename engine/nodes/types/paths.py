"""Allowed places of a session's files: its own folder, by a plain relative path. Pure.

A flow names files from people by their whole path (`.../sessions/session-1a2b3c4d/files/...`); only the part after the
session id counts, so it always means a file of this session.

This checks only the text of a path. Links are refused when the file is opened (`engine.nodes.runtime.files`).
"""

from __future__ import annotations

import re

MOST = 1000
"""Characters of a path."""
_OURS = ".sayso"
_WHOLE = re.compile(r"/.*/sessions/session-[0-9a-f]{8,64}/(?P<inside>.*)", re.ASCII)


class BadPath(ValueError):
    """This path does not name a file in the session's folder; says why."""


def session_path(path: str) -> tuple[str, ...]:
    """Return the folders of this path and its file, in order. Raises `BadPath`."""
    if not path or len(path) > MOST:
        raise BadPath(f"a path has 1 to {MOST} characters")
    if not path.isprintable() or "\\" in path:
        raise BadPath(f"{path[:80]!r} has characters that are not allowed in a path")
    whole = _WHOLE.fullmatch(path)
    if whole is not None:
        return session_path(whole["inside"])
    if path.startswith(("/", "~")):
        raise BadPath(f"{path[:80]!r} is outside the session's folder; write a path relative to it")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise BadPath(f"{path[:80]!r} leads out of a folder; `..` is not allowed")
    if any(part.lower().startswith(_OURS) for part in parts):
        raise BadPath(f"{path[:80]!r} is reserved for sayso")
    if not parts or path.endswith(("/", "/.")):
        raise BadPath(f"{path[:80]!r} names a folder, not a file")
    if any(len(part.encode()) > 240 for part in parts):
        raise BadPath("a name in a path has at most 240 bytes")
    return parts
