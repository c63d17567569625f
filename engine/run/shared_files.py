"""Files of sessions on several machines: the content of a session's folder is in blobs, and its folder here is a copy.

A *manifest* lists the folder and the files kept beside it, each by its digest. It is a blob itself; a row names the
current one, and moves in the commit with a node's end. Blobs are put before that commit, so a crash leaves an
unreferenced blob, and never a reference without its blob. Before it runs a node of a session that another process has
worked for, a process makes the folder as the row describes it. Files that an interrupted node left are gone.

A file that came with an answer is put with that answer. Such files have names of their own, and survive when a folder
is made again: the answer may be on its way.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import shutil
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from weakref import WeakValueDictionary

from msgspec import Struct, field

from engine.journal.records import KeptRow
from engine.language.codec import decode, encode
from engine.language.errors import BlobLost
from engine.nodes.runtime.folder import FileRefused, parts_inside, private_folder, session_folder
from engine.nodes.runtime.kept_files import kept_folder
from engine.nodes.runtime.trees import (
    File,
    Seen,
    Tree,
    as_json,
    encoded,
    finish,
    from_json,
    lay_out,
    named,
    opened,
    tree_of,
)
from engine.storage.blobs import Blobs
from engine.storage.errors import FilesUnusable
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.engine")

KIND = "files"
_NEVER = "9999-12-31T23:59:59.999Z"
_AT_ONCE = 16
_KNOWN = 64
"""Folders without a running node that are known at most."""
_INCOMING = "files"


class _Copy(Struct):
    """A local folder: its content when last put or made, and the claim at that time."""

    epoch: int
    digest: str | None = None
    """Digest of the manifest; None if the session has none yet."""
    work: Tree = field(default_factory=dict)
    kept: Tree = field(default_factory=dict)
    seen: tuple[Seen, Seen] = field(default_factory=lambda: ({}, {}))

    def digests(self) -> set[str]:
        """Return the digests of all its files."""
        trees = *self.work.values(), *self.kept.values()
        return {entry.digest for entry in trees if isinstance(entry, File)}


class SharedFiles:
    """The folders of this process's sessions, as copies of blobs. Methods that take an epoch require that claim."""

    def __init__(self, blobs: Blobs, writer: Writer, home: Path) -> None:
        self._blobs, self._writer, self._home = blobs, writer, home
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._working: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._few = asyncio.Semaphore(_AT_ONCE)

    # --- for the session's owner -----------------------------------------------------------------------------

    @contextmanager
    def working(self, session_id: str) -> Iterator[None]:
        """A node of the session runs, from before `ready` until its end is recorded. What is known of the folder is kept
        meanwhile: otherwise the folder would be made again without what the node has left."""
        self._working[session_id] += 1
        try:
            yield
        finally:
            self._working[session_id] -= 1
            if not self._working[session_id]:
                del self._working[session_id]

    async def ready(self, session_id: str, epoch: int) -> None:
        """Restore the folder to its state when the last node ended, on any machine. Raises `StorageError` and
        `BlobLost`."""
        async with self._of(session_id):
            await self._current(session_id, epoch)

    async def put_early(self, session_id: str, epoch: int) -> None:
        """Put changes while others may continue the session. Raises `StorageError`."""
        async with self._of(session_id):
            copy = self._copies.get(session_id)
            if copy is not None and copy.epoch == epoch:
                await self._put(session_id, copy)

    async def rows(self, session_id: str, epoch: int) -> Sequence[KeptRow]:
        """Put changes and return the row that names them, for the commit; empty if a blob named by the current row is
        lost, which may be found again. Raises `StorageError`."""
        async with self._of(session_id):
            try:
                copy = await self._current(session_id, epoch)
            except BlobLost as error:
                log.error("the files of %s are not changed: %s", session_id, error)
                return ()
            await self._put(session_id, copy)
            stored = await self._stored(session_id)
            if copy.digest is None or (stored is not None and stored.body.decode() == copy.digest):
                return ()
            rev = 1 if stored is None else stored.rev + 1
            return (KeptRow(row_id(session_id), KIND, session_id, rev, _NEVER, copy.digest.encode()),)

    # --- for readers -------------------------------------------------------------------------------------------

    async def read(self, session_id: str, path: str, most: int) -> bytes | None:
        """Return a file as it was when the last node ended; None if nothing was put for the session. Raises
        `FileRefused`, `StorageError` and `BlobLost`."""
        manifest = await self._manifest(session_id)
        if manifest is None:
            return None
        parts = parts_inside(session_folder(self._home, session_id), path)
        entry = manifest[0].get(encoded("/".join(parts)))
        if not isinstance(entry, File):
            raise FileRefused(f"{path} is not a file in the session's folder")
        if entry.size > most:
            raise FileRefused(f"{path} has {entry.size:,} bytes; the limit is {most:,}")
        return await self._bytes(session_id, entry.digest)

    async def bring_kept(self, session_id: str) -> None:
        """Fetch the files kept beside the session's folder. Raises `StorageError` and `BlobLost`."""
        async with self._of(session_id):
            if (manifest := await self._manifest(session_id)) is not None:
                await self._bring(session_id, session_id, manifest[1])

    @asynccontextmanager
    async def copied(self, session_id: str, fork_id: str) -> AsyncIterator[bool]:
        """Copy a session's files for its fork; the copy is removed again if the body fails. Yields True if there is
        one. Raises `StorageError` and `BlobLost`."""
        manifest = await self._manifest(session_id)
        if manifest is None:
            yield False
            return
        try:
            await self._make(fork_id, session_id, *manifest)
            yield True
        except BaseException:
            folder = session_folder(self._home, fork_id)
            for each in (folder, kept_folder(folder)):
                shutil.rmtree(each, ignore_errors=True)
            raise

    # --- manifests ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _of(self, session_id: str) -> AsyncIterator[None]:
        """Work on one session at a time, turning errors of the disk into transient errors of the store."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        try:
            async with lock:
                yield
        except OSError as error:
            raise FilesUnusable(session_id=session_id, error=error) from error

    async def _stored(self, session_id: str) -> KeptRow | None:
        row: KeptRow | None = await self._writer.call(self._writer.store.kept.row, row_id(session_id))
        return row

    async def _manifest(self, session_id: str, digest: str | None = None) -> tuple[Tree, Tree] | None:
        if digest is None:
            row = await self._stored(session_id)
            if row is None:
                return None
            digest = row.body.decode()
        found = decode(await self._bytes(session_id, digest))
        return from_json(found["work"]), from_json(found["kept"])

    async def _bytes(self, session_id: str, digest: str) -> bytes:
        found = io.BytesIO()
        await self._blobs.get(session_id, digest, found)
        return found.getvalue()

    async def _current(self, session_id: str, epoch: int) -> _Copy:
        """Return the folder as the row has it, for the holder of this claim: nobody else moves the row meanwhile."""
        copy = self._copies.get(session_id)
        if copy is None or copy.epoch != epoch:
            row = await self._stored(session_id)
            if row is None:
                copy = _Copy(epoch)
            elif copy is None or copy.digest != row.body.decode():
                digest = row.body.decode()
                manifest = await self._manifest(session_id, digest)
                assert manifest is not None, "a digest was given"
                await self._make(session_id, session_id, *manifest)
                copy = _Copy(epoch, digest, *manifest)
            copy.epoch = epoch
        self._copies[session_id] = copy
        self._copies.move_to_end(session_id)
        idle = [one for one in self._copies if one not in self._working]
        for one in idle[: max(0, len(idle) - _KNOWN)]:
            del self._copies[one]
        return copy

    async def _put(self, session_id: str, copy: _Copy) -> None:
        """Put changed files, and the manifest."""
        folder = session_folder(self._home, session_id)
        there, trees = copy.digests(), list[Tree]()
        for root, seen in zip((folder, kept_folder(folder)), copy.seen, strict=True):
            tree = await asyncio.to_thread(tree_of, root, seen)
            tree = {
                path: entry for path, entry in tree.items() if root is folder or not path.endswith(".tmp")
            }
            files = ((path, entry) for path, entry in tree.items() if isinstance(entry, File))
            fresh = [(path, entry) for path, entry in files if entry.digest not in there]
            put = await asyncio.gather(*(self._put_one(session_id, root, path) for path, _ in fresh))
            for (path, entry), digest in zip(fresh, put, strict=True):
                # A program may have changed it since it was read.
                tree[path] = entry._replace(digest=digest)
            trees.append(tree)
        work, kept = trees
        if (work, kept) != (copy.work, copy.kept):
            manifest = encode({"work": as_json(work), "kept": as_json(kept)})
            copy.digest = await self._blobs.put(session_id, io.BytesIO(manifest))
            copy.work, copy.kept = work, kept

    async def _put_one(self, session_id: str, root: Path, path: str) -> str:
        async with self._few:
            with await asyncio.to_thread(opened, root, path) as file:
                return await self._blobs.put(session_id, file)

    # --- folders -----------------------------------------------------------------------------------------------

    async def _make(self, session_id: str, source: str, work: Tree, kept: Tree) -> None:
        """Make the folder of a session from manifests of `source`."""
        folder = session_folder(self._home, session_id)
        await self._bring(session_id, source, kept)
        here = await asyncio.to_thread(tree_of, folder, {})
        if work.get(_INCOMING) is None:
            came = {path: entry for path, entry in here.items() if f"{path}/".startswith(f"{_INCOMING}/")}
            work = came | work
        if here == work and folder.is_dir():
            return
        private_folder(folder)
        fresh = Path(mkdtemp(prefix=f"{session_id}.", dir=folder.parent))
        try:
            missing = await asyncio.to_thread(lay_out, fresh, work, folder, here)
            await asyncio.gather(
                *(self._get_one(source, entry.digest, fresh / named(path)) for path, entry in missing)
            )
            await asyncio.to_thread(_swapped, folder, fresh, work)
        finally:
            await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)

    async def _bring(self, session_id: str, source: str, kept: Tree) -> None:
        folder = kept_folder(session_folder(self._home, session_id))
        for path, entry in kept.items():
            if isinstance(entry, File) and not (folder / path).exists():
                part = private_folder(folder) / f"{path}.{os.urandom(6).hex()}.tmp"
                await self._get_one(source, entry.digest, part)
                part.replace(folder / path)

    async def _get_one(self, session_id: str, digest: str, path: Path) -> None:
        async with self._few:
            with path.open("xb") as file:
                await self._blobs.get(session_id, digest, file)


def row_id(session_id: str) -> str:
    """The row that names the manifest of a session."""
    return f"files:{session_id}"


def _swapped(folder: Path, fresh: Path, tree: Tree) -> None:
    """Replace a folder with another one, which takes its name."""
    finish(fresh, tree)
    old = Path(mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
