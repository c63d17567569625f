"""Flows that the tests of the command line run. Each shell node adds a line to a file, so that runs are counted."""

from __future__ import annotations

from pathlib import Path

from tests.cli.clikit import Cli


def counting(cli: Cli, name: str, node: str = "") -> str:
    """A shell node that adds a line to the file of its name."""
    return f"""
  - id: {node or name}
    type: shell
    with: {{script: 'echo ran >> "$FILE"', env: {{FILE: {cli.cwd / name}}}}}"""


def two_questions(cli: Cli) -> Path:
    """Two counted nodes with two questions between and behind them, and a message at the end."""
    return cli.write(
        "flows/talk.yml",
        f"""flow: talk
description: Asks twice
inputs:
  who: {{type: string, description: Whom to greet}}
nodes:{counting(cli, "first")}
  - id: region
    type: ask
    with: {{message: "Which region for {{{{ inputs.who }}}}?", choices: [eu, us]}}{counting(cli, "second")}
  - id: why
    type: ask
    with: {{message: "Why?"}}
  - id: tell
    type: message
    with: {{text: "Hello {{{{ inputs.who }}}} in {{{{ nodes.region.value }}}}: {{{{ nodes.why.text }}}}"}}
""",
    )


def gated(cli: Cli, approvers: str) -> Path:
    """An approval in front of a counted node."""
    return cli.write(
        "flows/gated.yml",
        f"""flow: gated
nodes:
  - id: gate
    type: approval
    with: {{message: "Roll back?", approvers: {approvers}}}{counting(cli, "rolled")}
""",
    )


def long_running(cli: Cli) -> Path:
    """A node that says that it has begun and then goes on until somebody makes a file, and a counted one behind it."""
    return cli.write(
        "flows/slow.yml",
        f"""flow: slow
nodes:{counting(cli, "before")}
  - id: work
    type: shell
    with:
      script: |
        echo begun >> "$BEGUN"
        while ! test -e "$GO"; do sleep 0.05; done
      env: {{BEGUN: {cli.cwd / "begun"}, GO: {cli.cwd / "go"}}}{counting(cli, "after")}
""",
    )
