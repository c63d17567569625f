"""`gate.yml`: who is asked for which calls of agents. Rules are tried in order, and the first one that matches counts.

A pattern is a text in which `*` stands for anything. In a rule that allows, `*` stands for nothing that a shell acts on and no
`..`, so that `git status*` is no way to run something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Struct, field
from pydantic import BeforeValidator, Field, ValidationError

from bot.gate.client import folded
from bot.rendering.calls import REQUESTS
from engine.decide.request_edits import parts
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, faults_of
from engine.language.errors import FlowError
from engine.language.patterns import fits
from engine.language.yaml import Located, load_located
from engine.nodes.types.fields import Config, Duration, Person
from engine.nodes.types.prompts import Escalate, RemindEvery, WorkingHours, too_few
from engine.run.flow_files import text_of

NAME = "gate.yml"
VALID_SECONDS = 86400.0


class Asking(Config):
    """Deciders and deadline: fields of an approval."""

    approvers: Annotated[list[Person], Field(min_length=1)]
    required: Annotated[int, Field(ge=1, le=50)] = 1
    exclude_requester: bool = False
    require_reason: bool = False
    timeout: Duration | None = None
    on_timeout: Literal["deny"] = "deny"
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None
    valid_for: Duration = VALID_SECONDS


def _verdict(value: Any) -> Any:
    if value == "allow":
        return {"allow": True}
    if not isinstance(value, dict) or len(value) != 1 or "allow" in value:
        raise ValueError('write `allow`, `ask: {approvers: [...]}` or `deny: "why"`')
    return value


class Verdict(Config):
    """Treatment of a call: it is allowed, people are asked, or it is denied and the agent reads why."""

    allow: bool = False
    ask: Asking | None = None
    deny: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


Then: TypeAlias = Annotated[Verdict, BeforeValidator(_verdict)]


class When(Config):
    """Condition of a rule. Omitted fields match anything."""

    agent: str = "*"
    tool: str = "*"
    arguments: dict[str, Any] = Field(default_factory=dict)


class Rule(Config):
    """Treatment of matching calls."""

    when: When
    then: Then


class Document(Config):
    """A `gate.yml`."""

    gate: Annotated[str, Field(min_length=1, max_length=80)]
    channel: Annotated[str, Field(min_length=1)]
    flows: list[str] = Field(default_factory=list)
    rules: list[Rule] = Field(default_factory=list)
    otherwise: Then


class Decision(Struct, frozen=True):
    """Treatment of a call: `allow`, `ask` these people, or `deny`; the number of the rule, from 1, or 0 for
    `otherwise`."""

    kind: str
    rule: int
    asking: Mapping[str, Json] = field(default_factory=dict)
    """The fields of `ask`, as written."""
    valid_seconds: float = VALID_SECONDS
    """For how long an approval can be handed out."""
    reason: str = ""


class Rules(Struct, frozen=True):
    """The rules of a file. `digest` is the SHA-256 of its text, `data` the document as written."""

    document: Document
    digest: str
    data: Mapping[str, Json]

    def decide(self, agent: str, tool: str, arguments: Mapping[str, Json]) -> Decision:
        """The first rule that matches, else `otherwise`. A rule that asks or denies finds its arguments in any letter case, and a
        call with the name of a rule's argument in another case is not allowed: its reader may take the one for the other."""
        named = {name for rule in self.document.rules for name in rule.when.arguments}
        alike = {folded(name) for name in named} & {folded(name) for name in arguments if name not in named}
        for number, rule in enumerate(self.document.rules, 1):
            exact = rule.then.allow
            meant = fits(rule.when.agent, agent, exact) and fits(rule.when.tool, tool, exact)
            if meant and all(
                any(fits(wanted, arguments[key], exact) for key in _named(arguments, name, exact))
                for name, wanted in rule.when.arguments.items()
            ):
                if exact and alike:
                    break
                return _decision(number, rule.then, self.data["rules"][number - 1]["then"])
        return self.otherwise()

    def otherwise(self) -> Decision:
        """Return the treatment of calls without a matching rule."""
        return _decision(0, self.document.otherwise, self.data["otherwise"])


def _named(arguments: Mapping[str, Json], name: str, exact: bool) -> Iterator[str]:
    """The keys that a rule means by a name."""
    return (key for key in arguments if key == name or (not exact and folded(key) == folded(name)))


def _decision(number: int, verdict: Verdict, written: Json) -> Decision:
    if verdict.ask is not None:
        return Decision("ask", number, written["ask"], verdict.ask.valid_for)
    if verdict.deny is not None:
        return Decision("deny", number, reason=verdict.deny)
    return Decision("allow", number)


INPUTS: dict[str, Json] = {
    "tool": {"type": "string"},
    "arguments": {"type": "object"},
    "about": {"type": "object"},
}
"""The inputs of a request's flow; `about` says who asks, why, and by which rule."""
QUOTED = "\n> {{ inputs.about.why }}"
"""Reason given by an agent for its request, in one line: it cannot pose as sayso's own text."""
SCRIPTS = "\nIt runs {{ inputs.about.scripts }}"
"""The scripts that a command runs, as its hook reads them."""


def approval_flow(
    asking: Mapping[str, Json],
    quoted: str = QUOTED,
    rule: int = 0,
    editable: Mapping[str, Json] | None = None,
) -> Flow:
    """The flow of a request on which the people of an `ask` decide, which is this rule's. They can change the arguments that
    are `editable`. Raises `FlowError`."""
    given = {name: value for name, value in asking.items() if name != "on_timeout"}
    if "timeout" in given:
        given["on_timeout"] = "reject"
    decision: dict[str, Json] = {
        "message": "*{{ inputs.about.who }}*, for {{ session.requester.name }}, wants to use `{{ inputs.tool }}`{{ inputs.about.before }}"
        + quoted,
        "covers": "call",
        "approve_label": "Allow once",
        "reject_label": "Deny",
        "on_reject": "continue",
        **given,
    }
    arguments: Json = "{{ inputs.arguments }}"
    if fields := parts(editable or {}):
        properties = {
            part.name: {**part.body, "default": f"{{{{ inputs.about.shown.{part.name} }}}}"}
            for part in fields
        }
        needed = [part.name for part in fields if part.shown is not None]
        decision |= {"form": {"properties": properties, "required": needed}, "editable": list(properties)}
        # What nobody changed is as the agent sent it.
        arguments = {key: f"{{{{ inputs.arguments['{key}'] }}}}" for key in editable or {}}
        for part in fields:
            value, shown = f"nodes.decision.values.{part.name}", f"inputs.about.shown.{part.name}"
            new = value
            if part.is_json:
                new = f"{value} | fromjson"
            elif part.body["type"] == "string":
                new = f"{value} | default('', true)"
            same = f"inputs.arguments['{part.key}'] if {value} == {shown}"
            arguments[part.key] = f"{{{{ {same} else ({new}) }}}}"
    told = f"rule {rule} of {NAME}" if rule else f"otherwise of {NAME}"
    call: dict[str, Json] = {"tool": "{{ inputs.tool }}", "arguments": arguments}
    nodes: list[Json] = [
        {"id": "decision", "name": told, "type": "approval", "with": decision},
        {"id": "call", "type": "call", "with": call},
    ]
    return load_flow(json.dumps({"flow": REQUESTS[0], "inputs": INPUTS, "nodes": nodes}), NAME)


def read_rules(text: str, file: str = NAME) -> Rules:
    """The rules that a text is. Raises `FlowError` with everything that is wrong."""
    located = load_located(text, file)
    problems = list(located.problems)
    try:
        document = Document.model_validate(located.data)
    except ValidationError as error:
        problems += [located.problem(fault) for fault, _ in faults_of(error, Document)]
        raise FlowError(problems) from error
    problems += [located.problem(fault) for fault in _faults(document, located)]
    if problems:
        raise FlowError(problems)
    return Rules(document, sha256(text.encode()).hexdigest(), located.data)


def _faults(document: Document, located: Located) -> Iterator[Fault]:
    """Yield contradictions: nobody is left to decide, or a rule is unreachable."""
    verdicts: list[tuple[Path, Verdict, Json]] = [
        (("rules", index, "then"), rule.then, located.data["rules"][index]["then"])
        for index, rule in enumerate(document.rules)
    ]
    if document.otherwise.allow:
        yield Fault(("otherwise",), "`otherwise` must ask or deny: calls without a rule are never allowed")
    verdicts.append((("otherwise",), document.otherwise, located.data["otherwise"]))
    for path, verdict, written in verdicts:
        if verdict.ask is None:
            continue
        place = (*path, "ask")
        given = written["ask"]
        found = [fault.under(place) for fault in too_few(given)]
        yield from found
        if verdict.ask.exclude_requester and verdict.ask.approvers == ["requester"]:
            yield Fault((*place, "approvers"), "with `exclude_requester`, nobody is left to decide")
        elif not found:
            try:
                approval_flow(given)
            except FlowError as error:
                yield from (Fault(place, problem.message, problem.hint) for problem in error.problems)
    for index, rule in enumerate(document.rules[:-1]):
        if rule.when == When():
            yield Fault(
                ("rules", index, "when"), "this matches every call, so the rules after it never apply"
            )
            break


class RulesFile:
    """The rules of a file as it is now: a change counts for the next request."""

    def __init__(self, path: FilePath) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._rules: Rules | None = None

    def read(self) -> Rules:
        """The rules. Raises `FlowError` where there is no file, or a broken one: then nothing is allowed."""
        stamp = None
        with suppress(OSError):
            info = self.path.stat()
            stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
        if stamp is None or stamp != self._seen or self._rules is None:
            self._rules = None
            self._rules = read_rules(text_of(str(self.path)), str(self.path))
            self._seen = stamp
        return self._rules
