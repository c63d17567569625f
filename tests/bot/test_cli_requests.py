"""A command acts on a session that a running bot serves: the command sends, the bot carries it out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.cli.app import run
from engine.storage.store import Store
from tests.support.inprocess import town

ASKS = """
flow: asks
nodes:
  - {id: why, type: ask, with: {message: "Why?", who: [channel]}}
  - {id: tell, type: message, with: {text: "Because {{ nodes.why.text }}"}}
"""


async def test_what_a_command_asks_of_a_thread_is_done_by_the_bot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bot takes the requests from the inbox, and its receipts are what the commands say and exit with."""
    (tmp_path / ".sayso").mkdir()
    (tmp_path / ".sayso/sayso.db").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYSO_USER", "ana")
    async with town(tmp_path, {"asks": ASKS}) as place:

        def opened(*_: Any, **options: Any) -> Store:
            return place.store.another()

        monkeypatch.setattr("engine.storage.open.open_store", opened)
        thread = await place.start("ana", "asks")
        (head,) = place.store.sessions.heads(statuses=("paused",))
        (asked,) = (await place.engine.state(head.session_id)).open_prompts
        refused = await asyncio.to_thread(run, ["prompts", "answer", asked, "so"])
        assert (refused, "can answer this" in capsys.readouterr().err) == (5, True)
        paused = await asyncio.to_thread(run, ["sessions", "pause", head.session_id])
        assert (paused, capsys.readouterr().out) == (0, f"{head.session_id} is paused.\n")
        aborted = await asyncio.to_thread(run, ["sessions", "abort", head.session_id])
        assert (aborted, capsys.readouterr().out) == (0, f"{head.session_id} is cancelled.\n")
        await place.settle()
        assert (await place.engine.state(head.session_id)).status == "aborted"
        assert "Why?" in str(place.thread(thread))
