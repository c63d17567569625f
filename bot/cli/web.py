"""`web`: the control room, a page over the sessions of this home."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from contextlib import suppress
from ipaddress import ip_address

from bot.config.settings import Settings
from bot.terminal.console import Exit, Place, UsageError, opened
from bot.web.access import Access
from bot.web.server import Room, running
from bot.workspace.pages import LOOPBACK
from engine.language.actors import Actor
from engine.storage.port import Store


def web_command(place: Place, port: int | None, host: str, write: bool, open_it: bool | None) -> int:
    """Show the page until a signal. Raises `SaysoError`."""
    settings = place.settings()
    with opened(settings) as store:
        asyncio.run(_serve(settings, store, host, port, write=write, open_it=bool(open_it)))
    print("Stopped.")
    return Exit.OK


async def _serve(
    settings: Settings, store: Store, host: str, port: int | None, *, write: bool, open_it: bool
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    if not _is_loopback(host):
        raise UsageError(f"{host} is not this machine alone.")
    access = Access(Actor.local(settings.local_user), loop.time)
    room = Room(store, settings, access, LOOPBACK | {host}, write=write)
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(name, stop.set)
    async with running(room, host, port) as url:
        address = access.address(url)
        print(
            f"The control room, {'with changes' if write else 'read-only'}. Ctrl-C ends it.\n\n  {address}\n",
            flush=True,
        )
        if open_it:
            loop.run_in_executor(None, webbrowser.open, address)
        await stop.wait()


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host in LOOPBACK
