"""Logins, and the checks that every request passes.

A login is made by the token that was printed at the start, or by an OIDC provider (`bot.web.oidc`). It is a cookie that
no script can read and that no other site's page sends (`SameSite=Strict`). Where a proxy says who somebody is
(`bot.web.proxy`), there is none. What changes something needs a header beside it that only a page of this origin can
set.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from aiohttp import web
from msgspec import Struct

from bot.config.settings import Settings, SettingsError
from engine.language.actors import Actor

SECONDS = 12 * 3600.0
"""The time for which a login holds."""
_MOST_LOGINS = 1_000
NO_LOGIN = "You are not logged in."
_ENDED = "Your login has expired, or the control room was restarted. Please log in again."
NOT_LISTED = "You don't have access: you are not listed in SAYSO_WEB_USERS or SAYSO_ADMINS."
_HERE = ("127.0.0.1", "localhost", "::1")
CHANGES = "X-Sayso"
"""The header of requests that change something: it takes a page of this origin to send it."""


class Login(Struct, frozen=True):
    """Somebody who is logged in: as whom they act, and until when (seconds of the clock)."""

    actor: Actor
    until: float

    @property
    def name(self) -> str:
        """The name by which they are shown."""
        return self.actor.name or self.actor.email or self.actor.id


class Access:
    """The logins of one process. A restart ends them all."""

    leaves = True
    """True if one can log out here."""

    def __init__(self, local: Actor | None, clock: Callable[[], float]) -> None:
        """`local` is who the token logs in; None where there is none."""
        self._local = local
        self._clock = clock
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self.token = secrets.token_urlsafe(32) if local is not None else None
        """The token that is printed with the address."""
        self.cookie = "sayso"
        self.secure = False
        """True if the cookie is for HTTPS alone."""

    def routes(self) -> list[web.RouteDef]:
        """The addresses at which one logs in, beside that for the token."""
        return []

    def by_token(self, given: str) -> str:
        """A new login for whoever has the token, which is too long to be guessed. Raises `PermissionError` for another
        one."""
        if self._local is None or self.token is None:
            raise PermissionError("You cannot log in with a token here.")
        if not hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            raise PermissionError(
                "This token is wrong. Use the one that `sayso web` printed when it started."
            )
        return self.login(self._local)

    def address(self, url: str) -> str:
        """The address of a page that logs whoever opens it in: a browser sends what is behind `#` to nobody."""
        return f"{url}/#token={self.token}" if self.token is not None else f"{url}/"

    def login(self, actor: Actor) -> str:
        """The key of a new login."""
        key = secrets.token_urlsafe(32)
        self._logins[key] = Login(actor, self._clock() + SECONDS)
        while len(self._logins) > _MOST_LOGINS:
            self._logins.popitem(last=False)
        return key

    def logout(self, request: web.Request) -> None:
        """End the login of a request."""
        self._logins.pop(request.cookies.get(self.cookie, ""), None)

    def of(self, request: web.Request) -> Login:
        """The login of a request. Raises `PermissionError` where it has none that holds."""
        login = self._logins.get(request.cookies.get(self.cookie, ""))
        if login is None or login.until <= self._clock():
            raise PermissionError(_ENDED if self.cookie in request.cookies else NO_LOGIN)
        return login

    def named(self, cookie: str) -> str:
        """The name of a cookie: behind HTTPS one that no other host of the domain, and nobody between, can set."""
        return f"__Host-{cookie}" if self.secure else cookie

    def drop(self, answer: web.StreamResponse, cookie: str) -> None:
        """Let the browser forget a cookie."""
        answer.del_cookie(cookie, path="/", secure=self.secure)

    def keep(self, answer: web.StreamResponse, key: str) -> None:
        """Hand a login out with an answer."""
        answer.set_cookie(
            self.cookie,
            key,
            max_age=int(SECONDS),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self.secure,
        )


def who_is_listed(settings: Settings) -> frozenset[str]:
    """Ids of Slack and e-mail addresses of those who may look, in small letters. Raises `SettingsError` where that is
    nobody."""
    entries = frozenset(entry.lower() for entry in (*settings.web.users, *settings.admins))
    if not entries:
        raise SettingsError("Nobody has access: SAYSO_WEB_USERS and SAYSO_ADMINS are empty.")
    return entries


def checked_url(name: str, url: str) -> None:
    """Return if nobody between can read what is sent to the address of this setting. Raises `SettingsError`."""
    if not is_private(url):
        raise SettingsError(f"{name} is {url}, but must be an https address.")


def is_private(url: str) -> bool:
    """True if nobody between can read what is sent there: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _HERE)
