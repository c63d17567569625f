"""A control room over a database with sessions of several kinds, and somebody who is logged in."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from yarl import URL

from bot.cli.web import _room
from bot.config.settings import SettingsError, load_settings
from bot.pages import LOOPBACK
from bot.web.access import Access
from bot.web.server import Room
from engine.language.actors import Actor
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from tests.support import roomful

Json = dict[str, Any]
PROGRAM = {"Accept": "application/json"}
ANA = Actor.local("ana")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with 20 sessions, of which nobody changes anything."""
    home = tmp_path_factory.mktemp("made")
    asyncio.run(roomful.fill(home / "sayso.db", 20))
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """A copy of that home."""
    for file in made.glob("sayso.db*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


@dataclass
class Visitor:
    """Somebody with a browser of their own: requests, with the cookies that they were given."""

    room: Room
    store: Store
    url: str
    http: ClientSession

    async def get(self, path: str, /, **query: Any) -> Json:
        """A document, as a program gets it."""
        async with self.http.get(f"{self.url}/{path}", params=query, headers=PROGRAM) as answer:
            told: Json = await answer.json()
            assert answer.status == 200, told
            return told

    async def status(self, path: str, /, **query: Any) -> int:
        """With which status a request is answered."""
        async with self.http.get(f"{self.url}{path}", params=query, headers=PROGRAM) as answer:
            return answer.status

    async def page(self, path: str, /, **query: Any) -> str:
        """A page, as a person gets it."""
        async with self.http.get(f"{self.url}/{path}", params=query) as answer:
            assert answer.status == 200
            return await answer.text()

    async def name(self) -> str | None:
        """As whom the page shows somebody to be logged in; None where it asks for a login."""
        async with self.http.get(f"{self.url}/") as answer:
            found = re.search('class="who-name">([^<]*)<', await answer.text())
            return html.unescape(found[1]) if found else None

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Json]:
        """Send something as the page does: the status, and what is told."""
        sent = {"X-Sayso": "1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.http.post(f"{self.url}/api/{path}", json=body, headers=sent) as answer:
            return answer.status, await answer.json()

    async def log_in(self) -> None:
        """Log in with the token."""
        assert await self.post("login", {"token": self.room.access.token}) == (200, {"ok": True})

    def log_in_as(self, actor: Actor) -> None:
        """Be somebody whom a provider has logged in."""
        key = self.room.access.login(actor)
        self.http.cookie_jar.update_cookies({self.room.access.cookie: key}, URL(self.url))

    async def all_read(self) -> None:
        """Return once the room has read all sessions."""
        while not (await self.get("sessions"))["complete"]:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)


def refuse_to_serve(home: Path, given: Mapping[str, str | None]) -> None:
    """With these settings, without those that are None, nothing is served to others."""
    environ = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(environ, cwd=home, home=str(home))
    with closing(open_sqlite(home / "sayso.db")) as store, pytest.raises(SettingsError):
        _room(settings, store, "0.0.0.0", time.monotonic, write=False)


@asynccontextmanager
async def visited(
    home: Path, *, write: bool = False, access: Access | None = None, keys: Sequence[bytes] = ()
) -> AsyncIterator[Visitor]:
    """A room over the database of a home, and somebody who came there."""
    settings = load_settings({}, cwd=home, home=str(home))
    store = open_sqlite(home / "sayso.db", encryption_keys=keys)
    room = Room(store, settings, access or Access(ANA, time.monotonic), LOOPBACK, write=write)
    url = await room.start("127.0.0.1", 0)
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
            yield Visitor(room, store, url, http)
    finally:
        await room.stop()
        store.close()


@pytest.fixture
async def visitor(home: Path) -> AsyncIterator[Visitor]:
    """Somebody who is logged in to a room that only shows, and has read all sessions."""
    async with visited(home) as found:
        await found.log_in()
        await found.all_read()
        yield found
