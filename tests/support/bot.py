"""The real bot as a process of its own, against a local workspace: started, killed, started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.compose.environment import Machine
from bot.config.settings import load_settings
from bot.serve.main import Bot
from bot.workspace import elements
from bot.workspace.state import wire
from tests.support import prefork
from tests.support.acting import Acts, Workspace

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 60.0
"""Most seconds for a process to start, or to end, on a busy machine."""


class BotProcess:
    """`sayso start` in a process group of its own, with these `arguments`. What it prints is kept in `lines`."""

    def __init__(
        self, workspace: Workspace, home: Path, flows: Path, arguments: Sequence[str] = (), **env: str
    ) -> None:
        self.workspace = workspace
        self.command: Sequence[str] = ("-m", "bot.cli")
        self.arguments = arguments
        self.home = home
        self.env = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("SAYSO_", "SLACK_"))
            },
            "SLACK_BOT_TOKEN": workspace.bot_token,
            "SLACK_APP_TOKEN": workspace.app_token,
            "SLACK_API_URL": workspace.api_url,
            "SAYSO_HOME": str(home),
            "SAYSO_FLOWS": str(flows),
            "PYTHONUNBUFFERED": "1",
            **env,
        }
        self.lines: list[str] = []
        self._process: prefork.Forked | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def process(self) -> prefork.Forked:
        """The running process."""
        assert self._process is not None, "the bot was not started"
        return self._process

    async def start(self) -> None:
        """Start, and wait until it says that it is ready and has its sockets."""
        await self.launch()
        await self.said("ready")
        await self.workspace.connected(2, timeout=_PATIENCE)

    async def launch(self) -> None:
        """Start without waiting."""
        self.lines.clear()
        self._process = prefork.start(
            [*self.command, "start", *self.arguments],
            cwd=self.home,
            env=self.env,
            stderr=subprocess.STDOUT,
            session=True,
        )
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self.process.stdout
        )
        while line := await reader.readline():
            self.lines.append(line.decode(errors="replace").rstrip())
            self._changed.set()
        pipe.close()
        self._changed.set()

    async def said(self, word: str, timeout: float = _PATIENCE) -> str:
        """The first line with this word in it, once it is printed; AssertionError when the process ends before."""
        async with asyncio.timeout(timeout):
            while True:
                found = next((line for line in self.lines if word in line.lower()), None)
                if found is not None:
                    return found
                assert self._reader is not None
                assert not self._reader.done(), f"the bot ended without saying {word!r}:\n" + "\n".join(
                    self.lines
                )
                self._changed.clear()
                await self._changed.wait()

    async def kill(self) -> None:
        """`kill -9`, and wait until the workspace has noticed that the sockets are gone."""
        os.killpg(self.process.pid, signal.SIGKILL)
        await self.ended()
        await self.workspace.wait_for(lambda: not self.workspace.core.sockets.usable(), timeout=_PATIENCE)

    async def terminate(self) -> int:
        """SIGTERM, and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self, timeout: float = _PATIENCE) -> int:
        """The exit code, once the process has ended."""
        assert self._reader is not None
        await asyncio.wait_for(self._reader, timeout)
        return await asyncio.to_thread(self.process.wait, timeout)

    async def close(self) -> None:
        """Make sure that nothing is left running."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.ended()


def flow_files(place: Path, flows: Mapping[str, str]) -> Path:
    """The folder `flows` of a place, with these flows in it (name → YAML)."""
    folder = place / "flows"
    folder.mkdir(exist_ok=True)
    for name, text in flows.items():
        (folder / f"{name}.yml").write_text(text)
    return folder


@asynccontextmanager
async def running_bot(
    workspace: Workspace, tmp_path: Path, flows: dict[str, str], **env: str
) -> AsyncIterator[BotProcess]:
    """A bot that serves these flows (name → YAML)."""
    folder, home = flow_files(tmp_path, flows), tmp_path / "home"
    home.mkdir(exist_ok=True)
    bot = BotProcess(workspace, home, folder, **env)
    try:
        await bot.start()
        yield bot
    except Exception as error:
        error.add_note("\n".join([f"the bot ({bot.process.poll()}) said:", *bot.lines[-40:]]))
        raise
    finally:
        await bot.close()


class MovedClock:
    """The machine's clocks, put forward by a test: minutes pass without waiting for them, on both of them."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.bot: Bot | None = None

    def __call__(self) -> float:
        """Seconds since 1970, as far ahead as it was put."""
        return time.time() + self.ahead

    def steady(self) -> float:
        """Seconds of the clock that only goes forward: it saw the time pass, so the other one has not jumped."""
        return time.monotonic() + self.ahead

    def forward(self, seconds: float) -> None:
        """Put it forward. The bot looks at its clock again, as it does by itself every few seconds."""
        self.ahead += seconds
        if self.bot is not None:
            self.bot.service.notify()
            self.bot.outbound.notify()


@asynccontextmanager
async def bot_here(
    workspace: Workspace,
    tmp_path: Path,
    flows: dict[str, str],
    *,
    clock: MovedClock | None = None,
    **env: str,
) -> AsyncIterator[Bot]:
    """The bot in this process, with these flows (name → YAML) and a clock that can be put forward."""
    folder, home = flow_files(tmp_path, flows), tmp_path / "home"
    home.mkdir(exist_ok=True)
    environ = {
        "SLACK_BOT_TOKEN": workspace.bot_token,
        "SLACK_APP_TOKEN": workspace.app_token,
        "SLACK_API_URL": workspace.api_url,
        "SAYSO_HOME": str(home),
        **env,
    }
    clock = clock or MovedClock()
    machine = Machine(seconds=clock, steady=clock.steady, started=lambda: None)
    bot = Bot(load_settings(environ, cwd=home), flows=[folder], machine=machine)
    running = asyncio.create_task(bot.run())
    try:
        await workspace.connected(2)
        clock.bot = bot
        yield bot
    finally:
        bot.stop()
        await running


class ThreadView:
    """A thread of the workspace as a person reads it."""

    def __init__(self, workspace: Acts, channel: str, root_ts: str) -> None:
        self.workspace = workspace
        self.channel = channel
        self.root_ts = root_ts

    def messages(self) -> list[dict[str, Any]]:
        """All messages of the thread, the first one included."""
        return list(self.workspace.messages(self.channel, self.root_ts))

    def texts(self) -> list[str]:
        """What the messages say, buttons included."""
        return [words(message) for message in self.messages()]

    def find(self, part: str) -> dict[str, Any] | None:
        """The last message that says this."""
        # Waiting looks often: only what is found is copied.
        thread = self.workspace.state.thread(self.workspace.channel(self.channel).id, self.root_ts)
        found = next((m for m in reversed(thread) if part in m["text"] or part in words(m)), None)
        return None if found is None else wire(found, metadata=True)

    async def asks(self, part: str = "", timeout: float = 20) -> dict[str, Any]:
        """The newest message that asks for an approval, and says this, once there is one: its green button carries the
        question's id."""

        def newest() -> dict[str, Any]:
            return [one for one in self.messages() if part in words(one) and _button(one, "primary")][-1]

        return dict(await self.workspace.wait_for(newest, timeout=timeout))

    async def says(self, part: str, timeout: float = 20) -> dict[str, Any]:
        """The message that says this, once it is there."""
        await self.workspace.wait_for(lambda: self.find(part) is not None, timeout=timeout)
        found = self.find(part)
        assert found is not None
        return found

    def count(self, part: str) -> int:
        """In how many messages this is said."""
        return sum(1 for text in self.texts() if part in text)

    async def reply(self, user: str, text: str) -> str:
        """Reply as somebody."""
        return str(await self.workspace.post(user, self.channel, text, thread_ts=self.root_ts))

    async def press(self, user: str, message: dict[str, Any], label: str) -> str:
        """Press a button as somebody."""
        return str(await self.workspace.press(user, self.channel, message["ts"], text=label))

    async def approve(self, user: str, message: dict[str, Any]) -> str:
        """Press the button that approves, whatever it says: the green one."""
        return await self._press_styled(user, message, "primary")

    async def reject(self, user: str, message: dict[str, Any]) -> str:
        """Press the button that rejects, whatever it says: the red one."""
        return await self._press_styled(user, message, "danger")

    async def _press_styled(self, user: str, message: dict[str, Any], style: str) -> str:
        now = next((one for one in self.messages() if one["ts"] == message["ts"]), message)
        named = {name: _button(now, style).get(name) for name in ("action_id", "value")}
        return str(await self.workspace.press(user, self.channel, message["ts"], **named))


def _button(message: dict[str, Any], style: str) -> dict[str, Any]:
    """The last button of a question in this style; nothing where there is none."""
    found = [element for _, element in elements.elements(message.get("blocks") or [])]
    of_it = [one for one in found if one.get("style") == style and "prompt-" in one.get("value", "")]
    return of_it[-1] if of_it else {}


def words(message: dict[str, Any]) -> str:
    """Everything that a message shows, as one text."""
    return f"{message.get('text', '')}\n{_strings(message.get('blocks') or [])}"


SIGNS = {"complete": "✅", "in_progress": "▶️", "pending": "▫️", "error": "❌"}


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """The tasks of a plan as people read them: sign, title, details."""
    return [_task(task) for task in plan["tasks"]]


def _task(task: dict[str, Any]) -> str:
    title, sections = task["title"], task.get("details", {}).get("elements") or [{"elements": []}]
    detail = "".join(
        piece.get("text") or piece.get("fallback") or f"<@{piece.get('user_id')}>"
        for piece in sections[0]["elements"]
    )
    signed = not title.lstrip("› ")[:1].isalnum()
    return f"{'' if signed else SIGNS[task['status']] + ' '}{title}{f' · {detail}' if detail else ''}"


def _strings(value: Any) -> str:
    if isinstance(value, dict) and value.get("type") == "plan":
        return "\n".join([value["title"], *plan_lines(value)])
    if isinstance(value, dict):
        return "\n".join(
            _strings(item) for key, item in value.items() if key not in ("type", "block_id", "value")
        )
    if isinstance(value, list):
        return "\n".join(_strings(item) for item in value)
    return value if isinstance(value, str) else ""


async def start_flow(workspace: Acts, user: str, channel: str, line: str, *, says: str = "") -> ThreadView:
    """Mention the bot, and the thread that follows, once it says this."""
    thread = ThreadView(workspace, channel, await workspace.post(user, channel, f"@sayso {line}"))
    if says:
        await thread.says(says)
    return thread


async def opened(workspace: Acts, user: str) -> dict[str, Any]:
    """The modal that this person sees, once it is there."""
    await workspace.wait_for(lambda: workspace.views(user))
    return dict(workspace.views(user)[-1])


async def whispered(workspace: Acts, user: str, part: str) -> str:
    """What only this person was told, once it says this."""

    def found() -> str | None:
        return next((m["text"] for m in workspace.ephemerals(user) if part in m["text"]), None)

    await workspace.wait_for(found)
    return found() or ""


def counted(path: Path) -> list[str]:
    """The lines that nodes wrote into a file: the proof of how often each of them ran."""
    return path.read_text().split() if path.exists() else []
