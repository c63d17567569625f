"""The commands `sayso inbox ...` and their options. What they do is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import Json, end, group, place_of

app = group("What arrived and could not be handled: it failed several times, and was set aside.")

Letters = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids or keys, as `sayso inbox list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@app.command("list")
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List what was set aside: what it is, when it came, and why it failed."""
    from bot.cli.inbox import list_letters

    end(list_letters(place_of(context), as_json=as_json))


@app.command()
def retry(context: typer.Context, ids: Letters = None, every: All = False, as_json: Json = False) -> None:
    """Hand it to the bot again, once what made it fail is put right."""
    from bot.cli.inbox import decide

    end(decide(place_of(context), ids or [], every=every, again=True, as_json=as_json))


@app.command()
def drop(context: typer.Context, ids: Letters = None, every: All = False, as_json: Json = False) -> None:
    """Forget it: nothing will follow from it."""
    from bot.cli.inbox import decide

    end(decide(place_of(context), ids or [], every=every, again=False, as_json=as_json))
