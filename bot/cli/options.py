"""What the declarations of commands share: options that stand in many of them, and how they begin and end."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.terminal.console import Place

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


DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which.")]
FlowName = Annotated[str, typer.Argument(metavar="FLOW", help="A flow's name, or its file.")]
FlowFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="[FLOW...]", help="Flow files or folders.", exists=True)
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("-i", "--input", metavar="KEY=VALUE", help="An input; may be repeated."),
]
InputsFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="Inputs as a YAML or JSON file.")
]
Why = Annotated[str | None, typer.Option(help="Why, for the people who read it.")]


def group(help: str, *, runs_itself: bool = False) -> typer.Typer:
    """A group of commands; with `runs_itself` its name alone is a command too."""
    return typer.Typer(
        help=help,
        invoke_without_command=runs_itself,
        no_args_is_help=not runs_itself,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def command(app: typer.Typer, name: str, does: str = "") -> Callable[[Callable[..., Any]], None]:
    """Declare a command by a function that has its options and its help. `does` names what carries it out, as
    `module:function` of `bot.cli`, imported when it runs and given the place and the options: `--help` stays quick. Without
    it the function itself does."""

    def declare(options: Callable[..., Any]) -> None:
        signature = inspect.signature(options, eval_str=True)
        parameters = [one for one in signature.parameters.values() if one.name != "place"]

        @functools.wraps(options)
        def run(context: typer.Context, **given: Any) -> None:
            place, found = place_of(context), _without_none(given, parameters)
            raise typer.Exit(_carried_out(does, place, found) if does else options(place, **found))

        first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context)
        whole = signature.replace(parameters=[first, *parameters], return_annotation=None)
        run.__dict__["__signature__"] = whole
        run.__annotations__ = {one.name: one.annotation for one in whole.parameters.values()}
        app.command(name)(run)

    return declare


def _without_none(given: Mapping[str, Any], parameters: list[inspect.Parameter]) -> dict[str, Any]:
    """The options in the order in which they are declared; a repeatable one that was not given is an empty list."""
    lists = {one.name for one in parameters if "list[" in str(one.annotation)}
    return {
        one.name: [] if one.name in lists and given[one.name] is None else given[one.name]
        for one in parameters
    }


def _carried_out(does: str, place: Place, given: Mapping[str, Any]) -> int:
    """Call what a command does; what it takes by name only is given by name."""
    module, _, name = does.partition(":")
    function = getattr(import_module(f"bot.cli.{module}"), name)
    kinds = {one.name: one.kind for one in inspect.signature(function).parameters.values()}
    named = {key for key in given if kinds.get(key) is inspect.Parameter.KEYWORD_ONLY}
    code: int = function(
        place,
        *(value for key, value in given.items() if key not in named),
        **{key: given[key] for key in named},
    )
    return code


def place_of(context: typer.Context) -> Place:
    """Where the command works, from the options that all commands share."""
    place = context.find_object(Place)
    assert place is not None
    return place


def set_up_logging(verbose: int) -> None:
    """0: warnings; 1: what sayso does; 2 and more: everything, also of the libraries."""
    level = logging.WARNING if verbose == 0 else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level
    )
    if verbose < 2:
        for name in ("slack_bolt", "slack_sdk", "aiohttp", "asyncio"):
            logging.getLogger(name).setLevel(logging.ERROR)
