"""Connecting to a Postgres server that can carry a store; what is said of it holds no secret.

A store lies in one schema, the first of the role's or the URL's `search_path`, which is made where it is not there. Nothing is
ever found in another one.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from engine.storage.errors import (
    NoSchema,
    NotUtf8,
    NoUsage,
    PostgresTooOld,
    SchemaLeftOut,
    ServerUnusable,
    Standby,
    StatementPooling,
    UrlUnreadable,
)

OLDEST = 140000
CONNECT_SECONDS = 5
SILENT_MILLISECONDS = 10_000
"""After so long without an answer of the network a connection is given up."""
_ASK = """SELECT pg_is_in_recovery(), current_setting('server_encoding'), current_schema(), current_setting('search_path'),
 pg_backend_pid()"""
_MAKE_SCHEMA = """DO $$ BEGIN
 EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', trim('"' FROM current_setting('search_path')));
EXCEPTION WHEN unique_violation OR duplicate_schema THEN NULL;
END $$"""
_SEARCHED = re.compile(r"search_path=((?:\\.|\S)+)")
_SPACED = re.compile(r"[\\\s]")


class Reached(NamedTuple):
    """A connection to a server that can carry a store."""

    raw: psycopg.Connection[tuple[Any, ...]]
    schema: str
    """The schema in which it works: the first of its `search_path` that is there for its role."""
    pooled: bool
    """True if a pooler is in between: it answers with a process id of its own."""


def connect(url: str) -> Reached:
    """A connection on which nothing is set that has to last: a pooler may carry each transaction to another server process.
    Raises `StorageError`."""
    given: dict[str, str | int | None] = {
        "application_name": "sayso",
        "client_encoding": "UTF8",
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": SILENT_MILLISECONDS,
        "keepalives_idle": 5,
    }
    known = _parts(url)
    if known is None:
        raise UrlUnreadable()
    try:
        full = make_conninfo(url, **{key: value for key, value in given.items() if key not in known})
        raw = psycopg.connect(full, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor)
    except psycopg.Error as error:
        raise ServerUnusable(place=shown(url), done="opened", error=told(error)) from error
    raw.adapters.register_dumper(int, Int8Dumper)
    try:
        with raw.transaction():
            # Refuse a server that cannot keep what is promised, and make the schema. Raises `StorageError`.
            if raw.info.server_version < OLDEST:
                raise PostgresTooOld(place=shown(url), version=raw.info.parameter_status("server_version"))
            standby, encoding, schema, path, pid = _asked(raw)
            if standby:
                raise Standby(place=shown(url))
            if encoding != "UTF8":
                raise NotUtf8(place=shown(url), encoding=encoding)
            wanted = _SEARCHED.search(raw.info.options)
            if wanted and _SPACED.sub("", wanted[1]) != _SPACED.sub("", path):
                raise SchemaLeftOut(place=shown(url), wanted=wanted[1])
            if schema is None:
                raw.execute(_MAKE_SCHEMA)
                schema = _asked(raw)[2]
            if schema is None:
                raise NoUsage(place=shown(url))
            return Reached(raw, schema, pid != raw.info.backend_pid)
    except psycopg.errors.InsufficientPrivilege as error:
        raw.close()
        raise NoSchema(place=shown(url), error=error) from error
    except psycopg.Error as error:
        raw.close()
        if "statement pooling" in str(error):
            raise StatementPooling(place=shown(url)) from error
        raise ServerUnusable(place=shown(url), done="used", error=told(error)) from error
    except BaseException:
        raw.close()
        raise


def _asked(raw: psycopg.Connection[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = raw.execute(_ASK).fetchone()
    assert row is not None, "a SELECT without FROM gives a row"
    return row


def _parts(url: str) -> dict[str, Any] | None:
    """Return the parts of a database URL, or None if part of a password would be taken for a host or a name, and be
    shown."""
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
    """Return the message of the driver or the server in one line."""
    text = " ".join(str(error).split())
    return text.rstrip(".") or type(error).__name__
