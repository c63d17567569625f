"""Facts of a session, in the past tense: a closed union, tagged by wire names that we own.

Wire names and fields are those of the pause/resume and event-sourced-containers specifications, in camelCase.
Every event has `seq` (1, 2, 3, ... within its session) and `timestamp` (UTC, ISO-8601); events that have a
place have `path`. An event that was once written is never rewritten: readers upcast.

Reading an event checks every field. Making one checks nothing but its names: mypy does the rest. What a node, a model or
a person brings into an event is refused by `engine.language.codec` when the event is written, if it is not JSON.
"""

from functools import cache
from typing import ClassVar, Literal, dataclass_transform

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import astuple

from engine.forms.question import Question
from engine.language.codec import Json, decode, encode
from engine.language.errors import MalformedJournal, NotJson, SchemaTooNew

SCHEMA_VERSION = 3
"""Version of the events' schema, stored beside every journal row. It counts up with every release that adds an event
or a field, or gives one another meaning: an older release then leaves the session to a newer one."""


@dataclass_transform(frozen_default=True)
class Event(
    Struct, frozen=True, rename="camel", tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    """What all events share. `seq` orders the session; `timestamp` is the only clock that the fold ever sees."""

    type: ClassVar[str]
    """The event's name on the wire."""
    seq: int
    timestamp: str
    path: str | None = None

    @property
    def transition(self) -> str:
        """The name under which the table of transitions knows this event."""
        return self.type

    def to_wire(self) -> dict[str, Json]:
        """The JSON object; absent fields are left out."""
        wire: dict[str, Json] = {"type": self.type}
        for name, value in zip(self.__struct_encode_fields__, astuple(self), strict=True):
            if value is not None:
                wire[name] = value
        return wire

    def to_bytes(self) -> bytes:
        """The event as it is stored. Raises `NotJson` when a payload is not plain JSON."""
        # Not by msgspec, which writes NaN as null and a set as a list without a word.
        return encode(self.to_wire())


class NodeEvent(Event, kw_only=True):
    """About a node: in a container that of the container, in a conversation that of the agent."""

    node_id: str


class PromptEvent(Event, kw_only=True):
    """About a question."""

    prompt_id: str


# --- session and flow ------------------------------------------------------------------------------------


class SessionStarted(Event, tag="session:start", kw_only=True):
    """A session came to be: which flow, by whom, in which thread, with which inputs given so far. `flow_revision` is the
    version of the folder of flows: a commit, or what its `REVISION` says."""

    session_id: str
    flow_name: str
    flow_digest: str
    given: dict[str, Json]
    actor: dict[str, Json]
    thread: dict[str, Json] | None = None
    parent_session_id: str | None = None
    flow_revision: str | None = None


class FlowStarted(Event, tag="flow:started", kw_only=True):
    """All inputs are known; the first node may start. `input` is what `inputs` is in expressions."""

    flow_name: str
    input: dict[str, Json]


class FlowPaused(Event, tag="flow:paused", kw_only=True):
    """Nothing can run until a person or a timer acts, or, with `held`, until a person resumes what a person paused."""

    node_id: str | None = None
    reason: str
    held: bool | None = None
    actor: dict[str, Json] | None = None

    @property
    def transition(self) -> str:
        """The name under which the table knows it."""
        return "flow:paused(held)" if self.held else self.type


class FlowPausing(Event, tag="flow:pausing", kw_only=True):
    """A person pauses the session, and what runs was told to leave and has not yet. Nothing starts any more;
    `flow:paused` follows once all of it has left, unless the flow ends with it."""

    node_id: str | None = None
    reason: str
    actor: dict[str, Json]


class FlowResumed(Event, tag="flow:resumed", kw_only=True):
    """The session goes on: `message` is the reply that did it, `injected_messages` how many came with it."""

    node_id: str | None = None
    message: str | None = None
    injected_messages: int


class FlowFinalizing(Event, tag="flow:finalizing", kw_only=True):
    """The flow is over as `outcome` says, and what its file has under `finally` runs now. `path` and `error` say what
    failed it. Without `finally` there is no such event."""

    outcome: Literal["complete", "failed", "aborted"]
    list_id: str
    error: dict[str, Json] | None = None


class FlowCompleted(Event, tag="flow:completed", kw_only=True):
    """Every node has had its outcome and none failed the flow."""


class FlowFailed(Event, tag="flow:failed", kw_only=True):
    """A node failed the flow; `path` says which."""

    error: dict[str, Json]


class FlowMigrated(Event, tag="flow:migrated", kw_only=True):
    """A person let the session go on with another text of its flow. `input` is what `inputs` is from now on;
    `frames` and `nodes` are the places of what is under way in the new text's lists; the nodes `anew` could not run for want
    of their type, and begin as what the new text has there."""

    flow_digest: str
    actor: dict[str, Json]
    input: dict[str, Json] | None = None
    frames: dict[str, int]
    nodes: dict[str, int]
    anew: list[str] | None = None


class LockRequested(Event, tag="lock:requested", kw_only=True):
    """The session took its place in the queue for a lock, whose name comes from its inputs. Nothing starts before it
    has it; with `refuse` it fails where another session is ahead."""

    name: str
    on_conflict: Literal["queue", "refuse"]


class LockAcquired(Event, tag="lock:acquired", kw_only=True):
    """Nobody was ahead any more: the session holds the lock until it ends."""

    name: str


class SessionMessage(Event, tag="session:message", kw_only=True):
    """A message for the session that answered no prompt; `messages` in expressions."""

    message: str
    actor: dict[str, Json]
    key: str


class SessionAborted(Event, tag="session:abort", kw_only=True):
    """A person ended the session; open prompts are cancelled, nothing further starts but `finally`. While that runs,
    it says that the rest of it is skipped."""

    reason: str | None = None
    actor: dict[str, Json] | None = None


class SessionUnreachable(Event, tag="session:unreachable", kw_only=True):
    """The session's thread cannot be posted in: nothing starts until it can. `reason` is what Slack said."""

    reason: str


class SessionReachable(Event, tag="session:reachable", kw_only=True):
    """The session's thread can be posted in again."""


class SessionEnd(Event, tag="session:end", kw_only=True):
    """The last event of every session."""

    status: Literal["complete", "failed", "aborted"]


# --- nodes -----------------------------------------------------------------------------------------------


class NodeStarted(NodeEvent, tag="node:started", kw_only=True):
    """A node began: `input` is its configuration with every expression evaluated, secrets left as references.

    `epoch` says under which claim; a start of an earlier epoch without an outcome was interrupted.
    """

    node_type: str
    node_index: int
    input: Json = None
    epoch: int
    attempt: int


class NodeCompleted(NodeEvent, tag="node:completed", kw_only=True):
    """A node finished; `output` is what `nodes.<id>` is from now on. It never runs again."""

    output: Json = None


class NodeFailing(NodeEvent, tag="node:failing", kw_only=True):
    """No try is left, and before the failure counts its `on_failure` runs (`list_id`, in the pass `scope`), or people
    are asked what to do (`on_error: ask`). `node:error`, `node:skipped` or another start follows. `keeps`: the
    conversation of an agent stays, and another start goes on with it. `unpaid` as in `node:retried`."""

    error: dict[str, Json]
    attempt: int
    list_id: str | None = None
    scope: str | None = None
    keeps: bool | None = None
    unpaid: bool | None = None


class NodeFailed(NodeEvent, tag="node:error", kw_only=True):
    """A node failed for good. `contained`: the nodes around it go on all the same, at `goto` where that is named.
    `unpaid` as in `node:retried`."""

    error: dict[str, Json]
    attempt: int
    contained: bool | None = None
    goto: str | None = None
    unpaid: bool | None = None


class NodeRetried(NodeEvent, tag="node:retried", kw_only=True):
    """An attempt failed and another one follows when the timer fires: same path, same key, same input. `unpaid`: a model
    call that was not sent, or refused before any answer, so that nothing that was set aside for it is counted."""

    error: dict[str, Json]
    attempt: int
    timer_id: str
    due_at: str
    unpaid: bool | None = None


class NodeSkipped(NodeEvent, tag="node:skipped", kw_only=True):
    """A node's own `if` was false, no edge that leads to it was taken, or a person skipped it after it failed.

    `node_index` is its place in the list, where the list is a graph.
    """

    node_type: str
    reason: str
    node_index: int | None = None


class NodeInterrupted(NodeEvent, tag="node:interrupted", kw_only=True):
    """A node was started and its outcome is unknown: a crash, a cut at shutdown, or a timeout of what has effects.

    `left` is another thing: it left at a checkpoint of its own, with `saved`, and simply runs again. `changed` too: it
    was not launched, since its code is another than before and a person has to agree; and so was `missing`, whose type, or
    that of what it approves, cannot be used where sayso runs. `asks`: its server asks people for what is in `saved`
    (`engine.nodes.runtime.mcp_asks`), and it goes on with their answers. A model call leaves with `saved` before anything is sent: more has to be set
    aside for it (`room`, tokens for files and tools; null: a whole context).
    """

    reason: Literal["crash", "cut", "timeout", "lost", "left", "changed", "missing", "asks"]
    saved: Json = None


# --- graphs and jumps ------------------------------------------------------------------------------------


class EdgeResolved(Event, tag="edge:resolved", kw_only=True):
    """A node of a graph has its outcome, and whether each forward edge that leaves it was taken is known for good.

    `path` is that node's, `taken` has the result by target, `ready` are the nodes that may start because of it, `jump`
    is where a loop edge leads that was taken. Without a `path` a pass begins: `ready` are the nodes it begins with.
    `limit` is where a loop edge would have led that was used up (`on_limit: continue`, or a person's word). `error` fails the
    pass `scope`: a condition of an edge could not be evaluated, a loop edge was used up, or no final node ran.
    """

    scope: str
    node_id: str | None = None
    taken: dict[str, bool] | None = None
    ready: list[str]
    jump: str | None = None
    limit: str | None = None
    error: dict[str, Json] | None = None


class LoopIterate(Event, tag="loop:iterate", kw_only=True):
    """A jump back or ahead: a loop edge, or `on_error: goto:<id>`. `path` is the node that it leads away from.

    `iteration` counts, from 1, how often this pass took it; `position` is the place of the target in its list. In
    a graph `reset` are the nodes that get another visit, and `carried` says of how many edges from elsewhere the
    result still counts for them: how many are known, and how many of those were taken.
    """

    edge_from: str
    edge_to: str
    iteration: int
    position: int
    reset: list[str] | None = None
    carried: dict[str, list[int]] | None = None


# --- containers ------------------------------------------------------------------------------------------


class ChildStarted(NodeEvent, tag="container:childStarted", kw_only=True):
    """A node inside a container began; what `node:started` is for the flow's own nodes. `node_id` is the container's."""

    child_id: str
    child_index: int
    node_type: str
    input: Json = None
    epoch: int
    attempt: int


class ChildCompleted(NodeEvent, tag="container:childCompleted", kw_only=True):
    """A node inside a container finished; what `node:completed` is for the flow's own nodes."""

    child_id: str
    output: Json = None


class ContainerStarted(NodeEvent, tag="container:started", kw_only=True):
    """A container knows what it will go through. `items` are frozen here; `keys` are branches or the case taken;
    `inputs` are those of a called flow; `agent` has the `model` of an agent, its caps (`maxCost`, `maxTokensTotal`,
    `maxTurns`), its lists of nodes (`turnList`, `toolList`), whether its answer is JSON (`structured`), a later agent
    gets its conversation (`keeps`), and it goes on with the one that it had when it failed (`goesOn`)."""

    kind: Literal["foreach", "loop", "parallel", "switch", "flow", "agent"]
    total: int | None = None
    items: list[Json] | None = None
    keys: list[str] | None = None
    inputs: dict[str, Json] | None = None
    agent: dict[str, Json] | None = None


class IterationStarted(NodeEvent, tag="container:iterationStarted", kw_only=True):
    """One pass through a list of nodes began: an item, a round, a branch, a case, or the called flow.

    `scope` is the address of the pass, under which its nodes have theirs; `list_id` names the list of nodes.
    """

    index: int
    key: str | None = None
    scope: str
    list_id: str


class IterationCompleted(NodeEvent, tag="container:iterationCompleted", kw_only=True):
    """Every node of a pass has its outcome. Its outputs are those of its nodes, and are not said twice. Of a pass that
    failed, `unreached` are the nodes that it did not come to: their outputs are null. `collected` is what `collect` of a
    `foreach` gave for it."""

    index: int
    scope: str
    error: dict[str, Json] | None = None
    unreached: list[str] | None = None
    collected: Json = None


class ContainerCompleted(NodeEvent, tag="container:completed", kw_only=True):
    """Nothing is left to go through. The container's output follows from its passes. `limit` is the number of rounds of a
    loop that would have gone on (`on_limit: continue`, or a person's word)."""

    limit: int | None = None


# --- agents ----------------------------------------------------------------------------------------------


class AgentOpened(NodeEvent, tag="agent:opened", kw_only=True):
    """What of a request holds for all later ones of its conversation, since the model call `turn` was answered.

    `body` is the request without its messages, once for each conversation: every later call sends it as it is, whatever a
    release, a docstring or a server says by then. `files` are the files that the call read, in their order in the
    conversation: the `digest` under which the bytes are kept, and the `block` that is sent around them. With `drop`, thinking
    that is bound to another beginning is left out by the API from now on: the conversation is older than this event, or
    the API refused it once. `listed` are the tools of it that MCP servers describe. Without a `turn` it is a person's word: the tools of a server are offered as they are now.
    """

    turn: str | None = None
    body: dict[str, Json] | None = None
    files: list[dict[str, Json]] | None = None
    drop: bool | None = None
    listed: list[str] | None = None


class AgentMessage(NodeEvent, tag="agent:message", kw_only=True):
    """A message of an agent's conversation. `content` are blocks of the Messages API, those of the model verbatim.

    The model's (`source: model`) is the outcome of the model call `turn`: with what it used and cost (dollars), why it
    stopped, whether it was `interrupted` by a pause, and whether it is the `final` one. Others stand in the next call:
    what the flow asks (`prompt`), what a person says (`person`, `key` is the inbox key that carried it; `overheard` where
    those words are data and no instruction), what is wrong with an answer (`engine`). `weighed` are marks of the files
    and tools outside of the journal that its tokens include. `price` says by which rates the cost was reckoned, `context`
    how many tokens the conversation has with its answer where that is not the sum of `usage`,
    `container` where code of the model ran at the provider, `dropped` how much of its earlier thinking the API left out of
    what was sent: the number of blocks by the reason.
    """

    role: Literal["user", "assistant"]
    source: Literal["prompt", "person", "engine", "model"]
    content: list[dict[str, Json]]
    turn: str | None = None
    actor: dict[str, Json] | None = None
    key: str | None = None
    usage: dict[str, int] | None = None
    cost: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    interrupted: bool | None = None
    final: bool | None = None
    weighed: list[str] | None = None
    price: dict[str, Json] | None = None
    context: int | None = None
    overheard: bool | None = None
    container: dict[str, Json] | None = None
    dropped: dict[str, int] | None = None


class AgentToolRequested(NodeEvent, tag="agent:toolRequested", kw_only=True):
    """The model asks for a tool, as the `index`-th of its message. `tool` is the tool's place in the agent's list, None
    where it has no such tool."""

    tool_use_id: str
    name: str
    input: Json = None
    tool: int | None = None


class AgentToolResult(NodeEvent, tag="agent:toolResult", kw_only=True):
    """What the model is told about a tool call: its outcome, or why there is none. A call that ran never runs again."""

    tool_use_id: str
    content: list[dict[str, Json]]
    is_error: bool | None = None
    error: dict[str, Json] | None = None


class AgentCompacted(NodeEvent, tag="agent:compacted", kw_only=True):
    """The conversation came near the model's limit: from now on `content` stands for all of it (`replaced` messages).
    It is the outcome of the model call `turn`. `block` is the summary where the API made and signed it: it stands before
    `content`, as the model's, and is sent back as it came.
    """

    turn: str
    content: list[dict[str, Json]]
    replaced: int
    usage: dict[str, int] | None = None
    cost: str | None = None
    model: str | None = None
    price: dict[str, Json] | None = None
    block: dict[str, Json] | None = None


class AgentOutcome(NodeEvent, tag="agent:outcome", kw_only=True):
    """What follows a model call that has no answer to go on with. `ask`: people are asked, about this `error`. All others go
    on, by themselves or by the word of `actor`: the call is made `again`, with more `room` (`max_tokens` from now on) or by
    another `model`; the conversation is to be summed up first (`compact`, with `brief` results that are long); what was cut
    is gone on with (`go_on`), what paused sent back (`resend`); `said` are words to the model (`content`). `text` is what its
    answer has so far. A call that a person has made again may have another `model`, other `max_tokens` and no thinking
    (`plain`), now and later. `stop`: a person gave the agent up."""

    how: Literal["ask", "again", "room", "model", "compact", "go_on", "resend", "said", "stop"]
    error: dict[str, Json] | None = None
    actor: dict[str, Json] | None = None
    model: str | None = None
    max_tokens: int | None = None
    plain: bool | None = None
    brief: bool | None = None
    content: list[dict[str, Json]] | None = None
    text: str | None = None
    key: str | None = None


class AgentBudget(NodeEvent, tag="agent:budget", kw_only=True):
    """A person let an agent go on at a cap: these hold from now on. `scope` is what was at its cap: the agent (`node`),
    the flow, or the day, whose cap this agent is free of from then on."""

    scope: Literal["node", "flow", "day"]
    caps: dict[str, Json]
    actor: dict[str, Json]


# --- prompts and timers ----------------------------------------------------------------------------------


class PromptRequested(PromptEvent, tag="prompt:requested", kw_only=True):
    """A question for people. `prompt` has kind, message, options, who may answer, and its clocks (see `engine.forms.question`)."""

    prompt: dict[str, Json]

    @property
    def question(self) -> Question:
        """What is asked. Raises `MalformedJournal`."""
        return Question.from_wire(self.prompt)


class PromptShown(PromptEvent, tag="prompt:shown", kw_only=True):
    """People can see the prompt: where. Its clocks start here."""

    shown: dict[str, Json]


class PromptVoted(PromptEvent, tag="prompt:voted", kw_only=True):
    """A person voted and that decides nothing yet. It takes the place of that person's vote before. `reason` is why; for
    `answer` it is the result in the tool's place, and those who gave the same one agree."""

    actor: dict[str, Json]
    vote: Literal["approve", "reject", "answer"]
    always: dict[str, Json] | None = None
    """The grant that goes with an approval, `{seconds, fields}`."""
    reason: str | None = None
    key: str


class PromptEdited(PromptEvent, tag="prompt:edited", kw_only=True):
    """A person changed what is to be approved. Votes before it are void, and buttons of the copy before (`nonce`) too.

    `values` are all values of the form from now on, `before` those that were changed as they had been, `covers` what
    would run now.
    """

    actor: dict[str, Json]
    values: dict[str, Json]
    before: dict[str, Json]
    covers: dict[str, Json] | None = None
    nonce: str
    key: str


class PromptHanded(PromptEvent, tag="prompt:handed", kw_only=True):
    """A person let somebody else answer in their place."""

    actor: dict[str, Json]
    to: str
    key: str


class PromptAnswered(PromptEvent, tag="prompt:answered", kw_only=True):
    """The one and final answer of a prompt. `key` is the inbox key that carried it."""

    actor: dict[str, Json]
    answer: dict[str, Json]
    key: str | None = None


class PromptExpired(PromptEvent, tag="prompt:expired", kw_only=True):
    """The deadline passed unanswered; `outcome` is what `on_timeout` made of it."""

    outcome: str


class PromptReminded(PromptEvent, tag="prompt:reminded", kw_only=True):
    """Those who are asked are told once more; `count` is how often they have been by now."""

    count: int


class PromptEscalated(PromptEvent, tag="prompt:escalated", kw_only=True):
    """Nobody answered for so long that others are told: step `step` (from 0) of the prompt's `escalate`. With
    `may_answer` the people and groups in `to` may answer from now on."""

    step: int
    to: list[str]
    may_answer: bool | None = None


class PromptReposted(PromptEvent, tag="prompt:reposted", kw_only=True):
    """The message that showed the prompt is gone, so it is shown once more: buttons of the copy before do not match
    any more. Its clocks go on."""

    nonce: str


class PromptCancelled(PromptEvent, tag="prompt:cancelled", kw_only=True):
    """The prompt is withdrawn; its buttons go away."""

    reason: str


class GrantGiven(PromptEvent, tag="grant:given", kw_only=True):
    """Calls of this tool with such an input run unasked from now on: `prompt_id` is the approval with which that was said.
    `definition` is a digest of the tool and of its rule: with another one the grant counts for nothing. `wide` is of one
    beyond this run: the `scope`, and what else it is bound to (`engine.decide.agents.wide_grants`)."""

    node_id: str
    tool: str
    fields: dict[str, Json]
    definition: str
    until: str
    wide: dict[str, Json] | None = None


class GrantUsed(PromptEvent, tag="grant:used", kw_only=True):
    """A call at `path` runs unasked. `digest` is of what it does, as an approval would have shown it. `grant` has all of a
    grant that other runs use, too, with this use."""

    digest: str
    grant: dict[str, Json] | None = None


class GrantRevoked(PromptEvent, tag="grant:revoked", kw_only=True):
    """A person took it back. `grant` as in `grant:used`."""

    actor: dict[str, Json]
    key: str
    grant: dict[str, Json] | None = None


class GrantExpired(PromptEvent, tag="grant:expired", kw_only=True):
    """Its time was over when a call would have used it."""


class TimerSet(Event, tag="timer:set", kw_only=True):
    """A durable timer: fires once, at or after `due_at` (UTC, ISO-8601), also after a restart."""

    timer_id: str
    due_at: str
    purpose: Literal["wait", "deadline", "retry", "timeout", "remind", "escalate", "unreachable", "followUp"]
    prompt_id: str | None = None


class TimerFired(Event, tag="timer:fired", kw_only=True):
    """The timer fired; a timer that is no longer set changes nothing."""

    timer_id: str


EVENTS: dict[str, type[Event]] = {}
"""The class of each event, by its name on the wire, in the order of this module."""

for _kind in [*globals().values()]:
    if isinstance(_kind, type) and issubclass(_kind, Event) and _kind not in (Event, NodeEvent, PromptEvent):
        _kind.type = str(_kind.__struct_config__.tag)
        EVENTS[_kind.type] = _kind


class _Named(Struct):
    """The part of an event that says what it is."""

    type: str


_named = Decoder(_Named)


@cache
def _decoder(name: str) -> Decoder[Event]:
    # One for each: making one for all of them takes longer than reading most journals.
    return Decoder(EVENTS[name])


def decode_event(data: bytes) -> Event:
    """The event that these bytes are. Raises `SchemaTooNew` for an event or a field that this release does not know, and
    `MalformedJournal`, naming the event, for anything else that it does not write."""
    try:
        return _decoder(_named.decode(data).type).decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise _refusal(data, error) from error


def _refusal(data: bytes, error: Exception) -> MalformedJournal | SchemaTooNew:
    """Why bytes are no event."""
    try:
        fields = decode(data)
    except NotJson as no_json:
        return MalformedJournal(f"not an event of schema {SCHEMA_VERSION}: {no_json}")
    name = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(name, str):
        return MalformedJournal(f"not an event of schema {SCHEMA_VERSION}: it has no type")
    kind = EVENTS.get(name)
    if kind is None:
        return SchemaTooNew(f"This release does not know the event {name!r}: a newer one wrote it.")
    unknown = fields.keys() - {"type", *kind.__struct_encode_fields__}
    if unknown and isinstance(error, ValidationError):
        told = f"{name} has no field {', '.join(sorted(unknown))}"
        return SchemaTooNew(f"This release does not know all of an event ({told}): a newer one wrote it.")
    return MalformedJournal(
        f"not an event of schema {SCHEMA_VERSION}: event {fields.get('seq')} ({name}): {error}"
    )
