"""`start` and `dev`: the bot as a process, against Slack or against the local workspace."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.compose.model_choice import needs_model, scripted
from bot.config.library import Library
from bot.config.settings import slack_tokens
from bot.serve.dev import PORT, Ready, dev_database, display_there, open_page, run_dev, stop_on_signals
from bot.serve.main import Bot, Identity
from bot.terminal.cli_context import Place, database_file
from bot.terminal.exit_codes import INTERRUPTED, Exit
from bot.terminal.output import Paint, clean, plural
from engine.run.active import utc_now
from engine.storage.home_lease import Lease, Served, lease


def start_command(place: Place, flows: list[Path]) -> int:
    """Serve flows in Slack until a signal. Raises `SettingsError`, `Served`, `StartFailed`, `StorageError`, `SlackFault`."""
    settings = place.settings()
    slack_tokens(settings)
    # A script that is left over from a test must never speak for Claude to people.
    settings = replace(settings, agents=replace(settings.agents, scripted="never"))
    database = database_file(settings)
    if database is None:
        return _until_stopped(_start(Bot(settings, flows=flows), None))
    with lease(database, "sayso start", utc_now()) as held:
        return _until_stopped(_start(Bot(settings, flows=flows), held))


def _until_stopped(work: Coroutine[Any, Any, None]) -> int:
    try:
        asyncio.run(work)
    except asyncio.CancelledError:
        print("Stopped at once. What was running is asked about at the next start.", flush=True)
        return INTERRUPTED
    print("Stopped. What waits for people is kept.", flush=True)
    return Exit.OK


async def _start(bot: Bot, held: Lease | None) -> None:
    stop_on_signals(bot, held.stopping if held is not None else lambda: None)

    def ready(identity: Identity) -> None:
        if held is not None:
            held.reached_at(f"@{identity.bot_user} in {identity.team}")
        print(f"Ready: @{identity.bot_user} in {identity.team}, {_served(bot.library)}.", flush=True)
        _list_broken(bot.library)

    await bot.run(ready)


def _served(library: Library) -> str:
    names = sorted(library.refresh())
    if not names:
        return "no flows yet"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"{plural(len(names), 'flow')} ({listed})"


def _list_broken(library: Library) -> None:
    for file, error in library.errors.items():
        print(f"Not served: {file}\n{error}", file=sys.stderr, flush=True)


def dev_command(place: Place, flows: list[Path], port: int | None, open_it: bool | None) -> int:
    """Serve flows in a local workspace until a signal. Raises `SettingsError`, `Served`, `DevFailed`, `StorageError`."""
    settings, wanted = place.settings(), display_there() if open_it is None else open_it

    def ready(found: Ready) -> None:
        _tell_dev(place, found, port)
        if wanted:
            open_page(found.url)

    try:
        with lease(dev_database(settings), "sayso dev", utc_now()) as held:
            return _until_stopped(run_dev(settings, flows, port, ready, held))
    except Served as error:
        _offer(error, wanted)
        raise


def _offer(error: Served, wanted: bool) -> None:
    """The page that is there already, in place of a second one."""
    address = error.holder.address if error.holder is not None else None
    if address is None:
        return
    print(f"The page of this home is there already:\n\n  {Paint(sys.stdout)('bold', address)}\n", flush=True)
    if wanted:
        webbrowser.open(address)


def _tell_dev(place: Place, ready: Ready, port: int | None) -> None:
    paint = Paint(sys.stdout)
    flows = ready.bot.library.refresh()
    agents = any(needs_model(flow) for flow in flows.values())
    asks = agents and not scripted(ready.bot.settings)
    but = " but what agents ask of Claude" if asks else ""
    print(f"A local workspace. It is not Slack; nothing leaves this machine{but}.")
    if agents and not asks:
        print("Agents are answered by scripts here: no key for Claude is set (ANTHROPIC_API_KEY).")
    if port is None and not ready.url.endswith(f":{PORT}"):
        print(f"Port {PORT} is taken, so the page is elsewhere:")
    print(f"\n  {paint('bold', ready.url + '/')}\n")
    print(f"Serving {_served(ready.bot.library)}.")
    example = clean(next(iter(sorted(flows)), "NAME"))
    print("Three things to try:")
    print(f"  1. In #ops press what is suggested, or write: @sayso {example}   (@sayso help lists the flows)")
    print("  2. Answer in the thread, or press a button; act as somebody else with the switch of people.")
    print(
        "  3. While it waits, stop this with Ctrl-C and start it again: the thread goes on where it stopped."
    )
    sys.stdout.flush()
    _list_broken(ready.bot.library)
