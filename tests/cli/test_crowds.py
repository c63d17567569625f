"""What several command lines at once must not do to each other."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import bot
from bot.cli.act import Act, ask, request_of, told
from bot.terminal.follower import Follower
from bot.terminal.screen import TerminalScreen
from engine.decide.commands import Answer, Shown
from engine.journal.records import InboxRow
from engine.language.actors import Actor
from engine.language.errors import Fenced
from engine.run.dispatcher import perform
from engine.run.engine import Engine
from engine.run.session import Receipt, carry_out
from engine.storage.sqlite import open_sqlite
from prompt_state.question_row import projection
from tests.cli import crowd, crowd_checks
from tests.cli.clikit import Cli, until
from tests.support.engine import ANA, counted, everybody, flow_of, running, shell_runners
from tests.support.proving import PROVE, PROVE_SEED

pytestmark = pytest.mark.process
SEEDS = range(PROVE_SEED, PROVE_SEED + 24) if PROVE else (1,)
ROUNDS = 6 if PROVE else 1

BESIDE = """flow: beside
nodes:
  - id: both
    type: parallel
    branches:
      asked:
        - {id: which, type: ask, with: {message: Which?, who: ["local:ben"]}}
      works:
        - id: work
          type: shell
          on_crash: again
          with:
            script: 'echo begun >> "$PLACE/begun"; while ! test -e "$PLACE/go"; do sleep 0.05; done'
            env: {PLACE: "%s"}
"""

FOLLOWED = """flow: followed
nodes:
  - {id: q, type: ask, with: {message: Go on?}}
  - {id: a, type: shell, with: {script: 'echo ran >> "$LOG"', env: {LOG: "%s"}}}
"""


def test_a_refused_answer_takes_nothing_up(cli: Cli) -> None:
    """Where a process was killed at work, a command that is refused neither starts that work nor cuts it."""
    cli.write("beside.yml", BESIDE % cli.cwd)
    with cli.started("run", "beside.yml") as process:
        until(lambda: cli.lines("begun") == ["begun"], "the work has begun")
        prompt = cli.run("prompts", "list", "--json").json["prompts"][0]["promptId"]
        process.kill()
        process.wait()
    (session,) = cli.run("sessions", "list", "--json").json["sessions"]
    before = cli.run("sessions", "export", session["sessionId"]).json["journal"]
    refused = cli.run("prompts", "answer", prompt, "eu")
    assert (refused.code, "Only ben" in refused.err) == (5, True), refused
    refused = cli.run("sessions", "migrate", session["sessionId"])
    assert (refused.code, "is running" in refused.err) == (5, True), refused
    assert cli.run("sessions", "export", session["sessionId"]).json["journal"] == before
    cli.write("go", "")
    assert cli.run("prompts", "answer", prompt, "eu", "--as", "ben").code == 0
    assert cli.lines("begun") == ["begun"] * 2


async def test_an_answer_after_the_deadline_is_not_kept_for_a_bot_that_is_away(cli: Cli) -> None:
    """Nobody could carry it out any more, so it is refused at once and no request is left behind."""
    folder = cli.cwd / ".sayso"
    folder.mkdir(mode=0o700)
    store = open_sqlite(folder / "sayso.db")
    async with running(store, folder, extensions=[projection]) as rig:
        flow = flow_of("flow: f\nnodes:\n  - {id: q, type: ask, with: {message: Which?, timeout: 1h}}\n")
        thread = {"key": "T1:C1:1.1", "team": "T1", "channel": "C1", "ts": "1.1"}
        session_id = await rig.engine.start(flow, {}, actor=ANA, thread=thread)
        (prompt,) = (await rig.engine.state(session_id)).prompts.values()
        await rig.engine.apply(session_id, Shown(prompt.prompt_id, {"ts": "1.2"}))
        await rig.engine.parked(session_id)
    late = await asyncio.to_thread(cli.run, "prompts", "answer", prompt.prompt_id, "eu")
    assert (late.code, "This timed out" in late.err) == (5, True), late


async def test_what_is_only_kept_for_the_bot_is_not_done(cli: Cli) -> None:
    """Without a bot a pause, an abort and another text are told to be kept, with exit code 3; a bot that is there and has
    not taken them is not said to be off."""
    folder = cli.cwd / ".sayso"
    folder.mkdir(mode=0o700)
    store = open_sqlite(folder / "sayso.db")
    async with running(store, folder) as rig:
        flow = flow_of("flow: f\nnodes:\n  - {id: q, type: ask, with: {message: Which?}}\n")
        thread = {"key": "T1:C1:1.1", "team": "T1", "channel": "C1", "ts": "1.1"}
        session_id = await rig.engine.start(flow, {}, actor=ANA, thread=thread)
        await rig.engine.parked(session_id)
    cli.write("flow.yml", "flow: f\nnodes:\n  - {id: q, type: ask, with: {message: Which one?}}\n")
    paused = await asyncio.to_thread(cli.run, "sessions", "pause", session_id)
    assert (paused.code, "The bot is not running" in paused.out) == (3, True), paused
    for command in (["abort", session_id], ["migrate", session_id, "flow.yml"]):
        done = await asyncio.to_thread(cli.run, "sessions", *command, "--json")
        assert (done.code, done.json["request"]) == (3, "queued"), done
    store = open_sqlite(folder / "sayso.db")
    try:
        store.register("bot")
        head = store.sessions.head(session_id)
        assert head is not None
        request = request_of(session_id, Act("pause", {}), Actor.local("ana"))
        receipt = await asyncio.to_thread(ask, store, head, request, patience=0)
    finally:
        store.close()
    assert receipt == Receipt(request.key, "queued", there=True)
    assert told(receipt, head, "Done.").startswith("The bot is running but has not handled the request yet.")


async def test_a_request_that_another_process_carried_out_just_then_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds its own request consumed meanwhile takes the outcome for its own, and reports no lost claim."""

    async def overtaken(engine: Engine, row: InboxRow) -> None:
        await perform(engine, row)
        raise Fenced("another process was quicker")

    monkeypatch.setattr("engine.run.session.perform", overtaken)
    async with running(open_sqlite(tmp_path / "sayso.db"), tmp_path) as rig:
        session_id = await rig.engine.start(flow_of(FOLLOWED % "log"), {}, actor=ANA)
        await rig.engine.parked(session_id)
        await carry_out(rig.engine, request_of(session_id, Act("pause", {}), ANA))
        assert (await rig.engine.state(session_id)).phase == "held"


class Leaving(Follower):
    """A follower that has an answer of another process in hand when it is about to leave."""

    late: Answer | None = None

    async def _end_service(self) -> None:
        if self.late is not None:
            late, self.late = self.late, None
            await self.engine.apply(self.session_id, late)
        await super()._end_service()


async def test_what_an_answer_begins_is_not_cut_by_who_was_about_to_leave(tmp_path: Path) -> None:
    """Whoever carries an answer out for another process while it leaves stays until what follows is done."""
    text = FOLLOWED % (tmp_path / "log")
    async with running(open_sqlite(tmp_path / "sayso.db"), tmp_path, runners=shell_runners()) as rig:
        session_id = await rig.engine.start(flow_of(text), {}, actor=ANA)
        (prompt_id,) = (await rig.engine.parked(session_id)).open_prompts
        screen = TerminalScreen(sys.stderr)
        follower = Leaving(rig.engine, screen, session_id, actor=ANA, policy=everybody, ask=False)
        follower.late = Answer(prompt_id, ANA, "late", text="yes")
        state = await follower.follow(follower.claim)
        screen.close()
        assert (state.status, state.nodes["a"].status) == ("complete", "completed")
    assert counted(tmp_path / "log") == ["ran"]


def test_a_command_that_is_interrupted_while_it_is_read_ends_without_a_traceback(cli: Cli) -> None:
    """Ctrl-C before the first line of the command itself is the exit code 130 and nothing else."""
    cli.write("textwrap.py", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n")
    cli.fresh = True
    cli.env = {"PYTHONPATH": f"{cli.cwd}{os.pathsep}{Path(bot.__file__).parent.parent}"}
    done = cli.run("sessions", "list")
    assert (done.code, done.out, done.err) == (130, "", "")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_crowd_of_commands_says_is_what_happened(seed: int, tmp_path: Path) -> None:
    """Commands at once, some killed: all agree with the journal, and every effect is made once for each start."""
    played = crowd.play(tmp_path / "crowd", seed, ROUNDS, locked=seed % 4 == 2)
    assert not crowd_checks.problems(played)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS[:8])
def test_the_same_beside_a_bot_that_is_killed(seed: int, tmp_path: Path) -> None:
    """The bot serves the session, and is off now and then: what is kept for it is told so, and is not a success."""
    played = crowd.play(tmp_path / "crowd", seed, ROUNDS, slack=True, locked=seed % 4 == 2)
    assert not crowd_checks.problems(played)
