"""Shared storage of session files."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

from bot.config.session_files import blobs_of
from bot.config.settings import Settings
from bot.doctor.findings import Check
from engine.language.errors import SaysoError

_PROBE = "doctor"


async def check_blobs(settings: Settings) -> AsyncIterator[Check]:
    """Check that session files can be stored, read and removed where other machines look for them."""
    try:
        if (blobs := blobs_of(settings)) is None:
            return
        digest = await blobs.put(_PROBE, io.BytesIO(b"sayso doctor"))
        await blobs.get(_PROBE, digest, io.BytesIO())
        await asyncio.to_thread(blobs.remove, _PROBE)
        yield Check("blobs", "ok", f"{blobs.url} stores, returns and deletes files")
    except SaysoError as error:
        yield Check("blobs", "fail", str(error))
