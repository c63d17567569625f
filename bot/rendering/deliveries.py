"""What a `message` node posts: its blocks, and the files that go with them. Pure.

Everything keeps Slack's limits. What does not fit is shown from its beginning and goes whole into a file; the message
says so. Text and fields are mrkdwn and markdown is Markdown, whose values were made harmless when they were evaluated;
everything else is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from bot.rendering.blocks import (
    MOST_MESSAGE,
    MOST_UNITS,
    Block,
    Rendered,
    aligned,
    context,
    csv_of,
    rendered,
    rows_of,
    section,
    size,
    table_block,
    text_sections,
    with_id,
)
from bot.rendering.text import clip, cut, plain, safe, shown, weight
from engine.language.codec import Json, encode
from engine.language.markup import open_code

MARKDOWN_MOST = 11_800
"""Characters of a markdown block; Slack takes 12,000 in all."""
_TABLE_MOST = 6_000
_FIELDS_MOST = 5_000
_FIELD = 1_900
_IMAGES_MOST = 6_000
_URL_MOST = 3_000
_NOTICES = 700
_URL_SAFE = "/:?&=#%+,;@~!$'()*[]."
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")


@dataclass(frozen=True, slots=True)
class Extra:
    """A file that goes with a message: its content, or where it lies in the session's folder. `alt` is for pictures."""

    name: str | None
    title: str | None = None
    content: str | None = None
    path: str | None = None
    alt: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """What is posted (nothing where there are only files), and what is uploaded."""

    message: Rendered | None
    extras: tuple[Extra, ...] = ()


@dataclass(slots=True)
class _Making:
    room: int
    extras: list[Extra] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def spend(self, blocks: list[Block]) -> list[Block]:
        self.room -= size(blocks) if blocks else 0
        return blocks

    def into_file(self, name: str, content: str, what: str) -> None:
        """The whole of something goes into a file."""
        self.extras.append(Extra(name, content=content))
        self.notices.append(f"_{what} `{name}`, below._")


def delivered(config: Mapping[str, Json], key: str) -> Delivered:
    """The message of this config; `key` lets it be found again in Slack."""
    making = _Making(MOST_UNITS - _NOTICES)
    # What is small comes first to its room: it stands below, and must not be lost to a long text above it.
    images = making.spend(_images(config.get("images") or (), making))
    fields = making.spend(_fields(config.get("fields") or (), making))
    table = making.spend(_table(config.get("table"), making, "text" in config or "markdown" in config))
    markdown = making.spend(_markdown(config.get("markdown"), making))
    text = _text(config.get("text"), making)
    blocks = [*text, *markdown, *fields, *table, *images]
    if making.notices:
        blocks.append(context(*making.notices))
    extras = (*making.extras, *given_files(config))
    if not blocks:
        return Delivered(None, extras)
    blocks[0] = with_id(blocks[0], key)
    return Delivered(rendered(fallback(config), blocks, key), extras)


def fallback(config: Mapping[str, Json]) -> str:
    """The message as mrkdwn without blocks: for notifications, and for where blocks are not taken."""
    parts = [str(config["text"])] if config.get("text") else []
    if config.get("markdown"):
        parts.append(safe(_LINK.sub(r"\1", str(config["markdown"]))))
    parts += [f"*{field['title']}*: {_value(field)}" for field in config.get("fields") or ()]
    table = config.get("table")
    if table:
        columns = [str(name) for name in table["columns"]]
        parts.append(f"```\n{safe(aligned(columns, rows_of(columns, table['rows'])))}\n```")
    parts += [f"🖼️ {safe(image['alt'])}" for image in config.get("images") or () if image.get("url")]
    return "\n".join(parts)


def as_plain(config: Mapping[str, Json]) -> str:
    """The message as a terminal shows it, with the names of its files."""
    where = [f"(to {config['to']})"] if config.get("to") else []
    where += [f"(only for {config['ephemeral_to']})"] if config.get("ephemeral_to") else []
    text = plain(fallback(config))
    names = [extra.name or extra.path or "" for extra in given_files(config)]
    return "\n".join([*where, *([text] if text else []), *(f"📎 {name}" for name in names)])


# --- parts -------------------------------------------------------------------------------------------------


def _text(text: Json, making: _Making) -> list[Block]:
    if not text:
        return []
    made, rest = text_sections(str(text), min(MOST_MESSAGE, making.room))
    if rest:
        making.into_file("message.txt", plain(str(text)), "The whole text is in")
    return made or [section(" ")]


def _markdown(text: Json, making: _Making) -> list[Block]:
    if not text:
        return []
    whole = shown(str(text))
    most = min(MARKDOWN_MOST, making.room - 100)
    if weight(whole) > most:
        making.into_file("message.md", str(text), "The whole text is in")
        whole = _cut_markdown(whole, most - 20)
    return [{"type": "markdown", "text": whole or " "}]


def _cut_markdown(text: str, most: int) -> str:
    """The beginning that fits, up to a line or a word; code that is open there is closed, or left out as a whole."""
    kept = clip(text, most).removesuffix("…")
    line, word = kept.rfind("\n"), kept.rfind(" ")
    kept = kept[:line] if line > most // 2 else kept[:word] if word > most // 2 else kept
    opened = open_code(kept)
    if opened is None:
        return f"{kept}\n…"
    begins, marks = opened
    if "\n" in kept[begins:] and marks.startswith("```"):
        return f"{kept}\n{marks}\n…"
    # Half of a piece of code would show what the whole of it keeps from being a link.
    return f"{kept[:begins]}\n…"


def _fields(fields: Json, making: _Making) -> list[Block]:
    shown_fields: list[Block] = []
    room, whole = min(_FIELDS_MOST, making.room), True
    for one in fields:
        text = f"*{shown(one['title'])}*\n{shown(_value(one))}"
        made = {"type": "mrkdwn", "text": cut(text, _FIELD), "verbatim": True}
        room -= size([made])
        if room < 0:
            whole = False
            break
        whole = whole and weight(text) <= _FIELD
        shown_fields.append(made)
    if not whole:
        lines = (f"{plain(one['title'])}: {plain(_value(one))}\n" for one in fields)
        making.into_file("fields.txt", "".join(lines), "All of it is in")
    return [
        {"type": "section", "fields": shown_fields[at : at + 10]} for at in range(0, len(shown_fields), 10)
    ]


def _value(one: Mapping[str, Json]) -> str:
    value = one["value"]
    return value if isinstance(value, str) else safe(encode(value).decode())


def _table(table: Json, making: _Making, beside: bool) -> list[Block]:
    if not table:
        return []
    columns = [str(name) for name in table["columns"]]
    rows = rows_of(columns, table["rows"])
    block, whole = table_block(columns, rows, min(making.room, _TABLE_MOST if beside else MOST_UNITS))
    if not whole:
        making.into_file("table.csv", csv_of(columns, rows), f"All {len(rows):,} rows are in")
    return [block]


def _images(images: Json, making: _Making) -> list[Block]:
    made = [_image(image) for image in images if image.get("url")]
    fitting: list[Block] = []
    for block in made:
        if len(block["image_url"]) <= _URL_MOST and size([*fitting, block]) <= _IMAGES_MOST:
            fitting.append(block)
    if len(fitting) < len(made):
        making.notices.append(
            f"_{len(made) - len(fitting)} of {len(made)} pictures do not fit and are not shown._"
        )
    return fitting


def _image(image: Mapping[str, Json]) -> Block:
    url = quote(shown(str(image["url"])), safe=_URL_SAFE)
    block: Block = {"type": "image", "image_url": url, "alt_text": _label(image["alt"], 600)}
    if image.get("title"):
        block["title"] = {"type": "plain_text", "text": _label(image["title"], 300), "emoji": False}
    return block


def _label(text: Json, most: int) -> str:
    return clip(shown(str(text)), most) or " "


def given_files(config: Mapping[str, Json]) -> list[Extra]:
    """The files that the flow names."""
    files = [
        Extra(file.get("name"), file.get("title"), file.get("content"), file.get("path"))
        for file in config.get("files") or ()
    ]
    pictures = [
        Extra(None, image.get("title"), path=image["path"], alt=image["alt"])
        for image in config.get("images") or ()
        if image.get("path")
    ]
    return files + pictures
