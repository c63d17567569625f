"""`sessions retry`: a session that failed is tried again at the step that failed. `sessions fork`: a new session in this
terminal from an event of another one's journal. `sessions migrate`: a paused session continues with another text of its flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bot.cli.act import Act, ask, exit_of_receipt, request_of, told
from bot.cli.lookup import actor_for, find_flow, find_session, refuse_ended
from bot.terminal.console import Exit, Place, UsageError, clean, opened, print_json, writing
from bot.terminal.follow import Mode, follow, with_engine
from bot.terminal.follower import Follower, new_session_id, open_prompts, read_answer
from engine.decide import past
from engine.decide.past import Plan, lines, plan
from engine.flow.load import flow_from_body
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.queries import next_try
from engine.language.codec import Json, decode, read
from engine.language.errors import NotJson, UnknownFlow
from engine.run.engine import Engine
from engine.run.session import carry_out
from engine.run.stored import stored_state


def retry_session(place: Place, text: str, as_name: str | None, **options: Any) -> int:
    """Try a failed session again: the bot does where it has a thread, or this terminal, which follows it. The exit code says
    where it rests. Raises `SaysoError`."""
    settings, mode = place.settings(), Mode.of(**options)
    actor = actor_for(settings, as_name)
    with opened(settings, f"no session {text!r}") as store:
        head = find_session(store, text)
        again = next_try(head.session_id)
        failed = past.failed_at([decode_event(row) for row in store.sessions.journal(head.session_id)])
        said = f"{again}: {head.session_id} is retried from {clean(failed.path)}; completed steps do not run again."
        if head.thread_key:
            receipt = ask(store, head, request_of(head.session_id, Act("retry", {}), actor))
            assert receipt is not None, "a request for a session of a thread is kept"
            if mode.json:
                print_json({"session": again, "request": receipt.outcome})
            else:
                print(told(receipt, head, said))
            return exit_of_receipt(receipt)

    async def begin(engine: Engine, follower: Follower) -> None:
        await engine.retry(head.session_id, actor=actor, copied=partial(_copied, follower, mode, said))

    return follow(place, again, actor, mode, begin)


def fork_session(
    place: Place,
    text: str,
    at: int | None,
    flow: str | None,
    answers: Sequence[str],
    as_name: str | None,
    **options: Any,
) -> int:
    """Fork and follow the new session; the exit code says where it rests. Raises `SaysoError`.

    A fork belongs to the terminal, also where its parent has a thread in Slack: nothing of it is posted there.
    """
    settings, mode = place.settings(), Mode.of(**options)
    actor = actor_for(settings, as_name)
    with opened(settings, f"no session {text!r}") as store:
        head = find_session(store, text)
        parent = head.session_id
        # One whose text cannot be read here is refused before anything is said of it.
        flow_from_body(store.flows.text(head.flow_digest))
        journal = [decode_event(row) for row in store.sessions.journal(parent)]
    wanted = past.latest(journal) if at is None else at
    seq = past.seam(journal, wanted)
    new = find_flow(settings, flow) if flow else None
    given = _given(journal[:seq], answers) if answers else {}
    new_id = new_session_id()

    said = f"{new_id}: {parent} from event {seq} on; completed steps do not run again."

    async def begin(engine: Engine, follower: Follower) -> None:
        copied = partial(_copied, follower, mode, said)
        await engine.fork(parent, wanted, actor=actor, text=new, answers=given, fork_id=new_id, copied=copied)

    return follow(place, new_id, actor, mode, begin)


def _copied(follower: Follower, mode: Mode, said: str, events: int) -> None:
    """Its past is not told as if it happened now."""
    follower.told = events
    print(said, file=mode.out)


def _given(journal: Sequence[Event], answers: Sequence[str]) -> dict[str, Json]:
    """Answers as they are written, `prompt=VALUE`, as values for the questions that are open there; for a form VALUE
    may be its fields as JSON. Raises `UsageError` and `InvalidAnswer`."""
    given: dict[str, Json] = {}
    state = derive_state(journal)
    for line in answers:
        key, equals, words = line.partition("=")
        if not equals:
            raise UsageError(f"--answer {line!r} needs the form PROMPT=VALUE.")
        prompt_id = next(iter(past.answered(state, state, {key: None})))
        prompt = next(prompt for prompt in open_prompts(state) if prompt.prompt_id == prompt_id)
        if prompt.fields and words.lstrip().startswith("{"):
            # The fields of a form, by name.
            try:
                fields = read(words)
            except NotJson as error:
                raise UsageError(
                    f"--answer {prompt.path}=...: the fields of a form are JSON, {error}."
                ) from error
            assert isinstance(fields, dict), "JSON that begins with a brace"
            given[prompt.path] = fields
            continue
        value, said = read_answer(prompt, words)
        given[prompt.path] = value if said is None else said
    return given


# --- migrate -----------------------------------------------------------------------------------------------


def migrate_session(place: Place, text: str, name: str | None, *, dry_run: bool, as_json: bool) -> int:
    """Say what the new text means for the session, and unless it is a dry run let it continue with it.

    Raises `SaysoError`. The exit code of a dry run says whether it is possible.
    """
    settings = place.settings()
    actor = actor_for(settings, None)
    with (opened if dry_run else writing)(settings, f"no session {text!r}") as store:
        head = find_session(store, text)
        refuse_ended(head)
        old = flow_from_body(store.flows.text(head.flow_digest))
        # Without a name: the file that it was started from, or the flow of that name if the file is gone.
        gone = not name and not Path(old.file).is_file()
        try:
            new = find_flow(settings, name or (old.name if gone else old.file))
        except UnknownFlow as error:
            if not gone:
                raise
            command = place.command("sessions", "migrate", head.session_id, "FILE")
            raise UnknownFlow(
                f"{old.file} no longer exists. {error} Name the new version: {command}"
            ) from error
        made = plan(old, new, stored_state(store, head.session_id))
        if dry_run:
            _tell(made, "It can continue with the new version." if not made.problems else "", as_json=as_json)
            return Exit.OK if not made.problems else Exit.REFUSED
        done = f"{head.session_id} continues with the new version."
        request = request_of(head.session_id, Act("migrate", {"flow": decode(new.body())}), actor)
        receipt = ask(store, head, request)
        if receipt is None:
            asyncio.run(with_engine(settings, store, partial(carry_out, request=request)))
    if receipt is None:
        _tell(made, done, as_json=as_json)
        return Exit.OK
    _tell(made, told(receipt, head, done), as_json=as_json, request=receipt.outcome)
    return exit_of_receipt(receipt)


def _tell(made: Plan, done: str, *, as_json: bool, request: str | None = None) -> None:
    if as_json:
        asked: dict[str, Json] = {} if request is None else {"request": request}
        print_json({**made.to_json(), "message": done, **asked})
        return
    for line in (*lines(made), *([done] if done else [])):
        print(clean(line))
