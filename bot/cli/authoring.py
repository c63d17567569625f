"""Tools of `sayso mcp` with which a coding agent writes flows: it reads the format, checks texts, plays scenarios, and saves what is
valid.

They see the folder of flows, and only `save` writes there. No program of a flow runs: a scenario says what comes of nodes with
effects, and one that says `real` is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import Any

import mcp.types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.gate.mcp_server import WAIT_SECONDS
from bot.scenarios import report
from bot.scenarios.document import Scenario
from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import play
from bot.terminal.console import Paint, UsageError, clean
from engine.flow.docs.explain import explained
from engine.flow.docs.schema import flow_schema
from engine.flow.load import is_flow_file
from engine.flow.model import Flow
from engine.language.codec import Json
from engine.language.diagnostics import Fault, suggest
from engine.language.errors import FlowError, Problem
from engine.language.yaml import load_located
from engine.run.flow_files import flow_warnings, load_flows, text_of

INSTRUCTIONS = (
    "sayso runs flows: YAML runbooks that pause for people in Slack. To write one: read `schema`, check each draft with `validate` "
    "and correct every problem at its line and column, read `explain` as its reviewer would, write a scenario and play it with "
    "`test`, then `save` both. Ask the user who may approve; never invent approvers."
)
_REFERENCE = re.compile(r'"#/\$defs/([^"]+)"')
_FILE = re.compile(r"(scenarios/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.ya?ml")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Wanted(_Part):
    types: list[str] = Field(
        [], description="Node types with their settings under `with`, such as approval and shell."
    )


class _Draft(_Part):
    file: str = Field(
        description="A flow such as `deploy.yml`, or a scenario such as `scenarios/deploy.yml`."
    )
    text: str | None = Field(None, description="Its YAML. Default: the saved file.")


class _Test(_Draft):
    flow: _Draft | None = Field(
        None, description="A flow that is not saved yet, or that differs from the saved one."
    )
    kill: bool = Field(
        False, description="Also kill sayso around each commit: the result must stay the same."
    )


class _Save(_Draft):
    text: str = Field(description="Its YAML.")
    overwrite: bool = Field(False, description="Replace a file that exists.")


class Bench:
    """The tools over one folder of flows, which `folder` gives; it may raise `SaysoError`."""

    instructions = INSTRUCTIONS

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._given = folder
        self._lock = Lock()
        self._tools: dict[str, tuple[type[_Part], Callable[[Any], dict[str, Json]]]] = {
            "schema": (_Wanted, self._schema),
            "validate": (_Draft, self._validate),
            "explain": (_Draft, self._explain),
            "test": (_Test, self._test),
            "save": (_Save, self._save),
        }

    @property
    def tools(self) -> list[types.Tool]:
        """The tools as a client lists them, each described by its docstring."""
        return [
            types.Tool(
                name=name,
                description=" ".join(str(do.__doc__).split()),
                input_schema=model.model_json_schema(),
                output_schema={"type": "object", "required": ["ok", "problems", "warnings"]},
                annotations=types.ToolAnnotations(read_only_hint=name != "save", open_world_hint=False),
            )
            for name, (model, do) in self._tools.items()
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Json]:
        """Return what a tool gives: `ok`, `problems`, `warnings`, and more by tool. Raises `SaysoError` for arguments that it does
        not take."""
        model, do = self._tools[name]
        try:
            given = model.model_validate(arguments)
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise UsageError(clean(told)[:1000]) from None
        with self._lock:
            try:
                return {"ok": True, "problems": [], "warnings": [], **do(given)}
            except FlowError as error:
                return {"ok": False, "problems": self._told(error.problems), "warnings": []}

    # --- the tools -----------------------------------------------------------------------------------------

    def _schema(self, given: _Wanted) -> dict[str, Json]:
        """Return the JSON Schema of flow files: all fields, and the settings of the node types that you name."""
        schema: dict[str, Any] = flow_schema()
        found = schema.pop("$defs")
        known = found["NodeDoc"]["properties"]["type"]["enum"]
        for name in given.types:
            if name not in known:
                raise UsageError(f"There is no node type {name[:80]!r}: {suggest(name[:80], known)}")
        for part in (found["NodeDoc"], found["ToolDoc"]):
            cases = part.pop("allOf")
            wanted = [case for case in cases if case["if"]["properties"]["type"]["const"] in given.types]
            part |= {"allOf": wanted} if wanted else {}
        kept: dict[str, Any] = {}
        left = [schema]
        while left:  # what is not referred to would be most of it
            for name in set(_REFERENCE.findall(json.dumps(left.pop()))) - kept.keys():
                kept[name] = found[name]
                left.append(found[name])
        kinds = {name: found[f"with_{name}"].get("description") for name in known}
        return {"schema": {**schema, "$defs": kept}, "types": kinds}

    def _validate(self, given: _Draft) -> dict[str, Json]:
        """Check a flow or a scenario among the saved ones. Each problem has its file, line and column, and a hint. Nothing runs."""
        path = self._path(given.file)
        if path.parent != self._folder():
            self._scenario(path, given.text, {})
            return {}
        flow, around = self._flow(path, given.text)
        doubts = [doubt for doubt in flow_warnings(around) if doubt.file == flow.file]
        return {"warnings": self._told(doubts)}

    def _explain(self, given: _Draft) -> dict[str, Json]:
        """Explain in plain sentences what a flow does, whom it asks, and what happens if nobody answers."""
        return {"text": explained(self._flow(self._path(given.file), given.text)[0])}

    def _test(self, given: _Test) -> dict[str, Json]:
        """Play a scenario on the real engine without Slack, models or programs, and say what differed from it."""
        path, unsaved = self._path(given.file), dict[Path, str]()
        if given.flow is not None and given.flow.text is not None:
            beside = self._path(given.flow.file)
            unsaved[beside] = given.flow.text
            self._flow(beside, given.flow.text)
        scenario, began = self._scenario(path, given.text, unsaved), time.monotonic()
        try:
            result = asyncio.run(asyncio.wait_for(play(scenario, kills=given.kill), WAIT_SECONDS))
        except TimeoutError:
            raise UsageError(
                f"It took longer than {WAIT_SECONDS:.0f} s. Run it in a terminal: sayso test {path}"
            ) from None
        told = report.Told(str(path), result, seconds=time.monotonic() - began)
        text = "\n".join(report.lines(told, Paint(StringIO())))
        return {"ok": told.passed, "text": text.replace(f"{self._folder()}{os.sep}", "")}

    def _save(self, given: _Save) -> dict[str, Json]:
        """Write a flow or a scenario into the folder of flows, if it is valid and breaks no other flow."""
        path, found = self._path(given.file), self._validate(given)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(exist_ok=True)
            fresh.write_text(given.text, "utf-8", newline="")
            (os.replace if given.overwrite else os.link)(fresh, path)
        except OSError as error:
            if path.exists() and not given.overwrite:
                raise UsageError(f"{given.file} exists: pass `overwrite` to replace it.") from error
            raise UsageError(f"{given.file} cannot be written: {error.strerror}.") from error
        finally:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
        return {**found, "saved": str(path)}

    # --- files ---------------------------------------------------------------------------------------------

    def _folder(self) -> Path:
        folder = self._given().resolve()
        if not folder.is_dir():
            raise UsageError(f"The flows folder {folder} does not exist. Create it: sayso init")
        return folder

    def _path(self, file: str) -> Path:
        """A file in the folder of flows, without a link out of it."""
        folder = self._folder()
        path = folder / file[:200]
        if not (
            _FILE.fullmatch(file)
            and is_flow_file(path.name)
            and Path(os.path.realpath(path)).is_relative_to(folder)
        ):
            raise UsageError(
                f"{file[:200]!r} is not a file in the flows folder. Name one such as deploy.yml or "
                "scenarios/deploy.yml."
            )
        return path

    def _flow(self, path: Path, text: str | None) -> tuple[Flow, list[Flow]]:
        """The flow of a file, or that it would have with this text, and all flows. Raises `FlowError`, also where the text would
        break another flow."""
        folder = self._folder()
        if path.parent != folder:
            raise UsageError(f"{path.name} is a scenario: play it with `test`.")
        flows, errors = load_flows(folder, {} if text is None else {path: text})
        if text is not None:
            before = load_flows(folder)[1]
            broken = [error for file, error in errors.items() if file == str(path) or file not in before]
            if problems := [problem for error in broken for problem in error.problems]:
                raise FlowError(problems)
        elif str(path) in errors:
            raise errors[str(path)]
        for flow in flows.values():
            if flow.file == str(path):
                return flow, list(flows.values())
        raise UsageError(f"There is no file {path.name} yet: pass its `text`.")

    def _scenario(self, path: Path, text: str | None, unsaved: dict[Path, str]) -> Scenario:
        """The scenario of a file. Raises `FlowError`, also for one that would read a file elsewhere or run a program."""
        folder = self._folder()
        if path.parent == folder:
            raise UsageError(f"{path.name} is a flow: name a scenario such as scenarios/{path.name}.")
        text = text_of(str(path)) if text is None else text
        located = load_located(text, str(path))
        data: Any = located.data if isinstance(located.data, dict) else {}
        claude = data.get("claude")
        script = claude.get("file") if isinstance(claude, dict) else None
        for place, name in ((("flow",), data.get("flow")), (("claude", "file"), script)):
            if isinstance(name, str) and not Path(os.path.realpath(path.parent / name)).is_relative_to(
                folder
            ):
                raise FlowError([located.problem(Fault(place, "it is outside the flows folder"))])
        scenario = load_scenario(path, Flows(folder, unsaved), text)
        real = [name for name, fakes in scenario.fakes.items() if any(fake.real for fake in fakes)]
        if real:
            hint = "write its `output`, or have a person run it with `sayso test`"
            faults = [
                Fault(("nodes", name), "`real` runs a program, which this tool does not do", hint)
                for name in real
            ]
            raise FlowError([located.problem(fault) for fault in faults])
        return scenario

    def _told(self, problems: list[Problem] | tuple[Problem, ...]) -> list[Json]:
        """Problems as the tools tell them, with files as seen from the folder of flows."""
        folder = self._folder()
        return [{**one._asdict(), "file": os.path.relpath(one.file, folder)} for one in problems]
