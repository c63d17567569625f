"""The `ask` node: a question for people, answered by a reply, a choice, a form, or files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_serializer

from engine.forms.question import lacks_default
from engine.language.codec import Json, nfc
from engine.language.diagnostics import Fault, kind_of
from engine.language.template import has_expression
from engine.nodes.types.fields import SEEN, Config, FileSize, Label, Marked, Person, listed
from engine.nodes.types.prompts import (
    CLOCKS,
    AskOutcome,
    Escalate,
    Form,
    RemindEvery,
    Timeout,
    WorkingHours,
    clock_conflicts,
    form_conflicts,
)
from engine.nodes.types.spec import AT, FILES, PERSON, Known, NodeSpec
from engine.types.lattice import ANY, MOMENTS, NONE, TEXTS, Type, form_type, mapping_of, one_of

MOST_FILES = 10
"""Most files in one Slack message."""


def _choice(value: Any) -> Any:
    if isinstance(value, str):
        return {"value": value, "label": value}
    if not isinstance(value, dict | Choice):
        raise ValueError(f"expected text, or a mapping with `value`, not {kind_of(value)}")
    return value


class Choice(Config):
    """One button of an `ask`."""

    value: Annotated[str, Field(min_length=1, max_length=200), SEEN]
    """The `value` in the output if this is chosen."""
    label: Label | None = None
    """The text of the button. Default: the value."""
    style: Literal["primary", "danger"] | None = None
    """The style of the button."""

    @field_serializer("label")
    def _shown(self, label: str | None) -> str:
        return label or self.value


class AskConfig(Config):
    """Asks in the thread and waits for a reply, one of the choices, a form, or files."""

    message: Marked
    """The question."""
    choices: Annotated[
        list[Annotated[Choice, BeforeValidator(_choice)]] | None, Field(min_length=1, max_length=25)
    ] = None
    """Buttons instead of free text: texts, or mappings of `value`, `label` (at most 75 characters) and `style`
    (`primary` or `danger`). At most 25. People can also type a choice as a reply."""
    own_words: bool = False
    """With choices: true if any other reply is also an answer, as text. Its `value` is then null."""
    form: Form | None = None
    """A form instead of free text: `properties` and `required`, as in JSON Schema; see [Forms](forms.md)."""
    accept: Annotated[
        list[Literal["text", "files"]],
        Field(min_length=1, max_length=2),
        BeforeValidator(listed),
        WithJsonSchema(
            {
                "anyOf": [
                    {"enum": ["text", "files"]},
                    {"type": "array", "items": {"enum": ["text", "files"]}, "minItems": 1},
                ]
            }
        ),
    ] = ["text"]
    """The accepted replies: `text`, `files`, or `[text, files]`."""
    max_files: Annotated[int, Field(ge=1, le=MOST_FILES)] = MOST_FILES
    """With files: the most files."""
    max_size: FileSize = 10 * 2**20
    """With files: the largest size of one."""
    who: Annotated[list[Person], Field(min_length=1)] | None = None
    """The people who may answer. Default: the requester, or anyone in the channel if there is none."""
    timeout: Timeout = None
    on_timeout: AskOutcome = "fail"
    """After the timeout: the node fails, `default` is the answer (with a form the defaults of its fields), or
    `goto:<id>` jumps to a node of the same list, like `on_error: goto:<id>`."""
    default: str | None = None
    """The answer at the timeout, with `on_timeout: default`."""
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """The default belongs to `on_timeout: default` and is one of the choices; choices differ; one way to answer."""
        yield from _form_conflicts(raw)
        if raw.get("own_words") is True and raw.get("choices") is None:
            yield Fault(("own_words",), "`own_words` needs `choices`", on_key=True)
        takes_files = raw.get("accept") in ("files", ["files"], ["text", "files"], ["files", "text"])
        for other in ("choices", "form"):
            if takes_files and raw.get(other) is not None:
                yield Fault(
                    ("accept",),
                    f"files cannot answer `{other}`",
                    "ask for them in a separate node",
                    True,
                )
        for limit in ("max_files", "max_size"):
            if raw.get(limit) is not None and raw.get("accept") is None:
                yield Fault((limit,), f"`{limit}` is for files", "write `accept: files`", on_key=True)
        yield from clock_conflicts(raw)
        on_timeout = raw.get("on_timeout", "fail")
        if on_timeout == "default" and raw.get("default") is None and raw.get("form") is None:
            yield Fault(("on_timeout",), "`on_timeout: default` needs `default`, the answer to use")
        if on_timeout != "default" and raw.get("default") is not None:
            yield Fault(("default",), "`default` is used only with `on_timeout: default`", on_key=True)
        choices = raw.get("choices")
        if isinstance(choices, list):
            default = raw.get("default")
            # Mappings and not sets: they keep the order for the message.
            values: dict[str, None] = {}
            labels: dict[str, None] = {}
            for index, choice in enumerate(choices):
                entry = choice if isinstance(choice, dict) else {"value": choice}
                value = entry.get("value")
                label = entry.get("label", value)
                if not isinstance(value, str) or not isinstance(label, str) or has_expression(value):
                    return
                if nfc(value) in values or nfc(label) in labels:
                    yield Fault(("choices", index), f"the choice {label!r} appears twice")
                values[nfc(value)] = labels[nfc(label)] = None
            if isinstance(default, str) and not has_expression(default) and nfc(default) not in values:
                yield Fault(("default",), f"`default` is not one of the choices: {', '.join(values)}")


def _form_conflicts(raw: Mapping[str, Json]) -> Iterator[Fault]:
    form = raw.get("form")
    yield from form_conflicts(raw)
    if form is None or isinstance(form, str):
        return
    for other in ("choices", "default"):
        if raw.get(other) is not None:
            hint = "give the fields of the form a default" if other == "default" else "make them a field"
            yield Fault((other,), f"`{other}` and `form` cannot be used together", hint, on_key=True)
    missing = lacks_default(form) if raw.get("on_timeout") == "default" else []
    if missing:
        message = f"`on_timeout: default` needs a default in each required field: {', '.join(missing)}"
        yield Fault(("on_timeout",), message)


_BY_DEFAULT = "nobody answered and `on_timeout` applied"


def _output(known: Known) -> Type:
    with_ = known.with_
    values = form_type(with_.get("form"))
    by = PERSON.or_null(_BY_DEFAULT) if with_.get("on_timeout") == "default" else PERSON
    return mapping_of(
        {
            "text": TEXTS,
            "value": _chosen(with_, values),
            "values": values,
            "files": FILES,
            "by": by,
            "at": MOMENTS,
        }
    )


def _chosen(with_: Mapping[str, Json], values: Type) -> Type:
    if with_.get("form") is not None:
        single = list((values.fields or {}).values())
        return single[0] if len(single) == 1 else NONE if single else ANY
    choices = with_.get("choices")
    if choices is None:
        return NONE
    listed = choices if isinstance(choices, list) else []
    entries = [each.get("value") if isinstance(each, dict) else each for each in listed]
    known = [value for value in entries if isinstance(value, str) and not has_expression(value)]
    offered = one_of(known) if known and len(known) == len(entries) else TEXTS
    return offered.or_null("a free reply is also an answer") if with_.get("own_words") else offered


SPEC = NodeSpec(
    config=AskConfig,
    outputs={
        "text": "The reply as text; with choices the chosen label; a form on one line.",
        "value": "The value of the choice, or of a form's only field; null for free text.",
        "values": "The fields of a form by name; an empty field is null. Without a form an empty mapping.",
        "files": "The files of the reply: `{name, path, size, type}` each.",
        "by": "Who answered: `{id, name, email}`, null if unknown; null after a timeout.",
        "at": AT,
    },
    output=_output,
    markup={"message": "mrkdwn"},
    exact=("who", "choices", *CLOCKS),
    described={"A choice that is a mapping": Choice},
)
