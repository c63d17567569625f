"""Audit evidence of a bot that serves: published while it does, and checked by an auditor with the public key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deploy.verify_audit import check
from tests.bot.test_attesting import Answer, Receiver
from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import running_bot, start_flow

FLOW = """
flow: gate
nodes:
  - {id: ok, type: approval, with: {message: "Go?", approvers: [channel]}}
"""


@pytest.mark.process
async def test_the_end_of_a_run_is_published_while_the_bot_serves(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Not its beginning; an export that is made beside the bot agrees with what was published, also after a kill."""
    receiver = Receiver(("127.0.0.1", 0), Answer)
    with receiver.serving() as url:
        async with running_bot(workspace, tmp_path, {"gate": FLOW}, SAYSO_CHECKPOINTS=url) as bot:

            def sayso(*words: str) -> str:
                done = prefork.run(["-m", "bot.cli", *words], cwd=bot.home, env=bot.env)
                assert done.returncode == 0, done.stderr
                return done.stdout

            published = []
            for number in (1, 2):
                thread = await start_flow(workspace, "ana", "ops", "gate")
                await thread.approve("ben", await thread.says("Go?"))
                published.append(await asyncio.to_thread(receiver.got.get, timeout=30))
                assert published[-1].splitlines()[1] == b"%d" % (number + 1)
                if number == 1:
                    await bot.kill()
                    await bot.start()
                    assert await asyncio.to_thread(receiver.got.get, timeout=30) == published[0]
            [key] = sayso("audit", "key").split()
            sayso("audit", "export", "-o", str(tmp_path / "page.jsonl"))
    files = [("page", (tmp_path / "page.jsonl").read_bytes()), ("published", b"".join(published))]
    assert "2 published checkpoints" in check([key], files)
