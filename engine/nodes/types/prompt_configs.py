"""What may stand under `with:` of the types that ask people: `ask` and `approval`; `engine.nodes.types.configs` has the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.forms import FORM_SCHEMA, form_faults
from engine.forms.ask import lacks_default
from engine.language.codec import Json
from engine.language.diagnostics import Fault, kind_of, suggest
from engine.language.template import has_expression
from engine.nodes.types.configs import MAX_NAME, NAME, Config, Duration, FileSize, Label, Person, Text
from engine.nodes.types.prompt_clocks import (
    ApprovalOutcome,
    AskOutcome,
    Escalate,
    RejectOutcome,
    RemindEvery,
    Timeout,
    WorkingHours,
    clock_conflicts,
)

Form: TypeAlias = Annotated[dict[str, Any], WithJsonSchema(FORM_SCHEMA)]
"""Fields to fill in; `engine.forms` checks and settles them."""

MOST_FILES = 10
"""What one message of Slack can hold."""


def _choice(value: Any) -> Any:
    if isinstance(value, str):
        return {"value": value, "label": value}
    if not isinstance(value, dict | Choice):
        raise ValueError(f"expected text, or a mapping with `value`, not {kind_of(value)}")
    return value


def _node_id(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value) or len(value) > MAX_NAME:
        raise ValueError(f"expected the id of a node, not {kind_of(value)}")
    return value


NodeId: TypeAlias = Annotated[
    str, BeforeValidator(_node_id), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})
]


class Choice(Config):
    """One button of an `ask`."""

    value: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="What `value` of the output is when this is chosen."
    )
    label: Label | None = Field(None, description="What the button says; the value when it is left out.")
    style: Literal["primary", "danger"] | None = Field(None, description="How the button looks.")

    def button(self) -> dict[str, Json]:
        """Value, label and style as the prompt carries them."""
        return {"value": self.value, "label": self.label or self.value, "style": self.style}


def _accept(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class AskConfig(Config):
    """Asks in the thread and waits: for a reply, for one of the choices, for a form, or for files."""

    message: Text = Field(description="The question.")
    choices: Annotated[
        list[Annotated[Choice, BeforeValidator(_choice)]] | None, Field(min_length=1, max_length=25)
    ] = Field(
        None,
        description="Buttons in place of free text: texts, or mappings of `value`, `label` (at most 75 characters) "
        "and `style` (`primary` or `danger`). At most 25. One of them can also be typed as a reply.",
    )
    own_words: bool = Field(
        False,
        description="With choices: whether any other reply is an answer too, as text. Its `value` is null then.",
    )
    form: Form | None = Field(
        None,
        description="Fields to fill in, in place of free text: `properties` and `required`, as in JSON Schema; "
        "see [Forms](forms.md).",
    )
    accept: Annotated[
        list[Literal["text", "files"]],
        Field(min_length=1, max_length=2),
        BeforeValidator(_accept),
        WithJsonSchema(
            {
                "anyOf": [
                    {"enum": ["text", "files"]},
                    {"type": "array", "items": {"enum": ["text", "files"]}, "minItems": 1},
                ]
            }
        ),
    ] = Field(["text"], description="What counts as a reply: `text`, `files`, or `[text, files]`.")
    max_files: Annotated[int, Field(ge=1, le=MOST_FILES)] = Field(
        MOST_FILES, description="With files: how many at most."
    )
    max_size: FileSize = Field(10 * 2**20, description="With files: how large one may be.")
    who: Annotated[list[Person], Field(min_length=1)] | None = Field(
        None,
        description="Who may answer. Left out: the requester, or anyone in the channel where there is none.",
    )
    timeout: Timeout = None
    on_timeout: AskOutcome = Field(
        "fail",
        description="What happens at the timeout: the node fails, `default` is the answer (with a form the defaults of "
        "its fields), or `goto:<id>` goes to a node of the same list, as `on_error: goto:<id>` does.",
    )
    default: str | None = Field(None, description="The answer at the timeout, with `on_timeout: default`.")
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None
    undo: Duration | None = Field(
        None,
        description="How long the answer can be taken back. What follows starts only then. Left out: an answer is "
        "final at once.",
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """The default belongs to `on_timeout: default` and is one of the choices; choices differ; one way to answer."""
        yield from _form_conflicts(raw)
        yield from _accept_conflicts(raw)
        yield from clock_conflicts(raw)
        on_timeout = raw.get("on_timeout", "fail")
        if on_timeout == "default" and raw.get("default") is None and raw.get("form") is None:
            yield Fault(("on_timeout",), "`on_timeout: default` needs `default`, the answer to take")
        if on_timeout != "default" and raw.get("default") is not None:
            yield Fault(("default",), "`default` is taken only with `on_timeout: default`", on_key=True)
        choices = raw.get("choices")
        if isinstance(choices, list):
            yield from _choice_conflicts(choices, raw.get("default"))


def _form_faults(raw: Mapping[str, Json]) -> Iterator[Fault]:
    form = raw.get("form")
    if has_expression(form) and isinstance(form, str):
        yield Fault(("form",), "a form is not evaluated as a whole", "expressions stand in its fields")
    elif form is not None:
        for fault in form_faults(form):
            yield fault.under(("form",))


def _form_conflicts(raw: Mapping[str, Json]) -> Iterator[Fault]:
    form = raw.get("form")
    yield from _form_faults(raw)
    if form is None or isinstance(form, str):
        return
    for other in ("choices", "default"):
        if raw.get(other) is not None:
            hint = "give the fields of the form a default" if other == "default" else "make them a field"
            yield Fault((other,), f"`{other}` and `form` exclude each other", hint, on_key=True)
    missing = lacks_default(form) if raw.get("on_timeout") == "default" else []
    if missing:
        message = f"`on_timeout: default` needs a default in each required field: {', '.join(missing)}"
        yield Fault(("on_timeout",), message)


def _accept_conflicts(raw: Mapping[str, Json]) -> Iterator[Fault]:
    if raw.get("own_words") is True and raw.get("choices") is None:
        yield Fault(("own_words",), "`own_words` stands beside `choices`, and there are none", on_key=True)
    takes_files = raw.get("accept") in ("files", ["files"], ["text", "files"], ["files", "text"])
    for other in ("choices", "form"):
        if takes_files and raw.get(other) is not None:
            yield Fault(
                ("accept",), f"files are no answer to `{other}`", "ask for them in a node of its own", True
            )
    for limit in ("max_files", "max_size"):
        if raw.get(limit) is not None and raw.get("accept") is None:
            yield Fault((limit,), f"`{limit}` is for files", "write `accept: files`", on_key=True)


def _choice_conflicts(choices: list[Json], default: Json) -> Iterator[Fault]:
    # Mappings and not sets: they keep the order for the message.
    values: dict[str, None] = {}
    labels: dict[str, None] = {}
    for index, choice in enumerate(choices):
        entry = choice if isinstance(choice, dict) else {"value": choice}
        value = entry.get("value")
        label = entry.get("label", value)
        if not isinstance(value, str) or not isinstance(label, str) or has_expression(value):
            return
        if value in values or label in labels:
            yield Fault(("choices", index), f"the choice {label!r} stands here twice")
        values[value] = labels[label] = None
    if isinstance(default, str) and not has_expression(default) and default not in values:
        yield Fault(("default",), f"`default` is not one of the choices: {', '.join(values)}")


class ApprovalConfig(Config):
    """Asks for a decision with two buttons. Text never approves.

    With `required` several people have to agree, each with one vote, which they can change until one side stands. With
    `covers` the approval shows what a later node will do, and that node does exactly that or nothing.
    """

    message: Text = Field(description="What is to be approved.")
    approvers: Annotated[list[Person], Field(min_length=1)] = Field(
        description="Who may decide: user ids, e-mail addresses, user groups (`@sre`), `channel`, `requester`, "
        "`local:<user>` for the terminal."
    )
    exclude_requester: bool = Field(
        False, description="Whoever asked for the run may not decide, nor may who changed what is proposed."
    )
    required: Annotated[int, Field(ge=1, le=50)] = Field(
        1, description="How many different people have to approve."
    )
    veto: Literal["any", "majority"] = Field(
        "any",
        description="How many rejections reject it: the first one (`any`), or more than half of `required` "
        "(`majority`).",
    )
    form: Form | None = Field(
        None,
        description="What is proposed, as fields with their values as `default`, like the form of an `ask`. The output "
        "has them as `values`.",
    )
    editable: list[str] = Field(
        default_factory=list,
        description="The fields of the form that whoever may decide can change before it is approved. Votes before that "
        "are void.",
    )
    require_reason: bool = Field(False, description="Whoever rejects says why; it is `reason` of the output.")
    covers: NodeId | None = Field(
        None,
        description="The id of a later node in the same list, of a type that does something: `shell`, `http`, "
        "`message`, `python`, or your own. The approval shows what it will do. It runs only if it was approved, and "
        "fails if it would do anything else by then.",
    )
    valid_for: Duration = Field(
        86400.0, description="With `covers`: how long after the approval that node may still start."
    )
    approve_label: Label = Field("Approve", description="What the first button says.")
    reject_label: Label = Field("Reject", description="What the second button says.")
    style: Literal["primary", "danger"] = Field(
        "primary",
        description="How the first button looks: `primary` (green, the second is red), or `danger` (red, the second "
        "is plain) for what destroys something.",
    )
    timeout: Timeout = None
    on_timeout: ApprovalOutcome = Field(
        "fail",
        description="What happens at the timeout: the node fails, this is the decision, or `goto:<id>` goes to a node "
        "of the same list, as `on_error: goto:<id>` does.",
    )
    on_reject: RejectOutcome = Field(
        "stop",
        description="What happens when it is rejected, by people or by `on_timeout: reject`. `stop`: the node fails with "
        "an error of type `rejected`, as any node can fail. `goto:<id>` goes to a node of the same list. `continue`: the "
        "node completes, and what follows runs unless its own `if` looks at `decision`; `validate` warns of steps that "
        "do not.",
    )
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Somebody must be left who may decide, and the buttons must differ."""
        yield from clock_conflicts(raw)
        if raw.get("exclude_requester") is True and raw.get("approvers") == ["requester"]:
            yield Fault(("approvers",), "with `exclude_requester` nobody is left who may decide")
        yield from too_few(raw)
        yield from _form_faults(raw)
        yield from _editable(raw)
        if "valid_for" in raw and raw.get("covers") is None:
            yield Fault(("valid_for",), "`valid_for` counts only with `covers`", on_key=True)
        labels = raw.get("approve_label", "Approve"), raw.get("reject_label", "Reject")
        if labels[0] == labels[1] and not has_expression(labels[0]):
            field = "approve_label" if "approve_label" in raw else "reject_label"
            yield Fault((field,), "both buttons say the same")


def too_few(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """More people have to approve than are listed, as far as people are listed one by one."""
    required, approvers = raw.get("required"), raw.get("approvers")
    if isinstance(required, bool) or not isinstance(required, int) or not isinstance(approvers, list):
        return
    people = {entry for entry in approvers if isinstance(entry, str)}
    if any(entry.startswith("@") or entry == "channel" or has_expression(entry) for entry in people):
        return
    count = len(people - {"requester"} if raw.get("exclude_requester") is True else people)
    if people and required > 1 and count < required:
        told = (
            "only one person is listed who may" if count == 1 else f"only {count} people are listed who may"
        )
        yield Fault(("required",), f"{required} people have to approve, and {told}")


def _editable(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Only fields of the form can be changed."""
    form, editable = raw.get("form"), raw.get("editable")
    if not editable or not isinstance(editable, list):
        return
    if form is None:
        yield Fault(("editable",), "`editable` names fields of `form`, and there is none", on_key=True)
        return
    properties = form.get("properties") if isinstance(form, dict) else None
    if not isinstance(properties, dict):
        return
    for index, name in enumerate(editable):
        if isinstance(name, str) and name not in properties:
            yield Fault(
                ("editable", index), f"the form has no field `{name[:80]}`", suggest(name, properties)
            )
