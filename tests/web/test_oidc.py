"""Logins by a provider: who gets in, and which tokens and ways back are refused."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar
from cryptography.hazmat.primitives.asymmetric import ec

from bot.cli.web import _room
from bot.config.settings import SettingsError, load_settings
from bot.web.oidc import SLACK_ID
from engine.storage.sqlite import open_sqlite
from tests.support.browser import page_port
from tests.web.conftest import Visitor
from tests.web.provider import CLIENT, SECRET, Provider, running_provider

ANA = {"email": "ana@example.com", "email_verified": True, "name": "Ana Ruiz", SLACK_ID: "U0ANA"}


@asynccontextmanager
async def behind(home: Path, **claims: Any) -> AsyncIterator[tuple[Visitor, Provider]]:
    """A room whose visitors log in by a provider, which says this of the next one."""
    port = page_port()
    async with running_provider() as provider:
        provider.claims = claims
        env = {
            "SAYSO_WEB_URL": f"http://127.0.0.1:{port}",
            "SAYSO_WEB_OIDC_ISSUER": provider.issuer,
            "SAYSO_WEB_OIDC_CLIENT": CLIENT,
            "SAYSO_WEB_OIDC_SECRET": SECRET,
            "SAYSO_WEB_USERS": "ana@example.com, U0BEN",
        }
        settings = load_settings(env, cwd=home, home=str(home))
        store = open_sqlite(home / "sayso.db")
        room = _room(settings, store, "127.0.0.1", time.monotonic, write=True)
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
    return str((await visitor.get("me"))["name"])


async def test_whoever_is_listed_gets_in_by_a_verified_address(home: Path) -> None:
    """The provider sends them back, and from then on they are told what others are told."""
    async with behind(home, **ANA) as (visitor, _):
        assert await visitor.status("/api/facets") == 401
        assert await comes_back(visitor) == "Ana Ruiz"
        assert await visitor.status("/api/facets") == 200
        assert (await visitor.post("login", {"token": "x"}))[0] == 403


async def test_whoever_is_listed_gets_in_by_their_id_in_slack(home: Path) -> None:
    """*Sign in with Slack* says it in a claim of its own."""
    async with behind(home, **{SLACK_ID: "U0BEN", "name": "ben"}) as (visitor, _):
        assert await comes_back(visitor) == "ben"


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {**ANA, "email": "eve@example.com", SLACK_ID: "U0EVE"},
        {"email": "ana@example.com", "email_verified": "true"},
        {"email": "ana@example.com"},
    ],
    ids=["nobody", "somebody else", "verified in words", "not verified"],
)
async def test_others_are_refused(home: Path, claims: dict[str, Any]) -> None:
    """An address that the provider has not verified is no address."""
    async with behind(home, **claims) as (visitor, _):
        assert "not listed" in await comes_back(visitor)
        assert await visitor.status("/api/facets") == 401


@pytest.mark.parametrize(
    "lies",
    [
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"alg": "HS256", "key": "a secret of thirty-two bytes or more"},
        {"alg": "none", "key": None},
        {"aud": "another"},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_000_000},
        {"nonce": "of another login"},
        {"nonce": None},
    ],
    ids=["key", "symmetric", "unsigned", "audience", "party", "issuer", "expired", "nonce", "no nonce"],
)
async def test_a_token_that_is_not_for_this_login_is_refused(home: Path, lies: dict[str, Any]) -> None:
    """Of another signer, for another client, from another issuer, too old, or for another login."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.lies = lies
        assert "provider says" in await comes_back(visitor)
        assert await visitor.status("/api/facets") == 401


async def test_a_way_back_that_did_not_begin_in_this_browser_is_refused(home: Path) -> None:
    """Nobody is logged in as somebody else by a link; a way back is walked once."""
    async with behind(home, **ANA) as (visitor, _), ClientSession(cookie_jar=CookieJar(unsafe=True)) as other:
        async with other.get(f"{visitor.url}/api/oidc", allow_redirects=False) as answer:
            there = answer.headers["Location"]
        async with other.get(there, allow_redirects=False) as answer:
            back = answer.headers["Location"]
        async with visitor.http.get(back) as answer:
            assert "did not begin here" in told(answer)
        async with other.get(back) as answer:
            assert "did not begin here" in told(answer), "the state was used up"
        assert await visitor.status("/api/facets") == 401


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
    env = {
        "SAYSO_WEB_URL": "https://sayso.example.com",
        "SAYSO_WEB_OIDC_ISSUER": "https://slack.com",
        "SAYSO_WEB_OIDC_CLIENT": CLIENT,
        "SAYSO_WEB_OIDC_SECRET": SECRET,
        "SAYSO_WEB_USERS": "U0ANA",
        **changed,
    }
    given = {name: value for name, value in env.items() if value is not None}
    settings = load_settings(given, cwd=tmp_path, home=str(tmp_path))
    store = open_sqlite(tmp_path / "sayso.db")
    with pytest.raises(SettingsError):
        _room(settings, store, "0.0.0.0", time.monotonic, write=False)
    store.close()


async def test_a_provider_that_is_away_is_said(home: Path) -> None:
    """Whoever wants to log in meanwhile comes back to the page with the reason."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.issuer = "https://somebody.else"
        assert "calls itself otherwise" in await comes_back(visitor)


@pytest.mark.parametrize(
    "ends",
    [
        {"token_endpoint": None},
        {"jwks_uri": "http://example.com/keys"},
        {"authorization_endpoint": "javascript:x"},
    ],
)
async def test_a_provider_that_does_not_say_where_its_doors_are_is_refused(
    home: Path, ends: dict[str, Any]
) -> None:
    """Each address has to be there and to be https; the code and the secret go nowhere in the clear."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.ends = ends
        assert f"{next(iter(ends))} is no https address" in await comes_back(visitor)


async def test_an_address_of_the_provider_may_have_a_query(home: Path) -> None:
    """What some providers put there, a policy or a tenant, is kept beside what is asked."""
    async with behind(home, **ANA) as (visitor, provider):
        provider.ends = {"authorization_endpoint": f"{provider.issuer}/authorize?p=sign_in"}
        assert await comes_back(visitor) == "Ana Ruiz"
