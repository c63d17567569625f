"""What a session that rests waits for, one by one: `waitsFor` of the JSON that commands print, and the lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.rendering.text import asked
from bot.terminal.follower import open_prompts
from bot.terminal.narration import moment
from bot.terminal.output import clean, one_line
from engine.decide import locks
from engine.journal.state import State
from engine.language.codec import Json
from engine.storage.port import Store

MOVES = ("wait", "retry", "undo")
"""The timers with which a session goes on by itself: a wait is over, a node is tried again, an answer is final."""


def waits_for(state: State, store: Store) -> list[dict[str, Json]]:
    """All that can move the session now, each by its `kind`: `person`, `lock` or `time`; see docs/sessions.md.

    Empty for one that has ended, and for one that a process is working for. Raises `StorageError`.
    """
    if state.ended:
        return []
    return [*_people(state), *_lock(state, store), *_times(state)]


def _people(state: State) -> Iterator[dict[str, Json]]:
    if state.phase == "held":
        yield {"kind": "person", "promptId": None, "path": None, "who": ["requester"], "until": None}
    for prompt in open_prompts(state):
        who = asked(prompt, state.actor)
        found = {"promptId": prompt.prompt_id, "path": prompt.path, "who": who, "until": prompt.deadline}
        yield {"kind": "person", **found}


def _lock(state: State, store: Store) -> Iterator[dict[str, Json]]:
    if state.lock is not None and locks.pending(state):
        behind = locks.standing(store.locks(state.lock.name), state.session_id)
        holder = None if behind is None else behind[0]
        yield {"kind": "lock", "name": state.lock.name, "holder": holder, "until": None}


def _times(state: State) -> Iterator[dict[str, Json]]:
    for timer in sorted(state.timers.values(), key=lambda timer: (timer.due_at, timer.timer_id)):
        if timer.purpose in MOVES:
            yield {"kind": "time", "for": timer.purpose, "path": timer.path, "until": timer.due_at}


def line(wait: Mapping[str, Json]) -> str | None:
    """A lock or a time as a line; None for a person, whose question is told with its own words."""
    if wait["kind"] == "lock":
        held = f", held by {wait['holder']}" if wait["holder"] else ""
        return f"waits for lock {one_line(wait['name'], 80)}{held}"
    if wait["kind"] == "time":
        why = {"wait": "", "retry": " to try again", "undo": ": an answer can be taken back"}[wait["for"]]
        return f"waits until {moment(wait['until'])}{why}  {clean(wait['path'] or '')}"
    return None
