"""Scenario files: everything that is wrong in one is told at once, with its place and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.scenarios.load import Flows, load_scenario
from engine.language.errors import FlowError
from tests.bot.test_scenarios import GOOD, HEAD, scenario


def problems(folder: Path, steps: str, head: str = HEAD) -> list[str]:
    """What is wrong with a file, without the folder that it is in."""
    with pytest.raises(FlowError) as error:
        scenario(folder, steps, head=head)
    return [str(problem).removeprefix(f"{folder}/scenarios/") for problem in error.value.problems]


STEPS = "steps: [{expect: {status: paused}}]\n"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            "nodes: {aply: done}",
            "first.yml:5:9: flow `rollback` has no node `aply`\n  hint: did you mean `apply`?",
        ),
        (
            "nodes: {gate: done}",
            "first.yml:5:9: `gate` is of type approval: a scenario cannot set its result\n"
            "  hint: people answer it: write their actions under `steps`",
        ),
        (
            "nodes: {apply: {output: {stdot: x}}}",
            "first.yml:5:26: unknown field `stdot`\n  hint: did you mean `stdout`?",
        ),
        ("nodes: {apply: {eror: x}}", "first.yml:5:17: unknown field `eror`\n  hint: did you mean `error`?"),
        ("nodes: {apply: [done, 3]}", "first.yml:5:23: expected a result, not the number 3"),
        ("nodes: {apply: []}", "first.yml:5:16: the list is empty"),
        ("nodes: {apply: {error: x, real: true}}", "first.yml:5:16: use one of `output`, `error`"),
        ("nodes: {apply: {output: ok}}", "first.yml:5:25: expected a mapping, not the text 'ok'"),
        ("start: {as: anna}", "first.yml:5:13: there is no person `anna` here\n  hint: did you mean `ana`?"),
        (
            "start: {as: ana, trigger: schedule}",
            "first.yml:5:18: either a person starts the flow or a trigger",
        ),
        ("start: {at: tomorrow}", "first.yml:5:13: 'tomorrow' is not a moment: write"),
        ("strat: {as: ana}", "first.yml:5:1: unknown field `strat`\n  hint: did you mean `start`?"),
        ("claude: [{txt: x}]", "first.yml:5:11: unknown field `txt`\n  hint: did you mean `text`?"),
        ("claude: {turns: []}", "first.yml:5:17: expected a list of turns, not a list"),
        ("start: {as: }", "first.yml:5:9: `as` has no value"),
        ("description: Deploy #42", "first.yml:5:21: a comment begins at `#42`"),
        ("secrets: {token: 007}", 'first.yml:5:18: expected text, not the number 7\n  hint: quote it: "007"'),
        ("claude: 3", "first.yml:5:9: expected a list of turns, not the number 3"),
        ("claude: {gate: [{text: x}]}", "first.yml:5:10: `gate` is of type approval, not an agent"),
    ],
)
def test_a_wrong_part_is_told_with_its_place(tmp_path: Path, part: str, said: str) -> None:
    """Names that nobody has, values that nothing can be, and what was meant."""
    (found,) = problems(tmp_path, f"{part}\n{STEPS}")
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "expct: {status: complete}",
            "3: `expct` is neither a step nor a person here\n  hint: did you mean `expect`?",
        ),
        ("bob: approve", "3: `bob` is neither a step nor a person here"),
        ("ana: {aprove: because}", "9: there is no action `aprove`\n  hint: did you mean `approve`?"),
        ("ana: 3", "8: expected an action of this person, not the number 3\n  hint: quote it"),
        ("ana: {form: x}", "15: expected fields and their values, not the text 'x'"),
        ("ana: {files: [a]}", "16: expected file names with contents, not a list"),
        ("ana: {files: {../a: x}}", "17: `../a` is not a valid file name"),
        ("ana: {files: {a: 3}}", "20: expected text, not the number 3"),
        ("ana: {approve: 1}", "18: expected a reason, or nothing, not the number 1"),
        ("ana: {reply: ''}", "16: expected text, not the text ''"),
        ("ana: {hand_over: bob}", "20: there is no person `bob` here"),
        ("{ana: yes, on: gat}", "18: flow `rollback` has no node `gat`\n  hint: did you mean `gate`?"),
        ("{ana: yes, refused: 3}", "23: expected text, not the number 3"),
        ("wait: 10", "9: 10 has no unit: write 10s, 10m, 10h or 10d"),
        ("{wait: 1m, on: gate}", "14: `on` belongs beside the action of a person"),
        ("{wait: 1m, ana: yes}", "3: a step is one action or expectation; this has `wait`, `ana`"),
        ("approve", "3: expected a step, not the text 'approve'"),
        ("expect: {}", "11: expected conditions, not a mapping"),
        ("expect: {staus: complete}", "12: unknown field `staus`\n  hint: did you mean `status`?"),
        ("expect: {status: done}", "20: expected running, paused, complete, failed or aborted"),
        ("expect: {prompt: gat}", "20: flow `rollback` has no node `gat`"),
        ("expect: {nodes: {apply: done}}", "27: `done` is not a node status"),
        ("expect: {outputs: {aply: 1}}", "22: flow `rollback` has no node `aply`"),
        ("expect: {effects: [3]}", "22: expected a node, not the number 3"),
        ("expect: {message: Roll back}", "12: `message` needs a question: name it with `prompt`"),
    ],
)
def test_a_wrong_step_is_told_with_its_place(tmp_path: Path, step: str, said: str) -> None:
    """Steps that are none, people who are not there, and fields that nothing has."""
    (found,) = problems(tmp_path, f"steps:\n- {step}")
    assert found.startswith(f"first.yml:6:{said}")


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """In the order of the file."""
    found = problems(tmp_path, "nodes: {aply: done}\nsteps:\n- anna: yes\n- wait: 3\n")
    assert [line.split(":")[1] for line in found] == ["5", "7", "8"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "a scenario is a mapping with `scenario`, `flow` and `steps`, not a list"),
        ("scenario: x\nsteps: []", "`flow` is missing"),
        (
            "scenario: x\nflow: rollbak\npeople: [ana]\n" + STEPS,
            "there is no flow `rollbak` (did you mean `rollback`?)",
        ),
        ("scenario: x\nflow: other.yml\npeople: [ana]\n" + STEPS, "there is no flow file other.yml"),
        ("scenario: x\nflow: rollback\n" + STEPS, "nobody starts the flow"),
        ("scenario: x\nflow: rollback\npeople: [ana]\nsteps: []", "a scenario needs `steps`"),
        ("scenario: x\nflow: rollback\npeople: {ana: {grups: []}}\n" + STEPS, "unknown field `grups`"),
        ("scenario: [a\nflow: b", "second.yml:"),
        ("flow: rollback\nnodes:\n  - {id: a, type: noop}", "this is a flow, not a scenario"),
    ],
)
def test_a_file_that_is_no_scenario_says_so(tmp_path: Path, text: str, said: str) -> None:
    """What is missing or cannot be read at all."""
    scenario(tmp_path, GOOD)
    file = tmp_path / "scenarios" / "second.yml"
    file.write_text(text)
    with pytest.raises(FlowError) as error:
        load_scenario(file, Flows())
    assert said in str(error.value)


def test_a_broken_flow_is_told(tmp_path: Path) -> None:
    """The flow's own problems are named with their places in the flow's file."""
    with pytest.raises(FlowError) as error:
        from tests.bot.test_scenarios import FLOW

        scenario(tmp_path, GOOD, flow=FLOW.replace("type: shell", "type: shel"))
    assert "rollback.yml:" in str(error.value)
    assert "shel" in str(error.value)


def test_a_flow_is_found_by_file_and_by_folder(tmp_path: Path) -> None:
    """A path is seen from the scenario; a name is looked for in the folder of flows first, then around the scenario."""
    by_file = scenario(tmp_path, GOOD, head=HEAD.replace("flow: rollback", "flow: ../rollback.yml"))
    assert by_file.flow.name == "rollback"
    other = tmp_path / "flows"
    other.mkdir()
    (other / "any.yml").write_text((tmp_path / "rollback.yml").read_text().replace("2h", "3h"))
    found = load_scenario(tmp_path / "scenarios" / "first.yml", Flows(other))
    assert found.flow.file == str(tmp_path / "rollback.yml")
    scenario(tmp_path, GOOD)
    found = load_scenario(tmp_path / "scenarios" / "first.yml", Flows(other))
    assert found.flow.file == str(other / "any.yml")
