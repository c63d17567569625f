"""`web`: the control room, a page over the sessions of this home."""

from __future__ import annotations

import asyncio
import signal
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from bot.compose.listening import raise_file_limit
from bot.config.settings import Settings, WebSettings, account
from bot.pages import LOOPBACK
from bot.terminal.console import Exit, Place, UsageError, database_exists, opened
from bot.web.access import Access
from bot.web.oidc import Oidc
from bot.web.proxy import Proxy
from bot.web.server import Room, running
from engine.language.actors import Actor
from engine.storage.store import Store


def web_command(place: Place, port: int | None, host: str, write: bool, open_it: bool | None) -> int:
    """Show the page until a signal. Raises `SaysoError`."""
    settings, workspace = place.settings(), place.workspace()
    if not database_exists(settings):
        if workspace is None:
            raise UsageError(
                f"There is nothing to show: {settings.database_url} does not exist yet. Run a flow, or start the bot first."
            )
        settings = workspace.settings()
        print("This home has no sessions but those of its local workspace (sayso dev).")
    raise_file_limit()
    with opened(settings) as store:
        asyncio.run(_serve(settings, store, host, port, write=write, open_it=bool(open_it)))
    print("Stopped.")
    return Exit.OK


async def _serve(
    settings: Settings, store: Store, host: str, port: int | None, *, write: bool, open_it: bool
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    if settings.web == WebSettings() and not _is_loopback(host):
        raise UsageError(
            f"{host} can be reached by others, so they have to log in: set SAYSO_WEB_OIDC_ISSUER or "
            "SAYSO_WEB_PROXY_HEADER (docs/control-room.md)."
        )
    room = _room(settings, store, host, loop.time, write=write)
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(name, stop.set)
    async with running(room, host, port) as url:
        address = room.access.address(settings.web.url.rstrip("/") if settings.web.url else url)
        print(
            f"The control room, {'with changes' if write else 'read-only'}. Ctrl-C ends it.\n\n  {address}\n"
        )
        if settings.web.url:
            print(f"It listens at {url}, for the proxy in front of it.")
        sys.stdout.flush()
        if open_it:
            loop.run_in_executor(None, webbrowser.open, address)
        await stop.wait()


def _room(settings: Settings, store: Store, host: str, clock: Callable[[], float], *, write: bool) -> Room:
    """The room: for whoever has the token on this machine, or for those whom a provider or a proxy knows."""
    if settings.web == WebSettings():
        local = Access(Actor.local(settings.local_user, account()), clock)
        return Room(store, settings, local, LOOPBACK | {f"[{host}]" if ":" in host else host}, write=write)
    by_proxy = settings.web.proxy_header or settings.web.proxy_secret
    access: Access = Proxy(settings, clock) if by_proxy else Oidc(settings, clock)
    public = urlsplit(settings.web.url or "")
    room = Room(store, settings, access, frozenset({public.hostname or ""}), write=write)
    room.scheme, access.secure = public.scheme, public.scheme == "https"
    return room


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host in LOOPBACK
