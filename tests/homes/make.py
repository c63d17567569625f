"""Makes the homes of the release that is being made: `python -m tests.homes.make`. Once a release is out its homes are never
made again.

A process starts every scene of `tests.homes.scenes`, brings it to where it waits, and is killed, so that SQLite leaves a WAL
and a node is cut. `<name>.tar.gz` is the folder of a SQLite store, `<name>.sql.gz` what `pg_dump` writes of a database in
Postgres; those with `keys` are encrypted.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from engine import Runtime
from tests.homes.scenes import ENCRYPTION, SECRET, Model, begin

FOLDER = Path(__file__).parent
RELEASE = "v1"


async def make(url: str, home: Path, keys: bool) -> None:
    """Fill a store; this process is killed."""
    encryption = (ENCRYPTION,) if keys else ()
    runtime = Runtime(url, home=home, provider=Model(), secret_key=SECRET, encryption_keys=encryption)
    async with runtime:
        await begin(runtime)
        os.kill(os.getpid(), signal.SIGKILL)


def filled(url: str, home: Path, keys: bool) -> None:
    """Fill a store by a process that is killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.homes.make", url, str(home), str(int(keys))], check=False
    )
    assert done.returncode == -signal.SIGKILL, done.returncode
    subprocess.run(["pkill", "-f", "sleep 600"], check=False)


def main() -> None:
    """Make all homes."""
    from tests.support import postgres

    for name, keys in ((RELEASE, False), (f"{RELEASE}-keys", True)):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            home.mkdir(mode=0o700)
            filled(f"sqlite:///{home}/sayso.db", home, keys)
            for left in home.rglob("*-shm"):
                left.unlink()
            with tarfile.open(FOLDER / f"{name}.tar.gz", "w:gz") as tar:
                tar.add(home, "home", filter=_of_nobody)
            url = postgres.new_database("template0")
            filled(url, Path(folder) / "other", keys)
            (FOLDER / f"{name}.sql.gz").write_bytes(gzip.compress(postgres.dump(url), mtime=0))


def _of_nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(make(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "1"))
    else:
        main()
