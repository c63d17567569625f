"""Flows in which a rejection needs a reason, and whose forms have several pages."""

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
      on_reject: continue
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
      on_reject: continue
      required: 2
      veto: majority
      require_reason: true
  - {id: apply, type: shell, if: "{{ nodes.gate.decision == 'approve' }}", with: {run: [apply]}}
  - {id: tell, type: message, with: {text: "Council: {{ nodes.gate.decision }}, {{ nodes.gate.reason }}"}}
"""

# In the simulation a page holds six fields.
SURVEY = """
flow: survey
nodes:
  - id: what
    type: ask
    with:
      message: "A long form?"
      who: [channel]
      form:
        properties:
          name: {type: string, title: Name, minLength: 3, maxLength: 40}
          mail: {type: string, format: email, title: Mail}
          count: {type: integer, minimum: 1, maximum: 99999, title: How many}
          size: {type: string, enum: [small, large], title: Size}
          remark: {type: string, title: Remark}
          place: {type: string, title: Place}
          street: {type: string, title: Street}
          billmail: {type: string, format: email, title: Mail for the bill}
          weight: {type: integer, minimum: 1, maximum: 99999, title: Weight}
          colour: {type: string, enum: [red, green], title: Colour}
          wish: {type: string, title: Wish}
          aim: {type: string, title: Aim}
          last: {type: string, title: Last words}
          more: {type: string, title: More}
        required: [name, mail, count, size, place, street, billmail, weight, colour, last]
  - id: pack
    type: shell
    with: {run: [pack, "{{ nodes.what.values.name }}", "{{ nodes.what.values.weight }}", "{{ nodes.what.values.last }}"]}
  - id: tell
    type: message
    with: {text: "{{ nodes.what.values.mail }}, {{ nodes.what.values.street }}, {{ nodes.what.values.last }}"}
"""

SETTINGS = """
flow: settings
nodes:
  - id: gate
    type: approval
    with:
      message: "Are the settings right?"
      approvers: [ana@example.com, ben@example.com, dev@example.com]
      on_reject: continue
      form:
        properties:
          one: {type: string, default: v0001, title: One}
          two: {type: integer, default: 1002, minimum: 1, maximum: 99999, title: Two}
          three: {type: string, default: v0003, title: Three}
          four: {type: string, enum: [eu, us], default: eu, title: Four}
          five: {type: string, default: v0005, title: Five}
          six: {type: integer, default: 1006, minimum: 1, maximum: 99999, title: Six}
          seven: {type: string, default: v0007, title: Seven}
          eight: {type: integer, default: 1008, minimum: 1, maximum: 99999, title: Eight}
        required: [one, two, three, four, five, six, seven, eight]
      editable: [one, two, three, four, five, six, seven, eight]
      covers: apply
  - id: apply
    type: shell
    with: {run: [apply, "{{ nodes.gate.values.one }}", "{{ nodes.gate.values.two }}", "{{ nodes.gate.values.eight }}"]}
  - id: tell
    type: message
    with: {text: "Settings: {{ nodes.gate.decision }} of {{ nodes.gate.values.one }} and {{ nodes.gate.values.seven }}"}
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
    "survey": Sample(
        SURVEY,
        lambda a: [f"{a['what.mail']}, {a['what.street']}, {a['what.last']}"],
        lambda a: ["pack"],
        lambda a: {"pack": ["pack", a["what.name"], a["what.weight"], a["what.last"]]},
    ),
    "settings": Sample(
        SETTINGS,
        lambda a: [f"Settings: {a['gate'].lower()} of {a['gate.one']} and {a['gate.seven']}"],
        lambda a: ["apply"] if a["gate"] == "Approve" else [],
        lambda a: {"apply": ["apply", a["gate.one"], a["gate.two"], a["gate.eight"]]},
    ),
}
ALL: dict[str, Sample] = {**BEFORE, **FURTHER_SAMPLES}
