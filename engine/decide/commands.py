"""Commands that `decide` takes. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from engine.forms.question import Question
from engine.journal.records import KeptRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.messages.model_limits import AgentFacts

Action: TypeAlias = Literal[
    "start",
    "answer",
    "decide",
    "resolve",
    "edit",
    "hand_over",
    "revoke",
    "steer",
    "stop",
    "pause",
    "resume",
    "cancel",
    "status",
    "help",
    "list",
]
"""Action of a person as the policy knows it: `answer` an ask or an input, `decide` an approval, `resolve` an
interrupted or failed node or a question about a cap, `edit` an approval's proposal, `hand_over` a prompt, `revoke` a
grant; the rest are named as people say them."""


class Policy(Protocol):
    """Decide whether an actor may do something. Returns None, or the sentence that tells the person why not. With
    `start` the question has `who`, if the flow restricts that."""

    def __call__(self, actor: Actor, action: Action, state: State, prompt: Question | None) -> str | None: ...


def no_manager(entry: str) -> str | None:
    """Return None: nobody's manager is known."""
    return None


class Facts(Struct, frozen=True):
    """Inputs of `decide` beside the state. `entropy` is random text from which ids are derived."""

    now: str
    epoch: int
    entropy: str
    policy: Policy
    agents: AgentFacts = AgentFacts()
    pausing: bool = False
    """True while a person pauses the session: running work was told to leave for that, not because the process ends."""
    manager_of: Callable[[str], str | None] = no_manager
    """Return the manager of a person, both by id or e-mail address, or None if unknown."""
    clock_jumped: bool = False
    """True if `now` jumped ahead and is unconfirmed: nothing expires by it yet; see `engine.run.clock_watch`."""
    grants: Sequence[KeptRow] = ()
    """Calls that are always allowed where the session lives, beyond it (`engine.decide.agents.wide_grants`)."""


class Command(Struct, frozen=True):
    """A request to a session."""


class Start(Command, frozen=True):
    """Begin a session. Missing inputs are asked for before the flow starts."""

    session_id: str
    given: dict[str, Json]
    actor: Actor
    thread: dict[str, Json] | None = None
    parent_session_id: str | None = None
    flow_revision: str | None = None


class Claimed(Command, frozen=True):
    """The session was claimed under `facts.epoch`: starts of earlier epochs are interrupted."""


class Begin(Command, frozen=True):
    """Begin everything that is due."""


class NodeEnded(Command, frozen=True):
    """A node that was launched has ended. `attempt` tells a late outcome from the current one."""

    path: str
    attempt: int


class NodeDone(NodeEnded, frozen=True):
    """A node that was launched has finished."""

    output: Json


class NodeBroke(NodeEnded, frozen=True):
    """A node that was launched has failed."""

    error: dict[str, Json]


class NodeCut(NodeEnded, frozen=True):
    """A launched node was stopped, and the extent of its work is unknown. `lost`: the other side went away; `left`: it
    left by itself at a checkpoint, and `saved` is for its next attempt; `asks`: once people have answered its
    questions."""

    reason: Literal["cut", "timeout", "lost", "left", "asks"]
    message: str = ""
    saved: Json = None


class OnPrompt(Command, frozen=True):
    """A person's act on a prompt. `key` is the inbox key that carried it."""

    prompt_id: str
    actor: Actor
    key: str


class Answer(OnPrompt, frozen=True):
    """An answer to a prompt: an option's `value`, `text`, the `values` of its form, or `files` (`{name, path, size,
    type}`). `reason` goes with a decision, `always` (`{seconds?, patterns?}`) with the approval of a tool call that
    also allows later ones. A `nonce` must equal the prompt's."""

    value: Json = None
    text: str | None = None
    values: dict[str, Json] | None = None
    reason: str | None = None
    files: list[dict[str, Json]] | None = None
    nonce: str | None = None
    always: dict[str, Json] | None = None


class Edit(OnPrompt, frozen=True):
    """Change an approval's proposal: `values` holds the fields that get another value."""

    values: dict[str, Json]
    nonce: str | None = None


class HandOver(OnPrompt, frozen=True):
    """Let `to` answer a prompt in the actor's place: a user id, an e-mail address, or `local:<user>`. `taker` holds the
    known facts about that person, who may be asked already under another name."""

    to: str
    taker: Actor | None = None


class Revoke(OnPrompt, frozen=True):
    """Revoke what the approval of a tool call allowed beyond that call."""


class Words(Command, frozen=True):
    """Words of a person to the session."""

    text: str
    actor: Actor
    key: str


class Message(Words, frozen=True):
    """A message that names no prompt: answers the only open text prompt that this person may answer, else is kept."""


class Steer(Words, frozen=True):
    """A message to a running session that answers no question; `messages` in expressions. `to` is the path of the
    addressed agent. `files` came with it: `{name, path, size, type}`, or `{name, unread}` with the reason why it is
    missing."""

    files: tuple[dict[str, Json], ...] = ()
    to: str | None = None
    aside: bool = False
    """True if it was said to somebody else: it is never an instruction, whoever says it."""


class EndRest(Command, frozen=True):
    """Agents that rest after their answer listen no more: the flow continues."""

    actor: Actor
    key: str


class Shown(Command, frozen=True):
    """People can see the prompt now."""

    prompt_id: str
    shown: dict[str, Json]


class Gone(Command, frozen=True):
    """The message that showed a prompt was deleted; `ts` is that message's."""

    prompt_id: str
    ts: str


class Unreachable(Command, frozen=True):
    """The session's thread cannot be posted in, for the reason that Slack gave."""

    reason: str


class Reachable(Command, frozen=True):
    """The session's thread can be posted in."""


class Due(Command, frozen=True):
    """A timer's time has come."""

    timer_id: str


class Abort(Command, frozen=True):
    """End the session."""

    actor: Actor
    reason: str | None = None


class Hold(Command, frozen=True):
    """Pause the session: answers and timers are recorded and start nothing until it is resumed. `waits`: running work
    was told to leave and has not left yet."""

    actor: Actor
    reason: str | None = None
    waits: bool = False


class Resume(Words, frozen=True):
    """Continue with a session that is held; `text` is delivered after everything from before the pause."""


class LockGranted(Command, frozen=True):
    """The session is first in the queue for its lock."""

    name: str


class LockQueued(Command, frozen=True):
    """The session's lock is held or awaited by `holder`, a session in the thread `thread_key`."""

    name: str
    holder: str
    thread_key: str | None = None
