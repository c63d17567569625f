"""Which question did you answer? The open questions as buttons below the words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.rendering.blocks import Block, actions, button
from bot.rendering.notes import message_blocks
from bot.rendering.text import one_line, plain
from prompt_state.question_row import PromptState

MENU = "sayso:menu:"
_MOST = 25


def menu_blocks(text: str, asked: Sequence[PromptState], ts: str, author: str) -> list[Block]:
    """The words (mrkdwn) and a button for each question. A button carries ids: the question, the message that was
    written (`ts`), and its author; what was written is read again where it was stored."""
    buttons = [
        button(_label(prompt), f"{MENU}{n}", f"{prompt.prompt_id}|{prompt.nonce}|{ts}|{author}")
        for n, prompt in enumerate(asked[:_MOST])
    ]
    return [*message_blocks(text), actions(buttons)]


def _label(prompt: PromptState) -> str:
    number = f"#{prompt.number} " if prompt.number else ""
    return number + one_line(plain(prompt.message), 60)
