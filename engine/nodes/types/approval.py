"""The `approval` node: a decision of people with two buttons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from engine.language.codec import Json
from engine.language.diagnostics import Fault, suggest
from engine.language.template import has_expression
from engine.nodes.types.fields import Config, Duration, Label, Marked, NodeId, Person
from engine.nodes.types.prompts import (
    CLOCKS,
    ApprovalOutcome,
    Escalate,
    Form,
    RejectOutcome,
    RemindEvery,
    Timeout,
    WorkingHours,
    clock_conflicts,
    form_conflicts,
    too_few,
)
from engine.nodes.types.spec import AT, PERSON, Known, NodeSpec
from engine.types.lattice import MOMENTS, NULL, TEXT, Type, form_type, list_of, mapping_of, one_of


class ApprovalConfig(Config):
    """Asks for a decision with two buttons. Text never approves.

    With `required` several people have to agree, each with one vote, which they can change until one side stands. With
    `covers` the approval shows what a later node will do, and that node does exactly that or nothing.
    """

    message: Marked = Field(description="What is to be approved.")
    approvers: Annotated[list[Person], Field(min_length=1)] = Field(
        description="Who may decide: user ids, e-mail addresses, user groups (`@sre`), rotas (`rota:payments`), "
        "`manager` (of the requester), `channel`, `requester`, "
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
        """Require that somebody is left who may decide, and that the buttons differ."""
        yield from clock_conflicts(raw)
        if raw.get("exclude_requester") is True and raw.get("approvers") == ["requester"]:
            yield Fault(("approvers",), "with `exclude_requester` nobody is left who may decide")
        yield from too_few(raw)
        yield from form_conflicts(raw)
        yield from _editable(raw)
        if "valid_for" in raw and raw.get("covers") is None:
            yield Fault(("valid_for",), "`valid_for` counts only with `covers`", on_key=True)
        labels = raw.get("approve_label", "Approve"), raw.get("reject_label", "Reject")
        if labels[0] == labels[1] and not has_expression(labels[0]):
            field = "approve_label" if "approve_label" in raw else "reject_label"
            yield Fault((field,), "both buttons say the same")


def _editable(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Allow only fields of the form."""
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


def _output(known: Known) -> Type:
    """A decision. An edit with which a covered node could not run is refused."""
    with_ = known.with_
    editable = () if with_.get("covers") is not None else with_.get("editable") or ()
    return mapping_of(
        {
            "decision": one_of(["approve", "reject"]),
            "by": list_of(PERSON),
            "reason": Type(TEXT | NULL, why="nobody has to give a reason"),
            "values": form_type(with_.get("form"), editable=editable),
            "at": MOMENTS,
        }
    )


_STATIC = frozenset({"covers", "editable", "on_reject"})

SPEC = NodeSpec(
    config=ApprovalConfig,
    outputs={
        "decision": "`approve`, or with `on_reject: continue` also `reject`.",
        "by": "Who decided: a list of `{id, name, email}`; empty when the timeout did.",
        "reason": "What they wrote with it, `timeout` when the timeout decided, else null.",
        "values": "The fields of a form; an empty mapping otherwise.",
        "at": AT,
    },
    output=_output,
    verbatim_fields=_STATIC,
    static_fields=_STATIC,
    markup={"message": "mrkdwn"},
    exact=("approvers", *CLOCKS),
)
