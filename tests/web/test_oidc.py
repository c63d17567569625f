"""Logins by a provider: who gets in, and which tokens and ways back are refused."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jwt
import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar, web
from cryptography.hazmat.primitives.asymmetric import ec
from yarl import URL

from bot.cli.web import _room
from bot.config.settings import SettingsError, load_settings
from bot.web import oidc
from bot.web.oidc import SLACK_ID
from engine.storage.sqlite import open_sqlite
from tests.support.browser import page_port
from tests.web.conftest import Visitor, refuse_to_serve
from tests.web.provider import CLIENT, SECRET, Provider, running_provider

ENV = {
    "SAYSO_WEB_URL": "https://sayso.example.com",
    "SAYSO_WEB_OIDC_ISSUER": "https://slack.com",
    "SAYSO_WEB_OIDC_CLIENT": CLIENT,
    "SAYSO_WEB_OIDC_SECRET": SECRET,
    "SAYSO_WEB_USERS": "U0ANA",
}
ANA = {"email": "ana@example.com", "email_verified": True, "name": "Ana Ruiz", SLACK_ID: "U0ANA"}


@asynccontextmanager
async def behind(
    home: Path, clock: Callable[[], float] = time.monotonic, host: str = "127.0.0.1", **claims: Any
) -> AsyncIterator[tuple[Visitor, Provider]]:
    """A room whose visitors log in by a provider, which says this of the next one."""
    port = page_port()
    async with running_provider() as provider:
        provider.claims = claims
        env = {
            "SAYSO_WEB_URL": f"http://{host}:{port}",
            "SAYSO_WEB_OIDC_ISSUER": provider.issuer,
            "SAYSO_WEB_OIDC_CLIENT": CLIENT,
            "SAYSO_WEB_OIDC_SECRET": SECRET,
            "SAYSO_WEB_USERS": "ana@example.com, U0BEN",
        }
        settings = load_settings(env, cwd=home, home=str(home))
        store = open_sqlite(home / "sayso.db")
        room = _room(settings, store, "127.0.0.1", clock, write=True)
        url = await room.start("127.0.0.1", port)
        try:
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
                yield Visitor(room, store, url, http), provider
        finally:
            await room.stop()
            store.close()


def told(answer: ClientResponse) -> str:
    """Why not, as the way back ends with it: behind `#`, which a browser sends to nobody."""
    return unquote(answer.history[-1].headers["Location"].partition("#problem=")[2])


async def comes_back(visitor: Visitor) -> str:
    """Log in by the provider: as whom, or why not."""
    async with visitor.http.get(f"{visitor.url}/api/oidc") as answer:
        if problem := told(answer):
            return problem
    return str(await visitor.name())


async def test_whoever_is_listed_gets_in_by_a_verified_address(home: Path) -> None:
    """The provider sends them back, and from then on they are told what others are told."""
    async with behind(home, **ANA) as (visitor, _):
        assert await visitor.status("/waiting") == 401
        assert await comes_back(visitor) == "Ana Ruiz"
        assert await visitor.status("/waiting") == 200
        assert (await visitor.post("login", {"token": "x"}))[0] == 403


async def test_whoever_is_listed_gets_in_by_their_id_in_slack(home: Path) -> None:
    """*Sign in with Slack* says it in a claim of its own."""
    async with behind(home, **{SLACK_ID: "U0BEN", "name": "ben"}) as (visitor, _):
        assert await comes_back(visitor) == "ben"


OTHERS: list[dict[str, Any]] = [
    {},
    {**ANA, "email": "eve@example.com", SLACK_ID: "U0EVE"},
    {"email": "ana@example.com", "email_verified": "true"},
    {"email": "ana@example.com"},
]


async def test_others_are_refused(home: Path) -> None:
    """An address that the provider has not verified is no address."""
    async with behind(home) as (visitor, provider):
        for claims in OTHERS:
            provider.claims = claims
            assert "not listed" in await comes_back(visitor), claims
            assert await visitor.status("/waiting") == 401, claims


LIES: list[dict[str, Any]] = [
    {"key": ec.generate_private_key(ec.SECP256R1())},
    {"alg": "HS256", "key": "a secret of thirty-two bytes or more"},
    {"alg": "none", "key": None},
    {"aud": "another"},
    {"aud": [CLIENT, "another"], "azp": "another"},
    {"iss": "https://evil.example"},
    {"exp": 1_700_000_000},
    {"nonce": "of another login"},
    {"nonce": None},
]


async def test_a_token_that_is_not_for_this_login_is_refused(home: Path) -> None:
    """Of another signer, for another client, from another issuer, too old, or for another login."""
    async with behind(home, **ANA) as (visitor, provider):
        for lies in LIES:
            provider.lies = lies
            assert "does not verify" in await comes_back(visitor), lies
            assert await visitor.status("/waiting") == 401, lies


async def goes_there(http: ClientSession, url: str) -> str:
    """Log in at the provider: the address to which it sends somebody back."""
    async with http.get(f"{url}/api/oidc", allow_redirects=False) as answer:
        there = answer.headers["Location"]
    async with http.get(there, allow_redirects=False) as answer:
        return answer.headers["Location"]


async def test_a_way_back_that_did_not_begin_in_this_browser_is_refused(home: Path) -> None:
    """Nobody is logged in as somebody else by a link; whoever tries it ends nothing for whom it is, and they walk it
    once."""
    async with behind(home, **ANA) as (visitor, _), ClientSession(cookie_jar=CookieJar(unsafe=True)) as other:
        back = await goes_there(other, visitor.url)
        async with visitor.http.get(back) as answer:
            assert "was not started here" in told(answer)
        assert await visitor.status("/waiting") == 401
        async with other.get(back) as answer:
            assert told(answer) == ""
        async with other.get(back) as answer:
            assert "was not started here" in told(answer), "the cookie was used up"


async def test_a_state_that_is_not_compared_is_noticed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: where any state will do, a browser that began a login takes the way back of another one."""
    monkeypatch.setattr(oidc, "compare_digest", lambda one, two: True)
    async with behind(home, **ANA) as (visitor, _), ClientSession(cookie_jar=CookieJar(unsafe=True)) as other:
        back = await goes_there(other, visitor.url)
        await goes_there(visitor.http, visitor.url)
        async with visitor.http.get(back) as answer:
            assert "was not started here" not in told(answer)
        monkeypatch.undo()
        await goes_there(visitor.http, visitor.url)
        async with visitor.http.get(back) as answer:
            assert "was not started here" in told(answer)


async def test_nobody_pushes_out_the_login_of_another(home: Path) -> None:
    """However many logins are begun by others meanwhile, one comes about."""
    async with behind(home, **ANA) as (visitor, _), ClientSession() as others:
        back = await goes_there(visitor.http, visitor.url)
        for _ in range(501):
            async with others.get(f"{visitor.url}/api/oidc", allow_redirects=False) as answer:
                assert answer.status == 302
        async with visitor.http.get(back):
            assert await visitor.name() == "Ana Ruiz"


async def test_a_login_that_takes_too_long_is_refused(home: Path) -> None:
    """Ten minutes after it began its cookie counts for nothing, even where a browser still sends it."""
    now = [0.0]
    async with behind(home, clock=lambda: now[0], **ANA) as (visitor, _):
        back = await goes_there(visitor.http, visitor.url)
        now[0] = 601.0
        async with visitor.http.get(back) as answer:
            assert "too long ago" in told(answer)


async def test_a_cookie_that_was_made_elsewhere_is_refused(home: Path) -> None:
    """Who writes their own state, nonce and verifier into a browser gets nowhere: unsigned, or signed by another
    key."""
    async with behind(home, **ANA) as (visitor, _):
        back = await goes_there(visitor.http, visitor.url)
        jar = visitor.http.cookie_jar
        [mine] = [cookie.value for cookie in jar if cookie.key == "sayso-oidc"]
        claims = jwt.decode(mine, options={"verify_signature": False})
        forged = [
            jwt.encode(claims, "another key of thirty-two bytes or more", algorithm="HS256"),
            jwt.encode(claims, None, algorithm="none"),
            mine[:-4] + ("AAAA" if mine[-4:] != "AAAA" else "BBBB"),
            "",
            "é",
        ]
        for cookie in forged:
            jar.update_cookies({"sayso-oidc": cookie}, URL(visitor.url))
            async with visitor.http.get(back) as answer:
                assert "was not started here" in told(answer)
        jar.update_cookies({"sayso-oidc": mine}, URL(visitor.url))
        async with visitor.http.get(back) as answer:
            assert told(answer) == ""


async def test_the_cookie_of_a_login_is_for_this_page_alone(home: Path) -> None:
    """Behind https its name begins with `__Host-`; no script reads it, and it is forgotten after ten minutes."""
    async with running_provider() as provider:
        env = {**ENV, "SAYSO_WEB_OIDC_ISSUER": provider.issuer}
        settings = load_settings(env, cwd=home, home=str(home))
        with closing(open_sqlite(home / "sayso.db")) as store:
            room = _room(settings, store, "127.0.0.1", time.monotonic, write=False)
            url = await room.start("127.0.0.1", 0)
            try:
                async with (
                    ClientSession() as http,
                    http.get(
                        f"{url}/api/oidc", headers={"Host": "sayso.example.com"}, allow_redirects=False
                    ) as answer,
                ):
                    cookie = answer.headers["Set-Cookie"]
            finally:
                await room.stop()
    assert cookie.startswith("__Host-sayso-oidc=")
    assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/", "Max-Age=600"} <= set(cookie.split("; "))
    assert "Domain" not in cookie


@pytest.mark.parametrize(
    "changed",
    [
        {"SAYSO_WEB_OIDC_SECRET": None},
        {"SAYSO_WEB_URL": "http://sayso.example.com"},
        {"SAYSO_WEB_OIDC_ISSUER": "http://idp.example.com"},
        {"SAYSO_WEB_USERS": None},
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(
    tmp_path: Path, changed: dict[str, str | None]
) -> None:
    """Something is missing, goes over the network in the clear, or names nobody."""
    refuse_to_serve(tmp_path, {**ENV, **changed})


def test_without_authlib_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with an extra, and nothing listens without it."""
    monkeypatch.setitem(sys.modules, "authlib.integrations.httpx_client", None)
    settings = load_settings(ENV, cwd=tmp_path, home=str(tmp_path))
    with closing(open_sqlite(tmp_path / "sayso.db")) as store, pytest.raises(SettingsError) as refused:
        _room(settings, store, "0.0.0.0", time.monotonic, write=False)
    assert "pip install 'sayso[web]'" in str(refused.value)


async def test_a_provider_that_is_away_is_said(home: Path) -> None:
    """Whoever wants to log in meanwhile comes back to the page with the reason."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.issuer = "https://somebody.else"
        assert "issuer is not the one" in await comes_back(visitor)


async def test_a_provider_that_does_not_say_where_its_doors_are_is_refused(home: Path) -> None:
    """Each address has to be there and to be https; the code and the secret go nowhere in the clear."""
    ends = {
        "token_endpoint": None,
        "jwks_uri": "http://example.com/keys",
        "authorization_endpoint": "javascript:x",
    }
    async with behind(home, **ANA) as (visitor, provider):
        for name, address in ends.items():
            provider.ends = {name: address}
            assert f"{name} is not an https address" in await comes_back(visitor)


async def test_an_address_of_the_provider_may_have_a_query(home: Path) -> None:
    """What some providers put there, a policy or a tenant, is kept beside what is asked."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.ends = {"authorization_endpoint": f"{provider.issuer}/authorize?p=sign_in"}
        assert await comes_back(visitor) == "Ana Ruiz"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys"])
async def test_what_a_provider_answers_otherwise_is_said(home: Path, path: str) -> None:
    """No redirect is followed, with the secret in the request or without, and what is no document logs nobody in."""
    followed = []

    async def elsewhere() -> web.Response:
        followed.append(path)
        return web.json_response({})

    async with behind(home, **ANA) as (visitor, provider):
        there = {"Location": f"{provider.issuer}/elsewhere"}
        for status, body in ((302, b"{}"), (503, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b"\xff")):

            async def odd(status: int = status, body: bytes = body) -> web.Response:
                return web.Response(status=status, body=body, headers=there)

            provider.instead = {path: odd, "/elsewhere": elsewhere}
            assert "provider" in (await comes_back(visitor)).lower(), (status, body)
            assert followed == [], (status, body)
            assert await visitor.status("/waiting") == 401, (status, body)


async def test_a_code_that_the_provider_refuses_is_said(home: Path) -> None:
    """What it calls the reason is passed on, and no more of it."""
    async with behind(home, **ANA) as (visitor, provider):

        async def refused() -> web.Response:
            return web.json_response({"error": "invalid_grant", "error_description": "x" * 9}, status=400)

        provider.instead = {"/token": refused}
        assert await comes_back(visitor) == "The provider refused the login: invalid_grant."


async def test_a_provider_that_does_not_answer_is_waited_for_no_longer_than_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wants to log in reads that it cannot be reached."""
    monkeypatch.setattr("bot.web.oidc._PROVIDER_SECONDS", 0.2)
    async with behind(home, **ANA) as (visitor, provider):

        async def slow() -> web.Response:
            await asyncio.sleep(2)
            return web.Response()

        provider.instead = {"/.well-known/openid-configuration": slow}
        assert "cannot be reached" in await comes_back(visitor)


async def test_a_key_of_a_kind_that_nobody_knows_hides_no_other(home: Path) -> None:
    """Providers add keys of newer kinds before they sign with them."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.more_keys = [{"kty": "AKP", "kid": "new", "alg": "ML-DSA-44", "pub": "AA"}]
        assert await comes_back(visitor) == "Ana Ruiz"
