"""Secrets: the sources of their values, and the one moment in which a reference becomes a value.

A flow holds references only (`{"$secret": "NAME"}`), as do the journal and the state. A runner resolves them where they
leave (a process's environment, a request's headers) and remembers which it used, to redact their values from the
output.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec.structs import replace

from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.nodes.runtime.folder import NO_LINK, content
from engine.nodes.runtime.runner import Completed, Interrupted, Outcome, Refusal, as_text

if TYPE_CHECKING:
    from engine.nodes.runtime.redact import Redactor

log = logging.getLogger("sayso.node")

PREFIX = "SAYSO_SECRET_"
ENCRYPTION_KEYS = "ENCRYPTION_KEYS"
"""Name of the secret used for `SAYSO_ENCRYPTION_KEYS=secret`."""
RESERVED = frozenset({"KEY", "COMMAND", ENCRYPTION_KEYS})
"""Names that flows cannot read: `SAYSO_SECRET_KEY` signs the database, and `SAYSO_SECRET_COMMAND` is not a secret."""
COMMAND_SECONDS = 20.0
"""Seconds that the secrets command may take."""
KEPT_SECONDS = 60.0
"""Seconds for which a value from the command is cached."""
REFUSED_SECONDS = 5.0
"""Seconds for which a failure of the command is cached."""
_OURS = ("SAYSO_", "SLACK_", "ANTHROPIC_")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_LARGEST = 64 * 1024
_COMPLAINT = 2000
_LOOK_SECONDS = 0.1
"""Interval in seconds of checks whether a program with open output has ended."""


class SecretUnavailable(SaysoError):
    """The secret has no usable value here; the message says which setting to make."""

    code = "secret"


class SecretCommandFailed(SecretUnavailable):
    """The secrets command returned no value: a later attempt may succeed."""


class SecretSource:
    """Secrets by name, from the environment (`SAYSO_SECRET_NAME`, which wins), from mounted files, and from a command.

    `directory` comes from `SAYSO_SECRETS_DIR`: one file per secret, named like it; one newline at its end is not part
    of the value. Links inside the directory are followed (that is how Kubernetes mounts them), links out of it are
    refused. Values are read each time, so a rotated secret is seen.

    `command` comes from `SAYSO_SECRET_COMMAND`: it is run with the secret's name as its last argument, and its output
    is the value, without one newline at its end. That is cached for `KEPT_SECONDS`. It gets none of sayso's own
    variables.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        directory: Path | None,
        command: Sequence[str] = (),
        *,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._env = env
        self._directory = directory
        self._command = tuple(command)
        self._steady = steady
        self._kept: dict[str, tuple[float, str | SecretUnavailable | None]] = {}
        self._asking = threading.Lock()

    def get(self, name: str) -> str:
        """Return the value of this secret. Raises `SecretUnavailable`."""
        if not _NAME.fullmatch(name):
            raise SecretUnavailable(
                f"{name!r} is not a valid secret name: use letters, digits and _, starting with a letter"
            )
        if name in RESERVED:
            raise SecretUnavailable(
                f"{PREFIX}{name} is reserved for sayso; choose another name for the flow's secret"
            )
        return self.own(name)

    def own(self, name: str) -> str:
        """The same also for a name that is reserved for sayso itself. Raises `SecretUnavailable`."""
        value = self._env.get(PREFIX + name)
        if value is None and self._directory is not None:
            value = _read(self._directory, name)
        if value is None and self._command:
            # Cached for a moment, and one call at a time.
            with self._asking:
                until, told = self._kept.get(name, (0.0, None))
                if told is None or self._steady() >= until:
                    told = _printed([*self._command, name], self._env)
                    seconds = KEPT_SECONDS if isinstance(told, str) else REFUSED_SECONDS
                    self._kept[name] = (self._steady() + seconds, told)
            if isinstance(told, SecretUnavailable):
                raise told
            value = told
        if value is None:
            raise SecretUnavailable(f"secret {name} is not set: {self._how_to_set(name)}")
        if not value or "\0" in value:
            raise SecretUnavailable(
                f"secret {name} is {'not text' if value else 'empty'}: {self._how_to_set(name)}"
            )
        return value

    def names(self) -> tuple[str, ...]:
        """The names that have a place here, sorted; a value may still be refused."""
        found = {key.removeprefix(PREFIX) for key in self._env if key.startswith(PREFIX)}
        if self._directory is not None and self._directory.is_dir():
            found |= {entry.name for entry in self._directory.iterdir() if entry.is_file()}
        return tuple(sorted(name for name in found - RESERVED if _NAME.fullmatch(name)))

    def _how_to_set(self, name: str) -> str:
        text = f"set {PREFIX}{name}"
        if self._directory is not None:
            text += f", or write it to {self._directory / name}"
        import difflib

        near = difflib.get_close_matches(name.upper(), [known.upper() for known in self.names()], 1)
        known = [other for other in self.names() if other.upper() in near and other != name]
        return f"{text} (did you mean {known[0]}?)" if known else text


def _printed(command: Sequence[str], env: Mapping[str, str]) -> str | SecretCommandFailed:
    """Return the output of the secrets command. Its error output goes to the log only, since people in threads read the
    error."""
    program, name = command[0], command[-1]
    seen = {key: value for key, value in env.items() if not key.startswith(_OURS)}
    try:
        code, printed, complaint = _end_of(command, seen)
        if code == 0:
            return printed.decode().removesuffix("\n").removesuffix("\r")
        told = "printed too much" if code is None else f"ended with {code}"
        log.warning("%s %s: %s", program, name, complaint.decode(errors="replace").strip())
    except subprocess.TimeoutExpired:
        told = f"took longer than {COMMAND_SECONDS:g} s"
    except UnicodeDecodeError:
        told = "printed something that is not text"
    except OSError as error:
        told = f"could not be started: {error.strerror}"
    return SecretCommandFailed(f"secret {name} is unavailable: {program} (SAYSO_SECRET_COMMAND) {told}")


def _end_of(command: Sequence[str], env: Mapping[str, str]) -> tuple[int | None, bytes, bytes]:
    """Return a program's exit code, output, and the end of its error output; the code is None if it printed too much
    and was ended. Helpers that it leaves running are not waited for. Raises `OSError`, `subprocess.TimeoutExpired`."""
    pipe, until = subprocess.PIPE, time.monotonic() + COMMAND_SECONDS
    with (
        selectors.DefaultSelector() as ready,
        subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        told = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        printed, complaint = told.values()
        for descriptor in told:
            ready.register(descriptor, selectors.EVENT_READ)
        try:
            while ready.get_map() and len(printed) <= _LARGEST:
                over = process.poll() is not None
                found = ready.select(0 if over else _LOOK_SECONDS)
                if over and not found:
                    break
                if time.monotonic() > until:
                    raise subprocess.TimeoutExpired(command, COMMAND_SECONDS)
                for key, _ in found:
                    data = os.read(key.fd, _LARGEST)
                    told[key.fd] += data
                    if not data:
                        ready.unregister(key.fd)
                del complaint[:-_COMPLAINT]
            if len(printed) > _LARGEST:
                return None, b"", bytes(complaint)
            return process.wait(max(0.0, until - time.monotonic())), bytes(printed), bytes(complaint)
        finally:
            if process.returncode is None or len(printed) > _LARGEST:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def references(value: Json) -> set[str]:
    """The names of the secrets that a node's input refers to."""
    if isinstance(value, dict):
        if set(value) == {"$secret"} and isinstance(value["$secret"], str):
            return {value["$secret"]}
        return set().union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


class Resolver:
    """Turns references into values for one execution of a node, and remembers which it used."""

    def __init__(self, secret: Callable[[str], str]) -> None:
        self._secret = secret
        self._used: dict[str, str] = {}

    def text(self, value: Json, where: str) -> str:
        """The text that leaves: references resolved, everything else as `as_text` has it. Raises `Refusal`."""
        if isinstance(value, dict) and set(value) == {"$secret"}:
            name = value["$secret"]
            if not isinstance(name, str):
                raise Refusal("invalid", f"{where}: a secret's name must be text")
            try:
                self._used[name] = self._secret(name)
            except SaysoError as error:
                again = isinstance(error, SecretCommandFailed)
                raise Refusal(
                    "secret", f"{where}: {error}", None if again else {"retryable": False}
                ) from error
            return self._used[name]
        if (
            isinstance(value, dict)
            and set(value) == {"$secret_text"}
            and isinstance(value["$secret_text"], list)
        ):
            return "".join(self.text(part, where) for part in value["$secret_text"])
        return as_text(value, where)

    def url(self, value: Json, where: str) -> str:
        """Resolve an address: a leading part stays as it is, a secret further on is quoted as one path segment."""
        if isinstance(value, dict) and set(value) == {"$secret_text"}:
            first, *rest = value["$secret_text"]
            return self.text(first, where) + "".join(
                part if isinstance(part, str) else quote(self.text(part, where), safe="") for part in rest
            )
        return self.text(value, where)

    def json(self, value: Json, where: str) -> Json:
        """Resolve all references inside a JSON value. Raises `Refusal`."""
        if isinstance(value, dict) and value.keys() & {"$secret", "$secret_text"}:
            return self.text(value, where)
        if isinstance(value, dict):
            return {key: self.json(item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self.json(item, f"{where}[{number}]") for number, item in enumerate(value)]
        return value

    @property
    def used(self) -> bool:
        """True if a value was used so far."""
        return bool(self._used)

    def redactor(self) -> Redactor:
        """Takes out the values that were used so far."""
        return _redactor(self._used)


def marked(value: Json) -> Json:
    """Return the value with a mark instead of each reference, and an address without its query."""
    if isinstance(value, dict) and set(value) == {"$secret"}:
        return f"[secret {value['$secret']}]"
    if isinstance(value, dict) and set(value) == {"$secret_text"}:
        return "".join(map(marked, value["$secret_text"])).partition("?")[0]
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    return [marked(item) for item in value] if isinstance(value, list) else value


def without_secrets(outcome: Outcome, names: Iterable[str], secret: Callable[[str], str]) -> Outcome:
    """Redact these secrets from an outcome; names without a value here cannot occur in it."""
    values: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(SaysoError):
            values[name] = secret(name)
    redactor = _redactor(values)
    if isinstance(outcome, Interrupted) and outcome.reason in ("left", "asks"):
        # Only its questions are shown to people; the rest of its state stays its own.
        saved = outcome.details
        if outcome.reason == "asks":
            saved = {**saved, "asks": redactor.json(saved["asks"])}
        return replace(outcome, message=redactor.text(outcome.message), details=saved)
    return redacted(outcome, redactor)


def _redactor(values: Mapping[str, str]) -> Redactor:
    from engine.nodes.runtime.redact import Redactor  # by the first node

    return Redactor(values)


def redacted(outcome: Outcome, redactor: Redactor) -> Outcome:
    """An outcome without the secrets that a redactor knows."""
    if isinstance(outcome, Completed):
        return Completed(redactor.json(outcome.output))
    return replace(outcome, message=redactor.text(outcome.message), details=redactor.json(outcome.details))


def _read(directory: Path, name: str) -> str | None:
    """Return the value in the file of that name, or None if there is no such file. Raises `SecretUnavailable`."""
    root, target = Path(os.path.realpath(directory)), Path(os.path.realpath(directory / name))
    if not target.is_relative_to(root):
        raise SecretUnavailable(
            f"secret {name}: {directory / name} is a link that leads out of {directory}; put the file there"
        )
    try:
        # The path is resolved, so there is no link left to follow.
        data = content(os.open(target, NO_LINK), _LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SecretUnavailable(f"secret {name}: cannot read {directory / name}: {error.strerror}") from error
    if data is None:
        raise SecretUnavailable(f"secret {name}: {directory / name} is not a file")
    if len(data) > _LARGEST:
        raise SecretUnavailable(f"secret {name}: {directory / name} is larger than {_LARGEST} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SecretUnavailable(f"secret {name}: {directory / name} is not UTF-8 text") from error
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def unset(names: Iterable[str], secret: Callable[[str], str]) -> Iterator[str]:
    """Name the secrets that cannot be read here, a sentence each. It may ask a program for each one."""
    for name in sorted(names):
        try:
            secret(name)
        except SaysoError as error:
            yield str(error)
