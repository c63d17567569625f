"""`run --dry-run`: what a flow would do, as far as that can be known without doing any of it. `test`: plays
scenarios and says what became of them.

In a dry run the inputs are known, the outputs of `set`, nodes whose `if` is false, and what follows from
them. What depends on an answer, on a program or on another machine is shown as it is written, with the names
that it waits for.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.cli.lookup import actor_for, find_flow
from bot.scenarios import report
from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import play
from bot.scenarios.report import Told
from bot.terminal.console import Exit, Paint, Place, UsageError, clean, one_line, print_json
from engine.flow import Flow, Node, coerce_inputs
from engine.flow.load import SUFFIXES
from engine.language.actors import Actor, named
from engine.language.codec import Json, encode
from engine.language.errors import ExpressionError, FlowError, SaysoError
from engine.language.expressions import Compiled, below, compile_value, evaluate_condition
from engine.models.scripted import SUFFIXES as SCRIPTS
from engine.nodes.runtime.secrets import SecretSource
from engine.nodes.types.registry import END

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
    """A node on the walk. `runs` is None where only the run itself will show it. `path` is where it stands, with
    empty brackets for passes that nobody can count yet; `title` heads a list of nodes and is no node."""

    node: Node
    path: str
    runs: bool | None
    needs: tuple[str, ...] = ()
    config: dict[str, Value] = field(default_factory=dict)
    problem: str | None = None
    title: str | None = None

    @property
    def depth(self) -> int:
        """How many containers are around it."""
        return self.path.count("/")

    @property
    def fails(self) -> bool:
        """Whether it surely runs, and what is around it surely ends here."""
        return bool(self.runs) and self.node.on_error == "fail" and bool(self.node.spec.fails or self.problem)

    @property
    def ends(self) -> bool:
        """Whether it surely runs, and its list is over with it, as a success."""
        return bool(self.runs) and not self.problem and self.node.type == END

    def as_json(self) -> dict[str, Json]:
        """For a machine."""
        return {
            "id": self.node.id,
            "path": self.path,
            "type": self.node.type,
            "runs": self.runs,
            "if": self.node.if_,
            "ifNeeds": list(self.needs),
            "with": {name: value.as_json() for name, value in self.config.items()},
            "problem": self.problem,
        }


class Walk:
    """Goes through a flow's nodes in their order, and into what they contain, and keeps what is known.

    What is inside a `foreach` or a `loop` is shown once: as far as it is the same in every pass.
    """

    def __init__(self, flow: Flow, given: dict[str, Json], actor: Actor) -> None:
        self.flow = flow
        self.inputs, self.missing = coerce_inputs(flow, given)
        self._session = {"requester": named(actor.record()), "flow": flow.name}
        self._outputs: dict[str, Json] = {}
        self._status: dict[str, str] = {}
        self._calling: list[str] = []
        self.ends_early = False

    def steps(self) -> list[Step]:
        """The nodes that would be reached, in order."""
        steps, self.ends_early = self._list("", "")
        if self.flow.finally_list is not None:
            steps += self._titled(self.flow.finally_list, "finally/", "finally", None)[0]
        return steps

    def _list(self, list_id: str, prefix: str, sure: bool | None = True) -> tuple[list[Step], bool]:
        """The steps of a list of nodes, and whether it surely fails. `sure` is None where it may not run at all."""
        nodes = self.flow.lists[list_id]
        steps: list[Step] = []
        for node_id in nodes.order:
            node = nodes.by_id[node_id]
            # Which edges are taken shows itself only in the run.
            certain = sure if not nodes.is_graph or node_id in nodes.starts else None
            step = self._step(node, f"{prefix}{node.id}", certain)
            steps.append(step)
            inside, fails = self._inside(step) if step.runs is not False and not step.problem else ([], False)
            steps += inside
            if step.fails or fails:
                return steps, True
            if step.ends:
                return steps, False
        return steps, False

    def _inside(self, step: Step) -> tuple[list[Step], bool]:
        """What a node contains, and whether it surely fails because of that."""
        node, fails = step.node, False
        steps: list[Step] = []
        match node.type:
            case "foreach":
                items = step.config["items"]
                known = not items.needs and isinstance(items.value, list)
                count = f"for each of {len(items.value)}" if known else "for each"
                steps, fails = self._titled(node.lists["body"], f"{step.path}[]/", count, step.runs)
                fails = fails and known and bool(items.value)
            case "loop":
                steps, _ = self._titled(node.lists["body"], f"{step.path}[]/", _rounds(node), step.runs)
            case "parallel":
                for name, list_id in node.lists.items():
                    found, broken = self._titled(
                        list_id, f"{step.path}[{name}]/", f"branch {name}", step.runs
                    )
                    steps, fails = steps + found, fails or broken
                mode = step.config.get("mode")
                fails = fails and (mode is None or mode.value != "collect")
            case "switch":
                steps, fails = self._cases(step)
            case "flow":
                steps, fails = self._called(step)
            case _:
                pass
        if node.on_failure is not None:
            steps += self._titled(node.on_failure, f"{step.path}!/", f"if {node.id} fails", None)[0]
        return steps, fails and bool(step.runs) and node.on_error == "fail"

    def _titled(self, list_id: str, prefix: str, title: str, sure: bool | None) -> tuple[list[Step], bool]:
        """A list inside something: what becomes known in it is known in it only."""
        outputs, status = dict(self._outputs), dict(self._status)
        steps, fails = self._list(list_id, prefix, sure)
        self._outputs, self._status = outputs, status
        if steps:
            steps[0] = replace(steps[0], title=title)
        return steps, fails

    def _cases(self, step: Step) -> tuple[list[Step], bool]:
        """The case that is taken, or all of them where that is not known."""
        lists, on = step.node.lists, step.config["on"]
        if not on.needs:
            value = on.value if isinstance(on.value, str) else encode(on.value).decode()
            taken = value if value in lists and value else ""
            if taken not in lists:
                return [], False
            return self._titled(
                lists[taken], f"{step.path}[{taken}]/", f"case {taken or 'default'}", step.runs
            )
        steps: list[Step] = []
        for case, list_id in lists.items():
            steps += self._titled(
                list_id, f"{step.path}[{case}]/", f"in case of {case or 'none of them'}", None
            )[0]
        return steps, False

    def _called(self, step: Step) -> tuple[list[Step], bool]:
        """The nodes of the flow that a node calls, with its own inputs as far as they are known."""
        name = step.node.calls or ""
        if step.path.count("/") >= self.flow.limits.max_depth or name in self._calling:
            return [], False
        mine = self.inputs, self._outputs, self._status
        given = step.config.get("inputs")
        known = given.value if given is not None and not given.needs and isinstance(given.value, dict) else {}
        try:
            self.inputs = (
                coerce_inputs(self.flow.flows[name], known)[0] if given is None or not given.needs else {}
            )
        except SaysoError:
            self.inputs = {}
        self._outputs, self._status = {}, {}
        self._calling.append(name)
        try:
            return self._titled(f"@{name}/", f"{step.path}/", f"flow {name}", step.runs)
        finally:
            self._calling.pop()
            self.inputs, self._outputs, self._status = mine

    def _step(self, node: Node, path: str, sure: bool | None) -> Step:
        needs = () if node.condition is None else self._unknown(node.condition)
        runs: bool | None = None
        try:
            if not needs:
                holds = node.condition is None or evaluate_condition(node.condition, self._context())
                runs = sure if holds else False
        except ExpressionError as error:
            return Step(node, path, sure, problem=f"if: {error}")
        if runs is False:
            self._outputs[node.id], self._status[node.id] = None, "skipped"
            return Step(node, path, False)
        try:
            config = self._config(node)
        except SaysoError as error:
            return Step(node, path, runs, needs, problem=str(error))
        if runs:
            self._note(node, config)
        return Step(node, path, runs, needs, config)

    def _config(self, node: Node) -> dict[str, Value]:
        spec, found = node.spec, {}
        for name, raw in node.config.items():
            if name in spec.verbatim_fields:
                found[name] = Value(raw)
                continue
            compiled = compile_value(raw, secrets=name in spec.secret_fields, exact=below(spec.exact, name))
            needs = self._unknown(compiled)
            found[name] = Value(raw, needs) if needs else Value(compiled.evaluate(self._context()))
        if node.agent is not None and "tools" in found:
            found["tools"] = Value([tool.name for tool in node.agent.tools])
        if not any(value.needs for value in found.values()):
            spec.normalize({name: value.value for name, value in found.items()}, node.config)
        return found

    def _note(self, node: Node, config: dict[str, Value]) -> None:
        """What later nodes know of one that surely runs."""
        if node.spec.mode == "pure" and not any(value.needs for value in config.values()):
            self._outputs[node.id] = node.spec.compute({name: value.value for name, value in config.items()})
        if node.on_error == "fail" and not node.spec.fails:
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
    from bot.compose.lacks import lacks  # `sayso test` needs nothing of it

    settings = place.settings()
    flow = find_flow(settings, name)
    walk = Walk(flow, given, actor_for(settings, as_name))
    steps = walk.steps()
    source = SecretSource(settings.env, settings.secrets_dir, settings.secret_command)
    lacking = [*lacks(flow, settings, source.get)]
    if as_json:
        nodes = [step.as_json() for step in steps]
        told = {"flow": flow.name, "inputs": walk.inputs, "missing": walk.missing, "nodes": nodes}
        print_json({**told, "lacks": lacking})
    else:
        paint = Paint(sys.stdout)
        _print(walk, steps, paint)
        for text in lacking:
            print(paint("yellow", f"! {one_line(text, 300)}"))
    return Exit.FAILED if any(step.problem for step in steps) else Exit.OK


def _print(walk: Walk, steps: list[Step], paint: Paint) -> None:
    print(f"{paint('bold', walk.flow.name)}  dry run: nothing is executed")
    for name, value in walk.inputs.items():
        print(f"  {name} = {_shown(value)}")
    for name in walk.missing:
        print(f"  {name} = {paint('yellow', 'would be asked for')}")
    number = 0
    for step in steps:
        number += step.depth == 0
        margin = "    " * step.depth
        if step.title is not None:
            print(f"{margin}  {paint('dim', clean(step.title) + ':')}")
        first = f"{number:3}" if step.depth == 0 else f"{margin}  -"
        print(f"{first} {paint('bold', step.node.id)}  {step.node.type}  {_whether(step, paint)}".rstrip())
        for name, value in step.config.items():
            known = f"  {paint('yellow', '(needs ' + ', '.join(value.needs) + ')')}" if value.needs else ""
            print(f"{margin}      {name}: {_shown(value.value)}{known}")
        if step.problem:
            print(f"{margin}      {paint('red', 'would fail: ' + clean(step.problem))}")
    if walk.ends_early:
        print("The flow would fail here; what follows would not run.")


def _rounds(node: Node) -> str:
    """How long a loop goes on, as it is written."""
    if node.until_ is not None:
        return f"again until {node.until_.raw}"
    return f"again while {node.while_.raw}" if node.while_ is not None else "again"


def _whether(step: Step, paint: Paint) -> str:
    if step.runs is False:
        return paint("dim", f"skipped: {clean(str(step.node.if_))} is false")
    if step.ends:
        return paint("dim", "what follows would be skipped")
    if step.runs is None and step.node.condition is None:
        return ""
    if step.runs is None and not step.needs:
        return paint("dim", f"{clean(str(step.node.if_))} is true")
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


# --- scenarios ---------------------------------------------------------------------------------------------


FOLDER = "scenarios"
"""Where scenarios are looked for inside the folder of flows."""


def run_scenarios(place: Place, paths: Sequence[Path], kill: bool, junit: Path | None, as_json: bool) -> int:
    """Play every scenario; the exit code says whether all went well. Raises `UsageError`."""
    folder = place.settings().flows
    files = _files(paths or [Path(os.path.relpath(folder / FOLDER))])
    flows = Flows(folder)
    paint = Paint(sys.stdout)
    all_told = []
    for file in files:
        told = _told(file, flows, kills=kill)
        all_told.append(told)
        if not as_json:
            for line in report.lines(told, paint):
                print(line, flush=True)
    if junit is not None:
        _write(junit, report.junit(all_told))
    if as_json:
        print_json(report.as_json(all_told))
    else:
        print(report.summary(all_told, paint))
    if any(told.result is None for told in all_told):
        return Exit.USAGE
    return Exit.OK if all(told.passed for told in all_told) else Exit.FAILED


def _told(file: Path, flows: Flows, *, kills: bool) -> Told:
    began = time.monotonic()
    try:
        scenario = load_scenario(file, flows)
    except FlowError as error:
        return Told(str(file), None, str(error))
    progress = _Progress(scenario.name)
    try:
        result = asyncio.run(play(scenario, kills=kills, told=progress))
    finally:
        progress.clear()
    return Told(str(file), result, seconds=time.monotonic() - began)


class _Progress:
    """A line on a terminal that says how many kills were tried; nothing anywhere else."""

    def __init__(self, name: str) -> None:
        self._name = one_line(name, 60)
        self._on = sys.stderr.isatty()

    def __call__(self, done: int, of: int) -> None:
        if self._on:
            sys.stderr.write(f"\r\x1b[2K  {self._name}: {done} of {of} kills")
            sys.stderr.flush()

    def clear(self) -> None:
        """Leave no trace of it."""
        if self._on:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _files(paths: Sequence[Path]) -> list[Path]:
    """The files that are named, and those in the folders that are."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(
                file
                for file in path.iterdir()
                if (file.suffix in SUFFIXES and not file.name.endswith(SCRIPTS) and file.is_file())
            )
            if not inside:
                raise UsageError(f"There are no scenarios in {path}: their names end with .yml or .yaml.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"There is no scenario {path}. Name files or folders: sayso test SCENARIO.yml")
    return list(dict.fromkeys(found))


def _write(file: Path, data: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:
        raise UsageError(f"The report {file} cannot be written: {error.strerror}.") from error
