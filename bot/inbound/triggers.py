"""What starts flows: the line that people write (`NAME key=value ...`, `run NAME ...`), and what the served flows listen
for: words in channels, reactions, schedules. Pure.

Whether something may matter is asked before it is stored, so it is decided on what the payload itself has: the
channel's name, and who may start, are looked at later.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Any

from engine.flow import Flow
from engine.flow.model import Trigger, TriggerKind
from engine.language.codec import Json, nfc
from prompt_state.question_row import TooLong
from prompt_state.slack_text import text_in

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BEGINS_JSON = re.compile(r"(?:^|\s)(?P<word>[A-Za-z_][A-Za-z0-9_]*=(?=[\[{]))")
_MOST_JSON = 20
"""Values of JSON on a line that need no quotes: looking for them takes time, and no flow takes more."""
_BACKSLASH = re.compile(r"'[^']*'|\\(?![\"'])")
_PLACE = re.compile(r"\{([^{}]*)\}")
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"})


@dataclass(frozen=True, slots=True)
class StartLine:
    """A flow to start, with the inputs as they were typed, or filled in."""

    flow: str
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadLine:
    """The line starts nothing; `message` tells its author why and what would."""

    message: str


def parse(text: str, flows: Iterable[str], faults: Mapping[str, str] | None = None) -> StartLine | BadLine:
    """The flow that a line starts. Values may be quoted; phones' curly quotes count as quotes. JSON needs no quotes
    around it, and a backslash stays what it is."""
    names = sorted(flows)
    try:
        words = _split(text.translate(_QUOTES))
    except ValueError:
        return BadLine('A quote is opened and not closed. Write values with spaces as `key="two words"`.')
    if words and words[0].lower() == "run":
        words = words[1:]
    if not words:
        return BadLine(f"Say which flow to run: {_listed(names)}.")
    name = words[0] if words[0] in names else words[0].lower()
    if name not in names and name in (faults or {}):
        return BadLine(f"`{name}` is not served: its file cannot be loaded. {_shown((faults or {})[name])}")
    if name not in names:
        return BadLine(f"There is no flow `{_shown(words[0])}`. {_nearest(name, names)}")
    inputs: dict[str, Any] = {}
    for word in words[1:]:
        found = _PAIR.fullmatch(word)
        if found is None:
            return BadLine(f"I do not understand `{_shown(word)}`: inputs are written `key=value`.")
        if found[1] in inputs:
            return BadLine(f"`{found[1]}` is given twice.")
        inputs[found[1]] = found[2]
    return StartLine(name, inputs)


def _split(text: str) -> list[str]:
    """The words of a line. Raises `ValueError` for a quote that is not closed."""
    words: list[str] = []
    at = 0
    for found in islice(_BEGINS_JSON.finditer(text), _MOST_JSON):
        if found.start() < at:
            continue
        try:
            _, end = json.JSONDecoder().raw_decode(text, found.end())
            before = _plain_words(text[at : found.start()])
        except (ValueError, RecursionError):
            continue  # it is no JSON, or stands within quotes: words like any others
        if text[end : end + 1].strip():
            continue
        words += [*before, text[found.start("word") : end]]
        at = end
    return words + _plain_words(text[at:])


def _plain_words(text: str) -> list[str]:
    # A backslash is one unless a quote follows it.
    return shlex.split(
        _BACKSLASH.sub(lambda one: one[0].replace("\\", r"\\") if one[0] == "\\" else one[0], text)
    )


def match_trigger(text: str, triggers: Iterable[tuple[str, str]]) -> StartLine | None:
    """The flow whose pattern the whole text is, with the inputs that it fills. `triggers` are (pattern, flow); the one
    with the most words of its own wins. Case and white space between words do not matter."""
    found = [
        (len(words_of(pattern)), StartLine(flow, match.groupdict()))
        for pattern, flow in triggers
        if (match := _trigger(pattern).fullmatch(text.strip().translate(_QUOTES))) is not None
    ]
    return max(found, key=lambda item: item[0])[1] if found else None


def words_of(pattern: str) -> str:
    """The words of a pattern without its places."""
    return _PLACE.sub("", pattern)


def captured(pattern: str, text: str) -> dict[str, str] | None:
    """What the places of a pattern are in a text that has its words somewhere; None where it has not. A place at the end
    takes the rest of its line."""
    found = _inside(pattern).search(text)
    return None if found is None else {name: value.strip() for name, value in found.groupdict().items()}


@cache
def _trigger(pattern: str) -> re.Pattern[str]:
    parts = _PLACE.split(pattern)
    # Split gives words and names in turn.
    places = [f'"?(?P<{name.strip()}>[^"]+?)"?' for name in parts[1::2]]
    joined = "".join(_words(word) + place for word, place in zip(parts[::2], [*places, ""], strict=True))
    return re.compile(joined, re.IGNORECASE)


@cache
def _inside(pattern: str) -> re.Pattern[str]:
    parts = _PLACE.split(pattern)
    places = [rf"(?P<{name.strip()}>[^\n]+?)" for name in parts[1::2]]
    words = ["[^\\n]*?".join(map(_words, part.split("*"))) for part in parts[::2]]
    joined = "".join(word + place for word, place in zip(words, [*places, ""], strict=True))
    # Words count as whole ones, and what is captured at the end goes on to the end of the line.
    begin = r"(?<!\w)" if pattern[:1].isalnum() else ""
    end = r"(?=\s*(?:\n|$))" if not parts[-1].strip() else r"(?!\w)" if pattern[-1:].isalnum() else ""
    return re.compile(begin + joined + end, re.IGNORECASE)


def _words(part: str) -> str:
    return r"\s+".join(re.escape(word) for word in nfc(part).split(" "))


def _nearest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean `{close[0]}`?" if close else f"There are: {_listed(names)}."


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none is served here"


def _shown(word: str) -> str:
    return word[:60].replace("`", "'")


@dataclass(frozen=True, slots=True)
class Overheard:
    """A trigger that something fits, with the inputs that it gives."""

    flow: Flow
    trigger: Trigger
    inputs: dict[str, Json]


@dataclass(frozen=True)
class Listening:
    """The triggers of all served flows."""

    served: Callable[[], Mapping[str, Flow]]
    """Looks at their files: asked where it matters what they listen for, and once."""

    @cached_property
    def flows(self) -> Mapping[str, Flow]:
        """The served flows, by name."""
        return self.served()

    def triggers(self, kind: TriggerKind) -> Iterator[tuple[Flow, Trigger]]:
        """Those of one kind, flow by flow."""
        for _, flow in sorted(self.flows.items()):
            for trigger in flow.triggers:
                if trigger.kind == kind:
                    yield flow, trigger

    def mentioned(self, text: str) -> StartLine | None:
        """The flow whose trigger the whole text behind a mention is, with its inputs; the one with the most words of its
        own wins."""
        found = [
            (len(words_of(trigger.pattern)), StartLine(flow.name, {**trigger.values, **line.inputs}))
            for flow, trigger in self.triggers("mention")
            if (line := match_trigger(text, [(trigger.pattern, flow.name)])) is not None
        ]
        return max(found, key=lambda item: item[0])[1] if found else None

    def hears(self, event: Mapping[str, Any]) -> bool:
        """Whether a message in a channel may start something."""
        return any(self.messages(said_in(event), app_of(event)))

    def messages(self, text: str, app: tuple[str, ...] | None) -> Iterator[Overheard]:
        """The triggers that a text fits; `app` are the ids of the app that wrote it, None for a person."""
        for flow, trigger in self.triggers("message"):
            if not _listens_to(trigger, app):
                continue
            found = captured(trigger.pattern, text)
            if found is not None:
                yield Overheard(flow, trigger, {**trigger.values, **found})

    def reactions(self, name: str) -> Iterator[tuple[Flow, Trigger]]:
        """The triggers that a reaction fits; skin tones do not matter."""
        plain = name.split("::", 1)[0]
        for flow, trigger in self.triggers("reaction"):
            if trigger.pattern == plain:
                yield flow, trigger


def _listens_to(trigger: Trigger, app: tuple[str, ...] | None) -> bool:
    if app is None:
        return True
    bots = trigger.from_bots
    return bots if isinstance(bots, bool) else not set(app).isdisjoint(bots)


def app_of(event: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The ids of the app that wrote a message: bot and app; None for a person."""
    profile = event.get("bot_profile") or {}
    ids = (event.get("bot_id"), event.get("app_id"), profile.get("app_id"))
    found = tuple(dict.fromkeys(str(value) for value in ids if value))
    return found or (("",) if event.get("subtype") == "bot_message" else None)


def said_in(event: Mapping[str, Any]) -> str:
    """What a message says, as people read it. Apps often write into attachments and blocks, and leave the text empty."""
    raw = str(event.get("text") or "")
    parts = [raw] if raw.strip() else []
    if app_of(event) is not None:
        parts += _in_attachments(event.get("attachments"))
        if not parts:
            parts += _in_blocks(event.get("blocks"))
    try:
        return text_in("\n".join(parts)).strip()
    except TooLong:
        return ""


def _in_attachments(attachments: Any) -> list[str]:
    found: list[str] = []
    for entry in attachments if isinstance(attachments, list) else ():
        if isinstance(entry, dict):
            texts = [str(entry[key]) for key in ("pretext", "title", "text") if entry.get(key)]
            for field in entry.get("fields") or ():
                if isinstance(field, dict):
                    texts.append(f"{field.get('title') or ''}: {field.get('value') or ''}")
            found += texts or _in_blocks(entry.get("blocks")) or [str(entry.get("fallback") or "")]
    return found


def _in_blocks(blocks: Any) -> list[str]:
    """The texts of headers and sections, in their order."""
    found = []
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            texts = [block.get("text"), *(block.get("fields") or ())]
            found += [str(text["text"]) for text in texts if isinstance(text, dict) and text.get("text")]
    return found
