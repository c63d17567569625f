"""Questions and their answers: the prompt, valid answers, the output they give, and how an approval ends. Pure.

A question that was answered or approved completes its node. An approval that is rejected, by people or by its timeout,
fails with the type `rejected`: no later node starts, unless the flow says so (`on_reject`, or failure handling).
`on_reject` is read from the input that the node began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from engine.decide.step import Step
from engine.flow import Flow, Node, parse_input
from engine.flow.inputs import check_value
from engine.forms import defaults, input_field, match_option
from engine.forms.question import (
    Question,
    ask_parts,
    choice_answer,
    default_answer,
    files_answer,
    form_answer,
    form_parts,
)
from engine.journal.phases import REJECTED
from engine.journal.queries import ELICIT, TURN, people_among, unanswered, verdict
from engine.journal.state import Asked, NodeRun, State
from engine.language import timestamps
from engine.language.actors import one_by_one, requester_of
from engine.language.codec import Json, clean_text
from engine.language.errors import InvalidAnswer, InvalidInputs
from engine.language.template import escape_markup, is_blank
from engine.nodes.types.preview import action_text

MAX_TEXT = 16 * 1024
"""Bytes of UTF-8 that an answer may have; longer ones are refused where the author sees it."""


def node_prompt(node: Node, config: dict[str, Json]) -> Question:
    """The prompt of an `ask` or `approval` node, from its evaluated configuration."""
    about = {"kind": node.type, "message": config["message"], "node_id": node.id, "node_name": node.name}
    if node.type == "approval":
        style = config.get("style") or "primary"
        against = "danger" if style == "primary" else None
        return Question(
            **about,
            **clocks(config),
            options=(
                option("approve", config["approve_label"], style),
                option("reject", config["reject_label"], against),
            ),
            approvers=tuple(config["approvers"]),
            exclude_requester=config["exclude_requester"],
            required=config["required"],
            veto=config["veto"],
            require_reason=config["require_reason"],
            editable=tuple(config["editable"]),
            form=config["form"],
            values=defaults(config["form"]["fields"]) if config["form"] else {},
        )
    return Question(
        **about,
        **clocks(config),
        **ask_parts(config),
        who=None if config.get("who") is None else tuple(config["who"]),
        default=config.get("default"),
    )


MANAGER, REQUESTER = "manager", "requester"


def answerable(
    asked: Question, requester: Mapping[str, Json], manager_of: Callable[[str], str | None]
) -> Question | str:
    """Return the question with the current managers instead of `manager`: in `approvers` or `who` the requester's, in
    the steps of `escalate` one level up each time. A run that no person started has no requester. If too few people are
    left to answer or to agree: the reason, as text."""
    own = [str(requester[name]) for name in ("id", "email") if requester.get(name)]
    alone = requester_of(requester) is None
    listed = asked.approvers if asked.approvers is not None else asked.who
    entries = tuple(_up(own, manager_of)) if listed and MANAGER in listed else ()
    nobody = {MANAGER, REQUESTER} if alone else {MANAGER}
    people = tuple(entry for entry in (listed or ()) if entry not in nobody) + entries
    barred = (REQUESTER, *own) if asked.exclude_requester and not alone else ()
    count = one_by_one(people, barred)
    steps, above = [], list(people) or own
    for step in asked.escalate:
        told = [entry.removeprefix("dm:") for entry in step["to"]]
        if MANAGER in told:
            above = _up(above, manager_of)
        dm = "dm:" if f"dm:{MANAGER}" in step["to"] else ""
        kept = [entry for entry in step["to"] if entry.removeprefix("dm:") != MANAGER]
        more = [f"{dm}{entry}" for entry in above] if MANAGER in told else []
        steps.append({**step, "to": [*kept, *more] or ["requester"]})
    if listed is None:
        return replace(asked, escalate=tuple(steps))
    later = any(step["mayAnswer"] and set(people_among(step["to"])) - nobody for step in steps)
    if listed and count is not None and count < asked.required and not later:
        gone = [entry for entry in listed if entry in nobody]
        who = " and ".join(f"`{entry}`" for entry in dict.fromkeys(gone))
        if gone and alone:
            return f"{who} must answer, but this run has no requester: {requester.get('name') or 'sayso'} started it"
        if gone and not count:
            return f"{who} must answer, but the requester's manager is unknown"
        needed = "one person has" if asked.required == 1 else f"{asked.required} people have"
        return f"{needed} to approve, but {count or 'none'} of the listed people can"
    field = "approvers" if asked.approvers is not None else "who"
    return replace(asked, escalate=tuple(steps), **{field: tuple(dict.fromkeys(people)) or listed})


def _up(people: Sequence[str], manager_of: Callable[[str], str | None]) -> list[str]:
    """The managers of these people, each once."""
    return list(dict.fromkeys(above for each in people if (above := manager_of(each)) is not None))


def clocks(config: Mapping[str, Json]) -> dict[str, Any]:
    """The clocks of a question, from an evaluated configuration."""
    return {
        "timeout_seconds": config.get("timeout"),
        "on_timeout": config.get("on_timeout") or "fail",
        "remind_seconds": config.get("remind_every"),
        "escalate": tuple(
            {"afterSeconds": step["after"], "to": step["to"], "mayAnswer": step["may_answer"]}
            for step in config.get("escalate") or ()
        ),
        "hours": config.get("hours"),
    }


_TYPES = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "yes or no",
    "array": "a list",
    "object": "JSON",
}


def input_prompt(flow: Flow, name: str) -> Question:
    """The question for an input that was not given at the start."""
    given = flow.inputs[name]
    field = input_field(name, given.type, given.description, given.choices)
    about = f": {given.description}" if given.description else f" ({_TYPES.get(given.type, given.type)})"
    return Question(
        kind="input",
        message=f"{flow.name} needs `{name}`{about}",
        node_id=name,
        node_name=name,
        input={"name": name, "type": given.type},
        **({"accepts_text": True} if field is None else form_parts({"fields": [field]})),
    )


_WHY = {
    "crash": "sayso stopped while this was running",
    "cut": "this was stopped while it was running",
    "timeout": "this timed out and was stopped",
    "lost": "the connection was lost while this was running",
}


_ABORT: dict[str, Json] = {"value": "abort", "label": "Cancel the run", "style": "danger"}


def step_prompt(node: Node, kind: str, text: str, *options: dict[str, Json], **more: Any) -> Question:
    """Return a question about a step that cannot continue by itself, for the people who run the session; `text` follows
    the step's name."""
    message = f"*{node.name or node.id}*{text}"
    about: dict[str, Any] = {"kind": kind, "message": message, "node_id": node.id, "node_name": node.name}
    return Question(**about, options=options, **more)


def option(value: str, label: str, style: str | None = None) -> dict[str, Json]:
    """A button of a question."""
    return {"value": value, "label": label, "style": style}


def interrupted_prompt(node: Node, run: NodeRun) -> Question:
    """Return the question about a node with unknown outcome."""
    if run.type == TURN:
        # People cannot answer in the model's place.
        text = (
            f": sayso was stopped {run.crashes} times while it waited for the model's answer. Each of these calls may "
            "have been paid for. Please choose how to continue."
        )
        again = option("again", "Ask the model again", "primary")
        return step_prompt(node, "interrupted", text, again, _ABORT)
    why = _WHY.get(run.reason or "", "this was interrupted")
    times = f" It was interrupted by a crash {run.crashes} times." if run.crashes > 1 else ""
    text = f"{_call(run)}: {why}, so it may or may not have taken effect.{times} Please check, then choose."
    done, again = option("done", "It was done"), option("again", "Run it again")
    if "." in node.id:
        done["asks"] = {"label": "What was the result? Leave this empty if you don't know.", "optional": True}
    return step_prompt(node, "interrupted", text, done, again, _ABORT)


_MOST_CALL = 300


def _call(run: NodeRun) -> str:
    """Describe the step's action as its approval did, for the person who checks whether it was done."""
    if not isinstance(run.input, dict):
        return ""
    text = action_text(run.type, run.input).partition("\n")[0].replace("`", "'")
    text = text if len(text) <= _MOST_CALL else f"{text[:_MOST_CALL]}…"
    return f" `{escape_markup(text)}`" if text else ""


def elicited_prompt(node: Node, run: NodeRun) -> Question:
    """Return the question that an MCP server asks in the middle of a call."""
    asked = unanswered(run.saved)
    server, why = escape_markup(str(run.saved["server"])), run.saved.get("why")
    text = f": *{server} asks:* {escape_markup(asked['message'])}"
    if asked.get("url"):
        text += f"\n{escape_markup(asked['url'])}"
    text += f"\n_{why}_" if why else ""
    accepts = (
        [] if asked.get("form") else [option("accept", "Done" if asked.get("url") else "Yes", "primary")]
    )
    options = [*accepts, option("decline", "Decline"), option("cancel", "Cancel")]
    open_for = run.saved.get("open")
    return step_prompt(
        node, ELICIT, text, *options, form=asked.get("form"), on_timeout="cancel", timeout_seconds=open_for
    )


def failed_prompt(node: Node, run: NodeRun) -> Question:
    """Return the question about a failed node whose flow has `on_error: ask`."""
    # Escaped: output of a program must not mention anybody.
    reason = escape_markup(str((run.error or {}).get("message") or "no reason was given"))
    text = f" failed: {reason}\nPlease choose how to continue."
    retry, skip = option("retry", "Try again", "primary"), option("skip", "Continue without it")
    return step_prompt(node, "failed", text, retry, skip, _ABORT)


def check(
    flow: Flow,
    prompt: Asked,
    *,
    value: Json = None,
    text: str | None = None,
    values: Json = None,
    files: Sequence[Mapping[str, Json]] | None = None,
    words: str | None = None,
) -> dict[str, Json]:
    """Return the answer to journal: `{value, text, label?, values?, files?, words?, reason?}`; `words` are the text
    that a choice asks for, else the reason. Raises `InvalidAnswer`, naming valid answers; no part of the input is
    dropped."""
    ways = [way is not None for way in (value, text, values)]
    if sum(ways) > 1 or (files and (value is not None or values is not None)):
        raise InvalidAnswer("Give one kind of answer: a value, a text, the fields of a form, or files.")
    answer = _checked(flow, prompt, value, text, values, files, words)
    reason = spoken(words)
    return {**answer, "reason": reason} if reason and "words" not in answer else answer


def spoken(words: str | None) -> str:
    """Return a reason, or the text that a choice asks for, normalized; empty if it shows nothing."""
    text = clean_text(words or "")[0].strip()
    return "" if is_blank(text) else text


def _checked(
    flow: Flow,
    prompt: Asked,
    value: Json,
    text: str | None,
    values: Json,
    files: Sequence[Mapping[str, Json]] | None,
    words: str | None,
) -> dict[str, Json]:
    if prompt.fills_beside and (values is not None or isinstance(value, dict)):
        return {**form_answer(prompt, None, None, values if values is not None else value), "value": "accept"}
    if prompt.fields and prompt.rules.action == "answer" and not prompt.fills_beside:
        return _input_fits(flow, prompt, form_answer(prompt, value, text, values))
    typed = value is None and text is not None and prompt.accepts_text
    # Text that is not one of the choices, where free text is accepted.
    own_words = typed and match_option(prompt.options, text or "", by_number=True) is None
    if prompt.options and not own_words:
        if files:
            raise InvalidAnswer("This question takes a choice, not files.")
        # A choice with the words that it asks for.
        answer = choice_answer(prompt, value, text)
        asks = next(option.get("asks") for option in prompt.options if option["value"] == answer["value"])
        if asks is None:
            return answer
        said = spoken(words)
        if not said and not asks.get("optional"):
            raise InvalidAnswer(f"*{answer['label']}* needs a text: {asks['label']} Nothing was decided.")
        if asks.get("choices") and said not in asks["choices"]:
            raise InvalidAnswer(
                f"{said[:80]!r} is none of {', '.join(asks['choices'])}. Nothing was decided."
            )
        return {**answer, "words": said}
    if files:
        return files_answer(prompt, text, files)
    if not prompt.accepts_text:
        raise InvalidAnswer("This question takes files: add them to the thread.")
    if text is None:
        raise InvalidAnswer("This question takes a text: reply in the thread.")
    cleaned, _ = clean_text(text)
    if not cleaned.strip():
        raise InvalidAnswer("The answer is empty.")
    if not prompt.input:
        return {"value": None if prompt.options else cleaned, "text": cleaned}
    try:
        parsed = parse_input(flow.inputs[prompt.input_name], cleaned.strip())
    except InvalidInputs as error:
        raise InvalidAnswer(str(error)) from error
    return {"value": parsed, "text": cleaned}


def _input_fits(flow: Flow, prompt: Asked, answer: dict[str, Json]) -> dict[str, Json]:
    """The field of an input says less than the input itself, which has the last word."""
    if prompt.input:
        entry = flow.inputs[prompt.input_name]
        problem = check_value(entry, answer["value"])
        if problem is not None:
            raise InvalidAnswer(f"input `{entry.name}`: {problem}")
    return answer


def refuse_long(*given: Json) -> None:
    """Raise `InvalidAnswer` if a text in the input of people has more than `MAX_TEXT` bytes."""
    for part in given:
        if isinstance(part, str):
            # A character has four bytes at most.
            size = len(part.encode(errors="replace")) if 4 * len(part) > MAX_TEXT else 0
            if size > MAX_TEXT:
                raise InvalidAnswer(
                    f"This text has {size:,} bytes; the limit is {MAX_TEXT:,}. It was not used: please send "
                    "a shorter one."
                )
        elif isinstance(part, dict):
            refuse_long(*part, *part.values())
        elif isinstance(part, list | tuple):
            refuse_long(*part)


def output(prompt: Asked) -> dict[str, Json]:
    """Return the output of a node whose prompt was answered."""
    answer = prompt.answer or {}
    if prompt.is_approval:
        return {
            "decision": answer["value"],
            "by": [_named(actor) for actor in deciders(prompt)],
            "reason": answer.get("reason"),
            "values": answer.get("values") or {},
            "at": prompt.at,
        }
    chosen = bool(prompt.options or prompt.fields)
    return {
        "text": answer["text"],
        "value": answer["value"] if chosen else None,
        "values": answer.get("values") or {},
        "files": answer.get("files") or [],
        "by": _named(prompt.actor or {}),
        "at": prompt.at,
    }


def deciders(prompt: Asked) -> list[dict[str, Json]]:
    """Everybody on the side that won."""
    answer = prompt.answer or {}
    votes = answer.get("votes") or []
    return [vote["actor"] for vote in votes if vote["vote"] == answer["value"]] or [prompt.actor or {}]


def _named(actor: dict[str, Json]) -> dict[str, Json]:
    return {name: actor.get(name) for name in ("id", "name", "email")}


def expired_output(prompt: Asked, outcome: str) -> dict[str, Json]:
    """Return the output of a node whose prompt expired with `on_timeout: approve | reject | default`."""
    if prompt.is_approval:
        values = prompt.values
        return {"decision": outcome, "by": [], "reason": "timeout", "values": values, "at": prompt.at}
    return {**default_answer(prompt), "files": [], "by": None, "at": prompt.at}


def summary(prompt: Asked) -> str:
    """Return the answer in a few words: for the card, the closed prompt, and people who answer too late."""
    answer = prompt.answer or {}
    if prompt.is_approval:
        return DECIDED.get(str(answer.get("value")), "rejected")
    return str(answer.get("label") or answer.get("text") or "")


ANSWER = "answer"
"""The decision that gives a tool's result in its place: the tool does not run."""

DECIDED = {"approve": "approved", "reject": "rejected", ANSWER: "answered in its place"}
"""Past participles of decisions."""


def already(prompt: Asked) -> str:
    """Describe the given answer, its author and its time, for people who answer too late."""
    names = [str(actor.get("name") or actor.get("id")) for actor in deciders(prompt)]
    who = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    reason = (prompt.answer or {}).get("reason")
    why = f" ({reason})" if reason else ""
    return f"Already answered by {who} at {timestamps.told(prompt.at)}: {summary(prompt)}{why}."


def timed_out(moment: str | None) -> str:
    """That an answer comes too late, for its author."""
    return f"This timed out at {timestamps.told(moment)}. Nothing was changed."


def in_place(state: State, path: str | None) -> bool:
    """True if people gave the result of the tool call at `path` instead of the tool."""
    asked = (prompt for prompt in state.prompts.values() if prompt.path == path and prompt.tool)
    return any((prompt.answer or {}).get("value") == ANSWER for prompt in asked)


def tally(prompt: Asked) -> str:
    """Return the state of the votes as a sentence."""
    required = prompt.required
    counts = {word: sum(vote["vote"] == value for vote in prompt.votes) for value, word in DECIDED.items()}
    others = [f"{count} {word}" for word, count in counts.items() if count and word != "approved"]
    return ", ".join([f"{counts['approved']} of {required} approved", *others]) + "."


# --- the end of an approval --------------------------------------------------------------------------------


def conclude(step: Step, path: str, output: dict[str, Json]) -> None:
    """The question of a node is decided: the node completes with this output, or fails where that rejects it."""
    run = step.state.nodes[path]
    on_reject = str((run.input or {}).get("on_reject") or "continue")
    if output.get("decision") != "reject" or on_reject == "continue":
        step.complete(path, output)
    elif on_reject == "stop":
        step.fail(path, rejection(run.node_id, output))
    else:
        step.fail_for_good(path, rejection(run.node_id, output), on_reject.removeprefix("goto:"))


def rejection(node_id: str, output: Mapping[str, Json]) -> dict[str, Json]:
    """The error of a rejected approval: `{type, message, by, reason, at, values}`, as its output would have been."""
    told = {name: output.get(name) for name in ("by", "reason", "at", "values")}
    return {"type": REJECTED, "message": f"{node_id} was {verdict(told)}", **told}
