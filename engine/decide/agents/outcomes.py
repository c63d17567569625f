"""Model calls without a usable answer: automatic remedies, the question to people, and what their decision does. Pure.

A call can fail, or end in a refusal, half an answer or nothing. Some of these are remedied automatically, a limited
number of times (`_ALONE`). For everything else people are asked: *Try again*, *Other model*, *Tell it…* or *Stop*.
Nothing is lost meanwhile: the conversation continues after its last event. If the flow handles failures (`on_error`),
and in `finally`, which asks nobody, the agent fails instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.decide import outages
from engine.decide.agents.budget import fallbacks
from engine.decide.agents.model_request import person_message, spoken, stays
from engine.decide.question import option, step_prompt
from engine.decide.step import Step
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.queries import (
    OUTAGE,
    OUTCOME,
    TURN,
    agent_at,
    agent_of,
    asks_for_more,
    has_failed,
    is_outage,
    open_prompt_at,
    tool_is_open,
)
from engine.journal.state import RETRY, AgentRun, Asked, in_finally
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.template import escape_markup
from engine.messages.messages import served
from engine.messages.models import shipped
from engine.messages.prices import DEFAULTS

MOST_ROOM = 64_000
"""Largest automatic limit for an answer, in tokens, if the model's own limit is unknown."""

_ALONE = {"go_on": 3, "resend": 10, "said": 1, "compact": 1}
"""Number of times that each automatic remedy is tried before people are asked."""

_OUTAGE_SHOWN = 600.0
"""Seconds after which people are told of an outage with buttons."""

_GO_ON = "Your answer was cut. Go on exactly where it ends, without repeating anything."
_EMPTY = "Your last answer was empty. Go on with the task, or say in a sentence how it ended."
WRONG = "Your answer cannot be used: {problem}. Answer again with nothing but the JSON that was asked for."

_ADMINS = ("spend_limit", "access_denied", "model_not_found")
"""Errors that only an admin can fix."""


# --- answers that are none -----------------------------------------------------------------------------------


def kept(output: Mapping[str, Json], structured: bool) -> list[Json] | None:
    """Return the part of an unusable answer that stays in the conversation, or None if the answer is usable."""
    content, reason = list(output["content"]), output.get("stopReason")
    spoke = any(block["type"] == "text" and block["text"].strip() for block in content)
    calls = any(block["type"] == "tool_use" for block in content)
    if reason in ("refusal", "model_context_window_exceeded"):
        return []
    if reason == "pause_turn" and not calls:
        return content
    if reason == "max_tokens":
        whole = spoke and not calls and not structured and not output.get("cutCall")
        return stays(content) if whole else []
    return None if spoke or calls else []


def unusable(
    step: Step, owner: str, output: Mapping[str, Json], stayed: Sequence[Json], asked: str | None = None
) -> None:
    """Handle an unusable answer that has been recorded, with `stayed` as its remaining part; `asked` is the model that
    gave it."""
    agent, reason = agent_at(step.state, owner), str(output.get("stopReason"))
    if asks_for_more(agent.pending) and (reason == "end_turn" or (reason == "max_tokens" and stayed)):
        return  # somebody spoke meanwhile, and that is gone on with
    if reason == "refusal":
        if asked not in (None, agent.model):
            _emit(step, owner, "again", text=agent.text)  # people have chosen another model meanwhile
        else:
            _refused(step, owner, agent, output)
    elif reason == "max_tokens" and not stayed:
        more_room(step, owner, "room", _cut_error())
    elif reason == "model_context_window_exceeded":
        too_long(
            step,
            owner,
            {"type": reason, "message": "the conversation is longer than the model can keep in mind"},
            agent.text,
        )
    elif reason == "pause_turn" and served(stayed):
        error = {"type": reason, "message": f"the model paused {_ALONE['resend']} times"}
        _alone(step, owner, "resend", error, text=agent.text)
    elif reason in ("max_tokens", "pause_turn") and stayed:
        _alone(step, owner, "go_on", _cut_error(), text=agent.text, content=_text(_GO_ON))
    else:
        error = {"type": "empty", "message": "the model answered nothing, twice"}
        if not agent.text:
            _alone(step, owner, "said", error, content=_text(_EMPTY))
        elif spoken(agent)[-1]["content"][-1:] == _text(_EMPTY):
            stuck(step, owner, error)
        else:
            _alone(step, owner, "go_on", error, content=_text(_EMPTY), text=agent.text)


def _cut_error() -> dict[str, Json]:
    return {"type": "max_tokens", "message": "the answer was cut: raise `max_tokens`"}


def _refused(step: Step, owner: str, agent: AgentRun, output: Mapping[str, Json]) -> None:
    """Switch to the next fallback model, or ask people. If a fallback gave this answer, the API has tried them all."""
    details, named = output.get("stopDetails") or {}, fallbacks(step, owner)
    told = {name: details.get(name) for name in ("category", "explanation", "recommended_model")}
    error = {"type": "refusal", "message": "the model declined to continue", "details": told}
    left = [] if output.get("model") in named else named[agent.alone.get("model", 0) :]
    if left:
        _emit(step, owner, "model", model=left[0], text=agent.text, error=error)
    else:
        stuck(step, owner, error)


def more_room(step: Step, owner: str, how: str, error: dict[str, Json]) -> None:
    """Repeat the call with twice the room for an answer, up to the model's limit."""
    agent, room = agent_at(step.state, owner), longest(step, owner)
    most = shipped(agent.model).max_tokens or MOST_ROOM
    if room < most:
        more = min(2 * room, most)
        beside: dict[str, Json] = {"text": agent.text} if how == "room" else {"brief": _brief(agent)}
        _emit(step, owner, how, max_tokens=more, **beside)
    else:
        stuck(step, owner, error)


def _brief(agent: AgentRun) -> bool | None:
    return True if agent.compacts == "brief" else None


def longest(step: Step, owner: str) -> int:
    """Return the maximum length of an answer, in tokens."""
    return agent_at(step.state, owner).max_tokens or int(step.state.nodes[owner].input["max_tokens"])


def too_long(step: Step, owner: str, error: dict[str, Json], text: str, *, brief: bool = False) -> None:
    """Compact a conversation that does not fit. `text` is its answer so far; with `brief` the conversation does not fit
    into the compacting call either and is shortened first."""
    agent = agent_at(step.state, owner)
    if len(agent.messages) > 1 and not tool_is_open(agent):
        _alone(step, owner, "compact", error, brief=brief or None, text=text or None)
    else:
        stuck(step, owner, error)


def _alone(step: Step, owner: str, how: str, error: dict[str, Json], **more: Json) -> None:
    """Apply this automatic remedy, or ask people once it has been used up."""
    if agent_at(step.state, owner).alone.get(how, 0) < _ALONE[how]:
        _emit(step, owner, how, **more)
    else:
        stuck(step, owner, error)


def in_words(step: Step, owner: str) -> None:
    """Ask the model for a summary in words, as the API made none."""
    _emit(step, owner, "compact", text=agent_at(step.state, owner).cut or None)


def _emit(step: Step, owner: str, how: str, **more: Json) -> None:
    """Write it, unless the agent is given up already."""
    if not has_failed(step.state, owner):
        step.emit_at(owner, ev.AgentOutcome, how=how, **more)


def _text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


# --- failed calls ----------------------------------------------------------------------------------------------


def turn_failed(step: Step, path: str) -> None:
    """A model call failed, and no try is left."""
    owner, error = agent_of(step.state, path) or "", step.state.nodes[path].error or {}
    agent = agent_at(step.state, owner)
    if agent.stuck:
        return
    if error.get("type") == "context_too_long":
        too_long(step, owner, error, agent.cut, brief=True)
    else:
        stuck(step, owner, error)


def stuck(step: Step, owner: str, error: dict[str, Json]) -> None:
    """Ask people how to continue, or if they cannot be asked, fail the agent unless it has failed already."""
    turn_list = step.flow.lists[agent_at(step.state, owner).lists[0]]
    if turn_list.nodes[0].on_error == "ask" and not in_finally(owner):
        _emit(step, owner, "ask", error=error)
    elif step.state.containers[owner].error is None:
        step.fail(owner, {**error, "message": f"node {step.node(owner).id}: {error.get('message')}"})


def ask(step: Step, owner: str) -> None:
    """Ask how a stuck agent continues, or what to do about an outage."""
    agent, asked = agent_at(step.state, owner), open_prompt_at(step.state, owner)
    if agent.stuck is not None:
        withdraw_outage(step, owner)
        if open_prompt_at(step.state, owner) is None:
            step.ask(owner, _prompt(step, owner, agent.stuck))
        return
    away = None if asked or in_finally(owner) else _outage(step, owner)
    if away is not None:
        step.ask(owner, _prompt(step, owner, away, OUTAGE))


def withdraw_outage(step: Step, owner: str, reason: str = "the provider is available again") -> None:
    """Withdraw the notice of an outage."""
    prompt = open_prompt_at(step.state, owner)
    if prompt is not None and is_outage(prompt):
        step.withdraw(prompt, reason)


def _outage(step: Step, owner: str) -> dict[str, Json] | None:
    """Return the error of an outage that has lasted long enough to tell people."""
    for path in step.state.active:
        run = step.state.nodes[path]
        if (
            outages.waited_out(run)
            and agent_of(step.state, path) == owner
            and step.node(path).on_error == "ask"
        ):
            lasts = timestamps.seconds_between(run.started_at or step.facts.now, step.facts.now)
            return run.error if lasts >= _OUTAGE_SHOWN else None
    return None


# --- what is asked -----------------------------------------------------------------------------------------------


_MOST_TOLD = 600


def _prompt(step: Step, owner: str, error: Mapping[str, Json], scope: str | None = None) -> Question:
    kind, agent = str(error.get("type")), agent_at(step.state, owner)
    # Words help where the model can be asked, and only then.
    hears = scope is None and kind not in (*_ADMINS, "price_unknown")
    tell = {**option("tell", "Tell it"), "asks": {"label": "What should it be told?"}}
    # A choice among the models, those that were named for this first.
    told, prices = (error.get("details") or {}).get("recommended_model"), step.facts.agents.prices
    first = [*([str(told)] if told else []), *fallbacks(step, owner)]
    names = dict.fromkeys([*first, *(DEFAULTS if prices is None else prices)])
    choices = [model for model in names if model != agent.model][:100]
    options = [
        option(RETRY, "Try again", "primary"),
        {**option("model", "Other model"), "asks": {"label": "Which model?", "choices": choices}},
        *([tell] if hears else []),
        option("stop", "Stop", "danger"),
    ]
    given = step.state.nodes[owner].input.get("retry_with") or {}
    ways = [f"asks {given['model']}"] if given.get("model") else []
    if given.get("max_tokens"):
        ways.append(f"allows {given['max_tokens']:,} tokens for an answer")
    if given.get("thinking"):
        ways.append("turns thinking off")
    if kind in _TOO_LONG and not tool_is_open(agent):
        ways.append("summarises the conversation without its largest results")
    text = _told(step, owner, kind, error, scope) + (f"\n_Try again_ {' and '.join(ways)}." if ways else "")
    about = {"scope": scope or kind, "exclude_requester": kind in _ADMINS, "accepts_text": hears}
    return step_prompt(step.node(owner), OUTCOME, text, *options, **about)


_TOO_LONG = ("context_too_long", "model_context_window_exceeded")


def _told(step: Step, owner: str, kind: str, error: Mapping[str, Json], scope: str | None) -> str:
    agent, details = agent_at(step.state, owner), error.get("details") or {}
    message = escape_markup(str(error.get("message") or "no reason was given"))
    if len(message) > _MOST_TOLD:
        message = f"{message[:_MOST_TOLD]}…"
    if scope == OUTAGE:
        return f": {message}. It is retried automatically every few minutes. Nothing is lost."
    if kind == "refusal":
        better = details.get("recommended_model")
        advice = f" Its provider recommends {escape_markup(str(better))}." if better else ""
        category = (
            f" ({escape_markup(str(details['category']).replace('_', ' '))})"
            if details.get("category")
            else ""
        )
        why = (
            f" “{escape_markup(str(details['explanation']))[:_MOST_TOLD]}”"
            if details.get("explanation")
            else ""
        )
        return f": {agent.model} declined to continue{category}.{why}{advice}"
    if kind == "max_tokens":
        return f": the answer is longer than {longest(step, owner):,} tokens and was cut off."
    if kind == "output":
        return f": {message}\n>{escape_markup(str(details.get('text') or ''))[:_MOST_TOLD]}"
    code = details.get("errorCode")
    return f": {message}" + (f" ({escape_markup(str(code))})" if code and str(code) not in message else "")


# --- what people said --------------------------------------------------------------------------------------------


def decided(step: Step, prompt: Asked, key: str | None) -> None:
    """Continue the agent as a person decided, or fail it."""
    owner, answer = prompt.path, prompt.answer or {}
    agent, value, actor = agent_at(step.state, owner), answer.get("value"), prompt.actor
    words = str(answer.get("words") or (answer.get("text") if value is None else "") or "").strip()
    if prompt.status != "answered" or value == "stop":
        _stop(step, prompt, agent)
        return
    # A call that failed or is being retried has no text yet: it continues the text that was cut before it.
    silent = is_outage(prompt) or _failed_turn(step, owner) is not None
    by: dict[str, Json] = {"actor": actor, "text": (agent.cut if silent else agent.text) or None}
    if value in (None, "tell"):
        # They follow the text that was cut; after any other answer they ask for a new one.
        text = by["text"] if silent or prompt.scope == "empty" else None
        content = _text(person_message(words, actor or {}))
        _emit(step, owner, "go_on" if text else "said", **{**by, "text": text}, content=content, key=key)
    elif value == "model":
        _emit(step, owner, "model", **by, model=words)
    else:
        # Repeat the call with the flow's changes for a retry (`retry_with`).
        given = step.state.nodes[prompt.path].input.get("retry_with") or {}
        by |= {name: given[name] for name in ("model", "max_tokens") if given.get(name)}
        by |= {"plain": True} if given.get("thinking") else {}
        how = "again"
        if prompt.scope == "output":
            problem = str((agent.stuck or {}).get("message"))
            how, by = "said", {**by, "text": None, "content": _text(WRONG.format(problem=problem))}
        elif (
            prompt.scope == "max_tokens"
            and by["text"]
            and agent.messages[len(agent.messages) - 1]["role"] == "assistant"
        ):
            how, by = "go_on", {**by, "content": _text(_GO_ON)}
        elif prompt.scope == "pause_turn":
            how = "resend"
        elif prompt.scope == "summary":
            how, by = "compact", {**by, "brief": _brief(agent), "text": agent.cut or None}
        elif prompt.scope in _TOO_LONG and not tool_is_open(agent):
            how, by = "compact", {**by, "brief": True}
        _emit(step, prompt.path, how, **by)


def _failed_turn(step: Step, owner: str) -> str | None:
    """The model call that failed, and is made again."""
    for path in step.state.active:
        run = step.state.nodes[path]
        if run.type == TURN and run.status != "started" and agent_of(step.state, path) == owner:
            return path
    return None


def _stop(step: Step, prompt: Asked, agent: AgentRun) -> None:
    path = _failed_turn(step, prompt.path)
    why = (
        agent.stuck
        or (step.state.nodes[path].error if path else None)
        or {"type": prompt.scope, "message": "it was unavailable"}
    )
    name = (prompt.actor or {}).get("name") or (prompt.actor or {}).get("id")
    by = f"stopped by {name}" if name else "nobody decided in time how to continue"
    message = f"node {prompt.node_id}: {by}: {why.get('message')}"
    _emit(step, prompt.path, "stop", error={**why, "message": message}, actor=prompt.actor)
