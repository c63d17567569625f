"""Grants beyond one run: for the runs of a thread, or of a flow in a channel. Pure.

Such a grant is a row of its own (`KeptRow`), stored by the commit of the approval. A step of another run gets those in
force at its place as facts. Each use and each revocation changes the row, naming the revision that was read: if
somebody revoked the grant meanwhile, nothing of the step is stored, and it is decided again.

It is bound to more than a grant for one run: to the flow and its agent, to what the approved call would do in this run
(what the flow adds to a call may differ between runs), and to the requester if a rule refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from engine.decide.step import Step
from engine.flow.node import Rule
from engine.journal import events as ev
from engine.journal.events.grants import grant_from, grant_told
from engine.journal.records import KeptRow, Row
from engine.journal.state import Grant, State
from engine.language.codec import Json, decode, encode
from engine.language.errors import SaysoError

GRANT = "grant"
"""The kind of these rows."""
SCOPES = ("thread", "flow")
_OF_REQUESTER = ("requester", "manager")


def scopes(state: State) -> dict[str, str]:
    """Return the scopes whose grants apply to a session; empty if it has no channel."""
    thread = state.thread or {}
    if not thread.get("channel"):
        return {}
    return {"thread": f"thread:{thread['key']}", "flow": f"flow:{state.flow_name}@{thread['channel']}"}


def terms(step: Step, scope: str, given: Json, digest: Json) -> dict[str, Json]:
    """Return the fields of `grant:given` for a grant beyond its run, whose approved call had this input."""
    state = step.state
    return {
        "scope": scopes(state)[scope],
        "input": given,
        "digest": digest,
        "flow": state.flow_name,
        "channel": (state.thread or {}).get("channel"),
        "thread": (state.thread or {}).get("threadTs"),
        "requester": state.actor.get("id"),
        "used": 0,
        "changes": [],
    }


def standing(step: Step) -> list[Grant]:
    """Return the grants in force here, including this step's changes."""
    found = []
    for row in step.facts.grants:
        known = step.state.grants.get(row.kept_id)
        grant = grant_of(row)
        if known is not None and known.wide and known.wide["rev"] > row.rev:
            grant = known
        if grant.until > step.facts.now and grant.over is None:
            found.append(grant)
    return found


def allows(step: Step, grant: Grant, node_id: str, rule: Rule, digest_of: Callable[[Json], str]) -> bool:
    """True if the grant covers this tool of this agent, for this run's requester, and would have approved the same
    action here."""
    told = grant.wide or {}
    here = (step.state.flow_name, node_id, rule.tool)
    if (told.get("flow"), grant.node_id, grant.tool) != here:
        return False
    requester = step.state.actor.get("id")
    personal = rule.approvers is None or any(entry in _OF_REQUESTER for entry in rule.approvers)
    if personal and requester != told.get("requester"):
        return False
    if rule.exclude_requester and requester in [actor.get("id") for actor in grant.by]:
        return False
    try:
        return digest_of(told.get("input")) == told.get("digest")
    except SaysoError:
        return False


def after_use(grant: Grant) -> dict[str, Json]:
    """Return the fields of `grant:used` for a grant beyond its run: all of it, with this use."""
    told = grant.wide or {}
    return {**grant_told(grant), "rev": int(told["rev"]) + 1, "used": int(told["used"]) + 1}


def after_end(grant: Grant, by: Mapping[str, Json], now: str) -> dict[str, Json]:
    """The same of one that a person takes back now."""
    told = grant.wide or {}
    changes = [*told["changes"], {"at": now, "by": dict(by), "did": "revoked"}]
    return {**grant_told(grant), "rev": int(told["rev"]) + 1, "until": now, "changes": changes}


# --- rows ----------------------------------------------------------------------------------------------------------


class GrantRows(Struct, frozen=True):
    """The extension that writes them."""

    def __call__(self, before: State, after: State, events: Sequence[ev.Event]) -> Sequence[Row]:
        """Return rows for the grants given, used and revoked in this step; none for an imported journal."""
        if not before.seq:
            return ()
        rows: list[Row] = []
        for event in events:
            if isinstance(event, ev.GrantGiven) and event.wide is not None:
                given = after.grants[event.prompt_id]
                rows.append(row_of(event.prompt_id, {**grant_told(given), "used": 0, "rev": 1}))
            elif isinstance(event, ev.GrantUsed | ev.GrantRevoked) and event.grant is not None:
                rows.append(row_of(event.prompt_id, event.grant))
        return rows

    about = (ev.GrantGiven, ev.GrantUsed, ev.GrantRevoked)
    """Events that can produce rows."""


def row_of(prompt_id: str, told: Mapping[str, Json]) -> KeptRow:
    """The row of a grant, known by the approval with which it was given."""
    body = {name: value for name, value in told.items() if name not in ("rev", "until")}
    return KeptRow(prompt_id, GRANT, str(told["scope"]), int(told["rev"]), str(told["until"]), encode(body))


def grant_of(row: KeptRow) -> Grant:
    """The grant of a row."""
    return grant_from(row.kept_id, {**decode(row.body), "rev": row.rev, "until": row.expires_at})


def current(rows: Sequence[KeptRow], now: str) -> list[Grant]:
    """Those that count now, oldest first."""
    return [grant_of(row) for row in rows if row.expires_at > now]


def revoked(grant: Grant, by: Mapping[str, Json], now: str) -> KeptRow:
    """The row of one that a person takes back, wherever it was given: the run that gave it may be over long since."""
    return row_of(grant.prompt_id, after_end(grant, by, now))
