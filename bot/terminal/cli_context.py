"""Where a command works: the global options, and the settings that they and the environment give."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.config.settings import Settings, load_settings

if TYPE_CHECKING:
    from engine.storage.port import Store

_SQLITE = "sqlite:///"
PATIENCE_SECONDS = 30.0
"""How long a command waits for another program that holds the database."""


@dataclass(frozen=True)
class Place:
    """The global options as they were given; None for what was not."""

    home: str | None = None
    flows: str | None = None
    database: str | None = None

    def settings(self) -> Settings:
        """The settings of this process. Raises `SettingsError`."""
        url = self.database
        if url is not None and "://" not in url and url != "memory:":
            url = _SQLITE + str(Path(url).absolute())
        return load_settings(os.environ, cwd=Path.cwd(), flows=self.flows, home=self.home, database_url=url)

    def workspace(self) -> Place | None:
        """The place of the local workspace that `sayso dev` keeps in this home, if there is one. It has a database of its
        own, whatever SAYSO_DATABASE_URL says."""
        settings = self.settings()
        home, usual = settings.home / "dev", f"{_SQLITE}{settings.home / 'sayso.db'}"
        there = self.database is None and (home / "sayso.db").exists()
        named = None if settings.database_url == usual else str(home / "sayso.db")
        return replace(self, home=str(home), database=named) if there else None

    def command(self, *words: str) -> str:
        """A `sayso` command line that works in this place, for people to copy."""
        options = []
        for name, value in (("--home", self.home), ("--flows", self.flows), ("--db", self.database)):
            if value is not None:
                options += [name, value]
        return shlex.join(["sayso", *options, *words])


def database_file(settings: Settings) -> Path | None:
    """The file of an SQLite database; None for another kind of store."""
    if not settings.database_url.startswith(_SQLITE):
        return None
    return Path(settings.database_url.removeprefix(_SQLITE))


def database_exists(settings: Settings) -> bool:
    """Whether there is a database already; looking for sessions does not make one."""
    file = database_file(settings)
    return file is None or file.exists()


@contextmanager
def opened(settings: Settings) -> Iterator[Store]:
    """The store, closed afterwards. Raises `StorageError`."""
    from engine.storage.open import open_store

    store = open_store(settings.database_url, settings.secret_key, patience=PATIENCE_SECONDS)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def writing(settings: Settings) -> Iterator[Store]:
    """The store for a command that writes: at its end some of what is older than the retention is deleted.
    Raises `StorageError`."""
    from bot.compose.retention import clean_up
    from engine.run.active import utc_now

    with opened(settings) as store:
        yield store
        clean_up(settings, store, utc_now())
