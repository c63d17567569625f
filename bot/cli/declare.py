"""Declaration of a command, as data: its name, its function, its help and its options."""

from __future__ import annotations

from argparse import ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from bot.terminal.console import Place

_LISTS: dict[Any, type] = {list[str]: str, list[Path]: Path}


class Option(NamedTuple):
    """An option; without flags it is an argument."""

    name: str
    """Parameter name of the function."""
    flags: tuple[str, ...]
    kind: Any
    told: dict[str, Any]
    """Further arguments for `argparse`."""
    ids: str = ""
    """Kind of ids that a shell completes it with: `session` or `prompt`."""


def option(
    usage: str,
    help: str,
    kind: Any = str,
    default: Any = None,
    *,
    name: str = "",
    action: Any = None,
    **fits: Any,
) -> Option:
    """An option as its usage says it: `-i --input KEY=VALUE`. `default` is `...` for one that must be given; `name` is what
    the function calls it, if not as people do. One of kind `bool` that has no default has a flag too that says no.
    """
    words = usage.split()
    flags = tuple(word.partition("/")[0] for word in words if word.startswith("-"))
    name = name or flags[-1].lstrip("-").replace("-", "_")
    if kind is bool:
        action = action or (BooleanOptionalAction if default is None else "store_true")
    if action is not None:
        return Option(name, flags, kind, {"help": help, "action": action, "default": default})
    told: dict[str, Any] = {"required": True} if default is ... else {"default": default}
    if kind in _LISTS:
        told = {"action": "append", "default": []}
    metavar = " ".join(words[len(flags) :]) or None
    return _option(name, flags, metavar, help, kind, told, **fits)


def flag(usage: str, help: str, name: str = "") -> Option:
    """An option that takes no value."""
    return option(usage, help, bool, False, name=name)


def argument(usage: str, help: str, name: str, kind: Any = str, default: Any = ..., **fits: Any) -> Option:
    """An argument, which must be given unless it has a default."""
    count = ("+" if default is ... else "*") if kind in _LISTS else None if default is ... else "?"
    return _option(name, (), usage, help, kind, {"nargs": count}, **fits)


def _option(
    name: str,
    flags: tuple[str, ...],
    metavar: str | None,
    help: str,
    kind: Any,
    told: dict[str, Any],
    **fits: Any,
) -> Option:
    item = _LISTS.get(kind, kind)
    read = partial(_path if item is Path else _number, kind=item, **fits) if fits else item
    notes = [] if told.get("default") in (None, []) else ["default: %(default)s"]
    notes += [_range(**fits)] if "min" in fits else []
    help += f" [{', '.join(notes)}]" if notes else ""
    return Option(name, flags, item, {"metavar": metavar, "type": read, "help": help, **told})


def _path(text: str, *, kind: Any, exists: bool = False, dir_okay: bool = True) -> Any:
    path, what = kind(text), "path" if dir_okay else "file"
    if exists and not path.exists():
        raise ArgumentTypeError(f"{what} '{path}' does not exist")
    if not dir_okay and path.is_dir():
        raise ArgumentTypeError(f"{what} '{path}' is a directory")
    return path


def _number(text: str, *, kind: Any, min: float, max: float = inf) -> Any:
    try:
        number = kind(text)
    except ValueError:
        raise ArgumentTypeError(f"invalid {kind.__name__} value: {text!r}") from None
    if not min <= number <= max:
        raise ArgumentTypeError(f"{text} is not {_range(min, max)}")
    return number


def _range(min: float, max: float = inf) -> str:
    return f"{min} or more" if max == inf else f"from {min} to {max}"


class Command(NamedTuple):
    """A command. `does` names the function of `bot.cli` that carries it out, as `module:function`: it is imported when the
    command runs, so that `--help` stays quick, and is given the place and each option by name."""

    name: str
    does: str
    help: str
    options: Sequence[Option]

    def function(self) -> Callable[..., int]:
        """Return the function that carries it out."""
        module, _, name = self.does.partition(":")
        found: Callable[..., int] = getattr(import_module(f"bot.cli.{module}"), name)
        return found

    def carry_out(self, place: Place, given: dict[str, Any]) -> int:
        """Do it with the values of its options."""
        return self.function()(place, **given)


class Group(NamedTuple):
    """A group of commands; with `itself` its name alone is a command too."""

    name: str
    help: str
    commands: Mapping[str, Command | Group]
    itself: Command | None = None
    options: Sequence[Option] = ()
    """Those that may be before the name of a command."""
    epilog: str = ""


def command(entry: str, help: str, *options: Option) -> Command:
    """Declare a command by its entry point, `name = module:function`, its help and its options."""
    name, _, does = entry.partition(" = ")
    return Command(name, does, help, options)


def group(name: str, help: str, commands: Sequence[Command], itself: Command | None = None) -> Group:
    """Declare a group of commands."""
    own = itself.options if itself is not None else ()
    return Group(name, help, {one.name: one for one in commands}, itself, own)
