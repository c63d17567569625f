"""Logging of a process: as text or as JSON lines, each part at its own level."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from errno import EMFILE, ENFILE

from engine.language.errors import SaysoError
from engine.storage.backoff import is_away

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LIBRARIES = ("slack_bolt", "slack_sdk", "aiohttp", "asyncio", "anthropic", "httpx2", "mcp")
"""Quiet, unless they are named: some log whole addresses, and arguments with the values of secrets."""


def set_up(levels: Mapping[str, str], *, as_json: bool) -> None:
    """Log to standard error from here on: `levels` by the name of a logger, that of all others under the empty name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(expected)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(TEXT))
    logging.basicConfig(handlers=[handler], level=levels.get("", "warning").upper(), force=True)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name, level in levels.items():
        if name:
            logging.getLogger(name).setLevel(level.upper())


def expected(record: logging.LogRecord) -> bool:
    """Remove the traceback of expected errors: our own explain themselves (a database that another program holds), and
    so does the system's limit of open files. Unreachable servers are not logged here: the store reports them."""
    error = record.exc_info[1] if record.exc_info else None
    about = record.args if isinstance(record.args, tuple) else ()
    if any(is_away(one) for one in (error, *about) if isinstance(one, BaseException)):
        return False
    if isinstance(error, SaysoError) or (isinstance(error, OSError) and error.errno in (EMFILE, ENFILE)):
        record.msg, record.args = f"{record.getMessage().splitlines()[0]}: {error}", ()
        record.exc_info = record.exc_text = None
    return True


class JsonLines(logging.Formatter):
    """A line is one JSON object: time (UTC), level, logger, message, and the session, path and thread that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        from engine.run.executor import logged_about  # not before there is something to say

        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **logged_about(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
