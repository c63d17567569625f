"""Plain messages: text of flows, notes of the bot, how a session ended and what a failed program wrote, and what people
choose from below such a text: a question, a flow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bot.rendering.approvals import OPEN
from bot.rendering.blocks import (
    MOST_UNITS,
    Block,
    Rendered,
    actions,
    block_key,
    button,
    context,
    fit_text,
    rendered,
    section,
    size,
)
from bot.rendering.flow import WITHOUT_EFFECT, FlowLike, label_of, latest_visits, place_of
from bot.rendering.nested import REJECTED
from bot.rendering.text import clip, one_line, person, plain, safe, shown, weight
from engine.journal.queries import is_rejection, verdict
from engine.journal.state import State
from engine.language.codec import Json
from prompt_state.question_row import PromptState

LOG = "output.txt"
_LINES = 12
_MOST = 1_500
_LINE = 300


def tail_of(state: State) -> str:
    """The last lines of what the failed node wrote, as mrkdwn; empty where it wrote nothing."""
    text = _text(_details(state))
    if not text:
        return ""
    lines = [clip(line, _LINE) for line in shown(text).splitlines() if line.strip()][-_LINES:]
    while len(lines) > 1 and weight("\n".join(lines)) > _MOST:
        lines.pop(0)
    block = safe("\n".join(lines)).replace("```", "'''")
    more = f"\n_All that it wrote is in `{LOG}`, below._" if log_of(state) is not None else ""
    return f"```\n{block}\n```{more}"


def log_of(state: State) -> str | None:
    """All that the failed node wrote, where the thread shows less of it; else None."""
    details = _details(state)
    text = _text(details)
    both = [f"{name}:\n{details[name]}" for name in ("stderr", "stdout") if _said(details, name)]
    lines = text.splitlines()
    if (
        len(both) < 2
        and len(lines) <= _LINES
        and weight(text) <= _MOST
        and all(len(line) <= _LINE for line in lines)
    ):
        return None
    return "\n".join(both)


def _details(state: State) -> dict[str, Json]:
    details = (state.error or {}).get("details")
    return details if isinstance(details, dict) else {}


def _text(details: dict[str, Json]) -> str:
    """What is worth showing first: what went to standard error, else the output."""
    return next((str(details[name]).strip() for name in ("stderr", "stdout") if _said(details, name)), "")


def _said(details: dict[str, Json], name: str) -> bool:
    value = details.get(name)
    return isinstance(value, str) and bool(value.strip())


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


MENU = "sayso:menu:"
_MOST_ASKED = 25


def menu_blocks(text: str, asked: Sequence[PromptState], ts: str, author: str) -> list[Block]:
    """The words (mrkdwn) and a button for each question. A button carries ids: the question, the message that was
    written (`ts`), and its author; what was written is read again where it was stored."""
    buttons = [
        button(_label(prompt), f"{MENU}{n}", f"{prompt.prompt_id}|{prompt.nonce}|{ts}|{author}")
        for n, prompt in enumerate(asked[:_MOST_ASKED])
    ]
    return [*message_blocks(text), actions(buttons)]


def _label(prompt: PromptState) -> str:
    number = f"#{prompt.number} " if prompt.number else ""
    return number + one_line(plain(prompt.message), 60)


_BUTTONS = 10
_MENU = 100
_VALUE = 150


def start_blocks(text: str, flows: Iterable[str]) -> list[Block]:
    """What is said (mrkdwn), and below it the flows to choose from, by name."""
    names = sorted(name for name in flows if len(name) <= _VALUE)
    return fit_text([], text, start_choice(names)) or [section(" ")]


def start_choice(names: list[str]) -> list[Block]:
    """The flows to choose from, without words."""
    if not names:
        return []
    if len(names) <= _BUTTONS:
        return [actions([button(name, f"{OPEN}start:{n}", name) for n, name in enumerate(names)])]
    options = [
        {"text": {"type": "plain_text", "text": clip(one_line(name, 75), 75)}, "value": name}
        for name in names[:_MENU]
    ]
    menu: Block = {
        "type": "static_select",
        "action_id": f"{OPEN}start",
        "placeholder": {"type": "plain_text", "text": "Start a flow…"},
        "options": options,
    }
    while size([menu]) > MOST_UNITS // 2:
        options.pop()
    more = len(names) - len(options)
    left = [context(f"_{more:,} more can be started by name: `/sayso run NAME`._")] if more > 0 else []
    return [actions([menu]), *left]
