"""Version of the flows in a folder: the commit of the git checkout around it, or the content of a file `REVISION`.

Nobody chose the folders above the flows, so only plain files and folders of root or of this user count there, and the
search ends at the first folder that others may write: the author of a `.git` names programs that git runs.

The commit is read from git's own files, since images have no git. Only the check for changed files uses the program, if
there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bot.config.ownership import our_folder, our_text
from engine.language.codec import clean_text

FILE = "REVISION"
MOST_LETTERS = 80
DIRTY = "-dirty"
"""Suffix of a commit whose files were changed."""
_GIT_SECONDS = 5.0
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")


class Version(NamedTuple):
    """A version of a folder. Equal ones hold the same files, except for changes made in place."""

    folder: Path
    """Resolved path: a release that is swapped in is another folder."""
    revision: str | None = None
    git: bool = False
    changed: int = 0
    """Time of git's last change to its index, in nanoseconds."""
    unfinished: str = ""
    """Why its files may be of no version: git is changing them, or the folder does not exist."""
    since: float | None = None
    """Since when git is changing them, in seconds since 1970."""


class _Checkout(NamedTuple):
    """A checkout: its folder, git's folder for it, and the folder shared by all its worktrees."""

    root: Path
    git: Path
    common: Path


def version_of(place: Path) -> Version:
    """The version of a folder, or of the folder of a file."""
    folder = Path(os.path.realpath(place))  # `resolve` fails for links in a circle
    if not folder.exists():
        return Version(folder, unfinished="the folder does not exist")
    folder = folder if folder.is_dir() else folder.parent
    found = _around(folder)
    if not isinstance(found, _Checkout):
        return Version(folder, found)
    # First the lock: if it is released in between, the index has changed by then.
    lock, since = found.git / "index.lock", None
    with suppress(FileNotFoundError):
        since = lock.lstat().st_mtime
    index = found.git / "index"
    changed = index.stat().st_mtime_ns if index.exists() else 0
    writing = (
        f"git is changing them. If no git command is running there, delete {lock}"
        if since is not None
        else ""
    )
    return Version(folder, _commit(found), True, changed, writing, since)


def _around(folder: Path) -> _Checkout | str | None:
    """Return the source of a folder's version: the nearest checkout, or the content of the nearest `REVISION`."""
    for around in (folder, *folder.parents):
        if not our_folder(around):
            return None
        if said := our_text(around / FILE):
            return clean_text(said.splitlines()[0].strip())[0][:MOST_LETTERS]
        git = around / ".git"
        if (said := our_text(git)) is not None and said.startswith("gitdir:"):
            git = (around / said.removeprefix("gitdir:").strip()).resolve()
        common = (git / (our_text(git / "commondir") or ".").strip()).resolve()
        if all(map(our_folder, (git, common))) and our_text(git / "HEAD") is not None:
            return _Checkout(around, git, common)
    return None


def passed_over(folder: Path) -> Path | None:
    """Return the folder writable by others because of which version information in or above it is ignored, or None."""
    around = [Path(os.path.realpath(folder)), *Path(os.path.realpath(folder)).parents]
    if not any(os.path.lexists(place / name) for place in around for name in (FILE, ".git")):
        return None
    looked_at = (place for each in around for place in (each, each / ".git"))
    return next((place for place in looked_at if place.is_dir() and not our_folder(place)), None)


def commit_of(root: Path) -> str | None:
    """Return the commit of a checkout, marked if it has changes; None if this folder is not the root of one."""
    version = version_of(root) if (root / ".git").exists() else Version(root)
    if version.revision is None:
        return None
    return version.revision[:12] + (DIRTY if is_dirty(root) else "")


def is_dirty(folder: Path) -> bool:
    """True if files in this folder of a checkout differ from its commit, or are not in it. False without the program."""
    found = _around(folder.resolve())
    if not isinstance(found, _Checkout) or our_text(found.common / "config") is None:
        return False
    # Git is given the checkout: by default it would search all folders above.
    where = ["--git-dir", str(found.git), "--work-tree", str(found.root), "-C", str(folder)]
    asked = [
        "status",
        "--porcelain",
        "--ignore-submodules=dirty",
        "--",
        ".",
        ":(exclude,glob)**/__pycache__/**",
    ]
    try:
        done = subprocess.run([*_GIT, *where, *asked], capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def _commit(checkout: _Checkout) -> str | None:
    """Return the commit of HEAD, also of a packed branch. None if there is none yet, or git stores it differently."""
    git, common = checkout.git, checkout.common
    head = (our_text(git / "HEAD") or "").strip()
    if head.startswith("ref:"):
        name = head.removeprefix("ref:").strip()
        packed = (our_text(common / "packed-refs") or "").splitlines()
        of_packed = next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
        head = (our_text(git / name) or our_text(common / name) or of_packed).strip()
    return head if _COMMIT.fullmatch(head) else None
