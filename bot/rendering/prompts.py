"""A question as a Slack message: open, with its buttons; closed, with the answer, its author and time. It writes the face
(`bot.faces`) within Slack's limits. Pure.

A question's text stays in its own thread: other channels and direct messages only get its place, and a link.
"""

from __future__ import annotations

from msgspec.structs import replace

from bot.faces.places import around, label_of
from bot.faces.question import Control, Face, Scene, face
from bot.faces.words import Ids
from bot.rendering import approvals
from bot.rendering import blocks as kit
from bot.rendering.blocks import LABEL, Block, Rendered, actions, button, context, section, size
from bot.rendering.forms import form_about, form_controls, form_values
from bot.rendering.grants import allowed_blocks
from bot.rendering.text import in_full, mrkdwn, numbered, one_line, safe, shown, weight
from engine.decide.prompt_timers import goto_of
from engine.decide.question import summary
from engine.flow import Flow
from engine.journal.queries import agent_of
from engine.journal.state import Asked, State
from engine.language.counting import plural
from prompt_state.question_row import own_words

_BUTTONS = 25
_SELECT = 100
_LEAST = 8
"""Units of each label that are shown, however many options there are."""
_COVERED_ROOM = 1_000
"""Units reserved for the action that an approval covers."""
_LEAST_COVERED = 600
"""Units of the covered action that are always shown, however long the question is."""
_REQUEST_ROOM = 3_000
"""Units of a call that an agent wants to make: people read it on a phone, and a button shows the rest."""
_MESSAGE_ROOM = 1_200
"""Units kept free for the words of the question, however many options there are."""
_MORE = {
    "whole": "Show in full",
    "always": "Always allow…",
    "edit": "Edit…",
    "reject": "Reject with a reason…",
    "hand": "Hand over to someone else…",
}
"""Entries of the menu of rarely used actions, by the view that each opens."""


def prompt_key(prompt_id: str, reposts: int = 0) -> str:
    """The outbox key of a prompt's message; a message that was deleted is followed by one with another key."""
    return f"prompt:{prompt_id}~{reposts}" if reposts else f"prompt:{prompt_id}"


def message_of(key: str | None) -> tuple[str, str] | None:
    """Return the channel and ts of the message with this inbox key; None if it was not a message."""
    kind, _, where = (key or "").partition(":")
    if kind != "message" or where.count(":") != 2:
        return None
    _, channel, ts = where.split(":")
    return channel, ts


def session_face(
    state: State, prompt: Asked, flow: Flow | None, ids: Ids = None, now: str | None = None, reason: str = ""
) -> Face:
    """The face of a question in its session, whose flow may be unreadable here; see `Scene` for the rest."""
    told = Scene(requester=state.actor, flow=state.flow_name, ids=ids, now=now, reason=reason)
    if flow is None:
        return face(prompt, told)
    covers = prompt.covers or {}
    scene = replace(
        told,
        flow=flow.name,
        outside=() if prompt.input else around(state, flow, prompt.path),
        node=label_of(flow, prompt.path),
        covered=label_of(flow, str(covers.get("path") or covers.get("nodeId") or "")),
        goto=label_of(flow, goto_of(prompt) or ""),
        of_agent=prompt.kind == "ask" and agent_of(state, prompt.path) is not None,
        below=_stands_below(prompt),
    )
    return face(prompt, scene)


def question_message(
    state: State, prompt: Asked, flow: Flow, ids: Ids = None, now: str | None = None, reason: str = ""
) -> Rendered:
    """A question, open or closed. `ids` are Slack's by e-mail address and `@group`. `now` is when it is shown, which is
    when its clock starts; without it a deadline that is not set yet is not shown. `reason` is why it was withdrawn."""
    said = session_face(state, prompt, flow, ids, now, reason)
    key = prompt_key(prompt.prompt_id, prompt.reposts)
    lead, message = mrkdwn(said.lead), shown(prompt.message)
    head, place = section(lead, key, most=900), context(mrkdwn(said.place))
    votes = [f"🗳️ {mrkdwn(line)}" if line is said.votes[0] else mrkdwn(line) for line in said.votes]
    lines = [*votes, *([mrkdwn(said.handed)] if said.handed else [])]
    under = [*approvals.value_blocks(said), *kit.sections(lines)]
    controls: list[Block] = []
    if prompt.open:
        head["accessory"] = more_menu(said, "always", "reject", "hand")
        rules = list(map(mrkdwn, (*said.rules, *said.clocks)))
        hint = [_reply_hint(said)] if prompt.accepts_text or prompt.accepts_files else []
        tail = [*hint, *([context(*rules)] if rules else []), place]
        # An approval's proposal is shown with its values.
        under = [*(form_about(prompt) if "form" in said.ways else []), *under]
        covers = _COVERED_ROOM if prompt.covers else 0
        room = kit.MOST_UNITS - size([head]) - size(tail) - size(under) - covers - _MESSAGE_ROOM
        controls = buttons_of(said, room)
        # Instructions for clients without blocks, and so without buttons.
        typed = "Reply here, or use" if hint else "If you see no buttons, use"
        text, hidden = lead, f"{typed} `sayso prompts answer {prompt.prompt_id}`."
    else:
        outcome, answer = mrkdwn(said.outcome), _answer(said)
        tail = [section(outcome, most=1_500), *answer, *allowed_blocks(state, prompt), place]
        given = one_line(summary(prompt), 300) if answer else ""
        text, hidden = f"{outcome} {safe(given)}".rstrip(), ""
    covered = _covered(said, message, [head, *under, *controls, *tail])
    blocks = kit.fit_text([head], message, [*under, *covered, *controls, *tail])
    return kit.rendered(f"{text}\n{message}", blocks, key, plain=hidden)


def _covered(said: Face, message: str, others: list[Block]) -> list[Block]:
    """Return the covered action: all of it if the question leaves room, and most of the room otherwise."""
    if not said.covers:
        return []
    room, head = kit.MOST_UNITS - size(others) - _MESSAGE_ROOM, context(mrkdwn(said.covers))
    text = shown(str((said.question.covers or {}).get("text") or ""))
    wanted = min(size([approvals.preformatted(text)]) + 600, room * 2 // 3)
    left = max(wanted, room - weight(message))
    left = (min(left, _REQUEST_ROOM) if said.question.is_request else left) - size([head])
    return [head, *approvals.runs_blocks(said.question, left, least=_LEAST_COVERED)]


# --- parts -------------------------------------------------------------------------------------------------


def more_menu(said: Face, *ways: str) -> Block:
    """Return a menu of those rarely used actions that a question has."""
    value = approvals.handle(said.question)
    entries = [(way, f"{way}|{value}") for way in said.ways]
    entries += [
        ("reject", f"answer|{value}|{each.index}") for each in said.controls if each.press and each.asks
    ]
    values = dict(entries)
    options = [kit.option(_MORE[way], values[way]) for way in ways if way in values]
    return {"type": "overflow", "action_id": f"{approvals.OPEN}more", "options": options}


def _reply_hint(said: Face) -> Block:
    prompt = said.question
    number = prompt.number
    several = f" (if several questions are open: `#{int(number)}: your answer`)" if number else ""
    beside = f" (if several questions are open, add `#{int(number)}:`)" if number else ""
    if prompt.options and not prompt.accepts_files:
        return section(f"↩️ Choose one, or *reply in this thread* with your own answer{several}.", most=300)
    if not prompt.accepts_files:
        return section(f"↩️ *Reply in this thread*{several}.", most=300)
    words = "*Reply in this thread* with text or" if prompt.accepts_text else "*Add to this thread:*"
    return section(f"📎 {words} {said.files}{several if prompt.accepts_text else beside}.", most=300)


def buttons_of(said: Face, room: int, *, edit: bool = True) -> list[Block]:
    """Return the controls of an open question, with the button to `edit` it where it can be."""
    prompt = said.question
    if not said.controls:
        return form_controls(prompt.prompt_id, prompt) if prompt.fields else []
    told = kit.sections([safe(line) for line in in_full((each.label for each in said.controls), LABEL)])
    # Omitted text can still be read in the menu, or after the choice.
    told = told if size(told) * 2 <= room else []
    if len(said.controls) > _BUTTONS:
        return [*told, *_select(said, room - size(told))]
    buttons = [control_button(said, control) for control in said.controls]
    if edit and "edit" in said.ways:
        buttons.append(approvals.opens(_MORE["edit"], "edit", prompt))
    if prompt.fills_beside:
        buttons.insert(0, approvals.opens("Fill in…", "form", prompt, "primary"))
    return [*told, actions(buttons)]


def control_button(said: Face, control: Control, place: str = "") -> Block:
    """The button of a choice. Its value are ids and an index, never the option's meaning; outside of the thread with its
    `place`."""
    index, style = control.index, control.style
    value = f"{approvals.handle(said.question)}|{index}"
    if control.press:
        return button(
            numbered(index, control.label, LABEL), f"sayso:option:{index}", f"{value}{place}", style
        )
    label = f"{numbered(index, control.label, LABEL - 1).rstrip('…')}…"
    return button(label, f"{approvals.OPEN}answer:{index}", value, style)


def _select(said: Face, room: int) -> list[Block]:
    """A menu of up to a hundred options. Where even that is too much for one message, the labels get shorter, and then
    the options fewer: those that are not shown can still be typed."""
    labels = [" ".join(shown(each.label).split()) or " " for each in said.controls[:_SELECT]]
    shorter = [(len(labels), most) for most in range(LABEL, _LEAST, -1)]
    fewer = [(count, _LEAST) for count in range(len(labels), 0, -1)]
    value = approvals.handle(said.question)
    for count, most in (*shorter, *fewer):
        listed = [kit.option(numbered(n, labels[n], most), f"{value}|{n}") for n in range(count)]
        made = [actions([kit.select("sayso:option:select", "Choose…", listed)])]
        if size(made) + 200 <= room:
            break
    beyond = plural(len(said.controls) - count, "more option")
    note = context(f"_This message has no room for {beyond}._")
    return [*made, note] if len(said.controls) > count else made


# --- closed ------------------------------------------------------------------------------------------------


def _stands_below(prompt: Asked) -> bool:
    """True if the text of an answer is below its question, as a reply in its thread. A direct message may be an answer
    without being a reply, so there the text is repeated."""
    said, shown_at = message_of(prompt.answer_key), prompt.shown or {}
    if said is None or not own_words(prompt.answer):
        return False
    channel, ts = said
    below = channel == shown_at.get("channel") and float(ts) > float(shown_at["ts"])
    return below and not channel.startswith("D")


def _answer(said: Face) -> list[Block]:
    """Return the answer, as a text without markup, unless it is below. Approvals have it in their outcome."""
    prompt = said.question
    if prompt.status != "answered" or prompt.is_approval or _stands_below(prompt):
        return []
    values = (prompt.answer or {}).get("values")
    if values:
        return form_values(prompt, values)
    return [kit.quoted(summary(prompt), most=1_000)]
