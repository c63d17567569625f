"""Grants: calls of a tool that people allow always, for a time, as they approve one of them. Pure.

Whoever may approve a call may give one, with the same quorum: each who must agree gives the same. It says what each field
of the input has to be, exactly or by a pattern, until when, and for which definition of the tool and which rule of
`approvals`: where one of them is another by then, people are asked again. Within its run each use is an event, and so are
its end by the clock and by a person.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.decide.prompt_timers import OPEN_PHASES
from engine.flow.builtin_tools import ANY, allowed, pattern_problem
from engine.flow.node import Rule, ToolPlan
from engine.journal import events as ev
from engine.journal.queries import agent_at, agent_of
from engine.journal.state import Asked, Grant, State
from engine.language import timestamps
from engine.language.codec import Json, canonical
from engine.language.errors import InvalidAnswer, PromptClosed
from engine.language.timestamps import format_duration

if TYPE_CHECKING:
    from engine.decide.commands import Undo
    from engine.decide.step import Turn

USUAL_SECONDS = 8 * 3600.0
MOST_SECONDS = 30 * 86400.0
MOST_FIELDS = 8
"""Patterns that one grant may have."""


# --- what is allowed -------------------------------------------------------------------------------------------


def checked(tool: ToolPlan, given: Mapping[str, Json], asked: Json) -> dict[str, Json]:
    """The grant that somebody asks for, `{seconds?, patterns?}`, as it is voted on. Raises `InvalidAnswer`: it has to fit
    the call that is being approved."""
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
    fields = {name: {"is": value} for name, value in given.items() if name not in patterns}
    fields |= {name: {"like": pattern} for name, pattern in patterns.items()}
    return {"seconds": seconds, "fields": fields}


def _problem(tool: ToolPlan, name: str, value: Json, pattern: Json) -> str | None:
    if not isinstance(value, str) or not isinstance(pattern, str):
        return "only a text can have a pattern"
    wrong = pattern_problem(pattern) if _is_command(tool, name) else None
    if wrong is not None or not pattern.replace(ANY, "").strip():
        return wrong or "this allows anything: say more of it"
    return None if _like(tool, name, value, pattern) else "this call does not fit that pattern"


def _is_command(tool: ToolPlan, name: str) -> bool:
    return tool.kind == "shell" and name == "command"


def _like(tool: ToolPlan, name: str, value: str, pattern: str) -> bool:
    """Whether a text fits a pattern: a command word by word, as in `commands`; else `*` stands for anything on a line."""
    if _is_command(tool, name):
        return allowed(shlex.split(value), [pattern])
    return re.fullmatch("[^\n]*".join(re.escape(part) for part in pattern.split(ANY)), value) is not None


def fits(tool: ToolPlan, fields: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    """Whether a call's input, as it will be used, is what was allowed: every field, and no other."""
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


def definition(turn: Turn, path: str, tool: ToolPlan, rule: Rule) -> str:
    """A digest of what a grant is bound to beside the input: the tool as the model knows it and as it is carried out, and
    by whom calls like this are approved."""
    body = agent_at(turn.state, agent_of(turn.state, path) or "").body or {}
    told = next((one for one in body.get("tools") or () if one.get("name") == tool.name), None)
    bound: Json = {
        "tool": [tool.name, tool.kind, tool.description, tool.input_schema, told],
        "does": [tool.node.type, tool.node.config, dict(tool.settings)],
        "rule": [list(rule.approvers or ()), rule.required, rule.exclude_requester],
    }
    return hashlib.sha256(canonical(bound)).hexdigest()


# --- from the first vote to the last use -------------------------------------------------------------------------


def give(turn: Turn, prompt: Asked, bound_to: str) -> None:
    """A call was approved, and with it a grant, where those who decided agree on one."""
    terms = (prompt.answer or {}).get("always")
    if not terms or prompt.tool is None:
        return
    turn.emit(
        ev.GrantGiven,
        path=prompt.path,
        prompt_id=prompt.prompt_id,
        node_id=turn.node(agent_of(turn.state, prompt.path) or "").id,
        tool=str(prompt.tool["name"]),
        fields=terms["fields"],
        definition=bound_to,
        until=timestamps.after(turn.facts.now, float(terms["seconds"])),
    )


def use(turn: Turn, path: str, tool: ToolPlan, given: Json, bound_to: str, digest: str) -> bool:
    """Whether this call runs by a grant, which is an event then. One whose time is over ends here."""
    node_id = turn.node(agent_of(turn.state, path) or "").id
    for grant in list(turn.state.grants.values()):
        if (grant.over, grant.node_id, grant.tool) != (None, node_id, tool.name):
            continue
        if turn.facts.now >= grant.until:
            turn.emit(
                ev.GrantExpired, path=turn.state.prompts[grant.prompt_id].path, prompt_id=grant.prompt_id
            )
        elif _allows(turn.state, grant, bound_to, digest) and fits(tool, grant.fields, given):
            turn.emit(ev.GrantUsed, path=path, prompt_id=grant.prompt_id, digest=digest)
            return True
    return False


def _allows(state: State, grant: Grant, bound_to: str, digest: str) -> bool:
    """Whether a grant of this session is about this tool as it is; without a pattern about exactly this call."""
    if not given_here(state, grant) or grant.definition != bound_to:
        return False
    covers = state.prompts[grant.prompt_id].covers or {}
    return not grant.exact or covers.get("digest") == digest


def given_here(state: State, grant: Grant) -> bool:
    """Whether people gave it in this session: a copy of the session asks anew."""
    prompt = state.prompts.get(grant.prompt_id)
    return prompt is not None and (prompt.covers or {}).get("sessionId") == state.session_id


def revoke(turn: Turn, command: Undo) -> None:
    """Take a grant back, by whoever could give it, and by whoever may steer the run. What ran stays done."""
    grant = turn.state.grants[command.prompt_id]
    prompt = turn.state.prompts[command.prompt_id]
    if grant.over is not None or turn.state.phase not in OPEN_PHASES:
        raise PromptClosed("This is not allowed any more, so there is nothing to take back.")
    if turn.facts.policy(command.actor, "decide", turn.state, prompt) is not None:
        turn.permit(command.actor, "undo", prompt)
    turn.emit(
        ev.GrantRevoked,
        path=prompt.path,
        prompt_id=prompt.prompt_id,
        actor=command.actor.record(),
        key=command.key,
    )


def standing(state: State, now: str) -> list[Grant]:
    """The grants of a session by which calls may run now."""
    found = (one for one in state.grants.values() if one.over is None and one.until > now)
    return [] if state.ended else [one for one in found if given_here(state, one)]


def used_by(state: State, path: str) -> Grant | None:
    """The grant by which a call ran."""
    return next((one for one in state.grants.values() if path in one.uses), None)
