"""`grants list` and `revoke`: which calls of agents people allow always, and taking that back."""

from __future__ import annotations

from bot.cli.lookup import actor_for
from bot.cli.prompts import Change, change_prompt
from bot.rendering.grants import what
from bot.rendering.text import plain
from bot.terminal.console import (
    Exit,
    Place,
    clean,
    database_exists,
    moment,
    opened,
    print_json,
    print_list,
    writing,
)
from engine.decide.agents import wide_grants
from engine.decide.agents.grants import standing
from engine.journal.events.grants import grant_told
from engine.journal.state import Grant, State
from engine.language.codec import Json
from engine.run.stored import stored_state, utc_now


def list_grants(place: Place, *, as_json: bool) -> int:
    """Print the grants of sessions that are in progress, by session."""
    settings = place.settings()
    found, wide = list[tuple[State, Grant]](), list[Grant]()
    if database_exists(settings):
        with opened(settings) as store:
            for head in store.sessions.heads(statuses=("running", "paused"), limit=None):
                if head.quarantined is None:
                    state = stored_state(store, head.session_id)
                    found += [(state, grant) for grant in standing(state, utc_now())]
            wide = wide_grants.current(store.kept.rows(wide_grants.GRANT), utc_now())
    items = [_as_json(state, grant) for state, grant in found] + list(map(_wide_json, wide))
    named = [(state.flow_name, grant) for state, grant in found]
    named += [(str((grant.wide or {})["scope"]), grant) for grant in wide]
    rows = [
        (
            grant.prompt_id,
            clean(counts_in),
            clean(", ".join(str(actor.get("name") or actor.get("id")) for actor in grant.by)),
            moment(grant.until),
            str(grant.used),
            plain(what(grant)),
        )
        for counts_in, grant in named
    ]
    nothing = "" if named else f"There are no grants.{place.elsewhere('grants', 'list')}"
    headers = ("GRANT", "FOR", "BY", "UNTIL", "USED", "CALLS")
    return print_list("grants", items, headers, rows, nothing, as_json=as_json)


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


def _wide_json(grant: Grant) -> dict[str, Json]:
    told = grant_told(grant)
    names = ("scope", "flow", "nodeId", "tool", "fields", "until", "used", "requester")
    by = [actor.get("id") for actor in grant.by]
    return {"grantId": grant.prompt_id, "by": by, **{name: told.get(name) for name in names}}


REVOKED = "Revoked: people are asked about such calls again."


def revoke_grant(place: Place, grant_id: str, as_name: str | None, *, as_json: bool) -> int:
    """Ask again for calls that were always allowed. Raises `SaysoError`."""
    settings, found = place.settings(), None
    if database_exists(settings):
        with writing(settings) as store:
            # One that counts beyond its run, which may be over.
            wide = wide_grants.current(store.kept.rows(wide_grants.GRANT), utc_now())
            found = next((grant for grant in wide if grant.prompt_id == grant_id), None)
            if found is not None:
                by = actor_for(settings, as_name).record()
                store.consume([], utc_now(), [wide_grants.revoked(found, by, utc_now())])
    if found is None:
        return change_prompt(place, grant_id, Change("revoke", {}, REVOKED), as_name, as_json=as_json)
    if as_json:
        print_json(_wide_json(found))
    else:
        print(REVOKED)
    return Exit.OK
