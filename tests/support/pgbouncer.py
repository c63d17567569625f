"""PgBouncer before a Postgres server, in transaction mode unless a test says otherwise. Without the program tests that need it are
skipped; on CI that is a failure."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.pg_link import make_url

_SETTINGS = """[databases]
* = host={host}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = 8
server_login_retry = 1
{more}
"""


class Pooler:
    """A PgBouncer before the server of a URL; `url` is the same database behind it."""

    def __init__(self, folder: Path, url: str, mode: str, more: str, *users: str) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("no pgbouncer in PATH or /usr/sbin")
        there = conninfo_to_dict(url)
        host = str(there["host"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = make_url({**there, "host": "127.0.0.1", "port": self._port})
        listed, settings = folder / "users", folder / "pgbouncer.ini"
        listed.write_text("".join(f'"{user}" ""\n' for user in ("postgres", *users)))
        settings.write_text(_SETTINGS.format(host=host, port=self._port, users=listed, mode=mode, more=more))
        owner = Path(host).stat().st_uid
        self._command = [program, "-q", str(settings)]
        if os.getuid() == 0:
            for path in (folder, listed, settings):
                os.chown(path, owner, -1)
            self._command[1:1] = ["-u", Path(host).owner()]
        self.start()

    def start(self) -> None:
        """Return once it listens."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            except OSError:
                assert self._process.poll() is None, "pgbouncer ended at once"
                assert time.monotonic() < end, "pgbouncer does not listen"
                time.sleep(0.01)

    def stop(self) -> None:
        """End it at once, with all that it carries."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


@cache
def shared_pooler(url: str) -> Pooler:
    """The pooler that tests of this process use one after the other; see `postgres.shared_database`."""
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    # Between tests all connections to the server are ended: each is tried before it is used.
    pooler = Pooler(folder, url, "transaction", "server_check_delay = 0\nserver_check_query = select 1")
    atexit.register(shutil.rmtree, folder)
    atexit.register(pooler.stop)
    return pooler


@contextmanager
def pooled(url: str, *users: str, mode: str = "transaction", more: str = "") -> Iterator[Pooler]:
    """A pooler before the server of a URL. `more`: further settings, a line each."""
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    try:
        pooler = Pooler(folder, url, mode, more, *users)
        try:
            yield pooler
        finally:
            pooler.stop()
    finally:
        shutil.rmtree(folder)
