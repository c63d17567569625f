"""The commands `sayso prompts ...` and their options. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.options import As, Json, Wait, end, group, place_of

app = group("What people are asked, and answers to it.")

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


@app.command("list")
def prompts_list(context: typer.Context, as_json: Json = False) -> None:
    """List the open questions, oldest first."""
    from bot.cli.prompts import list_prompts

    end(list_prompts(place_of(context), as_json=as_json))


@app.command("answer")
def prompts_answer(
    context: typer.Context,
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
) -> None:
    """Answer a question, or change what it proposes. A session of the terminal then goes on here, as far as it can."""
    from bot.cli.prompts import Given, answer_prompt, change_prompt, edit_of

    given = Given(text, value, text_option, reason, tuple(field or ()), values, tuple(file or ()))
    if edit:
        given.refuse()
        end(change_prompt(place_of(context), prompt_id, edit_of(edit), as_name, as_json=as_json))
    end(answer_prompt(place_of(context), prompt_id, given, as_name, wait=wait, as_json=as_json))


@app.command("hand-over")
def prompts_hand_over(
    context: typer.Context,
    prompt_id: PromptId,
    to: Annotated[
        str, typer.Option("--to", metavar="X", help="Whom: a user id, an e-mail address, local:<user>.")
    ],
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Let somebody else answer a question in one's own place."""
    from bot.cli.prompts import hand_over_prompt

    end(hand_over_prompt(place_of(context), prompt_id, to, as_name, as_json=as_json))


@app.command("undo")
def prompts_undo(
    context: typer.Context,
    prompt_id: Annotated[str, typer.Argument(metavar="ID", help="The answered question's id.")],
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Take an answer back, as long as the flow lets people do that and nothing followed it."""
    from bot.cli.prompts import Change, change_prompt

    change = Change("undo", {}, "Taken back: the question is open again.")
    end(change_prompt(place_of(context), prompt_id, change, as_name, as_json=as_json))


@app.command("show")
def prompts_show(
    context: typer.Context,
    prompt_id: PromptId,
    as_json: Json = False,
) -> None:
    """Show a question: what it says, and what its answer has to fit."""
    from bot.cli.prompts import show_prompt

    end(show_prompt(place_of(context), prompt_id, as_json=as_json))
