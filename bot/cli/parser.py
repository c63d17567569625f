"""From the words of a command line to a command and the values of its options, by `argparse`. A parser is built from
the table of commands for the group or the command that is called, and for no other one."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from bot.cli.declare import Command, Group, Option
from bot.terminal.console import Exit, columns, wrapped

_WIDEST = 110
_LEFT = 32
"""Width of the left column of the help."""


def read(prog: str, of: Command | Group, words: Sequence[str]) -> tuple[Command, list[dict[str, Any]]]:
    """The command that is called, and the values of the options of each group before it and of itself.
    Raises `SystemExit` where the words are no command line, or ask for the help."""
    parser = Parser(prog, of)
    if isinstance(of, Command):
        # Without a word in front, argparse of Python 3.11 loses a `--` that is before the arguments.
        found, unknown = parser.parse_known_intermixed_args([prog, *words])
    elif words or of.itself is not None:
        found, unknown = parser.parse_known_args(words)
    else:
        parser.print_help(sys.stderr)
        parser.exit(Exit.USAGE)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{parser.near(unknown[0])}")
    given = vars(found)
    called = given.pop("called")
    if isinstance(of, Command):
        return of, [given]
    if called:
        name, *rest = called
        if name not in of.commands:
            parser.error(f"no such command: {name}{_near(name, of.commands)}")
        command, later = read(f"{prog} {name}", of.commands[name], rest)
        return command, [given, *later]
    if of.itself is None:
        parser.error("the following arguments are required: COMMAND")
    return of.itself, [given]


class Parser(argparse.ArgumentParser):
    """The parser of a command or a group. With `complete`, which is told of each option, those of the group's commands
    hang on it."""

    def __init__(
        self, prog: str, of: Command | Group, *, complete: Complete | None = None, width: int = 0
    ) -> None:
        form = partial(_Help, max_help_position=_LEFT, width=width or min(columns(), _WIDEST) - 2)
        needed = [f"{one.flags[0]} {one.told['metavar']}" for one in of.options if one.told.get("required")]
        arguments = [one.told["metavar"] for one in of.options if not one.flags]
        command = ["COMMAND ..."] if isinstance(of, Group) else []
        usage = " ".join([prog, "[options]", *needed, *arguments, *command])
        super().__init__(prog, usage, of.help, formatter_class=form, allow_abbrev=False)
        if isinstance(of, Command) and complete is None:
            self.add_argument("called", help=argparse.SUPPRESS)
        for one in of.options:
            action = self.add_argument(*one.flags, dest=one.name, **one.told)
            if complete is not None:
                complete(one, action)
        if isinstance(of, Group):
            self.epilog = of.epilog
            told: dict[str, Any] = {"action": _Words, "parser_class": lambda **told: None}
            if complete is not None:
                told = {"parser_class": partial(Parser, complete=complete)}
            commands = self.add_subparsers(
                prog=self.prog, title="commands", metavar="COMMAND", dest="called", **told
            )
            for name, each in of.commands.items():
                sentence = " ".join(re.split(r"(?<=\.)\s", each.help, maxsplit=1)[0].split())
                commands.add_parser(name, of=each, help=sentence)

    def near(self, word: str) -> str:
        """A question whether a flag is meant that is nearly the word."""
        return _near(word.partition("=")[0], self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """End with how it is called, what is wrong, and where more is told."""
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: error: {message}\nTry '{self.prog} --help' for help.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Any name of a command is taken: what is wrong before it is told first."""


Complete = Callable[[Option, argparse.Action], None]


class _Words(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Lists the commands in the help, and leaves the words from a command's name on as they are."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, values)


def _near(word: str, words: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(word, words, 1)
    return f". Did you mean {found[0]}?" if found else ""


# --- the help ----------------------------------------------------------------------------------------------


class _Help(argparse.HelpFormatter):
    """Keeps paragraphs and tables of a text, lists commands as it does options, and names a value once; so that the
    help is the same with Python 3.11 and 3.13."""

    def add_argument(self, action: argparse.Action) -> None:
        for one in action._get_subactions() if isinstance(action, _Words) else [action]:
            super().add_argument(one)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(" "):
            # A table: each row keeps its place, and continues below its second column.
            rows = [(row, " " * (len(row) - len(row.lstrip()))) for row in text.splitlines()]
            return "\n".join(
                line for row, at in rows for line in wrapped(row.strip(), width, at, f"{at}    ")
            )
        paragraphs = (
            "\n".join(wrapped(" ".join(part.split()), width, indent)) for part in text.split("\n\n")
        )
        return "\n\n".join(paragraphs)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"
