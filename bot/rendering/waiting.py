"""A question outside of its thread, with its buttons: on the Home. Pure.

It is drawn from the question's row, so all places agree. Its buttons carry the question's ids and its thread, and work
the same as there. A question is shown so only to people who can read its thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from bot.rendering import approvals
from bot.rendering.blocks import (
    LABEL,
    Block,
    about,
    actions,
    button,
    field_block,
    modal,
    option,
    section,
)
from bot.rendering.marks import EMOJI
from bot.rendering.text import (
    as_code,
    asked,
    clip,
    cut,
    date,
    in_full,
    message_line,
    numbered,
    one_line,
    person,
    plain,
    safe,
    shown,
    whom,
)
from engine.decide.question import ANSWER as ANSWERED
from engine.forms import value_text
from engine.forms.question import Question
from engine.language.codec import Json
from prompt_state.question_row import PromptState

ANSWER, REJECT, TOGETHER = "answer", "reject", "together"
"""The views in which a question is answered, or rejected with a reason, and alike ones are decided together."""
DECISION, REASON, ONE = "decision", "reason", "one:"
"""Names of the inputs for a decision, its reason, and one of several questions."""
MOST_TOGETHER = 40
MOST_REASON = 3_000
_MOST_BUTTONS = 5
_VALUES, _RUNS, _WHOLE = 6, 400, 1_200
_TICKED = 800
"""Units of each of many questions in one view: Slack takes 250,000 bytes, in which a letter may be six."""


class Waiting(Struct, frozen=True):
    """A waiting question, with the name of its flow and the address of its message."""

    prompt: PromptState
    flow_name: str
    link: str | None = None

    @property
    def alike(self) -> tuple[object, ...]:
        """Return the common part of similar questions: the step, and the possible decisions. Those of one step of a
        frequent flow, or of many items, differ only in their text."""
        prompt = self.prompt
        labels = tuple(option["label"] for option in prompt.options)
        return (self.flow_name, prompt.node_id, prompt.kind, labels, prompt.require_reason)


def alike(entries: Sequence[Waiting]) -> dict[str, list[Waiting]]:
    """Return approvals that can be decided together, by the id of the first of them."""
    found: dict[tuple[object, ...], list[Waiting]] = {}
    for entry in entries:
        if entry.prompt.is_approval:
            found.setdefault(entry.alike, []).append(entry)
    return {group[0].prompt.prompt_id: group for group in found.values() if len(group) > 1}


def question_blocks(entry: Waiting, *, most: int = 600) -> list[Block]:
    """A question with its buttons: two blocks."""
    prompt = entry.prompt
    whole = in_full((str(each["label"]) for each in prompt.options), LABEL)
    told = [cut(safe("\n".join(whole)), _WHOLE)] if whole else []
    text = "\n".join([_head(entry), cut(shown(prompt.message), most), *told, *_proposed(prompt)])
    block: Block = {**section(text), "block_id": f"asked:{prompt.prompt_id}"}
    many = len(prompt.options) > _MOST_BUTTONS
    made = [] if many else [_option(prompt, index) for index in range(len(prompt.options))]
    if not prompt.is_approval and prompt.fields:
        made.append(_opens("Fill in…", "form", prompt, None if made else "primary"))
    elif many or prompt.accepts_text:
        made.append(_opens("Answer…", ANSWER, prompt, None if made else "primary"))
    menu = [option(label, f"{kind}|{prompt.prompt_id}|{prompt.nonce}") for label, kind in _rare(prompt)]
    buttons = [*made, {"type": "overflow", "action_id": f"{approvals.OPEN}more", "options": menu}]
    return [block, {**actions(buttons), "block_id": f"press:{prompt.prompt_id}"}]


def waits_line(entry: Waiting) -> str:
    """Return a question that waits for others, with their names and its time."""
    prompt = entry.prompt
    people = whom(asked(prompt, requester(prompt)), requester(prompt), call=False)
    return f"{EMOJI['waiting']} *{linked(entry)}* waits for {people}{_since(prompt)}: {safe(message_line(prompt.message, 120))}"


def requester(prompt: PromptState) -> dict[str, Json]:
    """Return the person who started the session, as an actor's record."""
    return {"id": prompt.requester_id, "name": prompt.requester_name}


def linked(entry: Waiting) -> str:
    """The flow's name, with a link to the question."""
    words = safe(one_line(entry.flow_name, 80))
    return f"<{entry.link}|{words}>" if entry.link else words


def _head(entry: Waiting) -> str:
    prompt = entry.prompt
    by = f" · {person(requester(prompt))} waits" if prompt.requester_id else ""
    people = asked(prompt, requester(prompt))
    beside = f" · asked of {whom(people, requester(prompt), call=False)}" if len(people) > 1 else ""
    until = f" · until {date(prompt.deadline)}" if prompt.deadline else ""
    votes = f" · {len(prompt.votes)} of {prompt.required} voted" if prompt.required > 1 else ""
    return f"*{prompt.rules.icon} {prompt.rules.label}* · *{linked(entry)}*{by}{_since(prompt)}{beside}{until}{votes}"


def _since(prompt: PromptState) -> str:
    ts = prompt.message_ts
    return f" since <!date^{int(float(ts))}^{{date_short_pretty}} at {{time}}|{ts}>" if ts else ""


def _proposed(prompt: PromptState) -> list[str]:
    """Return an approval's proposal and action, as far as they fit; a button shows everything."""
    if not prompt.is_approval:
        return []
    lines = [f"• {line}" for line in _value_lines(prompt)]
    runs = str((prompt.covers or {}).get("text") or "")
    if runs:
        lines.append(f"*Will run:* {as_code(one_line(runs, _RUNS))}")
    return lines


def _value_lines(prompt: PromptState) -> list[str]:
    """Return the first values of an approval's form."""
    return [
        f"{safe(one_line(str(field.get('title') or field['name']), 60))}: "
        f"{safe(one_line(value_text(field, prompt.values.get(field['name'])), 120))}"
        for field in ([] if approvals.is_as_asked(prompt) else prompt.fields[:_VALUES])
    ]


# --- buttons -----------------------------------------------------------------------------------------------


def pressed_value(prompt: PromptState, index: int) -> str:
    """Return the value of a button outside of the thread: ids, the index, and the thread."""
    return f"{prompt.prompt_id}|{prompt.nonce}|{index}|{prompt.channel}|{prompt.thread_ts}"


def _rare(prompt: PromptState) -> Iterator[tuple[str, str]]:
    """Yield the entries of the menu of rarely used actions."""
    if prompt.covers or (prompt.is_approval and prompt.fields):
        yield "See all of it", approvals.WHOLE
    if prompt.is_approval and prompt.editable:
        yield "Edit…", "edit"
    if prompt.is_approval and not prompt.require_reason:
        yield "Reject with a reason…", "reject"
    yield "Hand over to somebody else…", "hand"


def _option(prompt: PromptState, index: int) -> Block:
    chosen = prompt.options[index]
    label, style = str(chosen["label"]), chosen["style"]
    words = approvals.words_view(prompt, chosen)
    if words is not None:
        return _opens(f"{numbered(index, label, LABEL - 1).rstrip('…')}…", words, prompt, style)
    if chosen.get("asks"):
        value = f"{prompt.prompt_id}|{prompt.nonce}|{index}"
        told = f"{numbered(index, label, LABEL - 1).rstrip('…')}…"
        return button(told, f"{approvals.OPEN}{approvals.TOLD}:{index}", value, style)
    return button(numbered(index, label, LABEL), f"sayso:option:{index}", pressed_value(prompt, index), style)


def _opens(label: str, kind: str, prompt: PromptState, style: str | None = None) -> Block:
    return button(label, f"{approvals.OPEN}{kind}", f"{prompt.prompt_id}|{prompt.nonce}", style)


# --- views -------------------------------------------------------------------------------------------------


def decision_view(
    kind: str, prompt: Question, meta: dict[str, Json], *, index: int | None = None, given: str = ""
) -> dict[str, object]:
    """Return a question with an input for the text of a decision. By `kind` it is the reason of a rejection, a result
    in place of a tool's (`given` is an earlier one), the text for the choice at `index`, or the answer itself."""
    blocks, label, optional, hint = [about(prompt.message)], "Your answer", False, None
    title, submit = str(prompt.node_name or "Answer"), "Answer"
    element: Block = {"type": "plain_text_input", "action_id": REASON, "multiline": True}
    element["max_length"] = MOST_REASON
    if kind != ANSWER:
        element["focus_on_load"] = True
    if kind == REJECT:
        labels = [str(one["label"]) for one in prompt.options if one.get("value") == REJECT]
        title = submit = next(iter(labels), "Reject")
        label, optional, hint = "Why?", not prompt.require_reason, "Everybody in the thread can read it."
    elif kind == approvals.IN_PLACE:
        blocks += approvals.whole_blocks(str((prompt.covers or {}).get("text") or ""))
        title, label = "Answer", "Result, in place of the tool's"
        hint = "It is what the agent is told; the tool does not run. Everybody in the thread can read it."
        element |= {"initial_value": given[:MOST_REASON]} if given else {}
    elif index is not None:
        chosen = prompt.options[index]
        asks, title = chosen["asks"], str(chosen["label"])
        label, optional, submit = asks["label"], bool(asks.get("optional")), title
        if asks.get("choices"):
            listed = [option(one, one) for one in asks["choices"]]
            element = {"type": "static_select", "action_id": REASON, "options": listed}
    elif prompt.options:
        menu = [
            option(numbered(number, str(one["label"]), LABEL), str(number))
            for number, one in enumerate(prompt.options[:100])
        ]
        select: Block = {"type": "static_select", "action_id": DECISION, "options": menu}
        blocks.append(field_block(DECISION, "One of these", select, optional=prompt.accepts_text))
        label, optional = "Or in other words", True
    if kind != ANSWER or prompt.accepts_text:
        blocks.append(field_block(REASON, label, element, optional=optional, hint=hint))
    return modal(title, blocks, kind=kind, meta=meta, submit=submit)


def together_view(group: Sequence[Waiting], user: str) -> dict[str, object]:
    """Alike approvals, each with its words and a tick: one decision for those that are ticked."""
    first = group[0].prompt
    some = group[:MOST_TOGETHER]
    head = (
        f"*{len(some)} approvals* of *{safe(one_line(group[0].flow_name, 80))}*. Each that is ticked is decided and "
        "recorded by itself, in its own thread."
    )
    chosen = [one for one in first.options if one["value"] != ANSWERED]
    # Slack takes no empty text in a menu.
    choices = [option(one_line(str(one["label"]), LABEL) or "–", str(one["value"])) for one in chosen]
    radio: Block = {"type": "radio_buttons", "action_id": DECISION, "options": choices}
    element: Block = {"type": "plain_text_input", "action_id": REASON, "multiline": True}
    element |= {"max_length": MOST_REASON}
    blocks = [section(head), field_block(DECISION, "Decision", radio)]
    blocks += [_ticked(entry.prompt) for entry in some]
    blocks.append(
        field_block(REASON, "Why?", element, optional=True, hint="Everybody in the threads can read it.")
    )
    return modal("Decide together", blocks, kind=TOGETHER, meta={"user": user}, submit="Decide")


def _ticked(prompt: PromptState) -> Block:
    tick = option("Decide this one", f"{prompt.prompt_id}|{prompt.nonce}")
    element: Block = {"type": "checkboxes", "action_id": f"{ONE}{prompt.prompt_id}", "options": [tick]}
    element["initial_options"] = [tick]
    runs = str((prompt.covers or {}).get("text") or "")
    words = " · ".join(
        [plain(prompt.message), *_value_lines(prompt), *([f"will run: {runs}"] if runs else [])]
    )
    return field_block(f"{ONE}{prompt.prompt_id}", clip(words, _TICKED), element, optional=True)
