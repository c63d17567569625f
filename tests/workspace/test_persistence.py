"""A workspace that is kept in a file, and one that runs in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import aiohttp
import pytest

from bot.workspace import WorkspaceError
from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.workspace import client_of, process_output, running_app, running_workspace

ROOT = Path(__file__).parents[2]


async def test_messages_survive_a_restart(tmp_path: Path) -> None:
    """Stop, start with the same file: people, threads, reactions and metadata are there, and time continues."""
    file = tmp_path / "kept" / "workspace.json"
    async with running_workspace(persist_path=file) as before:
        zoe = before.add_user("zoe")
        root = await before.post(zoe, before.add_channel("new"), "root")
        await client_of(before).chat_postMessage(
            channel="#new", text="reply", thread_ts=root, metadata={"event_type": "x", "event_payload": {}}
        )
        await before.react("ana", "new", root, "eyes")
        kept = before.messages("new", root)
    async with running_workspace(persist_path=file) as after:
        assert after.messages("new", root) == kept
        assert after.user("zoe") == zoe
        async with running_app(after) as bolt:
            later = await after.post("zoe", "new", "@sayso still there?", root)
            await after.wait_for(lambda: bolt.events("app_mention"))
        assert later > kept[-1]["ts"]
        new_channel = after.add_channel("newer")
        assert new_channel.id != after.channel("new").id


async def test_changes_are_saved_without_a_stop(tmp_path: Path) -> None:
    """Soon after a change the file holds it, whole, and readable by its owner only."""
    file = tmp_path / "workspace.json"
    async with running_workspace(persist_path=file) as workspace:
        ts = await workspace.post("ana", "ops", "kept?")
        await workspace.wait_for(file.exists)
        assert json.loads(file.read_text())["messages"]["C0LOCALOPS"][ts]["text"] == "kept?"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["workspace.json"]


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", '{"schema": 99}', '{"schema": 1}', '{"schema": 1, "users": 5}']
)
def test_a_file_that_is_no_workspace_is_left_alone(tmp_path: Path, content: str) -> None:
    """The error names the file and says what to do; nothing is written over it."""
    file = tmp_path / "workspace.json"
    file.write_text(content)
    with pytest.raises(WorkspaceError, match="move it away") as refused:
        Workspace(persist_path=file)
    assert str(file) in str(refused.value)
    assert file.read_text() == content


async def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    """A second stop does nothing."""
    workspace = Workspace()
    await workspace.start()
    await workspace.stop()
    await workspace.stop()


async def test_waiting_in_vain_shows_what_happened(workspace: Workspace) -> None:
    """The TimeoutError of wait_for carries the last messages, calls and deliveries."""
    await workspace.post("ana", "ops", "a clue")
    await client_of(workspace).auth_test()
    with pytest.raises(TimeoutError, match=r"(?s)a clue.*auth.test.*dropped"):
        await workspace.wait_for(lambda: False, timeout=0.05)


async def test_waiting_raises_what_the_predicate_raises(workspace: Workspace) -> None:
    """A predicate with a mistake fails the test at once instead of running out of time."""
    with pytest.raises(ZeroDivisionError):
        await workspace.wait_for(lambda: 1 / 0)


async def _start(file: Path) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *prefork.front("-m", "bot.workspace", "--port", "0", "--persist", str(file)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    lines = await process_output(process.stdout, "SLACK_APP_TOKEN")
    (address,) = [line.split()[1] for line in lines if line.startswith("SLACK_API_URL")]
    return process, address.removesuffix("/api/")


@pytest.mark.process
async def test_a_process_of_its_own_keeps_the_file_over_a_kill(tmp_path: Path) -> None:
    """`python -m bot.workspace --persist` prints its address; what it has answered is there after SIGKILL."""
    file = tmp_path / "workspace.json"
    process, url = await _start(file)
    try:
        async with aiohttp.ClientSession(url) as session:
            post = {"as": "U0LOCALANA", "channel": "ops", "text": "kept?"}
            posted = await (await session.post("/page/post", json=post)).json()
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        await process.stdout.read()
        await process.wait()
        process, url = await _start(file)
        async with aiohttp.ClientSession(url) as session:
            query = {"as": "U0LOCALANA", "channel": "ops"}
            shown = await (await session.get("/page/messages", params=query)).json()
        assert [m["ts"] for m in shown["messages"]] == [posted["ts"]]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.process
async def test_a_taken_port_is_an_error_in_words(workspace: Workspace) -> None:
    """The process ends with 1 and says why."""
    port = workspace.url.rsplit(":", 1)[1]
    process = await asyncio.create_subprocess_exec(
        *prefork.front("-m", "bot.workspace", "--port", port),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 1
    assert b"could not start" in stderr
    assert b"Traceback" not in stderr


async def test_a_predicate_may_look_for_what_is_not_there_yet(workspace: Workspace) -> None:
    """A LookupError means not yet; in vain, it is the cause of the TimeoutError."""
    waiting = asyncio.create_task(workspace.wait_for(lambda: workspace.messages("ops")[-1]["text"]))
    await workspace.post("ana", "ops", "here")
    assert await waiting == "here"
    with pytest.raises(TimeoutError) as late:
        await workspace.wait_for(lambda: workspace.messages("releases")[-1], timeout=0.05)
    assert isinstance(late.value.__cause__, IndexError)


async def test_connected_counts_sockets_that_take_envelopes(workspace: Workspace) -> None:
    """A silent socket is not a connection, although it is still open."""
    async with running_app(workspace, ping_interval=60):
        await workspace.connected()
        workspace.faults.disconnect_all("silent")
        with pytest.raises(TimeoutError):
            await workspace.connected(timeout=0.05)
