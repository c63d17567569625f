"""What the served flows listen for beside their names: words in channels, reactions, schedules. Pure.

Whether something may matter is asked before it is stored, so it is decided on what the payload itself has: the
channel's name, and who may start, are looked at later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.inbound.start_command import StartLine, captured, match_trigger, words_of
from engine.flow import Flow
from engine.flow.model import Trigger, TriggerKind
from engine.language.codec import Json
from prompt_state.errors import TooLong
from prompt_state.slack_text import text_in


@dataclass(frozen=True, slots=True)
class Overheard:
    """A trigger that something fits, with the inputs that it gives."""

    flow: Flow
    trigger: Trigger
    inputs: dict[str, Json]


@dataclass(frozen=True)
class Listening:
    """The triggers of all served flows."""

    flows: Mapping[str, Flow]

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
