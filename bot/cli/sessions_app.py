"""The commands `sayso sessions ...` and their options. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.options import As, Json, NoInput, SessionId, Wait, end, group, place_of

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which.")]

app = group("Look at sessions, go on with them, end them.")


@app.command("list")
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

    end(list_sessions(place_of(context), status or [], show_all=show_all, limit=limit, as_json=as_json))


@app.command("show")
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

    end(show_session(place_of(context), session_id, Look(events, at, whole, as_json)))


@app.command("resume")
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
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Go on with a session, in this terminal; one of a Slack thread goes on where the bot runs."""
    from bot.cli.resume import Resume, resume_session
    from bot.terminal.follow import Mode

    mode = Mode.of(no_input=no_input, wait=wait, as_json=as_json)
    wanted = Resume(session_id, message, snapshot, prompt, answer, as_name)
    end(resume_session(place_of(context), wanted, mode))


@app.command("pause")
def sessions_pause(
    context: typer.Context,
    session_id: SessionId,
    reason: Annotated[str | None, typer.Option(help="Why, for the people who read it.")] = None,
    as_json: Json = False,
) -> None:
    """Hold a session: what runs is stopped, and nothing starts until `sessions resume`."""
    from bot.cli.resume import pause_session

    end(pause_session(place_of(context), session_id, reason, as_json=as_json))


@app.command("fork")
def sessions_fork(
    context: typer.Context,
    session_id: SessionId,
    at: Annotated[
        int | None, typer.Option(metavar="SEQ", help="The event after which it goes on. [the last one]")
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROMPT=VALUE",
            help="Answers a question open there, by path or id; a form with JSON; repeatable.",
        ),
    ] = None,
    as_name: As = None,
    no_input: NoInput = False,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Start a new session from any event of another one; what was done by then is not done again.

    It runs in this terminal, also where the other one has a Slack thread. `sessions show ID --events` numbers them.
    """
    from bot.cli.fork import fork_session
    from bot.terminal.follow import Mode

    mode = Mode.of(no_input=no_input, wait=wait, as_json=as_json)
    end(fork_session(place_of(context), session_id, at, answer or [], as_name, mode))


@app.command("migrate")
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

    end(migrate_session(place_of(context), session_id, flow, dry_run=dry_run, as_json=as_json))


@app.command("release")
def sessions_release(context: typer.Context, session_id: SessionId) -> None:
    """Let a session that was set aside go on, if all its records verify from the first event.

    It goes on where it stood; `sessions abort` ends it. What does not verify stays set aside.
    """
    from bot.cli.release import release_session

    end(release_session(place_of(context), session_id))


@app.command("abort")
def sessions_abort(
    context: typer.Context,
    session_id: SessionId,
    reason: Annotated[str | None, typer.Option(help="Why, for the people who read it.")] = None,
    as_json: Json = False,
) -> None:
    """End a session for good. What is done stays done."""
    from bot.cli.resume import abort_session

    end(abort_session(place_of(context), session_id, reason, as_json=as_json))


@app.command("delete")
def sessions_delete(
    context: typer.Context,
    session_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids, or the beginnings of them.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete sessions that have ended or were set aside, with their files and snapshots."""
    from bot.cli.deletion import delete_sessions

    end(delete_sessions(place_of(context), session_ids, dry_run=dry_run, as_json=as_json))


@app.command("purge")
def sessions_purge(
    context: typer.Context,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="How long ago they ended: 30d, 12h.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete all sessions that ended so long ago, with their files and snapshots."""
    from bot.cli.deletion import purge_sessions

    end(purge_sessions(place_of(context), older_than, dry_run=dry_run, as_json=as_json))


@app.command("export")
def sessions_export(
    context: typer.Context,
    session_id: SessionId,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", dir_okay=False, help="Where to. [standard output]")
    ] = None,
) -> None:
    """Write a session as one portable, signed file: state, journal and flow."""
    from bot.cli.sessions import export_session

    end(export_session(place_of(context), session_id, output))
