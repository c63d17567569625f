"""Questions to people, one record from `prompt:requested` to the message that shows it; the parts of an `ask` about its
answer, and the valid answers. Pure.

`Question` is the content of the event. `engine.journal.state.Asked` is a question with its outcome, and
`prompt_state.question_row.PromptState` one with its thread. On the wire all of it is one flat object, in camelCase;
only `to_wire` and `from_wire` know that.

A form of one field that a button can fill in offers its options like any question with choices, for code that shows and
answers prompts; `form` is kept as well, for code that fills in fields.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, Self, dataclass_transform

from msgspec import Struct, ValidationError

from engine.forms.parse import (
    Field,
    check_form,
    defaults,
    form_text,
    is_empty,
    listed,
    match_option,
    parse_typed,
)
from engine.forms.question_kinds import CALL_WIRE, KINDS, UNKNOWN, QuestionKind
from engine.language.actors import ACCOUNT
from engine.language.codec import Json, clean_text, place_of
from engine.language.errors import InvalidAnswer, MalformedJournal
from engine.language.structs import convert


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """A question, as it was asked and as people changed it since."""

    kind: str
    """`ask`, `approval`, `input`, `interrupted`, `failed`, `budget`, `limit`, `outcome`, `listing` or `elicit`."""
    message: str = ""
    node_id: str = ""
    node_name: str | None = None
    number: int | None = None
    """Number for people to refer to it in this session (`#3: yes`); it never changes."""
    nonce: str = ""
    """Buttons carry it: a button of an older copy of the question does not match."""
    generation: int = 1
    """Counts the copies that were shown."""

    # Ways to answer.
    options: tuple[dict[str, Json], ...] = ()
    """The choices, `{value, label, style}`. One that takes words has `asks` too: `{label, default?, choices?}`."""
    accepts_text: bool = False
    form: dict[str, Json] | None = None
    """The fields that are asked for, `{"fields": [...]}`; see `engine.forms`."""
    values: dict[str, Json] = {}
    """Current values of the form's fields, for an approval: as proposed, or as people changed them."""
    default: Json = None
    """Answer on a timeout, with `on_timeout: default`."""
    input: dict[str, Json] | None = None
    """Requested input of the flow, `{name, type}`."""

    # People who may answer.
    who: tuple[str, ...] | None = None
    approvers: tuple[str, ...] | None = None
    exclude_requester: bool = False
    editors: tuple[str, ...] = ()
    """Ids, and accounts, of people who changed the proposal: they count as requesters."""
    excluded: tuple[str, ...] = ()
    """Ids of people who handed it over and can no longer answer."""
    handed: tuple[dict[str, Json], ...] = ()
    """Each handover, `{by, to, at}`."""

    # Rules of an approval.
    required: int = 1
    """Number of different people who have to approve."""
    veto: Literal["any", "majority"] = "any"
    require_reason: bool = False
    """True if a rejection needs a reason."""
    editable: tuple[str, ...] = ()
    """The fields of the form that an approver may change."""
    covers: dict[str, Json] | None = None
    """Action that runs once this is approved, `{nodeId, path, sessionId, type, text, digest, validSeconds}`."""
    tool: dict[str, Json] | None = None
    """Tool call under approval, `{name, toolUseId, input}`."""

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

    # For questions about a cap, a limit of rounds, or a model call.
    scope: str | None = None
    caps: dict[str, Json] | None = None
    attempt: int | None = None
    """The attempt of the loop."""

    listing: dict[str, Json] | None = None
    """The tools that a server describes in other words than a conversation was opened with, `{"tools": [...]}`."""

    @property
    def rules(self) -> QuestionKind:
        """Return the rules shared by all questions of its kind."""
        return KINDS.get(self.kind, UNKNOWN)

    @property
    def is_approval(self) -> bool:
        """True if it is decided, by votes where several have to agree."""
        return self.rules.action == "decide"

    @property
    def is_request(self) -> bool:
        """True if it is about a call that an agent outside of sayso wants to make."""
        return (self.covers or {}).get("type") == "call"

    @property
    def fills_beside(self) -> bool:
        """True if its form is filled in beside its choices, as one more."""
        return self.kind == "elicit" and bool(self.fields)

    @property
    def everybodys(self) -> bool:
        """True if it concerns the runs of everybody, and so the admins: the cap of the day, the installation's key."""
        excludes = self.exclude_requester and "excludeRequester" in self.rules.wire
        return excludes and not self.is_approval

    @property
    def fields(self) -> list[Field]:
        """Return the fields of its form; empty without a form."""
        fields: list[Field] = (self.form or {}).get("fields") or []
        return fields

    @property
    def input_name(self) -> str:
        """Return the name of the requested input."""
        return str((self.input or {}).get("name"))

    @property
    def changed_by(self) -> list[str]:
        """The people among its editors, by id."""
        return [editor for editor in self.editors if not editor.startswith(ACCOUNT)]

    @property
    def answered_by(self) -> str | None:
        """Return the id of the person who answered it, or None."""
        return None

    def to_wire(self) -> dict[str, Json]:
        """The question as `prompt:requested` and the state's document have it."""
        wire: dict[str, Json] = {}
        for wire_name, name, always in _columns(CALL_WIRE if self.tool else self.rules.wire):
            value = getattr(self, name)
            if always or value not in (None, False, ()):
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

_LATER = ("number?", "nonce", "editors?", "excluded?", "handed?")


@cache
def _columns(kind: tuple[str, ...]) -> tuple[tuple[str, str, bool], ...]:
    """Return the fields of a kind of questions: the name on the wire, the attribute, and whether an empty value is written
    too."""
    named = ((name.rstrip("?"), not name.endswith("?")) for name in (*kind, *_LATER))
    return tuple((wire_name, _NAMES[wire_name], always) for wire_name, always in named)


# --- the prompt of an `ask` --------------------------------------------------------------------------------


MOST_BUTTONS = 100
"""Options that a message can offer."""

_YES_NO = ({"value": True, "label": "Yes"}, {"value": False, "label": "No"})


def field_options(field: Field) -> list[dict[str, Json]]:
    """Return the options of a field with one choice: its own, or yes and no; empty for other fields."""
    if field["type"] == "boolean":
        return [dict(option) for option in _YES_NO]
    return list(field["options"]) if field["type"] == "choice" else []


def ask_parts(config: Mapping[str, Json]) -> dict[str, Any]:
    """The parts of a `Question` that say how an `ask` can be answered, from its settled configuration."""
    accept = config.get("accept") or ["text"]
    options = tuple(config.get("choices") or ())
    own_words = not options or bool(config.get("own_words"))
    parts: dict[str, Any] = {"options": options, "accepts_text": "text" in accept and own_words}
    if config.get("form") is not None:
        parts |= form_parts(config["form"])
    if "files" in accept:
        parts |= {"accepts_files": True, "max_files": config["max_files"], "max_size": config["max_size"]}
    return parts


def form_parts(form: dict[str, Json]) -> dict[str, Any]:
    """The same for a form. A form of one field takes its value as a reply; one of several is filled in."""
    fields = form["fields"]
    single = fields[0] if len(fields) == 1 else None
    options: list[dict[str, Json]] = []
    if single is not None and single["required"]:
        options = [{**option, "style": None} for option in field_options(single)]
    options = options if len(options) <= MOST_BUTTONS else []
    return {"form": form, "options": tuple(options), "accepts_text": single is not None and not options}


# --- answers ---------------------------------------------------------------------------------------------


def form_answer(prompt: Question, value: Json, text: str | None, values: Json) -> dict[str, Json]:
    """The answer to a form: from its `values` (which may be in `value`), or for one field from a value or a text.

    Raises `InvalidAnswer` with a sentence for each field that is wrong.
    """
    fields = prompt.fields
    given = values if values is not None else value
    if not isinstance(given, dict):
        given = {fields[0]["name"]: _single(prompt, fields, given, text)}
    checked, wrong = check_form(fields, given)
    if wrong:
        raise InvalidAnswer(wrong_text(fields, wrong))
    said = form_text(fields, checked)
    only = checked[fields[0]["name"]] if len(fields) == 1 else None
    return {"value": only, "text": said, "label": said, "values": checked}


def _single(prompt: Question, fields: Sequence[Field], value: Json, text: str | None) -> Json:
    if len(fields) > 1:
        raise InvalidAnswer("This question has several fields: please fill in the form.")
    if prompt.options:
        return choice_answer(prompt, value, text)["value"]
    if value is None and text is not None:
        return parse_typed(fields[0], text)
    return value


def wrong_text(fields: Sequence[Field], wrong: Mapping[str, str]) -> str:
    """Return the faults of a form as one text: the sentence alone for a single field, else one line per field."""
    if len(fields) == 1 and list(wrong) == [fields[0]["name"]]:
        return next(iter(wrong.values()))
    titles = {field["name"]: str(field["title"]) for field in fields}
    return "\n".join(f"{titles.get(name, name)}: {sentence}" for name, sentence in wrong.items())


def choice_answer(prompt: Question, value: Json, text: str | None) -> dict[str, Json]:
    """Return the answer to a question with choices: a value, or (never for a decision) the text of an option."""
    place = place_of(value, [option["value"] for option in prompt.options])
    found: Mapping[str, Json] | None = None if place is None else prompt.options[place]
    if value is None and text is not None and takes_typed_choice(prompt):
        found = match_option(prompt.options, text, by_number=True)
    if found is None:
        raise InvalidAnswer(f"This question takes one of: {listed(prompt.options)}.")
    return {"value": found["value"], "text": str(found["label"]), "label": found["label"]}


def split_words(prompt: Question, line: str) -> tuple[str, str | None]:
    """Split a line into a choice and the text after its colon: the reason of a decision, or the text that a choice asks
    for. Returns the line unchanged, with None, if it is not such a choice."""
    said, colon, words = line.partition(":")
    if not colon or match_option(prompt.options, line) is not None:
        return line, None
    option = match_option(prompt.options, said, by_number=True)
    if not prompt.is_approval and not (option or {}).get("asks"):
        return line, None
    return said, words.strip() or None


def takes_typed_choice(prompt: Question) -> bool:
    """True if it has choices, and one may be typed."""
    return bool(prompt.options) and prompt.rules.typed


def files_answer(prompt: Question, text: str | None, files: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The answer with files, `{name, path, size, type}` each, and perhaps words. Raises `InvalidAnswer`."""
    if not prompt.accepts_files:
        raise InvalidAnswer("This question takes no files.")
    most, largest = prompt.max_files or 1, prompt.max_size or 0
    if len(files) > most:
        raise InvalidAnswer(
            f"This question takes at most {most} {'file' if most == 1 else 'files'}, not {len(files)}."
        )
    for one in files:
        if one["size"] > largest:
            raise InvalidAnswer(f"{one['name']} has {one['size']:,} bytes, and the limit is {largest:,}.")
    kept = [{name: one.get(name) for name in ("name", "path", "size", "type")} for one in files]
    words = clean_text(text or "")[0].strip()
    names = ", ".join(str(one["name"]) for one in kept)
    return {"value": None, "text": words, "label": f"{words} ({names})" if words else names, "files": kept}


def default_answer(prompt: Question) -> dict[str, Json]:
    """Return `text`, `value` and `values` of a question that expired with `on_timeout: default`."""
    fields = prompt.fields
    if fields:
        values = defaults(fields)
        only = values[fields[0]["name"]] if len(fields) == 1 else None
        return {"text": form_text(fields, values), "value": only, "values": values}
    default = prompt.default
    labels = {option["value"]: str(option["label"]) for option in prompt.options}
    text = labels.get(default, "" if default is None else str(default))
    return {"text": text, "value": default if labels else None, "values": {}}


def lacks_default(form: Json) -> list[str]:
    """Return the required fields of a written form that have no default."""
    properties = form.get("properties") if isinstance(form, dict) else None
    required = form.get("required") if isinstance(form, dict) else None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return []
    bodies = {name: properties.get(name) for name in required if isinstance(name, str)}
    return [name for name, body in bodies.items() if isinstance(body, dict) and is_empty(body.get("default"))]
