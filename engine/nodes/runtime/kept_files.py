"""Files that conversations have shown a model, by the digest of their bytes, outside the session's own folder.

Nothing that runs in the session works there, so a file can be sent again byte for byte even if it has changed since.
Each content is stored once. A crash leaves a whole file, or a temporary one that is never read.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.nodes.runtime.folder import NO_LINK, FileRefused, content, fingerprint, private_folder

MOST_BYTES = 32 * 2**20


def kept_folder(workdir: Path) -> Path:
    """The folder of the kept files of the session that works in this folder."""
    return workdir.with_name(f"{workdir.name}.kept")


def keep(workdir: Path, data: bytes) -> str:
    """Keep these bytes; durable when this returns. Their digest. Raises `OSError`."""
    digest = fingerprint(data)
    folder = private_folder(kept_folder(workdir))
    target = folder / digest
    if target.exists():
        return digest
    temporary = folder / f"{digest}.{os.urandom(6).hex()}.tmp"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
    holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(holder)
    finally:
        os.close(holder)
    return digest


def kept_digests(workdir: Path) -> frozenset[str]:
    """The digests of all that is kept of the session that works in this folder."""
    try:
        return frozenset(name for name in os.listdir(kept_folder(workdir)) if not name.endswith(".tmp"))
    except FileNotFoundError:
        return frozenset()


def kept_bytes(workdir: Path, digest: str, name: str) -> bytes:
    """The bytes with this digest, of the file `name`. Raises `FileRefused`."""
    try:
        found = content(os.open(kept_folder(workdir) / digest, NO_LINK), MOST_BYTES)
    except OSError:
        found = None
    if found is None or fingerprint(found) != digest:
        raise FileRefused(
            f"{name}, which the conversation uses, is missing: the files that sayso keeps for the session "
            "were removed or changed"
        )
    return found
