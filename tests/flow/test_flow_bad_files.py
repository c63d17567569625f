"""Broken flow files, each beside the exact text that its author reads: file, line, column, message, hint."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from engine.language.errors import FlowError
from engine.run.flow_files import load_flow_file

BAD = Path(__file__).parent / "bad"
FILES = sorted(BAD.glob("*.yml"))


def test_there_are_enough_bad_files() -> None:
    """The corpus of mistakes holds at least ninety files."""
    assert len(FILES) >= 90


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="syntax errors are placed by libyaml")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_bad_file_says_what_is_wrong_and_where(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken flow reports every problem with file, line, column, the expected value and a hint."""
    monkeypatch.chdir(BAD)
    with pytest.raises(FlowError) as caught:
        load_flow_file(path.name)
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_bad_file_is_refused_by_the_other_parser_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML was built without libyaml, the same files are refused, each with at least one place."""
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    with pytest.raises(FlowError) as caught:
        load_flow_file(path)
    assert all(problem.line >= 1 and problem.column >= 1 for problem in caught.value.problems)
