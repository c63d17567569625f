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

    With `required` several people must approve, each with one vote, which they can change until one side has won. With
    `covers` the approval shows what a later node will do, and that node does exactly that or nothing.
    """

    message: Marked
    """The proposal to approve."""
    approvers: Annotated[list[Person], Field(min_length=1)]
    """People who may decide: user ids, e-mail addresses, user groups (`@sre`), rotas (`rota:payments`), `manager` (of the
    requester), `channel`, `requester`, `local:<user>` for the terminal."""
    exclude_requester: bool = False
    """Neither the requester nor anyone who edited the proposal may decide."""
    required: Annotated[int, Field(ge=1, le=50)] = 1
    """The number of different people who must approve."""
    veto: Literal["any", "majority"] = "any"
    """The rejections needed to reject: one (`any`), or more than half of `required` (`majority`)."""
    form: Form | None = None
    """The proposal as form fields, like in an `ask`, with its values as `default`. The output has them as `values`."""
    editable: list[str] = Field(default_factory=list)
    """The form fields that deciders can edit before they approve. An edit clears earlier votes."""
    require_reason: bool = False
    """A rejection needs a reason; it is `reason` in the output."""
    covers: NodeId | None = None
    """The id of a later node in the same list, of the type `shell`, `http`, `message`, `python`, or your own. The
    approval shows exactly what that node will do. The node runs only if approved, and fails if it would do anything
    else."""
    valid_for: Duration = 86400.0
    """With `covers`: how long after the approval the node may start."""
    approve_label: Label = "Approve"
    """The text of the first button."""
    reject_label: Label = "Reject"
    """The text of the second button."""
    style: Literal["primary", "danger"] = "primary"
    """The style of the first button: `primary` (green, the second is red), or `danger` (red, the second is plain)
    for destructive actions."""
    timeout: Timeout = None
    on_timeout: ApprovalOutcome = "fail"
    """After the timeout: the node fails, this is the decision, or `goto:<id>` jumps to a node of the same list,
    like `on_error: goto:<id>`."""
    on_reject: RejectOutcome = "stop"
    """After a rejection, by people or by `on_timeout: reject`. `stop`: the node fails with an error of type
    `rejected`. `goto:<id>` jumps to a node of the same list. `continue`: the node completes, and later nodes run
    unless their `if` checks `decision`; `validate` warns of steps that do not."""
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require that somebody is left who may decide, and that the buttons differ."""
        yield from clock_conflicts(raw)
        if raw.get("exclude_requester") is True and raw.get("approvers") == ["requester"]:
            yield Fault(("approvers",), "with `exclude_requester`, nobody is left to decide")
        yield from too_few(raw)
        yield from form_conflicts(raw)
        yield from _editable(raw)
        if "valid_for" in raw and raw.get("covers") is None:
            yield Fault(("valid_for",), "`valid_for` only applies with `covers`", on_key=True)
        labels = raw.get("approve_label", "Approve"), raw.get("reject_label", "Reject")
        if labels[0] == labels[1] and not has_expression(labels[0]):
            field = "approve_label" if "approve_label" in raw else "reject_label"
            yield Fault((field,), "both buttons have the same label")


def _editable(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Allow only fields of the form."""
    form, editable = raw.get("form"), raw.get("editable")
    if not editable or not isinstance(editable, list):
        return
    if form is None:
        yield Fault(("editable",), "`editable` needs a `form`", on_key=True)
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
            "reason": Type(TEXT | NULL, why="a reason is optional"),
            "values": form_type(with_.get("form"), editable=editable),
            "at": MOMENTS,
        }
    )


_STATIC = frozenset({"covers", "editable", "on_reject"})

SPEC = NodeSpec(
    config=ApprovalConfig,
    outputs={
        "decision": "`approve`, or with `on_reject: continue` also `reject`.",
        "by": "Who decided: a list of `{id, name, email}`; empty after a timeout.",
        "reason": "The reason given, `timeout` after a timeout, else null.",
        "values": "The fields of the form; without one an empty mapping.",
        "at": AT,
    },
    output=_output,
    verbatim_fields=_STATIC,
    static_fields=_STATIC,
    markup={"message": "mrkdwn"},
    exact=("approvers", *CLOCKS),
)
