"""The root of the command line: the options that all commands share, and what errors become."""

from __future__ import annotations

import os
import sys
from typing import Any

from bot.cli.arguments import HelpWanted, Misused, chosen, leading, values
from bot.cli.commands import GROUPS, TOP
from bot.cli.declare import Command, Group, flag, option
from bot.cli.usage import help_text, usage, width
from bot.terminal.console import INTERRUPTED, Exit, Place, epilog, exit_for
from engine.language.errors import FlowError, SaysoError

ROOT = Group(
    "sayso",
    "Runbooks and approvals in Slack threads that stop for a person and resume where they stopped.",
    {one.name: one for one in (*TOP, *GROUPS)},
    None,
    (
        option("--home DIR", "Where state is kept. [SAYSO_HOME, else .sayso]"),
        option("--flows DIR", "The folder of flows. [SAYSO_FLOWS, else flows]"),
        option("--db FILE|URL", "The database. [SAYSO_DATABASE_URL, else HOME/sayso.db]", name="database"),
        option("-v --verbose", "Tell more; -vv tells all.", int, counted=True),
        flag("--version", "Print the version."),
        flag("--install-completion", "Install completion for the current shell."),
        flag(
            "--show-completion",
            "Show completion for the current shell, to copy it or customize the installation.",
        ),
    ),
    epilog(),
)


def run(arguments: list[str]) -> int:
    """Carry out a command line; its exit code. Errors of ours become one message on standard error."""
    try:
        return _run(arguments)
    except SaysoError as error:
        return _explain(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`sayso sessions list | head`).
        sys.stderr.close()
        return Exit.OK


def _run(arguments: list[str]) -> int:
    if "_SAYSO_COMPLETE" in os.environ:
        from bot.cli.completion import complete

        return complete(ROOT, os.environ)
    of: Command | Group = ROOT
    path, words, given = "sayso", arguments, dict[str, Any]()
    shared = given
    try:
        while isinstance(of, Group):
            if not words and of.itself is None:
                print(help_text(path, of, width()), end="", file=sys.stderr)
                return Exit.USAGE
            given, words = leading(of, words)
            if of is ROOT:
                shared = given
                if _said(**shared):
                    return Exit.OK
            if not words:
                break
            of = chosen(of, words.pop(0))
            path = f"{path} {of.name}"
        else:
            given = values(of.options, words)
        command = of.itself if isinstance(of, Group) else of
        if command is None:
            raise Misused("Missing command.")
    except HelpWanted:
        print(help_text(path, of, width()), end="", flush=True)
        return Exit.OK
    except Misused as error:
        print(f"{usage(path, of, width())}\nTry '{path} -h' for help.\n\nError: {error}", file=sys.stderr)
        return Exit.USAGE
    _set_up_logging(shared["verbose"])
    return command.carry_out(Place(shared["home"], shared["flows"], shared["database"]), given)


def _said(version: bool, install_completion: bool, show_completion: bool, **others: Any) -> bool:
    """Carry out what the options of all commands ask for in place of a command, if they do. Raises `UsageError`."""
    if version:
        from importlib.metadata import version as installed

        print(f"sayso {installed('sayso')}")
    elif install_completion or show_completion:
        from bot.cli.completion import install

        install(only_show=show_completion)
    return version or install_completion or show_completion


def _explain(error: SaysoError) -> int:
    text = str(error)
    if isinstance(error, FlowError):
        count = len(error.problems)
        text = f"{text}\n{count} problem{'s' if count != 1 else ''} in the flow; nothing was run."
    print(f"sayso: {text}", file=sys.stderr)
    return exit_for(error.code)


def _set_up_logging(verbose: int) -> None:
    """0: warnings; 1: what sayso does; 2 and more: everything, also of the libraries."""
    import logging

    level = logging.WARNING if verbose == 0 else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level
    )
    if verbose < 2:
        for name in ("slack_bolt", "slack_sdk", "aiohttp", "asyncio"):
            logging.getLogger(name).setLevel(logging.ERROR)
