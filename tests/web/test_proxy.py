"""Logins by a proxy in front: whom it vouches for gets in, and nothing else does."""

from __future__ import annotations

import asyncio
import html
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar
from multidict import CIMultiDict

from bot.cli.web import _room
from bot.config.settings import load_settings
from bot.web import proxy
from bot.web.proxy import SECRET
from engine.language.actors import Actor
from engine.language.codec import decode
from engine.storage.sqlite import open_sqlite
from tests.web.conftest import Json, Visitor, refuse_to_serve

PROOF = "0123456789abcdef0123456789abcdef"
WHO = "X-Auth-Request-Email"
ENV = {
    "SAYSO_WEB_URL": "https://sayso.example.com",
    "SAYSO_WEB_PROXY_HEADER": WHO,
    "SAYSO_WEB_PROXY_SECRET": PROOF,
    "SAYSO_WEB_USERS": "ana@example.com, U0BEN",
}
Headers = list[tuple[str, str]]


@asynccontextmanager
async def behind(home: Path) -> AsyncIterator[Visitor]:
    """A room behind a proxy, and somebody who reaches its port."""
    settings = load_settings(ENV, cwd=home, home=str(home))
    with closing(open_sqlite(home / "sayso.db")) as store:
        room = _room(settings, store, "127.0.0.1", time.monotonic, write=True)
        url = await room.start("127.0.0.1", 0)
        try:
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
                yield Visitor(room, store, url, http)
        finally:
            await room.stop()


async def page(visitor: Visitor, *headers: tuple[str, str]) -> str:
    """The page that somebody sees whom the proxy passes on with these very headers, as a client would not send them."""
    return html.unescape((await _answer(visitor, "waiting", *headers))[1])


async def asks(visitor: Visitor, path: str, *headers: tuple[str, str]) -> tuple[int, Json]:
    """The same for a program: the status, and what is told."""
    status, body = await _answer(visitor, path, ("Accept", "application/json"), *headers)
    return status, json.loads(body)


async def _answer(visitor: Visitor, path: str, *headers: tuple[str, str]) -> tuple[int, str]:
    host, port = visitor.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{name}: {value}" for name, value in (("Host", "sayso.example.com"), *headers)]
    text = "\r\n".join([f"GET /{path} HTTP/1.1", *lines, "Connection: close", "", ""])
    writer.write(text.encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"set-cookie" not in head.lower()
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize(
    ("who", "called"),
    [("ana@example.com", "ana@example.com"), ("Ana@Example.com", "Ana@Example.com"), ("U0BEN", "U0BEN")],
)
async def test_whom_the_proxy_vouches_for_gets_in(home: Path, who: str, called: str) -> None:
    """By a listed address, however it is written, or a listed id of Slack; there is no cookie, and every request is looked at."""
    async with behind(home) as visitor:
        vouched = ((SECRET, PROOF), (WHO, who))
        assert f'class="who-name">{called}<' in (shown := await page(visitor, *vouched))
        assert "log out" not in shown
        assert (await asks(visitor, "waiting", *vouched))[0] == 200
        assert (await asks(visitor, "waiting"))[0] == 401


ANA = (WHO, "ana@example.com")
PROVED = (SECRET, PROOF)


ATTACKS: list[tuple[Headers, str]] = [
    ([], "did not come through the proxy"),
    ([ANA], "did not come through the proxy"),
    ([ANA, (SECRET, "")], "did not come through the proxy"),
    ([ANA, (SECRET, PROOF[:-1])], "did not come through the proxy"),
    ([ANA, (SECRET, PROOF + "0")], "did not come through the proxy"),
    ([ANA, (SECRET, PROOF.upper())], "did not come through the proxy"),
    ([ANA, (SECRET, f"{PROOF}, {PROOF}")], "did not come through the proxy"),
    ([ANA, (SECRET, "é" * 32)], "did not come through the proxy"),
    ([ANA, PROVED, PROVED], "did not come through the proxy"),
    ([ANA, (SECRET, "wrong"), PROVED], "did not come through the proxy"),
    ([ANA, ("X_Sayso_Secret", PROOF)], "did not come through the proxy"),
    ([ANA, ("Authorization", f"Bearer {PROOF}")], "did not come through the proxy"),
    ([ANA, ("Cookie", f"{SECRET}={PROOF}")], "did not come through the proxy"),
    ([PROVED], "it came 0 times"),
    ([PROVED, ANA, ANA], "it came 2 times"),
    ([PROVED, ANA, (WHO, "U0BEN")], "it came 2 times"),
    ([PROVED, ANA, (WHO.lower(), "eve@example.com")], "it came 2 times"),
    ([PROVED, ("X_Auth_Request_Email", "ana@example.com")], "it came 0 times"),
    ([PROVED, ("X-Forwarded-Email", "ana@example.com")], "it came 0 times"),
    *(
        ([PROVED, (WHO, name)], "neither a Slack ID nor an e-mail address")
        for name in (
            "",
            "ana",
            "local:ana",
            "u0ben",
            "U0BEN, U0EVE",
            "ana@example.com, eve@example.com",
            "ana@example.com,eve@example.com",
            "eve@example.com;ana@example.com",
            "Ana <ana@example.com>",
            '"ana@example.com"',
            "ana@example.com eve",
            "ana@example.com\tx",
            "ana@example.com@evil.example",
            "аna@example.com",
            "ana@exampleꓸcom",
            "ana@\u212aexample.com",
            "ana%40example.com",
            f"{'a' * 65}@example.com",
            f"ana@{'e' * 200}.com",
            "*",
        )
    ),
    ([PROVED, (WHO, "eve@example.com")], "not listed"),
    ([PROVED, (WHO, "U0EVE")], "not listed"),
    ([PROVED, (WHO, "ana@example.com.evil.example")], "not listed"),
    ([PROVED, (WHO, "xana@example.com")], "not listed"),
]


async def refused(home: Path, attacks: list[tuple[Headers, str]]) -> None:
    """Nobody gets in by any of these headers, and the page says why not in one sentence."""
    async with behind(home) as visitor:
        for headers, said in attacks:
            status, told = await asks(visitor, "waiting", *headers)
            assert (status, told.get("error")) == (401, "login"), headers
            assert said in told["message"], headers
            assert told["message"].count(". ") == 0
            assert PROOF not in told["message"]
            shown = await page(visitor, *headers)
            assert f">{told['message']}</p>" in shown
            assert "Who waits" not in shown


async def test_what_the_proxy_does_not_vouch_for_is_refused(home: Path) -> None:
    """Without its secret no name counts, and with it one name alone that is listed."""
    await refused(home, ATTACKS)


async def test_a_secret_that_is_not_compared_is_noticed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: where any secret will do, the list of attacks above fails."""
    monkeypatch.setattr(proxy, "compare_digest", lambda one, two: True)
    with pytest.raises(AssertionError):
        await refused(home, [([ANA, (SECRET, "wrong")], "through")])


async def test_there_is_no_other_way_in(home: Path) -> None:
    """Neither a token, nor a cookie, nor a provider, nor an address lets anybody in beside the proxy."""
    async with behind(home) as visitor:
        host = {"Host": "sayso.example.com", "X-Sayso": "1", "Origin": "https://sayso.example.com"}
        for token in ("x", PROOF, None):
            sent = visitor.http.post(f"{visitor.url}/api/login", json={"token": token}, headers=host)
            async with sent as answer:
                assert answer.status == 403
        cookie = f"{visitor.room.access.cookie}={visitor.room.access.login(Actor.local('ana'))}"
        assert (await asks(visitor, "waiting", ("Cookie", cookie)))[0] == 401
        async with visitor.http.get(f"{visitor.url}/api/oidc", headers=host) as answer:
            assert answer.status == 404
        assert (await asks(visitor, f"waiting?{SECRET}={PROOF}&{WHO}=ana@example.com"))[0] == 401


async def test_what_another_page_sends_by_the_proxy_changes_nothing(home: Path) -> None:
    """The proxy vouches for whoever's browser asks, so what a form of another site can send is refused as ever."""
    async with behind(home) as visitor:
        for odd in (
            [("Origin", "https://evil.example"), ("X-Sayso", "1")],
            [("Origin", "http://sayso.example.com"), ("X-Sayso", "1")],
            [("Origin", "https://sayso.example.com")],
        ):
            headers = CIMultiDict([("Host", "sayso.example.com"), PROVED, ANA, *odd])
            async with visitor.http.post(f"{visitor.url}/api/act", json={}, headers=headers) as answer:
                assert answer.status == 403, odd


async def test_one_acts_as_the_id_of_slack_that_the_proxy_says(home: Path) -> None:
    """A request is that person's; with an address alone one only looks."""
    async with behind(home) as visitor:
        _, found = await asks(visitor, "sessions?status=paused", PROVED, ANA)
        body = {"session": found["sessions"][0]["sessionId"], "do": "abort"}
        answers = []
        for who in ("ana@example.com", "U0BEN"):
            headers = CIMultiDict([("Host", "sayso.example.com"), PROVED, (WHO, who), ("X-Sayso", "1")])
            async with visitor.http.post(f"{visitor.url}/api/act", json=body, headers=headers) as answer:
                answers.append((answer.status, (await answer.json()).get("error")))
        assert answers == [(400, "not_allowed"), (200, None)]
        assert [decode(row.payload)["user"] for row in visitor.store.inbox.rows()] == ["U0BEN"]


@pytest.mark.parametrize(
    "changed",
    [
        {"SAYSO_WEB_URL": None},
        {"SAYSO_WEB_URL": "http://sayso.example.com"},
        {"SAYSO_WEB_PROXY_HEADER": None},
        {"SAYSO_WEB_PROXY_HEADER": "X-Sayso-Secret"},
        {"SAYSO_WEB_PROXY_HEADER": "X User"},
        {"SAYSO_WEB_PROXY_HEADER": "X-User:"},
        {"SAYSO_WEB_PROXY_SECRET": None},
        {"SAYSO_WEB_PROXY_SECRET": "short"},
        {"SAYSO_WEB_PROXY_SECRET": "a secret of several words that is long"},
        {"SAYSO_WEB_USERS": None},
        {"SAYSO_WEB_OIDC_ISSUER": "https://slack.com"},
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(
    tmp_path: Path, changed: dict[str, str | None]
) -> None:
    """Something is missing, can be guessed, goes over the network in the clear, or names nobody."""
    refuse_to_serve(tmp_path, {**ENV, **changed})
