"""`sayso replay`: recorded runs under another text. Each change of a flow below is seen, and says where; what changes
nothing gives no alarm."""

from __future__ import annotations

import json

import pytest

from engine.decide.against import against
from engine.flow.load import flow_from_body, load_flow
from tests.cli.clikit import Cli
from tests.engine.histories import NAMES, histories

DEPLOY = """flow: deploy
inputs: {version: {type: string, default: "1"}}
nodes:
  - id: build
    type: shell
    with: {run: [echo, "{{ inputs.version }}"]}
  - id: hosts
    type: foreach
    with: {items: [a, b], as: host}
    body:
      - {id: check, type: shell, with: {run: [echo, "{{ host }}"]}}
  - id: note
    type: shell
    if: "{{ inputs.version == '2' }}"
    with: {run: [echo, two]}
  - id: gate
    type: approval
    with: {message: "Ship {{ inputs.version }}?", approvers: ["local:ana"], covers: ship, timeout: 1h}
  - id: ship
    type: shell
    with: {run: [echo, shipped]}
  - id: broken
    type: shell
    on_error: continue
    with: {run: ["false"]}
"""
GATE = "  - id: gate\n"
CHANGES = {
    "a comment": (("flow: deploy", "# a comment\nflow: deploy"), None, []),
    "an order of keys": (("as: host", "concurrency: 1, as: host"), None, []),
    "another command": (("[echo, two]", "[echo, three]"), None, []),
    "a command that ran": (
        ("run: [echo, shipped]", "run: [echo, sent]"),
        'ship would have run ["echo","sent"] instead of ["echo","shipped"]',
        ["the approval gate would cover another action of ship"],
    ),
    "a new step": (
        (GATE, "  - {id: lint, type: noop}\n" + GATE),
        "lint is new and would run before gate",
        [],
    ),
    "a new step in a loop": (
        ("      - {id: check", "      - {id: ping, type: noop}\n      - {id: check"),
        "ping is new and would run before hosts[0]/check",
        [],
    ),
    "a step that is gone": (
        ('  - id: build\n    type: shell\n    with: {run: [echo, "{{ inputs.version }}"]}\n', ""),
        "build would not run: the new version has no such step there",
        [],
    ),
    "another type": (
        (
            '  - id: build\n    type: shell\n    with: {run: [echo, "{{ inputs.version }}"]}',
            "  - {id: build, type: noop}",
        ),
        "build would be a step of type noop instead of shell",
        [],
    ),
    "a condition that was false": (
        ("inputs.version == '2'", "inputs.version == '1'"),
        "note would run",
        [],
    ),
    "an approval under a condition": (
        (GATE, GATE + "    if: \"{{ inputs.version == '2' }}\"\n"),
        "gate would be skipped: its `if` is false",
        ["the approval gate would not be asked: its `if` is false"],
    ),
    "an approval in other hands": (
        ("local:ana", "local:bob"),
        'gate would have approvers ["local:bob"] instead of ["local:ana"]',
        ['the approval gate would have approvers ["local:bob"] instead of ["local:ana"]'],
    ),
    "an approval that is gone": (
        (DEPLOY[DEPLOY.index("    type: approval") : DEPLOY.index("  - id: ship")], "    type: noop\n"),
        "gate would be a step of type noop instead of approval",
        ["the approval gate would be missing"],
    ),
    "another way after a failure": (
        ("    on_error: continue\n", ""),
        "after broken failed: on_error fail instead of continue",
        [],
    ),
    "an input that has to be asked for": (
        (
            'inputs: {version: {type: string, default: "1"}}',
            "inputs: {version: {type: string}, who: {type: string}}",
        ),
        "the input who would be asked for",
        [],
    ),
    "an expression that fails": (
        ('"{{ host }}"', "'{{ {\"x\": host}[inputs.version] }}'"),
        "hosts[0]/check would fail",
        [],
    ),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A home with a run that has ended."""
    cli = Cli(tmp_path_factory.mktemp("replay"))
    cli.write("flows/deploy.yml", DEPLOY)
    paused = cli.run("run", "deploy", "--no-input")
    assert paused.code == 3, paused
    prompt = paused.json["prompts"][0]["promptId"]
    done = cli.run("prompts", "answer", prompt, "approve")
    assert done.code == 0, done
    return cli


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_where_it_counts(recorded: Cli, name: str) -> None:
    """The first difference of a run that has ended, and what became of its approvals; the exit code says whether there is one."""
    (old, new), first, approvals = CHANGES[name]
    assert old in DEPLOY
    recorded.write("new.yml", DEPLOY.replace(old, new))
    done = recorded.run("replay", "deploy", "--against", "new.yml", "--json")
    assert done.code in (0, 1), done
    (run,) = done.json["runs"]
    assert (run["first"] or "").startswith(first or "")
    assert (run["first"] is None) == (first is None)
    assert run["approvals"] == approvals
    assert (done.code, done.json["same"]) == ((0, True) if first is None else (1, False))


def test_it_is_told_for_people_and_for_a_pull_request(recorded: Cli) -> None:
    """By run, and in a sentence about all."""
    recorded.write("new.yml", DEPLOY.replace("local:ana", "local:bob"))
    told = recorded.run("replay", "deploy", "--against", "new.yml").out.splitlines()
    assert told[-1].endswith(": 1 would differ, 1 approval would change.")
    marked = recorded.run("replay", "deploy", "--against", "new.yml", "--markdown").out.splitlines()
    assert marked[0] == f"**{told[-1]}**"
    assert marked[2] == "| run | | under the new version |"


def test_each_run_that_is_counted_has_its_line(cli: Cli) -> None:
    """Also one that stays the same."""
    cli.write("flows/deploy.yml", DEPLOY)
    over = cli.run("run", "deploy", "--no-input").json
    cli.run("sessions", "abort", over["sessionId"])
    waits = cli.run("run", "deploy", "--no-input").json
    told = cli.run("replay", "deploy").out.splitlines()
    assert told[0] == f"{waits['sessionId']}  waiting"
    assert told[-2:] == [
        f"{over['sessionId']}  cancelled, no difference",
        f"2 runs of deploy under {cli.cwd}/flows/deploy.yml: 0 would differ.",
    ]


def test_exported_runs_are_compared_like_those_of_the_database(recorded: Cli) -> None:
    """A folder of them needs no database: CI has none."""
    session = recorded.run("sessions", "list", "--all", "--json").json["sessions"][0]["sessionId"]
    recorded.write("exports/.keep", "")
    recorded.run("sessions", "export", session, "--output", "exports/one.json")
    recorded.write("new.yml", DEPLOY.replace("local:ana", "local:bob"))
    line = ("replay", "deploy", "--against", "new.yml", "--json")
    assert recorded.run(*line, "--exports", "exports").json == recorded.run(*line).json
    recorded.write("exports/two.json", "nonsense")
    refused = recorded.run(*line, "--exports", "exports")
    assert refused.code == 2
    assert "exports/two.json" in refused.err


def test_what_there_is_no_run_of_is_refused(recorded: Cli) -> None:
    """A name that no run has, an empty folder, a text that is not a flow."""
    for words in (
        ("replay", "nothing", "--against", "flows/deploy.yml"),
        ("replay", "deploy", "--against", "missing.yml"),
        ("replay", "deploy", "--exports", "nowhere"),
    ):
        refused = recorded.run(*words)
        assert refused.code == 2, refused
        assert refused.err.startswith(("sayso: ", "usage: "))


def test_a_run_that_waits_says_whether_it_could_go_on(cli: Cli) -> None:
    """As a migration would."""
    cli.write("flows/deploy.yml", DEPLOY)
    cli.run("run", "deploy", "--no-input")
    cli.write("new.yml", DEPLOY.replace(GATE, "  - id: door\n").replace("covers: ship, ", ""))
    told = cli.run("replay", "deploy", "--against", "new.yml")
    assert told.code == 1
    assert (
        "it waits and could not continue: gate: is running, and the new version does not have it" in told.out
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_history_is_the_same_under_its_own_text(name: str) -> None:
    """Of every kind of node, question and end: no false alarm, with the text moved down by a comment."""
    history = histories()[name]
    flow = flow_from_body(history.flow.body())
    moved = load_flow("# moved\n\n" + flow.text, flow.file) if not flow.calls else flow
    found = against(history.events, flow, moved)
    assert (found.first, found.approvals) == (None, [])


def test_the_answer_is_json_for_a_program(recorded: Cli) -> None:
    """All of it."""
    told = json.loads(recorded.run("replay", "deploy", "--json").out)
    assert told["same"] is True
    assert told["runs"][0].keys() == {"session", "status", "same", "first", "approvals", "plan"}
