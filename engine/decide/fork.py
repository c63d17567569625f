"""A session from the past of another one. Pure.

A fork's journal begins with a copy of its parent's up to the chosen event, under the fork's own ids, and goes on by
itself. It is a copy and no reference: the fork can be read, exported and reaped without its parent, and every reader
of a journal works on it unchanged. Where it comes from is proved all the same: its chain of MACs begins at the
parent's journal row of that event.

* What has completed stays completed, with its output and its times: nothing of it runs again.
* Questions that were open are open again, not shown to anybody yet, so that their clocks start anew.
* A node that was running has no outcome that this session can know: it is recorded as interrupted, and `on_crash`
  decides as after a crash: it runs again, or a person is asked.
* Waits keep their time. A hold is lifted: whoever forks wants it to go on. A thread out of reach is the parent's.
* What agents have used counts on, against caps as people raised them; an agent is not free of the cap of the day because
  it was let past that in its parent.
* A lock is not inherited: the fork asks for it anew, and nothing of it starts before it has it.
* Its working folder begins as a copy of its parent's as that is now; paths into the parent's name the copy. What models were
  told stays byte for byte, unless it has such a path: then the API is asked to drop the thinking that was bound to it.
* Whoever forks is the requester: `exclude_requester` is about them. A fork belongs to no thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec.structs import replace

from engine.decide import prompt_timers
from engine.decide.limits import pending
from engine.journal import events as ev
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state, evolve
from engine.journal.queries import TURN
from engine.journal.state import Asked, State, in_finally
from engine.language.actors import Actor
from engine.language.codec import Json, encode
from engine.language.errors import InvalidAnswer, SessionEnded, SessionError
from engine.nodes.types.registry import mode_of


class Fork(NamedTuple):
    """A fork's journal so far and the state that it folds to; `seq` is the parent's event that it follows, `copied` how
    many of the events are the parent's."""

    seq: int
    events: list[Event]
    state: State
    copied: int


def seam(journal: Sequence[Event], at: int) -> int:
    """The event after which a fork at event `at` begins: `at`, or the end of the step that it is in the middle of.

    Raises `SessionError` for an event that does not exist, `SessionEnded` where nothing is left to run.
    """
    if not 1 <= at <= len(journal):
        raise SessionError(f"There is no event {at} to fork at; the journal has events 1 to {len(journal)}.")
    state = derive_state(journal[:at])
    while not state.ended and state.phase != "finalizing":
        if _is_whole(state, journal[state.seq - 1]):
            return state.seq
        if state.seq == len(journal):
            break
        state = evolve(state, journal[state.seq])
    raise SessionEnded(
        f"After event {at} the session only ends; there is nothing to run. Fork at an earlier event."
    )


def latest(journal: Sequence[Event]) -> int:
    """The event at which a fork begins where nobody says one: the last one, or of a session that failed with an agent its
    last model call, which is made again."""
    failed = [event for event in journal if isinstance(event, ev.Closure) and event.status == "failed"]
    calls = [
        event.seq
        for event in journal
        if isinstance(event, ev.Start) and event.node_type == TURN and not in_finally(event.path or "")
    ]
    return calls[-1] if failed and calls else len(journal)


def fork(
    journal: Sequence[Event],
    at: int,
    session_id: str,
    actor: Actor,
    now: str,
    entropy: str,
    folders: tuple[str, str] | None = None,
) -> Fork:
    """The beginning of a fork of this journal; `folders` are the parent's working folder and its copy. Raises what `seam`
    raises."""
    seq = seam(journal, at)
    past = derive_state(journal[:seq])
    copier = _Copier(past, session_id, actor, entropy)
    state = State()
    events: list[Event] = []

    def add(event: Event) -> None:
        nonlocal state
        events.append(event)
        state = evolve(state, event)

    drop = folders is not None and _says_other_things(journal[:seq], *folders)
    for event in journal[:seq]:
        copied = copier.copy(event, state.seq + 1)
        if drop and isinstance(copied, ev.AgentOpened):
            copied = replace(copied, drop=True)
        if copied is not None:
            add(copied if folders is None else _moved(copied, *folders))
    past_events = len(events)
    if state.phase == "held":
        add(ev.FlowResumed(seq=state.seq + 1, timestamp=now, injected_messages=0))
    elif state.phase == "unreachable":
        add(ev.SessionReachable(seq=state.seq + 1, timestamp=now))
    for path in sorted(state.active):
        run = state.nodes[path]
        if run.status == "started" and mode_of(run.type) in ("run", "delivery"):
            add(
                ev.NodeInterrupted(
                    seq=state.seq + 1, timestamp=now, path=path, node_id=run.node_id, reason="cut"
                )
            )
    return Fork(seq, events, state, past_events)


def _says_other_things(journal: Sequence[Event], old: str, new: str) -> bool:
    """Whether a conversation names the folder: the fork's names the copy, and thinking that is bound to the other words is
    dropped by the API."""
    said = (event for event in journal if event.type.startswith("agent:"))
    return any(_moved(event, old, new) is not event for event in said)


def _moved(event: Event, old: str, new: str) -> Event:
    """The event with paths in one folder as paths in another one, wherever they stand in it."""
    was, becomes = (encode(folder)[1:-1] for folder in (old, new))
    data = event.to_bytes()
    if was not in data:
        return event
    # Not within a longer name; a path ends at a slash, or where the text goes on with something else.
    return decode_event(re.sub(re.escape(was) + rb"(?![\w.-])", lambda _: becomes, data))


def answered(state: State, past: State, answers: Mapping[str, Json]) -> dict[str, Json]:
    """Answers by the id of the prompt that each is for; a key is a path, a node's id or an id in the parent.

    Raises `InvalidAnswer` for a key that names no open prompt, or several.
    """
    found: dict[str, Json] = {}
    for key, answer in answers.items():
        named = [prompt for prompt in _open(state) if key in _names(prompt, past)]
        if len(named) != 1:
            paths = ", ".join(prompt.path for prompt in _open(state)) or "none"
            raise InvalidAnswer(
                f"{key!r} names {len(named) or 'no'} open question{'s' if len(named) != 1 else ''}; "
                f"open at that event: {paths}."
            )
        found[named[0].prompt_id] = answer
    return found


def _open(state: State) -> list[Asked]:
    return [state.prompts[prompt_id] for prompt_id in state.open_prompts]


def _names(prompt: Asked, past: State) -> set[str]:
    names = {prompt.path, prompt.node_id, prompt.prompt_id}
    return names | {old.prompt_id for old in _open(past) if old.path == prompt.path}


def _is_whole(state: State, last: Event) -> bool:
    """Whether a step may have ended here: nothing is owed, and whoever waits was woken by what came."""
    if state.owed or last.type in ("prompt:answered", "prompt:expired", "timer:fired", "session:start"):
        return False
    return state.inputs is not None or bool(state.open_prompts) or pending(state)


class _Copier:
    """Gives events the ids of the fork. Ids are derived, so that each old one has one new one."""

    def __init__(self, past: State, session_id: str, actor: Actor, entropy: str) -> None:
        self._past = past
        self._session_id = session_id
        self._actor = actor
        self._entropy = entropy

    def copy(self, event: Event, seq: int) -> Event | None:
        """The event under that number, or None for what does not hold for the fork: where an open question is
        shown, and that its parent got the lock, and was let past the cap of a day."""
        match event:
            case ev.SessionStarted():
                return replace(
                    event,
                    session_id=self._session_id,
                    parent_session_id=event.session_id,
                    actor=self._actor.record(),
                    thread=None,
                )
            case ev.LockAcquired():
                return None
            case ev.PromptShown() if event.prompt_id in self._past.open_prompts:
                return None
            case ev.TimerSet() | ev.TimerFired() if self._is_clock_of_an_open_prompt(event.timer_id):
                return None
            case ev.PromptReminded() | ev.PromptEscalated() if event.prompt_id in self._past.open_prompts:
                return None
            case ev.PromptVoted() if event.prompt_id in self._past.open_prompts:
                # They voted on another session, and whoever forks it may be one of them.
                return None
            case ev.AgentBudget() if event.scope == "day":
                # The cap of a day is one of the installation: who lets an agent past it, lets that one.
                return None
        return replace(event, seq=seq, **self._ids(event))

    def _ids(self, event: Event) -> dict[str, Any]:
        new: dict[str, Any] = {}
        prompt_id = getattr(event, "prompt_id", None)
        if prompt_id is not None:
            new["prompt_id"] = self._prompt(prompt_id)
        timer_id = getattr(event, "timer_id", None)
        if timer_id is not None:
            new["timer_id"] = self._timer(timer_id)
        if isinstance(event, ev.PromptRequested):
            nonce = self._random(f"nonce {event.prompt_id}")
            new["prompt"] = {**event.prompt, **self._covers(event.prompt_id, event.prompt), "nonce": nonce}
        elif isinstance(event, ev.PromptEdited):
            new |= self._covers(event.prompt_id, {"covers": event.covers})
        if isinstance(event, ev.PromptEdited):
            new["nonce"] = self._random(f"nonce {event.prompt_id} {event.seq}")
        return new

    def _is_clock_of_an_open_prompt(self, timer_id: str) -> bool:
        """Whether this is a timer that starts anew when the question is shown in the fork."""
        name, _, word = timer_id.removeprefix(f"{self._past.session_id}:").partition(":")
        return name in self._past.open_prompts and word.rstrip("0123456789") in prompt_timers.PURPOSES

    def _covers(self, prompt_id: str, told: Mapping[str, Json]) -> dict[str, Json]:
        """What an approval covers that the fork is still to give; one that was given counts where it was given."""
        covers = told.get("covers")
        if covers is None or prompt_id not in self._past.open_prompts:
            return {}
        return {"covers": {**covers, "sessionId": self._session_id}}

    def _prompt(self, prompt_id: str) -> str:
        return "prompt-" + self._random(prompt_id)

    def _timer(self, timer_id: str) -> str:
        """Timers are named after their session, and those of a prompt after that as well."""
        rest = timer_id.removeprefix(f"{self._past.session_id}:")
        name, colon, word = rest.partition(":")
        if name in self._past.prompts:
            rest = f"{self._prompt(name)}{colon}{word}"
        return f"{self._session_id}:{rest}"

    def _random(self, salt: str) -> str:
        material = f"{self._entropy}|{self._session_id}|{salt}"
        return blake2b(material.encode(), digest_size=6).hexdigest()
