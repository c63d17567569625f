"""Scenarios with a scripted Claude: its tools, the people in its way, and kills in the middle of a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from bot.scenarios.play import Result
from engine.decide.agents import memory
from engine.journal.state import Spent, State
from tests.bot.test_scenarios import after_a_kill, played, report

pytestmark = pytest.mark.usefixtures("inline")

FLOW = """
flow: investigate
inputs:
  service: {type: string}
tools:
  logs:
    description: Last lines of a service's log
    input: {service: {type: string, description: Which}}
    type: shell
    with: {run: [./logs.sh, "{{ input.service }}"]}
    on_crash: again
nodes:
  - id: diagnose
    type: agent
    with:
      prompt: "Why is {{ inputs.service }} failing?"
      max_turns: 4
      tools: [ask_human, logs, {shell: {commands: ["systemctl restart *"]}}, read_file, write_file]
      approvals: {shell: [approve, edit, reject]}
  - id: tell
    type: message
    with: {text: "{{ nodes.diagnose.text }}"}
"""

HEAD = """
scenario: An investigation
flow: investigate
inputs: {service: checkout}
people: [ana, ben]
"""


async def talked(folder: Path, steps: str, **options: Any) -> Result:
    """What became of a scenario with the agent."""
    return await played(folder, steps, flow=FLOW, head=HEAD, **options)


GOOD = """
claude:
  - text: I look at the log.
    tools: [{name: logs, input: {service: checkout}}]
  - error: {kind: overloaded}
  - expect: {result: out of memory}
    tools: [{name: ask_human, input: {question: "Shall I restart it?"}}]
  - expect: {result: "yes"}
    tools: [{name: shell, input: {command: systemctl restart checkout}}]
  - text: It was out of memory; I restarted it.
nodes:
  diagnose.logs: {output: {stdout: out of memory}}
  diagnose.shell: done
steps:
  - expect: {prompt: diagnose.ask_human, message: Shall I restart it, said: {diagnose: I look}}
  - ana: "yes, please"
  - expect: {prompt: diagnose, kind: approval}
  - ben: approve
    refused: Only
  - ana: approve
  - expect:
      status: complete
      posted: It was out of memory
      effects: [diagnose.logs: {run: [./logs.sh, checkout]}, diagnose.shell: {run: [systemctl, restart, checkout]}]
      said: {diagnose: I restarted it}
      outputs: {diagnose: {turns: 4}}
"""


async def test_a_conversation_with_tools_a_question_and_an_approval(tmp_path: Path) -> None:
    """Killed anywhere, the conversation is the same in the end, and each tool ran once."""
    result = await talked(tmp_path, GOOD, kills=True, step=1)
    assert result.passed, report(result)
    assert (result.kills or 0) >= 24


STEERED = """
claude:
  diagnose:
    - tools:
        - {name: shell, input: {command: systemctl restart checkuot}}
        - {name: shell, input: {command: systemctl restart database}}
        - {name: shell, input: {command: rm -rf /}}
        - {name: logs, input: {service: checkout}}
    - expect: {user: until six, result: it is not ours}
      text: Done.
nodes: {diagnose.logs: {error: no such service}, diagnose.shell: done}
steps:
  - expect: {prompts: ["diagnose/turn[1]/tool[0]", "diagnose/turn[1]/tool[1]"], effects: [diagnose.logs]}
  - ana: {edit: {command: systemctl restart checkout}}
    on: diagnose/turn[1]/tool[0]
  - ana: approve
    on: diagnose/turn[1]/tool[0]
  - ana: {message: I am here until six}
  - ana: {reject: it is not ours}
  - expect: {status: complete, effects: [diagnose.logs, diagnose.shell: {run: [systemctl, restart, checkout]}]}
"""


async def test_a_call_is_corrected_another_refused_and_somebody_steers(tmp_path: Path) -> None:
    """Each call of one answer waits on its own, what runs is what was corrected, and a message comes with the results."""
    result = await talked(tmp_path, STEERED, kills=True)
    assert result.passed, report(result)


async def test_people_speak_while_something_is_at_work(tmp_path: Path) -> None:
    """A message while a tool runs is behind its result; a pause while the model answers asks it again later."""
    steps = """
claude:
  - tools: [{name: logs, input: {service: checkout}}]
  - expect: {user: It is the database, result: out of memory}
    text: Then I leave it.
nodes: {diagnose.logs: {output: {stdout: out of memory}}}
steps:
  - ana: {message: It is the database}
    while: diagnose.logs
  - ana: {pause: let me look}
    while: diagnose/turn[2]
  - expect: {status: paused, nodes: {tell: pending}, effects: [diagnose.logs]}
  - ana: {resume: go on}
  - expect: {status: complete, posted: Then I leave it, effects: [diagnose.logs]}
"""
    result = await talked(tmp_path, steps, kills=True)
    assert result.passed, report(result)
    late = steps.replace("while: diagnose.logs", "while: diagnose.shell").replace(
        "user: It is the database, ", ""
    )
    assert "`diagnose.shell` is not running." in report(await talked(tmp_path, late))


async def test_files_of_the_session_are_read_and_written_without_a_word(tmp_path: Path) -> None:
    """What only touches the session's own folder runs, is not an effect, and is thrown away with the scenario."""
    steps = """
claude:
  - tools: [{name: write_file, input: {path: notes.txt, content: it is slow}}]
  - tools: [{name: read_file, input: {path: notes.txt}}]
  - expect: {result: it is slow}
    text: Done.
steps:
  - expect: {status: complete, effects: []}
"""
    result = await talked(tmp_path, steps, kills=True)
    assert result.passed, report(result)


_LOOKS = "\n".join(["  - tools: [{name: logs, input: {service: checkout}}]"] * 4)
CAPPED = f"""
claude:
{_LOOKS}
  - text: I do not know.
nodes: {{diagnose.logs: done}}
steps:
  - expect: {{prompt: diagnose, kind: budget}}
  - ana: raise
  - expect: {{status: complete, posted: I do not know}}
"""


async def test_a_cap_is_a_question(tmp_path: Path) -> None:
    """At its cap an agent stops for a person, who lets it continue."""
    result = await talked(tmp_path, CAPPED, kills=True)
    assert result.passed, report(result)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "  - {text: Done., expect: {user: database}}",
            "first.yml:6:5: start\n      diagnose/turn[1]: turn 1 expected",
        ),
        ("  - tools: [{name: lgs}]", "turn 1 calls lgs, but the tools offered are: ask_human, logs, shell"),
        ("  - tools: [{name: logs, input: {service: x}}]", "diagnose.logs: {output: {stdout: ...}}"),
        ("  diagnose: [{text: Done.}, {text: more}]", "`diagnose` did not use 1 of these turns."),
        ("  turns: [{tools: [{name: ask_human, input: {}}]}]", "the script ended after 1 turns"),
    ],
)
async def test_a_script_that_does_not_fit_says_where(tmp_path: Path, script: str, said: str) -> None:
    """A turn that expected something else, a tool that is not there, too few turns and too many."""
    result = await talked(tmp_path, f"claude:\n{script}\nsteps:\n  - expect: {{status: complete}}")
    assert said in report(result)


async def test_an_agent_without_a_script_says_what_to_write(tmp_path: Path) -> None:
    """No model is ever asked."""
    result = await talked(tmp_path, "steps:\n  - expect: {status: complete}")
    assert "Add a list of turns under `claude`" in report(result)


# --- seeded faults -------------------------------------------------------------------------------------------


def changed(state: State, **fields: Any) -> State:
    """The state with other fields of every conversation in it."""
    for path, container in state.containers.items():
        if container.agent is not None:
            other = replace(container, agent=replace(container.agent, **fields))
            state = replace(state, containers=state.containers.set(path, other))
    return state


@pytest.mark.parametrize(
    ("fields", "steps"),
    [({"pending": ()}, STEERED), ({"spent": Spent()}, CAPPED), ({"results": Map()}, STEERED)],
    ids=["what people said", "what was spent", "what tools gave"],
)
async def test_what_a_kill_takes_from_a_conversation_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], steps: str
) -> None:
    """An engine that forgets a part of a conversation at a claim is told by the kills, and only by them."""
    after_a_kill(monkeypatch, lambda flow, state: changed(state, **fields))
    result = await talked(tmp_path, steps, kills=True)
    assert not result.plain.failures, report(result)
    assert result.killed


ALWAYS = """
claude:
  - tools: [{name: shell, input: {command: systemctl restart checkout}}]
  - tools: [{name: shell, input: {command: systemctl restart api}}]
  - tools: [{name: ask_human, input: {question: "Well?"}}]
  - tools: [{name: shell, input: {command: systemctl restart web}}]
  - text: All three run.
nodes:
  diagnose.shell: done
steps:
  - ana: {always: {command: "systemctl restart *"}}
  - expect: {prompt: diagnose.ask_human}
  - ana: {revoke: true}
  - ana: {reply: "yes"}
  - expect: {prompt: diagnose, kind: approval}
  - ana: approve
  - expect: {status: complete, said: {diagnose: All three run}}
"""


async def test_what_is_allowed_always_runs_once_each_until_it_is_taken_back(tmp_path: Path) -> None:
    """Killed at every event: each call ran once, and after `revoke` people are asked again."""
    flow = FLOW.replace("max_turns: 4", "max_turns: 6\n      grants: run")
    result = await played(tmp_path, ALWAYS, flow=flow, head=HEAD, kills=True, step=1)
    assert result.passed, report(result)


SERVED = FLOW.replace("tools: [ask_human, logs,", "tools: [{mcp: {server: ops, tools: [restart]}},").replace(
    "\n      approvals: {shell: [approve, edit, reject]}", ""
)
ASKS = """
claude:
  - tools: [{name: ops__restart, input: {service: checkout}}]
  - expect: {result: restarted}
    text: It runs again.
nodes:
  diagnose.ops__restart:
    - asks:
        message: When may it be restarted?
        form: {properties: {at: {type: string}}, required: [at]}
    - asks: {message: Please log in., url: https://login.example.com/x}
    - {output: {content: [{type: text, text: restarted}]}}
steps:
  - expect: {prompt: diagnose.ops__restart, message: When may it be restarted?, kind: elicit}
  - ana: {form: {at: noon}}
  - expect: {prompt: diagnose.ops__restart, message: "https://login.example.com/x", choices: [Done, Decline, Cancel]}
  - ana: Done
  - expect: {status: complete, posted: It runs again.}
"""


async def test_what_a_server_asks_survives_every_kill(tmp_path: Path) -> None:
    """Killed after each event, the scenario comes to the same end, and nobody is asked twice."""
    flow = SERVED.replace("tools: [restart]", "tools: [restart], on_crash: again")
    result = await played(tmp_path, ASKS, flow=flow, head=HEAD, kills=True, step=1)
    assert result.passed, report(result)
    assert (result.kills or 0) >= 15


SAID = """
start: {as: ana, said: ["ben: it is slow", "ben: it is the pool"]}
claude:
  - expect: {user: "ben: it is slow\\nben: it is the pool"}
    text: Then it is the pool.
steps:
  - expect: {status: complete, posted: Then it is the pool}
"""


async def test_what_was_said_before_is_read_as_in_a_thread(tmp_path: Path) -> None:
    """`said` of `start` is in what `context` asks for, killed at every event too; `channel:1` takes the last of it."""
    for place in ("thread", "channel:2"):
        flow = FLOW.replace("max_turns: 4", f"max_turns: 4\n      context: {place}")
        result = await played(tmp_path, SAID, flow=flow, head=HEAD, kills=True, step=1)
        assert result.passed, report(result)
    flow = FLOW.replace("max_turns: 4", "max_turns: 4\n      context: channel:1")
    assert "expected" in report(await played(tmp_path, SAID, flow=flow, head=HEAD))


async def test_a_note_is_kept_once_wherever_it_is_killed(tmp_path: Path) -> None:
    """If killed before or after any commit, there is still one row, with the same text and the same people."""
    flow = FLOW.replace("max_turns: 4", "max_turns: 4\n      memory: approve")
    result = await played(tmp_path, NOTED, flow=flow, head=HEAD, kills=True, step=1)
    assert result.passed, report(result)
    assert result.kills


async def test_a_note_that_is_kept_before_its_approval_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seeded fault: each call of `remember` stores its row before it is approved."""
    made = memory.NoteRows.__call__

    def early(self: Any, before: Any, after: Any, events: Any) -> Any:
        asked = [event for event in events if event.type == "agent:toolRequested"]
        begun = [replace_type(event) for event in asked]
        return [*made(self, before, after, events), *(memory._row(after, one, one) for one in begun)]

    monkeypatch.setattr(memory.NoteRows, "__call__", early)
    monkeypatch.setattr(memory.NoteRows, "about", ())
    flow = FLOW.replace("max_turns: 4", "max_turns: 4\n      memory: approve")
    assert "expected  no note" in report(await played(tmp_path, NOTED, flow=flow, head=HEAD))


def replace_type(event: Any) -> Any:
    """A request of a tool as what begins it."""
    told = {**event.input, "scope": "channel", "keep": 60.0}
    return replace(event, input=told)


NOTED = """
start: {as: ana, notes: [It was slow in May.]}
claude:
  - expect: {user: It was slow in May.}
    tools: [{name: remember, input: {text: It is the pool.}}]
  - expect: {result: It is the pool.}
    text: I know it now.
steps:
  - expect: {prompt: diagnose, kind: approval, notes: []}
  - ben: approve
  - expect: {status: complete, notes: [It is the pool.]}
"""


BEYOND = """
claude:
  - tools: [{name: shell, input: {command: systemctl restart checkout}}]
  - tools: [{name: shell, input: {command: systemctl restart web}}, {name: shell, input: {command: systemctl restart api}}]
  - tools: [{name: shell, input: {command: systemctl restart web}}]
  - text: Restarted.
nodes:
  diagnose.shell: done
steps:
  - expect: {prompt: diagnose, kind: approval}
  - ana: {WHERE: {command: systemctl restart *}}
  - expect: {status: complete, effects: [diagnose.shell, diagnose.shell, diagnose.shell, diagnose.shell]}
"""


@pytest.mark.parametrize("where", ["always_in_thread", "always_in_flow"])
async def test_what_is_allowed_beyond_a_run_is_used_once_for_each_call_wherever_it_is_killed(
    tmp_path: Path, where: str
) -> None:
    """Killed before and after every commit: each call ran once, and the row was changed once for each."""
    flow = FLOW.replace("max_turns: 4", "max_turns: 6\n      grants: flow")
    result = await played(tmp_path, BEYOND.replace("WHERE", where), flow=flow, head=HEAD, kills=True, step=1)
    assert result.passed, report(result)
    used = [event for event in result.plain.events if event.type == "grant:used"]
    assert [event.grant["used"] for event in used] == [1, 2, 3]  # type: ignore[attr-defined]
