"""The documents of the control room as pages. Whatever a document says is escaped: it was written by people and programs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader

from bot.terminal.console import ago
from bot.web.markup import blocks, spans
from engine.journal.history import worked
from engine.language.counting import elapsed
from engine.language.timestamps import after, seconds_between


def rendered(template: str, **given: object) -> str:
    """A template with these values."""
    return _ENVIRONMENT.get_template(template).render(given)


def link(path: str, query: dict[str, object]) -> str:
    """An address of this page; values that are empty are left out of its query."""
    text = urlencode({name: value for name, value in query.items() if value}, doseq=True)
    return f"{quote(path)}?{text}" if text else quote(path)


def _lasted(earlier: str, later: str) -> str:
    return _took(seconds_between(earlier, later))


def _took(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 10 else elapsed(seconds)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%"


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "views"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(
    link=link,
    ago=ago,
    lasted=_lasted,
    worked=worked,
    took=_took,
    after=after,
    blocks=blocks,
    spans=spans,
    seconds_between=seconds_between,
    share=_share,
)
