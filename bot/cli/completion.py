"""Completion in bash, zsh and fish, by `argcomplete`: commands, options, names of flows, and files."""

from __future__ import annotations

import os
from argparse import Action
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from bot.cli.declare import Group, Option
from bot.cli.flow_names import flow_names
from bot.cli.parser import Parser
from bot.terminal.console import Place

_files = FilesCompleter()


def script() -> str:
    """What turns completion on in the shell that is used."""
    shell = "fish" if os.environ.get("SHELL", "").endswith("fish") else "bash"
    return shellcode(["sayso"], True, shell)


def complete(root: Group) -> None:
    """Tell the shell what can stand where its cursor is, and end the process."""
    autocomplete(Parser("sayso", root, complete=_tell), "long", default_completer=SuppressCompleter())


def _tell(one: Option, action: Action) -> None:
    """Say how the values of an option are completed; those of which nothing is said are not."""
    if one.kind is Path:
        action.completer = _files  # type: ignore[attr-defined]
    elif one.told.get("metavar") in ("FLOW", "[FLOW]"):
        action.completer = _flows  # type: ignore[attr-defined]


def _flows(prefix: str, parsed_args: Any, **told: Any) -> Iterator[str]:
    place = Place(parsed_args.home, parsed_args.flows, parsed_args.database)
    yield from flow_names(place.settings().flows)
    yield from _files(prefix)
