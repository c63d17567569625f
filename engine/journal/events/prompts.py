"""Events of questions for people."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec.structs import asdict, replace

from engine.forms.question import Question
from engine.journal.agent_runs import with_agent
from engine.journal.events.base import ANY_OPEN, ANY_OUTCOME, CLOCKS, COMPLETED, FAILED, PromptEvent, within
from engine.journal.grammar import agent_around, clock_id, container_at, frame_at, run_at, same
from engine.journal.passes import without
from engine.journal.queries import (
    ELICIT,
    LISTING,
    OUTAGE,
    OUTCOME,
    agent_at,
    asked_people,
    doomed,
    has_failed,
    is_outage,
    people_among,
    unanswered,
    votes_without,
)
from engine.journal.state import (
    AGAIN,
    ASKS,
    ON_FAILURE,
    RETRY,
    UNFINISHED,
    Asked,
    NodeRun,
    Owed,
    State,
    scope_of,
)
from engine.language.actors import account_of
from engine.language.codec import Json
from engine.language.errors import MalformedJournal


class Closing(PromptEvent):
    """A question is closed: answered, expired or cancelled."""


class PromptRequested(
    PromptEvent, tag="prompt:requested", phases=within("running", "pausing"), audit="prompt"
):
    """A question for people. `prompt` has kind, message, options, the people who may answer, and its clocks (see
    `engine.forms.question`)."""

    prompt: dict[str, Json]

    @property
    def question(self) -> Question:
        """Return the question. Raises `MalformedJournal`."""
        return Question.from_wire(self.prompt)

    def fold(self, state: State) -> State:
        path, question = self.at, self.question
        if question.number is not None:
            same(question.number, state.prompts_asked + 1, "number")
        _rules(question).asks(state, path, question)
        if question.tool:
            owner = agent_around(state, path)
            agent = agent_at(state, owner)
            calls = agent.calls.set(path, replace(agent.calls[path], prompt_id=self.prompt_id))
            state = with_agent(state, owner, replace(agent, calls=calls))
        if self.prompt_id in state.prompts:
            raise MalformedJournal(f"prompt {self.prompt_id} was already requested")
        prompt = Asked(
            **asdict(question),
            prompt_id=self.prompt_id,
            path=path,
            status="requested",
            requested_at=self.timestamp,
        )
        run, nodes = state.nodes.get(path), state.nodes
        # A question about the edges after a node does not belong to the node, which has its outcome; nor does one that
        # nothing waits for.
        if run is not None and run.status in UNFINISHED and question.rules.waits:
            nodes = nodes.set(path, replace(run, prompt_id=self.prompt_id))
        return replace(
            state,
            nodes=nodes,
            prompts=state.prompts.set(self.prompt_id, prompt),
            open_prompts=state.open_prompts.set(self.prompt_id, None),
            prompts_asked=state.prompts_asked + 1,
        )

    def remembered(self) -> dict[str, Any]:
        offered = {option["value"] for option in self.prompt.get("options") or ()}
        covers = (self.prompt.get("covers") or {}).get("digest")
        return {"kind": str(self.prompt.get("kind")), "covers": covers, "offered": offered}

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        names = self.prompt.get("approvers") or self.prompt.get("who") or ()
        return {"asked": " ".join(names), "required": self.prompt.get("required")}


class PromptShown(PromptEvent, tag="prompt:shown", phases=ANY_OPEN):
    """People can see the prompt; `shown` says where. Its clocks start here."""

    shown: dict[str, Json]

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        if self.shown == prompt.shown:
            raise MalformedJournal(f"prompt {self.prompt_id} was already shown there")
        return with_prompt(state, replace(prompt, status="shown", shown=self.shown))

    def owes(self, before: State) -> tuple[Owed, ...]:
        prompt = before.prompts[self.prompt_id]
        words = _clock_words(prompt) if prompt.deadline is None else ()
        return tuple(Owed(("timer:set",), prompt.path, clock_id(before, prompt, word)) for word in words)


class PromptVoted(PromptEvent, tag="prompt:voted", phases=ANY_OPEN, audit=""):
    """A person voted, which decides nothing yet. The vote replaces that person's earlier vote. `reason` is the reason;
    for `answer` it is the result to use instead of the tool's, and votes with the same result agree."""

    actor: dict[str, Json]
    vote: Literal["approve", "reject", "answer"]
    always: dict[str, Json] | None = None
    """The grant that goes with an approval, `{seconds, fields}`."""
    reason: str | None = None
    key: str

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        _new_key(state, self.key)
        if not prompt.is_approval:
            raise MalformedJournal(f"prompt {self.prompt_id} is not an approval, so nobody can vote on it")
        vote = {"actor": self.actor, "vote": self.vote, "reason": self.reason, "at": self.timestamp}
        vote |= {"always": self.always} if self.always is not None else {}
        votes = (*votes_without(prompt, self.actor), vote)
        return change_prompt(state, replace(prompt, votes=votes), self.key)

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"decision": self.vote}


class PromptEdited(PromptEvent, tag="prompt:edited", phases=ANY_OPEN, audit="values"):
    """A person changed the proposal. Earlier votes are void, and so are the buttons of the earlier copy (`nonce`).

    `values` are all values of the form from now on, `before` the previous ones of the changed fields, `covers` what
    would run now.
    """

    actor: dict[str, Json]
    values: dict[str, Json]
    before: dict[str, Json]
    covers: dict[str, Json] | None = None
    nonce: str
    key: str

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        _new_key(state, self.key)
        if not prompt.editable or not set(self.before) <= set(prompt.editable):
            raise MalformedJournal(f"prompt {self.prompt_id} does not allow this change")
        same(self.nonce != prompt.nonce, True, "nonce")
        editors = tuple(dict.fromkeys((*prompt.editors, str(self.actor.get("id")), *account_of(self.actor))))
        changes = {"values": self.values, "covers": self.covers, "editors": editors, "votes": ()}
        return change_prompt(state, renewed(prompt, self.nonce, **changes), self.key)

    def remembered(self) -> dict[str, Any]:
        return {"covers": (self.covers or {}).get("digest")}


class PromptHanded(PromptEvent, tag="prompt:handed", phases=ANY_OPEN, audit=""):
    """A person let somebody else answer in their place."""

    actor: dict[str, Json]
    to: str
    key: str

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        _new_key(state, self.key)
        giver = str(self.actor.get("id"))
        excluded = [entry for entry in (*prompt.excluded, giver) if entry != self.to]
        moved = replace(
            with_people(state, prompt, [self.to]),
            excluded=tuple(dict.fromkeys(excluded)),
            handed=(*prompt.handed, {"by": self.actor, "to": self.to, "at": self.timestamp}),
            votes=votes_without(prompt, self.actor),
        )
        return change_prompt(state, moved, self.key)

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"asked": self.to}


class PromptAnswered(Closing, tag="prompt:answered", phases=ANY_OPEN, audit="answer"):
    """The final answer to a prompt. `key` is the inbox key that carried it."""

    actor: dict[str, Json]
    answer: dict[str, Json]
    key: str | None = None

    @property
    def done(self) -> bool:
        """See `Event.done`."""
        return True

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        options = [option["value"] for option in prompt.options]
        value = self.answer.get("value")
        takes_more = prompt.accepts_text or prompt.accepts_files or prompt.fills_beside
        if options and value not in options and not takes_more:
            raise MalformedJournal(
                f"prompt {self.prompt_id} offers {', '.join(map(str, options))}, not {value}"
            )
        if prompt.is_approval:
            same(self.answer.get("values") or {}, prompt.values, "values")
        voted = prompt.votes[-1] if prompt.votes else None
        if not prompt.is_approval or not (voted or prompt.required > 1):
            _new_key(state, self.key)
        else:
            # Check that the deciding vote precedes the answer if several people decide, and that the answer holds
            # all votes.
            last = prompt.votes[-1] if prompt.votes else {}
            same(
                (last.get("actor"), last.get("vote"), last.get("at")),
                (self.actor, value, self.timestamp),
                "last vote",
            )
            votes = list(prompt.votes) if len(prompt.votes) > 1 else None
            same(self.answer.get("votes"), votes, "votes")
            agree = sum(
                (vote["vote"], vote["reason"]) == (value, last.get("reason")) for vote in prompt.votes
            )
            if value == "approve":
                agree = sum(vote["vote"] == "approve" for vote in prompt.votes)
            if value != "reject" and agree < prompt.required:
                raise MalformedJournal(f"only {agree} of {prompt.required} agree")
        seen = state.seen.set(self.key, None) if self.key else state.seen
        answered = replace(
            prompt,
            status="answered",
            answer=self.answer,
            actor=self.actor,
            at=self.timestamp,
            answer_key=self.key,
        )
        closed = replace(close_prompt(state, answered), seen=seen)
        return _rules(prompt).answered(closed, prompt, self.answer)

    def owes(self, before: State) -> tuple[Owed, ...]:
        return _owed(before, before.prompts[self.prompt_id], self.answer.get("value"))

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        value = self.answer.get("value")
        offered = isinstance(value, str) and value in known.get("offered", ())
        return {"decision": value if offered else None, "reason": self.answer.get("reason")}


class PromptExpired(Closing, tag="prompt:expired", phases=ANY_OPEN, audit=""):
    """The deadline passed unanswered; `outcome` is the result of `on_timeout`."""

    outcome: str

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        same(self.outcome, prompt.on_timeout, "outcome")
        if not state.owed:
            raise MalformedJournal(f"the deadline of prompt {self.prompt_id} has not passed")
        closed = close_prompt(state, replace(prompt, status="expired", at=self.timestamp))
        return _rules(prompt).answered(closed, prompt, {"value": "cancel"})

    def owes(self, before: State) -> tuple[Owed, ...]:
        return _owed(before, before.prompts[self.prompt_id], None)


class PromptReminded(PromptEvent, tag="prompt:reminded", phases=CLOCKS):
    """The people asked were reminded; `count` is the number of reminders so far."""

    count: int

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        same(self.count, prompt.reminders + 1, "count")
        if not state.owed:
            raise MalformedJournal(f"it is not time to remind of prompt {self.prompt_id}")
        return with_prompt(state, replace(prompt, reminders=self.count))


class PromptEscalated(PromptEvent, tag="prompt:escalated", phases=CLOCKS, audit=""):
    """Nobody answered in time, so others are notified: step `step` (from 0) of the prompt's `escalate`. With
    `may_answer` the people and groups in `to` may answer from now on."""

    step: int
    to: list[str]
    may_answer: bool | None = None

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        steps = prompt.escalate
        waits = clock_id(state, prompt, f"escalate{self.step}") in state.timers
        if (
            not 0 <= self.step < len(steps)
            or waits
            or prompt.deadline is None
            or self.step in prompt.escalated
        ):
            raise MalformedJournal(f"it is not time for step {self.step} of prompt {self.prompt_id}")
        told = steps[self.step]
        same((self.to, bool(self.may_answer)), (told["to"], bool(told.get("mayAnswer"))), "people")
        prompt = replace(prompt, escalated=(*prompt.escalated, self.step))
        if self.may_answer:
            prompt = with_people(state, prompt, people_among(self.to))
        return with_prompt(state, prompt)

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"asked": " ".join(self.to)}


class PromptReposted(PromptEvent, tag="prompt:reposted", phases=ANY_OPEN):
    """The message that showed the prompt is gone, so it is shown again: buttons of the earlier copy no longer match.
    Its clocks continue."""

    nonce: str

    def fold(self, state: State) -> State:
        prompt = _open(state, self)
        if prompt.shown is None:
            raise MalformedJournal(f"prompt {self.prompt_id} is not shown anywhere")
        again = {"status": "requested", "shown": None, "reposts": prompt.reposts + 1}
        return with_prompt(state, renewed(prompt, self.nonce, **again))


class PromptCancelled(
    Closing, tag="prompt:cancelled", phases=within("running", "pausing", "held", "finalizing"), audit=""
):
    """The prompt is withdrawn; its buttons go away."""

    reason: str

    def fold(self, state: State) -> State:
        """Cancel a question at the end, in a failed container, or when it needs no answer any more."""
        prompt = _open(state, self)
        given_up = scope_of(prompt.path) in state.frames and doomed(state, prompt.path)
        over = is_outage(prompt) or not prompt.rules.waits or given_up
        if not (state.phase == "finalizing" or has_failed(state, prompt.path) or over):
            raise MalformedJournal(f"prompt {self.prompt_id} still waits for its answer")
        return close_prompt(state, replace(prompt, status="cancelled", at=self.timestamp))


def _open(state: State, event: PromptEvent) -> Asked:
    prompt = state.prompts.get(event.prompt_id)
    if prompt is None or not prompt.open:
        raise MalformedJournal(f"prompt {event.prompt_id} is not open")
    same(event.path, prompt.path, "path")
    return prompt


def _new_key(state: State, key: str | None) -> None:
    if key in state.seen:
        raise MalformedJournal(f"{key} was already used")


def with_prompt(state: State, prompt: Asked) -> State:
    return replace(state, prompts=state.prompts.set(prompt.prompt_id, prompt))


def change_prompt(state: State, prompt: Asked, key: str) -> State:
    return replace(with_prompt(state, prompt), seen=state.seen.set(key, None))


def renewed(prompt: Asked, nonce: str, **changes: Any) -> Asked:
    """Return a question that is shown again: buttons of the earlier copy no longer match."""
    return replace(prompt, nonce=nonce, generation=prompt.generation + 1, **changes)


def with_people(state: State, prompt: Asked, more: list[str]) -> Asked:
    """A question that these may answer too."""
    people = tuple(dict.fromkeys([*asked_people(state, prompt), *more]))
    return replace(prompt, approvers=people) if prompt.is_approval else replace(prompt, who=people)


def close_prompt(state: State, prompt: Asked) -> State:
    timers = state.timers
    for timer_id, timer in state.timers.items():
        if timer.prompt_id == prompt.prompt_id:
            timers = timers.delete(timer_id)
    return replace(
        state,
        prompts=state.prompts.set(prompt.prompt_id, prompt),
        open_prompts=without(state.open_prompts, prompt.prompt_id),
        timers=timers,
    )


# --- kinds of questions ------------------------------------------------------------------------------------


class _Rules:
    """Rules for questions of a kind: when one can be asked, and the effect of an answer; by default for a node's own
    question."""

    def asks(self, state: State, path: str, question: Question) -> None:
        """Raise `MalformedJournal` unless it can be asked now."""
        run = _asking(state, path)
        if question.kind != run.type or run.status != "started" or not state.owed:
            raise MalformedJournal(f"{path} asks only once, when it begins")

    def answered(self, state: State, prompt: Asked, answer: Mapping[str, Json]) -> State:
        """Return the state once it is closed, by an answer, or by the value `cancel` on a timeout."""
        return state

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        """Return the events that must follow an answer with this value, or a timeout (None)."""
        return (Owed(ANY_OUTCOME, prompt.path),)


class _OfInput(_Rules):
    """An input of the flow that was not given."""

    def asks(self, state: State, path: str, question: Question) -> None:
        name = question.input_name
        same(path, f"inputs/{name}", "path")
        if state.inputs is not None or state.open_prompts:
            raise MalformedJournal("the flow has its inputs, or is asking for another one")
        if name in state.given or any(prompt.path == path for prompt in state.prompts.values()):
            raise MalformedJournal(f"the input {name} is known")

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        return ()


class _OfCall(_Rules):
    """The call of a tool, which people decide."""

    def asks(self, state: State, path: str, question: Question) -> None:
        call = agent_at(state, agent_around(state, path)).calls.get(path)
        if call is None or path in state.nodes or call.prompt_id in state.open_prompts:
            raise MalformedJournal(f"{path} is not a tool call that people decide now")
        same((question.tool or {}).get("toolUseId"), call.tool_use_id, "call")

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        decision = prompt.on_timeout if value is None else value
        return () if decision == "approve" else (Owed(("agent:toolResult",), prompt.path),)


class _Interrupted(_Rules):
    """A node that was interrupted."""

    status, again = "interrupted", AGAIN

    def asks(self, state: State, path: str, question: Question) -> None:
        _asking(state, path, self.status)

    def answered(self, state: State, prompt: Asked, answer: Mapping[str, Json]) -> State:
        if answer.get("value") != self.again:
            return state
        run = replace(run_at(state, prompt.path, *UNFINISHED), status="interrupted", reason=self.again)
        return replace(state, nodes=state.nodes.set(prompt.path, run))

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        follows = {None: FAILED, "done": COMPLETED, "skip": ("node:skipped",)}
        if value in (AGAIN, RETRY):
            return ()
        return (Owed(follows[value], prompt.path),) if value in follows else (Owed(("session:abort",)),)


class _Failed(_Interrupted):
    """A node that failed."""

    status, again = "failing", RETRY

    def asks(self, state: State, path: str, question: Question) -> None:
        super().asks(state, path, question)
        if path in state.containers:
            raise MalformedJournal(f"the `on_failure` of {path} has not finished")


class _OfServer(_Rules):
    """A question of an MCP server in the middle of a call."""

    def asks(self, state: State, path: str, question: Question) -> None:
        if _asking(state, path, "interrupted").reason != ASKS:
            raise MalformedJournal(f"the server of {path} asks for nothing")

    def answered(self, state: State, prompt: Asked, answer: Mapping[str, Json]) -> State:
        """Keep the answer for the call, which continues once no question is left."""
        run = run_at(state, prompt.path, "interrupted")
        told = {"action": answer["value"], **({"values": answer["values"]} if answer.get("values") else {})}
        key = unanswered(run.saved)["key"]
        saved = {**run.saved, "answers": {**run.saved["answers"], key: told}}
        run = replace(run, saved=saved, reason=AGAIN if unanswered(saved) is None else ASKS)
        return replace(state, nodes=state.nodes.set(prompt.path, run))

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        return ()


class _AtCap(_Rules):
    """An agent at a cap."""

    def asks(self, state: State, path: str, question: Question) -> None:
        run = _asking(state, path)
        if container_at(state, path).kind == ON_FAILURE or run.status != "started":
            raise MalformedJournal(f"{path} has nothing to ask")

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        if value != "raise":
            return (Owed(FAILED, prompt.path),)
        # Permission to pass the daily cap is for that session, not its forks.
        left_out = prompt.scope == "day" and state.parent_session_id is not None
        return () if left_out else (Owed(("agent:budget",), prompt.path),)


class _AtLimit(_AtCap):
    """A loop at its limit, or a node that has its outcome and leaves by a loop edge that is used up."""

    def asks(self, state: State, path: str, question: Question) -> None:
        if path in state.containers:
            super().asks(state, path, question)
            return
        frame, run = frame_at(state, scope_of(path)), state.nodes.get(path)
        if run is None or frame.graph is None or run.node_id not in frame.graph.ended:
            raise MalformedJournal(f"the edges that leave {path} are resolved, or it has no outcome yet")

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        if prompt.path not in state.containers:
            return (Owed(("edge:resolved",), prompt.path),)
        if value == AGAIN:
            return ()
        return (Owed(("container:completed",) if value == "continue" else FAILED, prompt.path),)


class _Stuck(_Rules):
    """An agent without an answer of its model."""

    def asks(self, state: State, path: str, question: Question) -> None:
        _asking(state, path)
        agent = container_at(state, path).agent
        if agent is None or (agent.stuck is None) != (question.scope == OUTAGE):
            raise MalformedJournal(f"{path} is not stuck")

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        return (Owed(("agent:outcome",), prompt.path),)


class _Listed(_Rules):
    """Tools that their server describes in other words than a conversation was opened with."""

    def asks(self, state: State, path: str, question: Question) -> None:
        run_at(state, path, *UNFINISHED)
        agent_at(state, path)

    def owes(self, state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
        return (Owed(("agent:opened",), prompt.path),) if value == "offer" else ()


def _owed(state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
    """Return the events that must follow. A container that ran out of time while the session was held ends by that,
    whatever the answer."""
    return () if has_failed(state, prompt.path) else _rules(prompt).owes(state, prompt, value)


def _asking(state: State, path: str, *statuses: str) -> NodeRun:
    """Return a node without an open question, in one of these states."""
    run = run_at(state, path, *UNFINISHED)
    if run.prompt_id in state.open_prompts:
        raise MalformedJournal(f"{path} already has an open question")
    return run_at(state, path, *statuses) if statuses else run


def _rules(question: Question) -> _Rules:
    return _RULES.get("tool" if question.tool else question.kind) or _RULES["ask"]


_RULES: dict[str, _Rules] = {
    "ask": _Rules(),
    "approval": _Rules(),
    "tool": _OfCall(),
    "input": _OfInput(),
    "interrupted": _Interrupted(),
    "failed": _Failed(),
    ELICIT: _OfServer(),
    "budget": _AtCap(),
    "limit": _AtLimit(),
    OUTCOME: _Stuck(),
    LISTING: _Listed(),
}


# --- clocks ------------------------------------------------------------------------------------------------


def _clock_words(prompt: Asked) -> Iterator[str]:
    yield "deadline"
    if prompt.remind_seconds is not None:
        yield "remind"
    for step in range(len(prompt.escalate)):
        if step not in prompt.escalated:
            yield f"escalate{step}"
