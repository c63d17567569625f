"""Plain messages: text of flows, notes of the bot, and how a session ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from bot.rendering.blocks import Block, Rendered, block_key, context, fit_text, rendered, section
from bot.rendering.failures import tail_of
from bot.rendering.flow import WITHOUT_EFFECT, FlowLike, label_of, latest_visits, place_of
from bot.rendering.nested import REJECTED
from bot.rendering.text import one_line, person, safe
from engine.journal.queries import is_rejection, verdict
from engine.journal.state import State
from engine.language.codec import Json

_NAMES_MOST = 8


def message_blocks(text: str) -> list[Block]:
    """mrkdwn as blocks: in several sections where it is long, cut with a notice where it is longer still."""
    return fit_text([], text) or [section(" ")]


def note(text: str, key: str | None = None) -> Rendered:
    """A message of mrkdwn that is safe already; `key` lets it be found again in Slack."""
    blocks = message_blocks(text)
    if key is not None:
        blocks[0] = {**blocks[0], "block_id": block_key(key)}
    return rendered(text, blocks, key)


def duplicate(key: str) -> Rendered:
    """What a second copy of a message becomes: it can be neither pressed nor taken for the first one again."""
    text = "_This was posted twice. The other copy counts; this one does nothing._"
    blocks = [{**context(text), "block_id": block_key(f"duplicate:{key}")}]
    return Rendered(text, blocks, {"event_type": "sayso_duplicate", "event_payload": {"key": key}})


def end_note(
    state: State,
    flow: FlowLike,
    key: str,
    *,
    by: Mapping[str, Json] | None = None,
    reason: str | None = None,
    bot_user_id: str | None = None,
    link: str | None = None,
) -> Rendered:
    """How a session ended badly: what failed or who ended it, what was not done, and what one can do. `link` leads to
    the thread of whoever holds the lock that this session was refused."""
    parts = [_why(state, flow, by, reason)]
    if link is not None:
        parts.append(f"<{link}|The thread of the one that has it>")
    tail = tail_of(state) if state.outcome == "failed" else ""
    if tail:
        parts.append(tail)
    unknown = [path for path in state.active if state.nodes[path].type not in WITHOUT_EFFECT]
    if unknown:
        parts.append(
            f"*Not known whether it was done:* {_names([*dict.fromkeys(place_of(state, flow, one) for one in unknown)])}."
        )
    missing = _missing(state, flow)
    if missing:
        parts.append(f"*Not done:* {_names(missing)}.")
    if state.outcome == "failed":
        parts += _remedies(state, f"<@{bot_user_id}> " if bot_user_id else "")
    return note("\n".join(parts), key)


def _remedies(state: State, address: str) -> list[str]:
    """What one can do about a bad end. A decision is not mended: one can only ask again."""
    anew = f"start it anew: {address}`{safe(state.flow_name)}`"
    if is_rejection(state.error):
        return [f"To ask again, {anew}"]
    fork = safe(f"sayso sessions fork {state.session_id} --at SEQ")
    return [
        f"To try again, {anew}",
        f"To go on from before the failure, an administrator runs `{fork}`.",
    ]


def _why(state: State, flow: FlowLike, by: Mapping[str, Json] | None, reason: str | None) -> str:
    if state.outcome == "aborted":
        who = f" by {person(by)}" if by else ""
        said = f": {safe(one_line(reason, 200))}" if reason else ""
        return f"🛑 *{safe(one_line(flow.name, 80))}* was ended{who}{said}."
    error = state.error or {}
    if is_rejection(error):
        return f"{REJECTED} *{safe(one_line(flow.name, 80))}* was {safe(one_line(verdict(error), 400))}"
    message = safe(one_line(str(error.get("message") or error.get("type") or "no reason given"), 400))
    # A container fails with the error of what is inside, which says where that stood.
    inner = error.get("path")
    failed = [path for path, run in state.nodes.items() if run.status == "failed" and run.error == error]
    place = str(inner) if inner else failed[-1] if failed else ""
    what = f" at *{place_of(state, flow, place)}*" if place else ""
    return f"❌ *{safe(one_line(flow.name, 80))}* failed{what}: {message}"


def _missing(state: State, flow: FlowLike) -> list[str]:
    """What never began, ready for mrkdwn: nodes of the passes that were under way, passes, and the flow's own nodes."""
    found: list[str] = []
    for scope, frame in sorted(state.frames.items()):
        nodes = flow.lists[frame.list_id].nodes if frame.list_id in flow.lists else ()
        container = state.containers.get(frame.owner or "")
        # What a conversation would have come to nobody can say.
        if scope and (container is None or container.agent is None):
            found += [place_of(state, flow, f"{scope}/{n.id}") for n in nodes if n.id not in frame.nodes]
    for path, container in sorted(state.containers.items()):
        left = (container.total or 0) - container.begun
        if container.kind == "foreach" and left > 0:
            found.append(f"{left:,} of the {container.total:,} passes of {place_of(state, flow, path)}")
    broken = [
        path for path, run in state.nodes.items() if run.status == "failed" and (run.error or {}).get("path")
    ]
    found += [f"the rest of {place_of(state, flow, path)}" for path in sorted(broken)]
    begun = latest_visits(state)
    return found + [label_of(flow, node.id) for node in flow.nodes if node.id not in begun]


def _names(named: list[str]) -> str:
    more = len(named) - _NAMES_MOST
    return ", ".join(named[:_NAMES_MOST]) + (f" and {more} more" if more > 0 else "")
