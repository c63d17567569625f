"""PromptState: one question of a session as its thread sees it, and how it follows from the session's state.

The engine commits `project(...)` together with the events: a prompt and its row appear, change and close in one
transaction, so nothing needs repair after a crash. A row is a projection and nothing else; deciding is done on
the session's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from engine.journal.records import PutPrompt
from engine.language.actors import requester_of
from engine.language.codec import Json, decode, encode
from engine.language.errors import NotJson, SchemaTooNew
from engine.language.markup import shown
from prompt_state.errors import MalformedPrompt

VERSION = 1
"""Version of the stored form; older ones are upcast when read, newer ones refused."""

PromptKind: TypeAlias = Literal["ask", "approval", "interrupted", "failed", "input", "budget", "limit"]
PromptStatus: TypeAlias = Literal["requested", "shown", "answered", "expired", "cancelled"]

OPEN_STATUSES: tuple[PromptStatus, ...] = ("requested", "shown")
"""Statuses in which an answer would still count. `requested` is not in front of anybody yet."""

_SUMMARY = 140

_CONFIG = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Option:
    """One choice: `value` is what the flow gets, `label` what people read, `style` how a button looks."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    value: Any
    label: str
    style: str | None = None


@dataclass(frozen=True, slots=True)
class Vote:
    """One person's vote on an approval that several people decide: `approve` or `reject`."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    actor_id: str
    vote: Literal["approve", "reject"]
    at: str
    actor_name: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PromptState:
    """A prompt in a thread. Times are UTC ISO-8601; `message_ts` and `thread_ts` are Slack's."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    prompt_id: str
    session_id: str
    path: str
    kind: PromptKind
    status: PromptStatus
    message: str
    nonce: str
    """Buttons carry it: a button of an older copy of the prompt does not match."""
    accepts_text: bool = False
    options: tuple[Option, ...] = ()
    approvers: tuple[str, ...] | None = None
    who: tuple[str, ...] | None = None
    exclude_requester: bool = False
    requester_id: str | None = None
    requester_name: str | None = None
    number: int | None = None
    """What people call it in this session (`#3: yes`); it never changes."""
    node_id: str = ""
    node_name: str | None = None
    generation: int = 1
    """Counts the copies that were shown; a timer of an older one changes nothing."""
    thread_key: str | None = None
    channel: str | None = None
    thread_ts: str | None = None
    message_ts: str | None = None
    """The message that shows it; None until it is shown."""
    deadline: str | None = None
    snapshot_seq: int = 0
    """The commit that last changed this prompt; the session's snapshot is of this seq or later."""
    answered_by: str | None = None
    answered_by_name: str | None = None
    answered_at: str | None = None
    """When it was closed: answered, expired or cancelled."""
    answer_summary: str | None = None
    form: dict[str, Any] | None = None
    """The fields that are asked for, `{"fields": [...]}`; see `engine.forms`."""
    values: dict[str, Any] = field(default_factory=dict)
    """What the form's fields are at the moment, for an approval: as proposed, or as people changed them."""
    accepts_files: bool = False
    max_files: int | None = None
    max_size: int | None = None
    """Bytes that one file may have."""
    undo_seconds: float | None = None
    undo_until: str | None = None
    """Until when the answer may be taken back; None where it is final."""
    required: int = 1
    """How many different people have to approve."""
    veto: Literal["any", "majority"] = "any"
    require_reason: bool = False
    """Whether a rejection says why."""
    editable: tuple[str, ...] = ()
    """The fields of the form that an approver may change."""
    covers: dict[str, Any] | None = None
    """What runs once this is approved: `{nodeId, path, type, text, digest, validSeconds}`."""
    votes: tuple[Vote, ...] = ()
    editors: tuple[str, ...] = ()
    """Who changed what is to be approved, by id: they count as requesters."""
    excluded: tuple[str, ...] = ()
    """Who handed the prompt over, by id: they answer it no more."""
    handed: tuple[dict[str, Any], ...] = ()
    """Each time that it was handed over: `{by, to, at}`."""
    timeout_seconds: float | None = None
    on_timeout: str = "fail"
    remind_seconds: float | None = None
    escalate: tuple[dict[str, Any], ...] = ()
    hours: dict[str, Any] | None = None

    @property
    def open(self) -> bool:
        """Whether an answer would still count."""
        return self.status in OPEN_STATUSES

    def to_bytes(self) -> bytes:
        """The stored form: JSON in camelCase with its version. What only some prompts have stands in theirs only."""
        document = {"version": VERSION, **_adapter().dump_python(self, by_alias=True)}
        for key, nothing in _unsaid().items():
            if document[key] == nothing:
                del document[key]
        return encode(document)

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


class PromptRunLike(Protocol):
    """What the projection reads of a prompt in the engine's state."""

    @property
    def prompt_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def spec(self) -> dict[str, Json]: ...
    @property
    def shown(self) -> dict[str, Json] | None: ...
    @property
    def answer(self) -> dict[str, Json] | None: ...
    @property
    def actor(self) -> dict[str, Json] | None: ...
    @property
    def at(self) -> str | None: ...
    @property
    def deadline(self) -> str | None: ...
    @property
    def votes(self) -> tuple[dict[str, Json], ...]: ...
    @property
    def undo_until(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Owner:
    """The session that prompts belong to: its id, thread (`{team, channel, threadTs, key}`), and who started it."""

    session_id: str
    thread: Mapping[str, Json] | None = None
    requester: Mapping[str, Json] = field(default_factory=dict)


def thread_key(team: str, channel: str, thread_ts: str) -> str:
    """The key of a thread: `<team>:<channel>:<thread_ts>`."""
    return f"{team}:{channel}:{thread_ts}"


def changed_prompt_ids(events: Iterable[object]) -> set[str]:
    """The prompts whose rows must be written with these events: every event that names a prompt changes it."""
    found = (getattr(event, "prompt_id", None) for event in events)
    return {prompt_id for prompt_id in found if isinstance(prompt_id, str)}


def project(
    owner: Owner,
    prompts: Mapping[str, PromptRunLike],
    events: Iterable[object],
    seq: int,
    *,
    also: Iterable[str] = (),
) -> list[PutPrompt]:
    """The rows that a commit of `events` writes. `prompts` are those of the state after them, `seq` its seq; `also` are
    prompts that changed and that no event names (the time to take an answer back is over)."""
    requester, thread = owner.requester, owner.thread
    return [
        prompt_row(owner.session_id, thread, requester, prompts[prompt_id], seq)
        for prompt_id in sorted(changed_prompt_ids(events).union(also))
        if prompt_id in prompts
    ]


def prompt_row(
    session_id: str,
    thread: Mapping[str, Json] | None,
    requester: Mapping[str, Json],
    prompt: PromptRunLike,
    seq: int,
) -> PutPrompt:
    """A prompt of the engine's state as a row. Raises `MalformedPrompt` when its spec is not one."""
    state = prompt_state(Owner(session_id, thread, requester), prompt, seq)
    return PutPrompt(
        prompt_id=state.prompt_id,
        session_id=state.session_id,
        status=state.status,
        body=state.to_bytes(),
        thread_key=state.thread_key,
        deadline=state.deadline,
    )


def prompt_state(owner: Owner, prompt: PromptRunLike, seq: int) -> PromptState:
    """A prompt of the engine's state as its thread sees it. Raises `MalformedPrompt` when its spec is not one."""
    actor = prompt.actor or {}
    document = {
        "promptId": prompt.prompt_id,
        "sessionId": owner.session_id,
        "path": prompt.path,
        "kind": prompt.kind,
        "status": prompt.status,
        "requesterId": requester_of(owner.requester),
        "requesterName": owner.requester.get("name"),
        "deadline": prompt.deadline,
        "snapshotSeq": seq,
        "answeredBy": actor.get("id"),
        "answeredByName": actor.get("name"),
        "answeredAt": prompt.at,
        "answerSummary": summary(prompt.kind, prompt.answer),
        "undoUntil": prompt.undo_until,
        "votes": [_vote(vote) for vote in prompt.votes],
        **_from_spec(prompt.spec),
        **_place(owner.thread or {}, prompt.shown or {}),
    }
    return _checked(document)


def summary(kind: str, answer: Mapping[str, Json] | None) -> str | None:
    """An answer (`{value, text, label?}`) in a few words, safe to show; None where there is none."""
    if answer is None:
        return None
    if kind == "approval":
        return "approved" if answer.get("value") == "approve" else "rejected"
    words = shown(" ".join(str(answer.get("label") or answer.get("text") or "").split()))
    return words if len(words) <= _SUMMARY else words[: _SUMMARY - 1] + "…"


def _vote(vote: Mapping[str, Json]) -> dict[str, Json]:
    actor = vote["actor"]
    told = {name: vote.get(name) for name in ("vote", "reason", "at")}
    return {"actorId": actor.get("id"), "actorName": actor.get("name"), **told}


def _from_spec(spec: Mapping[str, Json]) -> dict[str, Json]:
    """The part that `prompt:requested` fixed, and people changed since. What must be there and is not is found by
    `_checked`."""
    options = [
        {"value": option.get("value"), "label": str(option.get("label")), "style": option.get("style")}
        for option in spec.get("options") or ()
    ]
    return {
        "message": spec.get("message"),
        "nonce": spec.get("nonce"),
        "acceptsText": spec.get("acceptsText", False),
        "options": options,
        "approvers": spec.get("approvers"),
        "who": spec.get("who"),
        "excludeRequester": spec.get("excludeRequester") or False,
        "number": spec.get("number"),
        "nodeId": spec.get("nodeId") or "",
        "nodeName": spec.get("nodeName"),
        "generation": spec.get("generation") or 1,
        **{name: spec[name] for name in _AS_TOLD if spec.get(name) is not None},
    }


_AS_TOLD = (
    "form",
    "values",
    "acceptsFiles",
    "maxFiles",
    "maxSize",
    "undoSeconds",
    "required",
    "veto",
    "requireReason",
    "editable",
    "covers",
    "editors",
    "excluded",
    "handed",
    "timeoutSeconds",
    "onTimeout",
    "remindSeconds",
    "escalate",
    "hours",
)
"""Fields of a spec that a row has as they are; those that are left out have the defaults of `PromptState`."""

_OF_SOME = frozenset({*_AS_TOLD, "undoUntil", "votes"})


@cache
def _unsaid() -> dict[str, Json]:
    """What the fields that only some prompts have are in all others, where they are left out."""
    nothing = PromptState("", "", "", "ask", "requested", "", "")
    defaults = _adapter().dump_python(nothing, by_alias=True)
    return {key: value for key, value in defaults.items() if key in _OF_SOME}


def _place(thread: Mapping[str, Json], shown: Mapping[str, Json]) -> dict[str, Json]:
    """Where the prompt is. A thread whose first message was not posted yet gets its key when that is known."""
    channel = shown.get("channel") or thread.get("channel")
    thread_ts = thread.get("threadTs") or shown.get("threadTs")
    key = thread.get("key")
    if key is None and channel and thread_ts and thread.get("team"):
        key = thread_key(thread["team"], channel, thread_ts)
    return {"threadKey": key, "channel": channel, "threadTs": thread_ts, "messageTs": shown.get("ts")}


def _checked(document: dict[str, Json]) -> PromptState:
    """The PromptState of a document, every field of its type. Goes through JSON: what is built is what is read."""
    try:
        return _adapter().validate_json(encode(document))
    except (ValidationError, NotJson) as error:
        problem = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            problem = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        raise MalformedPrompt(f"prompt {document.get('promptId')!r} is malformed: {problem}") from error


@cache
def _adapter() -> TypeAdapter[PromptState]:
    return TypeAdapter(PromptState)
