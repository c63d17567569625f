"""What a program wrote before it failed: its last lines in the thread, and all of it as a file where there is more. Pure."""

from __future__ import annotations

from bot.rendering.text import clip, safe, shown, weight
from engine.journal.state import State
from engine.language.codec import Json

LOG = "output.txt"
_LINES = 12
_MOST = 1_500
_LINE = 300


def tail_of(state: State) -> str:
    """The last lines of what the failed node wrote, as mrkdwn; empty where it wrote nothing."""
    text = _text(_details(state))
    if not text:
        return ""
    lines = [clip(line, _LINE) for line in shown(text).splitlines() if line.strip()][-_LINES:]
    while len(lines) > 1 and weight("\n".join(lines)) > _MOST:
        lines.pop(0)
    block = safe("\n".join(lines)).replace("```", "'''")
    more = f"\n_All that it wrote is in `{LOG}`, below._" if log_of(state) is not None else ""
    return f"```\n{block}\n```{more}"


def log_of(state: State) -> str | None:
    """All that the failed node wrote, where the thread shows less of it; else None."""
    details = _details(state)
    text = _text(details)
    both = [f"{name}:\n{details[name]}" for name in ("stderr", "stdout") if _said(details, name)]
    lines = text.splitlines()
    if (
        len(both) < 2
        and len(lines) <= _LINES
        and weight(text) <= _MOST
        and all(len(line) <= _LINE for line in lines)
    ):
        return None
    return "\n".join(both)


def _details(state: State) -> dict[str, Json]:
    details = (state.error or {}).get("details")
    return details if isinstance(details, dict) else {}


def _text(details: dict[str, Json]) -> str:
    """What is worth showing first: what went to standard error, else the output."""
    return next((str(details[name]).strip() for name in ("stderr", "stdout") if _said(details, name)), "")


def _said(details: dict[str, Json], name: str) -> bool:
    value = details.get(name)
    return isinstance(value, str) and bool(value.strip())
