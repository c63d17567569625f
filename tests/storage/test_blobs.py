"""Blobs: one contract for a bucket and for a folder."""

from __future__ import annotations

import io
import time
from pathlib import Path

import obstore
import pytest

from engine.language.errors import BlobLost, SaysoError, StorageError
from engine.storage.blobs import Blobs
from tests.support import bucket

LARGE = bytes(range(256)) * 50_000
"""More than a chunk, and more than a part of an upload."""


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """Each backend."""
    return bucket.in_bucket() if request.param == "s3" else Blobs(f"file://{tmp_path}/a%20b/c", {})


async def got(blobs: Blobs, session_id: str, digest: str) -> bytes:
    """What is kept under a digest."""
    found = io.BytesIO()
    await blobs.get(session_id, digest, found)
    return found.getvalue()


@pytest.mark.parametrize("data", [b"", b"words", LARGE])
async def test_what_is_put_is_given_again(blobs: Blobs, data: bytes) -> None:
    """Also nothing, and what is sent in parts; twice is the same as once."""
    digest = await blobs.put("session-a", io.BytesIO(data))
    assert await blobs.put("session-a", io.BytesIO(data)) == digest
    assert await got(blobs, "session-a", digest) == data


async def test_what_was_changed_is_refused(blobs: Blobs) -> None:
    """The digest is verified when a blob is read."""
    digest = await blobs.put("session-a", io.BytesIO(b"words"))
    await obstore.put_async(blobs._store, f"sessions/session-a/{digest}", b"other")
    with pytest.raises(BlobLost, match="was changed"):
        await got(blobs, "session-a", digest)


async def test_what_is_not_there_is_lost(blobs: Blobs) -> None:
    """One that another session has counts for nothing."""
    digest = await blobs.put("session-a", io.BytesIO(b"words"))
    with pytest.raises(BlobLost, match="not in"):
        await got(blobs, "session-b", digest)


async def test_a_session_goes_as_a_whole(blobs: Blobs) -> None:
    """Nothing of it is left, and nothing of others is touched."""
    await blobs.put("session-a", io.BytesIO(b"one"))
    await blobs.put("session-a", io.BytesIO(b"two"))
    digest = await blobs.put("session-ab", io.BytesIO(b"one"))
    assert sorted(blobs.sessions()) == ["session-a", "session-ab"]
    blobs.remove("session-a")
    assert blobs.sessions() == ["session-ab"]
    blobs.remove("session-none")
    assert await got(blobs, "session-ab", digest) == b"one"


async def test_the_age_is_that_of_what_came_last(blobs: Blobs) -> None:
    """What has nothing has no age."""
    await blobs.put("session-a", io.BytesIO(b"one"))
    assert 90 < blobs.age("session-a", time.time() + 100) < 110
    assert blobs.age("session-none", time.time()) == 0


def refusing(url: str, **env: str) -> Blobs:
    """A bucket that cannot be used so, tried once."""
    return Blobs(url, {**bucket.environment(), **env})


async def test_a_bucket_that_is_away_is_an_error_that_passes() -> None:
    """It is told where it should be, and what the network says."""
    away = refusing("s3://files/x", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"s3://files/x cannot keep files of sessions now: .*127.0.0.1:9"):
        await away.put("session-a", io.BytesIO(b"one"))


async def test_a_bucket_that_is_not_there_is_told() -> None:
    """That is not a file that was lost."""
    with pytest.raises(StorageError, match="no such bucket"):
        await refusing("s3://no-such-bucket").put("session-a", io.BytesIO(b"one"))


@pytest.mark.parametrize("url", ["s3:///x", "gs://b"])
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    """At once, with the setting's name."""
    with pytest.raises(SaysoError, match="SAYSO_BLOBS="):
        Blobs(url, {"GOOGLE_APPLICATION_CREDENTIALS": "/none"})
