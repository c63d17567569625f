"""The commands and their options. What they do is imported when they run: `--help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.groups import inbox, prompts, sessions
from bot.cli.options import (
    As,
    FlowFiles,
    FlowName,
    Inputs,
    InputsFile,
    Json,
    NoInput,
    Wait,
    command,
    group,
    place_of,
)
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
app.add_typer(sessions, name="sessions")
app.add_typer(prompts, name="prompts")
app.add_typer(inbox, name="inbox")
locks_app = group(
    "List locks: who holds them since when, and who waits for them in which order.", runs_itself=True
)
app.add_typer(locks_app, name="locks")
store_app = group(
    "The store as a whole: make its file smaller, let one go on that is older than what it acknowledged."
)
app.add_typer(store_app, name="store")


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


@app.callback()
def main(
    context: typer.Context,
    home: Annotated[
        str | None,
        typer.Option("--home", metavar="DIR", help="Where state is kept. [SAYSO_HOME, else .sayso]"),
    ] = None,
    flows: Annotated[
        str | None,
        typer.Option("--flows", metavar="DIR", help="The folder of flows. [SAYSO_FLOWS, else flows]"),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            "--db", metavar="FILE|URL", help="The database. [SAYSO_DATABASE_URL, else HOME/sayso.db]"
        ),
    ] = None,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Tell more; -vv tells all.")
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Set what all commands share."""
    from bot.cli.options import set_up_logging

    set_up_logging(verbose)
    context.obj = Place(home, flows, db)


# --- flows -------------------------------------------------------------------------------------------------


@command(app, "dev", "run:dev_command")
def dev(
    flow: FlowFiles = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The page's port. [8765, else a free one]")
    ] = None,
    open_page: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the page in a browser. [where a display is]")
    ] = None,
) -> None:
    """Try flows in a local Slack-shaped workspace: no Slack, no account, nothing leaves this machine."""


@command(app, "start", "run:start_command")
def start(
    flow: FlowFiles = None,
) -> None:
    """Serve flows in Slack until SIGTERM or Ctrl-C."""


@command(app, "run")
def run_flow(
    place: Place,
    flow: FlowName,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    as_name: As = None,
    no_input: NoInput = False,
    wait: Wait = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Walk the flow and say what would be done; do nothing of it.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a flow here, with its prompts in this terminal.

    Ctrl-C keeps the session: `sayso sessions resume ID` goes on with it. Without a terminal (or with --no-input)
    the flow runs until it needs people, prints JSON and exits with 3.
    """
    from bot.cli.lookup import read_inputs

    given = read_inputs(inputs or [], inputs_file)
    if dry_run:
        from bot.cli.dry_run import dry_run_command

        return dry_run_command(place, flow, given, as_name, as_json=as_json)
    from bot.cli.run import run_flow as run_here
    from bot.terminal.follow import Mode

    mode = Mode.of(no_input=no_input, wait=wait, as_json=as_json)
    return run_here(place, flow, given, as_name, mode)


@command(app, "start-flow")
def start_flow(
    place: Place,
    flow: FlowName,
    channel: Annotated[
        str, typer.Option("--channel", metavar="ID|#NAME", help="The channel that it runs in.")
    ],
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait until it was started.")
    ] = 30.0,
    key: Annotated[
        str | None,
        typer.Option(help="Of several calls with one key, a build's number for example, the first counts."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Start a flow in a Slack channel, from CI for example. The running bot does it.

    The flow must let you: `allowed_to_start` lists `local:<user>`. Without a running bot the request is kept for it, and
    the exit code is 3.
    """
    from bot.cli.lookup import read_inputs
    from bot.cli.run import start_flow as ask_for

    given = read_inputs(inputs or [], inputs_file)
    return ask_for(place, flow, channel, given, wait=wait, as_json=as_json, key=key)


@command(app, "validate", "flows:validate")
def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE|DIR...]", help="Flow files or folders. [the folder of flows]", exists=True
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for problems.")] = False,
    as_json: Json = False,
) -> None:
    """Check flow files: every problem and warning with file, line, column and a hint. Nothing is executed."""


@command(app, "test", "dry_run:run_scenarios")
def play_scenarios(
    scenarios: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SCENARIO...]", help="Scenario files or folders. [`scenarios` in the folder of flows]"
        ),
    ] = None,
    kill: Annotated[
        bool,
        typer.Option("--kill", help="Also kill sayso before and after every event: nothing may change."),
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write a report as JUnit XML.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test flows: play scenarios with scripted people, a scripted Claude and a clock that moves when it is told to.

    Nothing outside is touched unless a scenario says so. Exit code 1: something was not as expected; 2: a scenario, or its
    flow, cannot be read.
    """


@command(app, "graph", "flows:graph_command")
def graph(
    flow: Annotated[
        str | None, typer.Argument(metavar="[FLOW]", help="A flow's name, or its file. [the session's]")
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Mark where this session stands; its own text is drawn.")
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write a picture. [Mermaid is printed]"),
    ] = None,
) -> None:
    """Draw a flow: its nodes, what comes after what, decisions, and where a session stands."""


@command(app, "schema", "flows:schema")
def schema() -> None:
    """Print the JSON Schema of flow files, for editors."""


@command(app, "doctor", "store:doctor_command")
def doctor(
    manifest: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The app manifest. [manifest.yml]")
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also verify every stored session, and what follows from its journal."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check versions, settings, flows, the database, tokens, scopes and the manifest, and say what to do."""


@command(app, "manifest", "flows:manifest_command")
def manifest(
    show_all: Annotated[
        bool, typer.Option("--all", help="For whatever flows may use, not only those that are served.")
    ] = False,
) -> None:
    """Print the Slack app's manifest for the flows that are served."""


@command(app, "verify", "store:verify_history")
def verify(
    what: Annotated[
        str, typer.Argument(metavar="FILE|SESSION", help="An exported session, or a session's id.")
    ],
    as_json: Json = False,
) -> None:
    """Check that the history of a session can have happened, event by event, and that nobody changed it.

    A file is checked alone, without a database. Without the key its signature is not, and the answer says so.
    """


# --- locks -------------------------------------------------------------------------------------------------


@locks_app.callback()
def locks_list(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        from bot.cli.prompts import list_locks

        raise typer.Exit(list_locks(place_of(context), as_json=as_json))


@command(locks_app, "release", "prompts:release_lock")
def locks_release(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lock.")],
    session_id: Annotated[
        str, typer.Option("--session", metavar="ID", help="Who holds it, so that no other one loses it.")
    ],
) -> None:
    """Take a lock from a session that was set aside, once somebody has seen to what it left. Others are ended instead."""


# --- the store ---------------------------------------------------------------------------------------------


@command(store_app, "release", "store:release_store")
def store_release() -> None:
    """Let a store go on that is suspended, once somebody has seen to what may be done a second time.

    A store is suspended when it is opened and is older than what was acknowledged: its files were damaged, put back or
    restored. `sayso doctor` says what its sessions may do again.
    """


@command(app, "backup", "store:back_up_store")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.", dir_okay=False)],
) -> None:
    """Copy the database to a file, also while the bot runs. The key is not in it: keep that apart."""


@command(app, "restore", "store:restore_store")
def restore(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A copy that `backup` made.", exists=True, dir_okay=False)
    ],
) -> None:
    """Put a backup in place of the database, which is kept beside it. The store is suspended then: see `store release`."""


@command(store_app, "compact", "store:compact_store")
def store_compact() -> None:
    """Write the database anew without what was deleted; it gives space back by itself from then on.

    It needs as much disk again for a moment, and nothing else may run meanwhile.
    """


# --- what agents cost --------------------------------------------------------------------------------------


@command(app, "spend", "sessions:show_spend")
def spend(
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How many days, today included.")] = 7,
    as_json: Json = False,
) -> None:
    """Show what agents have cost, by day (UTC), flow and session, and what is left of today's cap."""
