"""`doctor`: the checks of an installation. `--live` reads a file and loads little: health checks ask it twice a minute."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from bot.terminal.console import Exit, Paint, Place, clean, database_file, opened, plural, print_json
from engine.storage.leases import BEAT_SECONDS, serving

if TYPE_CHECKING:
    from bot.config.settings import Settings
    from bot.doctor.findings import Check

_MARKS = {"ok": ("green", "✓"), "warn": ("yellow", "!"), "fail": ("red", "✗")}


_HUNG_SECONDS = 6 * BEAT_SECONDS


def doctor_command(place: Place, manifest: Path | None, *, deep: bool, live: bool, as_json: bool) -> int:
    """Print every check, or only whether the bot runs; the exit code says whether one failed. Raises `SettingsError`."""
    if live:
        settings = place.settings()
        file = database_file(settings)
        if file is not None:
            found = serving(file, time.time())
        else:
            with opened(settings) as store:
                # A process that freezes loses this lease by itself.
                holder = store.served().holder
                found = (holder, 0.0) if holder is not None and "bot" in store.serving() else None
        holder, silent = found or (None, 0.0)
        where = file or "the database"
        ok = holder is not None and (holder.address is None or silent <= _HUNG_SECONDS)
        if as_json:
            print_json(
                {
                    "ok": ok,
                    "server": None if holder is None else to_builtins(holder),
                    "silent_seconds": round(silent),
                }
            )
        elif holder is None:
            print(f"No process serves {where}.")
        else:
            state = "serves" if ok else f"has not responded for {silent:.0f} seconds; it serves"
            print(
                f"`{holder.command}`, process {holder.pid} on {holder.host}, {state} {where} since {holder.since}."
            )
        return Exit.OK if ok else Exit.FAILED
    import asyncio

    checks = asyncio.run(_examine(place.settings(), manifest, deep=deep, quiet=as_json))
    failed = sum(1 for check in checks if check.level == "fail")
    warned = sum(1 for check in checks if check.level == "warn")
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        print(f"{plural(len(checks), 'check')}: {failed} failed, {plural(warned, 'warning')}.")
    return Exit.FAILED if failed else Exit.OK


async def _examine(settings: Settings, manifest: Path | None, *, deep: bool, quiet: bool) -> list[Check]:
    from bot.doctor.checks import examine  # reads flows, and speaks to Slack

    checks: list[Check] = []
    paint = Paint(sys.stdout)
    async for check in examine(settings, manifest, deep=deep):
        checks.append(check)
        if not quiet:
            color, sign = _MARKS[check.level]
            first, *rest = clean(check.text).splitlines() or [""]
            lines = [f"{paint(color, sign)} {check.name:<10} {first}", *(f"{'':13}{part}" for part in rest)]
            if check.hint:
                lines.append(f"{'':13}{paint('dim', clean(check.hint))}")
            line = "\n".join(lines)
            print(line, flush=True)
    return checks
