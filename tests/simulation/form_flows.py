"""Flows whose questions are forms, whose approvals can be changed, and whose questions are for certain people."""

from __future__ import annotations

from tests.simulation.flows import SAMPLES, Answers, Sample

ORDER = """
flow: order
nodes:
  - id: what
    type: ask
    with:
      message: "What shall it be?"
      who: [channel]
      form:
        properties:
          name: {type: string, title: Name, minLength: 3, maxLength: 40}
          mail: {type: string, format: email, title: Mail}
          count: {type: integer, minimum: 1, maximum: 99999, title: How many}
          size: {type: string, enum: [small, large], title: Size}
          remark: {type: string, title: Remark}
        required: [name, mail, count, size]
  - {id: pack, type: shell, with: {run: [pack, "{{ nodes.what.values.name }}", "{{ nodes.what.values.count }}"]}}
  - {id: why, type: ask, with: {message: "Why?"}}
  - id: tell
    type: message
    with:
      text: "{{ nodes.what.values.count }} {{ nodes.what.values.size }} for {{ nodes.what.values.name }}, {{ nodes.why.text }}"
"""

RELEASE = """
flow: release
nodes:
  - id: gate
    type: approval
    with:
      message: "Release?"
      approvers: [ana@example.com, ben@example.com, dev@example.com]
      on_reject: continue
      required: 2
      form:
        properties:
          version: {type: string, default: v0000, title: Version}
          copies: {type: integer, default: 1000, minimum: 1, maximum: 99999, title: Copies}
          region: {type: string, enum: [eu, us], default: eu, title: Region}
          remark: {type: string, title: Remark}
        required: [version, copies, region]
      editable: [version, copies, remark]
      covers: apply
  - id: apply
    type: shell
    with: {run: [release, "{{ nodes.gate.values.version }}", "{{ nodes.gate.values.copies }}"]}
  - {id: tell, type: message, with: {text: "Release: {{ nodes.gate.decision }} of {{ nodes.gate.values.version }}"}}
"""

CAREFUL = """
flow: careful
nodes:
  - id: gate
    type: approval
    with:
      message: "Careful?"
      approvers: [ben@example.com, dev@example.com]
      on_reject: continue
      exclude_requester: true
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
  - {id: tell, type: message, with: {text: "Careful: {{ nodes.gate.decision }} of {{ nodes.gate.values.percent }}"}}
"""

RELAY = """
flow: relay
nodes:
  - id: both
    type: parallel
    branches:
      left:
        - {id: word, type: ask, with: {message: "A word?", who: [ana@example.com]}}
      right:
        - id: slip
          type: ask
          with:
            message: "A slip?"
            who: [ben@example.com]
            form:
              properties:
                name: {type: string, title: Name, minLength: 3, maxLength: 40}
                mail: {type: string, format: email, title: Mail}
              required: [name, mail]
        - {id: note, type: shell, with: {run: [note, "{{ nodes.slip.values.name }}", "{{ nodes.slip.values.mail }}"]}}
  - {id: sure, type: ask, with: {message: "Sure?", choices: [keep, change], who: [dev@example.com]}}
  - {id: tell, type: message, with: {text: "Relayed: {{ nodes.sure.text }}"}}
"""


def _order(answers: Answers) -> list[str]:
    what = {name: answers[f"what.{name}"] for name in ("count", "size", "name")}
    return [f"{what['count']} {what['size']} for {what['name']}, {answers['why']}"]


def _decided(answers: Answers, which: str) -> str:
    return f"{answers['gate'].lower()} of {answers[f'gate.{which}']}"


def _gated(answers: Answers, place: str) -> list[str]:
    return [place] if answers["gate"] == "Approve" else []


FORM_SAMPLES: dict[str, Sample] = {
    "order": Sample(
        ORDER,
        _order,
        lambda a: ["pack"],
        lambda a: {"pack": ["pack", a["what.name"], a["what.count"]]},
    ),
    "release": Sample(
        RELEASE,
        lambda a: [f"Release: {_decided(a, 'version')}"],
        lambda a: _gated(a, "apply"),
        lambda a: {"apply": ["release", a["gate.version"], a["gate.copies"]]},
    ),
    "careful": Sample(
        CAREFUL,
        lambda a: [f"Careful: {_decided(a, 'percent')}"],
        lambda a: _gated(a, "shift"),
        lambda a: {"shift": ["shift", a["gate.label"], a["gate.percent"]]},
    ),
    "relay": Sample(
        RELAY,
        lambda a: [f"Relayed: {a['sure']}"],
        lambda a: ["both[right]/note"],
        lambda a: {"both[right]/note": ["note", a["both[right]/slip.name"], a["both[right]/slip.mail"]]},
    ),
}
ALL: dict[str, Sample] = {**SAMPLES, **FORM_SAMPLES}
