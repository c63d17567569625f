"""Blobs: bytes under the SHA-256 of what they are, in a bucket (S3, GCS, Azure) or a folder that machines share.

Each session has a prefix of its own, and all of it goes with the session: nothing has to be counted, and a blob that a
crash left without a reference goes then too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from engine.language.errors import BlobLost, SaysoError
from engine.storage import errors

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CHUNK = 1 << 20
_IN_MEMORY = 8 << 20
_SESSIONS = "sessions"
_CONFIG = {
    "s3": """AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL
        AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_WEB_IDENTITY_TOKEN_FILE AWS_CONTAINER_CREDENTIALS_RELATIVE_URI
        AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
        AWS_VIRTUAL_HOSTED_STYLE_REQUEST""",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS GOOGLE_SERVICE_ACCOUNT",
    "az": """AZURE_STORAGE_ACCOUNT_NAME AZURE_STORAGE_ACCOUNT_KEY AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID
        AZURE_FEDERATED_TOKEN_FILE""",
}
"""The variables that say who we are, which have the names that every tool of that cloud has."""


class Blobs:
    """Bytes of sessions at a URL: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`. Safe to use from threads.

    Raises `StorageError` where they cannot be reached now or access is refused, which may pass."""

    def __init__(self, url: str, env: Mapping[str, str]) -> None:
        """Opens nothing yet. `env` has what says who we are (`AWS_ACCESS_KEY_ID`…). Raises `SaysoError`."""
        self.url = url
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        self._store = _opened(url, env, self._folder)

    async def put(self, session_id: str, source: IO[bytes]) -> str:
        """Keep what can be read; its digest. Durable when this returns. What is read is what is kept, also of a file that a
        program writes to meanwhile."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
            digest = await asyncio.to_thread(_copied, source, copy)
            at = _path(session_id, digest)
            with self._translated("keep"):
                import obstore

                await obstore.put_async(self._store, at, copy)
            if self._folder is not None:
                await asyncio.to_thread(_synced, self._folder / at)
        return digest

    async def get(self, session_id: str, digest: str, into: IO[bytes]) -> None:
        """Write the bytes with this digest into a file. Raises `BlobLost` where they are gone, or are others."""
        import obstore

        found = hashlib.sha256()
        with self._translated("read", session_id, digest):
            answer = await obstore.get_async(self._store, _path(session_id, digest))
            async for chunk in answer.stream(min_chunk_size=_CHUNK):
                found.update(chunk)
                await asyncio.to_thread(into.write, chunk)
        if found.hexdigest() != digest:
            raise BlobLost(
                f"{digest} of session {session_id} in {self.url} was changed: its bytes are others."
            )

    def sessions(self) -> list[str]:
        """The sessions of which there is something."""
        import obstore

        with self._translated("list"):
            found = obstore.list_with_delimiter(self._store, _SESSIONS)["common_prefixes"]
        return [name.rpartition("/")[2] for name in found]

    def age(self, session_id: str, now: float) -> float:
        """Seconds since something was kept of a session."""
        newest = max((one["last_modified"].timestamp() for one in self._listed(session_id)), default=now)
        return now - newest

    def remove(self, session_id: str) -> None:
        """Remove all that there is of a session."""
        import obstore

        with self._translated("remove"):
            if paths := [str(one["path"]) for one in self._listed(session_id)]:
                obstore.delete(self._store, paths)

    def _listed(self, session_id: str) -> Iterator[Any]:
        import obstore

        with self._translated("list"):
            for page in obstore.list(self._store, f"{_SESSIONS}/{session_id}"):
                yield from page

    @contextmanager
    def _translated(self, doing: str, session_id: str = "", digest: str = "") -> Iterator[None]:
        """Translate the library's errors into ours."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except FileNotFoundError as error:
            if digest:
                raise BlobLost(f"{digest} of session {session_id} is not in {self.url} any more.") from error
            raise errors.NoBlobs(url=self.url) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise errors.BlobsRefused(url=self.url, doing=doing, error=_first_line(error)) from error
        except (BaseError, OSError) as error:
            raise errors.BlobsAway(url=self.url, doing=doing, error=_first_line(error)) from error


def _opened(url: str, env: Mapping[str, str], folder: Path | None) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise SaysoError("SAYSO_BLOBS needs the package `obstore`: pip install 'sayso[blobs]'.") from None
    try:
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return from_url(url, automatic_cleanup=True)
        names = _CONFIG.get(urlsplit(url).scheme, "").split()
        config: Any = {name: env[name] for name in names if env.get(name)}
        plain = config.get("AWS_ENDPOINT_URL", "").startswith("http:")
        return from_url(
            url,
            config=config,
            client_options={"allow_http": plain, "timeout": "300s", "read_timeout": "20s"},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
        )
    except (BaseError, ValueError, OSError) as error:
        raise SaysoError(f"SAYSO_BLOBS={url} cannot be used: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _path(session_id: str, digest: str) -> str:
    return f"{_SESSIONS}/{session_id}/{digest}"


def _copied(source: IO[bytes], target: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
    target.seek(0)
    return digest.hexdigest()


def _synced(file: Path) -> None:
    for each in (file, file.parent, file.parent.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
