"""The root of the command line: the options that all commands share, and what errors become."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from bot.cli.commands import GROUPS, TOP
from bot.cli.declare import add
from bot.terminal.console import INTERRUPTED, Exit, Place, epilog, exit_for
from engine.language.errors import FlowError, SaysoError

app = typer.Typer(
    name="sayso",
    help="Runbooks and approvals in Slack threads that stop for a person and resume where they stopped.",
    no_args_is_help=True,
    epilog=epilog(),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
add(app, TOP)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def run(arguments: list[str]) -> int:
    """Carry out a command line; its exit code. Errors of ours become one message on standard error."""
    try:
        app(args=arguments, prog_name="sayso")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else Exit.OK if left.code is None else Exit.FAILED
    except SaysoError as error:
        return _explain(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`sayso sessions list | head`).
        sys.stderr.close()
        return Exit.OK
    return Exit.OK


def _explain(error: SaysoError) -> int:
    text = str(error)
    if isinstance(error, FlowError):
        count = len(error.problems)
        text = f"{text}\n{count} problem{'s' if count != 1 else ''} in the flow; nothing was run."
    print(f"sayso: {text}", file=sys.stderr)
    return exit_for(error.code)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"sayso {version('sayso')}")
        raise typer.Exit


Text = str | None
HOME = typer.Option("--home", metavar="DIR", help="Where state is kept. [SAYSO_HOME, else .sayso]")
FLOWS = typer.Option("--flows", metavar="DIR", help="The folder of flows. [SAYSO_FLOWS, else flows]")
STORE = "The database. [SAYSO_DATABASE_URL, else HOME/sayso.db]"
DB = typer.Option("--db", metavar="FILE|URL", help=STORE)
VERBOSE = typer.Option("-v", "--verbose", count=True, help="Tell more; -vv tells all.")
VERSION = typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")


@app.callback()
def main(
    context: typer.Context,
    home: Annotated[Text, HOME] = None,
    flows: Annotated[Text, FLOWS] = None,
    db: Annotated[Text, DB] = None,
    verbose: Annotated[int, VERBOSE] = 0,
    version: Annotated[bool, VERSION] = False,
) -> None:
    """Set what all commands share."""
    _set_up_logging(verbose)
    context.obj = Place(home, flows, db)


def _set_up_logging(verbose: int) -> None:
    """0: warnings; 1: what sayso does; 2 and more: everything, also of the libraries."""
    level = logging.WARNING if verbose == 0 else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level
    )
    if verbose < 2:
        for name in ("slack_bolt", "slack_sdk", "aiohttp", "asyncio"):
            logging.getLogger(name).setLevel(logging.ERROR)
