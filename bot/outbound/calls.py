"""The calls that show something in Slack, at the pace that Slack takes. Each raises a `SlackFault`, or `Hold` where it has
to wait."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.rendering.blocks import EVENT_TYPE, Rendered, block_key, in_older_blocks, newer_types
from bot.rendering.text import clip
from bot.wire.client import NotSent, Permanent, RateLimited, Unknown, classify, of_status, pages, quiet_client

log = logging.getLogger("sayso.outbound")

POST = "chat.postMessage"
UNTAKEN = "untaken_blocks"
"""The mark that names the newer types of blocks that this workspace was found not to take since the last start."""
T = TypeVar("T")

_AWAY = 3
"""After so many calls in a row without an answer Slack is taken for away."""


class Hold(Exception):
    """Nothing can be done for this lane yet; try again in `seconds`. Nothing was sent."""

    def __init__(self, seconds: float, why: str = "") -> None:
        self.seconds = seconds
        super().__init__(f"{why or 'held'} for {seconds:.2f} s")


class Pace:
    """A token bucket for each channel, and the waits that Slack asked for, by method and channel."""

    def __init__(self, clock: Callable[[], float], *, rate: float | None = 1.0, burst: int = 5) -> None:
        """`rate` is messages a second and channel; None for no limit of our own."""
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, tuple[float, float]] = {}
        self._until: dict[tuple[str, str], float] = {}
        self._unanswered = 0

    # --- whether Slack is there ----------------------------------------------------------------------------

    @property
    def away(self) -> bool:
        """Whether Slack seems to be away: then one call at a time is enough to find out that it is back."""
        return self._unanswered >= _AWAY

    def answered(self) -> None:
        """Slack has answered, whatever it said."""
        self._unanswered = 0

    def unanswered(self) -> None:
        """A call had no answer, or one that says nothing."""
        self._unanswered += 1

    # --- waits ---------------------------------------------------------------------------------------------

    def take(self, method: str, channel: str) -> None:
        """Reserve a call. Raises `Hold` when it has to wait."""
        now = self._clock()
        wait = self._until.get(_scope(method, channel), now) - now
        if wait > 0:
            raise Hold(wait, f"Slack limits {method} in {channel}")
        self._until.pop(_scope(method, channel), None)
        if method == POST and self._rate is not None:
            self._spend(channel, now, self._rate)

    def block(self, method: str, channel: str, seconds: float) -> None:
        """Slack asked to wait so long with this method: in this channel for posts, in the workspace for all else."""
        scope = _scope(method, channel)
        self._until[scope] = max(self._until.get(scope, 0.0), self._clock() + seconds)

    def _spend(self, channel: str, now: float, rate: float) -> None:
        tokens, at = self._buckets.get(channel, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) * rate)
        if tokens < 1:
            raise Hold((1 - tokens) / rate, f"a message a second in {channel}")
        self._buckets[channel] = (tokens - 1, now)
        if len(self._buckets) > 10_000:
            self._buckets.clear()


def _scope(method: str, channel: str) -> tuple[str, str]:
    """What a limit holds for: Slack counts posts by channel, and the other methods in the whole workspace."""
    return method, channel if method == POST else ""


_BLOCKS_REFUSED = (
    "invalid_blocks",
    "invalid_blocks_format",
    "msg_blocks_too_long",
    "block_mismatch",
    "msg_too_long",
)
_UNKNOWN_BLOCKS = ("invalid_blocks", "invalid_blocks_format")
_STREAMED = "agent:"
"""How the keys of what may be streamed begin."""
_PLAIN_TEXT = 3_000
"""Characters of a message whose full form was refused as too long."""
_SLACK_HOST = re.compile(r"([a-z0-9-]+\.)*slack(-gov)?\.com")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message goes: a channel, and in it a thread."""

    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Posted:
    """Where a message stands."""

    channel: str
    ts: str


class Calls:
    """Slack's Web API as the outbox needs it, at the pace that Slack takes."""

    def __init__(
        self,
        client: AsyncWebClient,
        pace: Pace,
        bot_user_id: str,
        posted: Callable[[], None] = lambda: None,
        note: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        """`note` keeps a word on the workspace, by its name, for whoever asks how things are."""
        self._client = quiet_client(client)
        self._pace = pace
        self._bot_user_id = bot_user_id
        self._posted = posted
        self._note = note
        self._untaken: frozenset[str] = frozenset()

    async def post(self, place: Place, message: Rendered, *, broadcast: bool = False) -> Posted:
        """Post a message; in a simpler form where Slack does not take its blocks. The pace was taken before."""
        return await self._in_a_form(message, lambda form: self._post(place, form, broadcast))

    async def _post(self, place: Place, message: Rendered, broadcast: bool) -> Posted:
        call = self._client.chat_postMessage(
            channel=place.channel,
            thread_ts=place.thread_ts,
            reply_broadcast=True if broadcast else None,
            text=message.text,
            blocks=message.blocks or None,
            metadata=message.metadata,
            unfurl_links=False,
            unfurl_media=False,
            parse="none",
            link_names=False,
        )
        answer = await self._answered(POST, place.channel, call)
        self._posted()
        return Posted(str(answer["channel"]), str(answer["ts"]))

    async def edit(self, where: Posted, message: Rendered, *, metadata: bool = False) -> None:
        """Change a message of ours; its metadata stays unless `metadata` says to replace it."""
        self._pace.take("chat.update", where.channel)
        await self._in_a_form(message, lambda form: self._edit(where, form, metadata))

    async def _edit(self, where: Posted, message: Rendered, metadata: bool) -> None:
        call = self._client.chat_update(
            channel=where.channel,
            ts=where.ts,
            text=message.text,
            blocks=message.blocks,
            metadata=message.metadata if metadata else None,
            parse="none",
            link_names=False,
        )
        await self._answered("chat.update", where.channel, call)

    async def whisper(self, place: Place, user: str, message: Rendered) -> None:
        """Show something to one person."""
        await self._in_a_form(message, lambda form: self._whisper(place, user, form))

    async def _whisper(self, place: Place, user: str, message: Rendered) -> None:
        call = self._client.chat_postEphemeral(
            channel=place.channel,
            user=user,
            thread_ts=place.thread_ts,
            text=message.text,
            blocks=message.blocks or None,
            parse="none",
            link_names=False,
        )
        await self._answered("chat.postEphemeral", place.channel, call)

    async def _in_a_form(self, message: Rendered, send: Callable[[Rendered], Awaitable[T]]) -> T:
        """Send a message as it is, in older blocks, or as plain text: the first form that Slack takes."""
        newer, refused = newer_types(message.blocks), False
        if newer and not newer & self._untaken:
            try:
                return await send(message)
            except Permanent as fault:
                if fault.reason not in _BLOCKS_REFUSED:
                    raise
                refused = fault.reason in _UNKNOWN_BLOCKS
        form = in_older_blocks(message)
        try:
            sent = await send(form)
        except Permanent as fault:
            return await send(_without_blocks(form, fault))
        if refused:
            self._untaken |= newer
            types = ", ".join(sorted(self._untaken))
            log.warning("this workspace takes no %s: older blocks are sent instead", types)
            if self._note is not None:
                await self._note(UNTAKEN, types)
        return sent

    async def delete(self, where: Posted) -> None:
        """Take away a message of ours; one that is gone already is fine."""
        delete = partial(self._client.chat_delete, channel=where.channel, ts=where.ts)
        with _fine("message_not_found"):
            await self._paced("chat.delete", where.channel, delete)

    async def start_stream(self, place: Place, text: str | None, *, reader: str, team: str) -> Posted:
        """Begin a message that grows while it is read. It carries no key: `find` takes it for ours all the same."""
        begin = partial(
            self._client.chat_startStream,
            channel=place.channel,
            thread_ts=place.thread_ts or "",
            markdown_text=text,
            recipient_user_id=reader or None,
            recipient_team_id=team if reader else None,
        )
        answer = await self._paced("chat.startStream", place.channel, begin)
        self._posted()
        return Posted(str(answer["channel"]), str(answer["ts"]))

    async def append_stream(self, where: Posted, text: str) -> None:
        """Let a stream grow by this."""
        more = partial(self._client.chat_appendStream, channel=where.channel, ts=where.ts, markdown_text=text)
        await self._paced("chat.appendStream", where.channel, more)

    async def stop_stream(self, where: Posted, metadata: dict[str, Any]) -> None:
        """End a stream and mark its message as ours."""
        end = partial(self._client.chat_stopStream, channel=where.channel, ts=where.ts, metadata=metadata)
        await self._paced("chat.stopStream", where.channel, end)

    async def permalink(self, where: Posted) -> str:
        """The address of a message."""
        call = self._client.chat_getPermalink(channel=where.channel, message_ts=where.ts)
        answer = await self._answered("chat.getPermalink", where.channel, call)
        return str(answer["permalink"])

    async def react(self, where: Posted, name: str) -> None:
        """Add a reaction; one that is there already is fine."""
        add = partial(self._client.reactions_add, channel=where.channel, timestamp=where.ts, name=name)
        with _fine("already_reacted"):
            await self._paced("reactions.add", where.channel, add)

    async def respond(self, url: str, text: str) -> None:
        """Answer a slash command at its response URL, which must be one of Slack's. No token goes there."""
        self._check(url)
        hook = AsyncWebhookClient(
            url,
            retry_handlers=[],
            proxy=self._client.proxy,
            ssl=self._client.ssl,
            session=self._client.session,
        )
        body = {
            "text": text,
            "response_type": "ephemeral",
            "replace_original": False,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        try:
            answer = await hook.send_dict(body)
        except Exception as error:
            raise classify(error) from error
        if answer.status_code != 200:
            code = "response_url_refused" if answer.status_code < 500 else None
            raise of_status(answer.status_code, answer.headers, code, str(answer.body)[:200])

    def _check(self, url: str) -> None:
        given, own = urlsplit(url), urlsplit(self._client.base_url)
        ours = (given.scheme, given.netloc) == (own.scheme, own.netloc)
        if not ours and not (given.scheme == "https" and _SLACK_HOST.fullmatch(given.hostname or "")):
            raise Permanent("response_url_refused", f"{given.hostname} is no host of Slack")

    # --- looking -------------------------------------------------------------------------------------------

    async def find(self, key: str, place: Place, oldest: float) -> list[Posted]:
        """Our messages with this key, oldest first. In a thread all of it is read; for roots the channel from `oldest`
        (seconds since 1970)."""
        found = [
            Posted(place.channel, str(message["ts"]))
            async for message in self._read(place, oldest)
            if self._is_ours(message, key)
        ]
        return sorted(found, key=lambda posted: float(posted.ts))

    def _is_ours(self, message: dict[str, Any], key: str) -> bool:
        if message.get("user") != self._bot_user_id:
            return False
        metadata = message.get("metadata") or {}
        if metadata:
            payload = metadata.get("event_payload") or {}
            return metadata.get("event_type") == EVENT_TYPE and payload.get("key") == key
        blocks = message.get("blocks") or [{}]
        block_id = str(blocks[0].get("block_id") or "")
        if key.startswith(_STREAMED) and ":" not in block_id and not message.get("files"):
            # A stream whose end was not heard of: nothing else of ours is without a key.
            return True
        return block_id == block_key(key)

    async def _read(self, place: Place, oldest: float) -> AsyncIterator[dict[str, Any]]:
        async for answer in pages(partial(self._page, place, oldest)):
            for message in answer["messages"]:
                yield message

    async def _page(self, place: Place, oldest: float, cursor: str) -> Any:
        options: dict[str, Any] = {"channel": place.channel, "include_all_metadata": True, "limit": 200}
        if cursor:
            options["cursor"] = cursor
        if place.thread_ts is not None:
            replies = partial(self._client.conversations_replies, ts=place.thread_ts, **options)
            return await self._paced("conversations.replies", place.channel, replies)
        since = f"{oldest:.6f}"
        history = partial(self._client.conversations_history, oldest=since, inclusive=True, **options)
        return await self._paced("conversations.history", place.channel, history)

    async def _paced(self, method: str, channel: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call once the pace allows it. Raises `Hold` and `SlackFault`."""
        self._pace.take(method, channel)
        return await self._answered(method, channel, call())

    async def _answered(self, method: str, channel: str, call: Awaitable[Any]) -> Any:
        """The answer to a call; what Slack asks to wait concerns all that this limit holds for."""
        try:
            answer = await call
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, RateLimited):
                self._pace.block(method, channel, fault.retry_after)
            if isinstance(fault, NotSent | Unknown):
                self._pace.unanswered()
            else:
                self._pace.answered()
            raise fault from error
        self._pace.answered()
        return answer


@contextmanager
def _fine(reason: str) -> Iterator[None]:
    """What is refused with this is done already."""
    try:
        yield
    except Permanent as fault:
        if fault.reason != reason:
            raise


def _without_blocks(message: Rendered, fault: Permanent) -> Rendered:
    """The message as plain text, if its form was what Slack refused. Raises the fault otherwise."""
    if fault.reason not in _BLOCKS_REFUSED or not message.blocks:
        raise fault
    log.error("%s; the message is shown as plain text", fault)
    text = clip(message.text, _PLAIN_TEXT) if fault.reason == "msg_too_long" else message.text
    return Rendered(f"{text}\n{message.plain}" if message.plain else text, [], message.metadata)


@dataclass(frozen=True, slots=True)
class OpenView:
    """A view that is open, as it was when it was shown: `hash` lets nobody overwrite what came after."""

    view_id: str
    hash: str


class Modals:
    """Slack's views."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = quiet_client(client)

    async def open(self, trigger_id: str, view: dict[str, Any], *, on_top: bool = False) -> OpenView:
        """Open a modal; with `on_top` above the one from which the trigger came."""
        show: Any = self._client.views_push if on_top else self._client.views_open
        return await _shown(show(trigger_id=trigger_id, view=view))

    async def update(self, standing: OpenView, view: dict[str, Any]) -> OpenView:
        """Change a view, unless it was changed meanwhile."""
        call = self._client.views_update(view_id=standing.view_id, hash=standing.hash, view=view)
        return await _shown(call)

    async def publish(self, user: str, view: dict[str, Any], hash: str | None = None) -> OpenView:
        """Show somebody the app's Home; with `hash` unless it was changed meanwhile."""
        return await _shown(self._client.views_publish(user_id=user, view=view, hash=hash))

    async def whisper(self, channel: str, user: str, thread_ts: str | None, text: str) -> None:
        """Say something to one person at once, without the outbox. `text` is mrkdwn that is safe already."""
        call = self._client.chat_postEphemeral(
            channel=channel, user=user, thread_ts=thread_ts, text=text, parse="none", link_names=False
        )
        try:
            await call
        except Exception as error:
            raise classify(error) from error


async def _shown(call: Awaitable[Any]) -> OpenView:
    try:
        view = (await call)["view"]
        return OpenView(str(view["id"]), str(view["hash"]))
    except Exception as error:
        raise classify(error) from error
