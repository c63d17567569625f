"""The doors' way to the gate: JSON over HTTP, with the token of `sayso gate login`. It loads nothing but the standard library.

`SAYSO_GATE_URL` and `SAYSO_GATE_TOKEN` say where and who, else the file `~/.config/sayso/gate.json` with `url` and `token`.
"""

from __future__ import annotations

import json
import os
import time
from socket import create_connection
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8767"
_AROUND = 20.0
"""Seconds that an answer may take longer than the wait."""
_FIRST_SECONDS = 10.0
"""Seconds for which an unreached gate is tried again."""
MOST_BYTES = 1024 * 1024
"""Bytes of a request."""


class NoGate(Exception):
    """The gate cannot be reached, or refuses. No answer is an allow."""


class NoToken(NoGate):
    """Neither the environment nor the file has a token."""


class Refused(NoGate):
    """The gate refuses this request; it is there, and may answer others."""


class Ambiguous(ValueError):
    """JSON that two readers may read differently."""


def read_json(text: str | bytes) -> Any:
    """Parse JSON strictly, so that all readers agree: no duplicate keys, also in another letter case, since some readers
    ignore it; and only finite numbers. Raises `ValueError`."""
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({folded(key) for key, _ in pairs}) != len(pairs):
        raise Ambiguous("a key appears twice, possibly in different letter case")
    return dict(pairs)


def folded(key: str) -> str:
    """A key as a reader sees it that ignores the letter case."""
    return key.upper().casefold()


def _no_number(word: str) -> Any:
    raise Ambiguous(f"{word} is not a number")


class Client:
    """Asks the gate."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    @classmethod
    def configured(cls) -> Client:
        """The client that the environment or the file describes. Raises `NoGate`."""
        url, token = os.environ.get("SAYSO_GATE_URL"), os.environ.get("SAYSO_GATE_TOKEN")
        path = os.path.expanduser("~/.config/sayso/gate.json")
        if not token and os.path.exists(path):
            try:
                with open(path, encoding="utf-8") as stream:
                    given = json.load(stream)
                url, token = url or given.get("url"), given["token"]
            except (OSError, ValueError, KeyError, AttributeError) as error:
                raise NoGate(f"{path} cannot be read: {error}") from error
        if not token:
            raise NoToken("no token is set: run `sayso gate login`, and set SAYSO_GATE_TOKEN")
        return cls(url or DEFAULT_URL, token)

    def post(self, do: str, **given: Any) -> dict[str, Any]:
        """The answer to one request. Raises `Refused`, `NoGate`; `OSError` where nobody answers."""
        body = json.dumps(given).encode()
        if len(body) > MOST_BYTES:
            raise Refused(f"the request has {len(body):,} bytes; the limit is {MOST_BYTES:,}")
        status, answered = _exchange(self.url, f"/gate/{do}", self.token, body, float(given.get("wait") or 0))
        if status == 503:
            raise ConnectionError(f"the gate answered {status}")
        try:
            told = json.loads(answered)
        except ValueError:
            told = None
        if status == 200 and isinstance(told, dict):
            return told
        reason = told.get("reason") if isinstance(told, dict) else None
        refuses = Refused if status in (400, 409, 413, 500) else NoGate
        raise refuses(str(reason or f"the gate answered {status} with an invalid answer"))

    def ask(self, wanted: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request, waited for so long through restarts of the bot. Raises `NoGate`."""
        until, reached = time.monotonic() + seconds, False
        first = time.monotonic() + min(seconds, _FIRST_SECONDS)
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                answer = self.post("ask", **wanted, wait=left)
            except OSError as error:
                if time.monotonic() >= (until if reached else first):
                    raise NoGate(f"the gate cannot be reached at {self.url}: {error}") from error
                time.sleep(0.5)
                continue
            reached = True
            if answer.get("state") != "open" or time.monotonic() >= until:
                return answer
            time.sleep(0.2)  # the bot is being stopped: its answer came early


def _exchange(url: str, path: str, token: str, body: bytes, wait: float) -> tuple[int, bytes]:
    """Send one request; the status and the body of the answer. `http.client` would take longer to load than all this takes.
    Raises `OSError`, `NoGate`."""
    scheme, _, rest = url.partition("://")
    place, _, prefix = rest.rstrip("/").partition("/")
    host, _, port = place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "")
    if scheme not in ("http", "https") or not host or "\n" in token + url or "\r" in token + url:
        raise NoGate(f"{url} is not the address of a gate")
    number = int(port) if port else 443 if scheme == "https" else 80
    head = (
        f"POST {'/' + prefix if prefix else ''}{path} HTTP/1.0\r\nHost: {place}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with create_connection((host.strip("[]"), number), timeout=wait + _AROUND) as connection:
        if scheme == "https":
            import ssl

            connection = ssl.create_default_context().wrap_socket(
                connection, server_hostname=host.strip("[]")
            )
        connection.sendall(head.encode() + body)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    top, _, answered = b"".join(parts).partition(b"\r\n\r\n")
    lines = top.split(b"\r\n")
    sizes = [line.split(b":")[1] for line in lines[1:] if line.lower().startswith(b"content-length:")]
    if not lines[0].startswith(b"HTTP/1.") or (sizes and int(sizes[0]) != len(answered)):
        raise ConnectionError("the answer is cut off")
    return int(lines[0].split()[1]), answered
