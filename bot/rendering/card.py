"""The card of a session, one message in its thread that is edited in place; and the state of a session's lock. Pure.

It shows every node with its status, the people the session waits for, and its end. Times of open steps are points in
time ("since 14:02"), not durations: a card is only edited on events, and a duration would be wrong a minute later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from hashlib import sha256
from typing import NamedTuple

from bot.faces.marks import EMOJI, LISTENING, mark_of
from bot.rendering.blocks import (
    MOST_BLOCKS,
    MOST_TASKS,
    MOST_TEXT,
    MOST_UNITS,
    Rendered,
    actions,
    button,
    context,
    fit,
    header,
    lacking,
    plan_block,
    rendered,
    section,
    size,
    small,
    with_id,
    words,
)
from bot.rendering.blocks import sections as lines_as_sections
from bot.rendering.clocks import out_of_reach_words
from bot.rendering.flow import WITHOUT_EFFECT, latest_visits, place_of
from bot.rendering.nested import Waits, asks_for, node_lines, open_prompts, progress, wait_words
from bot.rendering.text import as_code, cut, date, one_line, person, safe, shortened, waiting_on
from engine.decide import limits
from engine.decide.outages import waited_out
from engine.flow import Flow
from engine.journal.phases import in_words
from engine.journal.queries import agent_of, ended_at, is_rejected, is_rejection, verdict_and_reason
from engine.journal.state import State
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.counting import elapsed, ordinal, plural
from engine.language.credentials import without_credentials
from engine.nodes.types.spec import Meter

AS_OF = "as_of"
"""The id of the block that says when a card was drawn."""
CANCEL = "sayso:cancel"
"""Action of the button that ends a session; its value is the session's id."""

_WHOLE = 40
"""Up to so many nodes each has its line."""
_AHEAD, _NEXT = 8, 1
_BEHIND = 20
_INPUTS = 12

_WORDS = {"completed": "done", "rejected": "rejected", "failed": "failed", "skipped": "skipped"}


def card_key(session_id: str) -> str:
    """The outbox key of a session's card."""
    return f"card:{session_id}"


def card(
    state: State,
    flow: Flow,
    now: str,
    *,
    names: Mapping[str, str] | None = None,
    behind: Behind | None = None,
    meters: Mapping[str, Meter] | None = None,
    lacks: Sequence[str] = (),
    folded: bool = False,
    room: str | None = None,
) -> Rendered:
    """Return the current card; `folded` reduces it beside a question that is above it. `names` are the known Slack ids
    by e-mail address and `@group`; `behind` is the session ahead in the queue for its lock; `meters` is the progress of
    running nodes, by path; `lacks` are resources that later steps miss here; `room` is the address
    of the control room, if it has one."""
    key = card_key(state.session_id)
    status = _status(state, flow, names or {}, behind)
    icon = status.split(" ", 1)[0]
    title = f"{icon} {flow.name}"
    head = [header(title, key), section(status, most=900)]
    head += [] if folded else [context(_origin(state, room), most=600)]
    inputs = _inputs(state.inputs if state.inputs is not None else state.given)
    if inputs:
        head.append(small(inputs, most=1_500))
    head += lacking(lacks)
    if state.limits:
        went_on = one_line(", ".join(map(limits.told, state.limits)), 300)
        head.append(small(f"🔁 Continued past a limit: {went_on}", most=600))
    as_of = with_id(context(f"As of {date(now, '{time_secs}')}", most=300), AS_OF)
    tail = [] if state.ended or folded else [as_of]
    if state.phase in ("running", "waiting", "pausing", "held", "unreachable"):
        confirm = {
            "title": words("Cancel this run?"),
            "text": words("Finished steps are not undone. Nothing more starts."),
            "confirm": words("Cancel run"),
            "deny": words("Keep going"),
            "style": "danger",
        }
        cancel = {**button("Cancel", CANCEL, state.session_id), "confirm": confirm}
        tail.append(actions([cancel]))
    lines = _lines(state, flow, names or {}, meters or {}, whole=0 if folded else _WHOLE)
    begun = latest_visits(state)
    over = sum(begun[node.id] not in state.active for node in flow.nodes if node.id in begun)
    far = f"{over} of {plural(len(flow.nodes), 'step')}"
    steps = context("\n".join(lines), most=1_500) if folded and lines else plan_block(far, lines)
    blocks = [*head, steps, *tail]
    if not lines or len(lines) > MOST_TASKS or size(blocks) > MOST_UNITS:
        blocks = fit(head, lines_as_sections(lines), tail)
    return rendered(f"{safe(one_line(flow.name, 80))}: {status}", blocks, key)


def with_question(card: Rendered, question: Rendered, *, is_open: bool) -> Rendered | None:
    """The card and the question with which its session opened, as one message; None where that is too much for one."""
    # The question last: a phone shows the end of a message that is longer than its screen.
    blocks = [*card.blocks, {"type": "divider"}, *question.blocks]
    if len(blocks) > MOST_BLOCKS or size(blocks) > MOST_UNITS:
        return None
    first, second = (question, card) if is_open else (card, question)
    text = cut(f"{first.text}\n{second.text}", MOST_TEXT)
    return Rendered(text, blocks, card.metadata, question.plain)


def look_of(message: Rendered) -> str:
    """Return a digest of how a message looks, without the time at which a card was drawn."""
    blocks = [block for block in message.blocks if block.get("block_id") != AS_OF]
    return sha256(encode([message.text, blocks])).hexdigest()[:32]


# --- the top -----------------------------------------------------------------------------------------------


def _status(state: State, flow: Flow, names: Mapping[str, str], behind: Behind | None) -> str:
    """The state in one short line: it must say everything on a phone."""
    if state.phase == "ended":
        return _ended(state, flow)
    if state.phase == "finalizing":
        return f"{EMOJI['running']} *Ending*"
    if lock := lock_wait(state, behind):
        return (
            f"{EMOJI['paused']} *Paused*{_held(state)} · {lock}"
            if state.phase == "held"
            else f"{EMOJI['waiting']} *Waiting* for {lock}"
        )
    if state.phase == "waiting":
        prompts = open_prompts(state)
        if prompts:
            first = prompts[0]
            more = f" · {len(prompts) - 1} more" if len(prompts) > 1 else ""
            return f"{EMOJI['waiting']} *Waiting* for {waiting_on(first, state.actor, names)} · {asks_for(state, first, flow)}{more}"
        timers = sorted(
            (timer.due_at, timer.purpose, timer.path or "")
            for timer in state.timers.values()
            if timer.prompt_id is None
        )
        if not timers:
            return f"{EMOJI['waiting']} *Waiting*"
        if waited_out(state.nodes.get(timers[0][2])):
            next_try = date(timers[0][0], "{time_secs}")
            return f"{EMOJI['waiting']} *Waiting* for the provider, next try at {next_try} · write here to retry now"
        if timers[0][1] == "followUp":
            return f"{LISTENING} *Listening* for a reply here until {date(timers[0][0])} · `done` ends it"
        again = " to try again" if timers[0][1] == "retry" else ""
        return f"{EMOJI['waiting']} *Waiting*{again} until {date(timers[0][0])}"
    if state.phase == "pausing":
        return f"{EMOJI['paused']} *Pausing*{_pausing(state, flow)}"
    if state.phase == "held":
        return f"{EMOJI['paused']} *Paused*{_held(state)}{_open(state, flow)}"
    if state.phase == "unreachable":
        return f"{EMOJI['out of reach']} *Out of reach*: {safe(out_of_reach_words(state.pause_reason))}{_open(state, flow)}"
    begun = latest_visits(state)
    finished = sum(begun[node.id] not in state.active for node in flow.nodes if node.id in begun)
    now = [path for path in state.containers if "/" not in path]
    inside = f" · {progress(state, flow, now[0])}" if len(now) == 1 else ""
    return f"{EMOJI['running']} *Running* · step {min(finished + 1, len(flow.nodes))} of {len(flow.nodes)}{inside}"


def _pausing(state: State, flow: Flow) -> str:
    """Return the nodes that were told to leave and still run."""
    running = [place_of(state, flow, path) for path in sorted(state.launched)]
    more = f" and {len(running) - 3} more" if len(running) > 3 else ""
    return f" · when {', '.join(running[:3])}{more} ends" if running else ""


def _held(state: State) -> str:
    return f" · {safe(one_line(state.pause_reason, 200))}" if state.pause_reason else ""


def _open(state: State, flow: Flow) -> str:
    """Return the number of open questions of a session that is not running."""
    return f" · {plural(len(state.open_prompts), 'open question')}" if state.open_prompts else ""


def _end_and_reason(state: State) -> tuple[str, str]:
    """The words for an end, and why it was so; the reason may be empty."""
    word = in_words(state.outcome or "failed").capitalize()
    if is_rejection(state.error):
        said, reason = verdict_and_reason(state.error)
        return f"R{safe(one_line(said, 200))[1:]}", reason[:1].upper() + reason[1:]
    if state.outcome == "failed" and state.error:
        return word, str(state.error.get("message") or state.error.get("type"))
    return word, ""


def _ended(state: State, flow: Flow) -> str:
    word, reason = _end_and_reason(state)
    took = elapsed(timestamps.seconds_between(state.created_at, state.updated_at))
    after = "in" if state.outcome == "complete" else "after"
    end = ended_at(state)
    parts = [
        f"{mark_of(state).emoji} *{word}* {after} {safe(took)}"
        + (f", at `{safe(end.node_id)}`" if end else "")
    ]
    counted = Counter(
        "rejected" if is_rejected(run) else run.status for path, run in state.nodes.items() if "/" not in path
    )
    parts += [f"{counted[status]} {word}" for status, word in _WORDS.items() if counted[status]]
    unknown = sum(1 for path in state.active if state.nodes[path].type not in WITHOUT_EFFECT)
    if unknown:
        parts.append(f"{unknown} unknown")
    begun = latest_visits(state)
    never = sum(1 for node in flow.nodes if node.id not in begun)
    if never:
        parts.append(f"{never} not run")
    line = " · ".join(parts)
    return f"{line}\n{safe(one_line(reason, 200))}" if reason else line


def _origin(state: State, room: str | None) -> str:
    revision = f" · flows at `{safe(shortened(state.flow_revision))}`" if state.flow_revision else ""
    page = f" · <{room}sessions/{state.session_id}|Open in the control room>" if room else ""
    return f"Started by {person(state.actor)} · {date(state.created_at)} · `{safe(state.session_id)}`{revision}{page}"


def _inputs(values: Mapping[str, Json]) -> str:
    given = [(name, value) for name, value in values.items() if value != ""]
    listed = [f"{name}: {_value(value)}" for name, value in given[:_INPUTS]]
    more = len(given) - len(listed)
    return "\n".join(listed + ([f"… and {more} more"] if more else []))


def _value(value: Json) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return one_line(without_credentials(text), 100)


# --- the nodes ---------------------------------------------------------------------------------------------


def _lines(
    state: State, flow: Flow, names: Mapping[str, str], meters: Mapping[str, Meter], *, whole: int = _WHOLE
) -> Sequence[str]:
    """Return a line for each node, in the flow's order, with the content of containers below them; open questions for
    inputs come first. More than `whole` nodes are grouped."""
    waits = Waits.of(state, flow, names)._replace(meters=meters)
    asked_inputs = [
        f"{EMOJI['waiting']} {asks_for(state, prompt, flow)} · {wait_words(prompt, state, names)}"
        for prompt in open_prompts(state)
        if prompt.path not in state.nodes and agent_of(state, prompt.path) is None
    ]
    begun = latest_visits(state)
    paths = [begun.get(node.id, node.id) for node in flow.nodes]
    known = set(paths)
    paths += [
        path for path in state.nodes if ("/" not in path.removeprefix("finally/")) and path not in known
    ]
    # Work outside of the shown containers: `finally`, for example.
    shown = {*paths, *state.containers}
    paths += [path for path in state.active if "/" in path and not _is_inside(path, shown)]

    def lines(path: str) -> list[str]:
        return node_lines(waits, path)

    if len(paths) <= whole:
        return [*asked_inputs, *(line for path in paths for line in lines(path))]
    return [*asked_inputs, *_grouped(state, paths, lines, _AHEAD if whole else _NEXT)]


def _is_inside(path: str, containers: Set[str]) -> bool:
    """True if a node is inside one of these, at any depth."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in containers or path.rpartition("[")[0] in containers:
            return True
    return False


def _grouped(
    state: State, paths: list[str], lines_of: Callable[[str], list[str]], most_ahead: int
) -> list[str]:
    """Group many nodes: finished ones become a count; failed, running and next ones keep their lines."""
    lines: list[str] = []
    behind = [path for path in paths if path in state.nodes and path not in state.active]
    broken = [
        path for path in behind if state.nodes[path].status == "failed" or is_rejected(state.nodes[path])
    ]
    quiet = [path for path in behind if path not in broken]
    counted = Counter(state.nodes[path].status for path in quiet)
    if quiet:
        lines.append(" · ".join(f"{EMOJI[key]} {number} {_WORDS[key]}" for key, number in counted.items()))
    now = [path for path in paths if path in state.active]
    ahead = [path for path in paths if path not in state.nodes]
    for some, most, what in (
        (broken, _BEHIND, "failed"),
        (now, _BEHIND, "running"),
        (ahead, most_ahead, "to come"),
    ):
        lines += [line for path in some[:most] for line in lines_of(path)]
        if len(some) > most:
            lines.append(
                f"… {len(some) - most:,} more {'not run' if state.ended and some is ahead else what}"
            )
    return lines


# --- locks -------------------------------------------------------------------------------------------------


class Behind(NamedTuple):
    """Position behind the first session in the queue for a lock: that session, and the own place, from 1. `link` leads
    to the thread of the first one, if it has one."""

    holder: str
    place: int
    link: str | None = None


def lock_wait(state: State, behind: Behind | None) -> str:
    """Describe a wait for a lock, as mrkdwn: `lock deploy-x, held by session-1 · 2nd in the queue`; "" if it does not
    wait for a lock."""
    if state.lock is None or not limits.pending(state):
        return ""
    name = f"lock {as_code(state.lock.name)}"
    if behind is None:
        return name
    where = f" (<{behind.link}|its thread>)" if behind.link else ""
    return f"{name}, held by `{safe(behind.holder)}`{where} · {ordinal(behind.place)} in the queue"


def lock_fact(state: State, behind: Behind | None) -> str:
    """The same for a terminal, or which lock the session holds; the caller makes its text harmless."""
    if state.lock is None or state.ended:
        return ""
    if not limits.pending(state):
        return f"holds {state.lock.name}"
    if behind is None:
        return f"waits for {state.lock.name}"
    place = ordinal(behind.place)
    return f"waits for {state.lock.name}, held by {behind.holder}; {place} in the queue"


def holder_thread(error: dict[str, Json] | None) -> str | None:
    """The thread key of the session that held the lock when this error refused another one."""
    held_by = (error or {}).get("heldBy")
    return held_by.get("threadKey") if isinstance(held_by, dict) else None
