"""Shared parts of commands: their place (global options, settings), exit codes, and output as text for people and JSON
for machines.

The table of exit codes is the one that `--help` and the documentation show. `--help` loads no other modules of ours:
what only commands need is imported where it is used.

All text from flows, people or programs passes through `clean` before a terminal sees it: control characters are spelled
out, so that no reply can move the cursor or colour a decision.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO, TypeVar

from engine.language.counting import cells as cells
from engine.language.counting import plural as plural
from engine.language.errors import SaysoError, StorageError, UnknownSession

if TYPE_CHECKING:
    from bot.config.settings import Settings
    from engine.journal.state import State
    from engine.language.codec import Json
    from engine.storage.store import Store


T = TypeVar("T")
_SQLITE = "sqlite:///"
PATIENCE_SECONDS = 30.0
"""Seconds for which a command waits for another program that holds the database."""


class Place(NamedTuple):
    """The global options as they were given; None for what was not."""

    home: str | None = None
    flows: str | None = None
    database: str | None = None

    def settings(self) -> Settings:
        """The settings of this process. Raises `SettingsError`."""
        from bot.config.settings import load_settings

        url = None if self.database is None else url_of(self.database)
        return load_settings(os.environ, cwd=Path.cwd(), flows=self.flows, home=self.home, database_url=url)

    def workspace(self) -> Place | None:
        """The place of the local workspace that `sayso dev` keeps in this home, if there is one. It has a database of its
        own, whatever SAYSO_DATABASE_URL says."""
        settings = self.settings()
        home, usual = settings.home / "dev", f"{_SQLITE}{settings.home / 'sayso.db'}"
        there = self.database is None and (home / "sayso.db").exists()
        named = None if settings.database_url == usual else str(home / "sayso.db")
        return self._replace(home=str(home), database=named) if there else None

    def elsewhere(self, *words: str) -> str:
        """A sentence that says how to ask the same of the local workspace; empty if there is none."""
        there = self.workspace()
        return f" In the local workspace (sayso dev): {there.command(*words)}" if there else ""

    def command(self, *words: str) -> str:
        """A `sayso` command line that works in this place, for people to copy."""
        import shlex

        options = []
        for name, value in (("--home", self.home), ("--flows", self.flows), ("--db", self.database)):
            if value is not None:
                options += [name, value]
        return shlex.join(["sayso", *options, *words])


def place_of(settings: Settings) -> Place:
    """The place of these settings, for commands to copy: with its database where the home alone would mean another one. One
    on a server is left out, since its URL may have a password."""
    place, file = Place(home=str(settings.home)), database_file(settings)
    elsewhere = file is not None and settings.database_url != place.settings().database_url
    return place._replace(database=str(file)) if elsewhere else place


def url_of(database: str) -> str:
    """The URL of a database that was given as one, or as a file."""
    return (
        database if "://" in database or database == "memory:" else _SQLITE + str(Path(database).absolute())
    )


def database_file(settings: Settings) -> Path | None:
    """The file of an SQLite database; None for another kind of store."""
    if not settings.database_url.startswith(_SQLITE):
        return None
    return Path(settings.database_url.removeprefix(_SQLITE))


def database_exists(settings: Settings) -> bool:
    """True if there is a database already; looking for sessions does not make one."""
    file = database_file(settings)
    return file is None or file.exists()


@contextmanager
def opened(settings: Settings, missing: str = "", *, verify: bool = False) -> Iterator[Store]:
    """The store, closed afterwards; without keys for what is encrypted in it where it is only to `verify`. `missing` says
    what there is not where there is no database yet. Raises `StorageError`, `UnknownSession`."""
    from engine.storage.open import open_store

    if missing and not database_exists(settings):
        raise UnknownSession(f"There is {missing}: {settings.database_url} does not exist yet.")
    keys = settings.encryption_keys or (None if verify else ())
    store = open_store(settings.database_url, settings.secret_key, keys, patience=PATIENCE_SECONDS)
    try:
        yield store
    finally:
        store.close()


def stores(place: Place) -> Iterator[tuple[bool, Store]]:
    """The stores of this home and of its local workspace (True), as far as there are any: ids of both are taken by all
    commands. One of a workspace that cannot be used is said and left out. Raises `StorageError`."""
    for number, one in enumerate(filter(None, (place, place.workspace()))):
        settings = one.settings()
        if not database_exists(settings):
            continue
        try:
            with opened(settings) as store:
                yield number > 0, store
        except StorageError as error:
            if number == 0:
                raise
            print(f"The local workspace (sayso dev) is left out: {error}", file=sys.stderr)


@contextmanager
def writing(settings: Settings, missing: str = "") -> Iterator[Store]:
    """The store for a command that writes: at its end sessions that ended are attested, and some of what is older than
    the retention is deleted. Raises `StorageError`, `UnknownSession`."""
    from bot.compose.attesting import attest_ended
    from bot.compose.retention import clean_up
    from engine.run.stored import utc_now

    with opened(settings, missing) as store:
        yield store
        attest_ended(settings, store, utc_now())
        clean_up(settings, store, utc_now())


def leave_at_once() -> None:
    """Cancel all that this event loop does. What cannot be recorded any more is told once, at the end, and not in the log."""
    import asyncio
    import logging

    logging.disable(logging.CRITICAL)
    for task in asyncio.all_tasks():
        task.cancel()


# --- exit codes --------------------------------------------------------------------------------------------


class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PAUSED = 3
    INVALID_FLOW = 4
    REFUSED = 5
    STORE = 6
    SLACK = 7
    REJECTED = 8
    SERVED = 9
    SUSPENDED = 10


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "the session failed or was cancelled; a check of doctor, or a scenario, failed",
    Exit.USAGE: "wrong usage, unknown name, a setting or a scenario that cannot be used",
    Exit.PAUSED: "paused: waiting for people, kept for later",
    Exit.INVALID_FLOW: "a flow file is not valid",
    Exit.REFUSED: "refused: not allowed, already answered, already ended",
    Exit.STORE: "the database cannot be used, or the session's records are damaged",
    Exit.SLACK: "Slack cannot be reached, or does not accept the tokens",
    Exit.REJECTED: "the session ended because an approval was rejected, or nobody decided in time",
    Exit.SERVED: "another process serves this home",
    Exit.SUSPENDED: "the store is suspended: it is older than its last acknowledged commit",
}

INTERRUPTED = 130
"""Ctrl-C where there was nothing to keep; what a shell expects of a program that ends by SIGINT."""

BY_CODE = {
    code: exit_code
    for exit_code, codes in {
        Exit.USAGE: [
            "flow_unknown",
            "inputs_invalid",
            "settings",
            "usage",
            "session_unknown",
            "message_empty",
        ],
        Exit.INVALID_FLOW: ["flow_invalid"],
        Exit.REFUSED: [
            *("session", "session_ended", "session_erased", "session_running"),
            *("migration_refused", "snapshot_refused", "refused", "tried_again", "clock_jumped"),
            *("not_allowed", "already_answered", "prompt_closed", "prompt_timed_out"),
            *("answer_invalid", "text_too_long", "several_prompts"),
        ],
        Exit.STORE: [
            *("session_quarantined", "journal_malformed", "prompt_malformed", "corrupt", "key_missing"),
            *("storage", "storage_full", "storage_broken", "day_budget", "fenced", "owned"),
            *("lock_held", "kept_moved", "store_plain", "store_too_old", "schema_too_new"),
            "wrong_workspace",
        ],
        Exit.SLACK: ["start_failed", "slack"],
        Exit.SERVED: ["served"],
        Exit.SUSPENDED: ["store_suspended"],
    }.items()
    for code in codes
}
"""The exit code for each code of an error; one that is not listed is a failure."""


class UsageError(SaysoError):
    """The request names something that does not exist, or cannot be carried out."""

    code = "usage"


def exit_of(state: State) -> Exit:
    """The exit code for a session that was left like this."""
    from engine.journal.queries import is_rejection

    if state.status == "complete":
        return Exit.OK
    if state.status == "failed" and is_rejection(state.error):
        return Exit.REJECTED
    return Exit.FAILED if state.status in ("failed", "aborted") else Exit.PAUSED


# --- output ------------------------------------------------------------------------------------------------


_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
_UNLIMITED = 1_000_000


class Paint:
    """Colours for one stream: none where it is not a terminal, or `NO_COLOR` is set."""

    def __init__(self, stream: TextIO) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.on = stream.isatty() and not plain

    def __call__(self, style: str, text: str) -> str:
        """The text in a style of `_CODES`."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.on else text


def clean(text: str) -> str:
    """Anybody's text as a terminal may show it; lines stay lines."""
    from engine.language.template import shown

    return shown(text)


def one_line(text: str, most: int = 80) -> str:
    """The words of a text on one line, cut with an ellipsis."""
    words = clean(" ".join(text.split()))
    return words if len(words) <= most else words[: most - 1] + "…"


def columns(descriptor: int = 1) -> int:
    """The width of lines: COLUMNS, or the terminal, else 80. (`shutil`, which would tell too, takes 5 ms to import.)"""
    try:
        return int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(descriptor).columns or 80
    except (ValueError, OSError):
        return 80


def fitted(text: str, most: int) -> str:
    """As much of a line as so many columns hold, with an ellipsis if it was cut."""
    if cells(text) <= most:
        return text
    end = len(text)
    while end and cells(text[:end]) >= most:
        end -= 1
    return text[:end] + "…"


def wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """A text in lines of at most this width, broken between words only: addresses and options stay whole. `hanging` is the
    indent of all lines but the first."""
    import textwrap

    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_json(value: Json) -> None:
    """One JSON document on standard output."""
    import json

    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write("\n")
    sys.stdout.flush()


def width() -> int:
    """Columns of the terminal, or as COLUMNS says; as many as are needed where a file or another program reads."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return _UNLIMITED
    import shutil

    return max(60, shutil.get_terminal_size((100, 24)).columns)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint) -> list[str]:
    """The rows in aligned columns; the last one is cut where the terminal ends."""
    widths = [max(cells(row[column]) for row in [headers, *rows]) for column in range(len(headers) - 1)]
    room = max(10, width() - sum(widths) - 2 * len(widths))
    lines = []
    for number, row in enumerate([headers, *rows]):
        padded = [cell + " " * (size - cells(cell)) for cell, size in zip(row, widths, strict=False)]
        line = "  ".join([*padded, fitted(row[-1], room)]).rstrip()
        lines.append(paint("dim", line) if number == 0 else line)
    return lines


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the rows in aligned columns."""
    for line in table(headers, rows, Paint(sys.stdout)):
        print(line)


def print_list(
    name: str,
    items: Iterable[Json],
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    nothing: str,
    *,
    as_json: bool,
) -> int:
    """Print what a command lists: for a machine the items under a name, for people a table, or a sentence if there is
    nothing."""
    if as_json:
        print_json({name: list(items)})
    elif found := list(rows):
        print_table(headers, found)
    else:
        print(nothing)
    return Exit.OK


def read_there(settings: Settings, read: Callable[[Store], list[T]]) -> list[T]:
    """Read from the store; nothing where there is no database yet, for reading makes none. Raises `StorageError`."""
    if not database_exists(settings):
        return []
    with opened(settings) as store:
        return read(store)


@contextmanager
def writable(path: Path | str) -> Iterator[None]:
    """Errors of the system mean that this file cannot be written. Raises `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def moment(text: str) -> str:
    """A stored time in the local timezone: the hour alone where it is today."""
    from datetime import datetime

    from engine.language.timestamps import from_text

    when = from_text(text).astimezone()
    today = when.date() == datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if today else f"{when:%Y-%m-%d %H:%M}"


def ago(text: str, now: str) -> str:
    """Return the age of a time; a changed row may have none."""
    from engine.language.counting import elapsed
    from engine.language.timestamps import seconds_between

    try:
        return f"{elapsed(seconds_between(text, now))} ago"
    except (TypeError, ValueError):
        return "unknown"
