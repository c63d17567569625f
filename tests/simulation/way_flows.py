"""Flows that are started by a form, after a slash command that does not say all or from a message, or by a reaction."""

from __future__ import annotations

from tests.simulation.flows import Sample
from tests.simulation.further_flows import ALL as BEFORE

# In the simulation a page holds six fields.
FERRY = """
flow: ferry
inputs:
  to: {type: string}
  count: {type: integer}
  speed: {type: string, choices: [slow, fast]}
  stops: {type: array, items: {type: integer}}
  note: {type: string, required: false}
  deck: {type: string}
  crew: {type: integer}
  flag: {type: string}
nodes:
  - {id: load, type: shell, with: {run: [load, "{{ inputs.to }}", "{{ inputs.crew }}", "{{ inputs.flag }}"]}}
  - {id: board, type: ask, with: {message: "All on board?"}}
  - id: tell
    type: message
    with: {text: "To {{ inputs.to }} with {{ inputs.count }} on {{ inputs.deck }}, {{ inputs.speed }}: {{ nodes.board.text }}"}
"""

LOOK = """
flow: look
inputs:
  what: {type: string}
  link: {type: string}
  depth: {type: integer}
triggers:
  - {shortcut: Look into this, message_as: what, link_as: link}
nodes:
  - {id: seen, type: ask, with: {message: "Who has seen it?"}}
  - {id: tell, type: message, with: {text: "{{ inputs.what }}, {{ inputs.depth }} deep: {{ nodes.seen.text }}"}}
"""

MEND = """
flow: mend
inputs:
  what: {type: string}
  tool: {type: string}
triggers:
  - {shortcut: Mend this, message_as: what}
nodes:
  - {id: mend, type: shell, with: {run: [mend, "{{ inputs.what }}", "{{ inputs.tool }}"]}}
  - {id: tell, type: message, with: {text: "Mended {{ inputs.what }} with {{ inputs.tool }}"}}
"""

# One that has ended soon, so that what comes late finds it ended, and one that is not.
RESCUE = """
flow: rescue
inputs:
  what: {type: string}
  link: {type: string}
triggers:
  - {reaction: sos, message_as: what, link_as: link}
nodes:
  - {id: row, type: shell, with: {run: [row, "{{ inputs.what }}"]}}
  - {id: tell, type: message, with: {text: "Rescued {{ inputs.what }}"}}
"""

ALARM = """
flow: alarm
inputs:
  what: {type: string}
triggers:
  - {reaction: rotating_light, message_as: what}
nodes:
  - {id: who, type: ask, with: {message: "Who goes there?"}}
  - {id: tell, type: message, with: {text: "For {{ inputs.what }} goes {{ nodes.who.text }}"}}
"""

COMMANDS, SHORTCUTS = ("ferry",), ("look", "mend")
REACTIONS = {"rescue": "sos", "alarm": "rotating_light"}
"""The flows by the way in which they are started here."""

WAY_SAMPLES: dict[str, Sample] = {
    "ferry": Sample(
        FERRY,
        lambda a: [
            f"To {a['inputs.to']} with {a['inputs.count']} on {a['inputs.deck']}, {a['inputs.speed']}: {a['board']}"
        ],
        lambda a: ["load"],
        lambda a: {"load": ["load", a["inputs.to"], a["inputs.crew"], a["inputs.flag"]]},
    ),
    "look": Sample(LOOK, lambda a: [f"{a['inputs.what']}, {a['inputs.depth']} deep: {a['seen']}"]),
    "mend": Sample(
        MEND,
        lambda a: [f"Mended {a['inputs.what']} with {a['inputs.tool']}"],
        lambda a: ["mend"],
        lambda a: {"mend": ["mend", a["inputs.what"], a["inputs.tool"]]},
    ),
    "rescue": Sample(
        RESCUE,
        lambda a: [f"Rescued {a['inputs.what']}"],
        lambda a: ["row"],
        lambda a: {"row": ["row", a["inputs.what"]]},
    ),
    "alarm": Sample(ALARM, lambda a: [f"For {a['inputs.what']} goes {a['who']}"]),
}
ALL: dict[str, Sample] = {**BEFORE, **WAY_SAMPLES}
