"""The calls of the store are typed: mypy refuses a wrong name or argument."""

from __future__ import annotations

from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[2]

BEGINNING = """
from engine.journal.records import Head
from engine.storage.group_commit import Writer
"""
CALL = """
async def asked_{number}(writer: Writer) -> Head | None:
    return await writer.call(writer.store.{call})  # call {number}
"""
CALLS = {
    'sessions.head, "session-1"': None,
    'sessions.hed, "session-1"': "attr-defined",
    "sessions.head, 17": "arg-type",
    'sessions.head, "session-1", nonsense=True': "call-arg",
    'inbox.row, "key"': "arg-type",
}
"""What mypy says to a call; None where it is right."""


def test_a_right_call_is_accepted_and_a_wrong_one_refused(tmp_path: Path) -> None:
    """A method of the store gives what it gives; a misspelt name, a wrong argument and a wrong result are type errors."""
    module = tmp_path / "asked.py"
    module.write_text(BEGINNING + "".join(CALL.format(number=n, call=call) for n, call in enumerate(CALLS)))
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    said = api.run([*config, str(module)])[0]
    lines = module.read_text().splitlines()
    for number, code in enumerate(CALLS.values()):
        line = next(at for at, text in enumerate(lines, 1) if text.endswith(f"# call {number}"))
        found = [each for each in said.splitlines() if f"asked.py:{line}: error:" in each]
        assert [code for each in found if f"[{code}]" in each] == ([code] if code else []), said
