"""Contents of a folder as a value: each file by the digest of its bytes, links as links, and folders.

A folder that programs work in is walked by open folders, so no link planted there leads out of it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from engine.language.codec import Json
from engine.nodes.runtime.folder import NO_LINK, folder_inside

log = logging.getLogger("sayso.engine")

_SETTLED_NS = 200_000_000
"""A file that changed so recently may change again without its times telling."""


class File(NamedTuple):
    """A file: its bytes by their SHA-256, and its permissions."""

    digest: str
    size: int
    mode: int


Entry: TypeAlias = File | str | None
"""A file, the target of a link, or None for a folder."""
Tree: TypeAlias = dict[str, Entry]
"""Entries of a folder by their path in it. Names and links are percent-encoded, as they may not be text."""
Seen: TypeAlias = dict[str, tuple[tuple[int, ...], str]]
"""The digest of each file that was read, with the size, times and number that it had."""


def tree_of(root: Path, seen: Seen) -> Tree:
    """Return the tree of this folder; empty if it does not exist. Files as in `seen` are not read again, and new ones
    are added to it. Raises `OSError`."""
    found: Tree = {}
    began = time.time_ns()
    if not root.is_dir():
        return found
    for place, folders, files, at in os.fwalk(root, onerror=_unread):
        for name in (*folders, *files):
            path = encoded(os.path.relpath(os.path.join(place, name), root))
            try:
                found |= _entry(at, name, path, seen, began)
            except FileNotFoundError:
                continue
            except PermissionError as error:
                _unread(error)
    for gone in seen.keys() - found.keys():
        del seen[gone]
    return found


def _unread(error: OSError) -> None:
    log.warning("%s cannot be read, and will be missing where the session continues", error.filename)


def _entry(at: int, name: str, path: str, seen: Seen, began: int) -> Tree:
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        return {path: None}
    if stat.S_ISLNK(status.st_mode):
        return {path: encoded(os.readlink(name, dir_fd=at))}
    if not stat.S_ISREG(status.st_mode):
        return {}
    times = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    known = seen.get(path)
    if known is not None and known[0] == times:
        digest = known[1]
    else:
        with os.fdopen(os.open(name, NO_LINK, dir_fd=at), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    if began - status.st_ctime_ns > _SETTLED_NS:
        seen[path] = times, digest
    return {path: File(digest, status.st_size, stat.S_IMODE(status.st_mode) & 0o777)}


def encoded(path: str) -> str:
    """A path as a tree has it."""
    return quote(os.fsencode(path))


def named(path: str) -> str:
    """A path of a tree as the system takes it."""
    return os.fsdecode(unquote_to_bytes(path))


def opened(root: Path, path: str) -> IO[bytes]:
    """Open a file of a tree for reading. Raises `OSError`."""
    *folders, name = named(path).split("/")
    with folder_inside(root, folders) as at:
        return os.fdopen(os.open(name, NO_LINK, dir_fd=at), "rb")


def as_json(tree: Mapping[str, Entry]) -> Json:
    """Return a tree in its stored form."""
    return {path: list(entry) if isinstance(entry, File) else entry for path, entry in tree.items()}


def from_json(value: Mapping[str, Json]) -> Tree:
    """A tree that was written."""
    return {path: File(*entry) if isinstance(entry, list) else entry for path, entry in value.items()}


def lay_out(
    root: Path, tree: Mapping[str, Entry], old: Path, here: Mapping[str, Entry]
) -> list[tuple[str, File]]:
    """Make the folders of a tree in an empty folder, and the files that `old` has `here` already; which ones are
    missing. Raises `OSError`."""
    at_hand = {entry.digest: path for path, entry in here.items() if isinstance(entry, File)}
    missing = []
    for path, entry in sorted(tree.items()):
        if entry is None:
            (root / named(path)).mkdir(mode=0o700)
        elif isinstance(entry, File):
            if entry.digest in at_hand:
                with opened(old, at_hand[entry.digest]) as source, (root / named(path)).open("xb") as copy:
                    shutil.copyfileobj(source, copy)
            else:
                missing.append((path, entry))
    return missing


def finish(root: Path, tree: Mapping[str, Entry]) -> None:
    """Create the links of a tree whose files exist, and set permissions. Raises `OSError`."""
    for path, entry in tree.items():
        if isinstance(entry, File):
            os.chmod(root / named(path), entry.mode)
        elif isinstance(entry, str):
            os.symlink(named(entry), root / named(path))
