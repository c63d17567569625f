"""How a command is declared, as data: its name, what carries it out, its help and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bot.terminal.console import Place


class Option(NamedTuple):
    """An option; without flags it is an argument. `default` is `...` for one that must be given.

    `off` are the flags that say no, `metavar` is what stands for its value in the help.
    """

    name: str
    """What the function calls it."""
    flags: tuple[str, ...]
    off: tuple[str, ...]
    metavar: str | None
    help: str
    kind: Any
    many: bool
    default: Any
    min: float | None = None
    max: float | None = None
    exists: bool = False
    dir_okay: bool = True
    counted: bool = False
    """Whether its value is how often it is given."""

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.counted or (self.kind is bool and bool(self.flags))

    @property
    def called(self) -> str:
        """What errors call it."""
        return " / ".join(f"'{flag}'" for flag in self.flags) or f"'{self.metavar}'"


def option(
    usage: str, help: str, kind: Any = str, default: Any = None, *, name: str = "", **told: Any
) -> Option:
    """An option as its usage says it: `-i --input KEY=VALUE`. `default` is `...` for one that must be given; `name` is what
    the function calls it, if not as people do."""
    flags = [word for word in usage.split() if word.startswith("-")]
    metavar = " ".join(usage.split()[len(flags) :]) or None
    on, off = [flag.partition("/")[0] for flag in flags], [flag.partition("/")[2] for flag in flags]
    name = name or on[-1].lstrip("-").replace("-", "_")
    return _option(name, on, filter(None, off), metavar, help, kind, default, told)


def flag(usage: str, help: str, name: str = "") -> Option:
    """An option that takes no value."""
    return option(usage, help, bool, False, name=name)


def argument(usage: str, help: str, name: str, kind: Any = str, default: Any = ..., **told: Any) -> Option:
    """An argument, which must be given unless it has a default."""
    return _option(name, (), (), usage, help, kind, default, told)


def _option(
    name: str,
    on: Any,
    off: Any,
    metavar: str | None,
    help: str,
    kind: Any,
    default: Any,
    told: dict[str, Any],
) -> Option:
    item = kind.__args__[0] if kind in (list[str], list[Path]) else kind
    return Option(name, tuple(on), tuple(off), metavar, help, item, item is not kind, default, **told)


class Command(NamedTuple):
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
        """Do it with the values of its options."""
        return self.function()(place, **given)


class Group(NamedTuple):
    """A group of commands; with `itself` its name alone is a command too."""

    name: str
    help: str
    commands: Mapping[str, Command | Group]
    itself: Command | None = None
    options: Sequence[Option] = ()
    """Those that may stand before the name of a command."""
    epilog: str = ""


def command(entry: str, help: str, *options: Option) -> Command:
    """Declare a command by its entry point, `name = module:function`, its help and its options."""
    name, _, does = entry.partition(" = ")
    return Command(name, does, help, options)


def group(name: str, help: str, commands: Sequence[Command], itself: Command | None = None) -> Group:
    """Declare a group of commands."""
    own = itself.options if itself is not None else ()
    return Group(name, help, {one.name: one for one in commands}, itself, own)
