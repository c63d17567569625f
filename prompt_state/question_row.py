"""PromptState: one question of a session as its thread sees it, projected from the session's state; the people who may
answer it by `engine.decide.policy`; and reading it back.

The engine commits `project(...)` together with the events: a prompt and its row appear, change and close in one
transaction, so a crash needs no repair. A row is only a projection; decisions are made on the session's state.

Reading is the same after a restart as at any other time, since nothing is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NotRequired, Protocol, TypeAlias, TypedDict

from msgspec import Struct, ValidationError, to_builtins
from msgspec.structs import replace

from engine.decide.policy import Target, authorize
from engine.decide.question import DECIDED
from engine.forms.question import Question
from engine.journal.events import Event
from engine.journal.records import PromptRow, Row
from engine.journal.state import Asked, State
from engine.language.actors import Actor, requester_of
from engine.language.codec import Json, decode, encode
from engine.language.errors import InvalidAnswer, NotJson, SaysoError, SchemaTooNew
from engine.language.structs import convert
from engine.language.template import shown

VERSION = 1
"""Version of the stored form; newer ones are refused."""

PromptKind: TypeAlias = Literal[
    "ask", "approval", "interrupted", "failed", "input", "budget", "limit", "outcome", "listing", "elicit"
]
PromptStatus: TypeAlias = Literal["requested", "shown", "answered", "expired", "cancelled"]

OPEN_STATUSES: tuple[PromptStatus, ...] = ("requested", "shown")
"""Statuses in which an answer would still count. `requested` is not in front of anybody yet."""

_SUMMARY = 140


class Option(TypedDict):
    """One choice: `value` is for the flow, `label` for people, `style` for the button."""

    value: Json
    label: str
    style: str | None
    asks: NotRequired[dict[str, Json]]
    """Text that goes with it, `{label, default?, choices?}`."""


class Vote(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One person's vote on an approval that several people decide."""

    actor_id: str
    vote: Literal["approve", "reject", "answer"]
    at: str
    actor_name: str | None = None
    reason: str | None = None


class PromptState(Question, kw_only=True, forbid_unknown_fields=True):
    """A question in a thread. Times are UTC ISO-8601; `message_ts` and `thread_ts` are Slack's."""

    kind: PromptKind
    message: str
    nonce: str
    options: tuple[Option, ...] = ()  # type: ignore[assignment]  # a checked dict is a dict
    prompt_id: str
    session_id: str
    path: str
    status: PromptStatus
    requester_id: str | None = None
    requester_name: str | None = None
    thread_key: str | None = None
    channel: str | None = None
    thread_ts: str | None = None
    message_ts: str | None = None
    """The message that shows it; None until it is shown."""
    deadline: str | None = None
    snapshot_seq: int = 0
    """Event number of the commit that last changed this prompt. A paused session's snapshot has this number, or that of
    a later commit."""
    answered_by: str | None = None
    answered_by_name: str | None = None
    answered_at: str | None = None
    """Time at which it was closed: answered, expired or cancelled."""
    answer_summary: str | None = None
    answer_key: str | None = None
    """The inbox key that carried the answer, where that is somebody's own words."""
    votes: tuple[Vote, ...] = ()

    @property
    def open(self) -> bool:
        """True if an answer would still count."""
        return self.status in OPEN_STATUSES

    @property
    def requester(self) -> dict[str, Json]:
        """The person who started the session, as an actor's record."""
        return {"id": self.requester_id, "name": self.requester_name}

    def to_bytes(self) -> bytes:
        """The stored form: JSON in camelCase with its version. What only some prompts have is in theirs only."""
        fields = to_builtins(self)
        some = {name: fields[name] for name in _OF_SOME if fields[name] != _DEFAULTS[name]}
        return encode({"version": VERSION, **{name: fields[name] for name in _OF_ALL}, **some})

    @classmethod
    def from_bytes(cls, data: bytes) -> PromptState:
        """The prompt of a stored form. Raises `MalformedPrompt`, or `SchemaTooNew` for a newer release's."""
        try:
            document = decode(data)
        except NotJson as error:
            raise MalformedPrompt(f"a prompt's row cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise MalformedPrompt(f"a prompt's row is a {type(document).__name__}, not an object")
        version = document.pop("version", None)
        if type(version) is not int or version < 1:
            raise MalformedPrompt(f"a prompt's row has version {version!r}; this release writes {VERSION}")
        if version > VERSION:
            raise SchemaTooNew(
                f"a prompt's row has version {version} and this release reads up to {VERSION}: "
                "run the newer release"
            )
        return _checked(document)


_OF_ALL = (
    "promptId", "sessionId", "path", "kind", "status", "message", "nonce", "acceptsText", "options", "approvers", "who",
    "excludeRequester", "requesterId", "requesterName", "number", "nodeId", "nodeName", "generation", "threadKey",
    "channel", "threadTs", "messageTs", "deadline", "snapshotSeq", "answeredBy", "answeredByName", "answeredAt",
    "answerSummary",
)  # fmt: skip
"""Fields of every row, in the order in which they are stored."""

_OF_SOME = (
    "form", "values", "acceptsFiles", "maxFiles", "maxSize", "required", "veto",
    "requireReason", "editable", "covers", "votes", "editors", "excluded", "handed", "timeoutSeconds", "onTimeout",
    "remindSeconds", "escalate", "hours", "answerKey",
)  # fmt: skip
"""Fields that are stored only if they differ from their default."""

_DEFAULTS = to_builtins(
    PromptState(kind="ask", message="", nonce="", prompt_id="", session_id="", path="", status="requested")
)

_SHARED = {*_OF_ALL, *_OF_SOME} & {*Question.__struct_encode_fields__}
"""Fields that a row copies from the question."""

_SECONDS = ("timeoutSeconds", "remindSeconds")


def thread_key(team: str, channel: str, thread_ts: str) -> str:
    """The key of a thread: `<team>:<channel>:<thread_ts>`."""
    return f"{team}:{channel}:{thread_ts}"


def changed_prompt_ids(events: Iterable[object]) -> set[str]:
    """Return the prompts whose rows these events change: every event that names a prompt changes it."""
    found = (getattr(event, "prompt_id", None) for event in events)
    return {prompt_id for prompt_id in found if isinstance(prompt_id, str)}


def project(state: State, events: Iterable[Event]) -> list[PromptRow]:
    """The rows that a commit of `events` writes. `state` is the one after them."""
    return [
        prompt_row(state, state.prompts[prompt_id])
        for prompt_id in sorted(changed_prompt_ids(events))
        if prompt_id in state.prompts
    ]


def prompt_row(state: State, prompt: Asked) -> PromptRow:
    """A question of a session as a row."""
    row = prompt_state(state, prompt)
    return PromptRow(
        prompt_id=row.prompt_id,
        session_id=row.session_id,
        status=row.status,
        body=row.to_bytes(),
        thread_key=row.thread_key,
        deadline=row.deadline,
    )


def prompt_state(state: State, prompt: Asked) -> PromptState:
    """Return a question of a session as its thread sees it. Raises `MalformedPrompt` if a field of the row is missing."""
    actor, asked = prompt.actor or {}, to_builtins(prompt)
    # A thread whose first message was not posted yet gets its key once that is known.
    thread = state.thread or {}
    shown = prompt.shown or {}
    channel = shown.get("channel") or thread.get("channel")
    thread_ts = thread.get("threadTs") or shown.get("threadTs")
    key = thread.get("key")
    if key is None and channel and thread_ts and thread.get("team"):
        key = thread_key(thread["team"], channel, thread_ts)
    return _checked(
        {
            **{name: asked[name] for name in _SHARED},
            **{name: float(asked[name]) for name in _SECONDS if asked[name] is not None},
            "promptId": prompt.prompt_id,
            "sessionId": state.session_id,
            "nonce": prompt.nonce or None,
            "path": prompt.path,
            "status": prompt.status,
            "options": [_option(option) for option in prompt.options],
            "requesterId": requester_of(state.actor),
            "requesterName": state.actor.get("name"),
            "deadline": prompt.deadline,
            "snapshotSeq": state.seq,
            "answeredBy": prompt.answered_by,
            "answeredByName": actor.get("name"),
            "answeredAt": prompt.at,
            "answerSummary": summary(prompt.kind, prompt.answer),
            "answerKey": prompt.answer_key if own_words(prompt.answer) else None,
            "votes": [
                {
                    "actorId": vote["actor"].get("id"),
                    "actorName": vote["actor"].get("name"),
                    **{name: vote.get(name) for name in ("vote", "reason", "at")},
                }
                for vote in prompt.votes
            ],
            "threadKey": key,
            "channel": channel,
            "threadTs": thread_ts,
            "messageTs": shown.get("ts"),
        }
    )


def summary(kind: str, answer: Mapping[str, Json] | None) -> str | None:
    """Return an answer (`{value, text, label?}`) in a few words, safe to show; None without one."""
    if answer is None:
        return None
    if kind == "approval":
        return DECIDED.get(str(answer.get("value")), "rejected")
    words = shown(" ".join(str(answer.get("label") or answer.get("text") or "").split()))
    return words if len(words) <= _SUMMARY else words[: _SUMMARY - 1] + "…"


def own_words(answer: Mapping[str, Json] | None) -> bool:
    """True if an answer is free text or files: not a choice, and without parsed values."""
    return answer is not None and not answer.get("label") and not answer.get("values")


def _option(option: Mapping[str, Json]) -> dict[str, Json]:
    told = {"value": option.get("value"), "label": str(option.get("label")), "style": option.get("style")}
    return {**told, "asks": option["asks"]} if option.get("asks") else told


def _checked(document: dict[str, Json]) -> PromptState:
    """The PromptState of a document, every field of its type."""
    try:
        return convert(document, PromptState)
    except ValidationError as error:
        raise MalformedPrompt(f"prompt {document.get('promptId')!r} is malformed: {error}") from error


# --- errors ------------------------------------------------------------------------------------------------


class MalformedPrompt(SaysoError):
    """A PromptState is not one that this program writes; it can be projected again from its session."""

    code = "prompt_malformed"


class TooLong(InvalidAnswer):
    """A text exceeds the limit; none of it was used."""

    code = "text_too_long"


# --- policy ------------------------------------------------------------------------------------------------


def may_act_on(actor: Actor, prompts: Iterable[PromptState], target: Target) -> frozenset[str]:
    """The ids of those prompts that this actor may answer, decide or resolve."""
    return frozenset(
        prompt.prompt_id
        for prompt in prompts
        if authorize(
            actor, prompt.rules.action, replace(target, prompt=prompt, requester_id=prompt.requester_id)
        ).allowed
    )


# --- projection --------------------------------------------------------------------------------------------


def projection(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """The rows of prompts that a step changed, written with the events that they follow from."""
    return project(after, events)


# --- reading -----------------------------------------------------------------------------------------------


class PromptReader(Protocol):
    """The part of `engine.storage.rows.PromptTable` that is needed here."""

    def row(self, prompt_id: str) -> PromptRow | None: ...

    def rows(
        self,
        *,
        thread_key: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[str] = (),
        limit: int | None = 500,
    ) -> list[PromptRow]: ...


def find(prompts: PromptReader, prompt_id: str) -> PromptState | None:
    """Return one prompt by its id, open or closed, or None."""
    row = prompts.row(prompt_id)
    return None if row is None else read(row)


def of_thread(prompts: PromptReader, thread_key: str) -> list[PromptState]:
    """Return all prompts of a thread, oldest first, closed ones too: a reply may name one of them."""
    return _known(prompts.rows(thread_key=thread_key, limit=None))


def waiting(
    prompts: PromptReader, *, thread_key: str | None = None, session_id: str | None = None
) -> list[PromptState]:
    """Return the open prompts of a thread, of a session, or of all of them."""
    return _known(
        prompts.rows(thread_key=thread_key, session_id=session_id, statuses=OPEN_STATUSES, limit=None)
    )


def _known(rows: Sequence[PromptRow]) -> list[PromptState]:
    """Return the prompts of these rows, without those of a newer release, whose sessions are left to it too."""
    found = []
    for row in rows:
        with suppress(SchemaTooNew):
            found.append(read(row))
    return found


def read(row: PromptRow) -> PromptState:
    """The prompt of a row. Raises `MalformedPrompt` when the row and its body are not the same prompt."""
    state = PromptState.from_bytes(row.body)
    columns = (row.prompt_id, row.session_id, row.thread_key, row.status, row.deadline)
    if columns != (state.prompt_id, state.session_id, state.thread_key, state.status, state.deadline):
        raise MalformedPrompt(f"prompt {row.prompt_id}: the row's columns and its body do not agree")
    return state
