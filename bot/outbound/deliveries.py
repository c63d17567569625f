"""What `message` nodes post, and where; and files that are too long for a message.

The message goes out first and is found again by its key, like everything that is posted. What is uploaded with it goes
into its thread afterwards; what was posted is recorded before, so that a crash in between posts nothing again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bot.outbound.calls import Calls, Place, Posted
from bot.outbound.destinations import Places
from bot.outbound.outcomes import DROPPED, Failed, Outcome, Sent, Sessions, position
from bot.outbound.posts import Poster, is_uncertain, result_of
from bot.outbound.rate_limiter import Hold
from bot.outbound.uploads import Upload, Uploads
from bot.rendering.deliveries import Delivered, Extra, delivered
from bot.rendering.notes import message_blocks
from bot.wire.client import Permanent
from engine.decide.evaluate import named_node
from engine.journal.records import InboxItem, OutboxRow
from engine.journal.state import State
from engine.language.codec import Json, decode, encode
from engine.nodes.runtime.folder import FileRefused
from engine.run import remote_commands
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.outbound")

STALE_SECONDS = 0.1
ELSEWHERE_SECONDS = 60.0
"""How often rows are looked at that another process delivers (sessions of the terminal)."""
LINK_SECONDS = 3.0
"""A message without its address rather than one much later."""


class Deliveries:
    """Sends the rows of `message` nodes, and of files. See `bot.outbound.senders.Rows` for what its methods raise."""

    def __init__(
        self,
        writer: Writer,
        calls: Calls,
        poster: Poster,
        places: Places,
        uploads: Uploads,
        sessions: Sessions,
        *,
        now: Callable[[], str],
    ) -> None:
        self._writer = writer
        self._calls = calls
        self._poster = poster
        self._places = places
        self._uploads = uploads
        self._sessions = sessions
        self._now = now

    def kinds(self) -> dict[str, Callable[[OutboxRow, dict[str, Json]], Awaitable[Outcome]]]:
        """By kind of row."""
        return {"message": self.message, "file": self.file}

    # --- messages ------------------------------------------------------------------------------------------

    async def message(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Post what a node says and report its outcome; not for a node that nobody waits for any more."""
        state = await self._sessions.state(data["sessionId"])
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
            posted = await self._posted(row, config, place, made)
            result = {**position(posted), "permalink": await self._link(posted)}
            if made.extras:
                await self._keep(row, result)
        if made.extras:
            result = await self._extras(row, result, _beside(place, result), made.extras, state)
        return result

    async def _posted(
        self, row: OutboxRow, config: Mapping[str, Json], place: Place | Posted, made: Delivered
    ) -> Posted:
        assert made.message is not None
        if isinstance(place, Posted):
            # An edit can be repeated without harm: nothing is looked up.
            await self._calls.edit(place, made.message)
            return place
        return await self._poster.once(row, place, made.message, broadcast=bool(config.get("broadcast")))

    async def _place(self, config: Mapping[str, Json], state: State, path: str) -> Place | Posted:
        """Where to post; for an update the message that is changed."""
        thread = state.thread or {}
        if config.get("update"):
            return _earlier(state, path, str(config["update"]))
        if config.get("to"):
            return Place(await self._places.channel(str(config["to"]), state.actor))
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
        user = await self._places.person(str(config["ephemeral_to"]), state.actor)
        await self._writer.call(self._writer.store.outbox_attempt, row.id, self._now())
        message = made.message
        assert message is not None
        blocks = message.blocks
        if made.extras:
            # A file would be there for everybody.
            blocks = [*blocks[:-1], *message_blocks("_The rest does not fit and is not shown._")]
        await self._calls.whisper(place, user, message.text, blocks)
        return result

    async def _link(self, posted: Posted) -> str | None:
        try:
            async with asyncio.timeout(LINK_SECONDS):
                return await self._calls.permalink(posted)
        except Exception as error:
            log.info("the address of a message is not known: %s", error)
            return None

    async def _keep(self, row: OutboxRow, result: dict[str, Json]) -> None:
        await self._writer.call(
            self._writer.store.outbox_finish,
            row.id,
            row.rev,
            now=self._now(),
            state="pending",
            result=encode(result),
        )

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

        shared = await self._uploads.share(row, result, place, read)
        if "ts" in shared:
            return shared
        ts = shared["fileTs"]
        link = await self._link(Posted(place.channel, ts)) if ts else None
        return {**shared, "channel": place.channel, "ts": ts, "permalink": link}

    async def _read(self, session_id: str, extra: Extra) -> Upload:
        if extra.path is None:
            return Upload(extra.name or "file.txt", (extra.content or "").encode(), extra.title, extra.alt)
        content = await self._uploads.read(session_id, extra.path)
        return Upload(extra.name or extra.path.rsplit("/", 1)[-1], content, extra.title, extra.alt)

    async def file(self, row: OutboxRow, data: dict[str, Json]) -> Outcome:
        """Share a text as a file. What was shared is found by its id."""
        place = Place(data["channel"], data.get("threadTs"))

        async def content() -> list[Upload]:
            return [Upload(data["name"], str(data["content"]).encode(), data.get("title"))]

        shared = await self._uploads.share(row, result_of(row), place, content, text=data.get("text") or "")
        return Sent({**shared, "channel": place.channel, "ts": shared["fileTs"]})


def undelivered(row: OutboxRow, message: str) -> Sequence[InboxItem]:
    """What follows for the node whose message cannot be posted."""
    error: dict[str, Json] = {"type": "slack", "message": f"The message could not be posted. {message}"}
    return [_outcome("undelivered", row, decode(row.payload), error=error)]


def _outcome(do: str, row: OutboxRow, data: dict[str, Json], **fields: Any) -> InboxItem:
    fields = {"path": data["path"], "attempt": data["attempt"], **fields}
    return remote_commands.item(f"{do}:{row.key}", data["sessionId"], do, **fields)


def _earlier(state: State, path: str, name: str) -> Posted:
    run = named_node(state, path, name)
    output = (run.output if run is not None else None) or {}
    if not output.get("channel") or not output.get("ts"):
        raise Permanent("message_not_found", f"{name} has posted nothing that could be changed")
    return Posted(output["channel"], output["ts"])


def _beside(place: Place | Posted, result: Mapping[str, Json]) -> Place:
    """Where files go: into the thread of the message that they belong to."""
    if isinstance(place, Place) and place.thread_ts is not None:
        return place
    return Place(place.channel, result.get("ts"))
