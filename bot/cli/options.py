"""What the declarations of commands share: options that stand in many of them, and how they begin and end."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.terminal.cli_context import Place

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Play somebody (@group, e-mail, id, name); recorded as simulated."
    ),
]
NoInput = Annotated[bool, typer.Option("--no-input", help="Ask nothing here: run until people are needed.")]
Wait = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Stay while only time or a lock can move the session. Without a terminal: leave with 3. [at a terminal]",
    ),
]
SessionId = Annotated[str, typer.Argument(metavar="ID", help="A session's id, or the beginning of it.")]


def group(help: str, *, runs_itself: bool = False) -> typer.Typer:
    """A group of commands; with `runs_itself` its name alone is a command too."""
    return typer.Typer(
        help=help,
        invoke_without_command=runs_itself,
        no_args_is_help=not runs_itself,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def end(code: int) -> None:
    """End the command with its exit code."""
    raise typer.Exit(code)


def place_of(context: typer.Context) -> Place:
    """Where the command works, from the options that all commands share."""
    place = context.find_object(Place)
    assert place is not None
    return place
