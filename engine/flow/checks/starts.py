"""Warnings about triggers: words that start another flow or none, and runs that no person starts. Pure.

Warnings concern:

* Words after a mention that the bot answers itself, and flows with such a name.
* The same words, emoji or entry of the shortcut's list twice, in one flow or in several.
* A question that only the requester or their manager may answer, and a message to them, in a flow that a schedule, a
  webhook or an app's message starts: such a run has no requester.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from engine.flow.model import Flow, Trigger
from engine.flow.node import Node
from engine.flow.triggers import words_of
from engine.language.diagnostics import Fault
from engine.language.errors import Problem
from engine.language.yaml import load_located
from engine.nodes.types.fields import listed

BUILT_IN = frozenset(
    ("cancel", "done", "flows", "grants", "help", "list", "memory", "pause", "resume", "run", "status", "stop")
)  # fmt: skip
"""Words that the bot handles itself if they are the whole message."""
_ABSENT = frozenset(("requester", "manager", "dm:requester", "dm:manager"))


def start_warnings(flows: Iterable[Flow]) -> list[Problem]:
    """Return the warnings about flows that are served together, file by file."""
    served = sorted(flows, key=lambda flow: flow.file)
    found = [problem for flow in served for problem in (*_built_in(flow), *_nobody(flow))]
    told = [(flow, index, trigger) for flow in served for index, trigger in enumerate(flow.triggers)]
    for (first, _, one), (flow, index, other) in combinations(told, 2):
        if (
            one.kind == other.kind
            and one.kind in _SAME
            and _words(one) == _words(other)
            and _meet(one, other)
        ):
            whose = "here" if first is flow else f"in the flow `{first.name}` ({first.file})"
            message = f"`{one.pattern}` is also used {whose}: {_SAME[one.kind]}"
            found.append(_at(flow, index, message, "change one of them"))
    for flow, index, trigger in told:
        if trigger.kind == "mention" and any(_words(trigger) == each.name != flow.name for each in served):
            message = (
                f"`{trigger.pattern}` is the name of another flow, which its name alone no longer starts"
            )
            found.append(_at(flow, index, message, "use other words"))
    return sorted(found, key=lambda problem: (problem.file, problem.line, problem.message))


_SAME = {
    "mention": "only one of the two starts",
    "message": "both start",
    "reaction": "both start",
    "shortcut": "the two cannot be told apart",
}
"""Effects of two equal triggers."""


def _at(flow: Flow, index: int, message: str, hint: str) -> Problem:
    path = ("triggers", index, flow.triggers[index].kind)
    return load_located(flow.text, flow.file).problem(Fault(path, message, hint))


def _words(trigger: Trigger) -> str:
    return " ".join(words_of(trigger.pattern, "{}").lower().split())


def _meet(one: Trigger, other: Trigger) -> bool:
    """True if there is a channel in which both are heard."""
    if one.channels is None or other.channels is None:
        return True
    return not {channel.lower() for channel in one.channels}.isdisjoint(map(str.lower, other.channels))


def _built_in(flow: Flow) -> Iterator[Problem]:
    if flow.name in BUILT_IN:
        message = f"the bot has its own command `{flow.name}`: this flow starts only with `run {flow.name}`"
        yield load_located(flow.text, flow.file).problem(Fault(("flow",), message, "give it another name"))
    for index, trigger in enumerate(flow.triggers):
        words = words_of(trigger.pattern).lower().split() if trigger.kind == "mention" else []
        if words[:1] == ["run"] or (len(words) == 1 and words[0] in BUILT_IN):
            message = f"the bot has its own command `{words[0]}`: these words may never reach the flow"
            yield _at(flow, index, message, "begin with a different word")


def _nobody(flow: Flow) -> Iterator[Problem]:
    """Yield nodes of the flow (calls included) that have nobody to ask or inform."""
    alone = [each for each in flow.triggers if each.kind in ("schedule", "webhook") or each.from_bots]
    if not alone:
        return
    by = "an app's message" if alone[0].kind == "message" else f"a {alone[0].kind}"
    for node in flow.by_id.values():
        called = f"@{node.calls}/" if node.calls is not None else None
        inside = [
            each
            for lists in flow.lists.values()
            if called and lists.id.startswith(called)
            for each in lists.nodes
        ]
        if any(map(_is_for_nobody, [node, *inside])):
            message = f"{by} can start this flow, and such a run has no requester for `{node.id}`"
            yield Problem(flow.file, node.line, 1, message, "also name people, a group (@sre) or channel")


def _is_for_nobody(node: Node) -> bool:
    """True if a node addresses only people that a run without a requester lacks."""
    rules = node.agent.rules if node.agent is not None else ()
    configs = [node.config, *(rule.clocks for rule in rules)]
    steps = [step for config in configs for step in listed(config.get("escalate") or [])]
    places = [node.config, *(step for step in steps if isinstance(step, dict))]
    asked = [
        listed(place.get(name)) for place in places for name in ("approvers", "who", "to", "ephemeral_to")
    ]
    asked += [rule.approvers for rule in rules]
    return any(
        isinstance(people, list | tuple) and people and _ABSENT.issuperset(map(str, people))
        for people in asked
    )
