"""Files into Slack, once each.

An upload has three steps, of which people see only the last: Slack gives a file an id and an address, the content goes
to that address, and the file is shared. The ids are recorded before the file is shared, so after a lost answer Slack
can be asked by id whether it is there. What is repeated before that only leaves ids behind that nobody ever sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.config.session_files import SessionFiles
from bot.outbound.calls import Place
from bot.outbound.rate_limiter import POST, Hold, Pace
from bot.rendering.text import clip, shown
from bot.wire.client import AuthLost, Permanent, RateLimited, classify, of_status, plain_session, quiet_client
from engine.journal.records import OutboxRow
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.nodes.runtime.folder import FileRefused
from engine.storage.group_commit import Writer

UPLOAD_SECONDS = 120.0
_NAME = 120


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to share: what it is called, its content, and for a picture what it shows."""

    name: str
    content: bytes
    title: str | None = None
    alt: str | None = None


class Uploads:
    """Shares files. Raises `Hold` while it has to wait, and `Permanent` and `AuthLost` where Slack refuses."""

    def __init__(
        self,
        writer: Writer,
        client: AsyncWebClient,
        pace: Pace,
        now: Callable[[], str],
        *,
        files: SessionFiles | None,
        delays: Sequence[float],
        backoff: Callable[[OutboxRow], float],
    ) -> None:
        self._writer = writer
        self._client = quiet_client(client)
        self._pace = pace
        self._now = now
        self._files = files
        self._delays = sorted(delays)
        self._backoff = backoff

    async def read(self, session_id: str, path: str) -> bytes:
        """A file in a session's folder. Raises `FileRefused`."""
        if self._files is None:
            raise FileRefused(f"{path} cannot be read: this process has no folders of sessions")
        return await asyncio.to_thread(self._files.read, session_id, path)

    async def share(
        self,
        row: OutboxRow,
        known: Mapping[str, Json],
        place: Place,
        uploads: Callable[[], Awaitable[Sequence[Upload]]],
        *,
        text: str = "",
    ) -> dict[str, Json]:
        """Share files at a place, once. `known` is what is recorded of the row; returned is that with `files`, their ids,
        and `fileTs`, where they stand if Slack says so."""
        kept = dict(known)
        if "files" not in kept:
            made = [await self._upload(row, one) for one in await uploads()]
            kept |= {"files": made, "sharedAt": self._now()}
            await self._record(row, kept)
        else:
            found = await self._standing(row, kept["files"], place)
            if found is not None:
                return {**kept, "fileTs": found}
            self._wait(row, kept)
        await self._complete(row, kept, place, text)
        return {**kept, "fileTs": await self._standing(row, kept["files"], place, patient=False)}

    # --- steps ---------------------------------------------------------------------------------------------

    async def _upload(self, row: OutboxRow, upload: Upload) -> dict[str, Json]:
        """An id for the file, with its content behind it. Nobody sees it yet."""
        name = clip(shown(upload.name).replace("/", "_"), _NAME)
        # Slack takes no empty file.
        content = upload.content or b"\n"
        call = self._client.files_getUploadURLExternal(
            filename=name, length=len(content), alt_txt=upload.alt and clip(shown(upload.alt), 1_000)
        )
        answer = await self._unseen(row, call)
        await self._unseen(row, self._put(str(answer["upload_url"]), content))
        return {"id": str(answer["file_id"]), "title": clip(shown(upload.title or name), _NAME)}

    async def _put(self, url: str, content: bytes) -> None:
        """Send the content to the address that Slack gave for it. The address is the key: no token goes there."""
        async with (
            plain_session(self._client, UPLOAD_SECONDS) as session,
            session.request(
                "POST",
                url,
                data=content,
                proxy=self._client.proxy,
                ssl=self._client.ssl or True,
                allow_redirects=False,
            ) as answer,
        ):
            if answer.status != 200:
                code = "upload_refused" if 300 <= answer.status < 500 else None
                raise of_status(answer.status, answer.headers, code, (await answer.text())[:200])

    async def _complete(self, row: OutboxRow, kept: Mapping[str, Json], place: Place, text: str) -> None:
        self._pace.take(POST, place.channel)
        call = self._client.files_completeUploadExternal(
            files=[dict(one) for one in kept["files"]],
            channel_id=place.channel,
            thread_ts=place.thread_ts,
            initial_comment=text or None,
        )
        try:
            await call
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, Permanent) and await self._standing(
                row, kept["files"], place, patient=False
            ):
                return
            if isinstance(fault, Permanent | AuthLost):
                raise fault from error
            # Whatever happened to it: the ids are recorded, and the next try begins with a look.
            first = fault.retry_after if isinstance(fault, RateLimited) else self._first_look
            raise Hold(first, f"sharing the files of {row.key}: {fault}") from error

    # --- looking -------------------------------------------------------------------------------------------

    async def _standing(
        self, row: OutboxRow, files: Sequence[Mapping[str, Json]], place: Place, *, patient: bool = True
    ) -> str | None:
        """The ts under which the first of these files is shared in a channel, as Slack says; None when it says none.
        With `patient`, raises `Hold` where Slack cannot be asked."""
        try:
            answer = await self._client.files_info(file=str(files[0]["id"]))
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, AuthLost):
                raise fault from error
            if patient and not isinstance(fault, Permanent):
                raise Hold(self._backoff(row), f"looking for the files of {row.key}: {fault}") from error
            return None
        return _shared_in(answer["file"], place.channel)

    def _wait(self, row: OutboxRow, kept: Mapping[str, Json]) -> None:
        """Raises `Hold` while files that were shared may still appear."""
        since = timestamps.seconds_between(kept["sharedAt"], self._now())
        wait = next((delay - since for delay in self._delays if delay > since), 0.0)
        if wait > 0:
            raise Hold(wait, f"the files of {row.key} may still appear")

    @property
    def _first_look(self) -> float:
        return self._delays[0] if self._delays else 0.0

    async def _unseen(self, row: OutboxRow, call: Awaitable[Any]) -> Any:
        """A call that may be made again without anybody seeing it."""
        try:
            return await call
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, Permanent | AuthLost):
                raise fault from error
            seconds = fault.retry_after if isinstance(fault, RateLimited) else self._backoff(row)
            raise Hold(seconds, f"uploading for {row.key}: {fault}") from error

    async def _record(self, row: OutboxRow, kept: Mapping[str, Json]) -> None:
        await self._writer.call(
            self._writer.store.outbox_finish,
            row.id,
            row.rev,
            now=self._now(),
            state="pending",
            result=encode(dict(kept)),
        )


def _shared_in(file: Mapping[str, Any], channel: str) -> str | None:
    for places in (file.get("shares") or {}).values():
        for share in places.get(channel) or ():
            return str(share["ts"])
    return None
