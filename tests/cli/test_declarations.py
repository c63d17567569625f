"""What the declarations of commands name is there, and takes what they give it."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import bot.cli

DECLARED = sorted(
    found[1]
    for file in Path(bot.cli.__file__).parent.glob("*.py")
    for found in re.finditer(r'@command\(\w+, "[\w-]+", "(\w+:\w+)"\)', file.read_text())
)


def test_there_are_declarations() -> None:
    """The pattern above finds them."""
    assert "resume:pause_session" in DECLARED


@pytest.mark.parametrize("does", DECLARED)
def test_what_carries_a_command_out_is_there(does: str) -> None:
    """It takes the place first."""
    module, _, name = does.partition(":")
    function = getattr(import_module(f"bot.cli.{module}"), name)
    assert next(iter(inspect.signature(function).parameters)) == "place"
