"""Posts of `message` nodes, and their destinations; files uploaded with a message, or instead of it.

The message goes out first and is found again by its key, like every post. Its files are uploaded into its thread
afterwards; the post is recorded before, so that a crash in between posts nothing again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from bot.config.session_files import SessionFiles
from bot.outbound.calls import POST, Hold, Place, Posted
from bot.outbound.posts import (
    DROPPED,
    Failed,
    Ledger,
    Outcome,
    Sent,
    is_uncertain,
    later,
    position,
    result_of,
)
from bot.outbound.sender import STALE_SECONDS, Send, Sender
from bot.rendering.notes import Delivered, Extra, delivered, message_blocks
from bot.rendering.text import clip, shown
from bot.wire.client import AuthLost, BudgetedClient, Permanent, classify, of_status, plain_session
from engine.decide.step import named_node
from engine.journal.records import InboxItem, OutboxRow
from engine.journal.state import State
from engine.language import timestamps
from engine.language.codec import Json, decode
from engine.language.errors import StorageError
from engine.nodes.runtime.folder import FileRefused
from engine.run import remote_commands
from engine.storage.backoff import MOST_SECONDS

log = logging.getLogger("sayso.outbound")

UPLOAD_SECONDS = 120.0
_NAME = 120


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to share: what it is called, its content, and for a picture what it shows."""

    name: str
    content: bytes
    title: str | None = None
    alt: str | None = None


@dataclass(eq=False, repr=False)
class Uploads:
    """Shares files. Raises `Hold` while it has to wait, and `Permanent` and `AuthLost` where Slack refuses."""

    ledger: Ledger
    client: BudgetedClient
    _: KW_ONLY
    files: SessionFiles | None
    delays: Sequence[float]
    backoff: Callable[[OutboxRow], float]

    def __post_init__(self) -> None:
        self.delays = sorted(self.delays)

    async def read(self, session_id: str, path: str) -> bytes:
        """A file in a session's folder. Raises `FileRefused` and `Hold`."""
        if self.files is None:
            raise FileRefused(f"{path} cannot be read: this process has no session folders")
        try:
            return await self.files.content(session_id, path)
        except StorageError as error:
            raise Hold(MOST_SECONDS, f"{path} of {session_id} cannot be read: {error}") from error

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
        and `fileTs`, where they are if Slack says so."""
        kept = dict(known)
        if "files" not in kept:
            made = [await self._upload(row, one) for one in await uploads()]
            kept |= {"files": made, "sharedAt": self.ledger.now()}
            await self.ledger.keep(row, kept)
        else:
            found = await self._standing(row, kept["files"], place)
            if found is not None:
                return {**kept, "fileTs": found}
            # Files that were shared may still appear.
            since = timestamps.seconds_between(kept["sharedAt"], self.ledger.now())
            wait = next((delay - since for delay in self.delays if delay > since), 0.0)
            if wait > 0:
                raise Hold(wait, f"the files of {row.key} may still appear")
        await self._complete(row, kept, place, text)
        return {**kept, "fileTs": await self._standing(row, kept["files"], place, patient=False)}

    # --- steps ---------------------------------------------------------------------------------------------

    async def _upload(self, row: OutboxRow, upload: Upload) -> dict[str, Json]:
        """An id for the file, with its content behind it. Nobody sees it yet."""
        name = clip(shown(upload.name).replace("/", "_"), _NAME)
        # Slack takes no empty file.
        content = upload.content or b"\n"
        call = self.client.files_getUploadURLExternal(
            filename=name, length=len(content), alt_txt=upload.alt and clip(shown(upload.alt), 1_000)
        )
        answer = await self._unseen(row, call)
        await self._unseen(row, self._put(str(answer["upload_url"]), content))
        return {"id": str(answer["file_id"]), "title": clip(shown(upload.title or name), _NAME)}

    async def _put(self, url: str, content: bytes) -> None:
        """Send the content to the address that Slack gave for it. The address is the key: no token goes there."""
        async with (
            plain_session(self.client, UPLOAD_SECONDS) as session,
            session.request(
                "POST",
                url,
                data=content,
                proxy=self.client.proxy,
                ssl=self.client.ssl or True,
                allow_redirects=False,
            ) as answer,
        ):
            if answer.status != 200:
                code = "upload_refused" if 300 <= answer.status < 500 else None
                raise of_status(answer.status, answer.headers, code, (await answer.text())[:200])

    async def _complete(self, row: OutboxRow, kept: Mapping[str, Json], place: Place, text: str) -> None:
        call = self.client.files_completeUploadExternal(
            files=[dict(one) for one in kept["files"]],
            channel_id=place.channel,
            thread_ts=place.thread_ts,
            initial_comment=text or None,
        )
        try:
            # The file comes with a message.
            async with self.client.budget.reserved(POST, place.channel) as turn:
                turn.made = turn.heard = True
                await call
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, Permanent) and await self._standing(
                row, kept["files"], place, patient=False
            ):
                return
            # Whatever happened to it: the ids are recorded, and the next try begins with a look.
            first = self.delays[0] if self.delays else 0.0
            raise later(fault, lambda: first, f"sharing the files of {row.key}") from error

    # --- looking -------------------------------------------------------------------------------------------

    async def _standing(
        self, row: OutboxRow, files: Sequence[Mapping[str, Json]], place: Place, *, patient: bool = True
    ) -> str | None:
        """The ts under which the first of these files is shared in a channel, as Slack says; None when it says none.
        With `patient`, raises `Hold` where Slack cannot be asked."""
        try:
            answer = await self.client.files_info(file=str(files[0]["id"]))
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, AuthLost):
                raise fault from error
            if patient and not isinstance(fault, Permanent):
                raise Hold(self.backoff(row), f"looking for the files of {row.key}: {fault}") from error
            return None
        file = answer["file"]
        for places in (file.get("shares") or {}).values():
            for share in places.get(place.channel) or ():
                return str(share["ts"])
        return None

    async def _unseen(self, row: OutboxRow, call: Awaitable[Any]) -> Any:
        """A call that may be made again without anybody seeing it."""
        try:
            return await call
        except Exception as error:
            raise later(error, partial(self.backoff, row), f"uploading for {row.key}") from error


ELSEWHERE_SECONDS = 60.0
"""Seconds between looks at rows that another process delivers (sessions of the terminal)."""


@dataclass(eq=False, repr=False)
class Deliveries(Sender):
    """Sends the rows of `message` nodes, and of files."""

    uploads: Uploads

    def kinds(self) -> dict[str, Send]:
        """By kind of row."""
        return {"message": self.message, "file": self.file}

    # --- messages ------------------------------------------------------------------------------------------

    async def message(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post what a node says and report its outcome; not for a node that nobody waits for any more."""
        state = await self.sessions.state(data["sessionId"])
        if not state.thread:
            raise Hold(ELSEWHERE_SECONDS, f"{row.key} belongs to a session without a thread")
        run = state.nodes.get(data["path"])
        if run is None or state.seq == 0:
            raise Hold(STALE_SECONDS, f"{row.key} is ahead of its session")
        over = state.ended or run.status != "started" or run.attempt != data["attempt"]
        if over and not is_uncertain(row):
            return Sent(result_of(row) or DROPPED)
        try:
            result = await self._delivered(row, data, state)
        except FileRefused as error:
            return Failed({"error": "file", "message": str(error)}, undelivered(row, str(error)))
        output: dict[str, Json] = {name: result.get(name) for name in ("channel", "ts", "permalink")}
        return Sent(result, [_outcome("delivered", row, data, output=output)])

    async def _delivered(self, row: OutboxRow, data: dict[str, Json], state: State) -> dict[str, Json]:
        config: dict[str, Json] = data["config"]
        made = delivered(config, row.key)
        if config.get("ephemeral_to"):
            return await self._whisper(row, config, state, made)
        place = await self._place(config, state, data["path"])
        result = result_of(row)
        if "ts" not in result and made.message is not None:
            if isinstance(place, Posted):
                # An edit can be repeated without harm: nothing is looked up.
                await self.calls.edit(place, made.message)
                result = {**position(place), "permalink": await self.link(place)}
            else:
                aloud = bool(config.get("broadcast"))
                posted = await self.poster.once(row, place, made.message, broadcast=aloud)
                result = {**position(posted), "permalink": await self.link(posted, place.thread_ts)}
            if made.extras:
                await self.ledger.keep(row, result)
        if made.extras:
            # Files are in the thread of their message.
            if isinstance(place, Posted) or place.thread_ts is None:
                place = Place(place.channel, result.get("ts"))
            result = await self._extras(row, result, place, made.extras, state)
        return result

    async def _place(self, config: Mapping[str, Json], state: State, path: str) -> Place | Posted:
        """Return the destination; for an update the message to change."""
        thread = state.thread or {}
        if config.get("update"):
            name = str(config["update"])
            run = named_node(state, path, name)
            output = (run.output if run is not None else None) or {}
            if not output.get("channel") or not output.get("ts"):
                raise Permanent("message_not_found", f"{name} has not posted a message to change")
            return Posted(output["channel"], output["ts"])
        if config.get("to"):
            return Place(await self.places.channel(str(config["to"]), state.actor))
        return Place(thread["channel"], thread["threadTs"] if config.get("thread", True) else None)

    async def _whisper(
        self, row: OutboxRow, config: Mapping[str, Json], state: State, made: Delivered
    ) -> dict[str, Json]:
        """Show it to one person, at most once: nobody can look up whether they have seen it."""
        thread = state.thread or {}
        place = Place(thread["channel"], thread["threadTs"] if config.get("thread", True) else None)
        result: dict[str, Json] = {"channel": place.channel, "ts": None, "permalink": None}
        if is_uncertain(row):
            return {**result, "uncertain": True}
        user = await self.places.person(str(config["ephemeral_to"]), state.actor)
        await self.ledger.attempt(row)
        message = made.message
        assert message is not None
        if made.extras:
            # A file would be there for everybody.
            rest = message_blocks("_The rest does not fit and is not shown._")
            message = replace(message, blocks=[*message.blocks[:-1], *rest])
        await self.calls.whisper(place, user, message)
        return result

    # --- files ---------------------------------------------------------------------------------------------

    async def _extras(
        self,
        row: OutboxRow,
        result: dict[str, Json],
        place: Place,
        extras: Sequence[Extra],
        state: State,
    ) -> dict[str, Json]:
        async def read() -> list[Upload]:
            return [await self._read(state.session_id, extra) for extra in extras]

        shared = await self.uploads.share(row, result, place, read)
        if "ts" in shared:
            return shared
        ts = shared["fileTs"]
        link = await self.link(Posted(place.channel, ts), place.thread_ts) if ts else None
        return {**shared, "channel": place.channel, "ts": ts, "permalink": link}

    async def _read(self, session_id: str, extra: Extra) -> Upload:
        if extra.path is None:
            return Upload(extra.name or "file.txt", (extra.content or "").encode(), extra.title, extra.alt)
        content = await self.uploads.read(session_id, extra.path)
        return Upload(extra.name or extra.path.rsplit("/", 1)[-1], content, extra.title, extra.alt)

    async def file(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Share a text as a file. What was shared is found by its id."""
        place = Place(data["channel"], data.get("threadTs"))

        async def content() -> list[Upload]:
            return [Upload(data["name"], str(data["content"]).encode(), data.get("title"))]

        shared = await self.uploads.share(row, result_of(row), place, content, text=data.get("text") or "")
        return Sent({**shared, "channel": place.channel, "ts": shared["fileTs"]})


def undelivered(row: OutboxRow, message: str) -> Sequence[InboxItem]:
    """Return the outcome of a node whose message cannot be posted."""
    error: dict[str, Json] = {"type": "slack", "message": f"The message could not be posted. {message}"}
    return [_outcome("undelivered", row, decode(row.payload), error=error)]


def _outcome(do: str, row: OutboxRow, data: dict[str, Json], **fields: Any) -> InboxItem:
    fields = {"path": data["path"], "attempt": data["attempt"], **fields}
    return remote_commands.item(f"{do}:{row.key}", data["sessionId"], do, **fields)
