"""What the declarations of commands name is there, and takes what they give it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pytest

from bot.cli.app import ROOT
from bot.cli.declare import Command, Group
from bot.cli.parser import Parser


def _all(of: Command | Group | None) -> Iterator[Command]:
    if isinstance(of, Group):
        for one in (*of.commands.values(), of.itself):
            yield from _all(one)
    elif of is not None:
        yield of


DECLARED = list(_all(ROOT))


def test_there_are_declarations() -> None:
    """They are found above, those of groups too."""
    assert {"serve:start_command", "resume:pause_session", "prompts:list_locks"} <= {
        one.does for one in DECLARED
    }


@pytest.mark.parametrize("declared", DECLARED, ids=[one.does for one in DECLARED])
def test_what_carries_a_command_out_takes_its_options(declared: Command) -> None:
    """It is there, and takes the place first and each option by its name."""
    function: Callable[..., int] = declared.function()
    taken = inspect.signature(function).bind("place", **{one.name: None for one in declared.options})
    assert next(iter(taken.arguments)) == "place"


def _pages(prog: str, of: Command | Group) -> Iterator[tuple[str, Command | Group]]:
    yield prog, of
    if isinstance(of, Group):
        for name, one in of.commands.items():
            yield from _pages(f"{prog} {name}", one)


@pytest.mark.parametrize(
    ("prog", "of"), list(_pages("sayso", ROOT)), ids=lambda one: one if isinstance(one, str) else ""
)
def test_no_help_breaks_a_word_at_80_columns(prog: str, of: Command | Group) -> None:
    """No line is wider than the terminal, and each word of the wide page stands whole in the narrow one."""
    narrow, wide = (Parser(prog, of, width=width).format_help() for width in (78, 400))
    assert [line for line in narrow.splitlines() if len(line) > 80] == []
    assert narrow.split() == wide.split()


@pytest.mark.parametrize("declared", DECLARED, ids=[one.does for one in DECLARED])
def test_paragraphs_of_a_help_are_as_wide_as_the_terminal(declared: Command) -> None:
    """How the text is in the code shows nowhere."""
    page = Parser("sayso", declared, width=78).format_help()
    about = page[page.index("\n\n") : page.index("options:")]
    assert "  " not in about.partition("positional arguments:")[0]
