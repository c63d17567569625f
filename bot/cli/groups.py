"""The commands `sayso sessions`, `prompts` and `inbox`, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.options import As, DryRun, Json, NoInput, SessionId, Wait, Why, command, group
from bot.terminal.console import Place

sessions = group("Look at sessions, go on with them, end them.")


@command(sessions, "list", "sessions:list_sessions")
def sessions_list(
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Only these: running, paused, complete, failed, aborted."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Ended ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, newest first.")] = 50,
    as_json: Json = False,
) -> None:
    """List sessions that are not over, newest first."""


@command(sessions, "show")
def sessions_show(
    place: Place,
    session_id: SessionId,
    at: Annotated[
        int | None, typer.Option(metavar="SEQ", help="As it was after this event of its journal.")
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="The journal too.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="Every pass of a long loop.")] = False,
    as_json: Json = False,
) -> int:
    """Show one session: the tree of its nodes and passes, what it waits for, and on whom."""
    from bot.cli.sessions import Look, show_session

    return show_session(place, session_id, Look(events, at, whole, as_json))


@command(sessions, "resume")
def sessions_resume(
    place: Place,
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
) -> int:
    """Go on with a session, in this terminal; one of a Slack thread goes on where the bot runs."""
    from bot.cli.resume import Resume, resume_session
    from bot.terminal.follow import Mode

    mode = Mode.of(no_input=no_input, wait=wait, as_json=as_json)
    wanted = Resume(session_id, message, snapshot, prompt, answer, as_name)
    return resume_session(place, wanted, mode)


@command(sessions, "pause", "resume:pause_session")
def sessions_pause(
    session_id: SessionId,
    reason: Why = None,
    as_json: Json = False,
) -> None:
    """Hold a session: what runs is stopped, and nothing starts until `sessions resume`."""


@command(sessions, "fork")
def sessions_fork(
    place: Place,
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
) -> int:
    """Start a new session from any event of another one; what was done by then is not done again.

    It runs in this terminal, also where the other one has a Slack thread. `sessions show ID --events` numbers them.
    """
    from bot.cli.fork import fork_session
    from bot.terminal.follow import Mode

    mode = Mode.of(no_input=no_input, wait=wait, as_json=as_json)
    return fork_session(place, session_id, at, answer or [], as_name, mode)


@command(sessions, "migrate", "fork:migrate_session")
def sessions_migrate(
    session_id: SessionId,
    flow: Annotated[
        str | None, typer.Argument(metavar="[FLOW]", help="The new text. [the file it was started from]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would mean.")] = False,
    as_json: Json = False,
) -> None:
    """Let a paused session go on with another text of its flow. What is done stays done."""


@command(sessions, "release", "store:release_session")
def sessions_release(session_id: SessionId) -> None:
    """Let a session that was set aside go on, if all its records verify from the first event.

    It goes on where it stood; `sessions abort` ends it. What does not verify stays set aside.
    """


@command(sessions, "abort", "resume:abort_session")
def sessions_abort(
    session_id: SessionId,
    reason: Why = None,
    as_json: Json = False,
) -> None:
    """End a session for good. What is done stays done."""


@command(sessions, "delete", "store:delete_sessions")
def sessions_delete(
    session_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids, or the beginnings of them.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete sessions that have ended or were set aside, with their files and snapshots."""


@command(sessions, "purge", "store:purge_sessions")
def sessions_purge(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="How long ago they ended: 30d, 12h.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete all sessions that ended so long ago, with their files and snapshots."""


@command(sessions, "export", "sessions:export_session")
def sessions_export(
    session_id: SessionId,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", dir_okay=False, help="Where to. [standard output]")
    ] = None,
) -> None:
    """Write a session as one portable, signed file: state, journal and flow."""


prompts = group("What people are asked, and answers to it.")

PromptId = Annotated[str, typer.Argument(metavar="ID", help="A question's id, or the beginning of it.")]
Value = Annotated[str | None, typer.Option("--value", metavar="V", help="A choice by its value.")]
Text = Annotated[str | None, typer.Option("--text", metavar="T", help="The answer as text.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for a decision; kept with it.")
]
Edits = Annotated[
    list[str] | None,
    typer.Option(
        "--edit",
        metavar="FIELD=VALUE",
        help="Change what an approval proposes, in place of an answer; repeatable.",
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=VALUE", help="A field of the question's form; may be repeated."),
]
Values = Annotated[
    Path | None,
    typer.Option(
        "--values", metavar="FILE", help="The fields from a JSON or YAML file.", exists=True, dir_okay=False
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", metavar="PATH", help="A file as an answer; may be repeated.", exists=True, dir_okay=False
    ),
]


@command(prompts, "list", "prompts:list_prompts")
def prompts_list(as_json: Json = False) -> None:
    """List the open questions, oldest first."""


@command(prompts, "answer")
def prompts_answer(
    place: Place,
    prompt_id: PromptId,
    text: Annotated[
        str | None, typer.Argument(metavar="[ANSWER]", help="A choice as people read it, or text.")
    ] = None,
    value: Value = None,
    text_option: Text = None,
    reason: Reason = None,
    edit: Edits = None,
    field: Fields = None,
    values: Values = None,
    file: Files = None,
    as_name: As = None,
    wait: Wait = None,
    as_json: Json = False,
) -> int:
    """Answer a question, or change what it proposes. A session of the terminal then goes on here, as far as it can."""
    from bot.cli.prompts import Given, answer_prompt, change_prompt, edit_of

    given = Given(text, value, text_option, reason, tuple(field or ()), values, tuple(file or ()))
    if edit:
        given.refuse()
        return change_prompt(place, prompt_id, edit_of(edit), as_name, as_json=as_json)
    return answer_prompt(place, prompt_id, given, as_name, wait=wait, as_json=as_json)


@command(prompts, "hand-over", "prompts:hand_over_prompt")
def prompts_hand_over(
    prompt_id: PromptId,
    to: Annotated[
        str, typer.Option("--to", metavar="X", help="Whom: a user id, an e-mail address, local:<user>.")
    ],
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Let somebody else answer a question in one's own place."""


@command(prompts, "undo")
def prompts_undo(
    place: Place,
    prompt_id: Annotated[str, typer.Argument(metavar="ID", help="The answered question's id.")],
    as_name: As = None,
    as_json: Json = False,
) -> int:
    """Take an answer back, as long as the flow lets people do that and nothing followed it."""
    from bot.cli.prompts import Change, change_prompt

    change = Change("undo", {}, "Taken back: the question is open again.")
    return change_prompt(place, prompt_id, change, as_name, as_json=as_json)


@command(prompts, "show", "prompts:show_prompt")
def prompts_show(
    prompt_id: PromptId,
    as_json: Json = False,
) -> None:
    """Show a question: what it says, and what its answer has to fit."""


inbox = group("What arrived and could not be handled: it failed several times, and was set aside.")

Letters = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids or keys, as `sayso inbox list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@command(inbox, "list", "act:list_letters")
def inbox_list(as_json: Json = False) -> None:
    """List what was set aside: what it is, when it came, and why it failed."""


@command(inbox, "retry", "act:retry")
def inbox_retry(ids: Letters = None, every: All = False, as_json: Json = False) -> None:
    """Hand it to the bot again, once what made it fail is put right."""


@command(inbox, "drop", "act:drop")
def inbox_drop(ids: Letters = None, every: All = False, as_json: Json = False) -> None:
    """Forget it: nothing will follow from it."""
