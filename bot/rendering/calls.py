"""Several calls of an agent that wait for people, as one message: decided one by one, or all open ones with one click.
Pure.

Each call remains a question of its own, with its own buttons, votes and digest; only the message is shared. The journal
alone determines the calls of a run that share one: those of one answer that were asked about in one step, some at a
time. Requests of external agents have a session each; the outbox knows which of them share a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.faces.places import around
from bot.faces.question import Face, asked
from bot.faces.words import Ids
from bot.rendering import approvals
from bot.rendering import blocks as kit
from bot.rendering.blocks import Block, Rendered, actions, button, context, rendered, section, size
from bot.rendering.grants import allowed_blocks
from bot.rendering.prompts import buttons_of, more_menu, prompt_key, session_face
from bot.rendering.text import cut, mrkdwn, one_line, person, safe, shown, whom
from engine.flow import Flow
from engine.journal.state import Asked, State
from engine.language.codec import Json
from engine.language.counting import plural

ALL = "sayso:all"
"""Button that approves all calls of a message. Its value has each with its nonce: only shown calls are approved."""
_MOST = 5
"""Most calls of one message: four buttons each, and enough of the action, reach Slack's limits."""
MOST_TOGETHER = 10
"""Most requests of one message, the limit of an agent's open requests."""
_MESSAGE, _OUTCOME = 300, 500
_BRIEF, _NOTICE = 90, 380
"""Units of the reason, and of the words that something is cut, on a message with many calls."""


REQUESTS = ("gate", "gate-question")
"""Names of the flows that requests of agents are: an approval, and a question."""


def tally(requests: int, waiting: int) -> str:
    """Return the number of requests in a thread, and of those that wait."""
    return f"{plural(requests, 'request')}, {f'{waiting} waiting' if waiting else 'all decided'}"


def beside(state: State, prompt: Asked) -> list[Asked]:
    """Return the calls that share a message with this one, itself included, in order; empty if it has its own."""
    if not prompt.tool:
        return []
    turn = prompt.path.rpartition("/")[0]
    alike = [
        one
        for one in state.prompts.values()
        if one.tool and one.path.rpartition("/")[0] == turn and one.requested_at == prompt.requested_at
    ]
    alike.sort(key=lambda one: one.number or 0)
    first = next(at for at, one in enumerate(alike) if one.prompt_id == prompt.prompt_id) // _MOST * _MOST
    # A call whose message was deleted gets one of its own.
    found = [one for one in alike[first : first + _MOST] if not one.reposts]
    return found if prompt in found and len(found) > 1 else []


def calls_message(state: State, calls: Sequence[Asked], flow: Flow, ids: Ids, now: str) -> Rendered:
    """Return the current calls: each with its action and buttons, or its decision."""
    key, first, many = prompt_key(calls[0].prompt_id), calls[0], len(calls) > _MOST
    faces = [session_face(state, one, flow, ids, now) for one in calls]
    waiting = [said for said in faces if said.question.open]
    lead = _lead(state, len(calls), [said.question for said in waiting], ids)
    if first.is_request:
        about = (state.inputs or {}).get("about") or {}
        lead += f"\n*{safe(one_line(str(about.get('who')), 300))}*, for {person(state.actor)}"
    head = [section(lead, key, most=900)]
    if len(waiting) > 1:
        value = ",".join(f"{said.question.prompt_id} {said.question.nonce}" for said in waiting)
        head.append(actions([button(f"Approve all ({len(waiting)})", ALL, value, "primary")]))
    ruled = waiting[:1] if first.is_request else waiting
    rules = list(dict.fromkeys(mrkdwn(line) for said in ruled for line in said.rules))
    where = safe(" › ".join([one_line(flow.name, 80), *around(state, flow, first.path)]))
    tail = [
        *([context(*rules)] if rules else []),
        context(f"#{first.number} to #{calls[-1].number} · {where}"),
    ]
    parts = [_brief_parts(said) if many else _parts(state, said) for said in faces]
    fixed = size([*head, *tail, *(block for part in parts for block in part)])
    room = (kit.MOST_UNITS - fixed) // len(calls)
    blocks = [*head]
    for one, (title, *rest) in zip(calls, parts, strict=True):
        runs = approvals.runs_blocks(one, room, notice=_NOTICE if many else None)
        blocks += [title, *runs, *rest]
    typed = [f"`sayso prompts answer {said.question.prompt_id}`" for said in waiting]
    plain = f"If you see no buttons, use {', '.join(typed)}." if typed else ""
    text = "\n".join([lead, *(safe(one_line(str((one.covers or {}).get("text")), 200)) for one in calls)])
    return rendered(text, [*blocks, *tail], key, plain=plain)


def _lead(state: State, count: int, waiting: Sequence[Asked], ids: Ids) -> str:
    """Return the number of waiting calls, and the people they wait for."""
    if not waiting:
        return f"🔐 *{count} calls*, all decided"
    people = dict.fromkeys(entry for one in waiting for entry in asked(one, state.actor, ids))
    some = f"{len(waiting)} of {count} calls" if len(waiting) < count else f"{count} calls"
    return f"🔐 *{some} need approval* from {whom(list(people), state.actor, ids)}"


def _parts(state: State, said: Face) -> list[Block]:
    """Return the blocks before and after a call's action: its title, and its buttons or decision."""
    one = said.question
    title = section(f"*#{one.number}* {cut(shown(one.message), _MESSAGE)}", most=_MESSAGE + 60)
    if not one.open:
        return [title, section(mrkdwn(said.outcome), most=_OUTCOME), *allowed_blocks(state, one)]
    lines = [mrkdwn(line) for line in (said.handed, said.changed, *said.votes[:1]) if line]
    about = [context(" · ".join(lines), most=_OUTCOME)] if lines else []
    title["accessory"] = more_menu(said, "always", "reject", "hand")
    return [title, *about, *buttons_of(said, kit.MOST_UNITS)]


def _brief_parts(said: Face) -> list[Block]:
    """Return the same for one of many: short enough for ten in Slack. Rare actions are on Home, and here once fewer are
    left."""
    one = said.question
    reason = one.message.partition("\n> ")[2]
    lines = [
        f"*#{one.number}*",
        *map(mrkdwn, said.votes[:1]),
        f"> {cut(shown(reason), _BRIEF)}" if reason else None,
    ]
    title = section("\n".join(cut(line, 2 * _BRIEF) for line in lines if line))
    if one.open:
        return [title, *buttons_of(said, kit.MOST_UNITS, edit=False)]
    return [title, section(mrkdwn(said.outcome), most=2 * _BRIEF)]


def pairs(value: str) -> list[tuple[str, str]]:
    """The prompts and nonces that `ALL` carries."""
    return [(prompt_id, nonce) for prompt_id, _, nonce in (one.partition(" ") for one in value.split(","))]


def together(prompt_id: str, nonce: str, index: int, row: Mapping[str, Json]) -> dict[str, Json]:
    """Return the click on one call's own button that a click on `ALL` includes."""
    return {**row, "actionId": f"sayso:option:{index}", "value": f"{prompt_id}|{nonce}|{index}"}
