"""Logins by a proxy in front, which says in a header who somebody is, and proves by a secret that it is that proxy.

A header can be sent by anybody who reaches this port, so it counts for nothing without the secret. Whatever is not
exactly one secret and one name that could be somebody's is refused, request by request: nothing is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hmac import compare_digest

from aiohttp import web

from bot.config.settings import Settings, SettingsError
from bot.web.access import NOT_LISTED, Access, Login, checked_url, who_is_listed
from engine.language.actors import Actor

SECRET = "X-Sayso-Secret"
"""The header in which the proxy proves itself."""
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,63}")
_LONG_ENOUGH = re.compile(r"[!-~]{32,256}")
_SLACK_ID = re.compile(r"[UW][A-Z0-9]{2,30}")
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")


class Proxy(Access):
    """Logins by the proxy of these settings. Raises `SettingsError` where they are not complete."""

    leaves = False

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        super().__init__(None, clock)
        given = settings.web
        if not (given.url and given.proxy_header and given.proxy_secret) or given.issuer:
            raise SettingsError(
                "To let a proxy identify people, set SAYSO_WEB_URL, SAYSO_WEB_PROXY_HEADER and SAYSO_WEB_PROXY_SECRET, "
                "and remove SAYSO_WEB_OIDC_ISSUER."
            )
        checked_url("SAYSO_WEB_URL", given.url)
        if not _HEADER.fullmatch(given.proxy_header) or given.proxy_header.lower() == SECRET.lower():
            raise SettingsError(
                f"SAYSO_WEB_PROXY_HEADER is {given.proxy_header}, which is not a usable header name."
            )
        if not _LONG_ENOUGH.fullmatch(given.proxy_secret):
            raise SettingsError(
                "SAYSO_WEB_PROXY_SECRET takes 32 to 256 characters without spaces. Make one: "
                "python -c 'import secrets; print(secrets.token_hex(32))'"
            )
        self._listed = who_is_listed(settings)
        self._header, self._secret = given.proxy_header, given.proxy_secret.encode()

    def of(self, request: web.Request) -> Login:
        """The person whom the proxy names. Raises `PermissionError` where it does not vouch for exactly one who is
        listed."""
        proofs, names = (request.headers.getall(name, []) for name in (SECRET, self._header))
        if len(proofs) != 1 or not compare_digest(proofs[0].encode(errors="replace"), self._secret):
            raise PermissionError(
                f"This request did not come through the proxy: the header {SECRET} is missing or wrong."
            )
        if len(names) != 1:
            raise PermissionError(
                f"The proxy must send the header {self._header} with your name once; it came {len(names)} times."
            )
        slack, email = _SLACK_ID.fullmatch(names[0]), _ADDRESS.fullmatch(names[0])
        if not (slack or email):
            raise PermissionError(
                f"The proxy's header {self._header} has neither a Slack ID nor an e-mail address."
            )
        if names[0].lower() not in self._listed:
            raise PermissionError(NOT_LISTED)
        actor = Actor(id=names[0] if slack else "", name=names[0], email=names[0].lower() if email else None)
        return Login(actor, float("inf"))
