"""A bot that may not serve any more writes nothing, whenever it hears of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.compose.environment import THIS_MACHINE
from bot.config.settings import load_settings
from bot.serve.identity import Identity
from bot.serve.main import Bot
from bot.wire.manifest import Report
from engine.language.errors import StorageBroken
from engine.storage.open import open_store


@pytest.mark.parametrize("when", ["before its store is open", "after"])
async def test_nothing_is_written_by_a_bot_that_was_cut_off(when: str, tmp_path: Path) -> None:
    """Also where the lease was lost while it started."""
    store = open_store("memory:", None)
    machine = replace(THIS_MACHINE, open_store=lambda *_: store)
    bot = Bot(load_settings({}, cwd=tmp_path), machine=machine)
    if when == "after":
        await bot._opened(identity())
    bot.cut_off()
    if when != "after":
        await bot._opened(identity())
    with pytest.raises(StorageBroken, match="Another process may serve"):
        store.marks.move("scope", "1.0")


def identity() -> Identity:
    """Who the app is."""
    return Identity("T1", "team", "U1", "sayso", "A1", Report(True, (), False))
