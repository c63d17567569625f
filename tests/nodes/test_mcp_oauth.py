"""MCP servers behind OAuth: client credentials, tokens that end, and issuers that give none. The server is the SDK's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import BasicAuth, ClientSession, web

from engine.language.errors import SaysoError
from engine.nodes.runtime import mcp_oauth
from engine.nodes.runtime.mcp_servers import McpUnconfigured, find
from engine.nodes.runtime.runner import Completed
from tests.nodes.nodekit import Context
from tests.nodes.test_mcp import SECRET, Kit
from tests.support.listening import listening


@dataclass
class Guarded:
    """A server that lets nobody in without a token, and the issuer of tokens beside it."""

    inner: str
    origin: str = ""
    valid: set[str] = field(default_factory=set)
    given: int = 0
    asked: list[str] = field(default_factory=list)
    refuses: bool = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """What is at a path."""
        match request.path:
            case "/.well-known/oauth-protected-resource/mcp":
                told: dict[str, Any] = {
                    "resource": f"{self.origin}/mcp",
                    "authorization_servers": [self.origin],
                }
                told["scopes_supported"] = ["tickets:read"]
                return web.json_response(told)
            case "/.well-known/oauth-authorization-server":
                return web.json_response(
                    {
                        "issuer": self.origin,
                        "authorization_endpoint": f"{self.origin}/authorize",
                        "token_endpoint": f"{self.origin}/token",
                        "grant_types_supported": ["client_credentials"],
                    }
                )
            case "/token":
                return await self._token(request)
            case "/mcp" if request.headers.get("Authorization", "").removeprefix("Bearer ") in self.valid:
                return await self._passed_on(request)
            case "/mcp":
                where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
                return web.Response(
                    status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{where}"'}
                )
        return web.Response(status=404)

    async def _token(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((await request.post()).get("scope", ""))  # type: ignore[arg-type]
        who = BasicAuth.decode(request.headers["Authorization"])
        if self.refuses or (who.login, who.password) != ("sayso", SECRET):
            return web.json_response({"error": "invalid_client"}, status=401)
        self.given += 1
        self.valid = {f"token-{self.given}"}
        return web.json_response(
            {"access_token": f"token-{self.given}", "token_type": "Bearer", "expires_in": 3600}
        )

    async def _passed_on(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        headers = {
            name: value for name, value in request.headers.items() if name not in ("Host", "Authorization")
        }
        async with (
            ClientSession() as session,
            session.post(self.inner, data=await request.read(), headers=headers) as answer,
        ):
            kept = {
                name: answer.headers[name]
                for name in ("Content-Type", "Mcp-Session-Id")
                if name in answer.headers
            }
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    """As in the other tests of MCP."""
    kit = Kit(Context(tmp_path, {"TOKEN": SECRET}), tmp_path)
    yield kit
    await kit.servers.close()
    while kit.processes:
        await kit.end_http()


@pytest.fixture
async def guarded(kit: Kit) -> AsyncIterator[Guarded]:
    """The server, and `mcp.json` that names it with its credentials."""
    await kit.http()
    server = Guarded(json.loads(kit.file.read_text())["mcpServers"]["tools"]["url"])
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with listening(app) as server.origin:
        named(kit, server)
        yield server
        await kit.servers.close()


def named(kit: Kit, server: Guarded, **more: Any) -> None:
    """What `mcp.json` says of it."""
    oauth = {"issuer": server.origin, "clientId": "sayso", "clientSecret": "${SAYSO_SECRET_TOKEN}", **more}
    kit.write(tools={"url": f"{server.origin}/mcp", "oauth": oauth})


async def test_a_token_is_fetched_once_and_used(kit: Kit, guarded: Guarded) -> None:
    """The credentials of the file give a token, with the scope that the server wants, and calls go through with it."""
    for _ in range(2):
        assert isinstance(await kit.call("add", a=1, b=2), Completed)
    assert (guarded.given, guarded.asked) == (1, ["tickets:read"])


async def test_a_token_that_has_ended_is_fetched_anew(kit: Kit, guarded: Guarded, tmp_path: Path) -> None:
    """The call that finds it out goes through with the next one, and runs once."""
    assert isinstance(await kit.call("add", a=1, b=2), Completed)
    guarded.valid.clear()
    assert isinstance(await kit.call("note", file=str(tmp_path / "noted")), Completed)
    assert guarded.given == 2
    assert (tmp_path / "noted").read_text() == "called\n"


async def test_an_issuer_that_gives_none_is_named(kit: Kit, guarded: Guarded) -> None:
    """The error says whose token is missing, lasts until somebody changes something, and has no secret in it."""
    guarded.refuses = True
    with pytest.raises(McpUnconfigured, match=f"issuer {guarded.origin} gives no access token") as caught:
        await kit.servers.mcp_tools("tools", ["add"])
    assert SECRET not in str(caught.value)
    guarded.refuses = False
    assert isinstance(await kit.call("add", a=1, b=2), Completed)


async def test_credentials_go_to_the_named_issuer_only(kit: Kit, guarded: Guarded) -> None:
    """A server that leads to another issuer gets nothing."""
    named(kit, guarded, issuer="https://login.example.com")
    with pytest.raises(SaysoError, match="gives no access token"):
        await kit.servers.mcp_tools("tools", ["add"])
    assert guarded.asked == []


def test_what_is_missing_is_said(kit: Kit) -> None:
    """A file without the secret, or with a reference that means nothing."""
    kit.write(tools={"url": "https://a.io/mcp", "oauth": {"issuer": "https://a.io", "clientId": "x"}})
    with pytest.raises(McpUnconfigured, match=r"oauth\.clientSecret"):
        find(kit.file, "tools")


async def test_a_token_that_is_never_kept_is_noticed(
    kit: Kit, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: what the server says is not freed of the token."""

    async def forgets(self: Any, tokens: Any) -> None:
        self._tokens = tokens

    async def shown() -> str:
        await kit.call("add", a=1, b=2)
        return str(kit.servers._open["tools"].told("it is token-1"))

    assert await shown() == "it is [secret OAUTH_ACCESS_TOKEN]"
    await kit.servers.close()
    monkeypatch.setattr(mcp_oauth._Tokens, "set_tokens", forgets)
    guarded.given, guarded.valid = 0, set()
    assert await shown() == "it is token-1"
