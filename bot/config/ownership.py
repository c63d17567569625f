"""Ownership of files. A file or folder that no setting names is used only if nobody else can have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.nodes.runtime.folder import NO_LINK, content

_MOST_BYTES = 16 * 1024 * 1024


def is_ours(info: os.stat_result) -> bool:
    """True if only this user and root may write it. A user's own group, which has the user's number, counts as the user."""
    own_group = info.st_gid in (0, info.st_uid)
    others = stat.S_IWOTH if own_group else stat.S_IWOTH | stat.S_IWGRP
    return info.st_uid in (0, os.geteuid()) and not info.st_mode & others


def our_folder(place: Path) -> bool:
    """True for a folder of ours that is not a symbolic link."""
    try:
        info = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and is_ours(info)


def our_text(file: Path) -> str | None:
    """The text of a plain file of ours; None for anything else, such as a link, a pipe or a device."""
    try:
        descriptor = os.open(file, NO_LINK)
    except OSError:
        return None
    if not is_ours(os.fstat(descriptor)):
        os.close(descriptor)
        return None
    found = content(descriptor, _MOST_BYTES)
    return None if found is None else found.decode(errors="replace")
