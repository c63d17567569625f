"""The calls of the store are typed: mypy refuses a wrong name or argument."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]

CALL = """
from engine.journal.records import Head
from engine.storage.group_commit import Writer

async def asked(writer: Writer) -> Head | None:
    return await writer.call(writer.store.{call})
"""


def checked(tmp_path: Path, call: str) -> str:
    """What mypy says of a module with this call."""
    module = tmp_path / "asked.py"
    module.write_text(CALL.format(call=call))
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    return api.run([*config, str(module)])[0]


def test_a_right_call_is_accepted(tmp_path: Path) -> None:
    """A method of the store with its arguments gives what the method gives."""
    assert checked(tmp_path, 'head, "session-1"').startswith("Success")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ('hed, "session-1"', "attr-defined"),
        ("head, 17", "arg-type"),
        ('head, "session-1", nonsense=True', "call-arg"),
        ('inbox_row, "key"', "arg-type"),
    ],
)
def test_a_wrong_call_is_refused(tmp_path: Path, call: str, code: str) -> None:
    """A misspelt name, a wrong argument and a wrong result are type errors."""
    assert f"[{code}]" in checked(tmp_path, call)
