"""Actions of people in a scenario: the question that they mean, and the resulting command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from bot.config.session_files import SessionFiles, keep
from bot.scenarios.document import Act, is_asked
from bot.scenarios.life import GaveUp
from engine.decide.commands import (
    Abort,
    Answer,
    Command,
    Edit,
    HandOver,
    Hold,
    Message,
    Resume,
    Revoke,
    Steer,
)
from engine.decide.policy import Gate
from engine.decide.question import DECIDED
from engine.forms import match_option
from engine.forms.question import split_words
from engine.journal.queries import asked_in_order
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json

Fits: TypeAlias = Callable[[Asked], bool]


class Hand(NamedTuple):
    """One person at one step: `key` is what makes the deed the same when it is done again after a kill."""

    act: Act
    actor: Actor
    key: str
    gate: Gate
    home: Path

    def command(self, state: State, people: dict[str, Actor]) -> Command:
        """Return the command of the action. Raises `GaveUp` unless it means exactly one question."""
        act, actor, key, value = self.act, self.actor, self.key, self.act.value
        text = value if isinstance(value, str) else None
        match act.verb:
            case "reply" if act.on is None:
                return Message(text or "", actor, key)
            case "reply":
                prompt = self._open(state, lambda prompt: True)
                return Answer(prompt.prompt_id, actor, key, text=text or "")
            case "message":
                return Steer(text or "", actor, key)
            case "pause":
                return Hold(actor, text)
            case "resume":
                return Resume(text or "go on", actor, key)
            case "cancel":
                return Abort(actor, text)
            case "revoke":
                return Revoke(self._standing(state).prompt_id, actor, key)
            case "hand_over":
                to = people[text].id if text in people else text or ""
                return HandOver(self._open(state, lambda prompt: True).prompt_id, actor, key, to)
            case "edit":
                prompt = self._open(state, lambda prompt: bool(prompt.editable))
                return Edit(prompt.prompt_id, actor, key, dict(value))
            case "always" | "always_in_thread" | "always_in_flow":
                prompt = self._open(state, lambda prompt: "always" in (prompt.tool or {}))
                allowed: dict[str, Json] = {"patterns": dict(value)}
                if act.verb != "always":
                    allowed["scope"] = act.verb.rpartition("_")[2]
                return Answer(prompt.prompt_id, actor, key, value="approve", always=allowed)
            case "form":
                prompt = self._open(state, lambda prompt: bool(prompt.fields))
                return Answer(prompt.prompt_id, actor, key, values=dict(value))
            case "files":
                return self._files(state, dict(value))
        said = {"say": text, "choose": text}.get(act.verb, act.verb) or ""

        def takes(prompt: Asked) -> bool:
            chosen = match_option(prompt.options, split_words(prompt, said)[0])
            return chosen is not None or (act.verb == "say" and prompt.accepts_text)

        prompt = self._open(state, takes)
        label, words = split_words(prompt, said)
        reason = text if act.verb in DECIDED else words
        option = match_option(prompt.options, label)
        if option is None:
            return Answer(prompt.prompt_id, self.actor, self.key, text=said)
        return Answer(prompt.prompt_id, self.actor, self.key, value=option["value"], reason=reason)

    def _files(self, state: State, contents: dict[str, str]) -> Command:
        """Files as somebody drops them into the thread."""
        prompt = self._open(state, lambda prompt: prompt.accepts_files)
        folder = self.home / "given"
        folder.mkdir(exist_ok=True)
        paths = [folder / name for name in contents]
        for path in paths:
            path.write_text(contents[path.name], "utf-8")
        kept = keep(SessionFiles(self.home), state.session_id, prompt.prompt_id, prompt, paths)
        return Answer(prompt.prompt_id, self.actor, self.key, files=kept)

    def _open(self, state: State, fits: Fits) -> Asked:
        """The one open question that is meant."""
        asked = [state.prompts[prompt_id] for prompt_id in asked_in_order(state)]
        if self.act.on is not None:
            named = [prompt for prompt in asked if is_asked(prompt, self.act.on)]
            if not named:
                raise GaveUp([f"`{self.act.on}` has no open question.", *open_lines(state)])
            asked = named
        found = [prompt for prompt in asked if fits(prompt)]
        if len(found) > 1:
            mine = [one for one in found if self.gate(self.actor, one.rules.action, state, one) is None]
            found = mine or found
        if len(found) > 1:
            paths = ", ".join(f"`{prompt.path}`" for prompt in found)
            raise GaveUp([f"Several questions match: {paths}. Name one: `on: {found[0].path}` in this step."])
        if not found:
            verb, value = self.act.verb, self.act.value
            said = f"“{value}”" if isinstance(value, str) else ""
            if verb != "say":
                said = f"`{verb}` {said}".rstrip()
            raise GaveUp([f"No open question accepts {said}.", *open_lines(state)])
        return found[0]

    def _standing(self, state: State) -> Asked:
        found = [
            prompt
            for prompt in state.prompts.values()
            # Approvals that have a grant in force.
            if (grant := state.grants.get(prompt.prompt_id)) is not None
            and grant.over is None
            and (self.act.on is None or is_asked(prompt, self.act.on))
        ]
        if len(found) != 1:
            raise GaveUp(["There is no grant to revoke.", *open_lines(state)])
        return found[0]


def open_lines(state: State) -> list[str]:
    """Return the open questions, as text."""
    prompts = [state.prompts[prompt_id] for prompt_id in asked_in_order(state)]
    if not prompts:
        active = [path for path in state.active if path not in state.containers]
        at = f", at {', '.join(active)}" if active else ""
        return [f"There is no open question: the session is {state.stands}{at}."]
    return ["Open questions:", *(f"  {_line(prompt)}" for prompt in prompts)]


def _line(prompt: Asked) -> str:
    options = [str(option["label"]) for option in prompt.options]
    fields = [str(field["name"]) for field in prompt.fields]
    takes = " | ".join(options) or ("form: " + ", ".join(fields) if fields else "a reply")
    message = " ".join(prompt.message.split())
    message = message if len(message) <= 100 else message[:99] + "…"
    return f"{prompt.path}: {message}  [{takes}]"


def done_before(act: Act, key: str, state: State, since: Sequence[str]) -> bool:
    """True if an action took effect before the process was killed; `since` are the types of the events since."""
    if act.verb == "pause":
        return state.phase == "held" or state.ended
    if act.verb == "cancel":
        return "session:abort" in since
    return key in state.seen
