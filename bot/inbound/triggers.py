"""Triggers of the served flows: words behind a mention and in channels, reactions, schedules. Pure.

Whether something may matter is asked before it is stored, so it is decided on what the payload itself has: the
channel's name, and who may start, are looked at later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Any

from bot.inbound.lines import BadLine, StartLine, bare, parse, taken_out, twice
from bot.rendering.text import escape
from engine.flow import Flow
from engine.flow.model import Trigger, TriggerKind
from engine.flow.triggers import words_of
from engine.language.codec import Json, nfc
from prompt_state.question_row import TooLong
from prompt_state.slack_text import MAX_BYTES, read_in

_PLACE = re.compile(r"\{([^{}]*)\}")
_ANY_QUOTE = {quote: kind for kind in ('["“”]', "['‘’]") for quote in kind[1:-1]}
_HEADING = re.compile(r"^#{1,6}\s+", re.MULTILINE)
_LABELLED = re.compile(r"\[([^\[\]<>|]+)\]\(([^\s()<>|]+)\)")


def captured(pattern: str, text: str) -> dict[str, str] | None:
    """The values of a pattern's places in a text that has its words somewhere; None where it has not. A place at the end
    takes the rest of its line."""
    found = _inside(pattern).search(text)
    return None if found is None else {name: value.strip() for name, value in found.groupdict().items()}


def filled(pattern: str, text: str, given: Collection[str]) -> dict[str, str] | None:
    """The values of a pattern's places in a text that is the whole of it; None where it is not. The places of inputs that
    are given may be left out, with the words that lead to them. Case, and white space between words, do not matter."""
    found = _whole(pattern, frozenset(given)).fullmatch(" " + text.strip())
    places = found.groupdict() if found is not None else {}
    return None if found is None else {name: bare(value) for name, value in places.items() if value}


@cache
def _whole(pattern: str, given: frozenset[str]) -> re.Pattern[str]:
    parts = _PLACE.split(pattern)
    first = parts[0].rstrip()
    joined, lead = r"\s*" + _words(first), _words(parts[0][len(first) :])
    # Split gives words and names in turn.
    for name, words in zip(parts[1::2], parts[2::2], strict=True):
        place = rf"{lead}(?P<{name.strip()}>\".*?\"(?!\S)|[“”].*?[“”](?!\S)|['‘].*?['’](?!\S)|\S|\S.*?\S)"
        joined += f"(?:{place})?" if name.strip() in given else place
        lead = _words(words)
    return re.compile(joined + lead, re.IGNORECASE | re.DOTALL)


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
    escaped = r"\s+".join(re.escape(word) for word in nfc(part).split(" "))
    return "".join(_ANY_QUOTE.get(letter, letter) for letter in escaped)


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

    def line(self, text: str, faults: Mapping[str, str]) -> StartLine | BadLine:
        """The start that the text behind a mention asks for: `NAME key=value ...`, a trigger's words, or the beginning of those, for
        which the rest is asked."""
        named, whole = parse(text, self.flows, faults), self.mentioned(text)
        if isinstance(named, BadLine):
            return whole or self.mentioned(text, begun=True) or named
        own = self.flows[named.flow].inputs.keys()
        if named.inputs and named.inputs.keys() <= own and getattr(whole, "flow", None) != named.flow:
            return named
        return whole if isinstance(whole, StartLine) else named

    def mentioned(self, text: str, *, begun: bool = False) -> StartLine | BadLine | None:
        """The flow whose trigger the whole text behind a mention is, with its inputs; the one with the most words of its
        own wins. Words `key=value` of the flow's own inputs give these, and others are text. `begun`: also a trigger
        whose last places are left out."""
        found: list[tuple[tuple[int, int], StartLine | BadLine]] = []
        for flow, trigger in self.triggers("mention"):
            rest, pairs = taken_out(text, flow.inputs)
            places = filled(trigger.pattern, rest, flow.inputs if begun else dict(pairs))
            if places is None:
                continue
            names = [*places, *(name for name, _ in pairs)]
            doubled = next((name for name in names if names.count(name) > 1), None)
            line = StartLine(flow.name, {**trigger.values, **places, **dict(pairs)})
            missing = set(trigger.inputs).difference(names)
            rank = (-len(missing), len(words_of(trigger.pattern)))
            found.append((rank, line if doubled is None else twice(doubled)))
        return max(found, key=lambda item: item[0])[1] if found else None

    def hears(self, event: Mapping[str, Any]) -> bool:
        """True if a message in a channel may start something."""
        return any(self.messages(said_in(event), app_of(event)))

    def messages(self, text: str, app: tuple[str, ...] | None) -> Iterator[Overheard]:
        """The triggers that what was said fits, as people read it; `app` are the ids of the app that wrote it, None for a person."""
        read = shown(text)
        for flow, trigger in self.triggers("message"):
            bots = trigger.from_bots
            listens = bots if isinstance(bots, bool) else not set(app or ()).isdisjoint(bots)
            found = captured(trigger.pattern, read) if app is None or listens else None
            if found is not None:
                yield Overheard(flow, trigger, {**trigger.values, **found})

    def reactions(self, name: str) -> Iterator[tuple[Flow, Trigger]]:
        """The triggers that a reaction fits; skin tones do not matter."""
        plain = name.split("::", 1)[0]
        for flow, trigger in self.triggers("reaction"):
            if trigger.pattern == plain:
                yield flow, trigger


DEAF = Listening(dict[str, Flow])
"""Listens for nothing."""


def app_of(event: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The ids of the app that wrote a message: bot and app; None for a person."""
    profile = event.get("bot_profile") or {}
    ids = (event.get("bot_id"), event.get("app_id"), profile.get("app_id"))
    found = tuple(dict.fromkeys(str(value) for value in ids if value))
    return found or (("",) if event.get("subtype") == "bot_message" else None)


def read_by_people(message: Mapping[str, Any]) -> str:
    """The words that people read in a message, in Slack's markup. A person's text stands for it, without what Slack shows of its
    links; one that was only passed on has none."""
    text = str(message.get("text") or "")
    return said_in(message) if text.strip() else whole(message)


def said_in(event: Mapping[str, Any]) -> str:
    """The words of a message that count, in Slack's markup: a person's text, and all that an app says."""
    return whole(event if app_of(event) is not None else {"text": event.get("text")})


def whole(event: Mapping[str, Any]) -> str:
    """All words of a message, in Slack's markup: its text, attachments and blocks. What repeats the text or a line before
    it is left out. What is too long for a text is cut off."""
    parts = [str(event.get("text") or "")]
    parts += [*_in_attachments(event.get("attachments")), *_in_blocks(event.get("blocks"))]
    text, said = _squeezed(parts[0]), dict[str, str]()
    for part in parts[1:]:
        plain = _squeezed(part)
        if plain and f" {plain} " not in f" {text} ":
            said.setdefault(plain, part)
    whole = "\n".join(part for part in (parts[0], *said.values()) if part.strip())
    return whole.encode("utf-8", "replace")[:MAX_BYTES].decode("utf-8", "ignore")


def _squeezed(part: str) -> str:
    """The words of a part, by which it is known again."""
    return " ".join(shown(part[:MAX_BYTES]).split())


def shown(said: str, read: Callable[[str], str] = read_in) -> str:
    """A message without Slack's markup; empty if it is too long."""
    try:
        return read(said).strip()
    except TooLong:
        return ""


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    yield from (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _in_attachments(attachments: Any) -> Iterator[str]:
    for entry in _dicts(attachments):
        texts = [str(entry[key]) for key in ("pretext", "author_name", "title", "text") if entry.get(key)]
        fields = [
            f"{each.get('title') or ''}: {each.get('value') or ''}" for each in _dicts(entry.get("fields"))
        ]
        under = [str(entry["footer"])] if entry.get("footer") else []
        yield from [*texts, *fields, *_in_blocks(entry.get("blocks")), *under] or [
            str(entry.get("fallback") or "")
        ]


def _in_blocks(blocks: Any) -> Iterator[str]:
    """The texts of blocks, in their order, as Slack's markup."""
    for block in _dicts(blocks):
        match block:
            case {"type": "rich_text"}:
                yield from _in_rich(block).split("\n")
            case {"type": "markdown", "text": str(text)}:
                yield _HEADING.sub("", _LABELLED.sub(r"<\2|\1>", text))
            case {"type": "table"}:
                for row in block.get("rows") or ():
                    yield " ".join(map(_in_rich, _dicts(row)))
            case _:
                lists = (block.get("fields"), block.get("elements"))
                texts = [block.get("title"), block.get("text"), *chain.from_iterable(map(_dicts, lists))]
                yield from (str(each["text"]) for each in _dicts(texts) if isinstance(each.get("text"), str))


def _in_rich(element: dict[str, Any]) -> str:
    """The words of an element of rich text, with those inside it, as Slack's markup."""
    match element:
        case {"type": "text" | "raw_text", "text": text}:
            return escape(str(text))
        case {"type": "link", "url": url}:
            return f"<{escape(str(url))}|{escape(str(element.get('text') or ''))}>"
        case {"user_id": who}:
            return f"<@{who}>"
        case {"channel_id": channel}:
            return f"<#{channel}>"
        case {"usergroup_id": group}:
            return f"<!subteam^{group}>"
        case {"type": "emoji", "name": name}:
            return f":{name}:"
        case {"type": "broadcast" | "date" | "color"}:
            return str(element.get("fallback") or element.get("value") or f"@{element.get('range')}")
    between = "\n" if element.get("type") in ("rich_text", "rich_text_list") else ""
    return between.join(map(_in_rich, _dicts(element.get("elements"))))
