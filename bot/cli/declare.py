"""How a command is declared: its name, what carries it out, its help and its options, as data; and Typer's form of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from bot.terminal.console import Place

Option = inspect.Parameter


def option(
    usage: str, help: str, kind: Any = str, default: Any = None, *, name: str = "", **told: Any
) -> Option:
    """An option as its usage says it: `-i --input KEY=VALUE`. `default` is `...` for one that must be given; `name` is what
    the function calls it, if not as people do."""
    flags = [word for word in usage.split() if word.startswith("-")]
    metavar = " ".join(usage.split()[len(flags) :]) or None
    name = name or flags[-1].partition("/")[0].lstrip("-").replace("-", "_")
    return _parameter(name, kind, typer.Option(default, *flags, metavar=metavar, help=help, **told))


def flag(usage: str, help: str, name: str = "") -> Option:
    """An option that takes no value."""
    return option(usage, help, bool, False, name=name)


def argument(usage: str, help: str, name: str, kind: Any = str, default: Any = ..., **told: Any) -> Option:
    """An argument, which must be given unless it has a default."""
    return _parameter(name, kind, typer.Argument(default, metavar=usage, help=help, **told))


def _parameter(name: str, kind: Any, told: Any) -> Option:
    return Option(name, Option.KEYWORD_ONLY, default=told, annotation=kind)


@dataclass(frozen=True)
class Command:
    """A command. `does` names the function of `bot.cli` that carries it out, as `module:function`: it is imported when the
    command runs, so that `--help` stays quick, and is given the place and each option by name."""

    name: str
    does: str
    help: str
    options: Sequence[Option]

    def function(self) -> Callable[..., int]:
        """What carries it out."""
        module, _, name = self.does.partition(":")
        found: Callable[..., int] = getattr(import_module(f"bot.cli.{module}"), name)
        return found

    def carry_out(self, place: Place, given: dict[str, Any]) -> int:
        """Do it; a repeatable option that was not given is an empty list."""
        lists = {one.name for one in self.options if "list[" in str(one.annotation)}
        filled = {name: [] if value is None and name in lists else value for name, value in given.items()}
        return self.function()(place, **filled)


def command(entry: str, help: str, *options: Option) -> Command:
    """Declare a command by its entry point, `name = module:function`, its help and its options."""
    name, _, does = entry.partition(" = ")
    return Command(name, does, help, options)


def group(help: str, commands: Sequence[Command], itself: Command | None = None) -> typer.Typer:
    """A group of commands; with `itself` its name alone is a command too."""
    made = typer.Typer(
        help=help,
        invoke_without_command=itself is not None,
        no_args_is_help=itself is None,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    if itself is not None:
        made.callback()(_runner(itself))
    add(made, commands)
    return made


def add(app: typer.Typer, commands: Sequence[Command]) -> None:
    """Let an app have these commands."""
    for one in commands:
        app.command(one.name, help=one.help)(_runner(one))


def _runner(declared: Command) -> Callable[..., None]:
    """A function with the signature that Typer reads the options from."""

    def run(context: typer.Context, **given: Any) -> None:
        place = context.find_object(Place)
        assert place is not None
        if context.invoked_subcommand is None:
            raise typer.Exit(declared.carry_out(place, given))

    first = Option("context", Option.POSITIONAL_ONLY, annotation=typer.Context)
    signature = inspect.Signature([first, *declared.options])
    run.__dict__["__signature__"] = signature
    run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return run
