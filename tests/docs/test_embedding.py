"""The program of docs/embedding.md runs as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.process
def test_the_program_runs_as_it_is_written(tmp_path: Path) -> None:
    """It asks, ends, continues in another runtime, and prints the question and the answer."""
    text = (ROOT / "docs" / "embedding.md").read_text()
    [program] = re.findall(r"```python\n(import asyncio.*?)```", text, re.S)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("Ship it?\nyes\n\n", "", 0)
