"""What the tests of nodes share: a context, conditions to wait for, and secrets that must not come back."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import os
import random
import string
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from engine.language.errors import SaysoError
from engine.nodes.runtime.runner import (
    Completed,
    Failed,
    Interrupted,
    NodeContext,
    Outcome,
    StopSignal,
)
from tests.support.proving import PROVE

PYTHON = sys.executable


class Context:
    """Builds a `NodeContext` in a temporary folder and keeps what the runner told it."""

    def __init__(self, folder: Path, secrets: Mapping[str, str] | None = None) -> None:
        self.secrets = dict(secrets or {})
        self.lines: list[str] = []
        self.aborted = StopSignal()
        self.workdir = folder / "work"
        self.flow_dir = folder / "flows"
        self.flow_dir.mkdir()

    def build(self, **changes: Any) -> NodeContext:
        """The context, with these fields changed."""
        fields: dict[str, Any] = {
            "session_id": "session-0badcafe",
            "path": "rollout[2]/apply",
            "idempotency_key": "session-0badcafe:rollout[2]/apply",
            "attempt": 1,
            "workdir": self.workdir,
            "flow_dir": self.flow_dir,
            "secret": self.secret,
            "timeout": None,
            "aborted": self.aborted,
            "progress": self.lines.append,
            "grace": 5.0,
        }
        return NodeContext(**{**fields, **changes})

    def secret(self, name: str) -> str:
        """As the engine does it: an error of ours for a name that is not set."""
        if name not in self.secrets:
            raise SaysoError(f"secret {name} is not set: set SAYSO_SECRET_{name}")
        return self.secrets[name]


def output(outcome: Outcome) -> dict[str, Any]:
    """The output of a node that must have completed."""
    assert isinstance(outcome, Completed), outcome
    assert isinstance(outcome.output, dict)
    return outcome.output


def failure(outcome: Outcome) -> Failed:
    """The failure of a node that must have failed."""
    assert isinstance(outcome, Failed), outcome
    return outcome


def interruption(outcome: Outcome) -> Interrupted:
    """The interruption of a node that must have been interrupted."""
    assert isinstance(outcome, Interrupted), outcome
    return outcome


async def until(condition: Callable[[], Any], within: float = 20) -> Any:
    """Wait for another process to make something true; returns it, or fails after `within` s."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (value := condition()):
        assert loop.time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)
    return value


def runs(pid: int) -> bool:
    """Whether this process still runs; one that waits to be collected by its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state not in "ZX"


# --- canaries -----------------------------------------------------------------------------------------


def canaries() -> list[str]:
    """Values as secrets look: tokens, keys, passwords with odd characters, several lines. 50 of them in `make prove`, else 12."""
    pick = random.Random(7)
    alphabets = [
        string.ascii_letters + string.digits,
        string.hexdigits,
        string.printable.strip(),
        "äöüßéñ€日本語" + string.ascii_letters,
        string.ascii_letters + "/+=&?%\"'\\<> ",
    ]
    values = [
        "canary" + "".join(pick.choices(alphabets[n % 5], k=pick.randint(6, 60))) + "end"
        for n in range(48 if PROVE else 10)
    ]
    pem = "\n".join("".join(pick.choices(alphabets[0] + "+/", k=64)) for _ in range(5))
    return [*values, f"-----BEGIN KEY-----\n{pem}\n-----END KEY-----", "canary\nin\nlines"]


def small_quote(value: str) -> str:
    """Percent-quoted with small digits."""
    quoted = quote(value, safe="")
    head, *rest = quoted.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def b64(before: int, urlsafe: bool, pad: bool) -> Callable[[str], str]:
    """Base64 of the value behind so many other bytes, and with others after it."""
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode

    def form(value: str) -> str:
        text = encode(b"\xfe\x01\x9a"[:before] + value.encode()).decode()
        return text if pad else text.rstrip("=")

    return form


def units(value: str) -> list[int]:
    """The UTF-16 code units of a text, as JSON and JavaScript escape them."""
    data = value.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def b32(before: int) -> Callable[[str], str]:
    """Base32 of a value with so many bytes in front of it."""
    return lambda value: base64.b32encode(b"x" * before + value.encode()).decode().rstrip("=")


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "json": lambda value: json.dumps({"x": value}),
    "json, characters as they are": lambda value: json.dumps({"x": value}, ensure_ascii=False),
    "json, slashes escaped": lambda value: json.dumps({"x": value}).replace("/", "\\/"),
    "quoted": lambda value: quote(value, safe=""),
    "quoted, slashes kept": lambda value: quote(value),
    "quoted for a form": quote_plus,
    "quoted with small digits": small_quote,
    "hex": lambda value: value.encode().hex(),
    "hex, capitals": lambda value: value.encode().hex().upper(),
    "html": html.escape,
    "python": lambda value: repr({"x": value}),
    "wrapped base64": lambda value: base64.encodebytes(value.encode()).decode(),
    "wrapped base64 in json": lambda value: json.dumps(base64.encodebytes(value.encode() * 3).decode()),
    "wrapped with returns": lambda value: base64.encodebytes(value.encode()).decode().replace("\n", "\r\n"),
    "hex with colons": lambda value: value.encode().hex(":"),
    "hex in capitals with spaces": lambda value: value.encode().hex(" ").upper(),
    "every character as u escape": lambda value: "".join(f"\\u{unit:04x}" for unit in units(value)),
    "every character as U escape in json": lambda value: json.dumps(
        "".join(f"\\u{unit:04X}" for unit in units(value))
    ),
    "every byte as x escape": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "every byte with percent": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "every second byte with percent": lambda value: "".join(
        f"%{ord(char):02X}" if place % 2 and char.isascii() else char for place, char in enumerate(value)
    ),
    "html, decimal": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "html, hexadecimal": lambda value: "".join(f"&#x{ord(char):x};" for char in value),
    "html, named and decimal": lambda value: value.replace("&", "&#38;").replace('"', "&quot;"),
    **{f"base32 at {before}": b32(before) for before in range(5)},
    "base32, small": lambda value: base64.b32encode(value.encode()).decode().lower(),
    "base64 twice": lambda value: base64.b64encode(base64.b64encode(value.encode())).decode(),
    "base64 twice, wrapped": lambda value: base64.encodebytes(base64.encodebytes(value.encode())).decode(),
    "base64 twice, in the middle": lambda value: base64.b64encode(
        b"ab" + base64.b64encode(b"x" + value.encode()).rstrip(b"=")
    ).decode(),
    **{
        f"base64 at {before}{' url' * urlsafe}{' padded' * pad}": b64(before, urlsafe, pad)
        for before in range(3)
        for urlsafe in (False, True)
        for pad in (False, True)
    },
}


def squeezed(text: str) -> str:
    """Without what wrapping adds."""
    return text.replace("\n", "").replace("\r", "")


def rest_of(form: str, clean: str) -> str:
    """The longest piece of an encoded secret that is still in a text, of those with 8 characters."""
    form, clean = squeezed(form), squeezed(clean)
    pieces = (form[start : start + 8] for start in range(max(1, len(form) - 7)))
    return next((piece for piece in pieces if piece in clean), "")


def bare(form: str) -> str:
    """A form without the braces that JSON and Python put around it in these tests: they are no secret."""
    return form.removeprefix('{"x": ').removeprefix("{'x': ")
