"""Questions, people and places of a session in words. Pure: values in, text out, everything from outside made visible."""

from __future__ import annotations

from collections.abc import Mapping

from bot.rendering.flow import item_label
from bot.rendering.text import asked, plain, waiting_on
from bot.terminal.console import clean, one_line
from engine.decide import question
from engine.forms import value_text
from engine.journal import phases
from engine.journal.records import Head
from engine.journal.state import Asked, State
from engine.language.actors import is_claimed
from engine.language.codec import Json
from prompt_state.question_row import PromptState

STATUS_COLORS = {
    "complete": "green",
    "failed": "red",
    "aborted": "red",
    "paused": "yellow",
    "running": "blue",
}


def proposal_lines(prompt: Asked) -> list[str]:
    """Lines of an approval: its values, what runs once it is given, and the votes."""
    fields = prompt.fields
    values, lines = prompt.values, []
    for field in fields if prompt.is_approval else ():
        lines.append(f"{field['title']}: {value_text(field, values.get(field['name']))}")
    lines += covered_lines(prompt.covers)
    if prompt.required > 1:
        lines.append(question.tally(prompt))
    return [clean(line) for line in lines]


def prompt_json(
    prompt: Asked | PromptState, session_id: str, flow: str, requester: Mapping[str, Json]
) -> dict[str, Json]:
    """A question for a machine."""
    covers = prompt.covers
    return {
        "promptId": prompt.prompt_id,
        "sessionId": session_id,
        "flow": flow,
        "path": prompt.path,
        "kind": prompt.kind,
        "message": plain(prompt.message),
        # The step that runs once it is approved: its text in full, and the digest that votes bind to.
        "covers": covers and {name: covers.get(name) for name in ("nodeId", "text", "digest")},
        "options": [{name: option[name] for name in ("value", "label")} for option in prompt.options],
        "acceptsText": prompt.accepts_text,
        "acceptsFiles": prompt.accepts_files,
        "fields": prompt.fields,
        "asked": asked(prompt, requester),
        "deadline": prompt.deadline,
    }


def covered_lines(covers: Mapping[str, Json] | None) -> list[str]:
    """Lines of the step that will run once an approval is given."""
    if not covers:
        return []
    head = f"What runs once this is approved ({covers['nodeId']}):"
    return [head, *(f"  {line}" for line in str(covers["text"]).split("\n"))]


def error_text(error: dict[str, Json] | None) -> str:
    """An error of a node or a flow on one line."""
    if not error:
        return "failed"
    return one_line(str(error.get("message") or error.get("type") or "failed"), 200)


def item_of_failure(state: State, path: str) -> str:
    """Return the label of the item at which a loop failed; empty if there was none."""
    run = state.nodes.get(path)
    items = list(run.passes["items"].values()) if run is not None and run.passes is not None else []
    return one_line(item_label(items[-1]), 60) if items else ""


def item_at(state: State, path: str, index: int) -> str:
    """The name of a pass's item; empty where it has none, or is not known any more."""
    container = state.containers.get(path)
    items = container.items if container is not None else None
    return one_line(item_label(items[index]), 60) if items and index < len(items) else ""


def where(state: State, path: str) -> str:
    """The place of a question inside something, with the items around it: `rollout[1]/confirm (us)`."""
    if "/" not in path or path not in state.nodes:
        return ""
    found, before = [], ""
    for part in path.split("/"):
        owner, bracket, index = f"{before}{part}".rpartition("[")
        if bracket and index.rstrip("]").isdecimal():
            found.append(item_at(state, owner, int(index.rstrip("]"))))
        before = f"{before}{part}/"
    items = ", ".join(item for item in found if item)
    return clean(path) + (f" ({items})" if items else "")


def person(actor: dict[str, Json]) -> str:
    """The name of an actor."""
    name = str(actor.get("name") or str(actor.get("id") or "somebody").removeprefix("local:"))
    played = " (simulated)" if actor.get("simulated") else ""
    return one_line(name, 60) + played


def answered_by(actor: dict[str, Json]) -> str:
    """Name who answered; at a terminal also their account, where it is called otherwise."""
    account = f" (account {one_line(str(actor['account']), 60)})" if is_claimed(actor) else ""
    return person(actor) + account


def started_by(state: State) -> str:
    """The person who started the session, and from where."""
    place = "" if state.thread else " at the terminal"
    return person(state.actor) + place


def asked_of(state: State, prompt: Asked) -> str:
    """The people whom a prompt asks, in words."""
    return one_line(plain(waiting_on(prompt, state.actor)), 120)


def question_lines(message: str) -> list[str]:
    """A prompt's message as lines."""
    return clean(plain(message)).strip().splitlines() or [""]


def standing(head: Head) -> str:
    """Return the state of a session in one word, as far as its head has it: a rejection is not told apart."""
    return "on hold" if head.quarantined else phases.standing(head.status, head.phase)
