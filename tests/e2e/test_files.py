"""Files in and out of a thread, with the real bot as a process: an answer that is a file, kills, limits, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.acting import Workspace
from tests.support.bot import ThreadView, bot_here, running_bot, start_flow, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

REPORT = """
flow: report
nodes:
  - id: send
    type: ask
    with: {message: "Please drop the report here", accept: files, max_files: 2, max_size: 2KiB}
  - id: count
    type: shell
    with: {run: [wc, -c, "{{ nodes.send.files[0].path }}"]}
  - id: tell
    type: message
    with:
      text: "{{ nodes.send.files[0].name }} is {{ nodes.send.files[0].type }}, {{ nodes.count.stdout }}"
      files: [{path: "{{ nodes.send.files[0].path }}", name: copy.csv}]
"""


async def drop(thread: ThreadView, user: str, files: dict[str, bytes], text: str = "") -> str:
    """Drop files into the thread as somebody."""
    return str(await thread.workspace.post(user, thread.channel, text, thread_ts=thread.root_ts, files=files))


def received(home: Path) -> list[str]:
    """The names of all files that sessions received."""
    return sorted(path.name for path in home.glob("sessions/*/files/*/*"))


@in_town({"report": REPORT})
async def test_a_dropped_file_is_the_answer_and_goes_on_to_programs_and_back(
    workspace: TownWorkspace, tmp_path: Path
) -> None:
    """It lies in the session's folder under a name of ours; a program reads it, and it is uploaded again."""
    thread = await start_flow(workspace, "ana", "ops", "report", says="drop the report")
    ts = await drop(thread, "ana", {"../../évil <!here>.csv": b"a,b\n1,2\n"})
    told = await thread.says("is text/plain")
    assert "8 " in words(told)
    assert "<!here>" not in words(told)
    await workspace.wait_for(lambda: [m for m in thread.messages() if m.get("upload")])
    assert received(tmp_path / "home") == [f"{ts.replace('.', '-')}-1.csv"]


@in_town({"report": REPORT})
async def test_a_file_that_is_too_large_is_refused_where_everybody_sees_it(
    workspace: TownWorkspace, tmp_path: Path
) -> None:
    """Nothing of it is kept, the question stays open, and a smaller one answers it."""
    thread = await start_flow(workspace, "ana", "ops", "report", says="drop the report")
    await drop(thread, "ana", {"big.csv": b"x" * 3_000})
    await thread.says("the limit is 2,048")
    assert received(tmp_path / "home") == []
    await drop(thread, "ana", {"small.csv": b"x"})
    await thread.says("small.csv is text/plain")


@in_town({"report": REPORT})
async def test_words_to_a_question_for_files_get_one_hint(workspace: TownWorkspace, place: Town) -> None:
    """They are no answer; the thread is told so once."""
    thread = await start_flow(workspace, "ana", "ops", "report")
    # The bot knows that the question is in front of people.
    await place.settle()
    await thread.reply("ana", "one moment")
    await thread.says("answer this with files")
    await thread.reply("ana", "still looking")
    await drop(thread, "ana", {"a.csv": b"x"})
    await thread.says("a.csv is text/plain")
    assert thread.count("answer this with files") == 1


@pytest.mark.process
async def test_a_kill_while_a_file_is_fetched_leaves_nothing_half(
    workspace: Workspace, tmp_path: Path
) -> None:
    """After the restart the file is fetched once more, whole, and the flow continues with it."""
    async with running_bot(workspace, tmp_path, {"report": REPORT}) as bot:
        thread = await start_flow(workspace, "ana", "ops", "report", says="drop the report")
        workspace.faults.slow("files.download", 60, times=1)
        await drop(thread, "ana", {"a.csv": b"y" * 1_500})
        await workspace.wait_for(lambda: workspace.faults.struck)
        await bot.kill()
        assert [name for name in received(bot.home) if not name.startswith(".")] == []
        await bot.start()
        await thread.says("a.csv is text/plain, 1500")
        assert [name[-6:] for name in received(bot.home)] == ["-1.csv"]


@pytest.mark.process
async def test_the_token_goes_to_no_other_host(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that lies elsewhere is refused before anything is asked there, and so is one that redirects."""
    asked: list[Any] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, bot_here(workspace, tmp_path, {"report": REPORT}):
        thread = await start_flow(workspace, "ana", "ops", "report", says="drop the report")
        with monkeypatch.context() as patch:
            patch.setattr(workspace.core, "base_url", f"http://127.0.0.1:{port}")
            await drop(thread, "ana", {"a.csv": b"x"})
        await thread.says("is not stored in Slack")
        workspace.faults.fail("files.download", status=302, error=f"http://127.0.0.1:{port}/x")
        await drop(thread, "ana", {"b.csv": b"x"})
        await thread.says("does not give")
    assert asked == []
