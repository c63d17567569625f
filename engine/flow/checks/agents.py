"""Checks of agents: their tools, the approvals of their calls, their output, and the conversations that they get.

Works on the raw data, as `engine.flow.checks.nodes` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from engine.flow.agent_document import SERVER, TOOL_NAME, TOOLS, RuleDoc, ToolSettings, usable_as_tool
from engine.flow.builtin_tools import (
    ASKS_PEOPLE,
    BUILTIN,
    LATER,
    UNDECIDED,
    Entry,
    agents,
    entries,
    entry_of,
    named_rules,
    tool_names,
)
from engine.flow.checks.inputs import check_input
from engine.flow.checks.shape import as_list, as_mapping, spec_at
from engine.flow.checks.visibility import Scope, check_condition, check_values, name_hint
from engine.flow.node import ToolKind
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, faults_of, faults_under, kind_of, suggest
from engine.language.expressions import below
from engine.language.template import has_expression
from engine.nodes.types.agent import PLACE
from engine.nodes.types.names import MAX_NAME, NAME
from engine.nodes.types.registry import node_types, unusable_type
from engine.nodes.types.spec import spelled_out
from engine.types import lattice
from engine.types.lattice import TEXTS, Type, input_type, mapping_of, schema_type

ANY = "*"
"""In `approvals`: every tool without an entry of its own."""


class AgentContext(Struct, frozen=True):
    """Context of an agent: the names for its expressions, the tools of the file, and whether people may be asked."""

    scope: Scope
    tools: Mapping[str, Any]
    asks: bool


def check_agent(node: Mapping[str, Any], around: AgentContext) -> Iterator[Fault]:
    """Yield the faults of an agent beyond the shape of its `with`. Paths begin at the node."""
    yield from faults_under(("with",), _agent(as_mapping(node.get("with")), around))


def _agent(with_: Mapping[str, Any], around: AgentContext) -> Iterator[Fault]:
    known: dict[str, Entry] = {}
    memory = with_.get("memory") or "off"
    if isinstance(memory, dict):
        memory = memory.get("write")
    if memory != "off":
        known["remember"] = Entry("remember")
    if memory == "approve" and not around.asks:
        yield Fault(("memory",), "`finally` cannot ask people", "write `auto`, or leave it out", on_key=True)
    if as_mapping(with_.get("memory")).get("scope") == "flow":
        # Notes that agents read in other channels too need approvers named in the flow.
        approvals = as_mapping(with_.get("approvals"))
        written = approvals.get("remember", approvals.get(ANY))
        rules = [] if written is None else [as_mapping(rule) for rule in named_rules(written)]
        named = [set(map(str, as_list(rule.get("approvers")))) for rule in rules]
        missing = not rules and memory == "approve"
        if missing or not all(names and names.isdisjoint(("channel", "requester")) for names in named):
            yield Fault(
                ("memory",),
                "notes with `scope: flow` are read in other channels too, so the flow must name their approvers",
                'write `approvals: {remember: {approvers: ["@sre"]}}`, without `channel` and `requester`',
                on_key=True,
            )
    for index, item in enumerate(as_list(with_.get("tools"))):
        yield from faults_under(("tools", index), _entry(item, around, known))
    for name, written in as_mapping(with_.get("approvals")).items():
        yield from faults_under(("approvals",), _approvals(name, written, known, around))
    for index, name in enumerate(as_list(with_.get("context"))):
        if isinstance(name, str) and not (PLACE.fullmatch(name) and around.scope.find(name) is None):
            yield from _context(name, ("context", index), around.scope)
    for field in ("output", "context", "memory"):
        for path in _expressions_in(with_.get(field)) if not has_expression(with_.get(field)) else ():
            yield Fault((field, *path), f"`{field}` cannot contain expressions", "write it out")
    if with_.get("approvals") and not around.asks:
        yield Fault(
            ("approvals",), "`finally` cannot ask people", "leave out the tools that need it", on_key=True
        )


def _expressions_in(value: Json) -> Iterator[Path]:
    """The places in a value at which expressions stand."""
    if has_expression(value):
        yield ()
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            for path in _expressions_in(item):
                yield (key, *path)


def _context(name: str, path: Path, scope: Scope) -> Iterator[Fault]:
    """Check an entry of `context`, which must be an earlier agent."""
    if not NAME.fullmatch(name):
        return
    if name == scope.current:
        yield Fault(path, f"`{name}` is this agent itself", "an agent already knows its own conversation")
    elif scope.find(name) is None:
        known = [each for each in scope.visible() if scope.places[each].talks]
        yield Fault(path, f"no agent `{name[:80]}` comes before this one", suggest(name, known))
    elif not scope.places[name].talks:
        yield Fault(path, f"`{name}` is not an agent", "only agents have conversations")


# --- the tools of an agent -------------------------------------------------------------------------------


def _entry(item: Any, around: AgentContext, known: dict[str, Entry]) -> Iterator[Fault]:
    """Check one entry of `tools`; `known` collects the tools by the model's names for them."""
    entry = entry_of(item)
    if not entry.name:
        message = (
            f"expected the name of a tool, or a mapping of one name with its settings, not {kind_of(item)}"
        )
        hint = "write each tool as a separate entry" if isinstance(item, dict) else None
        yield Fault((), message, hint)
        return
    if entry.name in around.tools:
        if entry.settings is not None:
            message = f"the settings of `{entry.name}` belong in the flow's `tools`"
            yield Fault((entry.name,), message, f"write - {entry.name}", on_key=True)
    elif entry.name not in TOOLS:
        hint = suggest(entry.name, [*TOOLS, *around.tools])
        where: Path = () if entry.settings is None else (entry.name,)
        yield Fault(where, f"unknown tool `{entry.name[:80]}`", hint, on_key=bool(where))
        return
    else:
        kind = cast(ToolKind, entry.name)
        model = TOOLS[kind]
        if kind in ASKS_PEOPLE and not around.asks:
            yield Fault((), "`finally` cannot ask people, and this tool does", "leave it out")
        if entry.settings is not None:
            yield from faults_under((kind,), _settings(kind, model, entry.settings, around.scope))
        for name, needed in model.model_fields.items() if entry.settings is None else ():
            if needed.is_required():
                yield Fault((), f"`{kind}` needs `{name}`", model.example)
    yield from _names(entry, known)


def _settings(
    kind: ToolKind, model: type[ToolSettings], raw: Mapping[str, Json], scope: Scope
) -> Iterator[Fault]:
    """Yield faults in the settings of a tool; values that an expression will give are not checked."""
    for fault, given in _shape(model, raw):
        # Elsewhere a misplaced expression has a message of its own.
        if not has_expression(given) or fault.path[:1] == ("input",):
            yield fault
    yield from model.conflicts(raw)
    for name, value in raw.items():
        if name in model.evaluated:
            secrets = kind != "ask_human"
            if secrets:
                yield from spelled_out((name,), value)
            yield from check_values(
                value,
                (name,),
                replace(scope, timeless=True),
                secrets=secrets,
                exact=("",),
                record={} if name == "query" else None,
            )
        elif name == "input":
            for key, entry in as_mapping(value).items():
                yield from faults_under(("input",), check_input(key, entry))
        else:
            for path in _expressions_in(value):
                yield Fault((name, *path), f"`{name}` cannot contain expressions", "write it out")


def _shape(model: type[BaseModel], raw: Any) -> list[tuple[Fault, Any]]:
    try:
        model.model_validate(raw)
    except ValidationError as error:
        return faults_of(error, model)
    return []


def _names(entry: Entry, known: dict[str, Entry]) -> Iterator[Fault]:
    """Names that the model cannot use, or would have for two tools."""
    settings = entry.settings or {}
    where: Path = () if entry.settings is None else (entry.name,)
    if entry.name == "mcp" and not SERVER.fullmatch(str(settings.get("server"))):
        return
    for name in tool_names(entry):
        path = (*where, "name") if isinstance(settings.get("name"), str) else where
        if has_expression(name):
            continue
        if not TOOL_NAME.fullmatch(name):
            yield Fault(path, f"{name[:80]!r} is not a valid tool name", "use letters, digits, _ and -")
        elif len(name) > MAX_NAME:
            yield Fault(path, f"`{name[:80]}` is longer than {MAX_NAME} characters", "give it a shorter name")
        elif name in known:
            can = "name" in TOOLS[cast(ToolKind, entry.name)].model_fields if entry.name in TOOLS else False
            hint = "set another `name` for this one" if can else "leave it out here"
            yield Fault(path, f"the agent already has a tool `{name}`", hint)
        known.setdefault(name, entry)


# --- approvals ---------------------------------------------------------------------------------------------


def _approvals(name: str, written: Any, known: Mapping[str, Entry], around: AgentContext) -> Iterator[Fault]:
    """Check one entry of `approvals`. Paths begin at its name."""
    if name in known and known[name].name in UNDECIDED - around.tools.keys():
        asks = known[name].name in ASKS_PEOPLE
        why = (
            "a question from the model is not a tool call that people approve"
            if asks
            else "a plan only shows what the model does; there is nothing to approve"
        )
        yield Fault((name,), why, "leave it out", on_key=True)
    if name != ANY and name not in known:
        hint = suggest(name, known, None if known else "it has no tools")
        yield Fault((name,), f"the agent has no tool `{name[:80]}`", hint, on_key=True)
    if not isinstance(written, list | dict):
        message = f"expected a list of verdicts, or a mapping with `when`, `verdicts` and others, not {kind_of(written)}"
        yield Fault((name,), message, "write [approve, reject]")
        return
    listed = isinstance(written, list)
    short = listed and not any(isinstance(item, dict) for item in written)
    for index, rule in enumerate(named_rules(written)):
        path: Path = (name, index) if listed and not short else (name,)
        for fault, _ in _shape(RuleDoc, rule):
            # A list of verdicts stands where its rule would.
            yield replace(fault, path=(name, *fault.path[1:])) if short else fault.under(path)
        if isinstance(rule, dict):
            yield from _rule(rule, path, known.get(name), around)


def _rule(rule: Mapping[str, Any], path: Path, entry: Entry | None, around: AgentContext) -> Iterator[Fault]:
    yield from faults_under(path, RuleDoc.conflicts(rule))
    if rule.get("when") is not None:
        variables = {"tool": TEXTS, "input": _input_type(entry, around.tools)}
        yield from check_condition(rule["when"], (*path, "when"), around.scope.knowing(variables))
    for name, value in rule.items():
        for place in _expressions_in(value) if name != "when" else ():
            yield Fault((*path, name, *place), f"`{name}` cannot contain expressions", "write it out")


def _input_type(entry: Entry | None, tools: Mapping[str, Any]) -> Type:
    """Return the type of a tool's input, as far as it is known before it runs."""
    if entry is None:
        return lattice.ANY
    if entry.name in tools:
        tool = as_mapping(tools[entry.name])
        return lattice.ANY if tool.get("type") == "flow" else _inputs_type(tool.get("input"))
    if entry.name in BUILTIN:
        return schema_type(BUILTIN[cast(ToolKind, entry.name)].input_schema)
    given = (entry.settings or {}).get("input")
    return _inputs_type(given) if isinstance(given, dict) else lattice.ANY


def _inputs_type(inputs: Any) -> Type:
    return mapping_of({str(name): input_type(entry) for name, entry in as_mapping(inputs).items()})


# --- the tools of a file -----------------------------------------------------------------------------------


def check_tools(tools: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield faults in the tools of a file, wherever they are used. Paths begin at their names."""
    for name, tool in tools.items():
        if name in TOOLS.keys() - LATER:
            message = f"`{name}` is a built-in tool"
            yield Fault((name,), message, "choose another name", on_key=True)
        elif not NAME.fullmatch(name) or len(name) > MAX_NAME:
            yield Fault((name,), f"{name[:80]!r} is not a valid tool name", name_hint(name, "_"), on_key=True)
        yield from faults_under((name,), _tool(as_mapping(tool)))


def _tool(tool: Mapping[str, Any]) -> Iterator[Fault]:
    for key, entry in as_mapping(tool.get("input")).items():
        yield from faults_under(("input",), check_input(key, entry))
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        return
    spec = node_types().get(kind)
    if spec is None or not usable_as_tool(spec):
        usable = [name for name, each in node_types().items() if usable_as_tool(each)]
        message = f"a node of type `{kind}` cannot be a tool"
        hint: str | None = f"a tool is one of {', '.join(usable)}"
        if spec is None or spec.internal:
            broken = unusable_type(kind)
            message = broken or f"unknown node type `{kind[:80]}`"
            hint = suggest(kind, usable) if broken is None else "repair or reinstall that package"
        elif spec.mode == "prompt":
            hint = "`ask_human` asks people, and `approvals` of an agent say who approves its calls"
        yield Fault(("type",), message, hint)
        return
    if tool.get("description") is None and not spec.calls:
        yield Fault((), "`description` is missing", "the model chooses the tool by its description")
    if tool.get("timeout") is not None and spec.mode == "pure":
        yield Fault(("timeout",), f"a node of type `{kind}` takes no `timeout`", on_key=True)
    if spec.calls:
        if tool.get("input") is not None:
            yield Fault(("input",), "a flow defines its own inputs", "leave it out", on_key=True)
        if as_mapping(tool.get("with")).get("inputs") is not None:
            hint = "leave it out; the flow's `inputs` define them"
            yield Fault(("with", "inputs"), "the model gives the inputs of a flow", hint, on_key=True)
    with_ = tool.get("with")
    if with_ is None or isinstance(with_, dict):
        for fault in spec.check(with_ or {}):
            yield fault.under(("with",)) if with_ is not None else Fault((), f"{fault.message} under `with`")


def check_used_tools(node: Mapping[str, Any], tools: Mapping[str, Any], scope: Scope) -> Iterator[Fault]:
    """Yield the names in the file's tools that are unknown where this agent uses them. Paths begin at the tools' names."""
    for name in dict.fromkeys(entry.name for entry in entries(node)):
        for fault in _expressions(name, as_mapping(tools.get(name)), scope):
            # Other agents may know other names of nodes.
            by_place = (fault.snippet or "").startswith(("nodes.", "status.", "errors."))
            told = (
                f"{fault.message}; the agent `{scope.current}` has this tool" if by_place else fault.message
            )
            yield replace(fault, message=told)


def check_unused_tools(data: Mapping[str, Any], scope: Scope) -> Iterator[Fault]:
    """The same for those that no agent uses: all nodes of the flow count as known."""
    used = {entry.name for node in agents(data) for entry in entries(node)}
    for name, tool in as_mapping(data.get("tools")).items():
        if name not in used:
            yield from _expressions(name, as_mapping(tool), scope)


def _expressions(name: str, tool: Mapping[str, Any], scope: Scope) -> Iterator[Fault]:
    spec = spec_at(tool)
    if spec is None or not usable_as_tool(spec):
        return
    inside = replace(scope.knowing({"input": _inputs_type(tool.get("input"))}), timeless=True)
    for field, value in as_mapping(tool.get("with")).items():
        if field not in spec.verbatim_fields:
            secrets = field in spec.secret_fields
            exact = below(spec.exact, field)
            yield from check_values(
                value,
                (name, "with", field),
                inside,
                secrets=secrets,
                exact=exact,
                record={},
                handed_on=spec.hands_on,
            )
