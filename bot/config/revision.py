"""Which version of the flows a folder holds: the commit of the git checkout around it, or what a file `REVISION` says.

The commit is read from git's own files, since images have no git. Only whether files differ from the commit is asked of the
program, where there is one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.language.codec import clean_text

FILE = "REVISION"
MOST_LETTERS = 80
DIRTY = "-dirty"
"""What stands behind a commit whose files were changed."""
_GIT_SECONDS = 5.0
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_GIT = ("git", "--no-optional-locks", "-c", "safe.directory=*", "-c", "core.fsmonitor=false")


class Version(NamedTuple):
    """A version of a folder. Equal ones hold the same files, but for what people change in place."""

    folder: Path
    """Without symbolic links: a release that is swapped in is another folder."""
    revision: str | None = None
    git: bool = False
    changed: int = 0
    """When git changed its index last, in nanoseconds."""
    unfinished: bool = False
    """Git is changing its files, or the folder is not there."""


def version_of(place: Path) -> Version:
    """The version of a folder, or of the folder of a file."""
    folder = place.resolve()
    if not folder.exists():
        return Version(folder, unfinished=True)
    folder = folder if folder.is_dir() else folder.parent
    for around in (folder, *folder.parents):
        if (said := _line(around / FILE)) is not None:
            return Version(folder, clean_text(said)[0][:MOST_LETTERS])
        if (git := _git_folder(around / ".git")) is not None:
            # First the lock: whoever lets it go in between has changed the index by then.
            writing, index = (git / "index.lock").exists(), git / "index"
            changed = index.stat().st_mtime_ns if index.exists() else 0
            return Version(folder, _commit(git), True, changed, writing)
    return Version(folder)


def commit_of(root: Path) -> str | None:
    """The commit of a checkout, marked where it has changes; None where this folder is the root of none."""
    version = version_of(root) if (root / ".git").exists() else Version(root)
    if version.revision is None:
        return None
    return version.revision[:12] + (DIRTY if is_dirty(root) else "")


def is_dirty(folder: Path) -> bool:
    """Whether files in this folder of a checkout differ from its commit, or are not in it. False without the program."""
    words = [*_GIT, "-C", str(folder), "status", "--porcelain", "--", ".", ":(exclude,glob)**/__pycache__/**"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def _git_folder(place: Path) -> Path | None:
    """Where git keeps what is about a checkout: `.git`, or where the file `.git` of a worktree points."""
    if place.is_dir():
        return place if (place / "HEAD").exists() else None
    said = _line(place)
    if said is None or not said.startswith("gitdir:"):
        return None
    return place.parent / said.removeprefix("gitdir:").strip()


def _commit(git: Path) -> str | None:
    """The commit of HEAD, also of a branch that is packed. None where there is none yet, or git keeps it in another way."""
    head = _line(git / "HEAD") or ""
    if head.startswith("ref:"):
        name = head.removeprefix("ref:").strip()
        common = git / (_line(git / "commondir") or ".")
        head = _line(git / name) or _line(common / name) or _packed(common / "packed-refs", name) or ""
    return head if _COMMIT.fullmatch(head) else None


def _packed(file: Path, name: str) -> str | None:
    return next((line.split()[0] for line in _lines(file) if line.endswith(f" {name}")), None)


def _line(file: Path) -> str | None:
    """The first line of a small file, None where there is none."""
    return next(_lines(file), None)


def _lines(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                yield line.strip()
    except OSError:
        return
