"""Clients for Slack's Web API, the meaning of its errors for the caller, and the files that people add to a thread as an answer.

Every call takes a turn from the budget (`bot.wire.budget`). slack_sdk repeats a request after a lost connection unless
it is told not to. For a post that would show something twice, so nothing is repeated here but what Slack refused with
429, which had no effect: whoever posts finds out first what became of the request.

A file is fetched into the session's own folder with the bot's token, so only from hosts that are Slack's, and
a redirection is not followed: it could carry the token elsewhere. It is written beside its place and moved
there when it is whole; its name is made of our own ids, so that a message that is delivered again finds what
it brought, and nobody chooses where it lies.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.web.async_client import AsyncWebClient

from bot.config.session_files import SUFFIX, Inbox, SessionFiles, too_many
from bot.wire.budget import Budget
from bot.wire.channel_aliases import AliasedClient
from engine.language.codec import Json, clean_text
from engine.language.errors import SaysoError
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.folder import FileRefused, sniffed
from engine.nodes.runtime.images import unshowable
from engine.nodes.runtime.unreachable import why_unconnected
from prompt_state.question_row import PromptState

DEFAULT_RETRY_AFTER = 30.0
"""Seconds to wait where Slack limits without saying for how long."""

_AUTH = (
    "invalid_auth",
    "not_authed",
    "token_revoked",
    "token_expired",
    "account_inactive",
    "user_removed_from_team",
    "not_allowed_token_type",
)
_THEIRS = ("internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org")
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class SlackFault(SaysoError):
    """A call of the Web API did not succeed."""

    code = "slack"


class Permanent(SlackFault):
    """Slack refused, and would refuse the same call again. `reason` is its error code."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"Slack refuses: {reason}{f' ({detail})' if detail else ''}")


class RateLimited(SlackFault):
    """Nothing was done; the same call may be made again in `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(f"Slack asks to wait {retry_after:g} s")


class NotSent(SlackFault):
    """No connection could be made: nothing was done."""


class Unknown(SlackFault):
    """The request was sent and its answer is lost, or says nothing: it may have been carried out."""


class AuthLost(SlackFault):
    """The token is not accepted any more: no call can succeed until somebody gives another one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"Slack no longer accepts the bot token ({reason}). Nothing is lost: reinstall the app or set "
            "the right SLACK_BOT_TOKEN, and start again."
        )


# --- clients -----------------------------------------------------------------------------------------------


_TRIES = 3
"""Tries of a call that Slack refuses with 429 and that has no turn of its own to repeat it in."""


class BudgetedClient(AliasedClient):
    """A client that calls when its turn has come."""

    def __init__(self, *args: Any, budget: Budget | None = None, **named: Any) -> None:
        super().__init__(*args, retry_handlers=[], **named)
        self.budget = budget or Budget()
        self.workspace_url = ""
        """Under which the workspace has its messages, once `auth.test` has said it."""

    async def api_call(self, api_method: str, **named: Any) -> Any:
        """See slack_sdk."""
        call = partial(super().api_call, api_method, **named)
        return await in_turn(self.budget, api_method, call, _channel_of(named))


async def in_turn(budget: Budget, method: str, call: Callable[[], Awaitable[Any]], channel: str = "") -> Any:
    """Make a call when its turn has come. A call refused with 429 is repeated in its next turn, unless the turn was
    reserved, as its content may be stale by then."""
    for tries in count(1):
        async with budget.turn(method, channel) as turn:
            try:
                answer = await call()
                turn.heard = True
                return answer
            except Exception as error:
                fault = classify(error)
                turn.heard = not isinstance(fault, NotSent | Unknown)
                turn.refused_for = fault.retry_after if isinstance(fault, RateLimited) else None
                if turn.refused_for is None or turn.reserved or tries == _TRIES:
                    raise
    raise AssertionError("the loop returns or raises")


def _channel_of(named: Mapping[str, Any]) -> str:
    """The channel that a call is about."""
    for carrier in ("json", "data", "params"):
        found = named.get(carrier)
        if isinstance(found, Mapping) and found.get("channel"):
            return str(found["channel"])
    return ""


def bot_client(
    token: str,
    api_url: str,
    session: aiohttp.ClientSession | None = None,
    budget: Budget | None = None,
) -> BudgetedClient:
    """The client of the bot user, or of the app-level token, for opening sockets: Slack counts its calls with the bot's.
    Without a `budget` it has one of its own, with the limits as published."""
    return BudgetedClient(token=token, base_url=api_url, session=session, budget=budget)


@asynccontextmanager
async def plain_session(client: AsyncWebClient, seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
    """Return the HTTP session for requests outside the Web API: the client's own, or one for this request. Raises
    `FenceLost`."""
    await before_effect()
    if client.session is not None:
        yield client.session
        return
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        yield session


# --- errors ------------------------------------------------------------------------------------------------


def classify(error: Exception) -> SlackFault:
    """Classify an exception of a Web API call. If the outcome is unknown, the call may have been carried out."""
    if isinstance(error, SlackFault):
        return error
    if isinstance(error, SlackApiError):
        response: Any = error.response
        status: Any = getattr(response, "status_code", None) or getattr(response, "status", 0)
        data = getattr(response, "data", None)
        answer: Mapping[str, Any] = data if isinstance(data, dict) else {}
        messages = (answer.get("response_metadata") or {}).get("messages") or []
        detail = answer.get("needed") or "; ".join(map(str, messages))
        return of_status(
            int(status), getattr(response, "headers", None) or {}, answer.get("error"), str(detail)
        )
    if isinstance(error, _NOT_CONNECTED):
        return NotSent(f"Slack cannot be reached: {why_unconnected(error)}")
    if isinstance(error, SlackRequestError | TypeError | ValueError):
        return Permanent("invalid_request", str(error))
    return Unknown(f"the answer is lost ({type(error).__name__}: {error})")


_SLACK_HOST = re.compile(r"([a-z0-9-]+\.)*slack(-gov|-files)?\.com")


def at_slack(url: str) -> bool:
    """True if an address is one of slack.com's own, over TLS, with only a host name."""
    given = urlsplit(url)
    return given.scheme == "https" and _SLACK_HOST.fullmatch(given.netloc) is not None


def is_slacks(client: AsyncWebClient, url: str) -> bool:
    """True if an address belongs to the Slack that this client calls, which may be the local workspace."""
    given, own = urlsplit(url), urlsplit(client.base_url)
    return at_slack(url) or (given.scheme, given.netloc) == (own.scheme, own.netloc)


async def pages(ask: Callable[[str], Awaitable[Any]]) -> AsyncIterator[Any]:
    """The answers to a call that gives a list page by page; `ask` makes it with a cursor, which is empty at first."""
    cursor = ""
    while True:
        answer = await ask(cursor)
        yield answer
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
        if not cursor:
            return


async def joined_channels(client: AsyncWebClient) -> dict[str, str]:
    """The channels that the bot is in, by name: it can post in no others."""

    def ask(cursor: str) -> Awaitable[Any]:
        return client.users_conversations(
            types="public_channel,private_channel", exclude_archived=True, limit=200, cursor=cursor
        )

    return {
        str(channel["name"]): str(channel["id"])
        async for answer in pages(ask)
        for channel in answer["channels"]
    }


def passing(error: Exception) -> bool:
    """True if an exception means that Slack, or the way to it, is temporarily unavailable."""
    from_slack = isinstance(
        error, SlackFault | SlackApiError | aiohttp.ClientError | TimeoutError | ConnectionError
    )
    return from_slack and not isinstance(classify(error), Permanent)


def code_of(error: SlackApiError) -> str | None:
    """Slack's own error code; None where the answer is not Slack's, such as the page of a broken proxy."""
    data = getattr(error.response, "data", error.response)
    code = data.get("error") if isinstance(data, dict) else None
    return None if code is None else str(code)


def of_status(status: int, headers: Mapping[str, Any], code: str | None, detail: str = "") -> SlackFault:
    """Classify an unsuccessful response by its HTTP status, its headers, and Slack's error code if it has one."""
    if status == 429 or code in ("ratelimited", "rate_limited"):
        return RateLimited(_retry_after(headers))
    if code in _AUTH:
        return AuthLost(str(code))
    if status >= 500 or code is None or code in _THEIRS:
        return Unknown(f"Slack answered with status {status}{f' and {code}' if code else ''}")
    return Permanent(code, detail)


def _retry_after(headers: Mapping[str, Any]) -> float:
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                return max(0.0, float(value[0] if isinstance(value, list) else value))
            except ValueError:
                break
    return DEFAULT_RETRY_AFTER


def describe(error: Exception, *, token: str, api_url: str) -> str:
    """Why a call at the start failed and what to do, for the person who starts the bot. `token` is the setting's name."""
    match classify(error):
        case AuthLost(reason=reason):
            return f"Slack does not accept {token} ({reason}). Copy it again from the app's settings: docs/connect-slack.md"
        case Permanent(reason="missing_scope") as fault:
            return f"{token} lacks a required permission ({fault}). Add it to the app and reinstall the app."
        case Permanent() as fault:
            return f"Slack refuses {token}: {fault}."
        case RateLimited(retry_after=seconds):
            return f"Slack asks to wait {seconds:g} s. Start again after that."
        case fault:
            return f"Slack at {api_url}: {fault}. Check the network, a proxy, and SLACK_API_URL."


# --- files -------------------------------------------------------------------------------------------------


FETCH_SECONDS = 120.0
_CHUNK = 64 * 1024
_NAME = 200


class NotNow(Exception):
    """Slack does not give the file now; it is worth asking again later."""


def described(event: Mapping[str, Any]) -> list[Json]:
    """Return the fields of a message's files that are needed to fetch them."""
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
            raise FileRefused(too_many(most, len(sent)))
        for file in sent:
            if file["size"] > largest:
                raise _too_large(file, largest)
        with self._files.inbox(prompt.session_id, prompt.prompt_id) as inbox:
            return [
                await self._one(inbox, file, _own_name(ts, n, file), largest) for n, file in enumerate(sent)
            ]

    async def for_agent(
        self, session_id: str, sent: Sequence[Mapping[str, Json]], ts: str
    ) -> list[dict[str, Json]]:
        """The files of the message `ts` for an agent: as above, and `{name, unread}` with why for each that a model cannot be
        shown. Raises `NotNow`."""
        found: list[dict[str, Json]] = []
        for number, file in enumerate(sent):
            shown = clean_text(file["name"])[0].replace("/", "_") or "file"
            try:
                if number >= MOST_FOR_AGENT:
                    raise FileRefused(f"at most {MOST_FOR_AGENT} files of a message are")
                if file["size"] > MOST_READ:
                    raise FileRefused(f"it has {file['size']:,} bytes, more than {MOST_READ:,}")
                with self._files.inbox(session_id, "talk") as inbox:
                    given = await self._one(inbox, file, _own_name(ts, number, file), MOST_READ)
                content = await asyncio.to_thread(Path(given["path"]).read_bytes)
                why = await asyncio.to_thread(unshowable, content)
            except FileRefused as error:
                why = str(error)
            found.append(given if why is None else {"name": shown, "unread": why})
        return found

    async def _one(self, inbox: Inbox, file: Mapping[str, Json], name: str, largest: int) -> Json:
        head = inbox.head(name)
        if head is None:
            await self._download(inbox, await self._described(file), name, largest)
            head = inbox.head(name)
        if head is None:
            raise NotNow(f"{name} was deleted")
        shown = clean_text(file["name"])[0].replace("/", "_") or name
        return {"name": shown, "path": str(inbox.path / name), "size": head[0], "type": sniffed(head[1])}

    async def _described(self, file: Mapping[str, Json]) -> Mapping[str, Json]:
        """The file with its address, which Slack leaves out for those of other workspaces."""
        if file["url"]:
            return file
        try:
            answer = await self._client.files_info(file=file["id"])
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, Permanent):
                text = f"Slack does not give {_called(file)} to the bot ({fault.reason})."
                raise FileRefused(text) from error
            raise (fault if isinstance(fault, AuthLost) else NotNow(str(fault))) from error
        found: Mapping[str, Json] = described({"files": [answer["file"]]})[0]
        return found

    async def _download(self, inbox: Inbox, file: Mapping[str, Json], name: str, largest: int) -> None:
        url = str(file["url"])
        if not is_slacks(self._client, url):
            raise FileRefused(f"{_called(file)} is not stored in Slack. Please upload it here.")
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
                status = answer.status
                if status in (429, 408) or status >= 500:
                    raise NotNow(f"Slack answered {status} for {file['name']}")
                if status != 200:
                    raise FileRefused(
                        f"Slack does not give {_called(file)} to the bot (status {status}). The bot may "
                        "lack the scope files:read, or the file was deleted."
                    )
                with inbox.writing(name) as part:
                    async for chunk in answer.content.iter_chunked(_CHUNK):
                        if part.size + len(chunk) > largest:
                            raise _too_large(file, largest)
                        await asyncio.to_thread(part.write, chunk)
                    if answer.content_length is not None and part.size != answer.content_length:
                        raise NotNow(f"{file['name']} arrived incomplete")
                    await asyncio.to_thread(part.done)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotNow(f"{file['name']} cannot be downloaded right now: {error}") from error


MOST_FOR_AGENT = 10
MOST_READ = 10 * 2**20
"""Bytes of a file that a model is shown."""


def _own_name(ts: str, number: int, file: Mapping[str, Json]) -> str:
    """A name made of our own ids, with the suffix of the given one where that is harmless."""
    suffix = "." + str(file["name"]).rpartition(".")[2]
    safe = suffix.lower() if SUFFIX.fullmatch(suffix) and "." in str(file["name"]) else ""
    return f"{ts.replace('.', '-')}-{number + 1}{safe}"


def _called(file: Mapping[str, Json]) -> str:
    return f"`{clean_text(file['name'])[0] or 'the file'}`"


def _too_large(file: Mapping[str, Json], largest: int) -> FileRefused:
    size = f"has {file['size']:,} bytes" if file["size"] > largest else "is too large"
    return FileRefused(
        f"{_called(file)} {size}, and the limit is {largest:,}. Your answer was not used: please send a "
        "smaller file."
    )
