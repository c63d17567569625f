"""Tool calls of an agent: whether and as what they run, what the model is told about them, and how people change a call
before they approve it. Pure.

A call becomes a node of the type that does the work. If the flow requires approval, people see exactly what would run,
and what runs is compared with it: a model cannot talk its way around that.

A call is edited as a form, and the form becomes an input again. Each text, number or yes/no of the tool's schema is a
field with the model's value; everything else is one field of JSON. Values that a Slack form cannot hold stay as they
are, and untouched fields come back unchanged.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.decide import covered_nodes, question
from engine.decide.agents import call_to_node, grants, tool_results, wide_grants
from engine.decide.agents.model_request import spoken, unsent
from engine.decide.step import Step, context, evaluate_config
from engine.flow import Node
from engine.flow.node import AgentPlan, Rule, ToolPlan, plan_of
from engine.forms import MOST_TEXT, is_empty
from engine.forms.parse import read_value, units
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.queries import agent_at, agent_of
from engine.journal.state import Asked, Call, State, scope_of
from engine.language.actors import requester_of
from engine.language.codec import Json, clean_text, copy, encode, read
from engine.language.errors import InvalidAnswer, NotJson, SaysoError
from engine.language.expressions import evaluate_condition
from engine.language.template import escape_markup

VALID_SECONDS = 30 * 86400.0
"""Seconds for which the approval of a call is valid: it runs at once, unless the session is held."""


NEVER_ALWAYS = ("remember",)
"""Tools whose every call is decided separately: no note is kept that nobody has read."""


def begin_call(step: Step, path: str) -> tuple[Node, Json] | None:
    """Begin a tool call: return its node and configuration if it runs now, otherwise ask about it or refuse it."""
    owner = agent_of(step.state, path)
    assert owner is not None
    call = agent_at(step.state, owner).calls[path]
    plan = plan_of(step.node(owner))
    if asked_here(step.state, call) and not _approved(step.state, call):
        decided(step, step.state.prompts[call.prompt_id or ""])
        return None
    if call.tool is None:
        names = ", ".join(tool.name for tool in plan.tools) or "none at all"
        _refuse(step, path, call, f"There is no tool {call.name}. There are: {names}.")
        return None
    tool = plan.tools[call.tool]
    try:
        given = _given(step, tool, call)
        config = configured(step, path, tool, given)
        rule = _rule(step, path, plan, call, call_to_node.as_read(tool, given, config))
        if rule is not None and not asked_here(step.state, call):
            if not _granted(step, path, plan, rule, given, config):
                _ask(step, path, tool, rule, call, config)
                return None
        elif asked_here(step.state, call):
            _enforce(step, path, tool, call, config)
    except SaysoError as error:
        _refuse(step, path, call, str(error))
        return None
    return tool.node, config


def _called(step: Step, path: str) -> tuple[Call, ToolPlan]:
    """Return a tool call without a result, and its tool."""
    owner = agent_of(step.state, path)
    assert owner is not None
    call = agent_at(step.state, owner).calls[path]
    assert call.tool is not None, "a call of no tool is refused before anything happens to it"
    return call, plan_of(step.node(owner)).tools[call.tool]


def configured(step: Step, path: str, tool: ToolPlan, given: Json) -> dict[str, Json]:
    """The configuration of the node that this call becomes. Raises `SaysoError`, in words for the model."""
    if tool.kind in ("node", "flow"):
        call_to_node.checked(tool, given)
        if tool.kind == "flow":
            return {**tool.node.config, "inputs": copy(given)}
        given = call_to_node.filled(tool, given)
        return evaluate_config(step.flow, tool.node, step.state, scope_of(path), None, {"input": given})
    names = context(tool.node.compiled, step.flow, step.state, scope_of(path), None)
    return call_to_node.prepare(tool, given, tool.node.compiled.evaluate(names))


def _given(step: Step, tool: ToolPlan, call: Call) -> Json:
    """Return the input of a call: as the model wrote it, with people's edits."""
    prompt = None if call.prompt_id is None else step.state.prompts[call.prompt_id]
    if prompt is None or not prompt.editors or not asked_here(step.state, call):
        return call.input
    return edited(tool, call.input, prompt.values)


# --- approvals ---------------------------------------------------------------------------------------------------


def asked_here(state: State, call: Call) -> bool:
    """True if people were asked about this call in this session; a copy of a session asks again."""
    prompt = None if call.prompt_id is None else state.prompts[call.prompt_id]
    return prompt is not None and (prompt.covers or {}).get("sessionId") == state.session_id


def _rule(step: Step, path: str, plan: AgentPlan, call: Call, given: Json) -> Rule | None:
    """The rule by which people decide this call first. A rule that cannot be evaluated holds."""
    for rule in plan.rules:
        if rule.tool == call.name and (rule.when is None or _holds(step, path, rule, given)):
            return rule
    return None


def _holds(step: Step, path: str, rule: Rule, given: Json) -> bool:
    assert rule.when is not None
    try:
        names = context(rule.when, step.flow, step.state, scope_of(path), step.facts.now)
        names |= {"input": given, "tool": rule.tool}
        return evaluate_condition(rule.when, names, f"approvals.{rule.tool}: when")
    except SaysoError:
        return True


def _granted(
    step: Step, path: str, plan: AgentPlan, rule: Rule, given: Json, config: dict[str, Json]
) -> bool:
    """True if a grant covers this call, whose use is then journaled."""
    tool = plan.tool(rule.tool)
    assert tool is not None
    if plan.grants == "off" or tool.kind in NEVER_ALWAYS:
        return False

    def digest_of(other: Json) -> str:
        return covered_nodes.digest(tool.node.type, configured(step, path, tool, other))

    read, digest = call_to_node.as_read(tool, given, config), covered_nodes.digest(tool.node.type, config)
    called = grants.Called(path, tool, rule, read, digest, digest_of)
    return grants.use(step, called, wide=plan.grants == "flow")


def grant_checked(step: Step, prompt: Asked, asked: Json) -> dict[str, Json]:
    """Return the grant that goes with the approval of this call. Raises `InvalidAnswer`."""
    _, tool = _called(step, prompt.path)
    return grants.checked(tool, call_read(step, prompt), asked, _scopes(step, prompt.path))


def _scopes(step: Step, path: str) -> dict[str, str]:
    """Return the scopes beyond this run in which the call can be allowed."""
    plan = plan_of(step.node(agent_of(step.state, path) or ""))
    return wide_grants.scopes(step.state) if plan.grants == "flow" else {}


def call_read(step: Step, prompt: Asked) -> dict[str, Json]:
    """Return the input of the call under decision as rules and grants see it, with people's edits."""
    call, tool = _called(step, prompt.path)
    return _read(step, prompt.path, tool, call)


def _read(step: Step, path: str, tool: ToolPlan, call: Call) -> dict[str, Json]:
    """Return the input of a call as a rule sees it, with people's edits."""
    given = _given(step, tool, call)
    read = call_to_node.as_read(tool, given, configured(step, path, tool, given))
    return dict(read) if isinstance(read, dict) else {}


def _ask(step: Step, path: str, tool: ToolPlan, rule: Rule, call: Call, config: dict[str, Json]) -> None:
    agent = step.node(agent_of(step.state, path) or "")
    name = agent.name or agent.id
    editable = "edit" in rule.verdicts
    fields = edit_fields(tool, call.input) if editable else []
    lasting = plan_of(agent).grants != "off" and tool.kind not in NEVER_ALWAYS
    always: dict[str, Json] = {"always": list(_scopes(step, path)) or True} if lasting else {}
    approvers = rule.approvers or (("requester",) if requester_of(step.state.actor) else ("channel",))
    asked = Question(
        kind="approval",
        message=rule.message or f"*{escape_markup(name)}* wants to use `{tool.name}`.",
        node_id=tool.node.id,
        node_name=f"{name}: {tool.name}",
        options=(
            question.option("approve", "Approve", "primary"),
            question.option("reject", "Reject", "danger"),
            *([question.option(question.ANSWER, "Answer")] if question.ANSWER in rule.verdicts else []),
        ),
        approvers=tuple(approvers),
        exclude_requester=rule.exclude_requester,
        required=rule.required,
        editable=tuple(field["name"] for field in fields),
        form={"fields": fields} if fields else None,
        values={field["name"]: field.get("default") for field in fields},
        require_reason=rule.require_reason,
        **question.clocks(rule.clocks),
        tool={"name": tool.name, "toolUseId": call.tool_use_id, "input": call.input, **always},
        covers=_covered(step, path, tool, config),
    )
    to_people = question.answerable(asked, step.state.actor, step.facts.manager_of)
    if isinstance(to_people, str):
        _refuse(step, path, call, f"Nobody can decide this call: {to_people}.")
    else:
        step.ask(path, to_people)


def _covered(step: Step, path: str, tool: ToolPlan, config: dict[str, Json]) -> dict[str, Json]:
    return {
        "nodeId": tool.node.id,
        "path": path,
        "sessionId": step.state.session_id,
        "type": tool.node.type,
        "text": call_to_node.call_text(tool, config),
        "digest": covered_nodes.digest(tool.node.type, config),
        "validSeconds": VALID_SECONDS,
    }


def covered_after(step: Step, prompt: Asked, values: dict[str, Json]) -> dict[str, Json]:
    """Return what would run if this call were approved with these values. Raises `SaysoError` if it could not run."""
    call, tool = _called(step, prompt.path)
    given = edited(tool, call.input, values)
    return _covered(step, prompt.path, tool, configured(step, prompt.path, tool, given))


def _enforce(step: Step, path: str, tool: ToolPlan, call: Call, config: dict[str, Json]) -> None:
    """Raise `NotApproved` unless people approved exactly this."""
    prompt = None if call.prompt_id is None else step.state.prompts[call.prompt_id]
    shown = {} if prompt is None else prompt.covers or {}
    approved = _approved(step.state, call)
    same = shown.get("path") == path and shown.get("sessionId") == step.state.session_id
    if not (approved and same and shown.get("digest") == covered_nodes.digest(tool.node.type, config)):
        raise covered_nodes.NotApproved(
            f"{tool.name} did not run: it was about to do something that was not approved."
        )


def _approved(state: State, call: Call) -> bool:
    return call.prompt_id is not None and state.prompts[call.prompt_id].approved


def decided(step: Step, prompt: Asked) -> None:
    """People decided a call. Approved ones begin by themselves; an answer in the tool's place is its result."""
    call, tool = _called(step, prompt.path)
    if prompt.status == "expired" and prompt.approved:
        return
    value = (prompt.answer or {}).get("value")
    if value == "approve":
        plan = plan_of(step.node(agent_of(step.state, prompt.path) or ""))
        rule = _rule(step, prompt.path, plan, call, _read(step, prompt.path, tool, call))
        if rule is not None:
            bound_to = grants.definition(step, prompt.path, tool, rule)
            grants.give(step, prompt, bound_to, _given(step, tool, call))
        return
    reason = (prompt.answer or {}).get("reason")
    by, late = question.deciders(prompt), prompt.status == "expired"
    if value == question.ANSWER:
        _result(step, prompt.path, call, tool_results.in_place_content(tool, by, str(reason)))
        return
    content = tool_results.rejected_content(tool, by, reason, timed_out=late)
    _result(step, prompt.path, call, content, is_error=True)


# --- results -----------------------------------------------------------------------------------------------------


def _refuse(step: Step, path: str, call: Call, message: str) -> None:
    _result(step, path, call, tool_results.refused_content(message), is_error=True)


def _result(
    step: Step,
    path: str,
    call: Call,
    content: list[Json],
    *,
    is_error: bool = False,
    error: dict[str, Json] | None = None,
) -> None:
    owner = agent_of(step.state, path) or ""
    agent = agent_at(step.state, owner)
    said = [*spoken(agent), {"content": unsent(agent)}]
    step.emit(
        ev.AgentToolResult,
        path=path,
        node_id=step.state.nodes[owner].node_id,
        tool_use_id=call.tool_use_id,
        content=tool_results.with_room(content, said),
        is_error=True if is_error else None,
        error=error,
    )


def done(step: Step, path: str, output: Json) -> None:
    """Give the model the output of a finished tool call."""
    call, tool = _called(step, path)
    try:
        copy(output)
    except NotJson as error:
        failed(step, path, {"type": error.code, "message": f"its output: {error}"})
        return
    content = [*_note(step, tool, call), *tool_results.content(tool, tool.node.type, output)]
    says_failed = tool.node.type == "mcp" and isinstance(output, dict) and bool(output.get("isError"))
    _result(step, path, call, content, is_error=says_failed)


def told(step: Step, prompt: Asked) -> None:
    """Record that a person declared an interrupted call done, perhaps with its result."""
    call, tool = _called(step, prompt.path)
    words = str((prompt.answer or {}).get("words") or "")
    content = [*_note(step, tool, call), *tool_results.told_content(tool, prompt.actor or {}, words)]
    _result(step, prompt.path, call, content)


def failed(step: Step, path: str, error: dict[str, Json]) -> None:
    """Report a tool call that failed for good to the model; nothing else fails."""
    call, tool = _called(step, path)
    content = [*_note(step, tool, call), *tool_results.error_content(tool, error)]
    _result(step, path, call, content, is_error=True, error=error)


def cut_off(step: Step, path: str) -> None:
    """Close a call without a result when its agent fails, telling the model what is known about it."""
    owner = agent_of(step.state, path) or ""
    call, run = agent_at(step.state, owner).calls[path], step.state.nodes.get(path)
    if run is None:
        _refuse(step, path, call, "the work was interrupted before it began.")
        return
    told = "This call was cut off before it had a result. Whether it had its effect is not known: look before you repeat it."
    error: dict[str, Json] = {"type": "interrupted", "message": told}
    _result(step, path, call, tool_results.cut_off_content(told), is_error=True, error=error)


def _note(step: Step, tool: ToolPlan, call: Call) -> list[Json]:
    """Return a note about the edits people made before the call ran."""
    prompt = None if call.prompt_id is None else step.state.prompts[call.prompt_id]
    if prompt is None or not prompt.editors:
        return []
    by = [{"id": editor} for editor in prompt.changed_by]
    return tool_results.edited_note(by, edited(tool, call.input, prompt.values))


def settle_containers(step: Step, owner: str) -> None:
    """Tool calls that were flows and have ended."""
    for path in sorted(agent_at(step.state, owner).calls):
        run = step.state.nodes.get(path)
        if run is not None and run.status == "completed":
            done(step, path, run.output)


# --- edits before approval ---------------------------------------------------------------------------------


REST = "other_input"
"""Name of the field for everything without a field of its own."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_PLAIN = ("string", "number", "integer", "boolean")
_MOST_FIELDS = 20
_LONG = ("content", "body", "text", "query", "command", "message")


class _Entry(NamedTuple):
    """A field of the form. `key` is the name in the input; None for the one that holds the rest."""

    key: str | None
    field: dict[str, Json]


def edit_fields(tool: ToolPlan, given: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The settled fields of the form (see `engine.forms`) in which people change this input."""
    return [entry.field for entry in _entries(tool, given)]


def edited(tool: ToolPlan, given: Mapping[str, Json], values: Mapping[str, Json]) -> dict[str, Json]:
    """Return the input with the values that people filled in. Raises `InvalidAnswer` for invalid JSON in a JSON field."""
    found = dict(given)
    for key, field in _entries(tool, given):
        name = field["name"]
        if name not in values or values[name] == field.get("default"):
            continue
        if key is None:
            try:
                value = read(str(values[name] or "{}"))
            except NotJson as error:
                raise InvalidAnswer(f'This is {error}. Write JSON, such as {{"limit": 10}}.') from error
            if not isinstance(value, dict):
                raise InvalidAnswer('Write a JSON object, such as {"limit": 10}.')
            found = {**value, **{k: v for k, v in found.items() if k in _own(tool, given)}}
        elif is_empty(values[name]) and not field["required"]:
            found.pop(key, None)
        else:
            found[key] = values[name]
    return found


def _own(tool: ToolPlan, given: Mapping[str, Json]) -> frozenset[str]:
    """Return the names outside the rest field: those with a field of their own, and values too long for any."""
    named = {entry.key for entry in _entries(tool, given) if entry.key is not None}
    return frozenset(
        named | {key for key, value in given.items() if isinstance(value, str) and _too_long(value)}
    )


def _entries(tool: ToolPlan, given: Mapping[str, Json]) -> list[_Entry]:
    found = list(_plain_entries(tool, given))
    held = {entry.key for entry in found}
    rest = {
        key: value
        for key, value in given.items()
        if key not in held and not (isinstance(value, str) and _too_long(value))
    }
    text = encode(rest).decode()
    if clean_text(text)[0] != text:  # what a form gives back is clean
        text = json.dumps(rest)
    if rest and not _too_long(text):
        about = (
            "JSON: what the tool is given beside the fields above."
            if found
            else "JSON: what the tool is given."
        )
        field = _field(REST, "Other input" if found else "Input", "string", required=False, description=about)
        found.append(_Entry(None, {**field, "multiline": True, "default": text}))
    return found


def _plain_entries(tool: ToolPlan, given: Mapping[str, Json]) -> Iterator[_Entry]:
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    properties = schema.get("properties") or {}
    required = schema.get("required") or []
    taken = 0
    for index, (key, body) in enumerate(properties.items()):
        kind = body.get("type") if isinstance(body, dict) else None
        if kind not in _PLAIN or taken == _MOST_FIELDS or not _fits(kind, given.get(key)):
            continue
        taken += 1
        name = key if _NAME.fullmatch(key) and key != REST else f"field_{index}"
        field = _field(
            name, str(key)[:150], kind, required=key in required, description=body.get("description")
        )
        value = given.get(key)
        options = body.get("enum")
        if (
            isinstance(options, list)
            and options
            and all(isinstance(option, str) and option for option in options)
        ):
            field |= {
                "type": "choice",
                "options": [{"value": option, "label": option[:75]} for option in options],
            }
        elif field["type"] == "string" and (key in _LONG or "\n" in str(value)):
            field["multiline"] = True
        if not is_empty(value):
            with contextlib.suppress(InvalidAnswer):
                field["default"] = read_value(field, value)
        yield _Entry(key, field)


def _field(name: str, title: str, kind: str, *, required: bool, description: Json) -> dict[str, Json]:
    field: dict[str, Json] = {"name": name, "type": kind, "title": title, "required": required}
    return (
        {**field, "description": description[:300]} if isinstance(description, str) and description else field
    )


def _fits(kind: str, value: Json) -> bool:
    """True if a field of this type can show this value."""
    if value is None:
        return True
    if kind == "string":
        return isinstance(value, str) and not _too_long(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _too_long(text: str) -> bool:
    return units(text) > MOST_TEXT
