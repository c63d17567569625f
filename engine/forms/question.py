"""What people are asked: one record, from `prompt:requested` to the message that shows it.

`Question` is what the event carries. `engine.journal.state.Asked` is a question with what became of it, and
`prompt_state.question_row.PromptState` one with its thread. On the wire all of it is one flat object, in camelCase;
`to_wire` and `from_wire` are the only place where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self, dataclass_transform

from msgspec import Struct, ValidationError, convert

from engine.forms.parse import Field
from engine.language.codec import Json
from engine.language.errors import MalformedJournal


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """A question, as it was asked and as people changed it since."""

    kind: str
    """`ask`, `approval`, `input`, `interrupted`, `failed`, `budget` or `limit`."""
    message: str = ""
    node_id: str = ""
    node_name: str | None = None
    number: int | None = None
    """What people call it in this session (`#3: yes`); it never changes."""
    nonce: str = ""
    """Buttons carry it: a button of an older copy of the question does not match."""
    generation: int = 1
    """Counts the copies that were shown."""

    # How it can be answered.
    options: tuple[dict[str, Json], ...] = ()
    """The choices, `{value, label, style}`."""
    accepts_text: bool = False
    form: dict[str, Json] | None = None
    """The fields that are asked for, `{"fields": [...]}`; see `engine.forms`."""
    values: dict[str, Json] = {}
    """What the form's fields are at the moment, for an approval: as proposed, or as people changed them."""
    default: Json = None
    """The answer once the time is over, with `on_timeout: default`."""
    input: dict[str, Json] | None = None
    """The input of the flow that is asked for, `{name, type}`."""

    # Who answers.
    who: tuple[str, ...] | None = None
    approvers: tuple[str, ...] | None = None
    exclude_requester: bool = False
    editors: tuple[str, ...] = ()
    """Who changed what is to be approved, by id: they count as requesters."""
    excluded: tuple[str, ...] = ()
    """Who handed it over, by id: they answer it no more."""
    handed: tuple[dict[str, Json], ...] = ()
    """Each time that it was handed over, `{by, to, at}`."""

    # How an approval is decided.
    required: int = 1
    """How many different people have to approve."""
    veto: Literal["any", "majority"] = "any"
    require_reason: bool = False
    """Whether a rejection says why."""
    editable: tuple[str, ...] = ()
    """The fields of the form that an approver may change."""
    covers: dict[str, Json] | None = None
    """What runs once this is approved, `{nodeId, path, sessionId, type, text, digest, validSeconds}`."""
    tool: dict[str, Json] | None = None
    """The tool call that is to be approved, `{name, toolUseId, input}`."""

    # Its clocks.
    timeout_seconds: int | float | None = None
    on_timeout: str = "fail"
    remind_seconds: int | float | None = None
    escalate: tuple[dict[str, Json], ...] = ()
    """The steps, `{afterSeconds, to, mayAnswer}`."""
    hours: dict[str, Json] | None = None
    """The working hours in which its clocks run, `{days, from, to, timezone}`."""

    # Files that answer it.
    accepts_files: bool = False
    max_files: int | None = None
    max_size: int | None = None
    """Bytes that one file may have."""

    # Taking an answer back.
    undo_seconds: int | float | None = None

    # What is asked about a cap, or a limit of rounds.
    scope: str | None = None
    caps: dict[str, Json] | None = None
    attempt: int | None = None
    """The attempt of the loop."""

    @property
    def fields(self) -> list[Field]:
        """The fields of its form; none where it has no form."""
        fields: list[Field] = (self.form or {}).get("fields") or []
        return fields

    @property
    def input_name(self) -> str:
        """The name of the input that is asked for."""
        return str((self.input or {}).get("name"))

    @property
    def answered_by(self) -> str | None:
        """Who answered it, by id."""
        return None

    def to_wire(self) -> dict[str, Json]:
        """The question as `prompt:requested` and the state's document have it."""
        wire: dict[str, Json] = {}
        for name in (*_WIRE.get("tool" if self.tool else self.kind, _STEP), *_LATER):
            wire_name = name.rstrip("?")
            value = getattr(self, _NAMES[wire_name])
            if wire_name == name or value not in (None, False, ()):
                wire[wire_name] = list(value) if isinstance(value, tuple) else value
        if self.generation > 1:
            wire["generation"] = self.generation
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Json]) -> Self:
        """The question of a flat object. What is absent or null has its default. Raises `MalformedJournal`."""
        try:
            return convert({name: value for name, value in wire.items() if value is not None}, cls)
        except ValidationError as error:
            raise MalformedJournal(f"not a question: {error}") from error


_NAMES = dict(zip(Question.__struct_encode_fields__, Question.__struct_fields__, strict=True))

_HEAD = ("kind", "message", "nodeId", "nodeName")
_TIME = ("timeoutSeconds", "onTimeout")
_CLOCKS = (*_TIME, "remindSeconds?", "escalate?", "hours?", "options", "acceptsText")
_DECISION = (
    "approvers",
    "excludeRequester",
    "required",
    "veto",
    "requireReason",
    "editable",
    "form",
    "values",
)
_FILES = ("acceptsFiles?", "maxFiles?", "maxSize?")
_STEP = (*_HEAD, "options", "acceptsText", "who", *_TIME, "attempt?")
_WIRE = {
    "ask": (*_HEAD, *_CLOCKS, "form?", *_FILES, "who", "default", "undoSeconds", "covers"),
    "approval": (*_HEAD, *_CLOCKS, *_DECISION, "covers"),
    "tool": (*_HEAD, "options", "acceptsText", *_DECISION, *_TIME, "tool", "covers"),
    "input": (*_HEAD, "form?", "options", "acceptsText", "who", *_TIME, "input"),
    "budget": (*_STEP, "scope", "excludeRequester", "caps"),
}
"""What each kind of question says on the wire, in this order, null too; with `?` only where there is any."""

_LATER = ("number?", "nonce", "editors?", "excluded?", "handed?")
