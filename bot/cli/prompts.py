"""`prompts list`, `show`, `answer`, and `hand-over`. `locks` and `locks release`: who holds which
lock, who waits, and taking one from a session that is on hold.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from bot.cli.lookup import also_in_workspace, find_prompt, matches, read_inputs, refuse_ended, unlisted
from bot.config.session_files import SessionFiles, keep
from bot.faces.question import row_face
from bot.rendering.phrases import closed_text
from bot.rendering.text import plain, read, waiting_on
from bot.terminal.console import (
    Exit,
    Paint,
    Place,
    UsageError,
    ago,
    clean,
    one_line,
    opened,
    print_json,
    print_list,
    read_there,
    stores,
    writing,
)
from bot.terminal.follower import read_answer
from bot.terminal.forms import field_lines
from bot.terminal.narration import face_lines, prompt_json, standing, told
from engine.decide.question import timed_out
from engine.forms.question import Question
from engine.journal.phases import ENDED, in_words
from engine.journal.records import DropLock, Head, LockRow
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.counting import ordinal
from engine.language.errors import (
    AlreadyAnswered,
    Corrupt,
    InvalidAnswer,
    PromptClosed,
    PromptTimedOut,
)
from engine.run.stored import stored_state, utc_now
from engine.storage.store import Store
from prompt_state import question_row as prompt_store
from prompt_state.question_row import PromptState


@dataclass(frozen=True)
class Given:
    """The answer as it was given: by what people read (or text), by value, as text, field by field, or as files."""

    answer: str | None = None
    value: str | None = None
    text: str | None = None
    reason: str | None = None
    fields: Sequence[str] = ()
    values: Path | None = None
    files: Sequence[Path] = ()
    always: str | None = None
    match: Sequence[str] = ()
    scope: str | None = None

    @property
    def allowed(self) -> dict[str, Json] | None:
        """Return the grant from `--always` and `--match`, or None. Raises `UsageError`."""
        if self.always is None:
            if self.match or self.scope:
                raise UsageError("--match and --scope only work with --always.")
            return None
        try:
            seconds = timestamps.parse_duration(self.always)
        except ValueError as error:
            raise UsageError(f"--always takes a duration such as 8h, not {self.always!r}.") from error
        return {"seconds": seconds, "patterns": _pairs("--match", self.match)} | (
            {"scope": self.scope} if self.scope else {}
        )

    def check(self) -> None:
        """Raise `UsageError` unless it was given in one way; words may go with files."""
        words = sum(part is not None for part in (self.answer, self.value, self.text))
        filled = bool(self.fields or self.values)
        mixed = bool(self.files) and (filled or self.value is not None)
        if words + filled > 1 or mixed or not (words or filled or self.files):
            raise UsageError(
                "Give one answer: ANSWER, --value V, --text T, --field NAME=VALUE, --values FILE or --file PATH."
            )

    def refuse(self) -> None:
        """Raise `UsageError` where there is an answer: with an edit there is none."""
        words = (self.answer, self.value, self.text, self.reason, self.values, self.always, self.scope)
        if any(part is not None for part in words) or self.fields or self.files or self.match:
            raise UsageError("Edit it first, with --edit alone, and read the result before you decide.")

    def read(self, prompt: Question) -> tuple[Json, str | None]:
        """The answer to this prompt as `(value, text)`; for a form `value` has the fields. Raises
        `InvalidAnswer`, and `UsageError` for a field that cannot be read."""
        if self.fields or self.values:
            if not prompt.fields:
                raise InvalidAnswer("This question has no fields.")
            return read_inputs(self.fields, self.values), None
        if self.files:
            return None, self.answer if self.answer is not None else self.text
        options = prompt.options
        if self.text is not None and options and prompt.accepts_text:
            return None, self.text
        if self.text is not None and options:
            raise InvalidAnswer("This question takes a choice, not a text.")
        if self.value is not None:
            if not options:
                raise InvalidAnswer("This question takes a text, not a choice.")
            options = tuple({**option, "label": option["value"]} for option in options)
        line = next(part for part in (self.answer, self.value, self.text) if part is not None)
        own_words = self.value is None and prompt.accepts_text
        return read_answer(replace(prompt, options=options, accepts_text=own_words), line)


@dataclass(frozen=True)
class Change:
    """Action on a question that does not answer it: the request's name and fields, and the text once it is done."""

    do: Literal["edit", "handOver", "revoke"]
    fields: Mapping[str, Json]
    done: str


def list_prompts(place: Place, *, as_json: bool) -> int:
    """Print the open questions of this home and of its local workspace, each oldest first."""
    found: list[PromptState] = []
    flows: dict[str, str] = {}
    for _, store in stores(place):
        here = prompt_store.waiting(store.prompts)
        heads = (store.sessions.head(session_id) for session_id in {prompt.session_id for prompt in here})
        names = {head.session_id: head.flow_name for head in heads if head is not None}
        found, flows = found + here, flows | names
        for state in unlisted(store, names):
            print(
                f"Session {state.session_id} has a question that is not listed: its row was deleted. `sayso sessions show {state.session_id}` shows it, and the bot restores the row when it starts.",
                file=sys.stderr,
            )
    told = [(prompt, flows.get(prompt.session_id, "")) for prompt in found]
    items, rows = starmap(_as_json, told), starmap(_row, told)
    headers, nothing = ("PROMPT", "FLOW", "ASKED", "CHOICES", "QUESTION"), "There are no open questions."
    return print_list("prompts", items, headers, rows, nothing, as_json=as_json)


def _row(prompt: PromptState, flow: str) -> tuple[str, ...]:
    if prompt.options:
        takes = " | ".join(option["label"] for option in prompt.options)
    elif prompt.fields:
        takes = "form: " + ", ".join(str(field["name"]) for field in prompt.fields)
    else:
        takes = " or ".join(["text"] * prompt.accepts_text + ["files"] * prompt.accepts_files) or "text"
    whom = plain(waiting_on(prompt, prompt.requester))
    question = one_line(read(prompt.message), 200)
    return prompt.prompt_id, clean(flow), one_line(whom, 30), one_line(takes, 30), question


@also_in_workspace
def show_prompt(place: Place, prompt_id: str, *, as_json: bool) -> int:
    """Print a question with everything that an answer has to fit. Raises `SaysoError`."""
    with opened(place.settings(), f"no question {prompt_id!r}") as store:
        prompt = find_prompt(store, prompt_id)
        head: Head | None = store.sessions.head(prompt.session_id)
    flow = "" if head is None else head.flow_name
    if as_json:
        print_json(_as_json(prompt, flow))
        return Exit.OK
    paint = Paint(sys.stdout)
    print(f"{paint('bold', prompt.prompt_id)}  {clean(flow)}, {clean(prompt.path)}, {prompt.status}")
    said = row_face(prompt, flow)
    for line in (told(said.outcome or said.lead), *face_lines(said)):
        print(f"  {line}")
    for each, option in zip(said.controls, prompt.options, strict=True):
        choose = f"--value {shlex.quote(str(option['value']))}{'' if each.press else ' --reason ...'}"
        print(f"  - {one_line(each.label, 200)}  {paint('dim', choose)}")
    if prompt.options and prompt.accepts_text:
        print(f"  - or your own answer  {paint('dim', '--text ...')}")
    for name in prompt.editable:
        print(f"  - change {name} first  {paint('dim', f'--edit {name}=...')}")
    for field in [] if prompt.options and not prompt.fills_beside else prompt.fields:
        first, *rest = (one_line(line, 300) for line in field_lines(field))
        needed = "needed" if field["required"] else "if any"
        print(f"  {paint('bold', field['name'])} ({needed}): {first}")
        for line in rest:
            print(f"      {line}")
    if prompt.accepts_files:
        print(f"  - {said.files}  {paint('dim', '--file PATH')}")
    return Exit.OK


def _as_json(prompt: PromptState, flow: str) -> dict[str, Json]:
    return {
        **prompt_json(row_face(prompt, flow), prompt.session_id, flow),
        "status": prompt.status,
        "threadKey": prompt.thread_key,
        "messageTs": prompt.message_ts,
    }


def answer_command(
    place: Place,
    prompt_id: str,
    edit: Sequence[str],
    as_name: str | None,
    *,
    wait: bool | None,
    as_json: bool,
    **answer: Any,
) -> int:
    """Answer a question, or change what it proposes. Raises `SaysoError`."""
    given = Given(**answer)
    if edit:
        given.refuse()
        change = Change(
            "edit", {"values": _pairs("--edit", edit)}, "Updated. Approvers now see this version."
        )
        return change_prompt(place, prompt_id, change, as_name, as_json=as_json)
    return answer_prompt(place, prompt_id, given, as_name, wait=wait, as_json=as_json)


@also_in_workspace
def answer_prompt(
    place: Place, prompt_id: str, given: Given, as_name: str | None, *, wait: bool | None, as_json: bool
) -> int:
    """Answer a question. Raises `SaysoError`."""
    from bot.cli.act import Act, act, served
    from bot.terminal.follow import Mode

    settings = place.settings()
    given.check()

    def find(store: Store) -> tuple[Head, Act]:
        prompt = find_prompt(store, prompt_id)
        # Say who was first, before anything is sent anywhere.
        if not prompt.open:
            errors = {"answered": AlreadyAnswered, "expired": PromptTimedOut}
            raise errors.get(prompt.status, PromptClosed)(closed_text(prompt))
        head = _session_of(store, prompt)
        late = prompt.deadline is not None and prompt.deadline <= utc_now()
        if late and head.thread_key and not served(store, head):
            raise PromptTimedOut(timed_out(prompt.deadline))
        question = stored_state(store, head.session_id).prompts[prompt.prompt_id]
        value, text = given.read(question)
        fields: dict[str, Json] = {
            "promptId": prompt.prompt_id,
            "value": value,
            "text": text,
            "reason": given.reason,
            "always": given.allowed,
        }
        if given.files:
            files = SessionFiles(settings.home)
            fields["files"] = keep(files, prompt.session_id, prompt.prompt_id, question, given.files)
        return head, Act("answer", fields, "Answered.", _about(prompt), goes_on=True)

    # It says one thing to the session, and then asks nothing more.
    mode = Mode(ask=False, wait=sys.stdin.isatty() if wait is None else wait, json=as_json)
    return act(place, f"no question {prompt_id!r}", find, as_name, mode)


# --- what else people do to a question ---------------------------------------------------------------------


def _pairs(option: str, given: Sequence[str]) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for change in given:
        name, sign, value = change.partition("=")
        if not sign or not name or name in values:
            raise UsageError(f"{option} takes field=value, each field once, not {change!r}.")
        values[name] = value
    return values


def hand_over_prompt(place: Place, prompt_id: str, to: str, as_name: str | None, *, as_json: bool) -> int:
    """Hand a question over to somebody who, as far as Slack can be asked, is there. Raises `SaysoError`."""
    from bot.cli.identities import unchecked

    doubt = asyncio.run(unchecked(place.settings(), to))
    if doubt is not None:
        print(f"sayso: could not check whether {to} exists: {doubt}", file=sys.stderr)
    change = Change("handOver", {"to": to}, f"Handed over to {to}.")
    return change_prompt(place, prompt_id, change, as_name, as_json=as_json)


@also_in_workspace
def change_prompt(place: Place, text: str, change: Change, as_name: str | None, *, as_json: bool) -> int:
    """Change a question, hand it over, or revoke what was allowed with it. Raises `SaysoError`."""
    from bot.cli.act import Act, act
    from bot.terminal.follow import Mode

    def find(store: Store) -> tuple[Head, Act]:
        prompt = find_prompt(store, text)
        fields = {"promptId": prompt.prompt_id, **change.fields}
        return _session_of(store, prompt), Act(change.do, fields, change.done, _about(prompt))

    mode = Mode(ask=False, wait=False, json=as_json)
    return act(place, f"no question {text!r}", find, as_name, mode)


def _session_of(store: Store, prompt: PromptState) -> Head:
    head = store.sessions.head(prompt.session_id)
    if head is None:
        raise Corrupt(
            f"{prompt.session_id}, which asks this, is no longer in the store: its row was deleted."
        )
    refuse_ended(head)
    return head


def _about(prompt: PromptState) -> dict[str, Json]:
    return {"promptId": prompt.prompt_id, "sessionId": prompt.session_id}


# --- locks -------------------------------------------------------------------------------------------------


def list_locks(place: Place, *, as_json: bool) -> int:
    """Print the queues of all locks, each in its order."""

    def read(store: Store) -> list[tuple[LockRow, Head | None]]:
        return [(row, store.sessions.head(row.session_id)) for row in store.locks.rows()]

    found = read_there(place.settings(), read)
    now, place_in_queue = utc_now(), 0
    rows, before = [], None
    for row, head in found:
        place_in_queue = place_in_queue + 1 if row.name == before else 0
        before = row.name
        stands = f"waits, {ordinal(place_in_queue)}" if place_in_queue else "is next"
        if row.taken_at:
            stands = "holds it"
        if not row.verified:
            stands += ", record damaged"
        status = in_words(standing(head)) if head is not None else "unknown"
        since = ago(row.taken_at or row.requested_at, now) if row.verified else ""
        flow = clean(head.flow_name) if head else ""
        rows.append((clean(row.name), clean(row.session_id), flow, status, stands, since))
    nothing = "" if found else f"There are no locks in use.{place.elsewhere('locks')}"
    headers = ("LOCK", "SESSION", "FLOW", "STATUS", "STANDS", "SINCE")
    return print_list("locks", starmap(_lock_json, found), headers, rows, nothing, as_json=as_json)


def _lock_json(row: LockRow, head: Head | None) -> dict[str, Json]:
    return {
        "name": row.name,
        "sessionId": row.session_id,
        "flow": head.flow_name if head else None,
        "status": head.status if head else None,
        "standing": standing(head) if head else None,
        "threadKey": head.thread_key if head else None,
        "requestedAt": row.requested_at,
        "takenAt": row.taken_at,
        "verified": row.verified,
    }


def release_lock(place: Place, name: str, session: str) -> int:
    """Take a lock from a session of which nothing runs any more. Raises `UsageError` for one that can be ended."""
    with writing(place.settings(), f"no lock {name!r}") as store:
        found = [row for row in store.locks.rows(name) if matches(row.session_id, session, "session-")]
        if len(found) != 1:
            rows = store.locks.rows()
            if found or any(row.name == name for row in rows):
                raise UsageError(
                    f"{len(found) or 'No'} session of the queue for lock {name!r} begins with {session!r}."
                )
            names = ", ".join(sorted({clean(row.name) for row in rows})) or "none"
            raise UsageError(f"Nobody holds or waits for a lock {name!r}; there are: {names}.")
        row = found[0]
        head = store.sessions.head(row.session_id)
        if head is not None and head.quarantined is None and head.status not in ENDED:
            end = place.command("sessions", "abort", row.session_id)
            raise UsageError(
                f"Session {row.session_id} is {in_words(standing(head))}, not on hold, so it releases the lock when it ends. To end it: {end}"
            )
        store.consume((), utc_now(), [DropLock(row.name, row.session_id)])
        left = store.locks.rows(name)
    following = f" Next: {clean(left[0].session_id)}." if left else ""
    print(f"{clean(row.session_id)} no longer has lock {clean(name)}.{following}")
    return Exit.OK
