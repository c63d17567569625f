"""The state of a session, as immutable values. `engine.journal.fold` makes it of the session's events."""

from typing import dataclass_transform

from immutables import Map
from msgspec import Struct

from engine.forms.question import Question
from engine.journal.phases import STATUS, Phase, Status, in_words, standing
from engine.language.codec import Json

ROOT = ""
"""Path of the flow's own list of nodes."""


FINALLY = "finally"
"""Path of the list of nodes that runs at the end, and its id."""


ON_FAILURE = "on_failure"
"""Kind of the container in which the `on_failure` of a node runs."""


AGAIN = "again"
"""The answer that lets an interrupted node run once more; then also why that node is due."""


RETRY = "retry"
"""Reason of a node that is due because its retry delay has ended."""


LEFT = "left"
"""Why a node is due that left at a checkpoint of its own."""


ASKS = "asks"
"""Reason of a node whose MCP server asks people; it continues with their answers."""


QUIET = ("pausing", "held", "unreachable")
"""Phases in which clocks notify nobody."""


UNFINISHED = ("started", "interrupted", "retrying", "failing")
"""Statuses of nodes without a final outcome."""


@dataclass_transform(frozen_default=True)
class _Record(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of the state. `engine.journal.snapshot` reads and writes it under the names of the document."""


class NodeRun(_Record):
    """One execution of a node. `input` is kept while it may have to run again, `output` once it completed."""

    node_id: str
    type: str
    position: int
    status: str
    """`started`, `interrupted`, `retrying`, `failing`, `completed`, `failed` or `skipped`."""
    started_at: str | None = None
    ended_at: str | None = None
    epoch: int = 0
    attempt: int = 0
    crashes: int = 0
    failures: int = 0
    """Number of failed attempts; interrupted ones do not count."""
    input: Json = None
    output: Json = None
    error: dict[str, Json] | None = None
    reason: str | None = None
    saved: Json = None
    """State that the node saved when it left at a checkpoint, for its next attempts."""
    prompt_id: str | None = None
    """The question that was asked last about it."""
    handled: int | None = None
    """Number of runs of its `on_failure`, if any."""
    kept: "AgentRun | None" = None
    """Conversation of a failed agent that may be tried again and then continues it."""
    passes: dict[str, Json] | None = None
    """Passes of a failed loop: `items`, the items of the passes around the failure by address; with items of its own
    also the number of finished passes (`count`) out of `total`, and the first of their items (`done`)."""


class Asked(Question, kw_only=True):
    """A question of this session, with its outcome. `shown` is its message."""

    prompt_id: str
    path: str
    status: str
    """`requested`, `shown`, `answered`, `expired` or `cancelled`."""
    requested_at: str
    shown: dict[str, Json] | None = None
    answer: dict[str, Json] | None = None
    actor: dict[str, Json] | None = None
    at: str | None = None
    answer_key: str | None = None
    """The inbox key that carried the answer."""
    deadline: str | None = None
    votes: tuple[dict[str, Json], ...] = ()
    """`{actor, vote, reason, at}` of each voter, the latest vote last."""
    reminders: int = 0
    """Number of reminders to the people asked."""
    escalated: tuple[int, ...] = ()
    """The steps of its `escalate` that were taken."""
    reposts: int = 0
    """Number of times it was posted again because its message was gone."""

    @property
    def open(self) -> bool:
        """True if an answer would still count."""
        return self.status in ("requested", "shown")

    @property
    def answered_by(self) -> str | None:
        """Id of the person who answered it."""
        return (self.actor or {}).get("id")

    @property
    def approved(self) -> bool:
        """True if people approved it, or its timeout did."""
        if self.status == "expired":
            return self.on_timeout == "approve"
        return (self.answer or {}).get("value") == "approve"


class TimerRun(_Record):
    """A timer that is set."""

    timer_id: str
    path: str | None
    due_at: str
    purpose: str
    prompt_id: str | None


class Graph(_Record):
    """Progress of a pass whose list is a graph. It holds only open entries; finished ones leave."""

    ready: Map[str, None] = Map()
    """Nodes that may start."""
    ended: Map[str, None] = Map()
    """Nodes that have an outcome and unresolved edges."""
    gates: Map[str, tuple[int, int]] = Map()
    """For nodes that have not begun: the numbers of incoming edges that are resolved, and of those that were taken."""
    edges: Map[str, bool] = Map()
    """True for an edge (`from>to`) that was taken when it was last resolved."""
    again: Map[str, None] = Map()
    """Nodes that a jump gave another visit that has not begun."""


class Frame(_Record):
    """One pass through a list of nodes that is in progress; it is removed once all its nodes have their outcome.

    `owner` is the container's path (None for the flow's own list), `nodes` the path of each node that began. After
    several visits of a node it is the path of the latest one, and the earlier ones are dropped. `position` is the index
    of the first node without an outcome. A frame with an `error` has failed.
    """

    list_id: str = ""
    owner: str | None = None
    order: int = 0
    """Number of this pass in its container, from 0."""
    position: int = 0
    running: int = 0
    """Number of nodes that began and have no final outcome."""
    nodes: Map[str, str] = Map()
    error: dict[str, Json] | None = None
    jumps: tuple[tuple[str, str], ...] = ()
    """Jumps that are decided and wait until all that comes after their target has ended: from, to."""
    loops: Map[str, int] = Map()
    """Number of times each jump (`from>to`) was taken."""
    graph: Graph | None = None


class Spent(_Record):
    """Usage of model calls. Costs are dollars, as exact decimals in text."""

    turns: int = 0
    tokens: int = 0
    cost: str = "0"
    unsure: str = "0"
    """Reservations of calls with unknown cost: cut, failed, or lost in a crash."""
    reserved: str = "0"
    """Reserved for calls that are in progress."""
    unsure_tokens: int = 0
    """Maximum tokens of calls with unknown usage."""
    reserved_tokens: int = 0
    """The most tokens that the calls use that are in progress."""

    @property
    def most_tokens(self) -> int:
        """The most tokens that all calls have used and use."""
        return self.tokens + self.unsure_tokens + self.reserved_tokens


class Call(_Record):
    """A tool call by the model that has no result yet."""

    tool_use_id: str
    name: str
    input: Json
    tool: int | None
    """Place of the tool in the agent's list; None for an unknown tool."""
    prompt_id: str | None = None
    """The question whether it may run, once it was asked."""


class AgentRun(_Record):
    """The conversation of an agent that is in progress."""

    model: str = ""
    lists: tuple[str, str] = ("", "")
    """The ids of its lists of nodes: model calls, tools."""
    keeps: bool = False
    structured: bool = False
    """Its last answer is JSON, and `data` in its output."""
    caps: dict[str, Json] = {}
    """`maxCost`, `maxTokensTotal`, `maxTurns` as they hold now, and `day` once a person let it pass the day's cap."""
    messages: Map[int, dict[str, Json]] = Map()
    """The conversation by number, as it was sent and answered."""
    pending: tuple[dict[str, Json], ...] = ()
    """Blocks that are in the next call, after the results of tools."""
    heard: tuple[str, ...] = ()
    """Inbox keys of the people's messages among them."""
    spoke: Map[str, str] = Map()
    """Time at which each person last spoke to it, by id: their messages keep going to it."""
    calls: Map[str, Call] = Map()
    """The tool calls without a result, by path."""
    order: tuple[str, ...] = ()
    """The ids of all tool calls of the last answer."""
    results: Map[str, dict[str, Json]] = Map()
    """The blocks of those that have their result, by id."""
    spent: Spent = Spent()
    usage: dict[str, int] = {}
    context: int = 0
    """Tokens of the conversation when it was last answered, with the answer."""
    counted: int = 0
    """Number of messages covered by `context`."""
    text: str = ""
    """The text of the last answer."""
    final: bool = False
    """True if the last answer was the final one, with no message since."""
    corrections: int = 0
    """Number of times it was told that its answer has the wrong form, since the last message of a person."""
    container: dict[str, Json] | None = None
    """Container of the provider that runs its code: `{id, expires_at}`."""
    unsigned: bool = False
    """True if the API failed to make a requested summary: the model is asked in words."""
    body: dict[str, Json] | None = None
    """Request without its messages, as in the first answered call; None before that."""
    drop: bool = False
    """True if the API is asked to omit thinking bound to another beginning."""
    stuck: dict[str, Json] | None = None
    """Why it does not continue before people said how: an error."""
    alone: dict[str, int] = {}
    """Number of uses of each automatic remedy, since the last usable answer or the last message of a person."""
    max_tokens: int | None = None
    """Longest answer in tokens, if no longer the flow's value."""
    compacts: str | None = None
    """Set if the next call compacts the conversation: `all` of it, or with `brief` results."""
    resends: bool = False
    """True if the last message goes back unchanged: the model paused."""
    plain: int = 0
    """Number of messages that are sent without their thinking since a person said so; later ones have none."""
    cut: str = ""
    """The text of an answer so far that was cut, and is gone on with."""
    plan: dict[str, Json] | None = None
    """Plan it follows until its last answer: `turn`, the model call that stated it first, and `input`, its current
    form."""


class ContainerRun(_Record):
    """A container that is in progress. `results` has the result of each finished pass, by its number."""

    node_id: str
    kind: str
    total: int | None = None
    items: list[Json] | None = None
    keys: list[str] | None = None
    inputs: dict[str, Json] | None = None
    begun: int = 0
    running: int = 0
    results: Map[int, dict[str, Json]] = Map()
    last: dict[str, Json] | None = None
    """The outputs of the pass that finished last; `last` in a loop."""
    error: dict[str, Json] | None = None
    """Set when a pass failed and the container has to fail with it: it only waits for running work."""
    agent: AgentRun | None = None


class Grant(_Record):
    """Calls of a tool that people allow always, for a time."""

    prompt_id: str
    """The approval with which they said so."""
    node_id: str
    tool: str
    fields: dict[str, Json]
    """Required value of each field of the input, `{is}` or `{like}`."""
    definition: str
    until: str
    by: tuple[dict[str, Json], ...] = ()
    used: int = 0
    uses: tuple[str, ...] = ()
    """Paths of the latest calls that ran by it."""
    over: str | None = None
    """`revoked` or `expired`."""
    wide: dict[str, Json] | None = None
    """For a grant beyond its run: its `scope`, the `rev` of its row, and its further conditions."""

    @property
    def exact(self) -> bool:
        """True if it has no pattern: it covers only the approved call itself."""
        return all("is" in wanted for wanted in self.fields.values())


class LockRun(_Record):
    """The lock that the session holds until it ends, or waits for while `acquired_at` is None."""

    name: str
    on_conflict: str
    requested_at: str
    acquired_at: str | None = None


class Owed(_Record, array_like=True):
    """An event that follows in the same step: one of these types, at this path, about the prompt or timer of this id."""

    types: tuple[str, ...]
    path: str | None = None
    id: str | None = None


class State(_Record):
    """Everything known about a session. Never changed in place."""

    session_id: str = ""
    flow_name: str = ""
    flow_digest: str = ""
    parent_session_id: str | None = None
    flow_revision: str | None = None
    """The version of the folder that its flow came from; None after a migration to another text."""
    phase: Phase = "idle"
    outcome: Status | None = None
    seq: int = 0
    created_at: str = ""
    updated_at: str = ""
    actor: dict[str, Json] = {}
    thread: dict[str, Json] | None = None
    given: dict[str, Json] = {}
    inputs: dict[str, Json] | None = None
    nodes: Map[str, NodeRun] = Map()
    active: Map[str, None] = Map()
    """Paths of nodes that were started and have no final outcome."""
    launched: Map[str, None] = Map()
    """Paths of nodes that a process is executing right now (or was, when it died)."""
    frames: Map[str, Frame] = Map()
    containers: Map[str, ContainerRun] = Map()
    node_runs: int = 0
    """Number of nodes that have begun, over the whole session."""
    prompts_asked: int = 0
    prompts: Map[str, Asked] = Map()
    open_prompts: Map[str, None] = Map()
    grants: Map[str, Grant] = Map()
    """Grants by the id of the approval that gave them."""
    timers: Map[str, TimerRun] = Map()
    messages: tuple[dict[str, Json], ...] = ()
    """All messages from people that answered no prompt; `messages` in expressions."""
    pending: tuple[tuple[str, str], ...] = ()
    """Inbox key and text of messages not taken yet: no node began since, or the agent that heard one has made no model
    call."""
    seen: Map[str, None] = Map()
    """Inbox keys of messages and answers that were taken."""
    paused_at: str | None = None
    pause_reason: str | None = None
    pausing: dict[str, Json] | None = None
    """Set while a pause waits for running work to leave: `{reason, actor}`."""
    error: dict[str, Json] | None = None
    limits: tuple[dict[str, Json], ...] = ()
    """Limits of loops and loop edges that the session continued at: `{path, to, times}`; `to` is null for a loop."""
    lock: LockRun | None = None
    spent: Spent = Spent()
    """Total usage of all agents of the session."""
    conversations: Map[str, tuple[dict[str, Json], ...]] = Map()
    """The conversations of agents that have ended, by path, where a later agent gets them."""
    caps: dict[str, Json] = {}
    """The flow's caps as people raised them."""
    finally_skipped: bool = False
    """True if a person ended the session while it was ending: the rest of `finally` does not run."""
    owed: tuple[Owed, ...] = ()
    """Events that the current step still has to write, or to be read. Between two steps it is empty."""

    @property
    def status(self) -> Status:
        """`idle`, `running`, `paused`, `complete`, `failed` or `aborted`."""
        if self.phase == "ended":
            return self.outcome or "failed"
        return STATUS[self.phase]

    @property
    def standing(self) -> str:
        """The word for how it stands as programs read it (`phases.standing`)."""
        return standing(self.status, self.phase, self.error)

    @property
    def stands(self) -> str:
        """The same as people read it."""
        return in_words(self.standing)

    @property
    def ended(self) -> bool:
        """True once the last event of the session has been written."""
        return self.phase == "ended"


def scope_of(path: str) -> str:
    """The address of the pass that a node is in."""
    return path.rpartition("/")[0]


def of_first_attempt(address: str) -> str:
    """A place without the number of its attempt (`try#2/agent#3` is `try#2/agent`); what stands around it keeps its own."""
    around, slash, last = address.rpartition("/")
    return around + slash + last.partition("#")[0]


def below(path: str, address: str) -> bool:
    """True if an address (of a node or a pass) lies inside the container at `path`."""
    return address.startswith(path) and (len(address) == len(path) or address[len(path)] in "[/!#")


def in_finally(address: str) -> bool:
    """True if a node or a pass belongs to `finally`."""
    return address == FINALLY or address.startswith(FINALLY + "/")


def visit_of(path: str) -> int:
    """Return the number of a path's visit of its node, from 1."""
    _, mark, number = path.rpartition("/")[2].partition("~")
    return int(number) if mark and number.isdecimal() else 1


def visit_path(frame: Frame, scope: str, node_id: str) -> str:
    """The path under which a node of a pass begins next."""
    path = f"{scope}/{node_id}" if scope else node_id
    earlier = frame.nodes.get(node_id)
    return path if earlier is None else f"{path}~{visit_of(earlier) + 1}"


COLLECT = -1
"""`total` of a parallel container whose branches do not fail each other."""
