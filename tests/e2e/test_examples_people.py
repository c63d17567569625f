"""The examples about people, as the real bot runs them: two who agree, an alert that somebody looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_examples import only
from tests.support.acting import Acts
from tests.support.bot import ThreadView, counted, start_flow, words
from tests.support.simulated import inhabited_town, simulated


@pytest.fixture
def tool(tmp_path: Path) -> tuple[Path, Path]:
    """A program that scales, and the file in which it writes down how it was called."""
    program, log = tmp_path / "scaler", tmp_path / "called"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" | tr " " "+" >> {log}\n')
    program.chmod(0o755)
    return program, log


async def start_scaling(workspace: Acts, program: Path) -> ThreadView:
    """Ana asks for six copies."""
    return await start_flow(workspace, "ana", "ops", f"scale-out service=checkout copies=6 tool={program}")


@simulated
async def test_two_people_agree_and_that_command_runs(tmp_path: Path, tool: tuple[Path, Path]) -> None:
    """The command that was shown runs once both have approved; the press on how it went can be taken back."""
    async with inhabited_town(tmp_path, only(tmp_path, "scale-out")) as (workspace, bot):
        program, log = tool
        thread = await start_scaling(workspace, program)
        asked = await thread.says("Approval needed")
        assert "--replicas=6" in words(asked)
        await thread.press("ana", asked, "Approve")
        await workspace.wait_for(
            lambda: any("started this" in e["text"] for e in workspace.ephemerals("ana"))
        )
        await thread.press("ben", await thread.says("Approval needed"), "Approve")
        await thread.says("1 of 2")
        assert counted(log) == []
        await bot.close()
        await bot.open()
        await thread.press("dev", await thread.says("Approval needed"), "Approve")
        helped = await thread.says("copies. Did it help?")
        assert counted(log) == ["scale+deployment/checkout+--replicas=6"]
        assert "runs with 6 copies" in words(helped)


@simulated
async def test_a_corrected_number_is_agreed_on_anew(tmp_path: Path, tool: tuple[Path, Path]) -> None:
    """Who corrects the number does not count as agreeing, votes before it are void, and the corrected command runs."""
    async with inhabited_town(tmp_path, only(tmp_path, "scale-out")) as (workspace, _):
        program, log = tool
        thread = await start_scaling(workspace, program)
        await thread.press("ben", await thread.says("Approval needed"), "Approve")
        await thread.press("dev", await thread.says("1 of 2"), "Edit…")
        await workspace.wait_for(lambda: bool(workspace.views("dev")))
        (view,) = workspace.views("dev")
        await workspace.submit_view("dev", view["id"], {"field:copies": "4"})
        changed = await thread.says("--replicas=4")
        await thread.press("dev", changed, "Approve")
        await workspace.wait_for(lambda: bool(workspace.ephemerals("dev")))
        for person in ("ben", "cleo"):
            await thread.press(person, await thread.says("Approval needed"), "Approve")
        await thread.says("runs with 4 copies")
        assert counted(log) == ["scale+deployment/checkout+--replicas=4"]


@simulated
async def test_a_rejection_says_why_and_runs_nothing(tmp_path: Path, tool: tuple[Path, Path]) -> None:
    """One rejection with its reason ends it, and the thread says the reason."""
    async with inhabited_town(tmp_path, only(tmp_path, "scale-out")) as (workspace, _):
        program, log = tool
        thread = await start_scaling(workspace, program)
        await thread.press("ben", await thread.says("Approval needed"), "Reject…")
        await workspace.wait_for(lambda: bool(workspace.views("ben")))
        (view,) = workspace.views("ben")
        await workspace.submit_view("ben", view["id"], {"reason": "the budget is spent"})
        told = await thread.says("stays as it is")
        assert "the budget is spent" in told["text"], told["text"]
        assert counted(log) == []


@simulated
async def test_an_alert_finds_somebody_who_looks(tmp_path: Path) -> None:
    """An app's alert asks the channel who looks at it, counts those like it, and keeps what was found."""
    async with inhabited_town(tmp_path, only(tmp_path, "outage")) as (workspace, _):
        pager = workspace.add_user("pager", is_bot=True)
        workspace.join(pager, "incidents")
        ts = await workspace.post(pager, "incidents", "ALERT: checkout is down")
        thread = ThreadView(workspace, "incidents", ts)
        asked = await thread.says("Question for")
        await workspace.post(pager, "incidents", "ALERT: checkout is down")
        await thread.says("1 more message like this one")
        await thread.press("cleo", asked, "I do")
        await thread.says("What did you find")
        await thread.reply("cleo", "A full disk; I emptied it")
        await thread.says("was looked at by Cleo Martin")
