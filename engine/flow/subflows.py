"""Flows that call flows: finding the called ones, checking their inputs, and combining them.

A flow is first read alone, so that flows may call each other, and themselves, in a circle; `limits.max_depth` ends that
when it runs. A call is checked against the called flow's inputs, and so are the calls of the called flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from engine.flow.build import with_flow_tools
from engine.flow.builtin_tools import agents, entries
from engine.flow.checks.shape import as_mapping, spec_at, walk
from engine.flow.inputs import parse_input
from engine.flow.model import Flow
from engine.flow.node import Node
from engine.language.codec import Json
from engine.language.diagnostics import MAX_FAULTS, Fault, Path, faults_under, suggest
from engine.language.errors import FlowError, InvalidInputs, Problem
from engine.language.template import has_expression
from engine.language.yaml import Located, load_located

FindFlow: TypeAlias = Callable[[str], Flow | None]
"""Finder of flows by name; returns None for an unknown one. Raises `FlowError` when it does not load."""


def link(flow: Flow, located: Located, find: FindFlow | None, known: Iterable[str]) -> Flow:
    """The flow together with those that it calls. Raises `FlowError` where a call cannot be made.

    `known` are the names that can be found, for the hint about one that cannot.
    """
    if not flow.calls:
        return flow
    linker = _Linker(flow, find, frozenset(known) | {flow.name})
    problems = _problems(located, linker.faults(located))
    if problems:
        raise FlowError(problems)
    called = {name: with_flow_tools(linker.found[name], linker.found) for name in sorted(linker.found)}
    return with_flow_tools(flow, linker.found).with_flows(called)


class _Linker:
    """Collects the flows that one flow calls, each once."""

    def __init__(self, flow: Flow, find: FindFlow | None, known: frozenset[str]) -> None:
        self.flow = flow.alone()
        self.find = find
        self.known = known
        self.found: dict[str, Flow] = {}

    def faults(self, located: Located) -> Iterator[Fault]:
        """Yield the faults of the flow's calls, and of those in the flows that it calls."""
        for path, name, inputs in _calls(located.data):
            where = (*path, "with", "flow")
            try:
                target = self._get(name)
            except FlowError as error:
                first = str(error.problems[0]).split("\n")[0]
                yield Fault(where, f"the flow `{name}` does not load: {first}", "correct that file first")
                continue
            if target is None:
                hint: str | None = "a flow can call the flows in the folder of its file"
                hint = hint if self.find is None else suggest(name, self.known, hint)
                yield Fault(where, f"there is no flow `{name}`", hint)
                continue
            if target.lock is not None:
                # A lock that is ignored would be worse than none.
                message = f"the flow `{name}` has a `lock`, which a call does not take"
                yield Fault(where, message, "a session has only one lock, that of the flow that was started")
            # The inputs of a tool are the model's to give.
            yield from faults_under((*path, "with"), check_call(inputs, target) if inputs is not None else ())
            if path[0] == "finally" and _asks(target, self.found):
                yield Fault(where, f"`finally` cannot ask people, and the flow `{name}` does")
        # The tools of agents in `finally` that are flows which ask people.
        tools = as_mapping(located.data.get("tools"))
        for place, node in walk(located.data):
            if place.path[0] != "finally" or not place.talks:
                continue
            for index, entry in enumerate(entries(node)):
                target = self.found.get(_called_by(tools.get(entry.name)) or "")
                if target is not None and _asks(target, self.found):
                    message = f"`finally` cannot ask people, and the flow `{target.name}` does"
                    yield Fault((*place.path, "with", "tools", index), message)

    def _get(self, name: str) -> Flow | None:
        """A called flow, once it and all that it calls are found and sound."""
        if name in self.found:
            return self.found[name]
        flow = self.flow if name == self.flow.name else self.find(name) if self.find is not None else None
        if flow is None:
            return None
        self.found[name] = flow.alone()
        if flow.calls and name != self.flow.name:
            located = load_located(flow.text, flow.file)
            problems = _problems(located, self.faults(located))
            if problems:
                del self.found[name]
                raise FlowError(problems)
        return self.found[name]


def _problems(located: Located, faults: Iterator[Fault]) -> list[Problem]:
    problems = {located.problem(fault) for fault in islice(faults, MAX_FAULTS)}
    return sorted(problems, key=lambda problem: (problem.line, problem.column, problem.message))


def _calls(data: Mapping[str, Any]) -> Iterator[tuple[Path, str, Mapping[str, Json] | None]]:
    """Yield every call in a sound flow: the path of its node, the name of the flow, the inputs as written; for a flow
    used as a tool the path of the tool, and None."""
    for place, node in walk(data):
        name = _called_by(node)
        if name is not None:
            yield place.path, name, as_mapping(as_mapping(node.get("with")).get("inputs"))
    used = {entry.name for node in agents(data) for entry in entries(node)}
    for tool, written in as_mapping(data.get("tools")).items():
        name = _called_by(written)
        if name is not None and tool in used:
            yield ("tools", tool), name, None


def _called_by(written: Any) -> str | None:
    """The flow that a node or a tool of the file runs."""
    spec = spec_at(as_mapping(written))
    return as_mapping(written.get("with")).get("flow") if spec is not None and spec.calls else None


def check_call(inputs: Mapping[str, Json], target: Flow) -> Iterator[Fault]:
    """Yield the faults of a call's inputs; values that an expression will give are not checked."""
    for name, value in inputs.items():
        entry = target.inputs.get(name)
        if entry is None:
            otherwise = None if target.inputs else "it takes none"
            hint = suggest(name, target.inputs, otherwise)
            yield Fault(
                ("inputs", name), f"the flow `{target.name}` has no input `{name[:80]}`", hint, on_key=True
            )
        elif not _varies(value):
            try:
                parse_input(entry, value)
            except InvalidInputs as error:
                yield Fault(("inputs", name), str(error))
    for name, entry in target.inputs.items():
        if entry.required and name not in inputs:
            yield Fault((), f"the flow `{target.name}` needs the input `{name}`", "write it under `inputs`")


def _varies(value: Json) -> bool:
    if isinstance(value, dict):
        return any(_varies(item) for item in value.values())
    return any(map(_varies, value)) if isinstance(value, list) else has_expression(value)


def _asks(flow: Flow, found: Mapping[str, Flow]) -> bool:
    """True if a flow, or one that it calls, has nodes that ask people."""
    seen: set[str] = set()
    pending = [flow]
    while pending:
        current = pending.pop()
        if any(map(_asks_itself, current.by_id.values())):
            return True
        for name in current.calls - seen:
            seen.add(name)
            pending += [found[name]] if name in found else []
    return False


def _asks_itself(node: Node) -> bool:
    decided = node.agent is not None and bool(node.agent.rules)
    return node.spec.mode == "prompt" or node.on_error == "ask" or decided
