"""Whom the control room lets in, and what it refuses: hosts, origins, tokens, paths, markup."""

from __future__ import annotations

import asyncio
import time
from itertools import product
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request

from bot.cli.web import _room
from bot.config.settings import load_settings
from bot.web.access import SECONDS, Access
from engine.storage.sqlite import open_sqlite
from tests.web.conftest import ANA, PROGRAM, Visitor, visited

READ = (
    "",
    "sessions",
    "sessions/session-1",
    "sessions/session-1/events/1",
    "waiting",
    "queues",
    "spend",
    "compare",
    "api/live",
    "nothing",
)


async def test_nothing_is_told_without_a_login(home: Path) -> None:
    """Every address but the login wants one: a program is refused, and a person is asked to log in."""
    async with visited(home) as stranger:
        for path in READ:
            assert await stranger.status(f"/{path}") == 401, path
            async with stranger.http.get(f"{stranger.url}/{path}") as answer:
                text = await answer.text()
            assert "restore-database" not in text, path
            assert "<h1>Log in</h1>" in text or '"error": "login"' in text, path


async def test_no_way_of_writing_an_address_is_let_in(visitor: Visitor) -> None:
    """What may be read without a login is no way around it."""
    around = ("/page/../", "/page/%2e%2e/", "/api/login/../../", "//", "/./")
    for path in around:
        assert b"restore-database" not in await raw(visitor, f"{path}sessions"), path


async def test_a_login_needs_the_token_and_ends(home: Path) -> None:
    """The token that was printed logs in; after a log-out, and after its time, nothing is told."""
    now = [0.0]
    async with visited(home, access=Access(ANA, lambda: now[0])) as visitor:
        await visitor.log_in()
        assert await visitor.status("/waiting") == 200
        assert (await visitor.post("logout", {}))[0] == 200
        assert await visitor.status("/waiting") == 401
        await visitor.log_in()
        now[0] = SECONDS
        assert await visitor.status("/waiting") == 401


async def test_the_cookie_is_for_this_page_alone(home: Path) -> None:
    """No script reads it, no other site sends it, and a page at another port has another one."""
    async with visited(home) as visitor:
        body = {"token": visitor.room.access.token}
        async with visitor.http.post(
            f"{visitor.url}/api/login", json=body, headers={"X-Sayso": "1"}
        ) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"sayso-{visitor.url.rsplit(':', 1)[1]}=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}


async def test_wrong_tokens_lock_nobody_out(home: Path) -> None:
    """A wrong token is refused, and after any number of them the right one still logs in."""
    async with visited(home) as visitor:
        for wrong in ["", "x", "é" * 9, None, 7, *["guess"] * 10]:
            assert (await visitor.post("login", {"token": wrong}))[0] == 403
        await visitor.log_in()


async def test_behind_https_a_cookie_is_of_this_host_alone() -> None:
    """Its name begins with `__Host-`, and it is set and forgotten as browsers want it of such a name."""
    access = Access(ANA, time.monotonic)
    access.secure = True
    access.cookie = access.named("sayso-1")
    answer = web.Response()
    access.keep(answer, "key")
    access.drop(answer, access.named("sayso-oidc"))
    for name, cookie in answer.cookies.items():
        assert name.startswith("__Host-sayso-")
        assert (cookie["secure"], cookie["path"], cookie["domain"]) == (True, "/", "")


async def test_other_hosts_and_origins_are_refused(visitor: Visitor) -> None:
    """Neither a rebound name nor a page of the web gets anything, logged in or not."""
    others = [
        ("Host", "evil.example"),
        ("Host", "evil.example:80"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
    ]
    for header, path in product(others, ["/", "/page/live.js", "/sessions", "/api/live"]):
        async with visitor.http.get(f"{visitor.url}{path}", headers=[header]) as answer:
            assert answer.status == 403, (header, path)


async def test_a_form_of_another_page_changes_nothing(home: Path) -> None:
    """What changes something needs a header that no form can set, and JSON."""
    async with visited(home, write=True) as visitor:
        await visitor.log_in()
        assert (await visitor.post("act", {}, X_Sayso="0"))[0] == 403
        sent = {"X-Sayso": "1"}
        async with visitor.http.post(f"{visitor.url}/api/act", data={"do": "abort"}, headers=sent) as answer:
            assert answer.status == 415


OUTSIDE = (
    "/page/../server.py",
    "/page/%2e%2e/server.py",
    "/page/..%2fserver.py",
    "/page//etc/passwd",
    "/page/%2fetc%2fpasswd",
    "/page/../../access.py",
    "/page/server.py",
    "/page/",
    "/page/views/base.html",
    "/page/..%2fviews%2fbase.html",
)


async def test_only_files_of_the_page_are_given(home: Path) -> None:
    """No path leads out of the folders of the page."""
    async with visited(home) as stranger:
        for path in OUTSIDE:
            answer = await raw(stranger, path, Accept="application/json")
            assert answer.split()[1] in (b"401", b"404", b"400"), (path, answer[:200])
            assert b"import" not in answer, path
            assert b"{%" not in answer, path


async def raw(visitor: Visitor, path: str, **headers: str) -> bytes:
    """What is answered to whoever has no cookie, and writes the address as it stands here."""
    host, port = visitor.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{name}: {value}" for name, value in {"Host": f"{host}:{port}", **headers}.items()]
    writer.write("\r\n".join([f"GET {path} HTTP/1.1", *lines, "Connection: close", "", ""]).encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_every_answer_says_how_it_is_to_be_treated(visitor: Visitor) -> None:
    """Pages, data and refusals run no script but the page's own, are never guessed at, and data is not kept."""
    for path in ("/", "/page/live.js", "/sessions", "/sessions/none", "/nothing", "/api/act"):
        async with visitor.http.get(f"{visitor.url}{path}") as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            kept = "no-cache" if path.startswith("/page") else "no-store"
            assert answer.headers["Cache-Control"] == kept


async def test_a_page_that_only_shows_changes_nothing(visitor: Visitor) -> None:
    """Without --write every change is refused, whoever asks."""
    for path, body in (
        ("act", {"session": "session-1", "do": "abort"}),
        ("letter", {"key": "k", "again": False}),
    ):
        status, told = await visitor.post(path, body)
        assert (status, told["error"]) == (403, "read_only")


async def test_logins_are_no_more_than_so_many() -> None:
    """Whoever logs in again and again pushes out their own oldest logins, and memory stays what it is."""
    access = Access(ANA, time.monotonic)
    keys = [access.login(ANA) for _ in range(1_001)]
    with pytest.raises(PermissionError):
        access.of(_with_cookie(access.cookie, keys[0]))
    for key in (keys[1], keys[-1]):
        assert access.of(_with_cookie(access.cookie, key)).actor == ANA


def _with_cookie(name: str, value: str) -> web.Request:
    return make_mocked_request("GET", "/", headers={"Cookie": f"{name}={value}"})


async def test_an_address_of_ipv6_is_served(home: Path) -> None:
    """`--host ::1` is answered at the address that is printed, in brackets as browsers send it, and no other is."""
    settings = load_settings({}, cwd=home, home=str(home))
    store = open_sqlite(home / "sayso.db")
    room = _room(settings, store, "::1", time.monotonic, write=False)
    port = (await room.start("::1", 0)).rpartition(":")[2]
    try:
        async with ClientSession() as http:
            for host, status in ((f"[::1]:{port}", 200), (f"[::2]:{port}", 403), (f"::1:{port}", 403)):
                async with http.get(f"http://[::1]:{port}/", headers={"Host": host}) as answer:
                    assert answer.status == status, host
    finally:
        await room.stop()
        store.close()


async def test_a_fault_of_the_page_is_said_in_words(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody foresaw is told as an error with what to do, with the headers of every answer and without its text."""

    def broken(*given: object) -> None:
        raise RuntimeError("the secret")

    monkeypatch.setattr("bot.web.documents.session", broken)
    some = (await visitor.get("sessions"))["sessions"][0]["sessionId"]
    for headers in (PROGRAM, {}):
        async with visitor.http.get(f"{visitor.url}/sessions/{some}", headers=headers) as answer:
            told = await answer.text()
        assert answer.status == 500
        assert "The log of" in told
        assert "secret" not in told
        assert "Content-Security-Policy" in answer.headers
