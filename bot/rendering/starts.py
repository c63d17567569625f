"""Flows to choose from: a button or a menu entry for each, that opens its inputs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bot.rendering.approvals import OPEN
from bot.rendering.blocks import MOST_UNITS, Block, actions, button, context, fit_text, section, size
from bot.rendering.text import clip, one_line

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
