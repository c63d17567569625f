"""One process and everything it starts, as a group that can be ended for certain; its output, bounded and without
secrets; its progress lines.

The pipes are ours, not those of the event loop's process transport: so the end of the process and the end of its output
are two facts, and a grandchild that keeps a pipe open delays nothing for longer than `LINGER`. Processes that leave the
group (`setsid`, a daemon) are found by their environment, if there is a /proc: `MARK` has a value that no other
execution has. Only a process that clears its environment too, or belongs to another user, is out of reach.

Of an output that may be endless, the beginning and the end are kept. Lines such as `::progress 3/10 copying` and
`::progress 30% copying` are removed, in whatever pieces they arrive; everything else passes unchanged.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Literal

from msgspec import Struct

from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.redact import SHORTEST, Redactor
from engine.nodes.runtime.runner import first_of
from engine.nodes.types.spec import Meter

MARK = "SAYSO_EXECUTION"
"""Environment variable that identifies the processes that a command started."""

_LOOK_SECONDS, _EXEC_SECONDS = 0.001, 2.0
"""Seconds between looks at a process, and the most that one may take to start another program."""
_ENVIRONMENT = slice(47, 49)
"""The fields of a process that say where its environment begins and ends; the end is 0 while it starts another program."""

LINGER = 1.0
"""Seconds that an output may stay open after its process has ended."""

_CHUNK = 64 * 1024
_LARGEST_PIPE = 1024 * 1024
_UNKILLABLE = 5.0


class Command(Struct, frozen=True):
    """Command to run. `argv[0]` is the name the program sees, `executable` the file that is run."""

    argv: tuple[str, ...]
    executable: str
    env: Mapping[str, str]
    cwd: Path
    stdin: str | None


class Ended(Struct, frozen=True):
    """End of a process: by itself, by its timeout, or because the session leaves.

    `exit_code` is negative for a signal, and None for a process that could not even be killed.
    """

    reason: Literal["exit", "timeout", "cut"]
    exit_code: int | None
    seconds: float


async def run_command(
    command: Command,
    *,
    timeout: float | None,
    aborted: asyncio.Event,
    grace: float,
    stdout: Callable[[bytes], None],
    stderr: Callable[[bytes], None],
) -> Ended:
    """Run it to its end, or until `timeout` s passed or `aborted` is set; then end the whole group.

    `stdout` and `stderr` get everything that is written. Raises `OSError` or `ValueError` when it cannot be
    started. Cancelling kills the group at once.
    """
    clock = asyncio.get_running_loop().time
    started = clock()
    outputs = (_Output(stdout), _Output(stderr))
    group: _Group | None = None
    mark, over = os.urandom(16).hex(), False
    try:
        process = await _spawn(command, outputs, mark)
        group = _Group(process.pid, f"{MARK}={mark}".encode())
        exited = asyncio.ensure_future(process.wait())
        reason = await first_of(exited, aborted, timeout) or "exit"
        if reason != "exit":
            await group.stop(grace, exited)
        over = True
        seconds = clock() - started
        # Read the rest of the process's output, and for a moment the output of others.
        ends = [asyncio.ensure_future(each.ended.wait()) for each in outputs]
        try:
            await asyncio.wait(ends, timeout=LINGER)
        finally:
            for end in ends:
                end.cancel()
        for each in outputs:
            each.drain()
        return Ended(reason, process.returncode, seconds)
    finally:
        if group is not None and not over:
            group.signal(signal.SIGKILL)
        for output in outputs:
            output.close()


async def _spawn(command: Command, outputs: tuple[_Output, _Output], mark: str) -> asyncio.subprocess.Process:
    with _stdin(command.stdin) as stdin:
        await before_effect()
        # UTF-8 in every locale, like flows.
        process = await asyncio.create_subprocess_exec(
            *(_bytes(argument) for argument in command.argv),
            executable=command.executable,
            env={_bytes(name): _bytes(value) for name, value in {**command.env, MARK: mark}.items()},
            cwd=command.cwd,
            stdin=stdin,
            stdout=outputs[0].theirs,
            stderr=outputs[1].theirs,
            start_new_session=True,
        )
    for output in outputs:
        output.start()
    return process


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def _stdin(text: str | None) -> Iterator[IO[bytes] | int]:
    """Return a file for the process to read, which needs no writer and therefore never blocks."""
    if text is None:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


class _Output:
    """Our end of a pipe that a process writes to."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._ours, self.theirs = os.pipe()
        self._open, self._theirs_open = True, True
        os.set_blocking(self._ours, False)
        self.ended = asyncio.Event()

    def start(self) -> None:
        """Read from now on; only the process has the writing end."""
        self._close_theirs()
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def drain(self) -> None:
        """Read the pipe's content, bounded in case somebody keeps writing."""
        taken = 0
        while self._open and taken < _LARGEST_PIPE and (size := self._read()):
            taken += size

    def close(self) -> None:
        """Stop reading; a writer that is left gets SIGPIPE."""
        self._close_theirs()
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._ours)
            os.close(self._ours)
            self.ended.set()

    def _read(self) -> int:
        try:
            data = os.read(self._ours, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._sink(data)
        else:
            self.close()
        return len(data)

    def _close_theirs(self) -> None:
        if self._theirs_open:
            self._theirs_open = False
            os.close(self.theirs)


class _Group:
    """A process group, identified by its first process, and processes that left it but carry the mark."""

    def __init__(self, pid: int, mark: bytes) -> None:
        self._id = pid
        self._mark = mark

    def signal(self, number: signal.Signals) -> None:
        """Send the signal to every member; a group that has gone, or is no longer ours, is left alone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._id, number)
        for pid in self._strays():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _strays(self) -> list[int]:
        """The processes outside of the group that have its mark, and run."""
        marked = [pid for pid in _processes() if _is_marked(pid, self._mark)]
        return [pid for pid in marked if (group := _group_of(pid)) is not None and group != self._id]

    async def stop(self, grace: float, exited: asyncio.Future[int]) -> None:
        """Send SIGTERM, and SIGKILL to members that are left after `grace` seconds. Returns when none is left."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # one that is stopped would not notice
        if not await self._gone(grace, exited):
            self.signal(signal.SIGKILL)
            await self._gone(_UNKILLABLE, exited, kill=True)
        await asyncio.wait({exited}, timeout=LINGER)

    async def _gone(self, within: float, exited: asyncio.Future[int], *, kill: bool = False) -> bool:
        """True if every member ended within so many seconds; with `kill`, members that started meanwhile are killed
        too."""
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + within, 0.01
        while (left := deadline - clock()) > 0:
            if not exited.done():
                await asyncio.wait({exited}, timeout=left)
                continue
            # Orphans of this group become ours in a container, where this program may be process 1.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self._id, os.WNOHANG) != (0, 0):  # noqa: ASYNC222 - it does not wait
                    pass
            if not self._has_members():
                return True
            if kill:
                self.signal(signal.SIGKILL)
            # Polled: no signal reports the end of processes that are not our children.
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, 0.2)
        return exited.done() and not self._has_members()

    def _has_members(self) -> bool:
        return _has_members(self._id) or bool(self._strays())


def _has_members(group: int) -> bool:
    """True if a process of this group is running; zombies do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    processes = _processes()
    return not processes or any(_group_of(pid) == group for pid in processes)


def _processes() -> list[int]:
    """Return the ids of all processes; empty without /proc."""
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> list[bytes]:
    """The fields of a process behind its name, which may hold anything: state, parent, group and more."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _group_of(pid: int) -> int | None:
    """The group of a process that runs; None for one that has ended."""
    try:
        state, _, pgrp = _stat(pid)[:3]
    except (OSError, ValueError):
        return None
    return int(pgrp) if state not in (b"Z", b"X") else None


def _is_marked(pid: int, mark: bytes) -> bool:
    """True if a process has the mark. One that starts another program has no environment for a moment, on a busy machine a
    long one: it is asked again until it is known where its environment ends."""
    until = time.monotonic() + _EXEC_SECONDS
    with contextlib.suppress(OSError):
        while time.monotonic() < until:
            before = _stat(pid)[_ENVIRONMENT]
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
            if environment:
                return mark in environment.split(b"\0")
            os.readlink(f"/proc/{pid}/exe")  # fails for a zombie, and for what belongs to the kernel
            if before[1:] != [b"0"] and before == _stat(pid)[_ENVIRONMENT]:
                return False
            time.sleep(_LOOK_SECONDS)
    return False


# --- capture -----------------------------------------------------------------------------------------------


_LINE = 200
_RECENT = 4096


class Capture:
    """Collects bytes and returns text of about `limit` bytes: all of them, or head and tail with a mark between.

    Secrets are redacted before the cut is made, so half of one never stays: a margin beyond each cut is kept for that.
    Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self, limit: int, redactor: Redactor) -> None:
        self._redactor = redactor
        self._limit = limit
        self._margin = 4 * redactor.margin  # characters to bytes
        self._head_size, self._tail_size = limit - limit // 2, limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._head_size + self._margin - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_room:  # twice: so that the bytes are not moved at every call
            del self._tail[: -self._tail_room]

    def text(self) -> str:
        """Return the captured text, with `[… N bytes left out …]` instead of the rest."""
        if self.total <= self._limit:
            return self._redactor.text((self._head + self._tail).decode("utf-8", "replace"))
        whole = len(self._head) + len(self._tail) == self.total
        head = self._head + self._tail if whole else self._head
        tail = self._head + self._tail if whole else self._tail
        first, after = _split(head, self._head_size)
        before, last = _split(tail, len(tail) - self._tail_size)
        shown_head = self._redactor.window(first + after, 0, len(first))
        shown_tail = self._redactor.window(before + last, len(before), len(before) + len(last))
        return f"{shown_head}\n[… {self.total - self._limit} bytes left out …]\n{shown_tail}"

    def last_line(self) -> str:
        """Return the last complete line so far, for a progress display; at most 200 characters, "" without one.

        A possible first half of a secret is not shown, unless it is only a character or two.
        """
        whole = len(self._head) + len(self._tail) == self.total
        data = (self._head + self._tail if whole else self._tail)[-_RECENT - self._margin :]
        before, after = _split(data, self._margin if len(data) < self.total else 0)
        text = before + after
        shown = self._redactor.window(text, len(before), self._redactor.undecided(text, SHORTEST))
        lines = [line.strip() for line in shown.split("\n")[:-1]]
        return next((line[:_LINE] for line in reversed(lines) if line), "")

    @property
    def _tail_room(self) -> int:
        return self._tail_size + self._margin + 4


def _split(data: bytearray, at: int) -> tuple[str, str]:
    """These bytes as text before and after an offset; a character that lies across it comes after."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    before = decoder.decode(bytes(data[:at]))
    return before, decoder.decode(bytes(data[at:]), final=True)


# --- progress lines ----------------------------------------------------------------------------------------


PREFIX = b"::progress "
_METER_LINE = re.compile(
    r"::progress +(?P<done>\d{1,12}(?:\.\d{1,6})?) *(?:/ *(?P<total>\d{1,12}(?:\.\d{1,6})?)|%)(?: +(?P<text>.*))?",
    re.ASCII,
)
_LONGEST = 1_000
_TEXT = 200


class MeterLines:
    """Filters progress lines out of an output and shows them."""

    def __init__(self, show: Callable[[Meter], None], redactor: Redactor) -> None:
        self._show = show
        self._redactor = redactor
        self._held = b""
        self._at_start = True

    def feed(self, data: bytes) -> bytes:
        """The next bytes as far as they are output; a beginning that may become such a line is held back."""
        passed: list[bytes] = []
        for piece in (self._held + data).splitlines(keepends=True):
            whole = piece.endswith((b"\n", b"\r"))
            begins = self._at_start and (PREFIX.startswith(piece) or piece.startswith(PREFIX))
            if begins and not whole and len(piece) < _LONGEST:
                self._held = piece
                return b"".join(passed)
            if not (begins and whole and self._read(piece)):
                passed.append(piece)
            self._at_start = whole
        self._held = b""
        return b"".join(passed)

    def rest(self) -> bytes:
        """Return the bytes held back when the output ended."""
        held, self._held = self._held, b""
        return b"" if held and self._read(held) else held

    def _read(self, line: bytes) -> bool:
        found = _METER_LINE.fullmatch(line.decode("utf-8", "replace").strip())
        if found is None:
            return False
        total = float(found["total"]) if found["total"] is not None else 100.0
        text = self._redactor.text(" ".join((found["text"] or "").split()))[:_TEXT]
        self._show(Meter(float(found["done"]), total, text))
        return True
