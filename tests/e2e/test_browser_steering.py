"""An agent as people see it on the page: its words while they come, steering, stop, and a call that is approved."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.support.bot import bot_here
from tests.support.browser import SCREENS, Visit, page_port, visiting
from tests.support.claude_server import ClaudeServer, Reply, call, claude_server, text
from tests.support.proving import sampled
from tests.support.workspace import running_workspace

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

INVESTIGATE = """
flow: investigate
nodes:
  - id: diagnose
    name: Diagnose
    type: agent
    with:
      prompt: "Why is web slow?"
      tools:
        - shell: {commands: ["echo *"], on_crash: again}
      approvals:
        shell: [approve, edit, reject]
  - id: tell
    type: message
    with: {text: "The end."}
"""
LOOK = "I look at the **load** of the hosts:\n\n| host | load |\n|---|---|\n| web-1 | 0.4 |\n| web-2 | 7.9 |\n\n`web-2` is busy. "


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["wide"]))
async def test_steering_stop_and_approval_are_seen(browser: Browser, tmp_path: Path, screen: str) -> None:
    """Text comes while the model speaks, a message to it is marked, a stop is marked, a call shows what will run."""
    async with (
        claude_server() as claude,
        running_workspace(port=page_port()) as workspace,
        bot_here(workspace, tmp_path, {"investigate": INVESTIGATE}, **claude.environ()),
        visiting(browser, workspace, "agent", screen) as visit,
    ):
        await steer(visit, claude)
        await stop(visit, claude)
        await approve(visit, claude)


async def steer(visit: Visit, claude: ClaudeServer) -> None:
    """Speak to the agent while it speaks."""
    first = Reply(
        [{"type": "text", "text": LOOK}, {"type": "text", "text": "Now its processes."}],
        hold_after="content_block_stop",
    )
    cut = text("I restart every host of the cluster now", hold_after="text_delta")
    claude.queue(first, cut)
    await visit.begin("ops", "@sayso investigate")
    await visit.says("web-2 is busy", "writing …")
    await visit.shot("writing")
    await visit.write("Only web-2, please")
    await expect(reaction(visit, "eyes")).to_be_visible()
    await visit.shot("kept")
    first.go.set()
    await expect(reaction(visit, "white_check_mark")).to_be_visible()
    await cut.reached.wait()
    await visit.says("Now its processes.", "writing …")
    await visit.shot("read")


def reaction(visit: Visit, name: str) -> Locator:
    """A reaction in the thread."""
    return visit.thread.locator(f'[data-testid="reaction"][data-name="{name}"]').first


async def stop(visit: Visit, claude: ClaudeServer) -> None:
    """Cut it, and go on with other words."""
    claude.queue(
        Reply([call("shell", {"command": "echo restart web-2"}, "t1")], "tool_use"),
        text("It is **restarted**."),
    )
    await visit.write("stop")
    await visit.says("stopped here", "Paused")
    await visit.shot("stopped")
    await visit.write("resume restart web-2 and nothing else")


async def approve(visit: Visit, claude: ClaudeServer) -> None:
    """See what will run, and let it."""
    await visit.says("Approval needed", "echo restart web-2")
    await visit.pressable(visit.button("Approve"))
    await visit.shot("approval")
    await visit.button("Approve").click()
    await visit.says("It is restarted.", "The end.")
    await visit.shot("end")
    assert claude.refused == []
