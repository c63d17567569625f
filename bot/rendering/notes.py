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

from bot.faces.marks import EMOJI
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
from bot.rendering.flow import WITHOUT_EFFECT, label_of, latest_visits, node_of, place_of
from bot.rendering.home import START
from bot.rendering.text import clip, cut, message_line, one_line, person, plain, safe, shown, weight
from engine.flow import Flow
from engine.journal.queries import is_rejection, verdict
from engine.journal.state import State
from engine.language.codec import Json, encode
from engine.language.counting import plural
from engine.language.template import open_code
from prompt_state.question_row import PromptState
from prompt_state.routing import Listener

LOG = "output.txt"
RETRY = "sayso:retry"
"""The action of the button that tries a failed session again; its value is the session's id."""
_LINES = 12
_MOST = 1_500
_LINE = 300


def tail_of(state: State) -> str:
    """Return the last lines of the failed node's output, as mrkdwn; empty if there is none that the error does not say."""
    text = _text(_details(state))
    if not text:
        return ""
    lines = [clip(line, _LINE) for line in shown(text).splitlines() if line.strip()][-_LINES:]
    while len(lines) > 1 and weight("\n".join(lines)) > _MOST:
        lines.pop(0)
    block = safe("\n".join(lines)).replace("```", "'''")
    more = f"_Full output: `{LOG}`, below._" if log_of(state) is not None else ""
    if len(lines) == 1 and str((state.error or {}).get("message")).endswith(lines[0]):
        return more  # the error says it already
    return f"```\n{block}\n```\n{more}".rstrip()


def log_of(state: State) -> str | None:
    """Return the failed node's whole output if the thread shows less of it; else None."""
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
    """Return the most relevant output: standard error, else standard output."""
    return next((str(details[name]).strip() for name in ("stderr", "stdout") if _said(details, name)), "")


def _said(details: dict[str, Json], name: str) -> bool:
    value = details.get(name)
    return isinstance(value, str) and bool(value.strip())


_NAMES_MOST = 8


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


def end_note(
    state: State,
    flow: Flow,
    key: str,
    *,
    by: Mapping[str, Json] | None = None,
    reason: str | None = None,
    bot_user_id: str | None = None,
    link: str | None = None,
) -> Rendered:
    """Return the note about a bad end: the failure or the person who ended it, undone work, and possible actions.
    `link` leads to the thread of the session that holds the refused lock."""
    parts = [_why(state, flow, by, reason)]
    if link is not None:
        parts.append(f"<{link}|Open the run that holds the lock>")
    tail = tail_of(state) if state.outcome == "failed" else ""
    if tail:
        parts.append(tail)
    unknown = [path for path in state.active if state.nodes[path].type not in WITHOUT_EFFECT]
    if unknown:
        parts.append(
            f"*Outcome unknown:* {_names([*dict.fromkeys(place_of(state, flow, one) for one in unknown)])}."
        )
    missing = _missing(state, flow)
    if missing:
        parts.append(f"*Not done:* {_names(missing)}.")
    made = note("\n".join(parts), key)
    if state.outcome not in ("failed", "aborted"):
        return made
    address = f"<@{bot_user_id}> " if bot_user_id else ""
    anew = f"To start again: {address}`{safe(state.flow_name)}`."
    blocks = [*made.blocks, actions(_remedies(state, flow))]
    return Rendered(made.text, blocks, made.metadata, anew)


def retried_text(state: State, flow: Flow, key: str, user: str) -> str:
    """Return the note of a bad end once the session is tried again, without buttons."""
    return f"{end_note(state, flow, key).text}\n🔁 <@{user}> is retrying it below."


def _remedies(state: State, flow: Flow) -> list[Block]:
    """Return the buttons for a bad end. Only a failure can be retried; after a rejection or a cancellation one can start
    again."""
    again = button("Start again…", START, f"{state.flow_name}|{state.session_id}")
    failed = _failed(state)
    if state.outcome != "failed" or is_rejection(state.error) or failed is None:
        return [again]
    node = node_of(flow, failed)
    step = failed if node is None else node.name or node.id
    return [button(f"Try again from {shown(step)}", RETRY, state.session_id, "primary"), again]


def _why(state: State, flow: Flow, by: Mapping[str, Json] | None, reason: str | None) -> str:
    if state.outcome == "aborted":
        who = f" by {person(by)}" if by else ""
        said = f": {safe(one_line(reason, 200))}" if reason else ""
        return f"{EMOJI['aborted']} *{safe(one_line(flow.name, 80))}* was cancelled{who}{said}."
    error = state.error or {}
    if is_rejection(error):
        return (
            f"{EMOJI['rejected']} *{safe(one_line(flow.name, 80))}* was {safe(one_line(verdict(error), 400))}"
        )
    message = safe(one_line(str(error.get("message") or error.get("type") or "no reason given"), 400))
    place = _failed(state)
    what = f" at *{place_of(state, flow, place)}*" if place else ""
    return f"{EMOJI['failed']} *{safe(one_line(flow.name, 80))}* failed{what}: {message}"


def _failed(state: State) -> str | None:
    """Return the path of the node that failed the session, or None."""
    error = state.error or {}
    # A container fails with the error of an inner node, which has its path.
    if error.get("path"):
        return str(error["path"])
    failed = [path for path, run in state.nodes.items() if run.status == "failed" and run.error == error]
    return failed[-1] if failed else None


def _missing(state: State, flow: Flow) -> list[str]:
    """Return the nodes and passes that never began, ready for mrkdwn."""
    found: list[str] = []
    for scope, frame in sorted(state.frames.items()):
        nodes = flow.lists[frame.list_id].nodes if frame.list_id in flow.lists else ()
        container = state.containers.get(frame.owner or "")
        # The rest of a conversation cannot be known.
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
    """Return the text (mrkdwn) and a button for each question. A button carries ids: the question, the message (`ts`),
    and its author; the message is read again from the store."""
    buttons = [
        button(_label(prompt), f"{MENU}{n}", f"{prompt.prompt_id}|{prompt.nonce}|{ts}|{author}")
        for n, prompt in enumerate(asked[:_MOST_ASKED])
    ]
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


def _label(prompt: PromptState) -> str:
    number = f"#{prompt.number} " if prompt.number else ""
    return number + message_line(plain(prompt.message), 60)


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
