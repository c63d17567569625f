"""`grants list` and `revoke`: which calls of agents people allow always, and taking that back."""

from __future__ import annotations

import sys

from bot.cli.prompts import Change, change_prompt
from bot.rendering.grants import what
from bot.rendering.text import plain
from bot.terminal.console import Exit, Paint, Place, clean, database_exists, moment, opened, print_json, table
from engine.decide.agents.grants import standing
from engine.journal.state import Grant, State
from engine.language.codec import Json
from engine.run.stored import stored_state, utc_now


def list_grants(place: Place, *, as_json: bool) -> int:
    """Print the grants of sessions that are under way, by session."""
    settings = place.settings()
    found: list[tuple[State, Grant]] = []
    if database_exists(settings):
        with opened(settings) as store:
            for head in store.heads(statuses=("running", "paused"), limit=None):
                if head.quarantined is None:
                    state = stored_state(store, head.session_id)
                    found += [(state, grant) for grant in standing(state, utc_now())]
    if as_json:
        print_json({"grants": [_as_json(state, grant) for state, grant in found]})
    elif not found:
        print("No call is always allowed right now.")
    else:
        rows = [
            (
                grant.prompt_id,
                clean(state.flow_name),
                _by(grant),
                moment(grant.until),
                str(grant.used),
                plain(what(grant)),
            )
            for state, grant in found
        ]
        for row in table(("GRANT", "FLOW", "BY", "UNTIL", "USED", "CALLS"), rows, Paint(sys.stdout)):
            print(row)
    return Exit.OK


def _by(grant: Grant) -> str:
    return clean(", ".join(str(actor.get("name") or actor.get("id")) for actor in grant.by))


def _as_json(state: State, grant: Grant) -> dict[str, Json]:
    return {
        "grantId": grant.prompt_id,
        "sessionId": state.session_id,
        "flow": state.flow_name,
        "nodeId": grant.node_id,
        "tool": grant.tool,
        "fields": grant.fields,
        "by": [actor.get("id") for actor in grant.by],
        "until": grant.until,
        "used": grant.used,
    }


def revoke_grant(place: Place, grant_id: str, as_name: str | None, *, as_json: bool) -> int:
    """Ask again for calls that were always allowed. Raises `SaysoError`."""
    return change_prompt(
        place,
        grant_id,
        Change("undo", {}, "Revoked: such calls are asked about again."),
        as_name,
        as_json=as_json,
    )
