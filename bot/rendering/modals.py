"""Modals, built so that Slack takes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.rendering.blocks import Block, section
from bot.rendering.text import clip, for_reader, one_line, shown
from engine.language.codec import Json, encode


def modal(
    title: str,
    blocks: Sequence[Block],
    *,
    kind: str = "",
    meta: Mapping[str, Json] | None = None,
    submit: str | None = None,
    close: str = "Cancel",
) -> dict[str, Any]:
    """A modal of this kind. `meta` holds ids and nothing else, and comes back with what is submitted."""
    view: dict[str, Any] = {
        "type": "modal",
        "title": _label(title),
        "close": _label(close),
        "blocks": list(blocks),
    }
    if kind:
        view["callback_id"] = f"sayso:{kind}"
    if meta is not None:
        view["private_metadata"] = encode(dict(meta)).decode()
    if submit is not None:
        view["submit"] = _label(submit)
    return view


def words_view(title: str, text: str) -> dict[str, Any]:
    """A modal that says something and asks nothing."""
    return modal(title, [section(for_reader(shown(text)))], close="Close")


def about(message: str) -> Block:
    """What a modal is about: the question of a prompt, as its message shows it."""
    return section(shown(message))


def text_field(
    name: str,
    label: str,
    *,
    optional: bool = False,
    hint: str | None = None,
    multiline: bool = False,
    most: int = 3_000,
) -> Block:
    """An input for a text; `name` is its block and its element."""
    element: Block = {
        "type": "plain_text_input",
        "action_id": name,
        "multiline": multiline,
        "max_length": most,
        "focus_on_load": True,
    }
    return field_block(name, label, element, optional=optional, hint=hint)


def field_block(
    name: str, label: str, element: Block, *, optional: bool = False, hint: str | None = None
) -> Block:
    """An input block around an element."""
    block: Block = {
        "type": "input",
        "block_id": name,
        "label": {"type": "plain_text", "text": clip(" ".join(shown(label).split()), 2_000) or name},
        "element": element,
        "optional": optional,
    }
    if hint:
        block["hint"] = {"type": "plain_text", "text": clip(shown(hint), 2_000)}
    return block


def _label(text: str) -> Block:
    return {"type": "plain_text", "text": one_line(text, 24) or "sayso"}
