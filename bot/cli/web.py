"""`web`: the control room, a page over the sessions of this home."""

from __future__ import annotations

import asyncio
import signal
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
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

_LOOK_SECONDS = 1.0


def web_command(place: Place, port: int | None, host: str, write: bool, open_it: bool | None) -> int:
    """Show the page until a signal. Raises `SaysoError`."""
    raise_file_limit()
    asyncio.run(_serve(place, host, port, write=write, open_it=bool(open_it)))
    print("Stopped.")
    return Exit.OK


def _found(place: Place, write: bool) -> Settings | None:
    """The settings of what there is to show: of this home, or of its local workspace; None before the first session. What is
    asked for with `write` is kept in this home's database from the start."""
    settings, workspace = place.settings(), place.workspace()
    if database_exists(settings) or (write and workspace is None):
        return settings
    return None if workspace is None else workspace.settings()


async def _serve(place: Place, host: str, port: int | None, *, write: bool, open_it: bool) -> None:
    given, loop, stop = place.settings(), asyncio.get_running_loop(), asyncio.Event()
    if given.web == WebSettings() and not _is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, so people must log in: set SAYSO_WEB_OIDC_ISSUER or "
            "SAYSO_WEB_PROXY_HEADER (docs/control-room.md)."
        )
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(name, stop.set)
    access: Access | None = None
    while not stop.is_set():
        settings = _found(place, write)
        with opened(settings or replace(given, database_url="memory:")) as store:
            room = _room(settings or given, store, host, loop.time, write=write, access=access)
            async with running(room, host, port) as url:
                if access is None:
                    if settings is None:
                        print("There are no sessions yet. The page shows the first one as soon as it starts.")
                    elif settings.home != given.home:
                        print("This home only has sessions of its local workspace (sayso dev).")
                    address = room.access.address(given.web.url.rstrip("/") if given.web.url else url)
                    kind = "with changes" if write else "read-only"
                    print(f"The control room, {kind}. Ctrl-C ends it.\n\n  {address}\n")
                    if given.web.url:
                        print(f"It listens at {url}, for the proxy in front of it.")
                    sys.stdout.flush()
                    if open_it:
                        loop.run_in_executor(None, webbrowser.open, address)
                access, port = room.access, int(url.rpartition(":")[2])
                # The first session makes a database: the same page continues with that.
                while settings is None and not stop.is_set() and _found(place, write) is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
                if settings is not None:
                    await stop.wait()


def _room(
    settings: Settings,
    store: Store,
    host: str,
    clock: Callable[[], float],
    *,
    write: bool,
    access: Access | None = None,
) -> Room:
    """Access to the control room: by the token on this machine, or by a login through a provider or a proxy; with the logins of
    an earlier one where there was one."""
    if settings.web == WebSettings():
        local = access or Access(Actor.local(settings.local_user, account()), clock)
        return Room(store, settings, local, LOOPBACK | {f"[{host}]" if ":" in host else host}, write=write)
    if access is None:
        by_proxy = settings.web.proxy_header or settings.web.proxy_secret
        access = Proxy(settings, clock) if by_proxy else Oidc(settings, clock)
    public = urlsplit(settings.web.url or "")
    room = Room(store, settings, access, frozenset({public.hostname or ""}), write=write)
    room.scheme, access.secure = public.scheme, public.scheme == "https"
    return room


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host in LOOPBACK
