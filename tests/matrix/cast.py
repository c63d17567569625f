"""Who comes to the doors, and the flows behind them. Whoever must never get in is listed as well: only the gate refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping

from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome, Runner
from tests.support.inprocess import Town

OTHER_TEAM = "T0OTHER01"

CAST: Mapping[str, str] = {
    "ana": "started the run; listed as an approver too",
    "ben": "listed by id",
    "gia": "listed by a user group",
    "mia": "listed by e-mail address",
    "ola": "listed by id, not in the channel",
    "ed": "listed by id; changed what is approved",
    "hana": "listed by id; handed the question over",
    "hal": "got the question from Hana, is listed nowhere",
    "vera": "listed by id; gave the first of two votes where one was given",
    "adam": "an admin of the bot (SAYSO_ADMINS), listed nowhere",
    "cleo": "a bystander in the channel",
    "out": "a member of the workspace who is not in the channel",
    "gus": "a guest (several channels); listed by id",
    "ugo": "a guest (one channel); listed by id",
    "stan": "a stranger of Slack Connect; listed by id",
    "otto": "somebody of another team; listed by id",
    "rob": "another bot; listed by id",
    "dee": "deactivated; listed by id",
    "slackbot": "Slackbot, by which workflows act; listed by id",
    "ghost": "somebody whom Slack does not know; listed by id",
}
"""Everybody of Slack, by name."""

PEOPLE = ("ana", "ben", "gia", "mia", "ola", "ed", "hana", "hal", "vera", "adam", "cleo", "out")
NEVER = tuple(name for name in CAST if name not in PEOPLE)
IN_CHANNEL = tuple(name for name in CAST if name not in ("ola", "out"))
TERMINAL = ("lena", "otis")
"""People at the terminal: Lena is listed as `local:lena`, Otis is not."""

_LISTED = (
    "ben",
    "ola",
    "ed",
    "hana",
    "vera",
    "gus",
    "ugo",
    "stan",
    "otto",
    "rob",
    "dee",
    "slackbot",
    "ghost",
)


def id_of(name: str) -> str:
    """The id in Slack of somebody in the cast."""
    return "USLACKBOT" if name == "slackbot" else f"U0LOCAL{name.upper()}"


def entries(*more: str) -> str:
    """A list of entries for a flow: everybody who is listed, each in their own way."""
    listed = [id_of(name) for name in _LISTED]
    return json.dumps([*listed, "@signers", "mia@example.com", "local:lena", *more])


def settle_in(town: Town) -> None:
    """Let everybody come."""
    state = town.core.state
    for name in CAST:
        if name not in ("ana", "ben", "cleo", "ghost", "slackbot"):
            town.newcomer(name, member=name not in ("ola", "out"))
    slackbot = town.newcomer("slackbot", member=False)
    state.users.pop(slackbot.id)
    slackbot.id = id_of("slackbot")
    state.users[slackbot.id] = slackbot
    town.channel().members.append(id_of("slackbot"))
    town.user("gus").is_restricted = True
    town.user("ugo").is_restricted = town.user("ugo").is_ultra_restricted = True
    town.user("stan").team_id, town.user("stan").is_stranger = OTHER_TEAM, True
    town.user("otto").team_id = OTHER_TEAM
    town.user("rob").is_bot, town.user("rob").bot_id = True, "B0OTHER01"
    town.user("dee").deleted = True
    state.groups["S0SIGN"] = type(state.groups["S0LOCALSRE"])("S0SIGN", "signers", "Signers", [id_of("gia")])


# --- the flows ---------------------------------------------------------------------------------------------

_FORM = """
      form:
        properties:
          size: {type: integer, title: Size, minimum: 1, maximum: 1000, default: 3}
          place: {type: string, title: Place, default: here}
        required: [size]
"""

FLOWS: Mapping[str, str] = {
    "gate": f"""
flow: gate
nodes:
  - id: gate
    type: approval
    with:
      message: "Roll out?"
      approvers: {entries("requester")}
      exclude_requester: true
      required: 2
      require_reason: true
      timeout: 10d{_FORM}      editable: [size]
""",
    "mine": """
flow: mine
nodes:
  - {id: q, type: ask, with: {message: "Your word?", timeout: 10d}}
""",
    "listed": f"""
flow: listed
nodes:
  - {{id: q, type: ask, with: {{message: "Where?", who: {entries()}, choices: [eu, us], timeout: 10d}}}}
""",
    "text": f"""
flow: text
nodes:
  - {{id: q, type: ask, with: {{message: "Say it?", who: {entries()}, timeout: 10d}}}}
""",
    "form": f"""
flow: form
nodes:
  - id: q
    type: ask
    with:
      message: "Fill it in?"
      who: {entries()}
      timeout: 10d{_FORM}
""",
    "day": f"""
flow: day
nodes:
  - id: q
    type: ask
    with:
      message: "Which day?"
      who: {entries()}
      timeout: 10d
      form: {{properties: {{day: {{type: string, format: date}}}}, required: [day]}}
""",
    "everybody": """
flow: everybody
nodes:
  - {id: q, type: ask, with: {message: "Anybody?", who: [channel], choices: [yes please, no thanks], timeout: 10d}}
""",
    "two": """
flow: two
nodes:
  - id: both
    type: parallel
    branches:
      one: [{id: a, type: ask, with: {message: "One?", who: [channel]}}]
      two: [{id: b, type: ask, with: {message: "Two?", who: [channel]}}]
""",
    "cut": """
flow: cut
nodes:
  - {id: work, type: shell, with: {run: [cut]}}
""",
    "broken": """
flow: broken
nodes:
  - {id: work, type: shell, on_error: ask, with: {run: [fail]}}
""",
    "needs": """
flow: needs
inputs: {region: {type: string, description: Which region}}
triggers:
  - {mention: "everybody needs"}
nodes:
  - {id: done, type: set, with: {x: "{{ inputs.region }}"}}
""",
    "openly": """
flow: openly
inputs: {what: {type: string, default: nothing}}
triggers:
  - {mention: "please openly"}
  - {message: "openly is down", from_bots: false}
  - {reaction: rotating_light}
  - {shortcut: Look openly, message_as: what}
nodes:
  - {id: done, type: set, with: {x: 1}}
""",
    "closely": f"""
flow: closely
allowed_to_start: {entries()}
inputs: {{what: {{type: string, default: nothing}}}}
triggers:
  - {{mention: "please closely"}}
  - {{message: "closely is down", from_bots: false}}
  - {{reaction: lock}}
  - {{shortcut: Look closely, message_as: what}}
nodes:
  - {{id: done, type: set, with: {{x: 1}}}}
""",
}


async def _shell(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """A command that is cut off, fails, or works."""
    match config["run"][0]:
        case "cut":
            return Interrupted("timeout", "it took too long")
        case "fail":
            return Failed("exit_code", "it ended with 1")
    return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0})


RUNNERS: Mapping[str, Runner] = {"shell": _shell}
