"""Expectations of a scenario, compared with the result: every difference, not only the first. Also the relevant part of
a run, and its differences in a run with a kill.

Effects that only kills and claims have on a journal are not compared: interruptions, repeated starts, questions about
them, and ids made from numbers of events.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bot.faces.question import asked
from bot.rendering.text import plain
from bot.scenarios.document import ExpectDoc, described, is_asked, is_at
from bot.scenarios.steps import open_lines
from bot.scenarios.world import World, actors
from engine.decide.agents import memory
from engine.journal.events import CallOutcome, Event, PromptEscalated, PromptExpired, PromptReminded
from engine.journal.history import Entry, tree
from engine.journal.queries import asked_in_order
from engine.journal.state import Asked, State
from engine.language.codec import Json, canonical, nfc, same
from engine.language.diagnostics import Path

_REGEX = re.compile(r"/(.*)/", re.DOTALL)


@dataclass(frozen=True)
class Mismatch:
    """Something that is not as expected. `path` is the place inside `expect`."""

    path: Path
    expected: str
    came: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """Observable state: the session now, its journal, and the events since the last action."""

    state: State
    events: Sequence[Event]
    since: int
    """The number of the last event before that."""
    world: World

    @property
    def prompts(self) -> list[Asked]:
        """The open questions, in the order in which they were asked."""
        return [self.state.prompts[prompt_id] for prompt_id in asked_in_order(self.state)]

    @property
    def fresh(self) -> list[Event]:
        """The events since then."""
        return [event for event in self.events if event.seq > self.since]

    @property
    def entries(self) -> list[Entry]:
        """Every node of the flow, as far as the journal tells of it, and those that have not begun."""
        root = tree(self.events, self.world.scenario.flow)
        return [entry for entry in root.walk() if entry.kind == "node"]

    def entry(self, name: str) -> list[Entry]:
        """The entries that an id or a path means. Of several visits of a node the last one counts."""
        exact = [entry for entry in self.entries if entry.path == name]
        if exact:
            return exact
        found = [entry for entry in self.entries if is_at(entry.path or entry.name, name)]
        return list({_place(entry): entry for entry in found}.values())


def _place(entry: Entry) -> str:
    """The place of a node, whichever visit this is."""
    scope, slash, name = (entry.path or entry.name).rpartition("/")
    return f"{scope}{slash}{name.partition('~')[0]}"


def says(text: str, expected: str) -> bool:
    """True if a text contains these words; `/.../` is a regular expression."""
    pattern = _REGEX.fullmatch(expected)
    return re.search(pattern[1], text) is not None if pattern else nfc(expected) in nfc(text)


def mismatches(expect: ExpectDoc, view: View) -> Iterator[Mismatch]:
    """Everything in which an expectation is not met."""
    if expect.prompt is not None:
        yield from _prompt(expect, expect.prompt, view)
    if expect.prompts is not None:
        yield from _prompts(expect.prompts, view)
    if expect.status is not None and view.state.status != expect.status:
        waits = ", ".join(sorted(view.state.prompts[prompt_id].path for prompt_id in view.state.open_prompts))
        came = view.state.status + (f": {waits} waits for an answer" if waits else "")
        yield Mismatch(("status",), expect.status, came, tuple(_error(view.state)))
    for name, status in (expect.nodes or {}).items():
        entries = view.entry(name)
        if not entries and status != "pending":
            yield Mismatch(("nodes", name), status, "pending: the flow has not reached it")
        for entry in entries:
            if entry.status != status:
                why = (entry.error or {}).get("message") or entry.reason
                at = f" at {entry.path}" if entry.path not in ("", name) else ""
                yield Mismatch(("nodes", name), status, f"{entry.status}{at}" + (f": {why}" if why else ""))
    for name, output in (expect.outputs or {}).items():
        yield from _output(name, output, view)
    for name, words in (expect.errors or {}).items():
        messages = [str(entry.error.get("message")) for entry in view.entry(name) if entry.error]
        if not any(says(message, words) for message in messages):
            yield Mismatch(("errors", name), words, "; ".join(messages) or "it did not fail")
    if expect.effects is not None:
        yield from _effects(expect.effects, view)
    for index, words in enumerate(expect.posted or ()):
        paths = [event.path or "" for event in view.fresh if event.path in view.world.posts]
        posts = [view.world.posts[path] for path in dict.fromkeys(paths)]
        if not any(says(post, words) for post in posts):
            came = (
                "nothing was posted since" if not posts else "; ".join(f"“{post.strip()}”" for post in posts)
            )
            yield Mismatch(("posted", index), words, came)
    yield from _happened(expect, view)
    for name, words in (expect.said or {}).items():
        mine = [event for event in view.fresh if is_at(event.path or "", name)]
        texts = [text for event in mine for text in texts_of(event)]
        if not any(says(text, words) for text in texts):
            yield Mismatch(
                ("said", name), words, "; ".join(f"“{text}”" for text in texts) or "it said nothing"
            )
    if expect.notes is not None:
        texts = [str(memory.note(row)["text"]) for row in view.world.notes]
        if len(texts) != len(expect.notes) or not all(map(says, texts, expect.notes)):
            came = "; ".join(f"“{text}”" for text in texts) or "there are no notes"
            yield Mismatch(("notes",), "; ".join(expect.notes) or "no note", came)


def _error(state: State) -> Iterator[str]:
    failed = [path for path, run in state.nodes.items() if run.status == "failed"]
    for path in failed:
        yield f"{path} failed: {(state.nodes[path].error or {}).get('message')}"
    if state.error and not failed:
        yield str(state.error.get("message"))


# --- questions -----------------------------------------------------------------------------------------------


def _prompt(expect: ExpectDoc, name: str, view: View) -> Iterator[Mismatch]:
    found = [prompt for prompt in view.prompts if is_asked(prompt, name)]
    if not found:
        came, *more = open_lines(view.state)
        yield Mismatch(("prompt",), f"{name} asks", came, (*more, *_error(view.state)))
        return
    options = [_asked(expect, prompt, view) for prompt in found]
    # With several of that name one is enough.
    yield from min(options, key=len)


def _asked(expect: ExpectDoc, prompt: Asked, view: View) -> list[Mismatch]:
    wrong, message = [], prompt.message
    if expect.message is not None and not (
        says(message, expect.message) or says(plain(message), expect.message)
    ):
        wrong.append(Mismatch(("message",), expect.message, plain(message)))
    if expect.kind is not None and prompt.kind != expect.kind:
        wrong.append(Mismatch(("kind",), expect.kind, prompt.kind))
    if expect.choices is not None:
        labels = [str(option["label"]) for option in prompt.options]
        values = [str(option["value"]) for option in prompt.options]
        if expect.choices not in (labels, values):
            wrong.append(Mismatch(("choices",), _listed(expect.choices), _listed(labels)))
    if expect.asks is not None:
        # Entries such as `@sre` are compared as they are, people of the scenario by their names.
        known = actors(view.world.scenario.people).items()
        names = {entry: name for name, actor in known for entry in (actor.id, actor.email, name)}
        wanted, people = (
            sorted(names.get(entry, entry) for entry in entries)
            for entries in (expect.asks, asked(prompt, view.state.actor))
        )
        if wanted != people:
            wrong.append(Mismatch(("asks",), _listed(wanted), _listed(people)))
    return wrong


def _prompts(expected: Sequence[str], view: View) -> Iterator[Mismatch]:
    left = view.prompts
    for name in expected:
        found = next((prompt for prompt in left if is_asked(prompt, name)), None)
        if found is not None:
            left.remove(found)
    if left or len(view.prompts) != len(expected):
        yield Mismatch(
            ("prompts",), _listed(expected), _listed(sorted(prompt.path for prompt in view.prompts))
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


# --- nodes ---------------------------------------------------------------------------------------------------


def _output(name: str, expected: Json, view: View) -> Iterator[Mismatch]:
    entries = view.entry(name)
    if len(entries) > 1:
        paths = _listed([entry.path for entry in entries])
        yield Mismatch(("outputs", name), "the output of one node", f"several match: {paths}")
        return
    if not entries or entries[0].status != "completed":
        status = entries[0].status if entries else "pending"
        yield Mismatch(("outputs", name), described(expected), f"no output: it is {status}")
        return
    # The journal does not say a container's output twice; the state has it.
    run = view.state.nodes.get(entries[0].path)
    output = entries[0].output if entries[0].output is not None or run is None else run.output
    for path, wanted, came in differences(expected, output, ("outputs", name)):
        yield Mismatch(path, described(wanted), came)


def differences(expected: Json, came: Json, path: Path) -> Iterator[tuple[Path, Json, str]]:
    """Yield the places where a value differs. Mappings may have additional fields; text may be `/.../`."""
    if isinstance(expected, dict) and isinstance(came, dict):
        for name, value in expected.items():
            if name not in came:
                yield (*path, name), value, f"no such field; available: {_listed(list(came))}"
            else:
                yield from differences(value, came[name], (*path, name))
        return
    if isinstance(expected, list) and isinstance(came, list) and len(expected) == len(came):
        for index, (value, item) in enumerate(zip(expected, came, strict=True)):
            yield from differences(value, item, (*path, index))
        return
    if isinstance(expected, str) and isinstance(came, str) and _REGEX.fullmatch(expected):
        if not says(came, expected):
            yield path, expected, described(came)
        return
    if not same(nfc(expected), nfc(came)):
        yield path, expected, "nothing (null)" if came is None else described(came)


# --- what happened -------------------------------------------------------------------------------------------


def _effects(expected: Sequence[Json], view: View) -> Iterator[Mismatch]:
    done = view.world.effects
    names = [next(iter(item)) if isinstance(item, dict) else str(item) for item in expected]
    same = len(names) == len(done) and all(
        name in (one.path, one.node_id) or is_at(one.path, name)
        for name, one in zip(names, done, strict=True)
    )
    if not same:
        # A node as a scenario names it: its place, or for a tool of an agent the tool.
        called = [one.node_id if "." in one.node_id else one.path for one in done]
        yield Mismatch(("effects",), _listed(names), _listed(called))
        return
    for index, (item, one) in enumerate(zip(expected, done, strict=True)):
        if isinstance(item, dict):
            ((name, config),) = item.items()
            for path, wanted, came in differences(config, one.config, ("effects", index, name)):
                yield Mismatch(path, described(wanted), came)


_Clocked: TypeAlias = PromptReminded | PromptEscalated | PromptExpired

_WORDS: Mapping[str, tuple[type[_Clocked], str]] = {
    "reminded": (PromptReminded, "was reminded of"),
    "escalated": (PromptEscalated, "was escalated"),
    "expired": (PromptExpired, "ran out of time"),
}


def _happened(expect: ExpectDoc, view: View) -> Iterator[Mismatch]:
    for field, (kind, words) in _WORDS.items():
        name: str | None = getattr(expect, field)
        if name is None:
            continue
        found = [event for event in view.fresh if isinstance(event, kind)]
        if not any(_meant(event, name, view.state) for event in found):
            came = _listed([event.path or "" for event in found])
            if not found:
                came = "that did not happen since the last action"
            yield Mismatch((field,), f"{name} {words}", came, tuple(open_lines(view.state)))


def _meant(event: _Clocked, name: str, state: State) -> bool:
    prompt = state.prompts.get(event.prompt_id)
    return is_at(event.path or "", name) if prompt is None else is_asked(prompt, name)


def texts_of(event: Event) -> list[str]:
    """Return the model's texts in a message of an agent's conversation; empty for any other event."""
    answer = event.answer if isinstance(event, CallOutcome) else []
    return [block["text"] for block in answer if block.get("type") == "text"]


# --- what counts of a run ----------------------------------------------------------------------------------


_ID = re.compile(r"\b(?:prompt|local)-[0-9a-f]{12}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_OF_A_CLAIM = ("seq", "timestamp", "epoch", "attempt", "key", "promptId", "timerId")
_SHORT = 120


Story: TypeAlias = Mapping[str, Json]
"""All of a run that a kill must not change, as names and values."""


def story(state: State, events: Sequence[Event], world: World) -> Story:
    """The story of a run as it is."""
    parts: dict[str, Json] = {"the session": state.status}
    for entry in tree(events, world.scenario.flow).walk():
        if entry.kind != "node" or not entry.path:
            continue
        parts[entry.path] = entry.status
        if entry.output is not None:
            parts[f"the output of {entry.path}"] = entry.output
        if entry.error:
            parts[f"the error of {entry.path}"] = entry.error
    # What people answered and voted, by where they were asked; not about what a kill had cut.
    found: dict[str, Json] = {}
    for prompt in sorted(state.prompts.values(), key=lambda prompt: prompt.number or 0):
        if prompt.kind == "interrupted":
            continue
        votes = [{key: value for key, value in vote.items() if key != "key"} for vote in prompt.votes]
        given = None if prompt.answer is None else {**prompt.answer, "votes": votes}
        found[_fresh(f"the answer to {prompt.path}", found)] = {
            "status": prompt.status,
            "answer": given,
            "by": prompt.actor,
            "votes": votes,
            "reminders": prompt.reminders,
            "escalated": list(prompt.escalated),
        }
    for event in events:
        # The messages to and from agents, in order.
        if event.type.startswith("agent:"):
            wire = {name: value for name, value in event.to_wire().items() if name not in _OF_A_CLAIM}
            found[_fresh(f"the conversation at {event.path}", found)] = wire
    parts |= found
    for done in world.done:
        parts[f"what {done.path} did{_nth(done.number)}"] = done.config
    for row in world.notes:
        told = memory.note(row)
        parts[f"the note of {told['path']}"] = [told["text"], told["by"]]
    for path, text in world.posts.items():
        parts[f"what {path} posted"] = text
    # Without what is made again for every run: ids, its folder, and times where a retry has jitter.
    patterns = {_ID: "(id)", re.compile(re.escape(str(world.home))): "(home)"}
    nodes = [node for nodes in world.scenario.flow.lists.values() for node in nodes.nodes]
    if any(node.retry is not None and node.retry.jitter > 0 for node in nodes):
        patterns[_TIME] = "(time)"
    return {name: _without(part, patterns) for name, part in parts.items()}


def _fresh(base: str, found: Story) -> str:
    """The name, with a number where it is taken."""
    names = (f"{base}{_nth(number)}" for number in itertools.count())
    return next(name for name in names if name not in found)


def _nth(number: int) -> str:
    return f", {number + 1}." if number else ""


def _without(value: Json, patterns: Mapping[re.Pattern[str], str]) -> Json:
    if isinstance(value, str):
        for pattern, instead in patterns.items():
            value = pattern.sub(instead, value)
        return value
    if isinstance(value, list):
        return [_without(item, patterns) for item in value]
    if isinstance(value, dict):
        return {name: _without(item, patterns) for name, item in value.items()}
    return value


def changes(plain: Story, killed: Story) -> Iterator[str]:
    """In what a killed run differs, a line for each part."""
    for name in {**plain, **killed}:
        before, after = plain.get(name), killed.get(name)
        if name not in killed:
            yield f"{name}: {_shown(before)}, and nothing after the kill"
        elif name not in plain:
            yield f"{name}: {_shown(after)}, and nothing without the kill"
        elif canonical(before) != canonical(after):
            yield f"{name}: {_shown(after)}, and not {_shown(before)}"


def _shown(value: Json) -> str:
    text = " ".join(described(value).split())
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
