"""The command line in a folder of its own, and a session that waits there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.clikit import Cli
from tests.cli.flowtexts import two_questions


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A folder where commands are run, with an empty environment."""
    tmp_path.chmod(0o700)
    return Cli(tmp_path)


@pytest.fixture
def paused(cli: Cli) -> dict[str, Any]:
    """A session that waits at its first question, as `run` reported it."""
    two_questions(cli)
    document: dict[str, Any] = cli.run("run", "talk", "-i", "who=bob").json
    assert document["status"] == "paused"
    return document
