"""Processes that need not read the modules again: a server that has read them forks one process for each command.

A process of a test is a real one, with its own memory, folder, environment, signals and terminal; all that it saves
is the second that imports take. What is said about imports themselves is shown by `python` as people start it
(`tests/cli/test_imports.py`).
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import gc
import importlib
import os
import pickle
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import orjson

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("bot", "engine", "prompt_state")
HEAVY = (
    "aiohttp.web",
    "rich.console",
    "rich.table",
    "slack_bolt.async_app",
    "slack_sdk.web.async_client",
    "yaml",
)
"""What the rooms import only when they need it, and what most commands do need."""
_MOST = 1 << 20


class Forked:
    """A process that was forked: what tests use of `subprocess.Popen`."""

    stdin: IO[str] | None = None
    stdout: IO[str] | None = None
    stderr: IO[str] | None = None

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self._code: int | None = None
        self.pid = int(told.recv(64))

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.poll()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self._code is None and select.select([self._told], [], [], 0)[0]:
            self._ended()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended."""
        if self._code is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._ended()
        assert self._code is not None
        return self._code

    def _ended(self) -> None:
        self._code = int(self._told.recv(64) or -signal.SIGKILL)
        self._told.close()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as the kernel would."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still says, once it has ended."""
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        said = {"out": "", "err": ""}
        pipes = {"out": self.stdout, "err": self.stderr}

        def read(name: str, pipe: IO[str]) -> None:
            said[name] = pipe.read()
            pipe.close()

        threads = [
            threading.Thread(target=read, args=(name, pipe), daemon=True)
            for name, pipe in pipes.items()
            if pipe is not None and not pipe.closed
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
        self.wait(timeout)
        return said["out"], said["err"]


def start(
    arguments: Sequence[str],
    *,
    cwd: Path | str,
    env: Mapping[str, str],
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.PIPE,
    stderr: int | IO[Any] = subprocess.PIPE,
    session: bool = False,
    terminal: bool = False,
    read: Sequence[str] = (),
) -> Forked:
    """Be `python ARGUMENTS` (`-m MODULE ...`, `-c SCRIPT ...`). `session`: in a session of its own; `terminal`: at that
    of its stdin; `read`: modules besides the usual ones that are read once for all such processes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open(os.devnull, os.O_RDWR)
    closing, pipes = [null, theirs.fileno()], {}
    files = []
    for name, given in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
        if given == subprocess.DEVNULL:
            files.append(null)
        elif given == subprocess.STDOUT:
            files.append(files[1])
        elif given == subprocess.PIPE:
            reading, writing = os.pipe()
            mine, other = (writing, reading) if name == "stdin" else (reading, writing)
            files.append(other)
            closing.append(other)
            mode = "w" if name == "stdin" else "r"
            pipes[name] = open(mine, mode, encoding="utf-8", errors="replace")  # noqa: SIM115
        else:
            files.append(given if isinstance(given, int) else given.fileno())
    request = {
        "arguments": list(arguments),
        "cwd": str(cwd),
        "env": dict(env),
        "session": session or terminal,
        "terminal": terminal,
        "read": list(read),
    }
    theirs.detach()
    socket.send_fds(_server(), [orjson.dumps(request)], [*files, closing[1]])
    for descriptor in closing:
        os.close(descriptor)
    forked = Forked(ours)
    for name, pipe in pipes.items():
        setattr(forked, name, pipe)
    return forked


def call(function: Callable[..., object], *arguments: object, read: Sequence[str] = ()) -> Forked:
    """Call a function of a module in a process of its own."""
    given = base64.b85encode(pickle.dumps((function, arguments))).decode()
    script = f"import base64, pickle\nfunction, given = pickle.loads(base64.b85decode({given!r}))\nfunction(*given)"
    modules = (function.__module__, *read)
    return start(["-c", script], cwd=ROOT, env=os.environ, stdout=1, stderr=2, read=modules)


def front(*arguments: str, read: Sequence[str] = ()) -> list[str]:
    """A command line that is `python ARGUMENTS` for whoever starts programs without asking us (`front.py`)."""
    _server()
    program = Path(__file__).with_name("front.py")
    return [sys.executable, "-IS", str(program), _address(), " ".join(read), *arguments]


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | str,
    env: Mapping[str, str],
    stdin: str = "",
    merged: bool = False,
    timeout: float = 30.0,
    read: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Be `python ARGUMENTS` to its end. `merged`: what it says on standard error is between the rest."""
    with contextlib.ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin.encode())
        given.seek(0)
        process = start(
            arguments, cwd=cwd, env=env, stdin=given, stdout=out, stderr=out if merged else err, read=read
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


@cache
def _address() -> str:
    """Where the server listens, which all processes of one run of the tests share: a name in the kernel, and no file."""
    return f"sayso-prefork-{os.environ.get('PYTEST_XDIST_TESTRUNUID') or os.urandom(8).hex()}"


@cache
def _server() -> socket.socket:
    """A connection to the server, which the first who asks starts. It ends with the last connection."""
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            with contextlib.suppress(OSError):  # somebody else has that name
                listening.bind(f"\0{_address()}")
                listening.listen(128)
                _start(listening)
            ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
            with contextlib.suppress(ConnectionRefusedError):
                ours.connect(f"\0{_address()}")
        # It has read the modules: no test that waits for a process waits for that.
        if ours.recv(64):
            return ours


def _start(listening: socket.socket) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.prefork", str(listening.fileno())],
        cwd=ROOT,
        env=environ,
        pass_fds=[listening.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        _server().close()
        process.wait()

    atexit.register(end)


# --- the server --------------------------------------------------------------------------------------------


def _read_the_rooms() -> None:
    for room in ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for name in HEAVY:
        importlib.import_module(name)


def serve(listening: socket.socket) -> None:
    """Fork a process for each request until there is nobody who could ask."""
    gc.disable()
    _read_the_rooms()
    gc.enable()
    gc.collect()
    gc.freeze()
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    children: dict[int, socket.socket] = {}
    asking: dict[socket.socket, list[int]] = {}
    while True:
        ready = select.select([listening, reading, *asking], [], [])[0]
        if reading in ready:
            os.read(reading, 4096)
            _tell_of_the_dead(children)
        for asked in [one for one in ready if one in asking]:
            data, files = b"", list[int]()
            with contextlib.suppress(ConnectionResetError):
                data, files, _, _ = socket.recv_fds(asked, _MOST, 8)
            if not data:
                # Whoever started them is gone, perhaps killed: nobody else would end them.
                asked.close()
                for pid in children.keys() & asking.pop(asked):
                    os.kill(pid, signal.SIGKILL)
                if not asking:
                    return
                continue
            request = orjson.loads(data)
            for name in request["read"]:
                importlib.import_module(name)
            told = socket.socket(fileno=files[3])
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for descriptor in (reading, writing):
                    os.close(descriptor)
                for other in (listening, told, *children.values(), *asking):
                    other.close()
                _become(request, files[:3])
            for descriptor in set(files[:3]):
                os.close(descriptor)
            children[pid] = told
            asking[asked].append(pid)
            with contextlib.suppress(OSError):
                told.send(str(pid).encode())
        if listening in ready:
            asked, _ = listening.accept()
            asking[asked] = []
            with contextlib.suppress(OSError):
                asked.send(b"ready")


def _tell_of_the_dead(children: dict[int, socket.socket]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = children.pop(pid)
        with contextlib.suppress(OSError):
            told.send(str(os.waitstatus_to_exitcode(status)).encode())
        told.close()


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the process that was asked for, to its end."""
    code = 1
    try:
        _settle_in(request, files)
        code = _run(request["arguments"])
        threading._shutdown()
        atexit._run_exitfuncs()
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _settle_in(request: dict[str, Any], files: list[int]) -> None:
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate([os.dup(descriptor) for descriptor in files]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for descriptor in set(files):
        os.close(descriptor)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [request["cwd"], *(path for path in added if path and path not in sys.path)]
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = getattr(sys, name).errors
        stream = open(number, "w" if number else "r", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        if number:
            stream.reconfigure(line_buffering=number == 2 or os.isatty(number), write_through=at_once)
        setattr(sys, name, stream)


def _run(arguments: list[str]) -> int:
    """What the interpreter does with these arguments; the exit code."""
    how, *rest = arguments
    what = rest.pop(0) if how in ("-m", "-c") else ""
    sys.argv = [what if how == "-m" else how, *rest]
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif how == "-c":
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(how, run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
