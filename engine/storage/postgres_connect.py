"""Connecting to a Postgres server that can carry a store; what is said of it holds no secret.

A store lies in one schema, the first of the role's or the URL's `search_path`, which is made where it is not there. Nothing is
ever found in another one.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from engine.storage.errors import (
    NoSchema,
    NotUtf8,
    NoUsage,
    PoolerBetween,
    PostgresTooOld,
    ServerUnusable,
    Standby,
    UrlUnreadable,
)

OLDEST = 140000
"""The oldest server: `idle_session_timeout` is what ends a lease."""
CONNECT_SECONDS = 5
SILENT_MILLISECONDS = 10_000
"""After so long without an answer of the network a connection is given up."""
LOCK_SECONDS = 5
"""How long a statement waits for another transaction."""
_SETTINGS = (
    "SET idle_in_transaction_session_timeout = '10s'",
    f"SET lock_timeout = '{LOCK_SECONDS}s'",
    "SET client_encoding = 'UTF8'",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)


_SCHEMA = "SELECT current_schema()"
_MAKE_SCHEMA = """DO $$ BEGIN
 EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', trim('"' FROM current_setting('search_path')));
END $$"""
_STAY = "SELECT set_config('search_path', quote_ident(current_schema()), false)"


def connect(url: str, name: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A plain connection to a server that can carry a store. Raises `StorageError`."""
    given: dict[str, str | int | None] = {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": SILENT_MILLISECONDS,
        "keepalives_idle": 5,
    }
    known = _parts(url)
    if known is None:
        raise UrlUnreadable()
    try:
        # Who lives is read from these names: one in the URL would hide it.
        named = {key: value for key, value in given.items() if key not in known} | {"application_name": name}
        full = make_conninfo(url, **named)
        raw = psycopg.connect(full, autocommit=True, cursor_factory=psycopg.RawCursor)
    except psycopg.Error as error:
        raise ServerUnusable(place=shown(url), done="opened", error=told(error)) from error
    try:
        _check(raw, url)
        for setting in _SETTINGS:
            raw.execute(setting)
        if not schema_of(raw):
            raw.execute(_MAKE_SCHEMA)
        raw.execute(_STAY)
        if not schema_of(raw):
            raise NoUsage(place=shown(url))
    except psycopg.errors.InsufficientPrivilege as error:
        raw.close()
        raise NoSchema(place=shown(url), error=error) from error
    except psycopg.Error as error:
        raw.close()
        raise ServerUnusable(place=shown(url), done="used", error=told(error)) from error
    except BaseException:
        raw.close()
        raise
    raw.adapters.register_dumper(int, Int8Dumper)
    return raw


def _check(raw: psycopg.Connection[tuple[Any, ...]], url: str) -> None:
    """Refuse a server that cannot keep what is promised. Raises `StorageError`."""
    if raw.info.server_version < OLDEST:
        version = raw.info.parameter_status("server_version")
        raise PostgresTooOld(place=shown(url), version=version)
    row = raw.execute(
        "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('server_encoding')"
    ).fetchone()
    assert row is not None, "a SELECT without FROM gives a row"
    if row[0] != raw.info.backend_pid:
        raise PoolerBetween(place=shown(url))
    if row[1]:
        raise Standby(place=shown(url))
    if row[2] != "UTF8":
        raise NotUtf8(place=shown(url), encoding=row[2])


def schema_of(raw: psycopg.Connection[tuple[Any, ...]]) -> str:
    """The schema in which a connection works: the first of its `search_path` that is there for its role."""
    row = raw.execute(_SCHEMA).fetchone()
    return str(row[0] or "") if row else ""


def _parts(url: str) -> dict[str, Any] | None:
    """What a database URL says; None where part of a password would be taken for a host or a name, and be shown."""
    try:
        known = conninfo_to_dict(url)
    except psycopg.Error:
        return None
    named = str(known.get("host") or "")[1:] + str(known.get("dbname") or "")
    return None if "@" in named else known


def shown(url: str) -> str:
    """A database URL without what is secret in it."""
    known = _parts(url)
    if known is None:
        return "the database URL"
    port = f":{known['port']}" if known.get("port") else ""
    return (
        f"Postgres database {known.get('dbname') or '(default)'} at {known.get('host') or 'localhost'}{port}"
    )


def told(error: BaseException) -> str:
    """What the driver or the server says, in one line."""
    text = " ".join(str(error).split())
    return text.rstrip(".") or type(error).__name__
