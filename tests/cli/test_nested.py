"""Flows with flows, loops and branches in them, at the terminal."""

from __future__ import annotations

from tests.cli.clikit import Cli

ROLLOUT = """flow: rollout
inputs:
  kind: {type: string, default: fast}
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: apply, type: shell, with: {run: ["true"]}}
      - {id: confirm, type: ask, with: {message: "How is {{ region }}?", choices: [fine, bad]}}
  - id: pick
    type: switch
    with: {on: "{{ inputs.kind }}"}
    cases:
      fast: [{id: quick, type: noop}]
    default: [{id: slow, type: noop}]
  - {id: call, type: flow, with: {flow: helper, inputs: {name: "{{ inputs.kind }}"}}}
  - id: judge
    type: switch
    with: {on: "{{ nodes.each.iterations[0].outputs.confirm.value }}"}
    cases:
      bad: [{id: stop, type: fail, with: {message: it is bad}}]
  - id: tell
    type: message
    with: {text: "{{ nodes.each.iterations | map(attribute='outputs.confirm.value') | join(', ') }}"}
"""
HELPER = """flow: helper
inputs: {name: {type: string}}
nodes:
  - {id: told, type: message, with: {text: "Hello {{ inputs.name }}"}}
"""


def rollout(cli: Cli) -> None:
    """The flow and the one that it calls."""
    cli.write("flows/rollout.yml", ROLLOUT)
    cli.write("flows/helper.yml", HELPER)


def test_what_happens_inside_is_told_with_its_place(cli: Cli) -> None:
    """Each line names its place, a pass its item, and a question where it stands."""
    rollout(cli)
    with cli.terminal("run", "rollout") as terminal:
        terminal.expect("How is eu?")
        terminal.expect("each[0]/confirm (eu)")
        terminal.type("1")
        terminal.expect("each[1]/confirm (us)")
        terminal.type("fine")
        assert terminal.code() == 0
        shown = terminal.shown
    for part in ("✓ each[0]/apply", "▸ each[1]  us", "✓ each  2 passes", "✓ pick[fast]/quick", "✓ call/told"):
        assert part in shown, shown
    assert "Hello fast" in shown
    assert "fine, fine" in shown


def test_a_dry_run_goes_into_containers_as_far_as_is_known(cli: Cli) -> None:
    """The body of a loop is shown once with what it needs, a known case alone, an unknown one with all its cases, and a
    called flow with the inputs that it is given."""
    rollout(cli)
    done = cli.run("run", "rollout", "--dry-run", "--json")
    assert done.code == 0, done
    nodes = {node["path"]: node for node in done.json["nodes"]}
    assert list(nodes) == [
        "each",
        "each[]/apply",
        "each[]/confirm",
        "pick",
        "pick[fast]/quick",
        "call",
        "call/told",
        "judge",
        "judge[bad]/stop",
        "tell",
    ]
    assert nodes["each[]/confirm"]["with"]["message"]["needs"] == ["region"]
    assert nodes["call/told"]["with"]["text"] == {"value": "Hello fast", "known": True, "needs": []}
    assert (nodes["judge[bad]/stop"]["runs"], nodes["pick[fast]/quick"]["runs"]) == (None, True)
    assert nodes["tell"]["with"]["text"]["known"] is False


def test_a_dry_run_shows_what_is_inside_indented(cli: Cli) -> None:
    """A person sees what belongs to what, and how often it would run."""
    rollout(cli)
    lines = cli.run("run", "rollout", "--dry-run", "-i", "kind=slow").out.splitlines()
    start = lines.index("  1 each  foreach")
    assert "      for each of 2:" in lines[start:]
    assert "      - apply  shell" in lines[start:]
    assert "      case default:" in lines
    assert "      flow helper:" in lines
    assert "          text: Hello slow" in lines


def test_a_dry_run_knows_that_a_failure_inside_ends_the_flow(cli: Cli) -> None:
    """A node that surely fails in a branch that surely runs ends the flow; behind a choice nobody knows."""
    flow = """flow: broken
nodes:
  - id: fan
    type: parallel
    branches:
      left: [{id: no, type: fail, with: {message: never}}]
  - {id: after, type: noop}
"""
    cli.write("flows/broken.yml", flow)
    done = cli.run("run", "broken", "--dry-run")
    assert "The flow would fail here" in done.out
    assert "after" not in done.out
    assert (
        "after" in cli.run("run", str(cli.write("m.yml", flow.replace("- id: fan", "- id: fan\n    on_error: continue"))),
                           "--dry-run").out
    )  # fmt: skip


def test_a_dry_run_names_the_tools_of_an_agent(cli: Cli) -> None:
    """What it would be told is evaluated as far as that is known; a model is asked nothing."""
    cli.write(
        "flows/ask-claude.yml",
        "flow: ask-claude\ninputs: {what: {}}\nnodes:\n  - id: look\n    type: agent\n    with:\n"
        '      prompt: "Look at {{ inputs.what }}"\n      tools: [read_file, {mcp: {server: a, tools: [b, c]}}]\n',
    )
    lines = cli.run("run", "ask-claude", "--dry-run", "-i", "what=db").out.splitlines()
    assert "  1 look  agent" in lines
    assert "      prompt: Look at db" in lines
    assert '      tools: ["read_file","a__b","a__c"]' in lines


def test_a_node_with_on_failure_is_told_as_failed_only(cli: Cli) -> None:
    """That its `on_failure` is over does not look as if the node had completed, inside a branch either."""
    cli.write(
        "flows/mends.yml",
        """flow: mends
nodes:
  - id: both
    type: parallel
    on_failure: [{id: note, type: noop}]
    branches:
      one:
        - id: boom
          type: shell
          with: {run: ["false"]}
          on_failure: [{id: mend, type: noop}]
""",
    )
    done = cli.run("run", "mends")
    told = [line.strip() for line in done.err.splitlines()]
    assert done.code == 1
    assert "✗ both[one]/boom  false ended with exit code 1" in told, done
    assert {"✓ both[one]/boom", "✓ both"}.isdisjoint(told), done


def test_the_case_of_a_switch_that_took_its_default_is_null(cli: Cli) -> None:
    """Whether `default` was taken or nothing fitted: `case` is null, as the reference says."""
    cli.write(
        "flows/cases.yml",
        """flow: cases
nodes:
  - {id: a, type: switch, with: {on: x}, cases: {y: [{id: a1, type: noop}]}, default: [{id: a2, type: noop}]}
  - {id: b, type: switch, with: {on: x}, cases: {y: [{id: b1, type: noop}]}}
  - {id: c, type: switch, with: {on: x}, cases: {x: [{id: c1, type: noop}]}}
""",
    )
    outputs = cli.run("run", "cases").json["outputs"]
    assert [outputs[name]["case"] for name in "abc"] == [None, None, "x"]
    assert (outputs["a"]["outputs"], outputs["b"]["outputs"]) == ({"a2": {}}, {})
