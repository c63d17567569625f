"""Tables for `gate.yml`: calls of agents, and what the rules do with each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from bot.gate.rules import RulesFile
from bot.scenarios.play import Failure
from engine.language.diagnostics import Fault, faults_of
from engine.language.errors import FlowError
from engine.language.yaml import Located
from engine.nodes.types.fields import Config


class CaseDoc(Config):
    """A call, and what is done with it."""

    agent: str = "agent"
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    then: Literal["allow", "ask", "deny"]
    rule: int | None = None
    approvers: list[str] | None = None


class TableDoc(Config):
    """A table: the rules, by the path of their file from here, and calls."""

    scenario: str
    gate: str
    calls: Annotated[list[CaseDoc], Field(min_length=1)]


class Table(NamedTuple):
    """Result of a table."""

    name: str
    calls: int
    failures: list[Failure]


def is_table(located: Located) -> bool:
    """True if a file is a table, and no scenario of a flow."""
    data = located.data
    return isinstance(data, dict) and "gate" in data and "flow" not in data


def play_table(located: Located) -> Table:
    """Try every call. Raises `FlowError` where the table or its rules cannot be read."""
    try:
        doc = TableDoc.model_validate(located.data)
    except ValidationError as error:
        raise FlowError([located.problem(fault) for fault, _ in faults_of(error, TableDoc)]) from error
    rules = RulesFile(Path(located.file).parent / doc.gate).read()
    failures = []
    for number, call in enumerate(doc.calls):
        found = rules.decide(call.agent, call.tool, call.arguments)
        wrong = [] if found.kind == call.then else [f"expected {call.then}, but got {found.kind}"]
        if call.rule is not None and call.rule != found.rule:
            wrong.append(f"expected rule {call.rule}, but got rule {found.rule}")
        if call.approvers is not None and call.approvers != found.asking.get("approvers"):
            wrong.append(f"expected {call.approvers}, but asked {found.asking.get('approvers')}")
        if wrong:
            problem = located.problem(Fault(("calls", number), ""))
            place = f"{problem.file}:{problem.line}:{problem.column}"
            failures.append(Failure(place, f"{call.tool} has a different decision", tuple(wrong)))
    return Table(doc.scenario, len(doc.calls), failures)
