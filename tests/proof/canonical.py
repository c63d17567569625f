"""The journal of a run without what only pauses and claims put there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.journal.events import Event
from engine.language.codec import Json

_OF_A_CLAIM = ("seq", "epoch", "attempt", "timerId", "promptId", "key")
"""Fields that count events, claims and tries, and ids that are made from them."""

_PAUSES = ("flow:pausing", "flow:paused", "flow:resumed")


class Canon:
    """Takes the events of a session one after the other."""

    def __init__(self) -> None:
        self._interrupted: set[str | None] = set()
        self._questions: set[str] = set()

    def take(self, event: Event) -> dict[str, Json] | None:
        """The event as far as it tells the story, or None when it tells only of a pause."""
        fields: Any = event.to_wire()
        if event.type in _PAUSES or self._of_a_question(fields) or self._starts_again(event):
            return None
        if event.type == "session:message" and fields["key"].startswith("proof:resume"):
            return None
        if event.type == "prompt:requested":
            hidden = ("number", "nonce")
            prompt = {name: value for name, value in fields["prompt"].items() if name not in hidden}
            fields = {**fields, "prompt": prompt}
        return {name: value for name, value in fields.items() if name not in _OF_A_CLAIM}

    def _of_a_question(self, fields: dict[str, Any]) -> bool:
        """Whether it belongs to the question about an interruption."""
        if fields["type"] == "prompt:requested" and fields["prompt"]["kind"] == "interrupted":
            self._questions.add(fields["promptId"])
        return fields.get("promptId") in self._questions

    def _starts_again(self, event: Event) -> bool:
        """Whether it interrupts a node, or starts one that was interrupted."""
        if event.type == "node:interrupted":
            self._interrupted.add(event.path)
            return True
        if event.type in ("node:started", "container:childStarted") and event.path in self._interrupted:
            self._interrupted.discard(event.path)
            return True
        return False


def canonical(events: Iterable[Event]) -> list[dict[str, Json]]:
    """The story that a journal tells."""
    canon = Canon()
    taken = [canon.take(event) for event in events]
    return [entry for entry in taken if entry is not None]
