"""Calls that people allow an agent for a time, as they approve one of them (*Always allow…*).

Such a grant is a row like those of agents that sayso runs (`engine.decide.agents.wide_grants`), which the commit of the approval
stores; it is listed and taken back as they are. It is bound to the token, to the folder or the session of the agent, to the
definition of the tool, and to the people whom `gate.yml` asks: with others, people are asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from engine.decide.agents import wide_grants
from engine.decide.request_grants import matches
from engine.journal.records import Row
from engine.journal.state import Grant, State
from engine.language import timestamps
from engine.language.codec import Json, canonical


def terms_of(token_id: str, session: str, place: Sequence[str], bound_to: Json) -> dict[str, Json]:
    """Return the terms of a grant that a request may get: its possible scopes, and a digest of its further conditions."""
    scopes = {"thread": _scope("thread", token_id, session)}
    if place[-1]:
        scopes = {"place": _scope("place", token_id, *place), **scopes}
    return {"scopes": scopes, "definition": sha256(canonical(bound_to)).hexdigest()}


def _scope(name: str, *parts: str) -> str:
    return f"gate-{name}:{sha256(canonical(list(parts))).hexdigest()[:32]}"


def allows(grant: Grant, terms: Mapping[str, Json], tool: str, arguments: Mapping[str, Json]) -> bool:
    """True if a grant is about this call, and people would be asked as they were then."""
    same = (grant.tool, grant.definition) == (tool, terms["definition"])
    return same and matches(tool, grant.fields, arguments)


def given_with(state: State, prompt_id: str, actor: Mapping[str, Json], now: str) -> list[Row]:
    """The grant that goes with an approval which this person has just completed, where there is one."""
    prompt = state.prompts[prompt_id]
    always = (prompt.answer or {}).get("always")
    if always is None or (prompt.covers or {}).get("type") != "call":
        return []
    inputs, thread = state.inputs or {}, state.thread or {}
    terms = inputs["about"]["grant"]
    votes = [vote["actor"] for vote in prompt.votes if vote.get("always") == always]
    told: dict[str, Json] = {
        "nodeId": "decision",
        "tool": inputs["tool"],
        "fields": always["fields"],
        "definition": terms["definition"],
        "until": timestamps.after(now, float(always["seconds"])),
        "by": votes or [dict(actor)],
        "scope": terms["scopes"][always["scope"]],
        "flow": inputs["about"]["agent"],
        "channel": thread.get("channel"),
        "thread": thread.get("threadTs"),
        "requester": state.actor.get("id"),
        "used": 0,
        "rev": 1,
        "changes": [],
    }
    return [wide_grants.row_of(prompt_id, told)]
