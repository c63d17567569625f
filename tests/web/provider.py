"""A small OIDC provider over real sockets: discovery, keys, codes with PKCE, signed tokens. It can be told to lie."""

from __future__ import annotations

import hashlib
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.support.listening import listening

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CLIENT, SECRET = "room", "not to be guessed"


@dataclass
class Provider:
    """Who logs in next (`claims`), and what is done to the token before it goes out (`lies`: other claims, and `key`, `alg`)."""

    claims: dict[str, Any] = field(default_factory=dict)
    lies: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, Any] = field(default_factory=dict)
    """What it says of its addresses otherwise than it is."""
    instead: dict[str, Callable[[], Awaitable[web.Response]]] = field(default_factory=dict)
    """What answers at a path in place of the provider."""
    issuer: str = ""
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    more_keys: list[dict[str, Any]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    async def discover(self, request: web.Request) -> web.Response:
        """`/.well-known/openid-configuration`."""
        ends = {name: f"{self.issuer}/{name}" for name in ("authorize", "token", "keys")}
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": ends["authorize"],
                "token_endpoint": ends["token"],
                "jwks_uri": ends["keys"],
                **self.ends,
            }
        )

    async def keys(self, request: web.Request) -> web.Response:
        """The public key."""
        jwk = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        ours = {**jwk, "kid": "one", "alg": "ES256", "use": "sig"}
        return web.json_response({"keys": [*self.more_keys, ours]})

    async def authorize(self, request: web.Request) -> web.Response:
        """Whoever comes is logged in, and sent back with a code."""
        query = dict(request.query)
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT
        assert query["response_type"] == "code"
        code = secrets.token_hex(8)
        self.codes[code] = query
        return web.Response(
            status=302, headers={"Location": f"{query['redirect_uri']}?code={code}&state={query['state']}"}
        )

    async def token(self, request: web.Request) -> web.Response:
        """A code against a token, once, for whoever has its verifier."""
        form = await request.post()
        asked = self.codes.pop(str(form["code"]), None)
        challenge = urlsafe_b64encode(hashlib.sha256(str(form["code_verifier"]).encode()).digest()).rstrip(
            b"="
        )
        if asked is None or asked["code_challenge"] != challenge.decode() or form["client_secret"] != SECRET:
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "s1",
            "iat": now,
            "exp": now + 60,
            "nonce": asked["nonce"],
        }
        lies = dict(self.lies)
        key, alg = lies.pop("key", self.key), lies.pop("alg", "ES256")
        signed = jwt.encode({**claims, **self.claims, **lies}, key, algorithm=alg, headers={"kid": "one"})
        return web.json_response({"id_token": signed, "access_token": "x", "token_type": "Bearer"})


@asynccontextmanager
async def running_provider() -> AsyncIterator[Provider]:
    """A provider that listens on this machine."""
    provider = Provider()

    @web.middleware
    async def instead(request: web.Request, handler: Handler) -> web.StreamResponse:
        odd = provider.instead.get(request.path)
        return await handler(request) if odd is None else await odd()

    app = web.Application(middlewares=[instead])
    app.add_routes(
        [
            web.get("/.well-known/openid-configuration", provider.discover),
            web.get("/authorize", provider.authorize),
            web.post("/token", provider.token),
            web.get("/keys", provider.keys),
        ]
    )
    async with listening(app) as provider.issuer:
        yield provider
