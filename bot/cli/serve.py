"""`start` and `dev`: the bot as a process, against Slack or against the local workspace. `start-flow`: a flow in a channel,
which the running bot starts and this only asks for.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import webbrowser
from collections.abc import Coroutine
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from bot.cli.lookup import find_flow, read_inputs
from bot.compose.environment import needs_model, scripted
from bot.compose.listening import raise_file_limit
from bot.config.library import Library
from bot.config.settings import SettingsError, account, slack_tokens
from bot.serve.dev import PORT, Ready, dev_database, display_there, open_page, run_dev, stop_on_signals
from bot.serve.identity import Identity
from bot.serve.main import Bot
from bot.serve.roles import ROLES
from bot.start.asked import LOOK_SECONDS, asked_item, started
from bot.terminal.console import (
    INTERRUPTED,
    Exit,
    Paint,
    Place,
    clean,
    columns,
    database_file,
    plural,
    print_json,
    wrapped,
    writing,
)
from engine.flow import coerce_inputs
from engine.language.actors import Actor
from engine.run.stored import utc_now
from engine.run.supervision import supervised
from engine.storage.leases import BEAT_SECONDS, Served, Serving, lease


def start_flow_command(
    place: Place,
    name: str,
    channel: str,
    inputs: list[str],
    inputs_file: Path | None,
    *,
    wait: float,
    as_json: bool,
    key: str | None,
) -> int:
    """Ask the bot to start a flow, and wait until it has. Raises `SaysoError` before anything is asked, and
    `RequestRefused` when the bot refused."""
    given = read_inputs(inputs, inputs_file)
    settings = place.settings()
    flow = find_flow(settings, name)
    coerce_inputs(flow, given)
    with writing(settings) as store:
        # Keys of rows are plain under encryption, and what people give is not.
        once = sha256(key.encode(errors="surrogateescape")).hexdigest() if key else os.urandom(8).hex()
        who = Actor.local(settings.local_user, account())
        item = asked_item(once, flow.name, channel, given, who, "at the terminal")
        store.inbox.ingest([item], utc_now())
        deadline = time.monotonic() + wait
        while (found := started(store, item.key, flow.name)).thread_ts is None:
            if not found.there or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_SECONDS)
    if as_json:
        print_json(
            {
                "flow": flow.name,
                "session": found.session_id,
                "channel": found.channel,
                "threadTs": found.thread_ts,
                "status": "started" if found.session_id else "queued",
            }
        )
    elif found.session_id:
        print(f"{flow.name} runs in {channel}: {found.session_id}")
    else:
        print(
            f"{flow.name} is requested in {channel}. The bot starts it when it runs (sayso start).",
            file=sys.stderr,
        )
    return Exit.OK if found.session_id else Exit.PAUSED


# --- the bot -----------------------------------------------------------------------------------------------


def start_command(place: Place, flows: list[Path], role: str) -> int:
    """Serve flows in Slack until a signal, beside others where the database is on a server. Raises `SettingsError`,
    `Served`, `StartFailed`, `StorageError`, `SlackFault`."""
    settings = place.settings()
    slack_tokens(settings)
    if settings.log_json or settings.log_levels is not None:
        from bot.config.logs import set_up

        set_up(settings.log_levels or {}, as_json=settings.log_json)
    # A script that is left over from a test must never speak for Claude to people.
    settings = replace(settings, agents=replace(settings.agents, scripted="never"))
    database = database_file(settings)
    if role not in ROLES:
        raise SettingsError(f"--role takes {', '.join(ROLES)}, not {role!r}.")
    if database is not None and role != "all":
        raise SettingsError(
            f"--role {role} needs Postgres (SAYSO_DATABASE_URL): only one process can serve an SQLite file."
        )
    bot = Bot(settings, flows=flows, role=role)
    if database is None:
        # Several may serve: each works on the lanes that it takes.
        return _until_stopped(_start(bot, Serving()))
    with lease(database, "sayso start", utc_now()) as held:
        return _until_stopped(_beating(held, _start(bot, held)))


def _until_stopped(work: Coroutine[Any, Any, None]) -> int:
    raise_file_limit()
    try:
        asyncio.run(work)
    except asyncio.CancelledError:
        print("Stopped immediately. At the next start, people are asked about interrupted work.", flush=True)
        return INTERRUPTED
    print("Stopped. Runs that wait for people are kept.", flush=True)
    return Exit.OK


async def _beating(held: Serving, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, and show meanwhile that the event loop runs."""

    async def beat() -> None:
        while True:
            held.beat()
            await asyncio.sleep(BEAT_SECONDS)

    beats = asyncio.create_task(supervised("the sign of life", beat))
    try:
        await work
    finally:
        beats.cancel()


async def _start(bot: Bot, held: Serving) -> None:
    stop_on_signals(bot, held.stopping)

    def ready(identity: Identity) -> None:
        held.reached_at(f"@{identity.bot_user} in {identity.team}")
        role = "" if bot.role == "all" else f" as {bot.role}"
        print(f"Ready{role}: @{identity.bot_user} in {identity.team}, {_served(bot.library)}.", flush=True)
        if bot.metrics_at is not None:
            print(f"Metrics: {bot.metrics_at}", flush=True)
        if bot.gate_at is not None:
            print(f"Gate: {bot.gate_at}", flush=True)
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


def dev_command(
    place: Place,
    flows: list[Path],
    port: int | None,
    open_it: bool | None,
    limits: bool,
    agent: bool,
    gate: bool,
) -> int:
    """Serve flows in a local workspace until a signal. Raises `SettingsError`, `Served`, `DevFailed`, `StorageError`."""
    settings, wanted = place.settings(), display_there() if open_it is None else open_it

    def say(text: str, indent: str = "", hanging: str = "") -> None:
        """Lines for people, as wide as their terminal; addresses stay whole."""
        width = columns() if sys.stdout.isatty() else 1_000
        print("\n".join(wrapped(text, width, indent, hanging)))

    def saved(file: Path, told: str) -> None:
        print(
            clean(f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}: {told}"),
            flush=True,
        )

    def ready(found: Ready) -> None:
        paint = Paint(sys.stdout)
        flows = found.bot.library.refresh()
        agents = any(needs_model(flow) for flow in flows.values())
        asks = agents and not scripted(found.bot.settings)
        but = " but what agents ask of Claude" if asks else ""
        say(f"A local workspace. It is not Slack; nothing leaves this machine{but}.")
        if agents and not asks:
            say("Agents are answered by scripts here: no key for Claude is set (ANTHROPIC_API_KEY).")
        if port is None and not found.url.endswith(f":{PORT}"):
            say(f"Port {PORT} is taken, so the page is elsewhere:")
        print(f"\n  {paint('bold', found.url + '/')}\n")
        print(f"Control room, with every run in detail:\n  {found.room}")
        say(f"Serving {_served(found.bot.library)}. A file that you save is checked and served immediately.")
        example = clean(next(iter(sorted(flows)), "NAME"))
        if gate:
            say(f"An agent asks in #ops, for Ana; others answer. Agents ask at {found.bot.gate_at}.")
        print("Three things to try:")
        for number, tip in enumerate(
            (
                f"In #ops, press a suggestion or write: @sayso {example} (@sayso help lists the flows)",
                "Answer in the thread or press a button. To act as somebody else, choose them at the top right.",
                "While a run waits, you can stop this with Ctrl-C and start it again: the run continues where it stopped.",
            ),
            start=1,
        ):
            say(f"{number}. {tip}", "  ", "     ")
        sys.stdout.flush()
        _list_broken(found.bot.library)
        if wanted:
            open_page(found.url)

    try:
        with lease(dev_database(settings), "sayso dev", utc_now()) as held:
            served = run_dev(settings, flows, port, ready, held, saved, limits=limits, agent=agent, gate=gate)
            return _until_stopped(_beating(held, served))
    except Served as error:
        # The page that is there already, instead of a second one.
        address = error.holder.address if error.holder is not None else None
        if address is not None:
            shown = Paint(sys.stdout)("bold", address)
            print(f"The page of this home is there already:\n\n  {shown}\n", flush=True)
            if wanted:
                webbrowser.open(address)
        raise
