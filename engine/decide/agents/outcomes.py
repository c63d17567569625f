"""Model calls without an answer to go on with: what follows by itself, what people are asked, and what their word does. Pure.

A call can fail, or end with something that is no answer: a refusal, half an answer, nothing. Some of that is put right by
itself, so often and no oftener (`_ALONE`). Of everything else people are asked, with buttons that fit, and nothing is lost
meanwhile: whatever they say, the conversation goes on after its last event. Where the flow says what a failure does
(`on_error`), and in `finally`, which asks nobody, the agent fails instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.decide import outages
from engine.decide.agents.budget import fallbacks
from engine.decide.agents.model_request import person_message, spoken, stays
from engine.decide.question import option, step_prompt
from engine.flow.node import plan_of
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.queries import (
    OUTAGE,
    OUTCOME,
    TURN,
    agent_at,
    agent_of,
    asks_for_more,
    is_outage,
    open_prompt_at,
    tool_is_open,
)
from engine.journal.state import RETRY, AgentRun, Asked, in_finally
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer
from engine.language.template import escape_markup
from engine.messages.messages import problem_of, served
from engine.messages.models import shipped
from engine.messages.prices import DEFAULTS

if TYPE_CHECKING:
    from engine.decide.step import Step

MOST_ROOM = 64_000
"""Tokens to which an answer gets more room by itself where nothing is known of its model; people may give it more."""

_ALONE = {"go_on": 3, "resend": 10, "said": 1, "compact": 1}
"""How often it helps itself in this way, before people are asked."""

_OUTAGE_SHOWN = 600.0
"""Seconds after which people are told of an outage with buttons."""

_GO_ON = "Your answer was cut. Go on exactly where it ends, without repeating anything."
_EMPTY = "Your last answer was empty. Go on with the task, or say in a sentence how it ended."
WRONG = "Your answer cannot be used: {problem}. Answer again with nothing but the JSON that was asked for."

_ADMINS = ("spend_limit", "access_denied", "model_not_found")
"""What only somebody who runs sayso can put right."""


# --- answers that are none -----------------------------------------------------------------------------------


def kept(output: Mapping[str, Json], structured: bool) -> list[Json] | None:
    """What stays in the conversation of an answer that nothing can be done with; None for one that can be used."""
    content, reason = list(output["content"]), output.get("stopReason")
    spoke = any(block["type"] == "text" and block["text"].strip() for block in content)
    calls = any(block["type"] == "tool_use" for block in content)
    if reason in ("refusal", "model_context_window_exceeded"):
        return []
    if reason == "pause_turn":
        return content
    if reason == "max_tokens":
        whole = spoke and not calls and not structured and not output.get("cutCall")
        return stays(content) if whole else []
    return None if spoke or calls else []


def unusable(
    step: Step, owner: str, output: Mapping[str, Json], stayed: Sequence[Json], asked: str | None = None
) -> None:
    """What follows an answer that nothing can be done with, once it is recorded with what `stayed` of it; `asked` is the
    model that was asked."""
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
    """Where the API has asked the models that the flow names already, one of them has answered."""
    details, named = output.get("stopDetails") or {}, fallbacks(step, owner)
    told = {name: details.get(name) for name in ("category", "explanation", "recommended_model")}
    error = {"type": "refusal", "message": "the model declined to go on", "details": told}
    left = [] if output.get("model") in named else named[agent.alone.get("model", 0) :]
    if left:
        _emit(step, owner, "model", model=left[0], text=agent.text, error=error)
    else:
        stuck(step, owner, error)


def more_room(step: Step, owner: str, how: str, error: dict[str, Json]) -> None:
    """The same again with twice the room for an answer, as far as that goes by itself."""
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
    """How long an answer may be, in tokens."""
    return agent_at(step.state, owner).max_tokens or int(step.state.nodes[owner].input["max_tokens"])


def too_long(step: Step, owner: str, error: dict[str, Json], text: str, *, brief: bool = False) -> None:
    """The conversation does not fit: it is summed up. `text` is what its answer has so far; `brief`: it does not fit into
    that call either, as it is."""
    agent = agent_at(step.state, owner)
    if len(agent.messages) > 1 and not tool_is_open(agent):
        _alone(step, owner, "compact", error, brief=brief or None, text=text or None)
    else:
        stuck(step, owner, error)


def _alone(step: Step, owner: str, how: str, error: dict[str, Json], **more: Json) -> None:
    """It helps itself in this way, or people are asked where it has done so often enough."""
    if agent_at(step.state, owner).alone.get(how, 0) < _ALONE[how]:
        _emit(step, owner, how, **more)
    else:
        stuck(step, owner, error)


def in_words(step: Step, owner: str) -> None:
    """The API has made no summary of the conversation: the model is asked for one."""
    _emit(step, owner, "compact", text=agent_at(step.state, owner).cut or None)


def _emit(step: Step, owner: str, how: str, **more: Json) -> None:
    """Write it, unless the agent is given up already."""
    if step.state.containers[owner].error is None:
        step.emit(ev.AgentOutcome, path=owner, node_id=step.state.nodes[owner].node_id, how=how, **more)


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
    """People are asked, or where they are not the agent fails, unless it is given up already."""
    turn_list = step.flow.lists[agent_at(step.state, owner).lists[0]]
    if turn_list.nodes[0].on_error == "ask" and not in_finally(owner):
        _emit(step, owner, "ask", error=error)
    elif step.state.containers[owner].error is None:
        step.fail(owner, {**error, "message": f"node {step.node(owner).id}: {error.get('message')}"})


def ask(step: Step, owner: str) -> None:
    """Ask what there is to ask: how an agent goes on that is stuck, or what is done about an outage."""
    agent, asked = agent_at(step.state, owner), open_prompt_at(step.state, owner)
    if agent.stuck is not None:
        withdraw_outage(step, owner)
        if open_prompt_at(step.state, owner) is None:
            step.ask(owner, _prompt(step, owner, agent.stuck))
        return
    away = None if asked or in_finally(owner) else _outage(step, owner)
    if away is not None:
        step.ask(owner, _prompt(step, owner, away, OUTAGE))


def withdraw_outage(step: Step, owner: str, reason: str = "the provider is back") -> None:
    """Nobody has to be told of an outage any more."""
    prompt = open_prompt_at(step.state, owner)
    if prompt is not None and is_outage(prompt):
        step.emit(ev.PromptCancelled, path=owner, prompt_id=prompt.prompt_id, reason=reason)


def _outage(step: Step, owner: str) -> dict[str, Json] | None:
    """The error of an outage that has lasted long enough for people to hear of it."""
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
    node, kind = step.node(owner), str(error.get("type"))
    options = [*_ways(step, owner, kind, error, scope), option("stop", "Stop", "danger")]
    options[0] = {**options[0], "style": "primary"}
    takes_words = scope is None and kind in _TAKES_WORDS
    about = {"scope": scope or kind, "exclude_requester": kind in _ADMINS, "accepts_text": takes_words}
    return step_prompt(node, OUTCOME, _told(step, owner, kind, error, scope), *options, **about)


_TAKES_WORDS = ("refusal", "max_tokens", "empty", "output")
"""Whatever is said in the thread is said to the model, and it goes on."""


def _told(step: Step, owner: str, kind: str, error: Mapping[str, Json], scope: str | None) -> str:
    agent, details = agent_at(step.state, owner), error.get("details") or {}
    message = escape_markup(str(error.get("message") or "no reason was given"))
    if len(message) > _MOST_TOLD:
        message = f"{message[:_MOST_TOLD]}…"
    if scope == OUTAGE:
        return f": {message}. Tried again by itself every few minutes. Nothing is lost."
    if kind == "refusal":
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
        return f": {agent.model} declined to go on{category}.{why}"
    if kind == "max_tokens":
        return f": the answer is longer than {longest(step, owner):,} tokens, and was cut."
    if kind == "output":
        return f": {message}\n>{escape_markup(str(details.get('text') or ''))[:_MOST_TOLD]}"
    code = details.get("errorCode")
    if kind in _ABOUT_REQUEST or kind in ("context_too_long", "model_context_window_exceeded"):
        message = f"{message}{_repeats(agent)}"
    return f": {message}" + (f" ({escape_markup(str(code))})" if code and str(code) not in message else "")


def _ways(
    step: Step, owner: str, kind: str, error: Mapping[str, Json], scope: str | None
) -> Iterator[dict[str, Json]]:
    """The buttons that fit, but for *Stop*."""
    agent = agent_at(step.state, owner)
    if scope == OUTAGE:
        yield option(RETRY, "Go on now")
        yield _other_model(step, agent)
    elif kind == "refusal":
        yield from _models(step, owner, agent, error)
        yield _worded("otherwise", "Say it otherwise", "What should it be told?")
        yield _worded("answer", "Answer for it", "The answer, in place of the model's")
    elif kind == "max_tokens":
        yield option("room", "More room")
        if agent.text.strip():
            yield option("take", "Take it as it is")
    elif kind in ("context_too_long", "model_context_window_exceeded"):
        if tool_is_open(agent):
            yield _other_model(step, agent)
        else:
            yield option("compact", "Drop the largest results")
        yield option("over", "Start over")
    elif kind == "empty":
        yield _worded("otherwise", "Nudge", "What should it be told?", default=_EMPTY)
        yield option("take", "Take it as done")
    elif kind == "output":
        yield _worded("answer", "Fix by hand", "The answer, as JSON", default=agent.text)
        yield option("correct", "Ask again")
    elif kind in (*_ADMINS, "price_unknown"):
        yield option(RETRY, "Go on")
        yield _other_model(step, agent)
    else:
        yield option(RETRY, "Again")
        if kind in _ABOUT_REQUEST:
            if not agent.plain:
                yield option("plain", "Without thinking")
            yield option("over", "Start over")


_ABOUT_REQUEST = ("request_invalid", "prefix_mismatch", "bad_response")
"""What the API has against a request, or an answer that could not be read."""


def _repeats(agent: AgentRun) -> str:
    """Which calls may be made again where an agent starts over."""
    blocks = [block for message in agent.messages.values() for block in message["content"]]
    names = Counter(str(block["name"]) for block in blocks if block["type"] == "tool_use")
    answers = sum(message["role"] == "assistant" for message in agent.messages.values())
    listed = ", ".join(f"`{name}` × {number}" for name, number in names.items())
    tools = f", and its tools: {listed}" if names else ""
    return f"\n_Start over_ makes {answers} model calls again{tools}. What they did stays done."


def _worded(value: str, label: str, asks: str, *, default: str = "") -> dict[str, Json]:
    """A button that asks for words."""
    return {**option(value, label), "asks": {"label": asks, "default": default[:3_000]}}


def _models(step: Step, owner: str, agent: AgentRun, error: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    told = (error.get("details") or {}).get("recommended_model")
    known = dict.fromkeys([*([str(told)] if told else []), *fallbacks(step, owner)])
    named = [model for model in known if model != agent.model][:2]
    for model in named:
        yield option(f"model:{model}", f"Try {model}")
    if not named:
        yield _other_model(step, agent)


def _other_model(step: Step, agent: AgentRun) -> dict[str, Json]:
    prices = step.facts.agents.prices
    names = [model for model in (DEFAULTS if prices is None else prices) if model != agent.model]
    return {**option("model", "Other model"), "asks": {"label": "Which model?", "choices": names[:100]}}


# --- what people said --------------------------------------------------------------------------------------------


def decided(step: Step, prompt: Asked, key: str | None) -> None:
    """The agent goes on as a person said, or not at all."""
    owner, answer = prompt.path, prompt.answer or {}
    agent, value, actor = agent_at(step.state, owner), answer.get("value"), prompt.actor
    words = str(answer.get("words") or (answer.get("text") if value is None else "") or "").strip()
    if prompt.status != "answered" or value == "stop":
        _stop(step, prompt, agent)
        return
    # A call that failed, or is tried again, has said nothing yet: what it goes on with is what was cut before it.
    silent = is_outage(prompt) or _failed_turn(step, owner) is not None
    by: dict[str, Json] = {"actor": actor, "text": agent.cut if silent else agent.text}
    if value is None or value == "otherwise":
        said = _text(person_message(words, actor or {}))
        # A nudge goes on with what was cut; other words ask for another answer.
        text = agent.text or None if prompt.scope == "empty" else None
        by |= {"text": text, "content": said, "key": key}
        _emit(step, owner, "go_on" if text else "said", **by)
    elif value in ("answer", "take"):
        _last_answer(step, prompt, agent, words if value == "answer" else agent.text or _said_last(agent))
    elif value == "correct":
        problem = str((agent.stuck or {}).get("message"))
        _emit(step, owner, "said", **{**by, "text": None, "content": _text(WRONG.format(problem=problem))})
    elif value == "room":
        goes_on = {"content": _text(_GO_ON)} if _spoke_last(agent) else {}
        _emit(step, owner, "room", **by, max_tokens=2 * longest(step, owner), **goes_on)
    elif value == "over":
        _emit(step, owner, "over", actor=actor)
    elif value == "plain":
        _emit(step, owner, "plain", **by)
    elif value == "compact":
        _emit(step, owner, "compact", actor=actor, brief=True, text=by["text"] or None)
    elif value == "model" or str(value).startswith("model:"):
        _emit(
            step, owner, "model", **by, model=words if value == "model" else str(value).removeprefix("model:")
        )
    else:
        how = {"pause_turn": "resend", "summary": "compact"}.get(str(prompt.scope), "again")
        summary = {"actor": actor, "brief": _brief(agent), "text": agent.cut or None}
        _emit(step, owner, how, **(by if how != "compact" else summary))


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
        or {"type": prompt.scope, "message": "it was away"}
    )
    name = (prompt.actor or {}).get("name") or (prompt.actor or {}).get("id")
    by = f"stopped by {name}" if name else "nobody said in time how it goes on"
    message = f"node {prompt.node_id}: {by}: {why.get('message')}"
    _emit(step, prompt.path, "stop", error={**why, "message": message}, actor=prompt.actor)


def _last_answer(step: Step, prompt: Asked, agent: AgentRun, text: str) -> None:
    schema = plan_of(step.node(prompt.path)).output
    problem = problem_of(schema, text) if schema is not None else None
    if problem is not None:
        raise InvalidAnswer(f"This cannot be the answer: {problem}. Nothing was changed.")
    given = _text(text) if text != agent.text and text != _said_last(agent) else None
    _emit(step, prompt.path, "answer", actor=prompt.actor, text=text, content=given)


def _said_last(agent: AgentRun) -> str:
    """The last words of the model in the conversation."""
    for number in reversed(range(len(agent.messages))):
        message = agent.messages[number]
        text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
        if message["role"] == "assistant" and text.strip():
            return text
    return ""


def _spoke_last(agent: AgentRun) -> bool:
    return bool(agent.messages[len(agent.messages) - 1]["role"] == "assistant")
