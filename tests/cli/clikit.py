"""Runs the real command line: as a process with pipes, or at a pseudo terminal where a person would sit. Its processes
are forked from one that has read the modules (`tests/support/prefork.py`)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import prefork

DEADLINE = 30.0
_ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


def environment(cwd: Path, **extra: str) -> dict[str, str]:
    """A clean environment: nothing of the developer's own settings."""
    keep = {
        name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ
    }
    base = {"HOME": str(cwd), "SAYSO_USER": "ana", "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
    return {**keep, **base, **extra}


def command(*arguments: str) -> list[str]:
    """The command line, as arguments of Python."""
    return ["-m", "bot.cli", *arguments]


class Done:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Cli:
    """A folder in which commands are run."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.env: dict[str, str] = {}
        self.fresh = False
        """Whether commands have a Python of their own, which reads what its path says before anything of ours."""

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def flow(self, name: str, *nodes: str, head: str = "") -> Path:
        """A flow in the folder of flows: its head, and its nodes in YAML, each on a line."""
        listed = "".join(f"  - {node}\n" for node in nodes)
        return self.write(f"flows/{name}.yml", f"flow: {name}\n{head}nodes:\n{listed}")

    def lines(self, name: str) -> list[str]:
        """The lines of a file, none where there is no file: what nodes that count their runs wrote."""
        path = self.cwd / name
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command to its end, with pipes."""
        environ = environment(self.cwd, **self.env)
        if self.fresh:
            argv = [sys.executable, *command(*arguments)]
            done = subprocess.run(
                argv, cwd=self.cwd, env=environ, input=stdin, capture_output=True, text=True, timeout=DEADLINE
            )
            return Done(done.returncode, done.stdout, done.stderr)
        done = prefork.run(command(*arguments), cwd=self.cwd, env=environ, stdin=stdin, timeout=DEADLINE)
        return Done(done.returncode, done.stdout, done.stderr)

    def asked(self, *arguments: str) -> str:
        """The id of the question at which a run stops."""
        done = self.run("run", *arguments)
        assert done.code == 3, done
        return str(done.json["prompts"][0]["promptId"])

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[prefork.Forked]:
        """A command that continues by itself, killed at the end if it still runs."""
        process = prefork.start(command(*arguments), cwd=self.cwd, env=environment(self.cwd, **self.env))
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    @contextlib.contextmanager
    def terminal(self, *arguments: str) -> Iterator[Terminal]:
        """A command at a terminal of its own, killed at the end if it still runs."""
        terminal = Terminal(command(*arguments), self.cwd, environment(self.cwd, **self.env))
        try:
            yield terminal
        finally:
            terminal.close()


class Terminal:
    """A pseudo terminal with one program of Python. What it shows is kept without colours and cursor movements."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._raw = b""
        self._read_to = 0
        self.process = prefork.start(
            argv, cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave, terminal=True
        )
        os.close(slave)

    @property
    def shown(self) -> str:
        """Everything that was shown so far."""
        return _ESCAPES.sub(b"", self._raw).replace(b"\r\n", b"\n").decode("utf-8", "replace")

    def expect(self, text: str) -> str:
        """Wait until this is shown, behind what was expected before; what was shown up to it."""
        deadline = time.monotonic() + DEADLINE
        while True:
            at = self.shown.find(text, self._read_to)
            if at >= 0:
                before, self._read_to = self.shown[self._read_to : at], at + len(text)
                return before
            if not self._pump(deadline - time.monotonic()):
                raise AssertionError(f"{text!r} was not shown; shown was:\n{self.shown}")

    def type(self, text: str) -> None:
        """Type text and press Enter."""
        os.write(self._master, text.encode() + b"\n")

    def answer(self, question: str, text: str) -> None:
        """Wait for a question and answer it."""
        self.expect(question)
        self.expect("> ")
        self.type(text)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._master, b"\x03")

    def end_of_input(self) -> None:
        """Press Ctrl-D."""
        os.write(self._master, b"\x04")

    def kill(self) -> None:
        """End the program as the kernel would: no handler runs."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE)

    def code(self) -> int:
        """The exit code, once it has ended; everything that it showed is read."""
        deadline = time.monotonic() + DEADLINE
        while self._pump(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _pump(self, seconds: float) -> bool:
        """Read what is there; False at the end of the output, or of the time."""
        if seconds <= 0 or not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self._raw += data
        return bool(data)

    def close(self) -> None:
        """Kill what still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        os.close(self._master)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        select.select([], [], [], 0.02)
