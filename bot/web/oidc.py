"""Logins by an OIDC provider (Slack, Google, Okta, …), as Authlib does them: the code flow with PKCE, state and nonce.

Who may look is listed (`SAYSO_WEB_USERS`, `SAYSO_ADMINS`), by an e-mail address that the provider has verified, or by
the id that *Sign in with Slack* tells. What they may change is the policy's to say, and for that their id in Slack is
needed.

A login under way is kept by the browser that began it, in a cookie that is signed and short-lived: nobody else's
attempts can end it, and there is nothing here that fills up.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from hmac import compare_digest
from typing import Any
from urllib.parse import quote

from aiohttp import web

from bot.config.settings import Settings, SettingsError
from bot.web.access import NOT_LISTED, Access, checked_url, is_private, who_is_listed
from engine.language.actors import Actor

log = logging.getLogger("sayso.web")
SLACK_ID = "https://slack.com/user_id"
"""The claim in which Slack says who somebody is."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Algorithms by which a token may be signed: never by a secret that both sides have, never not at all."""
_COOKIE = "sayso-oidc"
_LOGIN_SECONDS = 600
"""The time that a login may take, and for which the addresses of the provider are believed."""
_LEEWAY = 60
_PROVIDER_SECONDS = 10


class Oidc(Access):
    """Logins by the provider of these settings. Raises `SettingsError` where they are not complete, or Authlib is not
    here."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        super().__init__(None, clock)
        given = settings.web
        if not (given.url and given.issuer and given.client_id and given.client_secret):
            raise SettingsError(
                "To let other people log in, set SAYSO_WEB_URL, SAYSO_WEB_OIDC_ISSUER, SAYSO_WEB_OIDC_CLIENT and "
                "SAYSO_WEB_OIDC_SECRET, or use a proxy that identifies them (docs/control-room.md)."
            )
        checked_url("SAYSO_WEB_URL", given.url)
        checked_url("SAYSO_WEB_OIDC_ISSUER", given.issuer)
        self._listed = who_is_listed(settings)
        self._issuer, self._client_id = given.issuer.rstrip("/"), given.client_id
        self._found: tuple[float, dict[str, Any]] | None = None
        # The one place that loads Authlib, with joserfc of the same authors: few have a provider.
        try:
            import httpx2
            from authlib.integrations.httpx_client import AsyncOAuth2Client, OAuthError
            from authlib.oidc.core import CodeIDToken
            from joserfc import errors, jwk, jws, jwt
        except ImportError as error:
            raise SettingsError(
                f"Logins through a provider need Authlib ({error}): pip install 'sayso[web]'."
            ) from error
        self._client: Callable[[], Any] = partial(
            AsyncOAuth2Client,
            given.client_id,
            given.client_secret,
            token_endpoint_auth_method="client_secret_post",
            scope="openid profile email",
            redirect_uri=f"{given.url.rstrip('/')}/api/oidc/callback",
            code_challenge_method="S256",
            verify=ssl.create_default_context(),
            timeout=_PROVIDER_SECONDS,
            trust_env=False,
        )
        self._jwt, self._claims_of = jwt, CodeIDToken
        self._keys_of: Callable[[Any], Any] = jwk.KeySet.import_key_set
        self._signed = jws.JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
        self._key = jwk.OctKey.generate_key(256)
        self._refusals, self._unreachable = OAuthError, (httpx2.HTTPError, httpx2.InvalidURL)
        self._unverified = (errors.JoseError, ValueError, TypeError, KeyError)

    def routes(self) -> list[web.RouteDef]:
        """The way to the provider, and back."""
        return [web.get("/api/oidc", self._begin), web.get("/api/oidc/callback", self._back)]

    async def _begin(self, request: web.Request) -> web.Response:
        """Send a browser to the provider."""
        pending = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "code_verifier")}
        try:
            async with self._provider() as http:
                found = await self._discovered(http)
                url, _ = http.create_authorization_url(found["authorization_endpoint"], **pending)
        except PermissionError as error:
            return _sent_to(f"/#problem={quote(str(error))}")
        answer = _sent_to(url)
        until = int(self._clock()) + _LOGIN_SECONDS
        answer.set_cookie(
            self.named(_COOKIE),
            self._jwt.encode({"alg": "HS256"}, {"exp": until, **pending}, self._key),
            max_age=_LOGIN_SECONDS,
            path="/",
            httponly=True,
            samesite="Lax",  # the way back comes from the provider's page
            secure=self.secure,
        )
        return answer

    async def _back(self, request: web.Request) -> web.Response:
        """Take a browser back that the provider has sent: logged in, or with the reason why not."""
        try:
            key, answer = self.login(await self._returned(request)), _sent_to("/")
            self.keep(answer, key)
        except PermissionError as error:
            answer = _sent_to(f"/#problem={quote(str(error))}")
        self.drop(answer, self.named(_COOKIE))
        return answer

    async def _returned(self, request: web.Request) -> Actor:
        """The person who came back. Raises `PermissionError`."""
        # The login that this browser began, as its cookie tells.
        pending: dict[str, Any] | None = None
        with suppress(*self._unverified):
            token = self._jwt.decode(request.cookies.get(self.named(_COOKIE), ""), self._key)
            self._jwt.JWTClaimsRegistry(now=int(self._clock())).validate(token.claims)
            pending = token.claims
        given = request.query.get("state", "")
        if pending is None or not compare_digest(pending["state"].encode(), given.encode(errors="replace")):
            raise PermissionError(
                "This login was not started here, or was started too long ago. Please log in again."
            )
        if "code" not in request.query:
            raise PermissionError(
                f"The provider refused the login: {request.query.get('error', 'it gave no code')[:100]}."
            )
        claims = await self._claims(request.query["code"], pending)
        email = str(claims.get("email") or "").lower() if claims.get("email_verified") is True else ""
        slack = str(claims.get(SLACK_ID) or "")
        if not self._listed & {email, slack.lower()}:
            log.warning("a login was refused: %s %s is not listed", slack, email)
            raise PermissionError(NOT_LISTED)
        return Actor(id=slack, name=str(claims.get("name") or email or slack)[:100], email=email or None)

    async def _discovered(self, http: Any) -> dict[str, Any]:
        """The provider's own description, with its addresses. Raises `PermissionError`."""
        if self._found is not None and self._found[0] > self._clock():
            return self._found[1]
        found = await _document(http, f"{self._issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).rstrip("/") != self._issuer:
            raise PermissionError("The provider's issuer is not the one in SAYSO_WEB_OIDC_ISSUER.")
        for end in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_private(str(found.get(end))):
                raise PermissionError(
                    f"The provider's {end} is not an https address. Is SAYSO_WEB_OIDC_ISSUER right?"
                )
        self._found = (self._clock() + _LOGIN_SECONDS, found)
        return found

    async def _claims(self, code: str, pending: dict[str, Any]) -> dict[str, Any]:
        """The verified claims about whoever came back with this code. Raises `PermissionError`."""
        async with self._provider() as http:
            found = await self._discovered(http)
            proof = {"code": code, "code_verifier": pending["code_verifier"]}
            given = await http.fetch_token(found["token_endpoint"], grant_type="authorization_code", **proof)
            keys = await _document(http, found["jwks_uri"])
        try:
            token = self._jwt.decode(str(given.get("id_token")), self._keys_of(keys), registry=self._signed)
            wanted = {"iss": {"value": found["issuer"]}, "aud": {"value": self._client_id}}
            login = {"nonce": pending["nonce"], "client_id": self._client_id}
            claims = self._claims_of(token.claims, token.header, wanted, login)
            claims.validate(leeway=_LEEWAY)
        except self._unverified as error:
            log.warning("a login was refused: %s", error)
            raise PermissionError("The provider's answer about you does not verify.") from error
        return dict(claims)

    @asynccontextmanager
    async def _provider(self) -> AsyncIterator[Any]:
        """A client of the provider, which follows no redirect. Raises `PermissionError` for all that goes wrong
        there."""
        try:
            async with asyncio.timeout(_PROVIDER_SECONDS), self._client() as http:
                yield http
        except self._refusals as error:
            raise PermissionError(f"The provider refused the login: {str(error.error)[:100]}.") from error
        except (*self._unreachable, TimeoutError, ValueError) as error:
            raise PermissionError("The provider cannot be reached right now.") from error


def _sent_to(url: str) -> web.Response:
    return web.Response(status=302, headers={"Location": url})


async def _document(http: Any, url: str) -> dict[str, Any]:
    """A document of the provider. Raises `PermissionError`, `ValueError`."""
    answer = await http.request("GET", url, withhold_token=True)
    found = answer.json()
    if answer.status_code != 200 or not isinstance(found, dict):
        raise PermissionError(f"The provider refused the login ({answer.status_code}).")
    return found
