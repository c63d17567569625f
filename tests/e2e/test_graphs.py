"""A graph in a thread: branches that wait side by side, a failure that asks, a pause, and `finally` at the end."""

from __future__ import annotations

from pathlib import Path

from tests.support.bot import counted, start_flow
from tests.support.simulated import inhabited_town, simulated


def graph(log: Path) -> str:
    """Two questions side by side; one of them leads to a step that fails."""
    return f"""
flow: graph
nodes:
  - id: begin
    type: shell
    with: {{script: 'echo begin >> "$LOG"', env: {{LOG: "{log}"}}}}
  - {{id: left, type: ask, with: {{message: "Left?"}}}}
  - {{id: right, type: ask, with: {{message: "Right?"}}}}
  - id: broken
    type: shell
    with: {{script: 'echo broken >> "$LOG"; exit 3', env: {{LOG: "{log}"}}}}
    on_error: ask
    on_failure:
      - {{id: note, type: message, with: {{text: "broken failed: {{{{ errors.broken.type }}}}"}}}}
  - {{id: join, type: message, with: {{text: "joined left={{{{ nodes.left.text }}}} right={{{{ nodes.right.text }}}}"}}}}
edges:
  - {{from: begin, to: left}}
  - {{from: begin, to: right}}
  - {{from: left, to: broken, when: "{{{{ nodes.left.text == 'go' }}}}"}}
  - {{from: right, to: join}}
  - {{from: broken, to: join}}
finally:
  - id: clean
    type: shell
    with: {{script: 'echo clean >> "$LOG"', env: {{LOG: "{log}"}}}}
"""


@simulated
async def test_a_graph_goes_on_after_a_kill_a_failure_and_a_pause(tmp_path: Path) -> None:
    """Every step runs once: also when the bot is killed while a failed step asks, and a person pauses in between."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, {"graph": graph(log)}) as (workspace, bot):
        thread = await start_flow(workspace, "ana", "ops", "graph", says="Left?")
        await thread.says("Right?")
        await thread.reply("ana", "#left: go")
        await thread.says("broken failed: exit_code")
        asked = await thread.says("Continue without it")
        await bot.close()
        await bot.open()
        await thread.press("ana", asked, "Continue without it")
        await thread.reply("ana", "pause")
        await thread.says("Use `resume` to continue")
        await thread.reply("ana", "resume please")
        await thread.says("continues")
        await thread.reply("ana", "fine")
        await thread.says("joined left=go right=fine")
        await thread.says("*Completed*")
    assert counted(log) == ["begin", "broken", "clean"]
