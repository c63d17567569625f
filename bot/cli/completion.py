"""Completion in bash, zsh and fish, by `argcomplete`: commands, options, names of flows, files, and ids of
sessions and open questions."""

from __future__ import annotations

import contextlib
import os
from argparse import Action
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from bot.cli.declare import Group, Option
from bot.cli.flow_names import flow_names
from bot.cli.parser import Parser
from bot.config.library import EXAMPLES
from bot.terminal.console import Place, database_file

_files = FilesCompleter()
_MOST = 200
_QUERIES = {
    "session": "SELECT session_id FROM sessions ORDER BY n DESC LIMIT ?",
    "prompt": "SELECT prompt_id FROM prompts WHERE status IN ('requested', 'shown') ORDER BY n DESC LIMIT ?",
}


def script() -> str:
    """Return the code that turns on completion in the current shell."""
    shell = "fish" if os.environ.get("SHELL", "").endswith("fish") else "bash"
    return shellcode(["sayso"], True, shell)


def complete(root: Group) -> None:
    """Tell the shell what can stand where its cursor is, and end the process."""
    autocomplete(Parser("sayso", root, complete=_tell), "long", default_completer=SuppressCompleter())


def _tell(one: Option, action: Action) -> None:
    """Say how the values of an option are completed; those of which nothing is said are not."""
    metavar = one.told.get("metavar") or ""
    if one.kind is Path:
        action.completer = _files  # type: ignore[attr-defined]
    elif metavar in ("FLOW", "[FLOW]"):
        action.completer = _flows  # type: ignore[attr-defined]
    elif one.name == "source":
        action.completer = _cookbook  # type: ignore[attr-defined]
    elif one.ids:
        action.completer = partial(_ids, one.ids)  # type: ignore[attr-defined]


def _flows(prefix: str, parsed_args: Any, **told: Any) -> Iterator[str]:
    yield from flow_names(_place(parsed_args).settings().flows)
    yield from _files(prefix)


def _cookbook(**told: Any) -> Iterator[str]:
    yield from flow_names(EXAMPLES)


def _ids(of: str, prefix: str, parsed_args: Any, **told: Any) -> Iterator[str]:
    """The newest ids of this home and of its local workspace. The databases are read as they are: opening one as commands
    do may upgrade it."""
    import apsw  # most completions need no database

    place = _place(parsed_args)
    for one in filter(None, (place, place.workspace())):
        file = database_file(one.settings())
        with contextlib.suppress(apsw.Error, OSError):
            database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
            with contextlib.closing(database):
                yield from (str(row[0]) for row in database.execute(_QUERIES[of], (_MOST,)))


def _place(parsed_args: Any) -> Place:
    return Place(parsed_args.home, parsed_args.flows, parsed_args.database)
