"""`sayso gate resume`: continues with sessions of Claude Code whose call was deferred, once people have decided about it.

One process at a time continues with a session. It runs in the folder in which the session was begun, with the same
configuration: in another one the settings of the project are not loaded, and no hook would be asked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bot.gate.client import Client, Refused
from bot.gate.hook import folder, read_record

LOOK_SECONDS = 2.0
MOST_TRIES = 3
"""So often a session is gone on with that leaves its call deferred."""
_NEEDED = ("session", "call", "request", "cwd")


def resume(words: Sequence[str], *, once: bool, tell: Callable[[str], None]) -> int:
    """Continue with every session that may continue, `once` or until Ctrl-C; 1 where one failed. `words` are more arguments for
    the program. Raises `NoGate`."""
    gate, failed, tries, refused = Client.configured(), False, dict[str, int](), set[str]()
    program = os.environ.get("SAYSO_CLAUDE", "claude")
    while True:
        for path, record in _records():
            call = f"{record['session']} {record['call']}"
            if tries.get(call, 0) >= MOST_TRIES:
                continue
            try:
                state = gate.post("look", request=record["request"])["state"]
            except Refused as error:
                if call not in refused:
                    tell(f"{record['session']} is skipped: {error}")
                refused.add(call)
                continue
            except OSError:
                continue  # the bot is being restarted
            if state == "open":
                continue
            with _alone(path) as ours:
                if not ours:
                    continue
                tries[call] = tries.get(call, 0) + 1
                tell(f"{record['session']}: {state}; resuming in {record['cwd']}")
                code = _run(program, words, record)
                if read_record(path) == record:
                    tell(f"{record['session']} did not retry its call (exit {code}).")
                    failed = failed or tries[call] >= MOST_TRIES
        if once:
            return int(failed)
        time.sleep(LOOK_SECONDS)


def _run(program: str, words: Sequence[str], record: dict[str, Any]) -> int:
    env = dict(os.environ)
    if record["config"]:
        env["CLAUDE_CONFIG_DIR"] = record["config"]
    else:
        env.pop("CLAUDE_CONFIG_DIR", None)
    command = [program, "-p", "--resume", record["session"], *words]
    try:
        return subprocess.run(
            command, cwd=record["cwd"], env=env, stdin=subprocess.DEVNULL, check=False
        ).returncode
    except OSError as error:
        print(f"sayso gate: {program} cannot be run in {record['cwd']}: {error.strerror}", file=sys.stderr)
        return 127


def _records() -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of deferred calls; what else is in the folder is left alone."""
    place = folder()
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    for name in names:
        path = os.path.join(place, name)
        record = read_record(path) if name.endswith(".json") else None
        if record and "config" in record and all(isinstance(record.get(key), str) for key in _NEEDED):
            yield path, record


@contextlib.contextmanager
def _alone(path: str) -> Iterator[bool]:
    """Hold the lock of a session; False where another process has it."""
    with open(f"{path}.lock", "w", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
