"""Which version of the flows a folder holds: the commit of the git checkout around it, or what a file `REVISION` says.

Folders above the flows are nobody's choice, so only plain files and folders of root or of this user count there, and the
search ends at the first folder that others may write: whoever writes a `.git` names programs that git runs.

The commit is read from git's own files, since images have no git. Only whether files differ from the commit is asked of the
program, where there is one.
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
"""What stands behind a commit whose files were changed."""
_GIT_SECONDS = 5.0
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")


class Version(NamedTuple):
    """A version of a folder. Equal ones hold the same files, but for what people change in place."""

    folder: Path
    """Without symbolic links: a release that is swapped in is another folder."""
    revision: str | None = None
    git: bool = False
    changed: int = 0
    """When git changed its index last, in nanoseconds."""
    unfinished: str = ""
    """Why its files may be of no version: git is changing them, or the folder is not there."""
    since: float | None = None
    """Since when git is changing them, in seconds since 1970."""


class _Checkout(NamedTuple):
    """A checkout: its folder, where git keeps what is about it, and what all its worktrees share."""

    root: Path
    git: Path
    common: Path


def version_of(place: Path) -> Version:
    """The version of a folder, or of the folder of a file."""
    folder = Path(os.path.realpath(place))  # `resolve` fails for links in a circle
    if not folder.exists():
        return Version(folder, unfinished="the folder is not there")
    folder = folder if folder.is_dir() else folder.parent
    found = _around(folder)
    if not isinstance(found, _Checkout):
        return Version(folder, found)
    # First the lock: whoever lets it go in between has changed the index by then.
    lock, since = found.git / "index.lock", None
    with suppress(FileNotFoundError):
        since = lock.lstat().st_mtime
    index = found.git / "index"
    changed = index.stat().st_mtime_ns if index.exists() else 0
    writing = (
        f"git is changing them. If no git command runs there, delete {lock}" if since is not None else ""
    )
    return Version(folder, _commit(found), True, changed, writing, since)


def _around(folder: Path) -> _Checkout | str | None:
    """What tells the version of a folder: the nearest checkout, or what the nearest `REVISION` says."""
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
    """The folder, in which or above which somebody else may write, for which what tells the version is not looked at."""
    around = [Path(os.path.realpath(folder)), *Path(os.path.realpath(folder)).parents]
    if not any(os.path.lexists(place / name) for place in around for name in (FILE, ".git")):
        return None
    looked_at = (place for each in around for place in (each, each / ".git"))
    return next((place for place in looked_at if place.is_dir() and not our_folder(place)), None)


def commit_of(root: Path) -> str | None:
    """The commit of a checkout, marked where it has changes; None where this folder is the root of none."""
    version = version_of(root) if (root / ".git").exists() else Version(root)
    if version.revision is None:
        return None
    return version.revision[:12] + (DIRTY if is_dirty(root) else "")


def is_dirty(folder: Path) -> bool:
    """True if files in this folder of a checkout differ from its commit, or are not in it. False without the program."""
    found = _around(folder.resolve())
    if not isinstance(found, _Checkout) or our_text(found.common / "config") is None:
        return False
    # Git is told which checkout it is: by itself it would look for one in all folders above.
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
    """The commit of HEAD, also of a branch that is packed. None where there is none yet, or git keeps it in another way."""
    git, common = checkout.git, checkout.common
    head = (our_text(git / "HEAD") or "").strip()
    if head.startswith("ref:"):
        name = head.removeprefix("ref:").strip()
        packed = (our_text(common / "packed-refs") or "").splitlines()
        of_packed = next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
        head = (our_text(git / name) or our_text(common / name) or of_packed).strip()
    return head if _COMMIT.fullmatch(head) else None
