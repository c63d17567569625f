"""Logins by an OIDC provider (Slack, Google, Okta, …): the code flow with PKCE, state and nonce.

Who may look is listed (`SAYSO_WEB_USERS`, `SAYSO_ADMINS`), by an e-mail address that the provider has verified, or by the id
that *Sign in with Slack* tells. What they may change is the policy's to say, and for that their id in Slack is needed.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from yarl import URL

from bot.config.settings import Settings, SettingsError
from bot.web.access import Access
from engine.language.actors import Actor
from engine.language.errors import SaysoError

if TYPE_CHECKING:
    from jwt import PyJWKSet

log = logging.getLogger("sayso.web")
SLACK_ID = "https://slack.com/user_id"
"""The claim in which Slack says who somebody is."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""How a token may be signed: never by a secret that both sides have, never not at all."""
_COOKIE = "sayso-oidc"
_MINUTES = 600.0
_MOST_PENDING = 500
_LEEWAY = 60
_TIMEOUT = ClientTimeout(total=10)
_HERE = ("127.0.0.1", "localhost", "::1")


class LoginRefused(SaysoError):
    """A login by the provider did not come about; says why."""

    code = "login"


class _Pending(NamedTuple):
    """A login that has gone to the provider."""

    nonce: str
    verifier: str
    until: float


class Oidc:
    """Logins by the provider of these settings. Raises `SettingsError` where they are not complete."""

    def __init__(self, settings: Settings, access: Access, clock: Callable[[], float]) -> None:
        given = settings.web
        if not (given.url and given.issuer and given.client_id and given.client_secret):
            raise SettingsError(
                "Logins of others need SAYSO_WEB_URL, SAYSO_WEB_OIDC_ISSUER, SAYSO_WEB_OIDC_CLIENT and SAYSO_WEB_OIDC_SECRET."
            )
        for name, url in (("SAYSO_WEB_URL", given.url), ("SAYSO_WEB_OIDC_ISSUER", given.issuer)):
            if not _is_private(url):
                raise SettingsError(f"{name} is {url}; it has to be https.")
        self._issuer, self._client, self._secret = (
            given.issuer.rstrip("/"),
            given.client_id,
            given.client_secret,
        )
        self._callback = f"{given.url.rstrip('/')}/api/oidc/callback"
        self._listed = {entry.lower() for entry in (*given.users, *settings.admins)}
        if not self._listed:
            raise SettingsError("Nobody may look: SAYSO_WEB_USERS and SAYSO_ADMINS name nobody.")
        self._access, self._clock = access, clock
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._found: tuple[float, dict[str, Any]] | None = None

    def routes(self) -> list[web.RouteDef]:
        """The way to the provider, and back."""
        return [web.get("/api/oidc", self._begin), web.get("/api/oidc/callback", self._back)]

    async def _begin(self, request: web.Request) -> web.Response:
        """Send a browser to the provider."""
        try:
            async with ClientSession(timeout=_TIMEOUT) as http:
                found = await self._discovered(http)
        except LoginRefused as error:
            return web.Response(status=302, headers={"Location": f"/#problem={quote(str(error))}"})
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        self._pending[state] = _Pending(nonce, verifier, self._clock() + _MINUTES)
        while len(self._pending) > _MOST_PENDING:
            self._pending.popitem(last=False)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "scope": "openid profile email",
            "client_id": self._client,
            "redirect_uri": self._callback,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        answer = web.Response(
            status=302, headers={"Location": str(URL(found["authorization_endpoint"]).update_query(query))}
        )
        # Lax: the way back comes from the provider's page.
        cookie = partial(answer.set_cookie, httponly=True, samesite="Lax", secure=self._access.secure)
        cookie(self._access.named(_COOKIE), state, max_age=int(_MINUTES), path="/")
        return answer

    async def _back(self, request: web.Request) -> web.Response:
        """Take a browser back that the provider has sent: logged in, or with the reason why not."""
        answer = web.Response(status=302, headers={"Location": "/"})
        self._access.drop(answer, self._access.named(_COOKIE))
        try:
            self._access.keep(answer, self._access.login(await self._returned(request)))
        except LoginRefused as error:
            answer.headers["Location"] = f"/#problem={quote(str(error))}"
        return answer

    async def _returned(self, request: web.Request) -> Actor:
        """Who came back. Raises `LoginRefused`."""
        state = request.query.get("state", "")
        pending = self._pending.pop(state, None)
        mine = request.cookies.get(self._access.named(_COOKIE), "")
        if (
            pending is None
            or pending.until < self._clock()
            or not compare_digest(mine.encode(errors="replace"), state.encode(errors="replace"))
        ):
            raise LoginRefused("This login did not begin here, or too long ago. Begin again.")
        if "code" not in request.query:
            raise LoginRefused(
                f"The provider refused: {request.query.get('error', 'it gave no code')[:100]}."
            )
        claims = await self._claims(request.query["code"], pending)
        email = str(claims.get("email") or "").lower() if claims.get("email_verified") is True else ""
        slack = str(claims.get(SLACK_ID) or "")
        if not self._listed & ({email, slack.lower()} - {""}):
            log.warning("a login was refused: %s %s is not listed", slack, email)
            raise LoginRefused(
                "You are not listed among those who may look here (SAYSO_WEB_USERS, SAYSO_ADMINS)."
            )
        return Actor(id=slack, name=str(claims.get("name") or email or slack)[:100], email=email or None)

    async def _discovered(self, http: ClientSession) -> dict[str, Any]:
        """Where the provider's doors are. Raises `LoginRefused`."""
        if self._found is not None and self._found[0] > self._clock():
            return self._found[1]
        found = await _json(
            http.get(f"{self._issuer}/.well-known/openid-configuration", allow_redirects=False)
        )
        if str(found.get("issuer", "")).rstrip("/") != self._issuer:
            raise LoginRefused("The provider calls itself otherwise than SAYSO_WEB_OIDC_ISSUER does.")
        for end in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not _is_private(str(found.get(end))):
                raise LoginRefused(
                    f"The provider's {end} is no https address. Is SAYSO_WEB_OIDC_ISSUER right?"
                )
        self._found = (self._clock() + _MINUTES, found)
        return found

    async def _claims(self, code: str, pending: _Pending) -> dict[str, Any]:
        """What the provider says of whoever came back with this code, verified. Raises `LoginRefused`."""
        from jwt import InvalidTokenError, PyJWKSet, PyJWTError

        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback,
            "client_id": self._client,
            "client_secret": self._secret,
            "code_verifier": pending.verifier,
        }
        async with ClientSession(timeout=_TIMEOUT) as http:
            found = await self._discovered(http)
            given = await _json(http.post(found["token_endpoint"], data=form, allow_redirects=False))
            keys = await _json(http.get(found["jwks_uri"], allow_redirects=False))
        try:
            claims = self._decoded(
                str(given.get("id_token") or ""), PyJWKSet.from_dict(keys), found["issuer"]
            )
        except (InvalidTokenError, PyJWTError, KeyError, StopIteration, ValueError) as error:
            log.warning("a login was refused: %s", error)
            raise LoginRefused("What the provider says of you does not verify.") from error
        if not compare_digest(str(claims.get("nonce")).encode(), pending.nonce.encode()):
            raise LoginRefused("What the provider says was said for another login.")
        return claims

    def _decoded(self, token: str, keys: PyJWKSet, issuer: str) -> dict[str, Any]:
        import jwt

        kid = jwt.get_unverified_header(token).get("kid")
        key = next(each for each in keys.keys if kid in (None, each.key_id))
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[each for each in _ALGORITHMS if each == key.algorithm_name] or ["RS256"],
            audience=self._client,
            issuer=issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "iat", "aud", "iss", "sub"]},
        )
        if claims.get("azp", self._client) != self._client:
            raise jwt.InvalidAudienceError("it was made for another client")
        return claims


def _is_private(url: str) -> bool:
    """Whether nobody between can read what is sent there: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _HERE)


async def _json(asked: Any) -> dict[str, Any]:
    """An answer of the provider. Raises `LoginRefused`."""
    try:
        async with asked as answer:
            found = await answer.json(content_type=None)
            if answer.status != 200 or not isinstance(found, dict):
                raise LoginRefused(f"The provider refused ({answer.status}).")
            return found
    except (ClientError, TimeoutError, ValueError) as error:
        raise LoginRefused("The provider cannot be reached now.") from error
