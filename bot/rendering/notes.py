"""Plain messages: texts of flows, notes of the bot, the end of a session, menus below a text, and the post of a
`message` node, with its files. Pure.

Everything keeps Slack's limits. Long content is cut, and the full text attached as a file; the message says so. Text
and fields are mrkdwn and markdown is Markdown, whose values were escaped when they were evaluated; everything else is
plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from msgspec import Struct, field

from bot.faces.end import End
from bot.rendering.approvals import OPEN
from bot.rendering.blocks import (
    MOST_MESSAGE,
    MOST_UNITS,
    Block,
    Rendered,
    actions,
    aligned,
    block_key,
    button,
    context,
    csv_of,
    fit_text,
    option,
    rendered,
    rows_of,
    section,
    select,
    size,
    table_block,
    text_sections,
    with_id,
)
from bot.rendering.home import START
from bot.rendering.text import clip, cut, message_line, mrkdwn, one_line, plain, safe, shown, weight
from engine.language.codec import Json, encode
from engine.language.counting import plural
from engine.language.template import open_code
from prompt_state.question_row import PromptState
from prompt_state.routing import Listener

LOG = "output.txt"
RETRY = "sayso:retry"
"""The action of the button that tries a failed session again; its value is the session's id."""


def message_blocks(text: str) -> list[Block]:
    """Return mrkdwn as blocks: in several sections if it is long, cut with a notice if it is too long."""
    return fit_text([], text) or [section(" ")]


def note(text: str, key: str | None = None) -> Rendered:
    """A message of mrkdwn that is safe already; `key` lets it be found again in Slack."""
    blocks = message_blocks(text)
    if key is not None:
        blocks[0] = {**blocks[0], "block_id": block_key(key)}
    return rendered(text, blocks, key)


def duplicate(key: str) -> Rendered:
    """Return the replacement for a duplicate message: without buttons, and never mistaken for the original."""
    text = "_Duplicate – please use the other copy._"
    blocks = [{**context(text), "block_id": block_key(f"duplicate:{key}")}]
    return Rendered(text, blocks, {"event_type": "sayso_duplicate", "event_payload": {"key": key}})


def end_note(said: End, key: str, bot_user_id: str | None = None) -> Rendered:
    """Return the note about a bad end."""
    parts = [mrkdwn(line) for line in said.lead]
    if said.output:
        block = safe("\n".join(said.output)).replace("```", "'''")
        parts.append(f"```\n{block}\n```")
    parts += [f"_Full output: `{LOG}`, below._"] if said.in_file else []
    made = note("\n".join([*parts, *map(mrkdwn, said.undone)]), key)
    if not said.again:
        return made
    buttons = [
        button(
            "Start again with these inputs…" if said.inputs else "Start again",
            START,
            f"{said.flow_name}|{said.session_id}",
        )
    ]
    if said.retry:
        buttons.insert(0, button(f"Try again from {said.retry}", RETRY, said.session_id, "primary"))
    address = f"<@{bot_user_id}> " if bot_user_id else ""
    anew = f"To start again: {address}`{safe(said.flow_name)}`."
    return Rendered(made.text, [*made.blocks, actions(buttons)], made.metadata, anew)


def retried_text(said: End, key: str, user: str) -> str:
    """Return the note of a bad end once the session is tried again, without buttons."""
    return f"{end_note(said, key).text}\n🔁 <@{user}> is retrying it below."


MENU = "sayso:menu:"
_MOST_ASKED = 25


def menu_blocks(text: str, asked: Sequence[PromptState], ts: str, author: str) -> list[Block]:
    """Return the text (mrkdwn) and a button for each question. A button carries ids: the question, the message (`ts`),
    and its author; the message is read again from the store."""
    buttons = []
    for n, prompt in enumerate(asked[:_MOST_ASKED]):
        label = (f"#{prompt.number} " if prompt.number else "") + message_line(plain(prompt.message), 60)
        buttons.append(button(label, f"{MENU}{n}", f"{prompt.prompt_id}|{prompt.nonce}|{ts}|{author}"))
    return [*message_blocks(text), actions(buttons)]


AGENTS = "sayso:agents:"


def agents_menu(text: str, agents: Sequence[Listener], ts: str, author: str) -> list[Block]:
    """The words (mrkdwn) and a button for each agent, with the message that was written (`ts`) and its author."""
    buttons = [
        button(one_line(label, 60), f"{AGENTS}{n}", f"{agent.session_id}|{agent.path}|{ts}|{author}")
        for n, (agent, label) in enumerate(agent_labels(agents[:_MOST_ASKED]))
    ]
    return [*message_blocks(text), actions(buttons)]


def agent_labels(agents: Sequence[Listener]) -> list[tuple[Listener, str]]:
    """Return agents with their names; with their paths if several share a name."""
    names = [agent.name for agent in agents]
    return [
        (agent, agent.name if names.count(agent.name) == 1 else f"{agent.name} · {agent.path}")
        for agent in agents
    ]


_BUTTONS = 10
_MENU = 100
_VALUE = 150


def start_blocks(text: str, flows: Iterable[str]) -> list[Block]:
    """Return a text (mrkdwn) with the flows to choose from below it, by name."""
    names = sorted(name for name in flows if len(name) <= _VALUE)
    return fit_text([], text, start_choice(names)) or [section(" ")]


def start_choice(names: list[str]) -> list[Block]:
    """The flows to choose from, without words."""
    if not names:
        return []
    if len(names) <= _BUTTONS:
        return [actions([button(name, f"{OPEN}start:{n}", name) for n, name in enumerate(names)])]
    options = [option(clip(one_line(name, 75), 75), name) for name in names[:_MENU]]
    menu = select(f"{OPEN}start", "Start a flow…", options)
    while size([menu]) > MOST_UNITS // 2:
        options.pop()
    more = len(names) - len(options)
    left = [context(f"_{more:,} more can be started by name: `/sayso run NAME`._")] if more > 0 else []
    return [actions([menu]), *left]


# --- message nodes -----------------------------------------------------------------------------------------


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


class Extra(Struct, frozen=True):
    """A file of a message: its content, or its path in the session's folder. `alt` is for pictures."""

    name: str | None
    title: str | None = None
    content: str | None = None
    path: str | None = None
    alt: str | None = None


class Delivered(Struct, frozen=True):
    """A post (None if there are only files), and its uploads."""

    message: Rendered | None
    extras: tuple[Extra, ...] = ()


class _Making(Struct):
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
    """Return the message of this config; `key` lets it be found again in Slack."""
    making = _Making(MOST_UNITS - _NOTICES)
    # Small parts get their room first: they come last, and must not be lost to a long text above them.
    images = making.spend(_images(config.get("images") or (), making))
    fields = making.spend(_fields(config.get("fields") or (), making))
    table = making.spend(_table(config.get("table"), making, "text" in config or "markdown" in config))
    markdown = making.spend(_markdown(config.get("markdown"), making))
    text = _text_blocks(config.get("text"), making)
    blocks = [*text, *markdown, *fields, *table, *images]
    if making.notices:
        blocks.append(context(*making.notices))
    extras = (*making.extras, *given_files(config))
    if not blocks:
        return Delivered(None, extras)
    return Delivered(rendered(fallback(config), [with_id(blocks[0], key), *blocks[1:]], key), extras)


def fallback(config: Mapping[str, Json]) -> str:
    """The message as mrkdwn without blocks: for notifications, and for where blocks are not taken."""
    parts = [str(config["text"])] if config.get("text") else []
    if config.get("markdown"):
        parts.append(safe(_LINK.sub(r"\1", str(config["markdown"]))))
    parts += [f"*{field['title']}*: {_value(field)}" for field in config.get("fields") or ()]
    table = config.get("table")
    if table:
        columns = [str(name) for name in table["columns"]]
        parts += [f"*{safe(one_line(str(table['title']), 200))}*"] if table.get("title") else []
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


def _text_blocks(text: Json, making: _Making) -> list[Block]:
    if not text:
        return []
    made, rest = text_sections(str(text), min(MOST_MESSAGE, making.room))
    if rest:
        making.into_file("message.txt", plain(str(text)), "Full text:")
    return made or [section(" ")]


def _markdown(text: Json, making: _Making) -> list[Block]:
    if not text:
        return []
    whole = shown(str(text))
    most = min(MARKDOWN_MOST, making.room - 100)
    if weight(whole) > most:
        making.into_file("message.md", str(text), "Full text:")
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
    # Half a piece of code could expose a link that the whole of it hides.
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
        making.into_file("fields.txt", "".join(lines), "All fields:")
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
    room = min(making.room, _TABLE_MOST if beside else MOST_UNITS)
    block, whole = table_block(columns, rows, room, str(table.get("title") or ""))
    if not whole:
        making.into_file("table.csv", csv_of(columns, rows), f"Full table ({plural(len(rows), 'row')}):")
    return [block]


def _images(images: Json, making: _Making) -> list[Block]:
    made = [_image(image) for image in images if image.get("url")]
    fitting: list[Block] = []
    for block in made:
        if len(block["image_url"]) <= _URL_MOST and size([*fitting, block]) <= _IMAGES_MOST:
            fitting.append(block)
    if len(fitting) < len(made):
        making.notices.append(
            f"_This message has no room for {len(made) - len(fitting)} of {plural(len(made), 'picture')}._"
        )
    return fitting


def _image(image: Mapping[str, Json]) -> Block:
    url = quote(shown(str(image["url"])), safe=_URL_SAFE)
    block: Block = {"type": "image", "image_url": url, "alt_text": _cell_label(image["alt"], 600)}
    if image.get("title"):
        block["title"] = {"type": "plain_text", "text": _cell_label(image["title"], 300), "emoji": False}
    return block


def _cell_label(text: Json, most: int) -> str:
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
