"""The real Codex, against an API on loopback: it obeys the hook, as far as it obeys any."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.gate.conftest import Gate, from_npm
from tests.gate.test_hooks import Hooks
from tests.support.bot import counted

pytestmark = [pytest.mark.process, pytest.mark.long]
VERSION = "0.169.0"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program: `SAYSO_TEST_CODEX`, else what npm installs."""
    given = os.environ.get("SAYSO_TEST_CODEX")
    return given or str(from_npm(tmp_path_factory, f"@openai/codex@{VERSION}") / ".bin" / "codex")


class Api(BaseHTTPRequestHandler):
    """Answers with one command, then with a text."""

    runs = ""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """One response."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = any(item.get("type") == "function_call_output" for item in body["input"])
        said: dict[str, Any] = {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "done"}],
        }
        if not done:
            arguments = json.dumps({"cmd": self.runs})
            said = {
                "type": "function_call",
                "id": "f1",
                "call_id": "c1",
                "name": "exec_command",
                "arguments": arguments,
            }
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "item": said},
            {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


@pytest.fixture
def api() -> Iterator[Any]:
    """The API, whose command (`runs`) a test sets."""
    kind: Any = type("Scripted", (Api,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kind.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield kind
    server.shutdown()
    server.server_close()


async def test_codex_runs_what_is_allowed_and_nothing_else(
    gate: Gate, program: str, api: Any, tmp_path: Path
) -> None:
    """A press lets the command run; at the end of the wait, and without the bot, it is blocked."""
    log, home = tmp_path / "log", tmp_path / "codex"
    home.mkdir()
    provider = f'[model_providers.fake]\nname = "fake"\nbase_url = "{api.url}"\nwire_api = "responses"\n'
    (home / "config.toml").write_text(f'model = "gpt-5"\nmodel_provider = "fake"\n{provider}')
    hooks = Hooks(gate, await gate.url())

    async def run(command: str, wait: int) -> None:
        api.runs = command
        hook = {
            "type": "command",
            "command": f"{sys.executable} -m bot.cli gate hook --client codex --wait {wait}",
        }
        told = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{**hook, "timeout": 60}]}]}}
        (home / "hooks.json").write_text(json.dumps(told))
        words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
        await asyncio.to_thread(
            subprocess.run,
            [program, *words, "--dangerously-bypass-approvals-and-sandbox", "go"],
            env={**hooks.env, "PATH": os.environ["PATH"], "CODEX_HOME": str(home)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=90,
        )

    running = asyncio.create_task(run(f"echo pressed >> {log}", 40))
    thread = await gate.thread()
    await thread.approve("ben", await thread.says("echo pressed"))
    await running
    assert counted(log) == ["pressed"]
    await run(f"echo late >> {log}", 0)
    hooks.env["SAYSO_GATE_URL"] = "http://127.0.0.1:1"
    await run(f"echo alone >> {log}", 0)
    assert counted(log) == ["pressed"]
