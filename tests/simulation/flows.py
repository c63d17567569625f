"""The flows of the simulation, and what each of them says at its end: a model that knows nothing of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Answers = Mapping[str, str]
"""By the place of the question: the text that somebody wrote, or the label of the button; `-` where nobody did. What
was filled in, or approved, is under `<place>.<field>`."""

NOBODY = "-"


@dataclass(frozen=True)
class Sample:
    """A flow: its text, what it asks (by place) in every run, and what its message nodes say."""

    text: str
    says: Callable[[Answers], list[str]]
    shells: Callable[[Answers], list[str]] = lambda answers: []
    """The places of the commands that it runs."""
    args: Callable[[Answers], dict[str, list[str]]] = lambda answers: {}
    """By place: the arguments of those commands that depend on what people filled in."""


APPROVE = """
flow: deploy
nodes:
  - id: gate
    type: approval
    with: {message: "Deploy?", approvers: [ben@example.com, dev@example.com], on_reject: continue}
  - {id: apply, type: shell, if: "{{ nodes.gate.decision == 'approve' }}", with: {run: [deploy]}}
  - {id: tell, type: message, with: {text: "The decision is {{ nodes.gate.decision }}"}}
"""

ASK = """
flow: checkin
nodes:
  - {id: first, type: ask, with: {message: "How does it look?"}}
  - {id: second, type: ask, with: {message: "Why?"}}
  - {id: tell, type: message, with: {text: "{{ nodes.first.text }} because {{ nodes.second.text }}"}}
"""

CHOICE = """
flow: choose
nodes:
  - {id: what, type: ask, with: {message: "What now?", choices: [go, stop, wait]}}
  - {id: why, type: ask, with: {message: "Why?"}}
  - {id: tell, type: message, with: {text: "{{ nodes.what.text }}, for {{ nodes.why.text }}"}}
"""

SEVERAL = """
flow: several
nodes:
  - id: all
    type: parallel
    branches:
      left:
        - {id: one, type: ask, with: {message: "One?"}}
      middle:
        - {id: two, type: ask, with: {message: "Two?"}}
      right:
        - {id: three, type: approval, with: {message: "Three?", approvers: [channel], on_reject: continue}}
  - {id: tell, type: message, with: {text: "All three are answered"}}
"""

EACH = """
flow: rollout
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: apply, type: shell, with: {run: ["deploy", "{{ region }}"]}}
      - {id: confirm, type: ask, with: {message: "How is {{ region }}?"}}
      - {id: said, type: message, with: {text: "{{ region }} is {{ nodes.confirm.text }}"}}
  - {id: tell, type: message, with: {text: "Both regions are done"}}
"""

LATE = """
flow: late
nodes:
  - id: gate
    type: approval
    with: {message: "Quick?", approvers: [channel], timeout: 40s, on_timeout: reject, on_reject: continue}
  - id: note
    type: ask
    with: {message: "A word?", choices: [fine, bad], timeout: 30s, on_timeout: default, default: fine}
  - {id: tell, type: message, with: {text: "{{ nodes.gate.decision }} and {{ nodes.note.text }}"}}
"""

TELL = """
flow: tell
inputs:
  service: {type: string}
nodes:
  - {id: one, type: message, with: {text: "First {{ inputs.service }}"}}
  - {id: rest, type: wait, with: {for: 5s}}
  - {id: two, type: message, with: {text: "Second {{ inputs.service }}"}}
  - {id: run, type: shell, with: {run: [check]}}
  - {id: three, type: message, with: {text: "Third"}}
"""

QUORUM = """
flow: quorum
nodes:
  - id: gate
    type: approval
    with:
      message: "Both?"
      approvers: [ana@example.com, ben@example.com, dev@example.com]
      on_reject: continue
      required: 2
      remind_every: 1m
      escalate:
        - {after: 30s, to: [ben@example.com]}
  - {id: tell, type: message, with: {text: "Together: {{ nodes.gate.decision }}"}}
"""

TAKE_BACK = """
flow: takeback
nodes:
  - {id: sure, type: ask, with: {message: "Sure?", choices: [keep, change]}}
  - {id: tell, type: message, with: {text: "Sure: {{ nodes.sure.text }}"}}
"""

BOOKING = """
flow: booking
lock: harbour
nodes:
  - {id: dock, type: shell, with: {run: [dock]}}
  - {id: leave, type: shell, with: {run: [leave]}}
  - {id: tell, type: message, with: {text: "Gone again"}}
"""

STORM = """
flow: storm
inputs:
  service: {type: string}
triggers:
  - message: "ALERT {service} is down"
    dedupe: 30m
nodes:
  - {id: seen, type: ask, with: {message: "Who has seen it?"}}
  - {id: tell, type: message, with: {text: "{{ inputs.service }} was seen by {{ nodes.seen.text }}"}}
"""


def _approve(answers: Answers) -> list[str]:
    return [f"The decision is {answers['gate'].lower()}"]


def _late(answers: Answers) -> list[str]:
    gate = "reject" if answers["gate"] == NOBODY else answers["gate"].lower()
    return [f"{gate} and {'fine' if answers['note'] == NOBODY else answers['note']}"]


def _each(answers: Answers) -> list[str]:
    said = [f"{region} is {answers[f'each[{n}]/confirm']}" for n, region in enumerate(("eu", "us"))]
    return [*said, "Both regions are done"]


def _tell(answers: Answers) -> list[str]:
    return [f"First {answers['service']}", f"Second {answers['service']}", "Third"]


SAMPLES: dict[str, Sample] = {
    "deploy": Sample(APPROVE, _approve, lambda a: ["apply"] if a["gate"] == "Approve" else []),
    "checkin": Sample(ASK, lambda a: [f"{a['first']} because {a['second']}"]),
    "choose": Sample(CHOICE, lambda a: [f"{a['what']}, for {a['why']}"]),
    "several": Sample(SEVERAL, lambda a: ["All three are answered"]),
    "rollout": Sample(EACH, _each, lambda a: ["each[0]/apply", "each[1]/apply"]),
    "late": Sample(LATE, _late),
    "quorum": Sample(QUORUM, lambda a: [f"Together: {a['gate'].lower()}"]),
    "takeback": Sample(TAKE_BACK, lambda a: [f"Sure: {a['sure']}"]),
    "booking": Sample(BOOKING, lambda a: ["Gone again"], lambda a: ["dock", "leave"]),
    "storm": Sample(STORM, lambda a: [f"db was seen by {a['seen']}"]),
    "tell": Sample(TELL, _tell, lambda a: ["run"]),
}
