"""Flows in which a rejection needs a reason."""

from __future__ import annotations

from tests.simulation.flows import Answers, Sample
from tests.simulation.form_flows import ALL as BEFORE

STRICT = """
flow: strict
nodes:
  - id: gate
    type: approval
    with:
      message: "Strict?"
      approvers: [ana@example.com, ben@example.com, dev@example.com]
      require_reason: true
      form:
        properties:
          percent: {type: integer, default: 1000, minimum: 1, maximum: 99999, title: Percent}
          label: {type: string, default: v0000, title: Label}
        required: [percent, label]
      editable: [percent, label]
  - id: shift
    type: shell
    if: "{{ nodes.gate.decision == 'approve' }}"
    with: {run: [shift, "{{ nodes.gate.values.label }}", "{{ nodes.gate.values.percent }}"]}
  - id: tell
    type: message
    with: {text: "Strict: {{ nodes.gate.decision }} of {{ nodes.gate.values.percent }}, {{ nodes.gate.reason }}"}
"""

COUNCIL = """
flow: council
nodes:
  - id: gate
    type: approval
    with:
      message: "What says the council?"
      approvers: [ana@example.com, ben@example.com, dev@example.com]
      required: 2
      veto: majority
      require_reason: true
  - id: apply
    type: shell
    if: "{{ nodes.gate.decision == 'approve' }}"
    with: {run: [apply]}
  - id: tell
    type: message
    with: {text: "Council: {{ nodes.gate.decision }}, {{ nodes.gate.reason }}"}
"""


def _reason(answers: Answers) -> str:
    return answers.get("gate.reason", "null")


def _strict(answers: Answers) -> list[str]:
    return [f"Strict: {answers['gate'].lower()} of {answers['gate.percent']}, {_reason(answers)}"]


FURTHER_SAMPLES: dict[str, Sample] = {
    "strict": Sample(
        STRICT,
        _strict,
        lambda a: ["shift"] if a["gate"] == "Approve" else [],
        lambda a: {"shift": ["shift", a["gate.label"], a["gate.percent"]]},
    ),
    "council": Sample(
        COUNCIL,
        lambda a: [f"Council: {a['gate'].lower()}, {_reason(a)}"],
        lambda a: ["apply"] if a["gate"] == "Approve" else [],
    ),
}
ALL: dict[str, Sample] = {**BEFORE, **FURTHER_SAMPLES}
