"""The Slack app: Bolt in Socket Mode, with one rule above all: persist, then acknowledge.

Bolt acknowledges an event before a listener works, so everything happens in its very first middleware: read the payload
(pure), store it under its key, commit, and only then answer 200, which is the acknowledgement. If storing fails there
is not an acknowledgement and Slack delivers again. There are no listeners. Requests to open a view are not stored: it is
opened beside the acknowledgement (`bot.views`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.handlers.delivered import Delivered
from bot.inbound import decisions, payloads
from bot.inbound.decisions import PAGE, VIEW, Accept, Next, Refuse, Submission
from bot.inbound.triggers import DEAF, Listening
from bot.views.service import Views, acknowledgement
from bot.wire.channel_aliases import Aliases
from bot.wire.sockets import PING_SECONDS, QUIET_SECONDS, Sockets
from engine.journal.records import InboxItem
from engine.language.codec import Json, encode
from engine.language.errors import StorageError
from engine.storage.backoff import is_busy, waited_out
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.slack")

SENT_BEFORE = (
    "You already sent this with other values, and those count. Please close this and check the result."
)
BROKEN = "I couldn't read this, and nothing was changed. Please try again."
BUSY_SECONDS = 60.0
"""Seconds for which a payload waits for another program; a message is delivered again after a minute."""
_MOST_PENDING = 1_000
"""The most rows that are looked through for something of a thread."""


class _First(AsyncMiddleware):
    """A middleware without Bolt's argument injection, which would fail on payloads of unexpected types."""

    def __init__(self, receive: Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]) -> None:
        self._receive = receive

    async def async_process(self, *, req: AsyncBoltRequest, resp: BoltResponse, next: Any) -> BoltResponse:
        """See Bolt. No other middleware follows."""
        return await self._receive(req)


class _Handler(AsyncSocketModeHandler):
    """Bolt's handler of a socket, with a receiver for its payloads."""

    def __init__(self, slack: SlackApp, *args: Any, **given: Any) -> None:
        super().__init__(slack.app, *args, **given)
        self._slack = slack

    async def handle(self, client: Any, req: SocketModeRequest) -> None:
        """See Bolt."""
        begun = time.time()
        await send_async_response(client, req, await self._slack.dispatch(req.payload), begun)


@dataclass(eq=False, repr=False)
class SlackApp:
    """The sockets and their payloads."""

    client: AsyncWebClient
    app_client: AsyncWebClient
    _: KW_ONLY
    app_token: str
    home: decisions.Home
    writer: Writer
    now: Callable[[], str]
    answer: Callable[[decisions.Ask], Awaitable[dict[str, Json]]]
    taken: Callable[[], None]
    views: Views
    hears: Callable[[], Listening] = lambda: DEAF
    aliases: Aliases = field(default_factory=Aliases)
    renamed: Callable[[str], Awaitable[None]] | None = None
    delivered: Delivered | None = None
    connections: int = 2
    quiet_seconds: float = QUIET_SECONDS

    def __post_init__(self) -> None:
        self._delivered = self.delivered or Delivered(self.writer, time.monotonic)
        self._closing = False
        self.reopened: Callable[[], Awaitable[None]] | None = None
        """Done before anything is taken from a socket that was opened again."""
        self.skipped: dict[str, int] = {}
        # Bolt finds the token in the environment too and warns that our client already has it.
        logging.getLogger("slack_bolt.AsyncApp").addFilter(lambda record: "will be unused" not in record.msg)
        # Before Bolt's authorization: if that cannot reach Slack, it acknowledges and drops the payload. Without a name
        # it would search the sources of all callers for one.
        self.app = AsyncApp(name="sayso", client=self.client, before_authorize=_First(self._receive))
        self.sockets = Sockets(
            lambda: _Handler(self, self.app_token, web_client=self.app_client, ping_interval=PING_SECONDS),
            self.connections,
            quiet_seconds=self.quiet_seconds,
        )

    async def connect(self) -> None:
        """Open the sockets."""
        await self.sockets.connect()

    async def close(self) -> None:
        """Take no more payloads: unacknowledged ones are delivered again elsewhere."""
        self._closing = True
        await self.views.close()
        await self.sockets.close()

    def reconnected(self) -> bool:
        """True if a socket was opened again since the last call: time for a catch-up read."""
        return self.sockets.reconnected()

    async def dispatch(self, body: dict[str, Any]) -> BoltResponse:
        """Hand a payload to Bolt, which reads some of its fields before any middleware does."""
        try:
            request = AsyncBoltRequest(mode="socket_mode", body=body)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            self._skip(decisions.MALFORMED, repr(error))
            return _answered(None)
        return await self.app.async_dispatch(request)

    async def _receive(self, req: AsyncBoltRequest) -> BoltResponse:
        """First of all middleware: persist, then acknowledge. An exception means no acknowledgement."""
        if self._closing:
            raise RuntimeError("shutting down: not acknowledged, so Slack delivers it again")
        try:
            if self.reopened is not None and self.reconnected():
                await self.reopened()
            return await self._decided(req)
        except BaseException:
            self._delivered.lost()
            raise

    async def _decided(self, req: AsyncBoltRequest) -> BoltResponse:
        if req.body.get("type") == "app_rate_limited":
            self._delivered.lost()
        decision = payloads.read(self.aliases.inward(req.body), self.home, self.hears())
        match decision:
            case decisions.Take():
                await self._take(decision)
            case decisions.Ask():
                try:
                    told = await self.answer(decision)
                except StorageError:
                    raise
                except Exception as error:
                    log.exception("a command could not be answered")
                    self._skip(decisions.MALFORMED, repr(error))
                    told = {"text": BROKEN}
                return _answered({"response_type": "ephemeral", **told})
            case decisions.Opening():
                self.views.press(decision)
            case decisions.Submission():
                return _answered(await self._submitted(decision))
            case decisions.Renamed(old, new, ts):
                await self.aliases.rename(self.writer, old, new, ts)
                if self.renamed is not None:
                    await self.renamed(self.aliases.first(old))
            case decisions.Own(key, ts):
                self._delivered.note(key, ts)
            case decisions.Skip(reason, detail):
                self._skip(reason, detail)
        return _answered(None)

    def _skip(self, reason: str, detail: str) -> None:
        self.skipped[reason] = count = self.skipped.get(reason, 0) + 1
        if reason == decisions.MALFORMED and count.bit_count() == 1:
            log.warning("dropped a malformed payload from Slack (number %d): %s", count, detail)

    async def _submitted(self, submission: Submission) -> dict[str, Any] | None:
        """Check a submission, store it if valid, and return the change to the view."""
        if submission.action is not None:
            self.views.act(submission)
            return None
        try:
            verdict = await self.views.check(submission)
        except StorageError:
            raise
        except Exception as error:
            log.exception("a view (%s) could not be checked", submission.kind)
            self._skip(decisions.MALFORMED, repr(error))
            verdict = Refuse(BROKEN)
        stored: dict[str, Json] = {"team": submission.team, "user": submission.user, "kind": submission.kind}
        match verdict:
            case Accept(data, thread_key):
                item = InboxItem(submission.key, VIEW, encode({**stored, **data}), thread_key=thread_key)
                if not await self._ingest(item) and await self._differs(item):
                    return acknowledgement(Refuse(SENT_BEFORE), submission)
            case Next(keep=keep) if keep is not None:
                await self._ingest(InboxItem(verdict.key, PAGE, encode({**stored, "values": keep})))
        return acknowledgement(verdict, submission)

    async def _known(self, thread_key: str) -> bool:
        """True if the thread has a session, or may get one from a stored, unhandled payload."""
        call, store = self.writer.call, self.writer.store
        if await call(store.sessions.any_in, thread_key):
            return True
        pending = await call(store.inbox.rows, limit=_MOST_PENDING)
        if any(row.thread_key == thread_key for row in pending):
            return True
        # A row handled in between has its session by now.
        return await call(store.sessions.any_in, thread_key)

    async def _take(self, decision: decisions.Take) -> None:
        item = decision.item
        if decision.only_known_threads and not await self._known(item.thread_key or ""):
            return
        if decision.instead is not None and self.views.wanted(decision.instead):
            self.views.press(decision.instead)
            return
        await self._ingest(item)
        if item.kind == decisions.MESSAGE and item.thread_key is not None:
            self._delivered.note(item.thread_key, item.key.rsplit(":", 1)[1])

    async def _ingest(self, item: InboxItem) -> bool:
        """Store an item; a known key changes nothing. True if it was new. Waits for another program that holds the
        database, since Slack does not deliver clicks again."""
        clock, store = asyncio.get_running_loop().time, partial(self.writer.ingest, [item], self.now())
        until = clock() + BUSY_SECONDS
        stored = await waited_out(store, "what came from Slack", lambda: clock() < until, is_busy)
        is_new = stored[0] is not None
        if is_new:
            self.taken()
        return is_new

    async def _differs(self, item: InboxItem) -> bool:
        """True if other content is stored under this key: a person changed a form whose acknowledgement was lost."""
        before = await self.writer.call(self.writer.store.inbox.row, item.key)
        return before is not None and before.payload != item.payload


def _answered(body: dict[str, Any] | None) -> BoltResponse:
    """Return an acknowledgement with this `body`."""
    if body is None:
        return BoltResponse(status=200, body="")
    return BoltResponse(status=200, body=encode(body).decode(), headers={"content-type": "application/json"})
