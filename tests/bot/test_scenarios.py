"""Scenarios: what a flow does when people, time and the world do what a file says; and what a wrong one says."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bot.scenarios import play as module
from bot.scenarios.document import Scenario
from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import Result, play
from bot.scenarios.report import Told, lines
from bot.terminal.console import Paint
from engine.journal.state import ROOT
from engine.language.errors import FlowError
from engine.run import executor as work
from engine.run.executor import ActiveSession
from engine.run.sessions import Sessions
from tests.proof.mutants import Change, retries_are_forgotten, rewind
from tests.support.proving import PROVE

pytestmark = pytest.mark.usefixtures("inline")

FLOW = """
flow: rollback
inputs:
  service: {type: string}
nodes:
  - id: why
    type: ask
    with: {message: "Why is {{ inputs.service }} rolled back?", timeout: 2h}
  - id: gate
    type: approval
    with:
      message: "Roll back {{ inputs.service }}?"
      approvers: ["@sre"]
      exclude_requester: true
      timeout: 30m
      remind_every: 10m
      on_timeout: reject
  - id: apply
    type: shell
    with: {run: [./rollback.sh, "{{ inputs.service }}"]}
    retry: {attempts: 3, delay: 5s}
  - id: tell
    type: message
    with: {text: "{{ inputs.service }}: {{ status.apply }}"}
"""

HEAD = """
scenario: A rollback
flow: rollback
inputs: {service: checkout}
people: {ana: {}, ben: {groups: [sre]}, cleo: {groups: [sre]}}
"""


def scenario(folder: Path, steps: str, *, flow: str = FLOW, head: str = HEAD) -> Scenario:
    """The scenario of these steps, in a file beside its flow."""
    (folder / "rollback.yml").write_text(flow)
    file = folder / "scenarios" / "first.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(head.strip() + "\n" + steps)
    return load_scenario(file, Flows())


async def played(
    folder: Path, steps: str, *, kills: bool = False, step: int = 1 if PROVE else 3, **options: Any
) -> Result:
    """What became of a scenario of these steps; `make test` tries every third of the kills."""
    every = module._points
    with patch.object(module, "_points", lambda plain: islice(every(plain), 0, None, step)):
        return await play(scenario(folder, steps, **options), kills=kills)


def report(result: Result) -> str:
    """What people read about it."""
    paint = Paint.__new__(Paint)
    paint.on = False
    return "\n".join(lines(Told("first.yml", result), paint))


GOOD = """
nodes:
  apply: [{error: no connection}, {output: {stdout: ok}}]
steps:
  - expect: {prompt: why, message: Why is checkout}
  - ana: It is slow
  - expect: {prompt: gate, message: /Roll back \\w+\\?/, choices: [Approve, Reject], asks: ["@sre"], kind: approval}
  - ana: approve
    refused: You started this
  - wait: 10m
  - expect: {reminded: gate, status: paused, prompts: [gate], effects: []}
  - ben: approve
  - expect:
      status: complete
      posted: "checkout: completed"
      nodes: {gate: completed, apply: completed}
      outputs: {why: {text: It is slow, by: {name: ana}}, apply: {stdout: ok}}
      effects: [{apply: {run: [./rollback.sh, checkout]}}, apply]
"""


async def test_a_scenario_that_is_right_passes(tmp_path: Path) -> None:
    """People answer, a refusal is expected, the clock moves, a failure is tried again: all of it as the file says."""
    result = await played(tmp_path, GOOD)
    assert result.passed, report(result)


async def test_a_kill_at_every_event_changes_nothing(tmp_path: Path) -> None:
    """Killed before and after every commit, the same scenario comes out the same each time."""
    result = await played(tmp_path, GOOD, kills=True, step=1)
    assert result.passed, report(result)
    assert result.kills == 2 * len(result.plain.commits)
    assert result.kills >= 20


async def test_what_is_not_as_expected_is_told_with_its_place(tmp_path: Path) -> None:
    """Every difference has file, line and column, what was expected and what came; and what happened until then."""
    steps = """
steps:
  - ana: It is slow
  - expect:
      status: complete
      nodes: {why: skipped}
      outputs: {why: {text: It is fast}}
"""
    result = await played(tmp_path, steps)
    assert not result.passed
    shown = report(result)
    assert f"{tmp_path}/scenarios/first.yml:9:7: step 2, expect status" in shown
    assert "      expected  complete\n      came      paused: gate waits for an answer" in shown
    assert "first.yml:10:15: step 2, expect nodes.why" in shown
    assert "      expected  skipped\n      came      completed" in shown
    assert "      expected  It is fast\n      came      It is slow" in shown
    assert "? gate  Roll back checkout?" in shown


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("  - ana: approve\n    on: gate", "`gate` has no open question."),
        ("  - ana: {approve: fine}", "No open question accepts `approve` “fine”."),
        ("  - ben: Because", "It was refused: Only"),
        ("  - ana: Because\n    refused: no", "ana could do it and was not refused: “no”."),
        ("  - ben: Because\n    refused: tomorrow", "expected the refusal  tomorrow"),
        ("  - ana: Because\n  - ben: aprove", "No open question accepts “aprove”."),
        ("  - ana: Because\n  - ben: approve", "`apply` would run now"),
        ("  - ana: {revoke: a slip}", "There is no grant to revoke."),
        ("  - expect: {prompt: gate}", "came      Open questions:"),
        ("  - expect: {prompt: why, choices: ['Yes']}", "came      none"),
        ("  - expect: {prompt: why, asks: ['@sre']}", "came      requester"),
        ("  - expect: {prompt: why, message: Who}", "came      Why is checkout rolled back?"),
        ("  - expect: {prompts: [why, gate]}", "expected  why, gate"),
        ("  - expect: {effects: [apply]}", "came      none"),
        ("  - expect: {posted: done}", "came      nothing was posted since"),
        ("  - expect: {reminded: why}", "came      that did not happen since"),
        ("  - expect: {errors: {apply: broken}}", "came      it did not fail"),
        ("  - expect: {outputs: {gate: {decision: approve}}}", "came      no output: it is pending"),
        ("  - wait: 2h\n  - expect: {status: complete}", "why failed: nobody answered why in time"),
    ],
)
async def test_a_wrong_step_says_what_is_instead(tmp_path: Path, steps: str, said: str) -> None:
    """A deed that fits no question, a refusal that nobody expected, and every kind of expectation that is not met."""
    result = await played(tmp_path, f"steps:\n{steps}")
    assert not result.passed
    assert said in report(result)


async def test_a_node_that_is_not_mentioned_runs_nothing(tmp_path: Path) -> None:
    """Where a node with effects comes up that the file does not mention, it says what to write, and nothing is run."""
    result = await played(tmp_path, "steps:\n  - ana: Because\n  - ben: approve")
    assert "apply: {output: {stdout: ...}}" in report(result)
    assert [event.type for event in result.plain.events][-1] == "node:started"


async def test_a_real_node_runs(tmp_path: Path) -> None:
    """`real` runs the command itself, beside the flow's file."""
    script = tmp_path / "rollback.sh"
    script.write_text("#!/bin/sh\necho rolled back $1\n")
    script.chmod(0o755)
    steps = """
nodes: {apply: real}
steps:
  - ana: Because
  - ben: approve
  - expect: {status: complete, outputs: {apply: {stdout: /rolled back checkout/}}}
"""
    result = await played(tmp_path, steps)
    assert result.passed, report(result)


async def test_an_interrupted_node_asks_what_to_do(tmp_path: Path) -> None:
    """`interrupted` leaves the outcome of a node unknown: people are asked, and the next entry is what comes then."""
    steps = """
nodes: {apply: [{interrupted: timeout}, done]}
steps:
  - ana: Because
  - ben: approve
  - expect: {prompt: apply, kind: interrupted}
  - ana: again
  - expect: {status: complete, effects: [apply, apply]}
"""
    result = await played(tmp_path, steps, kills=True)
    assert result.passed, report(result)


async def test_people_can_pause_resume_steer_and_cancel(tmp_path: Path) -> None:
    """A held session takes answers and starts nothing until somebody lets it continue; who cancels ends it."""
    steps = """
nodes: {apply: done}
steps:
  - ana: {message: The customer has called}
  - ana: {pause: lunch}
  - ana: {reply: It is slow}
  - expect: {nodes: {why: completed, gate: pending}, status: paused}
  - ana: {resume: go on}
  - expect: {prompt: gate}
  - cleo: {cancel: no}
    refused: cancel
  - ana: {cancel: not today}
  - expect: {status: aborted, nodes: {gate: stopped}, effects: []}
"""
    result = await played(tmp_path, steps, kills=True)
    assert result.passed, report(result)


async def test_a_question_is_handed_over_and_escalated(tmp_path: Path) -> None:
    """Who was asked lets somebody else answer; nobody does in time, so others are told and may."""
    flow = FLOW.replace(
        "timeout: 2h", "timeout: 2h, escalate: [{after: 1h, to: [dev@example.com], may_answer: true}]"
    )
    steps = """
nodes: {apply: done}
steps:
  - ana: {hand_over: ben}
  - ana: It is slow
    refused: handed
  - expect: {prompt: why, asks: [ben]}
  - cleo: Because
    refused: Only
  - wait: 1h
  - expect: {escalated: why}
  - dev: It is slow
  - expect: {outputs: {why: {by: {name: dev}}}}
"""
    head = HEAD.replace("people: {", "people: {dev: {}, ") + "start: {as: ana}\n"
    result = await played(tmp_path, steps, flow=flow, head=head, kills=True)
    assert result.passed, report(result)


async def test_who_may_do_what_follows_from_what_is_known_of_people(tmp_path: Path) -> None:
    """An admin may end what others began; a guest may answer nothing, nor who is not in the channel."""
    flow = FLOW.replace("timeout: 2h", "who: [channel]")
    head = HEAD.replace(
        "cleo: {groups: [sre]}", "cleo: {admin: true}, gus: {guest: true}, out: {in_channel: false}"
    )
    steps = """
steps:
  - gus: Because
    refused: Guests
  - out: Because
    refused: channel
  - ben: {cancel: no}
    refused: Only
  - cleo: {cancel: it is not ours}
  - expect: {status: aborted}
"""
    result = await played(tmp_path, steps, flow=flow, head=head)
    assert result.passed, report(result)


async def test_a_person_has_a_manager(tmp_path: Path) -> None:
    """`manager` asks the manager that the scenario gives to whoever started the flow, and nobody else."""
    flow = FLOW.replace('["@sre"]', "[manager]")
    head = HEAD.replace("ana: {}", "ana: {manager: cleo}")
    steps = """
steps:
  - ana: Because
  - ben: approve
    refused: cleo
  - cleo: approve
    on: gate
  - expect: {nodes: {gate: completed}}
"""
    fakes = "\nnodes: {apply: done}\n"
    result = await played(tmp_path, fakes + steps, flow=flow, head=head)
    assert result.passed, report(result)


async def test_a_manager_is_one_of_the_people(tmp_path: Path) -> None:
    """A manager who is none of the scenario's people is an error with its place."""
    with pytest.raises(FlowError, match="there is no person `klaus`"):
        scenario(tmp_path, "steps: [{ana: x}]", head=HEAD.replace("ana: {}", "ana: {manager: klaus}"))


async def test_a_node_that_really_runs_has_its_secrets(tmp_path: Path) -> None:
    """A scenario without a secret of a node that really runs is refused before anything happens."""
    flow = FLOW.replace('"{{ inputs.service }}"]}\n', '"x"], env: {T: "{{ secrets.TOKEN }}"}}\n')
    head = HEAD + "nodes: {apply: real}\n"
    with pytest.raises(FlowError, match="no secret TOKEN"):
        scenario(tmp_path, "steps: [{ana: x}]", flow=flow, head=head)
    scenario(tmp_path, "steps: [{ana: x}]", flow=flow, head=head + "secrets: {TOKEN: t}\n")


async def test_what_goes_on_side_by_side_has_one_order(tmp_path: Path) -> None:
    """Questions of several passes are told apart by their paths, and a list of outcomes is used up in one order."""
    flow = """
flow: rollback
inputs: {service: {type: string}}
nodes:
  - id: fan
    type: foreach
    with: {items: [a, b, c], as: x, concurrency: 3}
    body:
      - {id: say, type: message, with: {text: "to {{ x }}"}}
      - {id: ask, type: ask, with: {message: "{{ x }}?", choices: [now, never]}}
      - {id: do, type: shell, with: {run: ["{{ x }}"]}}
"""
    steps = """
nodes: {do: [done, {output: {stdout: second}}, done], "fan[1]/do": {output: {stdout: its own}}}
steps:
  - expect: {prompts: [ask, ask, ask], posted: [to a, to b, to c]}
  - ana: now
    on: fan[2]/ask
  - ana: now
    on: fan[0]/ask
  - expect: {effects: ["fan[2]/do", "fan[0]/do"], outputs: {"fan[0]/do": {stdout: second}}, nodes: {say: completed}}
  - ana: never
  - expect: {status: complete, outputs: {"fan[1]/do": {stdout: its own}}}
"""
    result = await played(tmp_path, steps, flow=flow, kills=True)
    assert result.passed, report(result)
    other = await played(tmp_path, steps.replace("    on: fan[2]/ask\n", ""), flow=flow)
    assert "Several questions match: `fan[0]/ask`, `fan[1]/ask`, `fan[2]/ask`." in report(other)


async def test_files_are_an_answer(tmp_path: Path) -> None:
    """Where a question takes files, somebody drops some in, and nodes that really run find them."""
    flow = FLOW.replace("timeout: 2h", "accept: files").replace(
        '[./rollback.sh, "{{ inputs.service }}"]', '[cat, "{{ nodes.why.files[0].path }}"]'
    )
    steps = """
nodes: {apply: real}
steps:
  - ana: {files: {why.txt: It is slow}}
  - expect: {outputs: {why: {files: [{name: why.txt, size: 10}]}}}
  - ben: approve
  - expect: {outputs: {apply: {stdout: It is slow}}}
"""
    result = await played(tmp_path, steps, flow=flow, kills=True)
    assert result.passed, report(result)


async def test_a_start_can_be_refused(tmp_path: Path) -> None:
    """`refused` beside `start` expects that the policy says no, with these words."""
    flow = FLOW.replace("inputs:", "allowed_to_start: ['@sre']\ninputs:", 1)
    head = HEAD + "start: {as: ana, refused: start}\n"
    assert (await played(tmp_path, "", flow=flow, head=head)).passed
    other = await played(tmp_path, "", flow=flow, head=head.replace("as: ana", "as: ben"))
    assert "It was started, not refused" in report(other)


async def test_missing_inputs_are_asked_for(tmp_path: Path) -> None:
    """An input that is not given is a question, as everywhere."""
    steps = """
steps:
  - expect: {prompt: inputs/service}
  - ana: search
  - expect: {prompt: why, message: Why is search}
"""
    result = await played(tmp_path, steps, head=HEAD.replace("inputs: {service: checkout}\n", ""))
    assert result.passed, report(result)


# --- seeded faults -------------------------------------------------------------------------------------------


def after_a_kill(patch: pytest.MonkeyPatch, change: Change) -> None:
    """A fault in what a process reads of a session that it has not had in memory before."""
    claim = Sessions._load_claimed

    async def claimed(self: Sessions, live: ActiveSession) -> None:
        known = (cached := self._cached.get(live.session_id)) is not None and not cached.found
        await claim(self, live)
        if not known and not live.state.ended and live.flow is not None:
            live.state = change(live.flow, live.state)

    patch.setattr(Sessions, "_load_claimed", claimed)


async def test_a_step_that_runs_again_after_a_kill_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that forgets at a claim what had completed does things twice, and the kills that show it are named."""
    after_a_kill(monkeypatch, lambda flow, state: rewind(state, ROOT, 2))
    result = await played(tmp_path, GOOD, kills=True)
    assert not result.plain.failures, "without a kill nothing is wrong"
    assert result.killed
    shown = report(result)
    assert "had a different result" in shown
    assert "killed after event" in shown
    assert "apply" in shown


async def test_a_try_too_many_after_a_kill_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets at a claim how often a node has failed tries it once more, and the kills say so."""
    steps = """
nodes: {apply: {error: no connection}}
steps:
  - ana: Because
  - ben: approve
  - expect: {status: failed, effects: [apply, apply, apply]}
"""
    assert (await played(tmp_path, steps, kills=True)).passed
    after_a_kill(monkeypatch, retries_are_forgotten)
    result = await played(tmp_path, steps, kills=True)
    assert result.killed
    assert "came      apply, apply, apply, apply" in report(result)


async def test_an_effect_that_runs_twice_without_a_kill_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is launched twice for one start has run twice, and the scenario fails by itself."""
    perform = work.JobRunner.perform

    async def twice(self: work.JobRunner, job: work.Job) -> Any:
        await self.runners[job.run.type](job.run.input, self._context(job))
        return await perform(self, job)

    monkeypatch.setattr(work.JobRunner, "perform", twice)
    result = await played(tmp_path, GOOD)
    assert "apply ran again although its first run was not interrupted." in report(result)


def test_the_thread_of_a_scenario_has_the_parts_of_a_real_one() -> None:
    """What a session knows of its thread has the same names in a scenario as in Slack, where people asked for them."""
    from bot.scenarios.world import THREAD
    from prompt_state.question_row import thread_key

    assert set(THREAD) == {"key", "team", "channel", "threadTs"}
    assert THREAD["key"] == thread_key(THREAD["team"], THREAD["channel"], THREAD["threadTs"])


COMPOSED = """
steps:
  - expect: {prompt: why}
  - rene\u0301: It is slow
  - expect: {prompt: gate, message: "Cafe\u0301"}
  - ben: reject
  - expect: {status: failed}
"""


async def test_a_person_of_a_scenario_is_one_name_however_it_is_composed(tmp_path: Path) -> None:
    """Names of people, and words that are looked for, match in both compositions of their letters."""
    head = HEAD.replace("checkout", "Café").replace("{ana: {}", "{rené: {}")
    result = await played(tmp_path, COMPOSED, head=head)
    assert result.passed, report(result)
