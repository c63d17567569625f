"""Made `4cdf2f0-dev.tar.gz`: a home of `sayso dev` with threads and agents that wait.

Run in a work tree of the release whose home is made, with a Python that has its dependencies:
`python workspace.py TARGET.tar.gz`. It drives the page as a person does, and kills the process at the end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

PORT = 18765
FLOWS = {
    "gate.yml": """flow: gate
nodes:
  - {id: before, type: shell, on_crash: again, with: {run: [echo, before]}}
  - {id: gate, type: approval, with: {message: Ship it?, approvers: [U0LOCALBEN], timeout: 25d}}
  - {id: ship, type: shell, on_crash: again, with: {run: [echo, shipped]}}
  - {id: tell, type: message, with: {text: "It was {{ nodes.gate.decision }}: {{ nodes.ship.stdout }}"}}
""",
    "two.yml": """flow: two
nodes:
  - {id: first, type: ask, with: {message: First?}}
  - {id: second, type: ask, with: {message: Second?}}
  - {id: tell, type: message, with: {text: "Both: {{ nodes.first.text }}/{{ nodes.second.text }}"}}
""",
    "agent.yml": """flow: agent
nodes:
  - id: look
    type: agent
    with:
      prompt: Why is web slow?
      tools:
        - ask_human
        - shell: {commands: ["echo *"], on_crash: again}
  - {id: tell, type: message, with: {text: "Found: {{ nodes.look.text }}"}}
""",
    "agent.script.yml": """turns:
  - text: Let me look.
    tools:
      - {name: shell, input: {command: echo fine}}
  - tools:
      - {name: ask_human, input: {question: "Which web?", choices: [web-1, web-2]}}
  - text: It is the cache.
""",
}


async def made(home: Path, flows: Path) -> None:
    """Start `sayso dev`, have the threads, and kill it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot.cli", "--home", str(home), "dev", str(flows), "--port", str(PORT), "--no-open",
        start_new_session=True,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{PORT}") as session:
            await threads(Page(session))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


class Page:
    """The page's protocol."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.me = self.channel = ""

    async def ready(self) -> None:
        """Wait until the bot has connected, and find #ops."""
        for _ in range(300):
            try:
                async with self.session.get("/page/state") as answer:
                    state = await answer.json()
                if state["connected_sockets"] >= 2:
                    self.me = state["me"]
                    self.channel = next(one["id"] for one in state["channels"] if one["name"] == "ops")
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
        raise SystemExit("the bot did not connect")

    async def send(self, name: str, **body: Any) -> dict[str, Any]:
        """POST /page/<name> in #ops."""
        given = {"as": self.me, "channel": self.channel, **body}
        async with self.session.post(f"/page/{name}", json=given) as answer:
            found: dict[str, Any] = await answer.json()
        assert found["ok"], found
        return found

    async def start(self, flow: str) -> str:
        """Mention the bot; the thread's ts."""
        return str((await self.send("post", text=f"@sayso {flow}"))["ts"])

    async def says(self, thread: str, part: str) -> dict[str, Any]:
        """The last message of a thread that says this, once it is there."""
        for _ in range(300):
            query = {"as": self.me, "channel": self.channel, "thread_ts": thread}
            async with self.session.get("/page/messages", params=query) as answer:
                messages = (await answer.json())["messages"]
            for message in reversed(messages):
                if part in str(message):
                    return dict(message)
            await asyncio.sleep(0.1)
        raise SystemExit(f"nobody said {part!r}: {messages}")


async def threads(page: Page) -> None:
    """An approval; a second question; the same held by a person; an agent that asks."""
    await page.ready()
    await page.says(await page.start("gate"), "Ship it?")
    for held in (False, True):
        thread = await page.start("two")
        await page.says(thread, "First?")
        await page.send("post", thread_ts=thread, text="one")
        await page.says(thread, "Second?")
        if held:
            await page.send("post", thread_ts=thread, text="pause")
            await page.says(thread, "esume")
    await page.says(await page.start("agent"), "Which web?")
    await asyncio.sleep(2)  # what is still to be shown


def main() -> None:
    """Make the home and pack it."""
    os.umask(0o077)
    work = Path(tempfile.mkdtemp())
    flows, home = work / "flows", work / "home"
    flows.mkdir()
    for name, text in FLOWS.items():
        (flows / name).write_text(text)
    os.environ.pop("ANTHROPIC_API_KEY", None)
    asyncio.run(made(home, flows))
    for left in packed_out(home):
        left.unlink()
    with tarfile.open(sys.argv[1], "w:gz") as tar:
        for name in ("home", "flows"):
            tar.add(work / name, name, filter=nobodys)
    shutil.rmtree(work)


def packed_out(home: Path) -> Iterator[Path]:
    """Memory that processes shared, which says nothing of a home at rest."""
    yield from home.rglob("*-shm")


def nobodys(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Of no person of the machine on which it was made."""
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


if __name__ == "__main__":
    main()
