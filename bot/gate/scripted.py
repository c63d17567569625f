"""An agent that follows a script, for the local workspace: it asks about one call, then about ten at once.

Stopped and started again it continues with what it asked: which part of the script comes next is in a file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.gate.requests import Requests, Wanted
from bot.gate.tokens import Token
from engine.language.codec import Json

_DAY = 86400.0
_DEPLOY: dict[str, Json] = {
    "command": "git push --force origin main\n./deploy.sh --region eu --canary 10%",
    "description": "Deploy the fix",
}
_WHY = "The checkout fails for 3 % of all users since 10:02.\nThe fix is reviewed."
SCRIPT: tuple[tuple[Wanted, ...], ...] = (
    (Wanted("approval", "script", "demo", "deploy", "Bash", _DEPLOY, _WHY, "demo", "/srv/checkout"),),
    tuple(
        Wanted(
            "approval",
            "script",
            "demo",
            f"restart-{number}",
            "mcp__hosts__restart",
            {"host": f"web-{number}", "drain": True},
            "It runs the old version.",
        )
        for number in range(1, 11)
    ),
)


async def play(requests: Requests, person: str, file: Path) -> None:
    """Ask, part after part, for somebody by id."""
    token = Token("gate-demo", "scripted-agent:demo", person, "")
    done = _done(file)
    for number, part in enumerate(SCRIPT[done:], done + 1):
        await asyncio.gather(*(requests.ask(token, wanted, _DAY, lambda: False) for wanted in part))
        _keep(file, number)


def _done(file: Path) -> int:
    return int(file.read_text()) if file.exists() else 0


def _keep(file: Path, number: int) -> None:
    file.write_text(str(number))
