"""`sessions migrate`: a paused session goes on with another text of its flow."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.cli.act import Act, ask, carry_out, request_of, told
from bot.cli.lookup import actor_for, find_flow, find_session, need_database, refuse_ended
from bot.config.settings import Settings
from bot.terminal.cli_context import Place, opened, writing
from bot.terminal.exit_codes import Exit
from bot.terminal.follow import local_gate
from bot.terminal.output import clean, print_json
from engine.decide.migration import Plan, lines, plan
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.records import InboxItem
from engine.language.codec import Json, decode
from engine.language.errors import UnknownFlow
from engine.run.sessions import stored_state
from engine.storage.port import Store


def migrate_session(place: Place, text: str, name: str | None, *, dry_run: bool, as_json: bool) -> int:
    """Say what the new text means for the session, and unless it is a dry run let it go on with it.

    Raises `SaysoError`. The exit code of a dry run says whether it is possible.
    """
    settings = place.settings()
    actor = actor_for(settings, None)
    need_database(settings, f"no session {text!r}")
    with (opened if dry_run else writing)(settings) as store:
        head = find_session(store, text)
        refuse_ended(head)
        old = flow_from_body(store.flow(head.flow_digest))
        new = find_flow(settings, name) if name else _text_now(settings, place, head.session_id, old)
        made = plan(old, new, stored_state(store, head.session_id))
        if dry_run:
            _tell(made, "It can go on with the new text." if not made.problems else "", as_json=as_json)
            return Exit.OK if not made.problems else Exit.REFUSED
        done = f"{head.session_id} goes on with the new text."
        request = request_of(head.session_id, Act("migrate", {"flow": decode(new.body())}), actor)
        receipt = ask(store, head, request)
        if receipt is None:
            asyncio.run(_carry_out(settings, store, request))
    if receipt is None:
        _tell(made, done, as_json=as_json)
        return Exit.OK
    _tell(made, told(receipt, done), as_json=as_json, request=receipt.outcome)
    return receipt.code


def _text_now(settings: Settings, place: Place, session_id: str, old: Flow) -> Flow:
    """What the session's flow says now: in its own file, or under its name where that file is gone. Raises `FlowError`,
    and `UnknownFlow` with what to do."""
    if Path(old.file).is_file():
        return find_flow(settings, old.file)
    try:
        return find_flow(settings, old.name)
    except UnknownFlow as error:
        command = place.command("sessions", "migrate", session_id, "FILE")
        raise UnknownFlow(
            f"{old.file} is not there any more. {error} Name the new text: {command}"
        ) from error


async def _carry_out(settings: Settings, store: Store, request: InboxItem) -> None:
    from bot.compose.assembly import make_engine

    engine = make_engine(settings, store, local_gate(settings), label="cli", slack=False)
    await engine.open()
    try:
        await carry_out(engine, request)
    finally:
        await engine.close()


def _tell(made: Plan, done: str, *, as_json: bool, request: str | None = None) -> None:
    if as_json:
        asked: dict[str, Json] = {} if request is None else {"request": request}
        print_json({**made.to_json(), "message": done, **asked})
        return
    for line in (*lines(made), *([done] if done else [])):
        print(clean(line))
