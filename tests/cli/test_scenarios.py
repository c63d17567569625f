"""`sayso test`: the examples' scenarios, exit codes, and the reports for people and for programs."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import play
from engine.run.flow_files import load_flows
from tests.bot.test_scenarios import FLOW, GOOD, HEAD, report
from tests.cli.clikit import Cli
from tests.support.proving import sampled

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted((ROOT / "examples/scenarios").glob("*.yml"))
KILLED = ("disk-cleanup", "triage-answered")
"""Of which `make test` tries every kill."""

BAD = "\nsteps:\n  - expect: {status: complete}\n"


@pytest.fixture
def flows(cli: Cli) -> Cli:
    """A folder with a flow, and with a scenario that is right."""
    cli.write("flows/rollback.yml", FLOW)
    cli.write("flows/scenarios/good.yml", HEAD.strip() + "\n" + GOOD)
    return cli


def test_every_example_has_scenarios() -> None:
    """No example flow is without one."""
    texts = [file.read_text() for file in SCENARIOS]
    flows = load_flows(ROOT / "examples")[0]
    assert [name for name in flows if not any(f"\nflow: {name}\n" in text for text in texts)] == []


def test_the_scenarios_of_the_examples_pass(cli: Cli) -> None:
    """All of them, as whoever copies them would play them."""
    done = cli.run("test", str(ROOT / "examples/scenarios"))
    assert done.code == 0, repr(done)
    assert f"{len(SCENARIOS)} scenarios passed" in done.out
    assert done.err == ""


@pytest.mark.parametrize(
    "file",
    sampled(SCENARIOS, [ROOT / f"examples/scenarios/{name}.yml" for name in KILLED]),
    ids=lambda file: file.stem,
)
async def test_a_kill_at_any_event_changes_nothing_in_an_example(file: Path) -> None:
    """Killed before and after every event, every example comes out the same."""
    result = await play(load_scenario(file, Flows(ROOT / "examples")), kills=True)
    assert result.passed, report(result)


def test_scenarios_are_found_in_the_folder_of_flows(flows: Cli) -> None:
    """Without arguments all of `flows/scenarios` is played; `--flows` names another folder."""
    assert "1 scenario passed" in flows.run("test").out
    shutil.move(flows.cwd / "flows", flows.cwd / "others")
    assert flows.run("--flows", "others", "test").code == 0
    assert "There is no scenario" in flows.run("test").err


def test_no_session_is_left(flows: Cli) -> None:
    """A scenario makes no database and no folder for sessions."""
    assert flows.run("test").code == 0
    assert sorted(path.name for path in flows.cwd.iterdir()) == ["flows"]


def test_exit_codes_say_how_it_went(flows: Cli) -> None:
    """0 where all passed, 1 where something was not as expected, 2 where a file cannot be read or is not there."""
    bad = flows.write("flows/scenarios/bad.yml", HEAD.strip() + BAD)
    done = flows.run("test")
    assert (done.code, "1 of 2 scenarios failed, 1 passed" in done.out) == (1, True)
    bad.write_text("scenario: x\n")
    done = flows.run("test")
    assert (done.code, "`flow` is missing" in done.out) == (2, True)
    assert flows.run("test", "nothing.yml").code == 2
    (flows.cwd / "empty").mkdir()
    assert "There are no scenarios in" in flows.run("test", "empty").err


def test_junit_has_a_case_for_each_scenario_and_one_for_its_kills(flows: Cli) -> None:
    """Names, counts and texts are those that readers of JUnit XML look for; odd characters are spelled out."""
    flows.write("flows/scenarios/bad.yml", HEAD.replace("A rollback", '"<bad> & \\u001b[31m"').strip() + BAD)
    flows.write("flows/scenarios/broken.yml", "scenario: x\n")
    assert flows.run("test", "--kill", "--junit", "out/report.xml").code == 2
    (suite,) = ElementTree.parse(flows.cwd / "out/report.xml").getroot()
    assert suite.tag == "testsuite"
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    assert float(suite.get("time", "")) > 0
    cases = {case.get("name"): case for case in suite}
    assert all(case.get("classname") and float(case.get("time", "")) >= 0 for case in suite)
    assert list(cases["A rollback"]) == []
    assert list(cases["A rollback: killed at every event"]) == []
    failure = next(case.find("failure") for name, case in cases.items() if "<bad> &" in str(name))
    assert failure is not None
    assert "came      paused: why waits for an answer" in str(failure.text)
    error = cases[str(next(name for name in cases if "broken.yml" in str(name)))].find("error")
    assert error is not None
    assert "`flow` is missing" in str(error.text)


def test_json_has_every_failure(flows: Cli) -> None:
    """`--json` prints one document: what passed, what did not, where and why."""
    flows.write("flows/scenarios/bad.yml", HEAD.strip() + BAD)
    done = flows.run("test", "--kill", "--json")
    bad, good = done.json["scenarios"]
    assert (done.code, done.json["ok"], bad["ok"], good["ok"]) == (1, False, False, True)
    assert bad["failures"][0]["title"] == "step 1, expect status"
    assert bad["failures"][0]["place"].endswith("bad.yml:6:14")
    assert (bad["kills"], good["killed"]) == (None, [])
    assert good["kills"] >= 20
