"""Questions, people and places of a session in words. Pure: values in, text out, everything from outside made visible."""

from __future__ import annotations

from collections.abc import Mapping

from bot.faces.places import item_label
from bot.faces.question import Face
from bot.faces.words import Code, Icon, Link, Part, People, Said, When, Whom, Words, listed
from bot.rendering.prompts import session_face
from bot.rendering.text import person as mentioned
from bot.rendering.text import plain, read, whom
from bot.terminal.console import clean, moment, one_line
from engine.journal import phases
from engine.journal.queries import is_rejection, verdict
from engine.journal.records import Head
from engine.journal.state import Asked, State
from engine.language.actors import is_claimed
from engine.language.codec import Json

STATUS_COLORS = {
    "complete": "green",
    "failed": "red",
    "aborted": "red",
    "paused": "yellow",
    "running": "blue",
}


def told(words: Words) -> str:
    """A line of a face, without markup."""
    return "".join(map(_part, words))


def _part(part: Part) -> str:
    match part:
        case Icon():
            return ""
        case Said(text, most) | Code(text, most):
            return one_line(text, most)
        case Link(label=label):
            return label
        case People(actors):
            return listed(person(one) if one.get("name") else plain(mentioned(one)) for one in actors)
        case Whom(entries, requester):
            return one_line(plain(whom(entries, requester, call=False)), 120)
        case When(at):
            return moment(at)
        case _:
            return part.replace("*", "").replace("\n", " ")


def runs_lines(said: Face) -> list[str]:
    """The action that a question covers, with its heading; empty if it covers none."""
    covers = said.question.covers
    text = str(covers["text"]).split("\n") if covers else []
    return [f"{told(said.covers)}:", *(f"  {clean(line)}" for line in text)] if covers else []


def face_lines(said: Face) -> list[str]:
    """A question below its lead: its message, its values, the action that will run, the votes, and the clocks."""
    message = clean(read(said.question.message)).strip().splitlines() or [""]
    values = [one_line(value.text, 300) for value in said.values]
    return [*message, *values, *runs_lines(said), *map(told, said.lines)]


def asked_line(state: State, prompt: Asked) -> str:
    """A question on one line, with its place if it is inside of something."""
    path = f"{clean(prompt.path)}: " if "/" in prompt.path and not prompt.input else ""
    lead = told(session_face(state, prompt, None).lead)
    return f"{lead}: {path}{one_line(read(prompt.message).strip().partition(chr(10))[0], 100)}"


def prompt_json(said: Face, session_id: str, flow: str) -> dict[str, Json]:
    """A question for a machine."""
    prompt = said.question
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
        "asked": said.asked,
        "deadline": prompt.deadline,
    }


def error_text(error: dict[str, Json] | None) -> str:
    """An error of a node or a flow on one line, with the item at which a loop failed if `error_of` knows it."""
    if not error:
        return "failed"
    item = one_line(item_label(error.get("item")), 60)
    said = str(error.get("message") or error.get("type") or "failed")
    return one_line(f"{item}: {said}" if item else said, 200)


def why_failed(error: Mapping[str, Json] | None) -> str:
    """Return why a session failed, or who rejected it, on one line; empty if it did not fail."""
    if error is None:
        return ""
    return one_line(verdict(error), 120) if is_rejection(error) else error_text(dict(error))


def as_played(state: State, error: dict[str, Json] | None) -> dict[str, Json] | None:
    """An error with those who rejected named as the terminal names them: some were only played."""
    if not is_rejection(error) or error is None:
        return error
    answers = [
        answer
        for prompt in state.prompts.values()
        for answer in (prompt.actor, *(vote["actor"] for vote in prompt.votes))
    ]
    names = {answer["id"]: person(answer) for answer in answers if answer and answer.get("simulated")}
    by = [{**one, "name": names.get(one.get("id"), one.get("name"))} for one in error.get("by") or ()]
    told = {**error, "by": by}
    return {**told, "message": str(error.get("message")).replace(verdict(error), verdict(told), 1)}


def error_of(state: State) -> dict[str, Json] | None:
    """Return the error of a session, with the item of the innermost loop in which it failed, where it did in one."""
    kept = [run.passes["items"] for run in state.nodes.values() if run.passes is not None]
    at = str((state.error or {}).get("path"))
    found = [(scope, item) for items in kept for scope, item in items.items() if at.startswith(f"{scope}/")]
    if state.error is None or not found:
        return state.error
    return {**state.error, "item": max(found, key=lambda one: len(one[0]))[1]}


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


def person(actor: Mapping[str, Json]) -> str:
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


def standing(head: Head) -> str:
    """Return the state of a session in one word, as far as its head has it: a rejection is not told apart."""
    return "on hold" if head.quarantined else phases.standing(head.status, head.phase)
