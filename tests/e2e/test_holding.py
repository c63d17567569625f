"""Pausing and resuming in the thread, and questions that stand side by side, with the real bot."""

from __future__ import annotations

from pathlib import Path

from tests.support.bot import counted, start_flow, words
from tests.support.simulated import inhabited_town, simulated

REGIONS = """
flow: regions
nodes:
  - id: rollout
    type: foreach
    with: {{items: [eu, us], as: region, concurrency: 2}}
    body:
      - {{id: confirm, type: ask, with: {{message: "How does it look?"}}}}
      - {{id: note, type: shell, with: {{run: [sh, -c, 'echo "$WORDS" >> {file}'], env: {{WORDS: "{{{{ region }}}}={{{{ nodes.confirm.text }}}}"}}}}}}
  - {{id: told, type: message, with: {{text: "Told: {{{{ messages[0].text }}}}"}}, if: "{{{{ messages | length > 0 }}}}"}}
"""


@simulated
async def test_a_paused_session_keeps_answers_and_goes_on_after_resume(tmp_path: Path) -> None:
    """`pause` says so in the thread; an answer is recorded and starts nothing; others may not resume; `resume` and a
    message continues, and the flow has the message."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"regions": REGIONS.format(file=file)}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "releases", "regions", says="· *rollout › eu*")
        await thread.says("· *rollout › us*")
        await thread.reply("ana", "pause")
        await thread.says("*regions* is paused by Ana Ruiz. Answers are kept.")
        await thread.says("⏸️ *Paused* · by Ana Ruiz · 2 open questions")
        await thread.reply("ana", "fine")
        menu = await thread.says("Several questions are open here")
        assert "*rollout › us*: How does it look?" in str(menu)
        await thread.reply("ana", "#1: fine")
        await workspace.wait_for(lambda: workspace.ephemerals("ana"))
        assert "will use it after `resume`" in str(workspace.ephemerals("ana"))
        await thread.reply("ben", "resume")
        await workspace.wait_for(lambda: workspace.ephemerals("ben"))
        assert counted(file) == []
        await thread.reply("ana", "resume the <disk> is replaced")
        await thread.says("▶️ *regions* continues.")
        await workspace.wait_for(lambda: counted(file) == ["eu=fine"])
        await thread.reply("ana", "good")
        await thread.says("Told: the &lt;disk&gt; is replaced")
        await thread.says("*Completed*")
    assert counted(file) == ["eu=fine", "us=good"]


async def test_stop_pauses_a_program_and_says_that_it_ends_nothing(tmp_path: Path) -> None:
    """`stop` makes a running program leave and the thread says what it means; after `resume` it is asked about."""
    flow = "flow: slow\nnodes:\n  - {id: sleep, type: shell, with: {run: [sleep, '600']}}\n"
    async with inhabited_town(tmp_path, {"slow": flow}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "releases", "slow", says="▶️ sleep")
        await thread.reply("ana", "stop")
        await thread.says("Use `resume` to continue")
        await thread.reply("ana", "status")
        await thread.says("is paused by Ana Ruiz (`resume` continues it)")
        await thread.reply("ana", "resume")
        await thread.says("*slow* continues.")
        check = await thread.says("*Please check:*")
        assert "*sleep* `sleep 600`: this was stopped while it was running" in words(check)
        await thread.press("ana", check, "Cancel the run")
        await thread.says("was cancelled by")
