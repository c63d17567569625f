"""Commands that act on a session, and the outcome of their request (`engine.run.session`) as text and exit code.

A session of a Slack thread is run by the bot. A session of the terminal is run by the process that follows it; if there
is none, the command itself takes it up and carries out the request.

`inbox list`, `inbox retry` and `inbox drop` are about dead letters: rows whose handler failed each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from bot.cli.lookup import actor_for
from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    ago,
    database_exists,
    exit_of,
    one_line,
    opened,
    plural,
    print_json,
    print_list,
    read_there,
    writing,
)
from bot.terminal.follow import Mode, follow, result_json
from bot.terminal.follower import Follower, open_prompts, terminal_label
from bot.terminal.lists import letter_json
from bot.terminal.narration import asked_line
from engine.journal.records import Head, InboxItem
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import StorageError
from engine.run.engine import Engine
from engine.run.remote_commands import item
from engine.run.session import Receipt, carry_out, receipt_of, withdraw
from engine.run.stored import stored_state, utc_now
from engine.storage.group_commit import Writer
from engine.storage.store import Store

REPLY_SECONDS = 15.0
"""Seconds that a living process has to take a request."""


class Act(Struct, frozen=True):
    """Request for a session: its name and fields (`engine.run.remote_commands`)."""

    do: str
    fields: Mapping[str, Json]
    done: str = ""
    """Text once another process has done it; empty: the state of the session."""
    about: Mapping[str, Json] | None = None
    """JSON for it then; None: the state of the session."""
    goes_on: bool = False
    """True if the session continues when it runs here."""
    rests: Exit | None = None
    """Exit code for a session that rests as intended, which counts as success when it runs here."""


def served(store: Store, head: Head) -> bool:
    """True if a living process takes requests for this session."""
    return ("bot" if head.thread_key else terminal_label(head.session_id)) in store.serving()


def act(
    place: Place,
    missing: str,
    find: Callable[[Store], tuple[Head, Act | None]],
    as_name: str | None,
    mode: Mode,
) -> int:
    """Act on the session that `find` returns, and report the result; returns the exit code. Without an act the session
    just continues. `missing` says what there is not without a database. Raises `RequestRefused`, `UnknownSession`, and the
    errors of `find`."""
    settings = place.settings()
    actor = actor_for(settings, as_name)
    with opened(settings, missing) as store:
        head, wanted = find(store)
        if wanted is None and head.thread_key:
            # A session of a thread continues there: say what it waits for.
            state = stored_state(store, head.session_id)
            if mode.json:
                print_json(result_json(state, store))
                return exit_of(state)
            print(f"{state.session_id} runs in a Slack thread and continues there; it is {state.stands}.")
            for prompt in open_prompts(state):
                print(f"  {asked_line(state, prompt)}")
                print(f"  answer it there, or: sayso prompts answer {prompt.prompt_id} ANSWER")
            return exit_of(state)
        request = None if wanted is None else request_of(head.session_id, wanted, actor)
        receipt = None if request is None else ask(store, head, request)
        if wanted is not None and receipt is not None:
            state = stored_state(store, head.session_id)
            if mode.json:
                about = result_json(state, store) if wanted.about is None else wanted.about
                print_json({**about, "request": receipt.outcome})
            else:
                print(told(receipt, head, wanted.done or f"Accepted; the session is {state.stands}."))
            return exit_of_receipt(receipt)

    async def begin(engine: Engine, follower: Follower) -> None:
        if request is not None:
            await carry_out(engine, request)
        if wanted is None or wanted.goes_on:
            await follower.claim()

    code = follow(place, head.session_id, actor, mode, begin)
    return Exit.OK if wanted is not None and code == wanted.rests else code


def request_of(session_id: str, wanted: Act, actor: Actor) -> InboxItem:
    """The request for this act."""
    key = f"cli:{os.urandom(8).hex()}"
    return item(key, session_id, wanted.do, actor=actor, **wanted.fields)


def ask(store: Store, head: Head, request: InboxItem, *, patience: float = REPLY_SECONDS) -> Receipt | None:
    """Return a living process's receipt for a request; None if the session belongs to a terminal without one. Ctrl-C
    withdraws the request. Raises `RequestRefused`, storage errors."""
    there = partial(served, store, head)
    if not head.thread_key and not there():
        # Kept out of the inbox until it is carried out: a command that ends before leaves nothing behind.
        return None
    store.inbox.ingest([request], utc_now())
    try:
        receipt = asyncio.run(_awaited(store, request.key, there, patience))
    except KeyboardInterrupt:
        with contextlib.suppress(StorageError):
            withdraw(store, request.key, utc_now())
        raise
    return receipt if receipt.there or head.thread_key else None


async def _awaited(store: Store, key: str, there: Callable[[], bool], seconds: float) -> Receipt:
    writer = Writer(store)
    writer.start()
    try:
        return await receipt_of(writer, key, seconds=seconds, served=there)
    finally:
        writer.close()


def exit_of_receipt(receipt: Receipt) -> Exit:
    """Return the exit code: a request that is only queued is not done."""
    return Exit.OK if receipt.outcome == "applied" else Exit.PAUSED


def told(receipt: Receipt, head: Head, done: str) -> str:
    """Describe the outcome of a request; `done` is the text for a completed one."""
    if receipt.outcome == "applied":
        return done
    if not head.thread_key:
        return "The terminal that runs this session did not answer. The request is kept until the session is resumed."
    if receipt.there:
        return "The bot is running but has not handled the request yet. It stays queued until the bot handles it."
    return "The bot is not running. The request stays queued until the bot starts (sayso start)."


# --- dead letters ------------------------------------------------------------------------------------------


def list_letters(place: Place, *, as_json: bool) -> int:
    """Print the dead letters, oldest first."""
    found = read_there(place.settings(), lambda store: store.inbox.dead_letters())
    now, lines = utc_now(), []
    for row in found:
        why = decode(row.result or b"{}")
        error = one_line(f"{why.get('error')}: {why.get('message')}", 200)
        tries = str(why.get("tries"))
        lines.append((str(row.id), one_line(row.key), ago(row.received_at, now), tries, error))
    nothing = "" if found else f"There are no dead letters.{place.elsewhere('inbox', 'list')}"
    headers = ("ID", "KEY", "CAME", "TRIES", "ERROR")
    return print_list("deadLetters", map(letter_json, found), headers, lines, nothing, as_json=as_json)


def _decide(place: Place, ids: Sequence[str], *, every: bool, again: bool, as_json: bool) -> int:
    """Open dead letters again, or drop them. Raises `UsageError` where one of the ids is none; nothing is changed then."""
    if bool(ids) == every:
        raise UsageError("Give ids or keys (sayso inbox list shows them), or --all.")
    settings, done = place.settings(), []
    if database_exists(settings):
        with writing(settings) as store:
            letters = store.inbox.dead_letters()
            names = {name: row for row in letters for name in (str(row.id), row.key)}
            for name in ids:
                if name not in names:
                    raise UsageError(f"There is no dead letter {name}. `sayso inbox list` shows them.")
            meant = list({row.id: row for row in (names[name] for name in ids)}.values()) if ids else letters
            done = [row for row in meant if store.inbox.decide_letter(row.key, again=again)]
            served = "bot" in store.serving()
    elif ids:
        raise UsageError(f"There is no dead letter {ids[0]}.")
    if as_json:
        print_json({"retried" if again else "dropped": [row.key for row in done]})
    elif not done:
        print("There are no dead letters.")
    elif again:
        when = "The bot retries" if served else "No bot is running. The next one (sayso start) retries"
        print(f"{when} {plural(len(done), 'row')} up again.")
    else:
        print(f"{plural(len(done), 'row')} dropped.")
    return Exit.OK


retry = partial(_decide, again=True)
drop = partial(_decide, again=False)
