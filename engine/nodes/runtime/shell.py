"""The `shell` node: runs one program or script and reports how it ended.

`run` is an argument list and never meets a shell; `script` is `/bin/sh -eu -c`, or a file for the program in its first
line, and takes values through its environment only. The environment is exactly `PATH`, `HOME`, `LANG`, the idempotency
key, the session id, a mark and the variables in `env`. A program with a slash, and `cwd`, are relative to the flow
file; without `cwd` the program runs in the session's own folder.

Output {stdout, stderr, exit_code, seconds}. Each of the two texts is at most about `max_output` bytes: the beginning
and the end, with a mark between. When the program ends by itself, its background processes are left alone; when it is
stopped, they are stopped too.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from engine.language.codec import Json
from engine.nodes.runtime.process import Capture, Command, Ended, MeterLines, run_command
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome, Refusal, as_text
from engine.nodes.runtime.secrets import Resolver, redacted

MAX_OUTPUT = 256 * 1024
"""Bytes kept of each of stdout and stderr, unless `max_output` says otherwise."""

_ENV_KEPT = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}
_PROGRESS_EVERY = 1.0
_LOOK_AGAIN = 0.05


async def shell(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Run a program: run|script, env, cwd, ok_codes, max_output, stdin. See the module."""
    with contextlib.ExitStack() as kept:
        resolver = Resolver(ctx.secret)
        try:
            env = {name: os.environ.get(name) or default for name, default in _ENV_KEPT.items()}
            for name, value in (config.get("env") or {}).items():
                env[name] = resolver.text(value, f"env {name}")
            # Last, so that the flow cannot change what the program is told about its execution.
            env["SAYSO_IDEMPOTENCY_KEY"] = ctx.idempotency_key
            env["SAYSO_SESSION_ID"] = ctx.session_id
            argv = _argv(config, kept)
            stdin = config.get("stdin")
            for where, text in [*((f"argument {n}", text) for n, text in enumerate(argv)), *env.items()]:
                if "\0" in text:
                    raise Refusal(
                        "invalid",
                        f"{where} contains a NUL character, which no argument may; remove it upstream",
                    )
            command = Command(
                argv=argv,
                executable=_executable(argv[0], env["PATH"], ctx.flow_dir or ctx.workdir),
                env=env,
                cwd=_cwd(config.get("cwd"), ctx),
                stdin=None if stdin is None else as_text(stdin, "stdin"),
            )
        except Refusal as refusal:
            return redacted(refusal.outcome, resolver.redactor())
        if ctx.aborted.is_set():
            return Interrupted("cut", "the session was stopping before the program began")
        redactor = resolver.redactor()
        limit: int = config.get("max_output", MAX_OUTPUT)
        stdout, stderr = Capture(limit, redactor), Capture(limit, redactor)
        show = _Progress(ctx.progress)
        lines = MeterLines(ctx.meter, redactor) if config.get("progress") else None
        try:
            ended = await run_command(
                command,
                timeout=ctx.timeout,
                aborted=ctx.aborted,
                grace=ctx.grace,
                stdout=lambda data: show.after(stdout, lines.feed(data) if lines is not None else data),
                stderr=lambda data: show.after(stderr, data),
            )
        except (OSError, ValueError) as error:
            return redacted(_not_started(command, error), redactor)
        if lines is not None:
            stdout.add(lines.rest())
        return _outcome(command, ended, (stdout, stderr), config.get("ok_codes", [0]), ctx)


def _outcome(
    command: Command,
    ended: Ended,
    texts: tuple[Capture, Capture],
    ok_codes: Json,
    ctx: NodeContext,
) -> Outcome:
    output: dict[str, Json] = {
        "stdout": texts[0].text(),
        "stderr": texts[1].text(),
        "exit_code": ended.exit_code,
        "seconds": round(ended.seconds, 3),
    }
    name = os.path.basename(command.argv[0])
    if ended.reason == "timeout":
        return Interrupted("timeout", f"{name} was stopped after {ctx.timeout:g} s", output)
    if ended.reason == "cut":
        return Interrupted("cut", f"{name} was stopped because the session is stopping", output)
    if ok_codes == "any" or ended.exit_code in ok_codes:
        return Completed(output)
    last = next((line.strip() for line in reversed(output["stderr"].splitlines()) if line.strip()), "")
    return Failed(
        "exit_code", f"{name} {_ending(ended.exit_code)}" + (f": {last[:300]}" if last else ""), output
    )


def _ending(code: int | None) -> str:
    return (
        f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    )


class _Progress:
    """Passes the latest line of the output on, at most once a second."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._next = 0.0
        self._last = ""

    def after(self, capture: Capture, data: bytes) -> None:
        capture.add(data)
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        line = capture.last_line()
        if line in ("", self._last):
            self._next = now + _LOOK_AGAIN
        else:
            self._next, self._last = now + _PROGRESS_EVERY, line
            self._show(line)


# --- from config to command ----------------------------------------------------------------------------


def _argv(config: dict[str, Json], kept: contextlib.ExitStack) -> tuple[str, ...]:
    script = config.get("script")
    if script is not None and not script.startswith("#!"):
        return ("/bin/sh", "-eu", "-c", script)
    if script is not None:
        from engine.nodes.types.shell import interpreter  # most scripts name none, and a model comes with it

        # Read while it runs: it goes when the program has ended.
        file = kept.enter_context(tempfile.NamedTemporaryFile(prefix="sayso-"))  # noqa: SIM115
        file.write(script.encode())
        file.flush()
        return (*interpreter(script), file.name)
    argv = tuple(as_text(item, f"`run`, item {index}") for index, item in enumerate(config["run"]))
    if not argv[0]:
        raise Refusal("invalid", "`run` begins with an empty text; its first item must be the program")
    return argv


def _cwd(value: Json, ctx: NodeContext) -> Path:
    try:
        folder = ctx.folder()
    except OSError as error:
        raise Refusal("cwd", f"cannot make the session's folder {ctx.workdir}: {error.strerror}") from error
    if value is None:
        return folder
    text = as_text(value, "cwd")
    if "\0" in text:
        raise Refusal("invalid", "cwd contains a NUL character; remove it upstream")
    path = (ctx.flow_dir or folder) / Path(os.path.expanduser(text))
    if not path.is_dir():
        raise Refusal("cwd", f"cwd {text}: there is no folder {path}")
    return path


def _executable(program: str, search: str, base: Path) -> str:
    if "/" not in program:
        found = shutil.which(program, path=search)
        if found:
            return os.path.abspath(found)
        hint = _nearest(program, (name for folder in search.split(":") for name in _names(folder)))
        if os.access(base / program, os.X_OK):
            hint = f"; to run the one beside the flow file write ./{program}"
        raise Refusal("not_found", f"there is no program {program} on PATH{hint}")
    path = base / program
    if not path.exists():
        beside = os.path.dirname(program)
        hint = _nearest(program, (os.path.join(beside, name) for name in _names(path.parent)))
        where = "" if os.path.isabs(program) else f" beside the flow file ({path})"
        raise Refusal("not_found", f"there is no program {program}{where}{hint}")
    if path.is_dir() or not os.access(path, os.X_OK):
        raise Refusal("not_executable", f"{path} is not executable; run `chmod +x` on it")
    return os.path.abspath(path)


def _nearest(name: str, known: Iterable[str]) -> str:
    # Comparing with thousands of names is noticeably slow; most cannot match.
    alike = {other for other in known if abs(len(other) - len(name)) <= 2 and set(other[:2]) & set(name[:2])}
    near = difflib.get_close_matches(name, alike, 1, 0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _names(folder: str | Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _not_started(command: Command, error: OSError | ValueError) -> Failed:
    hints: Mapping[int | None, tuple[str, str]] = {
        errno.ENOEXEC: (
            "not_executable",
            "it is not a program; a script needs a first line such as #!/bin/sh",
        ),
        errno.ENOENT: ("not_found", "the interpreter in its first line does not exist"),
        errno.EACCES: ("not_executable", "it or its interpreter is not executable"),
        errno.E2BIG: (
            "invalid",
            "its arguments and environment are too large; pass large values through `stdin`",
        ),
    }
    default = ("launch", getattr(error, "strerror", None) or str(error))
    type_, text = hints.get(getattr(error, "errno", None), default)
    return Failed(type_, f"{command.executable} could not be started: {text}")
