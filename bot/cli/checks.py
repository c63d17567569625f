"""`doctor`: prints the checks as they come in."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path

from bot.config.settings import Settings
from bot.doctor.checks import examine
from bot.doctor.findings import Check
from bot.terminal.cli_context import Place
from bot.terminal.exit_codes import Exit
from bot.terminal.output import Paint, clean, plural, print_json

_MARKS = {"ok": ("green", "✓"), "warn": ("yellow", "!"), "fail": ("red", "✗")}


def doctor_command(place: Place, manifest: Path | None, *, deep: bool, as_json: bool) -> int:
    """Print every check; the exit code says whether one failed. Raises `SettingsError`."""
    checks = asyncio.run(_examine(place.settings(), manifest, deep=deep, quiet=as_json))
    failed = sum(1 for check in checks if check.level == "fail")
    warned = sum(1 for check in checks if check.level == "warn")
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        print(f"{plural(len(checks), 'check')}: {failed} failed, {plural(warned, 'warning')}.")
    return Exit.FAILED if failed else Exit.OK


async def _examine(settings: Settings, manifest: Path | None, *, deep: bool, quiet: bool) -> list[Check]:
    paint, checks = Paint(sys.stdout), []
    async for check in examine(settings, manifest, deep=deep):
        checks.append(check)
        if not quiet:
            print(_line(check, paint), flush=True)
    return checks


def _line(check: Check, paint: Paint) -> str:
    color, sign = _MARKS[check.level]
    first, *rest = clean(check.text).splitlines() or [""]
    lines = [f"{paint(color, sign)} {check.name:<10} {first}", *(f"{'':13}{part}" for part in rest)]
    if check.hint:
        lines.append(f"{'':13}{paint('dim', clean(check.hint))}")
    return "\n".join(lines)
