"""`sayso explain`: flows in sentences.

`explained.txt` is a gallery: every example, and a flow that has what they have not. After a change of words,
`python -m tests.cli.test_explain` writes it again, to be read in review.
"""

from __future__ import annotations

from pathlib import Path

from engine.flow.docs.explain import explained
from engine.flow.load import load_flow
from engine.run.flow_files import load_flows
from tests.cli.clikit import Cli

GALLERY = Path(__file__).with_name("explained.txt")
EXAMPLES = Path(__file__).parents[2] / "examples"
REST = """
flow: rest
description: What no example has
channels: ["#ops"]
allowed_to_start: [ana@example.com, "@sre"]
triggers:
  - {schedule: "0 9 * * mon-fri", channel: "#ops", timezone: Europe/Berlin}
  - {webhook: built, secret: HOOK, channel: "#ops"}
  - {message: "ALERT {what}", from_bots: true, channels: ["#alerts"]}
  - {reaction: rotating_light}
  - {shortcut: Look into it}
inputs: {what: {type: string, default: nothing}}
limits: {max_cost: 5, deadline: 2d}
nodes:
  - id: build
    type: shell
    with: {script: "#!/bin/sh\\nset -e\\nmake all\\n"}
    on_crash: again
  - {id: left, type: noop, if: "{{ inputs.what == 'left' }}"}
  - {id: look, type: python, with: {call: "look:at"}, on_error: continue}
  - id: both
    type: approval
    with:
      message: Ship it?
      approvers: ["@sre", manager]
      required: 2
      require_reason: true
      on_reject: continue
      timeout: 4h
      on_timeout: reject
      remind_every: 1h
      hours: {timezone: Europe/Berlin}
      escalate: [{after: 2h, to: ["dm:boss@example.com"], may_answer: true}]
  - {id: pick, type: ask, with: {message: Which?, choices: [a, {value: b, label: The other}], own_words: true, who: ["rota:payments"], timeout: 1h, on_timeout: default, default: a}}
  - {id: paper, type: ask, with: {message: Send it, accept: files, max_files: 3, timeout: 1h, on_timeout: fail}}
  - id: mend
    type: agent
    with:
      prompt: Mend it
      max_turns: 9
      tools: [{shell: {commands: ["kubectl *"]}}]
      approvals:
        shell:
          approvers: ["@sre"]
          exclude_requester: true
          require_reason: true
          timeout: 4h
          remind_every: 1h
          escalate: [{after: 2h, to: [boss@example.com], may_answer: true}]
  - {id: page, type: message, with: {to: "#status", text: Done}}
  - {id: hint, type: message, with: {ephemeral_to: requester, text: Psst}}
edges:
  - {from: build, to: left}
  - {from: build, to: look, when: "{{ nodes.build.exit_code == 0 }}"}
  - {from: left, to: both, gate: any}
  - {from: look, to: both, gate: any}
  - {from: both, to: build, type: loop, when: "{{ nodes.both.decision == 'reject' }}", max_iterations: 3, on_limit: ask}
  - {from: both, to: pick}
  - {from: pick, to: paper}
  - {from: paper, to: page}
  - {from: paper, to: hint}
"""


def gallery() -> str:
    """All examples, and the flow of this file."""
    flows, errors = load_flows(EXAMPLES)
    assert not errors
    return "\n".join(explained(flow) for flow in [*flows.values(), load_flow(REST, "rest.yml")])


def test_the_gallery_shows_what_is_said_of_flows() -> None:
    """A changed word shows here."""
    assert gallery() == GALLERY.read_text()


def test_each_node_of_a_flow_is_told() -> None:
    """None is left out, those inside containers neither; an agent's own lists are told with it."""
    for flow in load_flows(EXAMPLES)[0].values():
        text = explained(flow)
        agents = tuple(f"{node.id}:" for node in flow.by_id.values() if node.agent is not None)
        lists = [each for list_id, each in flow.own_lists.items() if not list_id.startswith(agents)]
        nodes = [node.id for each in lists for node in each.nodes]
        told = [node for node in nodes if f"[{node}]." in text or f" {node}." in text]
        assert told == nodes, flow.name


def test_it_is_a_command(cli: Cli) -> None:
    """It takes a file or a name; what is not a flow is refused in a sentence."""
    cli.write("flows/rest.yml", REST)
    told = explained(load_flow(REST, "rest.yml"))
    assert [cli.run("explain", name).out for name in ("rest", "flows/rest.yml")] == [told, told]
    refused = cli.run("explain", "none.yml")
    assert (refused.code, refused.out, refused.err) == (2, "", "sayso: There is no flow file none.yml.\n")


def test_a_terminal_breaks_it_between_words_and_shows_arguments_as_they_are_typed(cli: Cli) -> None:
    """At 120 columns no line is longer, what goes on stands below its words, and a script of one argument is in quotes."""
    script = "echo " + "word " * 24
    cli.flow("long", f"{{id: work, type: shell, with: {{run: [sh, -c, '{script}']}}}}")
    with cli.terminal("explain", "long") as terminal:
        assert terminal.code() == 0
    lines = terminal.shown.splitlines()
    assert max(map(len, lines)) <= 120
    [first] = [line for line in lines if line.startswith("  1. work. Runs `sh -c 'echo word ")]
    assert lines[lines.index(first) + 1].startswith("     word")


if __name__ == "__main__":
    GALLERY.write_text(gallery())
