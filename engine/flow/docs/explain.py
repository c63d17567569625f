"""A flow in plain sentences: how it starts, what each step does, whom it asks, and what happens if nobody answers.
Pure.

Values that only a run knows are in braces: `{cluster}` is an input, `{choose.value}` an output of the node `choose`. An
expression that does more than name a value stands as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from engine.flow.model import FINALLY, Flow, NodeList, Trigger
from engine.flow.node import ROOT, Node, plan_of
from engine.language.codec import Json, encode
from engine.nodes.types.preview import quoted

_MOST = 160
"""Characters of a text of the flow that are shown; the file has the rest."""
_NAMED = re.compile(r"\{\{\s*(?:inputs\.|nodes\.)?([A-Za-z_][\w.]*)\s*\}\}")
_EXPRESSION = re.compile(r"\{\{.*?\}\}")
_PEOPLE = {
    "channel": "anyone in the channel",
    "requester": "the person who started the run",
    "manager": "the requester's manager",
}


def explained(flow: Flow) -> str:
    """Return the whole text, lines without markup."""
    lines = [*_head(flow), "", "Steps", *_list(flow, ROOT, (), 1)]
    if flow.finally_list is not None:
        lines += ["", "At the end, however the run ends", *_list(flow, flow.finally_list, (), 1)]
    caps = flow.limits
    told = {
        "more than ${:g}": caps.max_cost,
        "more than {:,} tokens": caps.max_tokens_total,
        "more than {:,} model calls": caps.max_turns,
    }
    found = [words.format(most) for words, most in told.items() if most is not None]
    lines += ["", f"A question without its own time limit stays open for {_seconds(caps.deadline)}."]
    if found:
        lines.append(
            f"Before its agents use {_listed(found, 'or')}, people are asked whether the run continues."
        )
    return "\n".join(lines) + "\n"


# --- the flow -------------------------------------------------------------------------------------------------


def _head(flow: Flow) -> Iterator[str]:
    yield f"{flow.name}: {_text(flow.description)}" if flow.description else flow.name
    yield ""
    yield "Start"
    started = [_started(flow, trigger) for trigger in flow.triggers]
    for line in started or [f"Somebody mentions the bot: @sayso {flow.name}."]:
        yield f"  - {line}"
    if flow.allowed_to_start is not None:
        yield f"  - Only {_people(flow.allowed_to_start)} may start it."
    if flow.channels is not None:
        yield f"  - Only in {_listed(flow.channels, 'or')}."
    for given in flow.inputs.values():
        about = f" {_text(given.description)}" if given.description else ""
        kind = _listed([_text(each) for each in given.choices], "or") if given.choices else given.type
        need = "required" if given.required else f"default {_text(given.default) or 'empty'}"
        yield f"  - Input {given.name} ({kind}, {need}).{about}"
    if flow.lock is not None:
        then = "wait for it" if flow.on_conflict == "queue" else "are refused"
        yield f"  - Only one run at a time can hold the lock {_text(flow.lock.raw)}; other runs {then}."


def _started(flow: Flow, trigger: Trigger) -> str:
    where = f" in {_listed(trigger.channels, 'or')}" if trigger.channels else ""
    match trigger.kind:
        case "mention":
            return f"Somebody mentions the bot: @sayso {trigger.pattern}."
        case "message":
            bots = " Only people's messages count." if trigger.from_bots is False else ""
            return f"A message matches “{trigger.pattern}”{where}.{bots}"
        case "reaction":
            return f"Somebody reacts with :{trigger.pattern}: to a message{where}."
        case "shortcut":
            return f"Somebody chooses the shortcut “{trigger.pattern}” on a message."
        case "schedule":
            return f"A schedule starts it: {trigger.pattern} ({trigger.timezone}), in {trigger.channel}."
        case "webhook":
            return f"A request reaches the webhook {trigger.pattern}, signed with the secret {trigger.secret}; it runs in {trigger.channel}."


# --- lists ------------------------------------------------------------------------------------------------------


def _list(flow: Flow, list_id: str, around: Sequence[str], depth: int) -> Iterator[str]:
    nodes, lead = flow.lists[list_id], "  " * depth
    for number, node_id in enumerate(nodes.order, 1):
        node = nodes.by_id[node_id]
        work, *more = _does(node)
        first = ", ".join([*_when(nodes, node), work])
        said = [first[:1].upper() + first[1:], *more, *_rules(nodes, node)]
        inside = [] if node.agent is not None else list(_inside(node))
        if inside:
            said = [*said[1:], said[0]]
        title = node.id if node.name == node.id else f"{_text(node.name, 60)} [{node.id}]"
        yield f"{lead}{number}. {title}. {' '.join(said)}"
        for title, inner in inside:
            yield from [f"{lead}   {title}"] if title else []
            if inner in around:
                yield f"{lead}     (the steps above, again)"
            else:
                yield from _list(flow, inner, (*around, list_id), depth + (3 if title else 2))
        if node.on_failure is not None:
            ends = "the run ends" if node.list_id == ROOT else "the step around it fails"
            yield f"{lead}   If it fails{f', before {ends}' if node.on_error == 'fail' else ''}:"
            yield from _list(flow, node.on_failure, (*around, list_id), depth + 3)


def _inside(node: Node) -> Iterator[tuple[str, str]]:
    """The lists that a node holds, each with the words above it."""
    for key, list_id in node.lists.items():
        title = f"Branch {key}:" if "branches" in node.spec.parts else ""
        if "cases" in node.spec.parts:
            title = f"If it is {_text(key)}:" if key else "Otherwise:"
        yield title, list_id


def _when(nodes: NodeList, node: Node) -> Iterator[str]:
    """Return where a node of a graph comes, and its condition."""
    edges = nodes.incoming[node.id] if nodes.is_graph else ()
    ways = [f"{edge.from_}{f' (if {_text(edge.when.raw)})' if edge.when else ''}" for edge in edges]
    if ways:
        yield f"after {_listed(ways, 'or' if nodes.gate(node.id) == 'any' else 'and')}"
    if node.condition is not None:
        yield f"only if {_text(node.if_)}"


def _rules(nodes: NodeList, node: Node) -> Iterator[str]:
    """Return the rules around a node's work: approval, timeout, retries, failure, crash, loop edges."""
    if guards := nodes.guards.get(node.id):
        yield f"It runs only as approved in {_listed(guards, 'and')}, unchanged."
    if node.timeout is not None:
        yield f"Time limit: {_seconds(node.timeout)}."
    if node.retry is not None and node.retry.attempts > 1:
        yield f"If it fails, it is retried, up to {node.retry.attempts} attempts in all."
    if node.goto is not None:
        yield f"If it fails, the run continues at {node.goto}."
    elif node.on_error == "continue":
        yield "If it fails, the run continues."
    if node.on_crash is not None or (node.spec.mode == "run" and node.crash_policy(node.config) == "ask"):
        asks = node.crash_policy(node.config) == "ask"
        yield f"If it is interrupted, {'people are asked whether it was done' if asks else 'it runs again'}."
    for edge in nodes.loops[node.id] if nodes.is_graph else ():
        then = {"fail": "the run fails", "continue": "the run continues", "ask": "people are asked"}[
            edge.on_limit
        ]
        condition = f"If {_text(edge.when.raw)}, the" if edge.when is not None else "The"
        most = f", at most {edge.max_iterations} times; then {then}" if edge.max_iterations else ""
        yield f"{condition} run goes back to {edge.to}{most}."


# --- what a node does ---------------------------------------------------------------------------------------------


def _does(node: Node) -> Iterator[str]:
    told = _DOES.get(node.type)
    if told is not None:
        yield from told(node)
    else:
        given = [f"{name}: {_text(value, 60)}" for name, value in node.config.items()]
        yield f"runs a step of the type {node.type}{' with ' if given else ''}{_listed(given, 'and') if given else ''}."


def _shell(node: Node) -> Iterator[str]:
    words = node.config.get("run")
    if isinstance(words, list):
        yield f"runs `{_text(' '.join(map(_argument, words)))}`."
    else:
        lines = [line for line in str(words or node.config.get("script")).splitlines() if line.strip(" #!")]
        code = [line for line in lines if not line.lstrip().startswith("#")] or lines
        more = f" and {len(code) - 1} more lines" if len(code) > 2 else " and 1 more line" if code[1:] else ""
        yield f"runs a script: `{_text(code[0] if code else '', 100)}`{more}."


def _message(node: Node) -> Iterator[str]:
    given = node.config
    said = next((given[name] for name in ("text", "markdown") if given.get(name)), None)
    parts = [name for name in ("fields", "table", "images", "files") if given.get(name)]
    what = f"“{_text(said)}”" if said else ""
    what = _listed([each for each in (what, *parts) if each], "and")
    if given.get("update"):
        yield f"changes the message of {given['update']} to {what}."
    elif given.get("ephemeral_to"):
        yield f"shows {what} only to {_people(given['ephemeral_to'])}."
    else:
        place = "" if given.get("thread", True) else " in the channel"
        place = f" to {_people(given['to'])}" if given.get("to") else place
        yield f"posts {what}{place}."


def _wait(node: Node) -> Iterator[str]:
    given = node.config
    yield (
        f"waits {_text(given['for'])}."
        if given.get("for") is not None
        else f"waits until {_text(given.get('until'))}."
    )


def _foreach(node: Node) -> Iterator[str]:
    most = node.config.get("concurrency", 1)
    pace = "one after the other" if most == 1 else f"at most {_text(most)} at the same time"
    yield f"for each {_text(node.config.get('as', 'item'))} of {_text(node.config.get('items'))}, {pace}:"


def _loop(node: Node) -> Iterator[str]:
    ends = [("while", node.while_), ("until", node.until_)]
    conditions = [f"{word} {_text(each.raw)}" for word, each in ends if each is not None]
    then = {"fail": "the step fails", "continue": "the run continues", "ask": "people are asked"}
    most, limit = _field(node, "max_iterations"), str(_field(node, "on_limit"))
    yield f"repeats {_listed(conditions, 'and')}, at most {_text(most)} times (then {then[limit]}):"


def _parallel(node: Node) -> Iterator[str]:
    alone = _field(node, "mode") == "collect"
    rest = "if one fails, the others continue" if alone else "if one fails, the others end"
    yield f"runs these branches at the same time ({rest}):"


def _flow(node: Node) -> Iterator[str]:
    given: Mapping[str, Json] = node.config.get("inputs") or {}
    values = (
        f" with {_listed([f'{name} = {_text(value)}' for name, value in given.items()], 'and')}"
        if given
        else ""
    )
    yield f"runs the flow {node.calls}{values}:"


def _ask(node: Node) -> Iterator[str]:
    given, kind = node.config, "free text"
    if given.get("choices") is not None:
        offered = given["choices"]
        each = [one.get("label", one.get("value")) if isinstance(one, dict) else one for one in offered]
        kind = (
            _listed([f"“{_text(one)}”" for one in each], "or")
            if isinstance(offered, list)
            else _text(offered)
        )
        kind += ", or free text" if given.get("own_words") else ""
    elif isinstance(given.get("form"), dict):
        kind = f"a form with {_listed(list(given['form'].get('properties') or {}), 'and')}"
    elif given.get("form") is not None:
        kind = "a form"
    elif given.get("accept") is not None:
        kind = _text(given["accept"])
    who = _people(given["who"]) if given.get("who") else _PEOPLE["requester"]
    yield f"asks {who}: “{_text(given.get('message'))}” The answer is {kind}."
    yield from _clocks(node.config, _timeout_words(node))


_NOT_THE_REQUESTER = "The person who started the run cannot decide."
_REASON = "A rejection needs a reason."
_TIMED_OUT = {"reject": "it counts as rejected", "approve": "it counts as approved"}


def _approval(node: Node) -> Iterator[str]:
    given = node.config
    count = given.get("required", 1)
    number = f" ({_text(count)} must approve)" if count != 1 else ""
    people = _people(given.get("approvers") or ())
    yield f"asks {people} to approve or reject{number}: “{_text(given.get('message'))}”"
    yield from [_NOT_THE_REQUESTER] if given.get("exclude_requester") else []
    if node.covers is not None:
        for_ = f", for {_text(given['valid_for'])}" if "valid_for" in given else ""
        yield f"They see exactly what {node.covers} will do, and approve only that{for_}."
    yield from [_REASON] if given.get("require_reason") else []
    rejected = {"stop": _stops(node), "continue": "the run continues"}
    then = _next(str(given.get("on_reject") or "stop"), rejected)
    yield f"If they reject, {then}."
    yield from _clocks(given, _timeout_words(node))


def _agent(node: Node) -> Iterator[str]:
    given, plan = node.config, plan_of(node)
    yield f"a Claude agent works on: “{_text(given.get('prompt'))}”"
    if plan.tools:
        yield f"It may use {_listed([tool.name for tool in plan.tools], 'and')}."
    for rule in plan.rules:
        who = _people(rule.approvers) if rule.approvers else f"{_PEOPLE['requester']}"
        when = f" if {_text(rule.when.raw)}" if rule.when is not None else ""
        count = f"{rule.required} of " if rule.required != 1 else ""
        yield f"Before each call of {rule.tool}{when}, {count}{who} must approve it."
        yield from [_NOT_THE_REQUESTER] if rule.exclude_requester else []
        yield from [_REASON] if rule.require_reason else []
        clocks: dict[str, Json] = {
            name: _seconds(it) if isinstance(it, int | float) else it for name, it in rule.clocks.items()
        }
        steps = clocks.get("escalate")
        clocks["escalate"] = [{**step, "after": _seconds(step["after"])} for step in steps] if steps else None
        yield from _clocks(clocks, _TIMED_OUT[str(clocks["on_timeout"])])
    caps = {
        "max_turns": "more than {} model calls",
        "max_cost": "more than ${}",
        "max_tokens_total": "more than {} tokens",
    }
    most = [words.format(_text(given[name])) for name, words in caps.items() if given.get(name) is not None]
    yield from (
        [f"Before it uses {_listed(most, 'or')}, people are asked whether it continues."] if most else []
    )


_DOES: Mapping[str, Callable[[Node], Iterable[str]]] = {
    "shell": _shell,
    "http": lambda node: [f"sends {_text(_field(node, 'method'))} to {_text(node.config.get('url'))}."],
    "python": lambda node: [f"calls the Python function {_text(node.config.get('call'))}."],
    "message": _message,
    "set": lambda node: [f"computes {_listed(list(node.config), 'and')}."],
    "noop": lambda node: ["does nothing."],
    "wait": _wait,
    "fail": lambda node: [f"the run fails: “{_text(node.config.get('message'))}”."],
    "end": lambda node: ["ends here, as a success; the steps after it are skipped."],
    "switch": lambda node: [f"depends on {_text(node.config.get('on'))}."],
    "foreach": _foreach,
    "loop": _loop,
    "parallel": _parallel,
    "flow": _flow,
    "ask": _ask,
    "approval": _approval,
    "agent": _agent,
}


# --- questions ----------------------------------------------------------------------------------------------------


def _stops(node: Node) -> str:
    caught = node.list_id not in (ROOT, FINALLY) or node.on_error != "fail" or node.on_failure is not None
    return "the step fails" if caught else "the run ends there"


def _timeout_words(node: Node) -> str:
    words = {
        "fail": _stops(node),
        **_TIMED_OUT,
        "continue": "the run continues without an answer",
        "default": f"the answer is {_default_words(node)}",
    }
    return _next(str(_field(node, "on_timeout")), words)


def _default_words(node: Node) -> str:
    default = node.config.get("default")
    return f"“{_text(default)}”" if default else "the defaults of the form"


def _clocks(given: Mapping[str, Json], then: str) -> Iterator[str]:
    """Return the deadline of a question and its result, reminders, escalations, and when they count."""
    limit = f" within {_text(given['timeout'])}" if given.get("timeout") is not None else ""
    yield f"If nobody answers{limit}, {then}."
    if given.get("remind_every") is not None:
        yield f"They are reminded every {_text(given['remind_every'])}."
    steps = given.get("escalate")
    for step in steps if isinstance(steps, list) else []:
        may = " may answer too" if step.get("may_answer") else " are told"
        to = step["to"] if isinstance(step["to"], list) else [step["to"]]
        yield f"After {_text(step['after'])}, {_people([str(one).removeprefix('dm:') for one in to])}{may}."
    if given.get("hours") is not None:
        yield "These times count only in working hours."


def _next(outcome: str, words: Mapping[str, str]) -> str:
    if outcome.startswith("goto:"):
        return f"the run continues at {outcome.removeprefix('goto:')}"
    return words.get(outcome, outcome)


# --- words ----------------------------------------------------------------------------------------------------------


def _field(node: Node, name: str) -> Json:
    """Return a field of `with`, or its default."""
    return node.config[name] if name in node.config else node.spec.config.model_fields[name].default


def _people(entries: Json) -> str:
    listed = [entries] if isinstance(entries, str) else entries
    return _listed([_PEOPLE.get(str(entry), _text(entry)) for entry in listed], "or")


def _listed(words: Sequence[str], last: str) -> str:
    *first, end = words or ("nothing",)
    return f"{', '.join(first)} {last} {end}" if first else end


def _argument(value: Json) -> str:
    """Return an argument of a program as it is typed: in quotes if it has spaces, apart from those in expressions."""
    word = str(value)
    return quoted(word) if " " in _EXPRESSION.sub("", word) else word


def _text(value: Json, most: int = _MOST) -> str:
    """Return a value of the file on one line, with the names of values in braces."""
    written = value if isinstance(value, str) else "" if value is None else encode(value).decode()
    line = _NAMED.sub(r"{\1}", " ".join(written.split()))
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _seconds(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
