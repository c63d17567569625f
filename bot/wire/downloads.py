"""Files that people drop into a thread as an answer: fetched from Slack into the session's own folder.

A file is fetched with the bot's token, so only from hosts that are Slack's, and a redirection is not followed: it could
carry the token elsewhere. It is written beside its place and moved there when it is whole; its name is made of our own
ids, so that a message that is delivered again finds what it brought, and nobody chooses where it lies.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.config.session_files import Inbox, SessionFiles
from bot.wire.client import AuthLost, Permanent, SlackFault, classify, plain_session
from engine.language.codec import Json, clean_text
from engine.nodes.runtime.folder import FileRefused, sniffed
from prompt_state.question_row import PromptState

FETCH_SECONDS = 120.0
_CHUNK = 64 * 1024
_SLACK_HOST = re.compile(r"([a-z0-9-]+\.)*slack(-gov|-files)?\.com")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
_NAME = 200


class NotNow(Exception):
    """Slack does not give the file now; it is worth asking again later."""


def described(event: Mapping[str, Any]) -> list[Json]:
    """What a message's event says of its files, as far as it is needed to fetch them."""
    return [
        {
            "id": str(file.get("id") or ""),
            "name": str(file.get("name") or "")[:_NAME],
            "size": file["size"] if isinstance(file.get("size"), int) else 0,
            "url": str(file.get("url_private_download") or file.get("url_private") or ""),
        }
        for file in (event.get("files") or [])[:50]
        if isinstance(file, dict)
    ]


class IncomingFiles:
    """Fetches what came with an answer."""

    def __init__(self, client: AsyncWebClient, files: SessionFiles) -> None:
        self._client = client
        self._files = files

    async def fetch(self, prompt: PromptState, sent: Sequence[Mapping[str, Json]], ts: str) -> list[Json]:
        """The files of the message `ts`, `{name, path, size, type}` each, all of them or none.

        Raises `FileRefused` with words for their author, and `NotNow`.
        """
        most, largest = prompt.max_files or 1, prompt.max_size or 0
        if len(sent) > most:
            raise FileRefused(
                f"This question takes at most {most} {'file' if most == 1 else 'files'}, not {len(sent)}."
            )
        for file in sent:
            if file["size"] > largest:
                raise _too_large(file, largest)
        with self._files.inbox(prompt.session_id, prompt.prompt_id) as inbox:
            return [
                await self._one(inbox, file, _own_name(ts, n, file), largest) for n, file in enumerate(sent)
            ]

    async def _one(self, inbox: Inbox, file: Mapping[str, Json], name: str, largest: int) -> Json:
        head = inbox.head(name)
        if head is None:
            await self._download(inbox, await self._described(file), name, largest)
            head = inbox.head(name)
        if head is None:
            raise NotNow(f"{name} is gone again")
        shown = clean_text(file["name"])[0].replace("/", "_") or name
        return {"name": shown, "path": str(inbox.path / name), "size": head[0], "type": sniffed(head[1])}

    async def _described(self, file: Mapping[str, Json]) -> Mapping[str, Json]:
        """The file with its address, which Slack leaves out for those of other workspaces."""
        if file["url"]:
            return file
        try:
            answer = await self._client.files_info(file=file["id"])
        except Exception as error:
            raise _refusal(file, classify(error)) from error
        found: Mapping[str, Json] = described({"files": [answer["file"]]})[0]
        return found

    async def _download(self, inbox: Inbox, file: Mapping[str, Json], name: str, largest: int) -> None:
        url = str(file["url"])
        self._check(url, file)
        headers = {"Authorization": f"Bearer {self._client.token}"}
        try:
            async with (
                plain_session(self._client, FETCH_SECONDS) as session,
                session.request(
                    "GET",
                    url,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._client.proxy,
                    ssl=self._client.ssl or True,
                ) as answer,
            ):
                _check_status(answer.status, file)
                with inbox.writing(name) as part:
                    async for chunk in answer.content.iter_chunked(_CHUNK):
                        if part.size + len(chunk) > largest:
                            raise _too_large(file, largest)
                        await asyncio.to_thread(part.write, chunk)
                    if answer.content_length is not None and part.size != answer.content_length:
                        raise NotNow(f"{file['name']} came only in part")
                    await asyncio.to_thread(part.done)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotNow(f"{file['name']} cannot be fetched now: {error}") from error

    def _check(self, url: str, file: Mapping[str, Json]) -> None:
        given, own = urlsplit(url), urlsplit(self._client.base_url)
        ours = (given.scheme, given.netloc) == (own.scheme, own.netloc)
        if not ours and not (given.scheme == "https" and _SLACK_HOST.fullmatch(given.netloc or "")):
            raise FileRefused(f"{_called(file)} does not lie in Slack itself. Please upload it here.")


def _own_name(ts: str, number: int, file: Mapping[str, Json]) -> str:
    """A name made of our own ids, with the suffix of the given one where that is harmless."""
    suffix = "." + str(file["name"]).rpartition(".")[2]
    safe = suffix.lower() if _SUFFIX.fullmatch(suffix) and "." in str(file["name"]) else ""
    return f"{ts.replace('.', '-')}-{number + 1}{safe}"


def _check_status(status: int, file: Mapping[str, Json]) -> None:
    if status in (429, 408) or status >= 500:
        raise NotNow(f"Slack answered {status} for {file['name']}")
    if status != 200:
        raise FileRefused(
            f"Slack does not give {_called(file)} to the bot (status {status}). It may lack the right files:read, "
            "or the file was deleted."
        )


def _refusal(file: Mapping[str, Json], fault: SlackFault) -> Exception:
    if isinstance(fault, Permanent):
        return FileRefused(f"Slack does not give {_called(file)} to the bot ({fault.reason}).")
    return fault if isinstance(fault, AuthLost) else NotNow(str(fault))


def _called(file: Mapping[str, Json]) -> str:
    return f"`{clean_text(file['name'])[0] or 'the file'}`"


def _too_large(file: Mapping[str, Json], largest: int) -> FileRefused:
    size = f"has {file['size']:,} bytes" if file["size"] > largest else "is too large"
    return FileRefused(
        f"{_called(file)} {size}, and a file may have {largest:,}. Nothing of your answer was used: please send a "
        "smaller one."
    )
