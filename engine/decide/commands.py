"""What can be asked of a session: the commands that `decide` takes. Plain values."""

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
"""What a person wants to do, as the policy knows it: `answer` an ask or an input, `decide` an approval, `resolve` an
interrupted or failed node or a question about a cap, `edit` what an approval proposes, `hand_over` a prompt, `revoke`
what was allowed; the rest as people say it."""


class Policy(Protocol):
    """Says whether an actor may do something. Returns None, or the sentence that tells that person why not. With
    `start` the question says `who`, where the flow has a rule about that."""

    def __call__(self, actor: Actor, action: Action, state: State, prompt: Question | None) -> str | None: ...


def no_manager(entry: str) -> str | None:
    """The answer where nobody knows who manages whom."""
    return None


class Facts(Struct, frozen=True):
    """What `decide` may know beside the state. `entropy` is random text from which ids are derived."""

    now: str
    epoch: int
    entropy: str
    policy: Policy
    agents: AgentFacts = AgentFacts()
    pausing: bool = False
    """A person pauses the session: what runs was told to leave for that, and not because the process ends."""
    manager_of: Callable[[str], str | None] = no_manager
    """Who manages a person, both by id or e-mail address, as far as the installation knows."""
    clock_jumped: bool = False
    """`now` jumped ahead and was not confirmed: nothing is over by it yet; see `engine.run.clock_watch`."""
    grants: Sequence[KeptRow] = ()
    """Calls that are always allowed where the session lives, beyond it (`engine.decide.agents.wide_grants`)."""


class Command(Struct, frozen=True):
    """What can be asked of a session."""


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


class NodeDone(Command, frozen=True):
    """A node that was launched has finished. `attempt` tells a late outcome from the current one."""

    path: str
    attempt: int
    output: Json


class NodeBroke(Command, frozen=True):
    """A node that was launched has failed."""

    path: str
    attempt: int
    error: dict[str, Json]


class NodeCut(Command, frozen=True):
    """A node that was launched was stopped; what it had done is unknown. `lost`: the other side went away; `left`:
    it left by itself at a checkpoint, and `saved` is for its next attempt; `asks`: once people have answered what is in it."""

    path: str
    attempt: int
    reason: Literal["cut", "timeout", "lost", "left", "asks"]
    message: str = ""
    saved: Json = None


class Answer(Command, frozen=True):
    """An answer to a prompt: an option's `value`, `text`, the `values` of its form, or `files` (`{name, path, size,
    type}`). `reason` goes with a decision, `always` (`{seconds?, patterns?}`) with the approval of a tool call that is to be
    allowed from then on. With `nonce` it must be the prompt's own."""

    prompt_id: str
    actor: Actor
    key: str
    value: Json = None
    text: str | None = None
    values: dict[str, Json] | None = None
    reason: str | None = None
    files: list[dict[str, Json]] | None = None
    nonce: str | None = None
    always: dict[str, Json] | None = None


class Edit(Command, frozen=True):
    """Change what an approval proposes: `values` has the fields that are to be other than they are now."""

    prompt_id: str
    actor: Actor
    key: str
    values: dict[str, Json]
    nonce: str | None = None


class HandOver(Command, frozen=True):
    """Let `to` answer a prompt in the actor's place: a user id, an e-mail address, or `local:<user>`. `taker` is what is
    known of that person, who may be asked already under another name."""

    prompt_id: str
    actor: Actor
    key: str
    to: str
    taker: Actor | None = None


class Revoke(Command, frozen=True):
    """Take back what was allowed beyond one call with the approval of a tool call."""

    prompt_id: str
    actor: Actor
    key: str


class Message(Command, frozen=True):
    """A message that names no prompt: answers the only open text prompt that this person may answer, else is kept."""

    text: str
    actor: Actor
    key: str


class Steer(Command, frozen=True):
    """A message for a session on its way: it answers nothing, and is `messages` in expressions. `to` is the path of the agent
    that is meant. `files` came with it: `{name, path, size, type}`, or `{name, unread}` with why one is not given."""

    text: str
    actor: Actor
    key: str
    files: tuple[dict[str, Json], ...] = ()
    to: str | None = None
    aside: bool = False
    """Said to somebody else: whoever says it, it is no instruction."""


class EndRest(Command, frozen=True):
    """Agents that rest after their answer listen no more: the flow goes on."""

    actor: Actor
    key: str


class Shown(Command, frozen=True):
    """People can see the prompt now."""

    prompt_id: str
    shown: dict[str, Json]


class Gone(Command, frozen=True):
    """The message that showed a prompt is not there any more; `ts` is that message's."""

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
    """Pause the session: answers and timers are recorded and start nothing until it is resumed. `waits`: something
    that runs was told to leave and has not yet."""

    actor: Actor
    reason: str | None = None
    waits: bool = False


class Resume(Command, frozen=True):
    """Go on with a session that is held; `text` is delivered after everything from before the pause."""

    text: str
    actor: Actor
    key: str


class LockGranted(Command, frozen=True):
    """Nobody is ahead of the session in the queue for its lock."""

    name: str


class LockQueued(Command, frozen=True):
    """The session's lock is held by `holder` (or that one is ahead of it), which lives in the thread `thread_key`."""

    name: str
    holder: str
    thread_key: str | None = None
