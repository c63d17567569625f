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
    """Each line names its place, a pass its item, and a question where it is."""
    rollout(cli)
    with cli.terminal("run", "rollout") as terminal:
        terminal.expect("How is eu?")
        terminal.expect("Question for ana · each › eu")
        terminal.type("1")
        terminal.expect("Question for ana · each › us")
        terminal.type("fine")
        assert terminal.code() == 0
        shown = terminal.shown
    for part in ("✓ each[0]/apply", "▸ each[1]  us", "✓ each  2 passes", "✓ pick[fast]/quick", "✓ call/told"):
        assert part in shown, shown
    assert "Hello fast" in shown
    assert "fine, fine" in shown


def test_a_node_with_on_failure_is_told_as_failed_only(cli: Cli) -> None:
    """That its `on_failure` has ended does not look as if the node had completed, inside a branch either."""
    boom = '{id: boom, type: shell, with: {run: ["false"]}, on_failure: [{id: mend, type: noop}]}'
    note = "on_failure: [{id: note, type: noop}]"
    cli.flow("mends", f"{{id: both, type: parallel, {note}, branches: {{one: [{boom}]}}}}")
    done = cli.run("run", "mends")
    told = [line.strip() for line in done.err.splitlines()]
    assert done.code == 1
    assert "✗ both[one]/boom  false ended with exit code 1" in told, done
    assert {"✓ both[one]/boom", "✓ both"}.isdisjoint(told), done


def test_the_case_of_a_switch_that_took_its_default_is_null(cli: Cli) -> None:
    """Whether `default` was taken or nothing fitted: `case` is null, as the reference says."""
    cli.flow(
        "cases",
        "{id: a, type: switch, with: {on: x}, cases: {y: [{id: a1, type: noop}]}, default: [{id: a2, type: noop}]}",
        "{id: b, type: switch, with: {on: x}, cases: {y: [{id: b1, type: noop}]}}",
        "{id: c, type: switch, with: {on: x}, cases: {x: [{id: c1, type: noop}]}}",
    )
    outputs = cli.run("run", "cases").json["outputs"]
    assert [outputs[name]["case"] for name in "abc"] == [None, None, "x"]
    assert (outputs["a"]["outputs"], outputs["b"]["outputs"]) == ({"a2": {}}, {})


def test_the_error_of_a_failed_loop_begins_with_its_item(cli: Cli) -> None:
    """When it ends, and wherever the session is shown later."""
    body = "{id: ping, type: fail, with: {message: no route}}"
    cli.flow("hosts", f"{{id: each, type: foreach, with: {{items: [web-1], as: host}}, body: [{body}]}}")
    cli.run("run", "hosts")
    session = cli.run("sessions", "list", "--all", "--json").json["sessions"][0]["sessionId"]
    assert "error     web-1: no route\n" in cli.run("sessions", "show", session).out


def test_a_failure_in_a_loop_is_said_where_it_happened_and_at_the_end(cli: Cli) -> None:
    """The loop around it says at which item it failed, and neither its line nor that of the pass repeats the error."""
    body = "[{id: check, type: fail, if: \"{{ host == 'web-2' }}\", with: {message: no answer}}]"
    cli.flow("hosts", f"{{id: each, type: foreach, with: {{items: [web-1, web-2], as: host}}, body: {body}}}")
    failed = cli.run("run", "hosts", "--no-input")
    assert "✗ each[1]/check  no answer\n  ✗ each  failed at web-2\n" in failed.err
    shown = cli.run("sessions", "show", failed.json["sessionId"]).out
    assert shown.count("no answer") == 2, shown  # at the top, and at the step
