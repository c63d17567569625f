"""What several command lines at once must not do to each other."""

from __future__ import annotations

import pytest

from tests.cli.clikit import Cli, until

pytestmark = pytest.mark.process

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
