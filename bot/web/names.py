"""Names of people and channels in place of their ids: as sessions tell them, and as Slack does where there is a token. No page
waits for Slack: an id stands where a name is not known yet, and the page is drawn again once it is."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress

from bot.config.settings import Settings
from bot.rendering.text import ADDRESS
from bot.terminal.console import clean
from bot.wire.client import bot_client
from bot.wire.users import Channels, LookupFailed, People

_KEPT_SECONDS = 3600.0
_ID = re.compile(r"[UWCGD][A-Z0-9]{2,}")
_MENTION = re.compile(r"<([@#])([A-Z0-9]{3,})(?:\|[^<>]*)?>|(?:@(?=[UW])|#(?=[CG]))([A-Z0-9]{3,})\b")
"""A mention as Slack writes it, or without its brackets."""


class Names:
    """Names by id or e-mail address. `run` asks Slack for those that a page wanted; the rest may be called on any thread."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._known: dict[str, tuple[float, str]] = {}
        self._wanted: asyncio.Queue[str] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def learn(self, user_id: str, name: str) -> None:
        """Note what a session calls somebody, if nothing else is known."""
        self._known.setdefault(user_id, (float("-inf"), name))

    def of(self, entry: str) -> str:
        """The name of a person or a channel by id; the id where it is not known yet, or is none."""
        since, name = self._known.get(entry, (float("-inf"), entry))
        if self._loop is not None and (_ID.fullmatch(entry) or ADDRESS.fullmatch(entry)):
            now = self._clock()
            if now - since >= _KEPT_SECONDS:
                self._known[entry] = (now, name)
                self._loop.call_soon_threadsafe(self._wanted.put_nowait, entry)
        return name

    def within(self, text: str) -> str:
        """A text in which people and channels are mentioned, with what they are called."""
        return _MENTION.sub(self._mentioned, text)

    def asked(self, text: str) -> str:
        """A text about who is asked, with the names of people in place of their ids and e-mail addresses."""
        return ADDRESS.sub(lambda found: self.of(found[0]), self.within(text))

    def _mentioned(self, found: re.Match[str]) -> str:
        sign, entry = found[1] or found[0][0], found[2] or found[3]
        return sign + self.of(entry).removeprefix("#")

    async def run(self, found: Callable[[], None]) -> None:
        """Ask Slack for what is wanted, for ever; `found` is called when there are new names. Without a token nobody is
        asked."""
        if self._settings.bot_token is None:
            return
        client = bot_client(self._settings.bot_token, self._settings.api_url)
        people, channels = People(client, ""), Channels(client)
        self._loop = asyncio.get_running_loop()
        while True:
            entry = await self._wanted.get()
            with suppress(LookupFailed):  # the id stands for it, and Slack is asked again in a while
                self._known[entry] = (self._clock(), clean(await _called(people, channels, entry)))
            if self._wanted.empty():
                found()


async def _called(people: People, channels: Channels, entry: str) -> str:
    """The name of a person, by id or e-mail address, or of a channel. Raises `LookupFailed`."""
    if "@" in entry:
        return await people.name_at(entry)
    if entry[0] in "UW":
        return await people.name(entry)
    name = await channels.name(entry)
    return f"#{name}" if name else "a direct message"
