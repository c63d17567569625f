"""What an agent said in its thread stays there, whatever is drawn again in the same message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.config.settings import AgentSettings
from bot.outbound.agent_messages import Pieces, _piece
from engine.journal.records import OutboxRow
from tests.support.inprocess import Town
from tests.support.simulated import inhabited_town, simulated

FLOW = """
flow: look
tools:
  count: {type: shell, with: {run: [echo, one]}, description: Counts.}
  mend: {type: shell, with: {run: [echo, two]}, description: Mends.}
nodes:
  - id: helper
    type: agent
    timeout: 1d
    with:
      prompt: Look
      tools: [plan, count, mend]
      approvals: {mend: [approve, reject]}
"""
STEP = "{name: plan, input: {steps: [{title: Look, status: %s}, {title: Mend, status: %s}]}}"
SCRIPT = f"""
agents:
  helper:
    - text: "I make a plan."
      tools: [{STEP % ("in_progress", "pending")}]
    - text: "The pool is full, because the backup runs."
      tools: [{{name: count, input: {{}}}}]
    - text: "So I restart it."
      tools: [{STEP % ("complete", "in_progress")}]
    - text: "This is why: nobody uses it now."
      tools: [{{name: mend, input: {{}}}}]
    - text: "Now it is done."
      tools: [{STEP % ("complete", "complete")}]
    - text: "All is well."
"""
SAID = (
    "I make a plan.",
    "because the backup runs",
    "So I restart it.",
    "This is why: nobody uses it now.",
    "Now it is done.",
    "All is well.",
)


async def told(folder: Path, *, restart: bool) -> str:
    """What stands in the thread at the end of a run, in which somebody approved a call; the bot may start again before."""
    script = folder / "script.yml"
    script.write_text(SCRIPT)
    async with inhabited_town(folder, {"look": FLOW}, agents=AgentSettings(script=script)) as (_, bot):
        root = await bot.start("ana", "look")
        await bot.until(lambda: "This is why" in str(bot.thread(root)))
        await bot.settle()
        if restart:
            await bot.close()
            await bot.open()
        await bot.press("ana", *bot.find(root, "sayso:option:0"))
        await bot.until(lambda: "All is well." in str(bot.thread(root)))
        await bot.settle()
        return shown(bot, root)


def shown(bot: Town, root: str) -> str:
    """The blocks of a thread."""
    return str([message.get("blocks") for message in bot.thread(root)])


async def all_stands(folder: Path, restart: bool) -> None:
    """All that the agent said is in the thread, the reason above the approval too, and each call with its result."""
    blocks = await told(folder, restart=restart)
    assert [words for words in SAID if words not in blocks] == []
    assert "2 of 2 done" in blocks
    assert blocks.count("✅") >= 2


@simulated
async def test_a_plan_that_is_ticked_takes_no_words_away(tmp_path: Path) -> None:
    """Nor does a call that has its result."""
    await all_stands(tmp_path, False)


@simulated
async def test_a_plan_that_is_ticked_after_a_restart_takes_no_words_away(tmp_path: Path) -> None:
    """Another process knows which entries are in a message."""
    await all_stands(tmp_path, True)


def test_drawing_an_earlier_list_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: an entry that is put again draws the entries that was there when it was shown first."""

    async def earlier(self: Pieces, row: OutboxRow) -> Any:
        return _piece(row)

    monkeypatch.setattr(Pieces, "standing", earlier)

    @simulated
    async def story(folder: Path) -> None:
        with pytest.raises((AssertionError, TimeoutError)):
            await all_stands(folder, False)

    story(tmp_path)
