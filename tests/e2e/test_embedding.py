"""The example service is killed while it waits for a person, and the next process continues."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import prefork

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "examples" / "embedding" / "service.py"

pytest.importorskip("fastapi")
pytestmark = pytest.mark.process


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(folder: Path, port: int) -> Iterator[prefork.Forked]:
    """The service as a process, such as `python service.py URL PORT`; killed at the end, if not before."""
    words = [str(SERVICE), f"sqlite:///{folder}/releases.db", str(port)]
    script = f"import runpy, sys\nsys.argv = {words!r}\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = prefork.start(
        ["-c", script], cwd=folder, env=env, stdout=1, stderr=2, read=("fastapi", "uvicorn")
    )
    try:
        _listening(process, port)
        yield process
    finally:
        process.kill()
        process.wait(30)


def _listening(process: prefork.Forked, port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the service ended"
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError("the service does not listen")


def call(port: int, method: str, path: str, user: str = "", body: Any = None) -> tuple[int, Any]:
    """The status and the body of an answer of the service."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-User": user, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_it_goes_on_after_a_kill(tmp_path: Path) -> None:
    """What was asked before SIGKILL is asked after it, once; only whom the flow names approves; then it is said."""
    port = free_port()
    with serving(tmp_path, port) as first:
        status, page = call(port, "POST", "/releases/web", "ana")
        assert (status, page["status"]) == (200, "paused")
        first.send_signal(signal.SIGKILL)
        first.wait(30)
    port = free_port()
    with serving(tmp_path, port):
        status, again = call(port, "GET", f"/sessions/{page['session']}")
        assert again == page
        assert again["questions"][0]["message"].startswith("Release web 1.2")
        assert call(port, "POST", f"/sessions/{page['session']}/answer", "ana", "approve")[0] == 409
        status, done = call(port, "POST", f"/sessions/{page['session']}/answer", "ben", "approve")
        assert (status, done["status"]) == (200, "complete")
        assert call(port, "GET", "/wall") == (200, ["web is out."])
