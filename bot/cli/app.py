"""The root of the command line: the options that all commands share, and what errors become."""

from __future__ import annotations

import os
import sys
from argparse import Action, ArgumentParser
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from bot.cli.commands import GROUPS, TOP
from bot.cli.declare import Group, option
from bot.cli.parser import read
from bot.terminal.console import BY_CODE, INTERRUPTED, MEANINGS, Exit, Place
from engine.language.errors import FlowError, SaysoError


class _Prints(Action):
    """Prints something instead of a command."""

    def __init__(self, text: Callable[[], str], **told: Any) -> None:
        super().__init__(nargs=0, const=text, **told)

    def __call__(self, parser: ArgumentParser, namespace: Any, values: Any, flag: str | None = None) -> None:
        print(self.const())
        parser.exit()


def _version() -> str:
    from importlib.metadata import version
    from pathlib import Path

    from bot.config.revision import commit_of

    commit = commit_of(Path(__file__).parents[2])
    return f"sayso {version('sayso')}" + (f" ({commit})" if commit else "")


ROOT = Group(
    "sayso",
    "Runbooks in Slack threads that pause for people and resume exactly where they left off.",
    {one.name: one for one in (*TOP, *GROUPS)},
    None,
    (
        option("--home DIR", "The folder with sayso's data. [SAYSO_HOME, else .sayso]"),
        option("--flows DIR", "The folder of flows. [SAYSO_FLOWS, else flows]"),
        option("--db FILE|URL", "The database. [SAYSO_DATABASE_URL, else HOME/sayso.db]", name="database"),
        option("-v --verbose", "Print more; -vv prints everything.", int, 0, action="count"),
        option("--version", "Print the version.", bool, action=partial(_Prints, _version)),
        option(
            "--show-completion",
            "Print the command that turns on completion in this shell.",
            bool,
            action=partial(_Prints, lambda: import_module("bot.cli.completion").script()),
        ),
    ),
    "\n    ".join(["  Exit codes:", *(f"{code.value}  {told}" for code, told in MEANINGS.items())]),
)


def run(arguments: list[str]) -> int:
    """Carry out a command line; its exit code. Errors of ours become one message on standard error."""
    try:
        if "_ARGCOMPLETE" in os.environ:
            from bot.cli.completion import complete

            complete(ROOT)
        try:
            command, (shared, *_, given) = read("sayso", ROOT, arguments)
        except SystemExit as left:
            sys.stdout.flush()
            return int(left.code or Exit.OK)
        _set_up_logging(shared["verbose"])
        return command.carry_out(Place(shared["home"], shared["flows"], shared["database"]), given)
    except SaysoError as error:
        text = str(error)
        if isinstance(error, FlowError):
            count = len(error.problems)
            text = f"{text}\n{count} problem{'s' if count != 1 else ''} in the flow; nothing was run."
        print(f"sayso: {text}", file=sys.stderr)
        return BY_CODE.get(error.code, Exit.FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`sayso sessions list | head`).
        sys.stderr.close()
        return Exit.OK


def _set_up_logging(verbose: int) -> None:
    """0: warnings; 1: what sayso does; 2 and more: everything, also of the libraries that write no secrets."""
    import logging

    from bot.config.logs import expected

    level = logging.WARNING if verbose == 0 else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(expected)
    quiet = ("anthropic", "httpx2", "mcp")  # they log addresses, and arguments with the values of secrets
    for name in (*quiet, *(("slack_bolt", "slack_sdk", "aiohttp", "asyncio") if verbose < 2 else ())):
        logging.getLogger(name).setLevel(logging.ERROR)
