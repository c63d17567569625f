"""Calls of tools that are always allowed for a time: the text of a grant, and its revoke button. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.rendering.approvals import handle
from bot.rendering.blocks import Block, actions, button, context, field_block, modal, option, section, with_id
from bot.rendering.text import as_code, date, one_line, person, safe, shown
from engine.decide.agents.grants import MOST_FIELDS, USUAL_SECONDS, standing
from engine.journal.state import Asked, Grant, State
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.counting import plural
from engine.language.credentials import without_credentials

REVOKE = "sayso:revoke"
"""Action of the button that revokes a grant."""
ALWAYS = "always"
"""The kind of the view in which calls are allowed always."""
PATTERN, FOR, IN = "pattern:", "for", "in"
_OF_REQUESTS = {"place": "this agent in this folder", "thread": "this session of the agent"}
_PLACES = {"run": "this run", "thread": "runs in this thread", "flow": "runs of this flow in this channel"}
_TIMES = {
    3600.0: "1 hour",
    USUAL_SECONDS: "8 hours",
    86400.0: "1 day",
    7 * 86400.0: "7 days",
    30 * 86400.0: "30 days",
}
_MOST_TEXT = 300


def patterned(given: Mapping[str, Json]) -> list[str]:
    """Return the fields of a call that can have a pattern."""
    texts = [name for name, value in given.items() if isinstance(value, str) and 0 < len(value) <= _MOST_TEXT]
    return [name for name in texts if without_credentials(given[name]) == given[name]][:MOST_FIELDS]


def always_view(
    prompt: Asked, given: Mapping[str, Json], meta: dict[str, Json], voted: Mapping[str, Json] | None
) -> dict[str, object]:
    """Return the modal for a grant: the call's input, editable as patterns, and its duration; prefilled by an earlier
    vote for one."""
    tool, of_request = prompt.tool or {}, prompt.is_request
    fields = (voted or {}).get("fields") or {}
    name = as_code(str(tool["name"]))
    said = (
        f"Approves this call. Also allows later calls of {name} that match below, for the rest of this run or for as long as "
        "you choose. Use `*` as a wildcard."
    )
    if of_request:
        said = (
            f"Approves this call and allows later calls of {name} that match below. Arguments that are not "
            "listed must be identical. `*` matches any text without shell syntax."
        )
    blocks: list[Block] = [section(said)]
    for name in patterned(given):
        element: Block = {"type": "plain_text_input", "action_id": f"{PATTERN}{name}"}
        element["initial_value"] = text = str((fields.get(name) or {}).get("like") or given[name])
        element["multiline"] = "\n" in text
        blocks.append(field_block(f"{PATTERN}{name}", name, element))
    times = [option(label, str(seconds)) for seconds, label in _TIMES.items()]
    usual = (
        list(_TIMES).index((voted or {}).get("seconds", USUAL_SECONDS))
        if voted is None or voted["seconds"] in _TIMES
        else 1
    )
    menu: Block = {
        "type": "static_select",
        "action_id": FOR,
        "options": times,
        "initial_option": times[usual],
    }
    blocks.append(field_block(FOR, "For", menu))
    wider = tool.get("always")
    if isinstance(wider, list):
        named = {name: _OF_REQUESTS[name] for name in wider} if of_request else _PLACES
        known = wider if of_request else ["run", *wider]
        places = [option(named[name], name) for name in known]
        at = known.index((voted or {}).get("scope") or known[0])
        element = {"type": "static_select", "action_id": IN, "options": places, "initial_option": places[at]}
        blocks.append(field_block(IN, "In", element))
    return modal("Always allow", blocks, kind=ALWAYS, meta=meta, submit="Approve and allow")


def what(grant: Grant) -> str:
    """The calls that a grant allows, in a few words."""
    told = (_field(name, wanted) for name, wanted in grant.fields.items())
    return one_line(f"{grant.tool} {', '.join(part for part in told if part)}", 200)


def _field(name: str, wanted: Mapping[str, Json]) -> str:
    value = wanted.get("like", wanted.get("is"))
    text = value if isinstance(value, str) else encode(value).decode()
    return f"{name}: {one_line(shown(without_credentials(text)), 120)}"


def line(grant: Grant) -> str:
    """Return a grant as mrkdwn: its calls, people and end."""
    people = ", ".join(person(actor) for actor in grant.by)
    text = safe(what(grant)).replace("`", "'")
    return f"♾️ `{text}` is always allowed by {people} until {date(grant.until)}{where(grant)}"


def where(grant: Grant) -> str:
    """Return the scope of a grant beyond its run; empty for others."""
    told = grant.wide or {}
    if not told:
        return ""
    kind = str(told["scope"]).partition(":")[0]
    if kind.startswith("gate-"):
        where = "in one folder" if kind == "gate-place" else "in one session"
        return f" for the agent *{safe(str(told['flow']))}* {where}"
    place = "thread" if kind == "thread" else "channel"
    return f" in runs of *{safe(str(told['flow']))}* in this {place}"


def allowed_blocks(state: State, prompt: Asked) -> list[Block]:
    """Return the calls that are always allowed with an approval, with the button that revokes this; empty if none are."""
    revoke = actions([button("Revoke", REVOKE, handle(prompt))])
    grant, always = state.grants.get(prompt.prompt_id), (prompt.answer or {}).get("always")
    if grant is not None and (grant.over is not None or state.ended):
        return [context(f"♾️ Calls like this were always allowed; this is {grant.over or 'over'}.")]
    if grant is not None:
        return [context(line(grant)), revoke]
    if always is None or prompt.at is None or not prompt.is_request:
        return []
    until = date(timestamps.after(prompt.at, float(always["seconds"])))
    told = (_field(name, wanted) for name, wanted in always["fields"].items())
    text = safe(one_line(", ".join(told), 200)).replace("`", "'")
    place = _OF_REQUESTS[always["scope"]]
    return [context(f"♾️ Allowed until {until} for {place}: `{text}`"), revoke]


def home_grants(states: Sequence[State], now: str, wide: Sequence[Grant] = ()) -> list[Block]:
    """The grants of some runs, and those beyond a run, each with its button."""
    made = []
    for grant in wide:
        told = grant.wide or {}
        value = f"{grant.prompt_id}|||{told.get('channel')}|{told.get('thread')}"
        block = with_id(
            section(f"{line(grant)} · used {plural(grant.used, 'time')}", most=900),
            f"grant:{grant.prompt_id}",
        )
        made.append({**block, "accessory": button("Revoke", REVOKE, value)})
    for state in states:
        thread = state.thread or {}
        for grant in standing(state, now):
            value = f"{grant.prompt_id}|||{thread.get('channel')}|{thread.get('threadTs')}"
            text = f"{line(grant)} · used {plural(grant.used, 'time')} · *{safe(state.flow_name)}*"
            block = with_id(section(text, most=900), f"grant:{grant.prompt_id}")
            made.append({**block, "accessory": button("Revoke", REVOKE, value)})
    return made
