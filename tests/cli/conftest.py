"""The command line in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.clikit import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A folder where commands are run, with an empty environment."""
    tmp_path.chmod(0o700)
    return Cli(tmp_path)
