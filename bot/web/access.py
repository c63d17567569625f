"""Who may look: logins, and the checks that every request passes.

A login is made by the token that was printed at the start, or by an OIDC provider (`bot.web.oidc`). It is a cookie that no
script can read and that no other site's page sends (`SameSite=Strict`). What changes something needs a header beside it that
only a page of this origin can set.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

from aiohttp import web
from msgspec import Struct

from engine.language.actors import Actor

SECONDS = 12 * 3600.0
"""How long a login holds."""
_MOST_LOGINS = 1_000
CHANGES = "X-Sayso"
"""The header of requests that change something: it takes a page of this origin to send it."""


class Login(Struct, frozen=True):
    """Somebody who is logged in: as whom they act, and until when (seconds of the clock)."""

    actor: Actor
    until: float

    @property
    def name(self) -> str:
        """What they are called."""
        return self.actor.name or self.actor.email or self.actor.id


class Access:
    """The logins of one process. A restart ends them all."""

    def __init__(self, local: Actor | None, clock: Callable[[], float]) -> None:
        """`local` is who the token logs in; None where there is none."""
        self._local = local
        self._clock = clock
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self.token = secrets.token_urlsafe(32) if local is not None else None
        """What the address is printed with."""
        self.cookie = "sayso"
        self.secure = False
        """Whether the cookie is for HTTPS alone."""

    def by_token(self, given: str) -> str:
        """A new login for whoever has the token, which is too long to be guessed. Raises `PermissionError` for another one."""
        if self._local is None or self.token is None:
            raise PermissionError("Nobody logs in with a token here.")
        if not hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            raise PermissionError("This is not the token that was printed when this page was started.")
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

    def of(self, request: web.Request) -> Login | None:
        """The login of a request, if it has one that holds."""
        login = self._logins.get(request.cookies.get(self.cookie, ""))
        return login if login is not None and login.until > self._clock() else None

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
