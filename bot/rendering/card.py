"""The card of a run as a Slack message, edited in place, and how a message looks. It writes the face (`bot.faces.run`)
within Slack's limits. Pure."""

from __future__ import annotations

from hashlib import sha256

from bot.faces.run import Run
from bot.rendering import blocks as kit
from bot.rendering.blocks import Rendered, actions, button, context, section, size, words
from bot.rendering.text import cut, date, mrkdwn, one_line, safe
from engine.language.codec import encode

AS_OF = "as_of"
"""The id of the block that says when a card was drawn."""
CANCEL = "sayso:cancel"
"""Action of the button that ends a session; its value is the session's id."""


def card_key(session_id: str) -> str:
    """The outbox key of a session's card."""
    return f"card:{session_id}"


def card(said: Run, now: str) -> Rendered:
    """Return a run's card as it is drawn at this moment."""
    key, status = card_key(said.session_id), f"{said.sign} {mrkdwn(said.lead)}"
    head = [kit.header(f"{said.sign} {said.flow}", key), section(status, most=900)]
    head += [] if said.folded else [context(mrkdwn(said.origin), most=600)]
    head += [kit.small(said.inputs, most=1_500)] if said.inputs else []
    head += kit.lacking(said.lacks)
    head += [kit.small(f"🔁 Continued past a limit: {said.limits}", most=600)] if said.limits else []
    as_of = kit.with_id(context(f"As of {date(now, '{time_secs}')}", most=300), AS_OF)
    tail = [as_of] if said.open and not said.folded else []
    if said.can_cancel:
        confirm = {
            "title": words("Cancel this run?"),
            "text": words("Finished steps are not undone. Nothing more starts."),
            "confirm": words("Cancel run"),
            "deny": words("Keep going"),
            "style": "danger",
        }
        tail.append(actions([{**button("Cancel", CANCEL, said.session_id), "confirm": confirm}]))
    lines = [kit.step_line(step) for step in said.steps]
    plan = kit.plan_block(said.far, said.steps)
    steps = context("\n".join(lines), most=1_500) if said.folded and lines else plan
    blocks = [*head, steps, *tail]
    if not lines or len(lines) > kit.MOST_TASKS or size(blocks) > kit.MOST_UNITS:
        blocks = kit.fit(head, kit.sections(lines), tail)
    return kit.rendered(f"{safe(one_line(said.flow, 80))}: {status}", blocks, key)


def with_question(card: Rendered, question: Rendered, *, is_open: bool) -> Rendered | None:
    """The card and the question with which its session opened, as one message; None where that is too much for one."""
    # The question last: a phone shows the end of a message that is longer than its screen.
    blocks = [*card.blocks, {"type": "divider"}, *question.blocks]
    if len(blocks) > kit.MOST_BLOCKS or size(blocks) > kit.MOST_UNITS:
        return None
    first, second = (question, card) if is_open else (card, question)
    text = cut(f"{first.text}\n{second.text}", kit.MOST_TEXT)
    return Rendered(text, blocks, card.metadata, question.plain)


def look_of(message: Rendered) -> str:
    """Return a digest of how a message looks, without the time at which a card was drawn."""
    blocks = [block for block in message.blocks if block.get("block_id") != AS_OF]
    return sha256(encode([message.text, blocks])).hexdigest()[:32]
