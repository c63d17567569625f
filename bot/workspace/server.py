"""The workspace as a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bot.workspace.changes import Saver, load
from bot.workspace.core import Core
from bot.workspace.http import Site
from bot.workspace.interactions import Interactions, People
from bot.workspace.pageapi import PageApi
from bot.workspace.state import State, default_state
from bot.workspace.text import Suggestion, checked
from bot.workspace.views import Views
from bot.workspace.webapi import WebApi

DEFAULT_SEED = default_state


class Workspace:
    """A Slack-shaped workspace on loopback. It is not Slack and knows nothing of the app that connects.

    `port` 0 takes a free one. With `persist_path` the workspace is kept in that file and starts from it.
    `seed` makes the state of a new one; `clock` gives seconds since 1970; `suggestions` are offered on the page.
    """

    def __init__(
        self,
        port: int = 0,
        persist_path: Path | None = None,
        seed: Callable[[], State] = DEFAULT_SEED,
        clock: Callable[[], float] = time.time,
        suggestions: Iterable[Suggestion] = (),
    ) -> None:
        saved = load(persist_path) if persist_path else None
        self.state = saved or seed()
        self.core = Core(self.state, clock)
        self.core.suggestions = checked(suggestions, self.state)
        self._views = Views(self.core)
        self._interactions = Interactions(self.core, self._views)
        self._people = People(self.core, self._views)
        self._saver = Saver(self.state, persist_path, self.core.changes) if persist_path else None
        self._web_api = WebApi(self.core, self._views)
        self._page = PageApi(self.core, self._views, self._interactions, self._people)
        self._site = Site(self.core, self._web_api, self._page, self._interactions, port)
        if self._saver is not None:
            self._site.settle = self._saver.settle

    # -- life

    async def start(self) -> None:
        """Listen on 127.0.0.1; OSError when the port is taken."""
        await self._site.start()

    async def stop(self) -> None:
        """Close every socket, save, and stop listening. A second stop does nothing."""
        await self._page.close()
        await self.core.sockets.close()
        await self._site.stop()
        if self._saver:
            self._saver.save_now()

    async def __aenter__(self) -> Workspace:
        await self.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.stop()

    # -- what an app needs to connect

    @property
    def url(self) -> str:
        """The address of the page, without a slash at the end."""
        return self.core.base_url

    @property
    def api_url(self) -> str:
        """The base URL of the Web API, for `base_url=` of slack_sdk."""
        return f"{self.url}/api/"

    @property
    def bot_token(self) -> str:
        """The token of the bot user."""
        return self.state.bot_token

    @property
    def app_token(self) -> str:
        """The app-level token, for Socket Mode."""
        return self.state.app_token

    def suggest(self, suggestions: Iterable[Suggestion]) -> None:
        """Offer these on the page, in place of those before. WorkspaceError: an unknown channel, or nothing to post."""
        self.core.suggestions = checked(suggestions, self.state)
        self.core.changes.tell({"type": "channels"})
