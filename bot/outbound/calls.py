"""The calls that show something in Slack. Each waits for its turn, and raises a `SlackFault`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.rendering.blocks import EVENT_TYPE, Rendered, block_key
from bot.rendering.text import clip
from bot.wire.budget import Urgency, urgency
from bot.wire.client import (
    BudgetedClient,
    Permanent,
    at_slack,
    classify,
    in_turn,
    is_slacks,
    of_status,
    pages,
)

log = logging.getLogger("sayso.outbound")

POST, EDIT, WHISPER = "chat.postMessage", "chat.update", "chat.postEphemeral"
STATUS, SUGGEST = "agents.sessions.setStatus", "assistant.threads.setSuggestedPrompts"
REACT, UNREACT, RESPOND = "reactions.add", "reactions.remove", "response_url"
AGENT_REFUSED = "agent_refused"
"""The mark that says why Slack refused, since the last start, what only agents may do."""
DELETED = ("message_not_found", "cant_update_message")
"""Slack's errors for the change of a message that is gone."""
T = TypeVar("T")


class Hold(Exception):
    """Nothing can be done for this lane yet; try again in `seconds`. Nothing was sent."""

    def __init__(self, seconds: float, why: str = "") -> None:
        self.seconds = seconds
        super().__init__(f"{why or 'held'} for {seconds:.2f} s")


_BLOCKS_REFUSED = (
    "invalid_blocks",
    "invalid_blocks_format",
    "msg_blocks_too_long",
    "block_mismatch",
    "msg_too_long",
)
_TITLE = 200
_PLAIN_TEXT = 3_000
"""Characters of a message whose full form was refused as too long."""


@dataclass(frozen=True, slots=True)
class Place:
    """Destination of a message: a channel, and a thread in it."""

    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Posted:
    """Location of a posted message."""

    channel: str
    ts: str


class Calls:
    """Slack's Web API as the outbox needs it."""

    def __init__(
        self,
        client: BudgetedClient,
        bot_user_id: str,
        posting: Callable[[], AbstractContextManager[None]] = nullcontext,
        note: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        """`posting` is around each request that posts a message. `note` stores a named remark on the state of the workspace, for status queries."""
        self._client = client
        self.budget = client.budget
        self._bot_user_id = bot_user_id
        self._posting = posting
        self._note = note

    async def post(self, place: Place, message: Rendered, *, broadcast: bool = False) -> Posted:
        """Post a message; in a simpler form where Slack does not take its blocks."""
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
        with self._posting():
            answer = await _answered(call)
        return Posted(str(answer["channel"]), str(answer["ts"]))

    async def edit(self, where: Posted, message: Rendered, *, metadata: bool = False) -> None:
        """Change a message of ours; its metadata stays unless `metadata` says to replace it."""
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
        await _answered(call)

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
        await _answered(call)

    async def _in_a_form(self, message: Rendered, send: Callable[[Rendered], Awaitable[T]]) -> T:
        """Send a message, as plain text where Slack refuses its blocks."""
        try:
            return await send(message)
        except Permanent as fault:
            return await send(_without_blocks(message, fault))

    async def delete(self, where: Posted) -> None:
        """Take away a message of ours; one that is gone already is fine."""
        with _fine("message_not_found"):
            await _answered(self._client.chat_delete(channel=where.channel, ts=where.ts))

    async def set_status(self, place: Place, status: str, title: str, initiator: str) -> None:
        """Set the status of a session, if the app is a Slack agent."""
        call = self._client.agents_sessions_setStatus(
            channel_id=place.channel,
            thread_ts=place.thread_ts,
            status=status,
            title=clip(title, _TITLE),
            initiator_user_id=initiator or None,
        )
        await _answered(call)

    async def suggest(self, channel: str, prompts: list[dict[str, str]]) -> None:
        """Offer somebody what to write. No thread is named: with one the call would do nothing."""
        await _answered(
            self._client.assistant_threads_setSuggestedPrompts(channel_id=channel, prompts=prompts)
        )

    async def permalink(self, where: Posted, thread_ts: str | None) -> str:
        """The address of a message. Slack's own is made of what it consists of; elsewhere it is asked for."""
        url = self._client.workspace_url
        if at_slack(url):
            channel = self._client.aliases.now(where.channel)
            reply = thread_ts is not None and thread_ts != where.ts
            query = f"?thread_ts={thread_ts}&cid={channel}" if reply else ""
            return f"{url}archives/{channel}/p{where.ts.replace('.', '')}{query}"
        call = self._client.chat_getPermalink(channel=where.channel, message_ts=where.ts)
        return str((await _answered(call))["permalink"])

    async def react(self, where: Posted, name: str) -> None:
        """Add a reaction; one that is there already is fine."""
        with _fine("already_reacted"):
            await _answered(self._client.reactions_add(channel=where.channel, timestamp=where.ts, name=name))

    async def unreact(self, where: Posted, name: str) -> None:
        """Take a reaction of ours away; one that is gone already is fine."""
        with _fine("no_reaction"):
            await _answered(
                self._client.reactions_remove(channel=where.channel, timestamp=where.ts, name=name)
            )

    async def respond(self, url: str, text: str) -> None:
        """Answer a slash command at its response URL."""
        body = {"text": text, "replace_original": False, "unfurl_links": False, "unfurl_media": False}
        await self._respond(url, "", body)

    async def replace(self, url: str, where: Posted, message: Rendered) -> None:
        """Change the message that somebody pressed, through the press: that is no `chat.update`."""
        body = {"text": message.text, "blocks": message.blocks, "replace_original": True}
        await self._respond(url, where.channel, body)

    async def _respond(self, url: str, channel: str, body: dict[str, Any]) -> None:
        """Post to a response URL, which must be one of Slack's. No token goes there."""
        if not is_slacks(self._client, url):
            raise Permanent("response_url_refused", f"{urlsplit(url).hostname} is not a Slack host")
        hook = AsyncWebhookClient(
            url,
            retry_handlers=[],
            proxy=self._client.proxy,
            ssl=self._client.ssl,
            session=self._client.session,
        )
        call = partial(_responded, hook, {"response_type": "ephemeral", **body})
        await _answered(in_turn(self.budget, RESPOND, call, channel))

    # --- looking -------------------------------------------------------------------------------------------

    async def find(self, key: str, place: Place, oldest: float) -> list[Posted]:
        """Our messages with this key, oldest first. In a thread all of it is read; for roots the channel from `oldest`
        (seconds since 1970)."""
        found = [
            Posted(place.channel, str(message["ts"]))
            async for answer in pages(partial(self._page, place, oldest))
            for message in answer["messages"]
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
        return str(blocks[0].get("block_id")) == block_key(key)

    async def _page(self, place: Place, oldest: float, cursor: str) -> Any:
        options: dict[str, Any] = {"channel": place.channel, "include_all_metadata": True, "limit": 200}
        if cursor:
            options["cursor"] = cursor
        if place.thread_ts is not None:
            return await _answered(self._client.conversations_replies(ts=place.thread_ts, **options))
        since = f"{oldest:.6f}"
        return await _answered(self._client.conversations_history(oldest=since, inclusive=True, **options))


async def _responded(hook: AsyncWebhookClient, body: dict[str, Any]) -> None:
    answer = await hook.send_dict(body)
    if answer.status_code != 200:
        code = "response_url_refused" if answer.status_code < 500 else None
        raise of_status(answer.status_code, answer.headers, code, str(answer.body)[:200])


async def _answered(call: Awaitable[Any]) -> Any:
    """The answer to a call. Raises `SlackFault`."""
    try:
        return await call
    except Exception as error:
        raise classify(error) from error


@contextmanager
def _fine(reason: str) -> Iterator[None]:
    """Treat a refusal for this reason as done."""
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
        self._client = client

    async def open(self, trigger_id: str, view: dict[str, Any], *, on_top: bool = False) -> OpenView:
        """Open a modal; with `on_top` above the one from which the trigger came."""
        show: Any = self._client.views_push if on_top else self._client.views_open
        with urgency(Urgency.QUESTION):
            return await _shown(show(trigger_id=trigger_id, view=view))

    async def update(self, standing: OpenView, view: dict[str, Any]) -> OpenView:
        """Change a view, unless it was changed meanwhile."""
        call = self._client.views_update(view_id=standing.view_id, hash=standing.hash, view=view)
        return await _shown(call)

    async def publish(self, user: str, view: dict[str, Any], hash: str | None = None) -> OpenView:
        """Show somebody the app's Home; with `hash` unless it was changed meanwhile."""
        with urgency(Urgency.PROGRESS):
            return await _shown(self._client.views_publish(user_id=user, view=view, hash=hash))

    async def whisper(self, channel: str, user: str, thread_ts: str | None, text: str) -> None:
        """Say something to one person at once, without the outbox. `text` is mrkdwn that is safe already."""
        call = self._client.chat_postEphemeral(
            channel=channel, user=user, thread_ts=thread_ts, text=text, parse="none", link_names=False
        )
        with urgency(Urgency.QUESTION):
            await _answered(call)


async def _shown(call: Awaitable[Any]) -> OpenView:
    view = (await _answered(call))["view"]
    return OpenView(str(view["id"]), str(view["hash"]))
