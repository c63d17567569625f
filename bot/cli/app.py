"""The commands and their options. What they do is imported when they run: `--help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.exits import INTERRUPTED, Exit, epilog, exit_for
from bot.cli.place import Place
from engine.errors import FlowError, SaysoError

app = typer.Typer(
    name="sayso",
    help="Runbooks and approvals in Slack threads that stop for a person and resume where they stopped.",
    no_args_is_help=True,
    epilog=epilog(),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
sessions_app = typer.Typer(
    help="Look at sessions, go on with them, end them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
prompts_app = typer.Typer(
    help="What people are asked, and answers to it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(sessions_app, name="sessions")
app.add_typer(prompts_app, name="prompts")
locks_app = typer.Typer(
    help="List locks: who holds them since when, and who waits for them in which order.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(locks_app, name="locks")

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Play somebody (@group, e-mail, id, name); recorded as simulated."
    ),
]
NoInput = Annotated[bool, typer.Option("--no-input", help="Ask nothing here: run until people are needed.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Stop at a `wait` node too, in place of waiting with it.")
]
SessionId = Annotated[str, typer.Argument(metavar="ID", help="A session's id, or the beginning of it.")]


def run(arguments: list[str]) -> int:
    """Carry out a command line; its exit code. Errors of ours become one message on standard error."""
    try:
        app(args=arguments, prog_name="sayso")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.OK if end.code is None else Exit.FAILED
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


def _end(code: int) -> None:
    raise typer.Exit(code)


def _place(context: typer.Context) -> Place:
    place = context.find_object(Place)
    assert place is not None
    return place


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
    from bot.cli.logs import set_up_logging

    set_up_logging(verbose)
    context.obj = Place(home, flows, db)


# --- flows -------------------------------------------------------------------------------------------------


@app.command()
def dev(
    context: typer.Context,
    flow: Annotated[
        list[Path] | None, typer.Argument(metavar="[FLOW...]", help="Flow files or folders.", exists=True)
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The page's port. [8765, else a free one]")
    ] = None,
    open_page: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the page in a browser. [where a display is]")
    ] = None,
) -> None:
    """Try flows in a local Slack-shaped workspace: no Slack, no account, nothing leaves this machine."""
    from bot.cli.serving import dev_command

    _end(dev_command(_place(context), flow or [], port, open_page))


@app.command()
def start(
    context: typer.Context,
    flow: Annotated[
        list[Path] | None, typer.Argument(metavar="[FLOW...]", help="Flow files or folders.", exists=True)
    ] = None,
) -> None:
    """Serve flows in Slack until SIGTERM or Ctrl-C."""
    from bot.cli.serving import start_command

    _end(start_command(_place(context), flow or []))


@app.command("run")
def run_flow(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="A flow's name, or its file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="KEY=VALUE", help="An input; may be repeated."),
    ] = None,
    inputs_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Inputs as a YAML or JSON file.")
    ] = None,
    as_name: As = None,
    no_input: NoInput = False,
    no_wait: NoWait = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Walk the flow and say what would be done; do nothing of it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a flow here, with its prompts in this terminal.

    Ctrl-C keeps the session: `sayso sessions resume ID` goes on with it. Without a terminal (or with --no-input)
    the flow runs until it needs people, prints JSON and exits with 3.
    """
    from bot.cli.inputs import read_inputs

    place, given = _place(context), read_inputs(inputs or [], inputs_file)
    if dry_run:
        from bot.cli.dry_run import dry_run_command

        _end(dry_run_command(place, flow, given, as_name, as_json=as_json))
    from bot.cli.following import Mode
    from bot.cli.run import run_flow as command

    mode = Mode.of(no_input=no_input, no_wait=no_wait, as_json=as_json)
    _end(command(place, flow, given, as_name, mode))


@app.command("start-flow")
def start_flow(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="A flow's name, or its file.")],
    channel: Annotated[
        str, typer.Option("--channel", metavar="ID|#NAME", help="The channel that it runs in.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="KEY=VALUE", help="An input; may be repeated."),
    ] = None,
    inputs_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Inputs as a YAML or JSON file.")
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait until it was started.")
    ] = 30.0,
    key: Annotated[
        str | None,
        typer.Option(help="Of several calls with one key, a build's number for example, the first counts."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a flow in a Slack channel, from CI for example. The running bot does it.

    The flow must let you: `allowed_to_start` lists `local:<user>`. Without a running bot the request is kept for it, and
    the exit code is 3.
    """
    from bot.cli.inputs import read_inputs
    from bot.cli.start_flow import start_flow as command

    given = read_inputs(inputs or [], inputs_file)
    _end(command(_place(context), flow, channel, given, wait=wait, as_json=as_json, key=key))


@app.command()
def validate(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE|DIR...]", help="Flow files or folders. [the folder of flows]", exists=True
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check flow files: every problem with file, line, column and a hint. Nothing is executed."""
    from bot.cli.flows import validate as command

    _end(command(_place(context), files or [], as_json=as_json))


@app.command("test")
def play_scenarios(
    context: typer.Context,
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
    from bot.cli.testing import run_scenarios

    _end(run_scenarios(_place(context), scenarios or [], kills=kill, report=junit, as_json_=as_json))


@app.command()
def graph(
    context: typer.Context,
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
    from bot.cli.graph import graph_command

    _end(graph_command(_place(context), flow, session, svg))


@app.command()
def schema() -> None:
    """Print the JSON Schema of flow files, for editors."""
    from bot.cli.flows import schema as command

    _end(command())


@app.command()
def doctor(
    context: typer.Context,
    manifest: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The app manifest. [manifest.yml]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check versions, settings, flows, the database, tokens, scopes and the manifest, and say what to do."""
    from bot.cli.checks import doctor_command

    _end(doctor_command(_place(context), manifest, as_json=as_json))


@app.command("manifest")
def manifest(
    context: typer.Context,
    show_all: Annotated[
        bool, typer.Option("--all", help="For whatever flows may use, not only those that are served.")
    ] = False,
) -> None:
    """Print the Slack app's manifest for the flows that are served."""
    from bot.cli.flows import manifest_command

    _end(manifest_command(_place(context), show_all=show_all))


# --- sessions ----------------------------------------------------------------------------------------------


@sessions_app.command("list")
def sessions_list(
    context: typer.Context,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Only these: running, paused, complete, failed, aborted."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Ended ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, newest first.")] = 50,
    as_json: Json = False,
) -> None:
    """List sessions that are not over, newest first."""
    from bot.cli.sessions import list_sessions

    _end(list_sessions(_place(context), status or [], show_all=show_all, limit=limit, as_json=as_json))


@sessions_app.command("show")
def sessions_show(
    context: typer.Context,
    session_id: SessionId,
    at: Annotated[
        int | None, typer.Option(metavar="SEQ", help="As it was after this event of its journal.")
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="The journal too.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="Every pass of a long loop.")] = False,
    as_json: Json = False,
) -> None:
    """Show one session: the tree of its nodes and passes, what it waits for, and on whom."""
    from bot.cli.sessions import Look, show_session

    _end(show_session(_place(context), session_id, Look(events, at, whole, as_json)))


@sessions_app.command("resume")
def sessions_resume(
    context: typer.Context,
    session_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A session's id, or the beginning of it.")
    ] = None,
    message: Annotated[
        str | None, typer.Argument(metavar="[MESSAGE]", help="Answers its open question, if that takes text.")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Continue from an exported file, here or elsewhere."),
    ] = None,
    prompt: Annotated[str | None, typer.Option(metavar="ID", help="Which question is answered.")] = None,
    answer: Annotated[str | None, typer.Option(metavar="VALUE", help="The answer: a choice or text.")] = None,
    as_name: As = None,
    no_input: NoInput = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Go on with a session, in this terminal; one of a Slack thread goes on where the bot runs."""
    from bot.cli.following import Mode
    from bot.cli.resume import Resume, resume_session

    mode = Mode.of(no_input=no_input, no_wait=no_wait, as_json=as_json)
    wanted = Resume(session_id, message, snapshot, prompt, answer, as_name)
    _end(resume_session(_place(context), wanted, mode))


@sessions_app.command("pause")
def sessions_pause(
    context: typer.Context,
    session_id: SessionId,
    reason: Annotated[str | None, typer.Option(help="Why, for the people who read it.")] = None,
    as_json: Json = False,
) -> None:
    """Hold a session: what runs is stopped, and nothing starts until `sessions resume`."""
    from bot.cli.resume import pause_session

    _end(pause_session(_place(context), session_id, reason, as_json=as_json))


@sessions_app.command("fork")
def sessions_fork(
    context: typer.Context,
    session_id: SessionId,
    at: Annotated[
        int | None, typer.Option(metavar="SEQ", help="The event after which it goes on. [the last one]")
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROMPT=VALUE", help="Answers a question open there, by path or id; repeatable."
        ),
    ] = None,
    as_name: As = None,
    no_input: NoInput = False,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Start a new session from any event of another one; what was done by then is not done again.

    It runs in this terminal, also where the other one has a Slack thread. `sessions show ID --events` numbers them.
    """
    from bot.cli.following import Mode
    from bot.cli.fork import fork_session

    mode = Mode.of(no_input=no_input, no_wait=no_wait, as_json=as_json)
    _end(fork_session(_place(context), session_id, at, answer or [], as_name, mode))


@sessions_app.command("migrate")
def sessions_migrate(
    context: typer.Context,
    session_id: SessionId,
    flow: Annotated[
        str | None, typer.Argument(metavar="[FLOW]", help="The new text. [the file it was started from]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would mean.")] = False,
    as_json: Json = False,
) -> None:
    """Let a paused session go on with another text of its flow. What is done stays done."""
    from bot.cli.migrate import migrate_session

    _end(migrate_session(_place(context), session_id, flow, dry_run=dry_run, as_json=as_json))


@sessions_app.command("release")
def sessions_release(context: typer.Context, session_id: SessionId) -> None:
    """Let a session that was set aside go on, if all its records verify from the first event.

    It goes on where it stood; `sessions abort` ends it. What does not verify stays set aside.
    """
    from bot.cli.release import release_session

    _end(release_session(_place(context), session_id))


@sessions_app.command("abort")
def sessions_abort(
    context: typer.Context,
    session_id: SessionId,
    reason: Annotated[str | None, typer.Option(help="Why, for the people who read it.")] = None,
    as_json: Json = False,
) -> None:
    """End a session for good. What is done stays done."""
    from bot.cli.resume import abort_session

    _end(abort_session(_place(context), session_id, reason, as_json=as_json))


@sessions_app.command("export")
def sessions_export(
    context: typer.Context,
    session_id: SessionId,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", dir_okay=False, help="Where to. [standard output]")
    ] = None,
) -> None:
    """Write a session as one portable, signed file: state, journal and flow."""
    from bot.cli.sessions import export_session

    _end(export_session(_place(context), session_id, output))


# --- prompts -----------------------------------------------------------------------------------------------


@prompts_app.command("list")
def prompts_list(context: typer.Context, as_json: Json = False) -> None:
    """List the open questions, oldest first."""
    from bot.cli.prompts import list_prompts

    _end(list_prompts(_place(context), as_json=as_json))


@prompts_app.command("answer")
def prompts_answer(
    context: typer.Context,
    prompt_id: Annotated[str, typer.Argument(metavar="ID", help="A question's id, or the beginning of it.")],
    text: Annotated[
        str | None, typer.Argument(metavar="[ANSWER]", help="A choice as people read it, or text.")
    ] = None,
    value: Annotated[str | None, typer.Option(metavar="V", help="A choice by its value.")] = None,
    text_option: Annotated[
        str | None, typer.Option("--text", metavar="T", help="The answer as text.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why, for a decision; kept with it.")
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="Change what an approval proposes, in place of an answer; repeatable."
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field", metavar="NAME=VALUE", help="A field of the question's form; may be repeated."
        ),
    ] = None,
    values: Annotated[
        Path | None,
        typer.Option(
            "--values",
            metavar="FILE",
            help="The fields from a JSON or YAML file.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            metavar="PATH",
            help="A file as an answer; may be repeated.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Answer a question, or change what it proposes. A session of the terminal then goes on here, as far as it can."""
    from bot.cli.prompts import Given, answer_prompt, change_prompt, edit_of

    given = Given(text, value, text_option, reason, tuple(field or ()), values, tuple(file or ()))
    if edit:
        given.refuse()
        _end(change_prompt(_place(context), prompt_id, edit_of(edit), as_name, as_json=as_json))
    _end(answer_prompt(_place(context), prompt_id, given, as_name, as_json=as_json))


@prompts_app.command("hand-over")
def prompts_hand_over(
    context: typer.Context,
    prompt_id: Annotated[str, typer.Argument(metavar="ID", help="A question's id, or the beginning of it.")],
    to: Annotated[
        str, typer.Option("--to", metavar="X", help="Whom: a user id, an e-mail address, local:<user>.")
    ],
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Let somebody else answer a question in one's own place."""
    from bot.cli.prompts import Change, change_prompt

    change = Change("handOver", {"to": to}, f"Handed over to {to}.")
    _end(change_prompt(_place(context), prompt_id, change, as_name, as_json=as_json))


@prompts_app.command("undo")
def prompts_undo(
    context: typer.Context,
    prompt_id: Annotated[str, typer.Argument(metavar="ID", help="The answered question's id.")],
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Take an answer back, as long as the flow lets people do that and nothing followed it."""
    from bot.cli.prompts import Change, change_prompt

    change = Change("undo", {}, "Taken back: the question is open again.")
    _end(change_prompt(_place(context), prompt_id, change, as_name, as_json=as_json))


@prompts_app.command("show")
def prompts_show(
    context: typer.Context,
    prompt_id: Annotated[str, typer.Argument(metavar="ID", help="A question's id, or the beginning of it.")],
    as_json: Json = False,
) -> None:
    """Show a question: what it says, and what its answer has to fit."""
    from bot.cli.prompts import show_prompt

    _end(show_prompt(_place(context), prompt_id, as_json=as_json))


# --- locks -------------------------------------------------------------------------------------------------


@locks_app.callback()
def locks_list(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        from bot.cli.locks import list_locks

        _end(list_locks(_place(context), as_json=as_json))


@locks_app.command("release")
def locks_release(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lock.")],
    session_id: Annotated[
        str, typer.Option("--session", metavar="ID", help="Who holds it, so that no other one loses it.")
    ],
) -> None:
    """Take a lock from a session that was set aside, once somebody has seen to what it left. Others are ended instead."""
    from bot.cli.locks import release_lock

    _end(release_lock(_place(context), name, session_id))
