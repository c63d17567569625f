"""`run --dry-run`: what a flow would do, as far as that can be known without doing any of it. Pure but for printing.

Known are the inputs, the outputs of `set`, nodes whose `if` is false, and what follows from them. What depends on
an answer, on a program or on another machine is shown as it is written, with the names that it waits for.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any

from bot.cli.exits import Exit
from bot.cli.finding import actor_for, find_flow
from bot.cli.output import Paint, clean, one_line, print_json
from bot.cli.place import Place
from engine.actors import Actor
from engine.codec import Json, encode
from engine.errors import ExpressionError, SaysoError
from engine.expressions import Compiled, compile_value, evaluate_condition
from engine.flow import Flow, Node, coerce_inputs

_REFERENCE = re.compile(r'\{"\$secret":"(\w+)"\}')


@dataclass(frozen=True)
class Value:
    """A field of a node: `value` as it would be where `needs` is empty, else as it is written."""

    value: Json
    needs: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        """For a machine."""
        return {"value": self.value, "known": not self.needs, "needs": list(self.needs)}


@dataclass(frozen=True)
class Step:
    """A node on the walk. `runs` is None where only the run itself will show it."""

    node: Node
    runs: bool | None
    needs: tuple[str, ...] = ()
    config: dict[str, Value] = field(default_factory=dict)
    problem: str | None = None

    def as_json(self) -> dict[str, Json]:
        """For a machine."""
        return {
            "id": self.node.id,
            "type": self.node.type,
            "runs": self.runs,
            "if": self.node.if_,
            "ifNeeds": list(self.needs),
            "with": {name: value.as_json() for name, value in self.config.items()},
            "problem": self.problem,
        }


class Walk:
    """Goes through a flow's nodes in their order and keeps what is known."""

    def __init__(self, flow: Flow, given: dict[str, Json], actor: Actor) -> None:
        self.flow = flow
        self.inputs, self.missing = coerce_inputs(flow, given)
        self._session = {"requester": actor.record(), "flow": flow.name}
        self._outputs: dict[str, Json] = {}
        self._status: dict[str, str] = {}

    def steps(self) -> list[Step]:
        """The nodes that would be reached, in order."""
        steps = []
        for node in self.flow.nodes:
            step = self._step(node)
            steps.append(step)
            if step.runs and node.on_error == "fail" and (node.type == "fail" or step.problem):
                break
        return steps

    def _step(self, node: Node) -> Step:
        needs = () if node.condition is None else self._unknown(node.condition)
        runs: bool | None = None
        try:
            if not needs:
                runs = node.condition is None or evaluate_condition(node.condition, self._context())
        except ExpressionError as error:
            return Step(node, True, problem=f"if: {error}")
        if runs is False:
            self._outputs[node.id], self._status[node.id] = None, "skipped"
            return Step(node, False)
        try:
            config = self._config(node)
        except SaysoError as error:
            return Step(node, runs, needs, problem=str(error))
        if runs:
            self._note(node, config)
        return Step(node, runs, needs, config)

    def _config(self, node: Node) -> dict[str, Value]:
        spec, found = node.spec, {}
        for name, raw in node.config.items():
            if name in spec.verbatim_fields:
                found[name] = Value(raw)
                continue
            compiled = compile_value(raw, secrets=name in spec.secret_fields)
            needs = self._unknown(compiled)
            found[name] = Value(raw, needs) if needs else Value(compiled.evaluate(self._context()))
        if not any(value.needs for value in found.values()):
            spec.settle({name: value.value for name, value in found.items()})
        return found

    def _note(self, node: Node, config: dict[str, Value]) -> None:
        """What later nodes know of one that surely runs."""
        if node.spec.mode == "pure" and not any(value.needs for value in config.values()):
            self._outputs[node.id] = {name: value.value for name, value in config.items()}
        if node.on_error == "fail" and node.type != "fail":
            # Had it failed, the flow had ended: whoever comes later finds it completed.
            self._status[node.id] = "completed"

    def _unknown(self, compiled: Compiled) -> tuple[str, ...]:
        return tuple(sorted({".".join(path) for path in compiled.names if not self._known(path)}))

    def _known(self, path: tuple[str, ...]) -> bool:
        match path:
            case ("secrets", *_):
                return True
            case (root, name, *_):
                places: dict[str, Any] = {
                    "inputs": self.inputs,
                    "nodes": self._outputs,
                    "status": self._status,
                    "errors": self._status,
                    "session": self._session,
                }
                return name in places.get(root, {})
        return False

    def _context(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "nodes": self._outputs,
            "status": self._status,
            "errors": dict.fromkeys(self._status),
            "session": self._session,
        }


def dry_run_command(
    place: Place, name: str, given: dict[str, Json], as_name: str | None, *, as_json: bool
) -> int:
    """Print the walk; the exit code says whether a node could not even be configured. Raises `InvalidInputs`."""
    settings = place.settings()
    flow = find_flow(settings, name)
    walk = Walk(flow, given, actor_for(settings, as_name))
    steps = walk.steps()
    if as_json:
        nodes = [step.as_json() for step in steps]
        print_json({"flow": flow.name, "inputs": walk.inputs, "missing": walk.missing, "nodes": nodes})
    else:
        _print(walk, steps, Paint(sys.stdout))
    return Exit.FAILED if any(step.problem for step in steps) else Exit.OK


def _print(walk: Walk, steps: list[Step], paint: Paint) -> None:
    print(f"{paint('bold', walk.flow.name)}  dry run: nothing is executed")
    for name, value in walk.inputs.items():
        print(f"  {name} = {_shown(value)}")
    for name in walk.missing:
        print(f"  {name} = {paint('yellow', 'would be asked for')}")
    for number, step in enumerate(steps, 1):
        print(f"{number:3} {paint('bold', step.node.id)}  {step.node.type}  {_whether(step, paint)}".rstrip())
        for name, value in step.config.items():
            known = f"  {paint('yellow', '(needs ' + ', '.join(value.needs) + ')')}" if value.needs else ""
            print(f"      {name}: {_shown(value.value)}{known}")
        if step.problem:
            print(f"      {paint('red', 'would fail: ' + clean(step.problem))}")
    if len(steps) < len(walk.flow.nodes):
        print("The flow would fail here; what follows would not run.")


def _whether(step: Step, paint: Paint) -> str:
    if step.runs is False:
        return paint("dim", f"skipped: {clean(str(step.node.if_))} is false")
    if step.runs is None:
        return paint("yellow", f"only if {clean(str(step.node.if_))} (needs {', '.join(step.needs)})")
    return ""


def _shown(value: Json) -> str:
    if isinstance(value, str):
        return one_line(value, 160)
    return one_line(_with_references(encode(value).decode()), 160)


def _with_references(text: str) -> str:
    """References to secrets as the flow writes them."""
    return _REFERENCE.sub(r"{{ secrets.\1 }}", text)
