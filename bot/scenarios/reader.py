"""Reads the parts of a scenario that depend on its flow and on its people, and finds what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from bot.scenarios.document import (
    BESIDE,
    NODE_STATUS,
    VERBS,
    Act,
    Deed,
    ExpectDoc,
    FakeDoc,
    PersonDoc,
    Scenario,
    ScenarioDoc,
    Step,
    Wait,
)
from engine.flow import Flow, Node
from engine.forms import form_faults
from engine.journal.queries import TURN
from engine.language.codec import Json, nfc
from engine.language.diagnostics import Fault, Path, faults_of, kind_of, suggest
from engine.language.timestamps import parse_duration
from engine.language.yaml import Located
from engine.messages.errors import ScriptError

if TYPE_CHECKING:
    from engine.models.scripted import Script, Turn

_PLACE = re.compile(r"(\[[^\]]*\]|~\d+|#\d+)+$")
_MODES = {
    "prompt": "people answer it: write their actions under `steps`",
    "container": "name the nodes inside it",
    "delivery": "its text is posted in the thread: check it with `expect: {posted: ...}`",
    "timer": "use `wait` under `steps` to let time pass",
    "pure": "it needs no result: it touches nothing outside",
}
_PART = TypeVar("_PART", bound=BaseModel)


def read_part(model: type[_PART], data: Json, path: Path) -> tuple[_PART | None, list[Fault]]:
    """A part of the file, or what is wrong with it."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        found = []
        for fault, _ in faults_of(error, model):
            if len(fault.path) == 3 and fault.path[0] == "people" and fault.on_key:
                # A person's facts are under a name that no model knows.
                fault = replace(fault, hint=suggest(str(fault.path[2]), PersonDoc.model_fields))
            found.append(fault.under(path))
        return None, found


class Reader:
    """Reads what depends on the flow and on the people; what is wrong with it is in `faults`."""

    def __init__(self, doc: ScenarioDoc, flow: Flow, folder: FilePath) -> None:
        self.doc = doc
        self._folder = folder
        self.flow = flow
        self.faults: list[Fault] = []
        self.people = dict(doc.people)
        if not self.people and doc.start.as_ is not None:
            self.people = {doc.start.as_: PersonDoc()}

    def scenario(self, located: Located) -> Scenario:
        """All of it; it counts only if nothing was wrong."""
        start = self.doc.start
        if start.as_ is None and start.trigger is None and not self.people:
            self._wrong(
                (), "nobody starts the flow", "write `start: {as: ana}`, or `start: {trigger: schedule}`"
            )
        if start.as_ is not None and start.trigger is not None:
            self._wrong(("start", "trigger"), "either a person starts the flow or a trigger", on_key=True)
        if start.as_ is not None:
            self._person(start.as_, ("start", "as"))
        if self.doc.steps and start.refused is not None:
            self._wrong(("steps",), "nothing happens after a refused start", on_key=True)
        if not self.doc.steps and start.refused is None:
            self._wrong((), "a scenario needs `steps`: actions of people, and expectations", _STEP_HINT)
        for name, facts in self.people.items():
            if facts.manager is not None:
                self._person(facts.manager, ("people", name, "manager"))
        fakes = {name: self._fakes(name, given) for name, given in self.doc.nodes.items()}
        steps = [step for index, given in enumerate(self.doc.steps) if (step := self._step(index, given))]
        return Scenario(
            self.doc, self.flow, located, self.people, fakes, tuple(steps), self._script(self.doc.claude)
        )

    def _wrong(self, path: Path, message: str, hint: str | None = None, *, on_key: bool = False) -> None:
        self.faults.append(Fault(path, message, hint, on_key=on_key))

    def _person(self, name: str, path: Path, *, on_key: bool = False) -> None:
        if name not in self.people:
            hint = suggest(name, self.people, "list everyone under `people`")
            self._wrong(path, f"there is no person `{name}` here", hint, on_key=on_key)

    # --- nodes ---------------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> Mapping[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for nodes in self.flow.lists.values():
            for node in nodes.nodes:
                if node.type != TURN:
                    found.setdefault(node.id, []).append(node)
        return found

    def _named(self, name: str, path: Path, *, on_key: bool = False) -> list[Node]:
        """The nodes that an id or a path means; a fault where there is none."""
        parts = name.split("/")
        last = _PLACE.sub("", parts[-1])
        if parts[0] == "inputs" and last in self.flow.inputs:
            return []
        found = self._nodes.get(last, [])
        if not found and not (len(parts) > 1 and last in ("turn", "tool")):
            known = [*self._nodes, *(f"inputs/{entry}" for entry in self.flow.inputs)]
            self._wrong(
                path, f"flow `{self.flow.name}` has no node `{last}`", suggest(last, known), on_key=on_key
            )
        return found

    def _fakes(self, name: str, given: Json) -> tuple[FakeDoc, ...]:
        path: Path = ("nodes", name)
        nodes = self._named(name, path, on_key=True)
        working = [node for node in nodes if node.spec.mode == "run"]
        if nodes and not working:
            kind = nodes[0].type
            hint = _MODES[nodes[0].spec.mode]
            self._wrong(
                path, f"`{name}` is of type {kind}: a scenario cannot set its result", hint, on_key=True
            )
            return ()
        if isinstance(given, list):
            fakes = [self._fake(working, item, (*path, index)) for index, item in enumerate(given)]
        else:
            fakes = [self._fake(working, given, path)]
        if not fakes:
            self._wrong(path, "the list is empty", "give the result of the first run, of the second, ...")
        known = tuple(fake for fake in fakes if fake is not None)
        if any(fake.real for fake in known):
            needed = {secret for node in working for secret in node.secrets}
            for secret in sorted(needed - self.doc.secrets.keys()):
                message = f"`{name}` really runs, but the scenario has no secret {secret}"
                self._wrong(path, message, "add it under `secrets`")
        return known

    def _fake(self, nodes: Sequence[Node], given: Json, path: Path) -> FakeDoc | None:
        if given == "done":
            return FakeDoc(output={})
        if given == "real":
            return FakeDoc(real=True)
        if not isinstance(given, dict):
            self._wrong(
                path,
                f"expected a result, not {kind_of(given)}",
                "write `done`, `{output: {...}}`, `{error: ...}`, `{interrupted: timeout}` or `real`",
            )
            return None
        fake, faults = read_part(FakeDoc, given, path)
        self.faults += faults
        if fake is None:
            return None
        if len(fake.model_fields_set) != 1:
            self._wrong(path, "use one of `output`, `error`, `interrupted`, `asks` and `real`")
        if "output" in fake.model_fields_set:
            self._output(nodes, fake.output, (*path, "output"))
        if fake.asks is not None:
            if any(node.type != "mcp" for node in nodes):
                self._wrong((*path, "asks"), "only a tool of an MCP server can ask people for something")
            if fake.asks.form is not None:
                wrong = form_faults(fake.asks.form)
                self.faults += [fault.under((*path, "asks", "form")) for fault in wrong]
        return fake

    def _output(self, nodes: Sequence[Node], output: Json, path: Path) -> None:
        known = [node.spec.output_fields(node.config) for node in nodes]
        if not known or None in known:
            return
        fields = frozenset().union(*(names for names in known if names is not None))
        if not isinstance(output, dict):
            self._wrong(
                path, f"expected a mapping, not {kind_of(output)}", f"with {', '.join(sorted(fields))}"
            )
            return
        for name in output.keys() - fields:
            self._wrong((*path, name), f"unknown field `{name}`", suggest(name, fields), on_key=True)

    # --- Claude --------------------------------------------------------------------------------------------

    def _script(self, given: Json) -> Script | None:
        """A list of turns for every agent, or lists by the ids of agents."""
        from engine.models.scripted import Script

        if given is None:
            return None
        if isinstance(given, dict) and set(given) == {"file"}:
            return self._script_file(given["file"])
        if isinstance(given, dict) and set(given) == {"turns"}:
            return Script(turns=self._turns(given["turns"], ("claude", "turns")))
        if isinstance(given, dict) and given:
            for name in given:
                nodes = self._named(name, ("claude", name), on_key=True)
                if nodes and not any(node.agent is not None for node in nodes):
                    message = f"`{name}` is of type {nodes[0].type}, not an agent"
                    self._wrong(("claude", name), message, on_key=True)
            return Script(agents={name: self._turns(told, ("claude", name)) for name, told in given.items()})
        return Script(turns=self._turns(given, ("claude",)))

    def _script_file(self, name: Json) -> Script | None:
        """A script that is in a file of its own, such as the one beside the flow."""
        from engine.models.scripted import load_script

        path: Path = ("claude", "file")
        if not isinstance(name, str) or not name:
            self._wrong(path, f"expected a file, seen from the scenario, not {kind_of(name)}")
            return None
        try:
            return load_script(self._folder / name)
        except ScriptError as error:
            self._wrong(path, str(error))
            return None

    def _turns(self, given: Json, path: Path) -> tuple[Turn, ...]:
        from engine.models.scripted import Turn

        if not isinstance(given, list) or not given:
            self._wrong(path, f"expected a list of turns, not {kind_of(given)}", _TURN_HINT)
            return ()
        found = []
        for index, item in enumerate(given):
            turn, faults = read_part(Turn, item, (*path, index))
            self.faults += faults
            found += [turn] if turn is not None else []
        return tuple(found)

    # --- steps ---------------------------------------------------------------------------------------------

    def _step(self, index: int, given: Json) -> Step | None:
        path: Path = ("steps", index)
        if not isinstance(given, dict) or not given:
            self._wrong(path, f"expected a step, not {kind_of(given)}", _STEP_HINT)
            return None
        given = {nfc(name): said for name, said in given.items()}
        heads = [name for name in given if name not in BESIDE]
        if len(heads) != 1:
            said = ", ".join(f"`{name}`" for name in heads) or "none"
            self._wrong(path, f"a step is one action or expectation; this has {said}", _STEP_HINT)
            return None
        head = heads[0]
        if head not in ("wait", "expect") and head not in self.people:
            known = ["wait", "expect", *self.people]
            hint = suggest(head, known, "list everyone under `people`")
            self._wrong((*path, head), f"`{head}` is neither a step nor a person here", hint, on_key=True)
            return None
        deed = self._deed(head, given, path)
        return None if deed is None else Step(index + 1, path, deed)

    def _deed(self, head: str, given: dict[str, Json], path: Path) -> Deed | None:
        if head in ("wait", "expect"):
            for name in BESIDE:
                if name in given:
                    self._wrong((*path, name), f"`{name}` belongs beside the action of a person", on_key=True)
        if head == "wait":
            try:
                return Wait(parse_duration(str(given[head])))
            except ValueError as error:
                self._wrong((*path, head), str(error))
                return None
        if head == "expect":
            return self._expect(given[head], (*path, head))
        beside = {name: self._beside(name, given, path) for name in BESIDE}
        verb, value = self._verb(given[head], (*path, head))
        return Act(head, verb, value, beside["on"], beside["refused"], beside["while"]) if verb else None

    def _beside(self, name: str, given: dict[str, Json], path: Path) -> str | None:
        value = given.get(name)
        if name not in given:
            return None
        if not isinstance(value, str) or not value:
            self._wrong((*path, name), f"expected text, not {kind_of(value)}")
            return None
        if name in ("on", "while"):
            self._named(value, (*path, name))
        return value

    def _verb(self, given: Json, path: Path) -> tuple[str, Json]:
        if isinstance(given, bool | int | float) or given is None:
            self._wrong(path, f"expected an action of this person, not {kind_of(given)}", "quote it")
            return "", None
        if isinstance(given, str):
            return "say", given
        if not isinstance(given, dict) or len(given) != 1:
            self._wrong(path, "a person can do only one thing per step", _ACT_HINT)
            return "", None
        ((verb, value),) = given.items()
        path = (*path, verb)
        if verb not in VERBS:
            hint = suggest(verb, VERBS, _ACT_HINT)
            self._wrong(path, f"there is no action `{verb}`", hint, on_key=True)
            return "", None
        fields = ("form", "edit", "always", "always_in_thread", "always_in_flow")
        texts = ("reply", "message", "choose", "hand_over")
        if verb in fields and not isinstance(value, dict):
            self._wrong(path, f"expected fields and their values, not {kind_of(value)}")
        elif verb == "files":
            self._files(value, path)
        elif verb in texts and (not isinstance(value, str) or not value):
            self._wrong(
                path, f"expected text, not {kind_of(value)}", "quote it" if value is not None else None
            )
        elif verb not in (*fields, *texts) and not (value is None or value is True or isinstance(value, str)):
            self._wrong(path, f"expected a reason, or nothing, not {kind_of(value)}")
        if verb == "hand_over" and isinstance(value, str) and "@" not in value:
            self._person(value, path)
        return verb, None if value is True else value

    def _files(self, value: Json, path: Path) -> None:
        if not isinstance(value, dict) or not value:
            self._wrong(path, f"expected file names with contents, not {kind_of(value)}", _FILES_HINT)
            return
        for name, content in value.items():
            if "/" in name or name in (".", ".."):
                self._wrong((*path, name), f"`{name}` is not a valid file name", _FILES_HINT, on_key=True)
            if not isinstance(content, str):
                self._wrong((*path, name), f"expected text, not {kind_of(content)}", "quote it")

    # --- expectations --------------------------------------------------------------------------------------

    def _expect(self, given: Json, path: Path) -> ExpectDoc | None:
        if not isinstance(given, dict) or not given:
            self._wrong(path, f"expected conditions, not {kind_of(given)}", "as in {status: complete}")
            return None
        expect, faults = read_part(ExpectDoc, given, path)
        self.faults += faults
        if expect is None:
            return None
        of_prompt = {"message", "kind", "choices", "asks"} & expect.model_fields_set
        if of_prompt and expect.prompt is None:
            name = min(of_prompt)
            message = f"`{name}` needs a question: name it with `prompt`"
            self._wrong((*path, name), message, "for posts in the thread, use `posted`", on_key=True)
        for node, status in (expect.nodes or {}).items():
            if status not in NODE_STATUS:
                hint = suggest(status, NODE_STATUS, f"one of {', '.join(NODE_STATUS)}")
                self._wrong((*path, "nodes", node), f"`{status}` is not a node status", hint)
        for index, effect in enumerate(expect.effects or ()):
            one = isinstance(effect, dict) and len(effect) == 1
            if not (isinstance(effect, str) or one):
                hint = "write the node's id, or `id: {what its configuration has}`"
                self._wrong((*path, "effects", index), f"expected a node, not {kind_of(effect)}", hint)
        for name, place in self._names(expect):
            self._named(name, (*path, *place), on_key=bool(place) and place[-1] == name)
        return expect

    @staticmethod
    def _names(expect: ExpectDoc) -> Iterator[tuple[str, Path]]:
        """Every node that is named, and where."""
        for name in ("prompt", "reminded", "escalated", "expired"):
            value: str | None = getattr(expect, name)
            if value is not None:
                yield value, (name,)
        for name in ("nodes", "outputs", "errors", "said"):
            for node in getattr(expect, name) or ():
                yield node, (name, node)
        for index, node in enumerate(expect.prompts or ()):
            yield node, ("prompts", index)
        for index, effect in enumerate(expect.effects or ()):
            if isinstance(effect, dict) and len(effect) == 1:
                (node,) = effect
                yield node, ("effects", index, node)
            elif isinstance(effect, str):
                yield effect, ("effects", index)


_STEP_HINT = "write `- expect: {...}`, `- wait: 10m`, or `- ana: approve` for a person"
_FILES_HINT = "as in {disk.txt: 90% used}"
_TURN_HINT = "write `- text: the answer`, with `tools: [{name: ..., input: {...}}]` if it calls tools"
_ACT_HINT = f"one of {', '.join(VERBS)}"
