"""`sayso web` as a command: where it listens, what it prints, how it ends."""

from __future__ import annotations

import asyncio
import html
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

import pytest
from aiohttp import ClientSession

from bot.cli.app import run
from bot.config.settings import load_settings
from bot.pages import LOOPBACK
from bot.terminal.console import Exit
from bot.web import server
from bot.web.access import Access
from bot.web.server import Room, running
from engine.language.actors import Actor
from engine.language.codec import decode
from engine.storage.sqlite import open_sqlite
from tests.support import prefork, roomful


@pytest.mark.process
def test_it_prints_an_address_and_ends_with_a_signal(home: Path) -> None:
    """The address has the token behind `#`; SIGTERM ends it in order."""
    command = prefork.front("-m", "bot.cli", "--home", str(home), "web", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert "read-only" in lines[0]
        assert lines[2].strip().startswith("http://127.0.0.1:")
        assert "/#token=" in lines[2]
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().strip() == "Stopped."
    assert process.returncode == Exit.OK


def test_it_listens_beyond_this_machine_only_where_others_have_to_log_in(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a provider every other address is refused, and nothing listens."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        assert run(["--home", str(home), "web", "--host", host]) == Exit.USAGE
        assert "SAYSO_WEB_OIDC_ISSUER" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["SAYSO_WEB_URL", "SAYSO_WEB_OIDC_CLIENT", "SAYSO_WEB_USERS"])
def test_a_login_that_is_set_in_part_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Who set a part of it wants people to log in: the token is no substitute."""
    monkeypatch.setenv(name, "https://sayso.example.com")
    assert run(["--home", str(home), "web"]) == Exit.USAGE
    assert "SAYSO_WEB_OIDC_ISSUER" in capsys.readouterr().err


def logged_in(url: str, token: str) -> OpenerDirector:
    """A browser of whoever has the token."""
    browser = build_opener(HTTPCookieProcessor())
    headers = {"X-Sayso": "1", "Content-Type": "application/json"}
    browser.open(Request(f"{url}/api/login", json.dumps({"token": token}).encode(), headers)).read()
    return browser


def answer(url: str, token: str) -> str:
    """The first page, for whoever has the token."""
    return str(logged_in(url, token).open(f"{url}/").read().decode())


@pytest.mark.process
def test_before_the_first_session_it_says_what_to_do(tmp_path: Path) -> None:
    """The page is there without a database, makes none, and shows the first session once it starts, to the same login."""
    home = tmp_path / "a home"
    command = prefork.front("-m", "bot.cli", "--home", str(home), "web", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        url, _, token = lines[3].strip().partition("/#token=")
        page = html.unescape(answer(url, token))
        assert "No runs yet" in page
        assert f"sayso --home '{home}' run FLOW" in page
        assert not home.exists()
        home.mkdir()
        asyncio.run(roomful.long_one(home / "sayso.db", hosts=1))
        for _ in range(100):
            time.sleep(0.1)
            with suppress(OSError):
                if "nightly-sweep" in answer(url, token):
                    break
        else:
            raise AssertionError("the session never showed")
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().strip() == "Stopped."
    assert process.returncode == Exit.OK


async def test_the_port_stays_the_same_over_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home remembers the port of its page, also where the usual one is free again by then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(server, "PORT", taken.getsockname()[1])
        async with rooms(tmp_path / "sayso.db") as room, running(room, "127.0.0.1", None) as first:
            assert not first.endswith(f":{server.PORT}")
    async with rooms(tmp_path / "sayso.db") as room, running(room, "127.0.0.1", None) as second:
        assert second == first


async def test_a_port_that_is_taken_now_is_left_for_another(tmp_path: Path) -> None:
    """A second page of a home listens elsewhere."""
    async with (
        rooms(tmp_path / "sayso.db") as room,
        running(room, "127.0.0.1", None),
        rooms(tmp_path / "sayso.db") as beside,
        running(beside, "127.0.0.1", None) as other,
        ClientSession() as http,
        http.get(f"{other}/") as answer,
    ):
        assert "Log in" in await answer.text()


@pytest.mark.process
def test_what_is_asked_for_before_the_first_session_is_kept(tmp_path: Path) -> None:
    """A start on a page with changes lies in the inbox of this home, for the bot that runs next."""
    (tmp_path / "flows").mkdir()
    text = "flow: first\nallowed_to_start: ['local:ana']\nnodes: [{id: a, type: noop}]\n"
    (tmp_path / "flows" / "first.yml").write_text(text)
    options = ["--home", str(tmp_path / "home"), "--flows", str(tmp_path / "flows")]
    command = prefork.front("-m", "bot.cli", *options, "web", "--write", "--port", "0")
    environ = {**os.environ, "SAYSO_USER": "ana"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environ) as process:
        assert process.stdout is not None
        address = next(line.strip() for line in process.stdout if "/#token=" in line)
        url, _, token = address.partition("/#token=")
        browser = logged_in(url, token)
        wanted = json.dumps({"flow": "first", "channel": "#ops", "values": {}}).encode()
        asked = Request(f"{url}/api/start", wanted, {"X-Sayso": "1", "Content-Type": "application/json"})
        assert json.loads(browser.open(asked).read())["outcome"] == "queued"
        process.send_signal(signal.SIGTERM)
    with closing(open_sqlite(tmp_path / "home" / "sayso.db")) as store:
        assert [decode(row.payload)["flow"] for row in store.inbox.rows()] == ["first"]


@asynccontextmanager
async def rooms(file: Path) -> AsyncIterator[Room]:
    """A room that does not listen yet."""
    settings = load_settings({}, cwd=file.parent, home=str(file.parent))
    with closing(open_sqlite(file)) as store:
        yield Room(store, settings, Access(Actor.local("ana"), time.monotonic), LOOPBACK, write=False)
