"""Reads flow files: text in, `Flow` out, or one `FlowError` with all that is wrong and where."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from engine.codec import Json, decode
from engine.errors import FlowError, Problem
from engine.expressions import Compiled, compile_condition, compile_config
from engine.faults import MAX_FAULTS, Fault, faults_of, kind_of
from engine.flow.check import check_flow
from engine.flow.document import FlowDoc, InputDoc, NodeDoc
from engine.flow.model import BODY_VERSION, Flow, Input, Node, Trigger
from engine.flow.triggers import trigger_inputs
from engine.flow.yaml import MAX_BYTES, Located, decode_source, load_located
from engine.nodes.specs import OnCrash, node_types

SUFFIXES = (".yml", ".yaml")
"""What a file's name ends with to be taken for a flow."""


def load_flow(text: str, file: str) -> Flow:
    """The flow that a text is; `file` names it in errors. Raises `FlowError` with everything that is wrong."""
    located = load_located(text, file)
    faults = list(islice(_check(located.data), MAX_FAULTS + 1))
    problems = _in_order([*located.problems, *(located.problem(fault) for fault in faults)])
    if len(problems) > MAX_FAULTS:
        last = problems[MAX_FAULTS - 1]
        more = "there are more problems than are listed here"
        problems[MAX_FAULTS:] = [Problem(file, last.line, last.column, more, "correct these first")]
    if problems:
        raise FlowError(problems)
    return _build(FlowDoc.model_validate(located.data), located)


def load_flow_file(path: str | os.PathLike[str]) -> Flow:
    """The flow in a file. Raises `FlowError`, also when the file cannot be read."""
    file = os.fspath(path)
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FlowError([Problem(file, 1, 1, f"the file cannot be read: {reason}")]) from error
    return load_flow(decode_source(data, file), file)


def load_flows(directory: str | os.PathLike[str]) -> tuple[dict[str, Flow], dict[str, FlowError]]:
    """All flows of a directory by name, and the errors of the broken files by file.

    Of two flows with one name, the file that sorts first is served and the other is an error.
    """
    flows: dict[str, Flow] = {}
    errors: dict[str, FlowError] = {}
    for path in _flow_files(FilePath(directory), errors):
        try:
            flow = load_flow_file(path)
            _refuse_second(flow, flows)
            flows[flow.name] = flow
        except FlowError as error:
            errors[str(path)] = error
    return flows, errors


def flow_from_body(body: bytes) -> Flow:
    """The flow that `Flow.body()` gave. Raises `FlowError` when this release cannot run it any more."""
    pinned = decode(body)
    if not isinstance(pinned, dict) or pinned.get("version") != BODY_VERSION:
        raise FlowError([Problem("pinned flow", 1, 1, f"it is not of version {BODY_VERSION}")])
    return load_flow(pinned["text"], pinned["file"])


def _flow_files(directory: FilePath, errors: dict[str, FlowError]) -> list[FilePath]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        errors[str(directory)] = FlowError(
            [Problem(str(directory), 1, 1, f"the folder of flows cannot be read: {reason}")]
        )
        return []


def _refuse_second(flow: Flow, flows: Mapping[str, Flow]) -> None:
    first = flows.get(flow.name)
    if first is not None:
        fault = Fault(("flow",), f"the name `{flow.name}` is taken by {first.file}", "give it another name")
        raise FlowError([load_located(flow.text, flow.file).problem(fault)])


def _in_order(problems: list[Problem]) -> list[Problem]:
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda problem: (problem.line, problem.column))


# --- checking --------------------------------------------------------------------------------------------


def _check(data: Json) -> Iterator[Fault]:
    """Everything that is wrong, found only as far as somebody asks for more."""
    if not isinstance(data, dict):
        yield Fault((), f"a flow is a mapping with `flow` and `nodes`, not {kind_of(data)}")
        return
    try:
        FlowDoc.model_validate(data)
    except ValidationError as error:
        for fault, _ in faults_of(error, FlowDoc):
            yield _advised(fault, data)
    yield from check_flow(data)


def _advised(fault: Fault, data: dict[str, Any]) -> Fault:
    """A better hint for a field that stands beside `with` and belongs into it."""
    match fault.path:
        case ("nodes", int(index), str(name)) if fault.on_key:
            node = data["nodes"][index]
            spec = node_types().get(node.get("type")) if isinstance(node.get("type"), str) else None
            if spec is not None and name in spec.field_names():
                return Fault(fault.path, fault.message, f"write `{name}` under `with`", on_key=True)
    return fault


# --- building --------------------------------------------------------------------------------------------


def _build(document: FlowDoc, located: Located) -> Flow:
    """The flow of a document that has passed every check."""
    nodes = (_node(node, index, located) for index, node in enumerate(document.nodes))
    return Flow(
        name=document.flow,
        file=located.file,
        text=located.text,
        nodes=tuple(nodes),
        description=document.description,
        inputs={name: _input(name, entry) for name, entry in document.inputs.items()},
        triggers=tuple(Trigger(entry.mention, trigger_inputs(entry.mention)) for entry in document.triggers),
        deadline=document.limits.deadline,
    )


def _input(name: str, document: InputDoc) -> Input:
    required = (
        document.required if document.required is not None else "default" not in document.model_fields_set
    )
    return Input(
        name=name,
        type=document.type,
        description=document.description,
        default=document.default,
        required=required,
        choices=None if document.choices is None else tuple(document.choices),
        items=None if document.items is None else document.items.type,
    )


def _node(document: NodeDoc, index: int, located: Located) -> Node:
    spec = node_types()[document.type]
    config = document.with_ or {}
    compiled = compile_config(config, spec.secret_fields, spec.verbatim_fields, spec.markup_fields)
    return Node(
        id=document.id,
        type=document.type,
        name=document.name or document.id,
        index=index,
        config=config,
        compiled=compiled,
        condition=_condition(document),
        timeout=document.timeout if document.timeout is not None else spec.timeout,
        on_crash=_on_crash(document),
        on_error=document.on_error,
        secrets=compiled.secrets,
        line=located.spans[("nodes", index)][0].line,
    )


def _condition(document: NodeDoc) -> Compiled | None:
    return None if document.if_ is None else compile_condition(document.if_)


def _on_crash(document: NodeDoc) -> OnCrash | None:
    if document.retry is not None:
        return "again" if document.retry == "safe" else "ask"
    return document.on_crash
