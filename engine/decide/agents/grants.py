"""Grants: permission, given while approving a tool call, for similar calls for a limited time. Pure.

The people who may approve a call may give one, with the same quorum: all voters must give the same grant. It fixes each
field of the input exactly or by a pattern, its expiry, the tool's definition and the rule of `approvals`: if either of
these has changed by then, people are asked again. Each use is an event, as are its expiry and its revocation. Grants
beyond one run are in `wide_grants`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from engine.decide.agents import wide_grants
from engine.decide.commands import Revoke
from engine.decide.prompt_timers import OPEN_PHASES
from engine.decide.step import Step
from engine.flow.builtin_tools import ANY, allowed, pattern_problem
from engine.flow.node import Rule, ToolPlan
from engine.journal import events as ev
from engine.journal.queries import agent_at, agent_of
from engine.journal.state import Asked, Grant, State
from engine.language import timestamps
from engine.language.codec import Json, canonical
from engine.language.errors import InvalidAnswer, PromptClosed
from engine.language.timestamps import format_duration

USUAL_SECONDS = 8 * 3600.0
MOST_SECONDS = 30 * 86400.0
MOST_FIELDS = 8
"""Patterns that one grant may have."""


# --- what is allowed -------------------------------------------------------------------------------------------


def checked(
    tool: ToolPlan, given: Mapping[str, Json], asked: Json, scopes: Collection[str]
) -> dict[str, Json]:
    """Return the requested grant, `{seconds?, patterns?, scope?}`, as it is voted on. Raises `InvalidAnswer` unless it
    matches the call being approved and, if it reaches beyond this run, one of the `scopes`."""
    wanted = asked if isinstance(asked, dict) else {}
    seconds, patterns = wanted.get("seconds", USUAL_SECONDS), wanted.get("patterns") or {}
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise InvalidAnswer(
            f"Calls are allowed for at most {format_duration(MOST_SECONDS)}. Nothing was decided."
        )
    if not isinstance(patterns, dict) or len(patterns) > MOST_FIELDS:
        raise InvalidAnswer(f"At most {MOST_FIELDS} fields can have a pattern. Nothing was decided.")
    for name, pattern in patterns.items():
        problem = _problem(tool, name, given.get(name), pattern)
        if problem is not None:
            raise InvalidAnswer(f"`{name}`: {problem}. Nothing was decided.")
    scope = wanted.get("scope") or "run"
    if scope != "run" and scope not in scopes:
        known = " or ".join(["run", *scopes])
        raise InvalidAnswer(f"Calls are allowed for {known} here, not for {scope!r}. Nothing was decided.")
    fields = {name: {"is": value} for name, value in given.items() if name not in patterns}
    fields |= {name: {"like": pattern} for name, pattern in patterns.items()}
    return {"seconds": seconds, "fields": fields} | ({} if scope == "run" else {"scope": scope})


def _problem(tool: ToolPlan, name: str, value: Json, pattern: Json) -> str | None:
    if not isinstance(value, str) or not isinstance(pattern, str):
        return "only a text field can have a pattern"
    wrong = pattern_problem(pattern) if _is_command(tool, name) else None
    if wrong is not None or not pattern.replace(ANY, "").strip():
        return wrong or "this allows anything: be more specific"
    return None if _like(tool, name, value, pattern) else "this call does not match that pattern"


def _is_command(tool: ToolPlan, name: str) -> bool:
    return tool.kind == "shell" and name == "command"


def _like(tool: ToolPlan, name: str, value: str, pattern: str) -> bool:
    """True if a text matches a pattern: a command word by word, as in `commands`; otherwise `*` matches anything within
    a line."""
    if _is_command(tool, name):
        return allowed(shlex.split(value), [pattern])
    return re.fullmatch("[^\n]*".join(re.escape(part) for part in pattern.split(ANY)), value) is not None


def fits(tool: ToolPlan, fields: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    """True if a call's normalised input matches the grant: every field, and no additional one."""
    if fields.keys() != given.keys():
        return False
    for name, wanted in fields.items():
        value = given[name]
        if "is" in wanted:
            same = canonical(wanted["is"]) == canonical(value)
        else:
            same = isinstance(value, str) and _like(tool, name, value, wanted["like"])
        if not same:
            return False
    return True


def definition(step: Step, path: str, tool: ToolPlan, rule: Rule) -> str:
    """Return a digest of what a grant is bound to beside the input: the tool as the model sees it and as it is carried
    out, and who approves calls like this."""
    body = agent_at(step.state, agent_of(step.state, path) or "").body or {}
    told = next((one for one in body.get("tools") or () if one.get("name") == tool.name), None)
    bound: Json = {
        "tool": [tool.name, tool.kind, tool.description, tool.input_schema, told],
        "does": [tool.node.type, tool.node.config, dict(tool.settings)],
        "rule": [list(rule.approvers or ()), rule.required, rule.exclude_requester],
    }
    return hashlib.sha256(canonical(bound)).hexdigest()


# --- from the first vote to the last use -------------------------------------------------------------------------


def give(step: Step, prompt: Asked, bound_to: str, given: Json) -> None:
    """Record the grant that was approved together with a call, if the voters agree on one."""
    terms = (prompt.answer or {}).get("always")
    if not terms or prompt.tool is None:
        return
    step.emit_about(
        prompt,
        ev.GrantGiven,
        node_id=step.node(agent_of(step.state, prompt.path) or "").id,
        tool=str(prompt.tool["name"]),
        fields=terms["fields"],
        definition=bound_to,
        until=timestamps.after(step.facts.now, float(terms["seconds"])),
        wide=wide_grants.terms(step, terms["scope"], given, (prompt.covers or {}).get("digest"))
        if "scope" in terms
        else None,
    )


class Called(Struct, frozen=True):
    """A call that needs a decision: its input as a rule sees it, a digest of its action, and a function that gives the
    digest for another input."""

    path: str
    tool: ToolPlan
    rule: Rule
    given: Json
    digest: str
    digest_of: Callable[[Json], str]


def use(step: Step, call: Called, *, wide: bool) -> bool:
    """True if a grant covers this call; its use is then journaled. Expired grants of this run end here."""
    path, tool, given, digest = call.path, call.tool, call.given, call.digest
    bound_to = definition(step, path, tool, call.rule)
    node_id = step.node(agent_of(step.state, path) or "").id
    for grant in list(step.state.grants.values()):
        if (grant.over, grant.wide, grant.node_id, grant.tool) != (None, None, node_id, tool.name):
            continue
        if step.facts.now >= grant.until:
            step.emit(
                ev.GrantExpired, path=step.state.prompts[grant.prompt_id].path, prompt_id=grant.prompt_id
            )
        elif _allows(step.state, grant, bound_to, digest) and fits(tool, grant.fields, given):
            step.emit(ev.GrantUsed, path=path, prompt_id=grant.prompt_id, digest=digest)
            return True
    for grant in wide_grants.standing(step) if wide else ():
        if grant.definition != bound_to or not fits(tool, grant.fields, given):
            continue
        if grant.exact and (grant.wide or {}).get("digest") != digest:
            continue
        if wide_grants.allows(step, grant, node_id, call.rule, call.digest_of):
            used = wide_grants.after_use(grant)
            step.emit(ev.GrantUsed, path=path, prompt_id=grant.prompt_id, digest=digest, grant=used)
            return True
    return False


def _allows(state: State, grant: Grant, bound_to: str, digest: str) -> bool:
    """True if a grant of this session covers this tool as defined now; without a pattern, exactly this call."""
    if not given_here(state, grant) or grant.definition != bound_to:
        return False
    covers = state.prompts[grant.prompt_id].covers or {}
    return not grant.exact or covers.get("digest") == digest


def given_here(state: State, grant: Grant) -> bool:
    """True if people gave the grant in this session; a copy of the session asks again."""
    prompt = state.prompts.get(grant.prompt_id)
    return prompt is not None and (prompt.covers or {}).get("sessionId") == state.session_id


def revoke(step: Step, command: Revoke) -> None:
    """Revoke a grant, by anyone who could give it or may steer the run. Calls that ran stay done."""
    grant = step.state.grants[command.prompt_id]
    prompt = step.state.prompts[command.prompt_id]
    if grant.over is not None or step.state.phase not in OPEN_PHASES:
        raise PromptClosed("There is nothing to revoke: this is no longer allowed.")
    if step.facts.policy(command.actor, "decide", step.state, prompt) is not None:
        step.permit(command.actor, "revoke", prompt)
    row = next((one for one in wide_grants.standing(step) if one.prompt_id == grant.prompt_id), None)
    by = command.actor.record()
    step.emit_about(
        prompt,
        ev.GrantRevoked,
        actor=by,
        key=command.key,
        grant=None if row is None else wide_grants.after_end(row, by, step.facts.now),
    )


def standing(state: State, now: str) -> list[Grant]:
    """Return the grants for this run only that are in force now."""
    found = (
        one for one in state.grants.values() if one.over is None and one.wide is None and one.until > now
    )
    return [] if state.ended else [one for one in found if given_here(state, one)]


def used_by(state: State, path: str) -> Grant | None:
    """The grant by which a call ran."""
    return next((one for one in state.grants.values() if path in one.uses), None)
