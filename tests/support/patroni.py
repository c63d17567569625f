"""Two Postgres servers that Patroni keeps, with etcd, all of Debian's packages, reached by one URL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
import yaml

PACKAGES = ("patroni", "etcd-server", "postgresql")
USER = "postgres"
NAMES = ("one", "two")
START_SECONDS = 60.0
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def installed() -> None:
    """Install what is needed. Skips the test where it cannot be had."""
    if (
        shutil.which("patroni")
        and shutil.which("etcd")
        and list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    ):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip(
            f"Debian's packages {', '.join(PACKAGES)} are not here, and only root can install them by apt-get"
        )
    command = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(
            f"apt-get cannot install {', '.join(PACKAGES)}: {(done.stderr.splitlines() or ['?'])[-1]}"
        )


def _ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """The servers. A commit waits for the synchronous standby; Patroni promotes that one only."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sayso-patroni-"))
        shutil.chown(self.folder, USER, USER)
        self._etcd, *ports = _ports(6)
        self._ports = dict(zip(NAMES, zip(ports[1:3], ports[3:5], strict=True), strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._bin = str(max(Path("/usr/lib/postgresql").glob("*/bin")))
        hosts = ",".join(f"127.0.0.1:{self._ports[name][0]}" for name in NAMES)
        self.url = f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write"
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{ports[0]}"
        self._start(
            "etcd",
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        for name in NAMES:
            self._start(name, "patroni", str(self._settings(name)))
            self._wait("SELECT 1", name)
        self._wait("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'", NAMES[0])

    def _settings(self, name: str) -> Path:
        port, rest = self._ports[name]
        file = self.folder / f"{name}.yml"
        file.write_text(
            yaml.safe_dump(
                {
                    "scope": "sayso",
                    "name": name,
                    "restapi": {"listen": f"127.0.0.1:{rest}", "connect_address": f"127.0.0.1:{rest}"},
                    "etcd3": {"host": f"127.0.0.1:{self._etcd}"},
                    "bootstrap": {
                        "dcs": {"ttl": 20, "loop_wait": 1, "retry_timeout": 3, "synchronous_mode": True},
                        "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "data-checksums"],
                        "pg_hba": [
                            "host all all 127.0.0.1/32 trust",
                            "host replication all 127.0.0.1/32 trust",
                        ],
                    },
                    "postgresql": {
                        "listen": f"127.0.0.1:{port}",
                        "connect_address": f"127.0.0.1:{port}",
                        "data_dir": str(self.folder / name),
                        "bin_dir": self._bin,
                        "pgpass": str(self.folder / f"{name}.pgpass"),
                        "authentication": {
                            "superuser": {"username": USER, "password": "trusted"},
                            "replication": {"username": "replicator", "password": "trusted"},
                        },
                        "parameters": {"unix_socket_directories": str(self.folder), "max_connections": 100},
                    },
                }
            )
        )
        return file

    def _start(self, name: str, *command: str) -> None:
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*as_user, *command],
                cwd=self.folder,
                env=CLEAN,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, query: str, name: str) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                with psycopg.connect(f"postgresql://{USER}@127.0.0.1:{self._ports[name][0]}/postgres") as raw:
                    if raw.execute(query).fetchone():  # type: ignore[arg-type]
                        return
            except psycopg.OperationalError:
                pass
            if time.monotonic() > until:
                raise TimeoutError((self.folder / f"{name}.log").read_text()[-2000:])
            time.sleep(0.1)

    def kill_primary(self) -> None:
        """Kill the machine of the first server: its Patroni and all processes of Postgres."""
        postmaster = int((self.folder / NAMES[0] / "postmaster.pid").read_text().split()[0])
        self._kill(NAMES[0])
        _kill_with_children(postmaster)

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End all, and delete their data."""
        for name in list(self._processes):
            self._kill(name)
        for name in NAMES:
            file = self.folder / name / "postmaster.pid"
            if file.exists():
                _kill_with_children(int(file.read_text().split()[0]))
        shutil.rmtree(self.folder, ignore_errors=True)


def _kill_with_children(pid: int) -> None:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    for one in (pid, *map(int, found.stdout.split())):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
