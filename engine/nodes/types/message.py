"""The `message` node: its content, its destination, and its readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, kind_of, suggest
from engine.language.template import has_expression
from engine.nodes.types.fields import DM, ONE_PERSON, Config, Marked, Shown, Text
from engine.nodes.types.preview import block
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.annotations import Sources
from engine.types.lattice import LIST, MAPPING, NULL, TEXT, TEXTS, Type, mapping_of
from engine.types.pieces import Record, type_of

MAX_FILES = 10
"""Files and pictures of one message."""
MAX_COLUMNS = 20

_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,}|#[^\s#@<>]{1,80}", re.ASCII)
_PICTURE = re.compile(r"https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:\d{1,5})?/.*", re.ASCII | re.DOTALL)
_CONTENT = ("text", "markdown", "fields", "table", "images", "files")


def _place(value: Any) -> str:
    if isinstance(value, str) and value.startswith(DM):
        return DM + _one_person(value.removeprefix(DM))
    if not isinstance(value, str) or not _CHANNEL.fullmatch(value):
        raise ValueError(
            f"{kind_of(value)} is not a destination: write a channel's id (C012ABCDEF), its name (#ops), or "
            "dm: and a person"
        )
    return value


def _one_person(value: Any) -> str:
    if not isinstance(value, str) or not ONE_PERSON.fullmatch(value):
        raise ValueError(
            f"{kind_of(value)} is not one person: write a user id (U012ABCDEF), an e-mail address or requester"
        )
    return value


Place: TypeAlias = Annotated[
    str, BeforeValidator(_place), WithJsonSchema({"type": "string", "title": "channel"})
]
OnePerson: TypeAlias = Annotated[
    str, BeforeValidator(_one_person), WithJsonSchema({"type": "string", "title": "person"})
]


class MessageField(Config):
    """A short fact of a message: a title and what it says, both in `mrkdwn`."""

    title: Marked
    """The label, in bold."""
    value: Any
    """The value. Values that are not text appear as JSON."""


class MessageTable(Config):
    """Rows and columns. Cells are plain text: no markup counts in them."""

    columns: Annotated[list[Shown], Field(min_length=1, max_length=MAX_COLUMNS)]
    """The names of the columns, at most 20."""
    rows: list[list[Any] | dict[str, Any]]
    """The rows: each a list of cells, or a mapping with the column names as keys."""
    title: Shown | None = None
    """The title of the table. Default: the number of rows."""


class MessageImage(Config):
    """A picture in a message."""

    alt: Shown
    """A description for people who cannot see the picture."""
    url: Text | None = None
    """The public address: `https://` and a literal host. Either this or `path`."""
    path: Text | None = None
    """A file in the run's folder to upload into the thread."""
    title: str | None = None
    """The title above it, as plain text."""


class MessageFile(Config):
    """A file that comes with a message."""

    path: Text | None = None
    """A file in the run's folder. Either this or `content`."""
    content: str | None = None
    """The content, as text."""
    name: Text | None = None
    """The file's name. With `path` it defaults to the existing name."""
    title: Shown | None = None
    """The title that people see instead of the name."""


class MessageConfig(Config):
    """Posts into the run's thread, or elsewhere, and continues.

    At least one of `text`, `markdown`, `fields`, `table`, `images` and `files` must have content. Long content is cut,
    and the full text attached as a file; the message says so.
    """

    text: Marked | None = None
    """The text, in Slack's `mrkdwn`."""
    markdown: Marked | None = None
    """The text, in common Markdown: headings, lists, tables, code."""
    fields: Annotated[list[MessageField], Field(min_length=1, max_length=50)] | None = None
    """Short facts, two per line: mappings of `title` and `value`."""
    table: MessageTable | None = None
    """A table: `columns`, `rows` and a `title`."""
    images: Annotated[list[MessageImage], Field(min_length=1, max_length=MAX_FILES)] | None = None
    """Pictures: mappings of `alt` with `url` or `path`, and a `title`."""
    files: Annotated[list[MessageFile], Field(min_length=1, max_length=MAX_FILES)] | None = None
    """Files to upload: mappings of `path` or `content`, `name` and `title`."""
    to: Place | None = None
    """The place to post in instead of the run's thread: a channel's id, `#name`, or `dm:` and a person."""
    ephemeral_to: OnePerson | None = None
    """The only person who sees it. It is sent at most once and disappears when they reload."""
    update: str | None = None
    """The id of an earlier `message` node, whose message is edited instead."""
    thread: bool = True
    """False posts in the channel instead of the thread."""
    broadcast: bool = False
    """Also shows the reply in the channel."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require some content, and reject combinations that do not go together."""
        if not any(raw.get(name) is not None for name in _CONTENT):
            yield Fault((), "`text` is missing", "or `markdown`, `fields`, `table`, `images` or `files`")
        for name, others in _EXCLUDES.items():
            for other in others if raw.get(name) is not None else ():
                if raw.get(other) is not None and raw.get(other) != (other == "thread"):
                    yield Fault((other,), f"`{name}` and `{other}` cannot be used together", on_key=True)
        if raw.get("thread") is False and raw.get("broadcast") is True:
            yield Fault(("broadcast",), "`broadcast` is for replies in the thread", on_key=True)
        files, images = raw.get("files"), raw.get("images")
        for index, file in enumerate(files if isinstance(files, list) else ()):
            yield from (fault.under(("files", index)) for fault in _file(file))
        for index, image in enumerate(images if isinstance(images, list) else ()):
            yield from (fault.under(("images", index)) for fault in _image(image))


_EXCLUDES = {
    "update": ("to", "ephemeral_to", "thread", "broadcast", "files"),
    "ephemeral_to": ("to", "broadcast", "files"),
    "to": ("thread", "broadcast"),
}


def _file(file: Json) -> Iterator[Fault]:
    if not isinstance(file, dict):
        return
    given = [name for name in ("path", "content") if file.get(name) is not None]
    if len(given) != 1:
        yield Fault((), "a file has either `path` or `content`")
    elif given == ["content"] and file.get("name") is None:
        yield Fault((), "`name` is missing", "a file with `content` needs one, such as report.txt")


def _image(image: Json) -> Iterator[Fault]:
    if not isinstance(image, dict):
        return
    url = image.get("url")
    if (url is None) == (image.get("path") is None):
        yield Fault((), "a picture has either `url` or `path`")
    elif isinstance(url, str) and not _PICTURE.fullmatch(url):
        # Slack fetches it: a value that chose the host would be carried there.
        hint = "write the host literally; `{{ }}` can only follow it" if has_expression(url) else None
        yield Fault(("url",), "expected an address that begins with https:// and a host", hint)


def _output(known: Known) -> Type:
    """Return the output type; a message visible to one person has no timestamp."""
    ts = TEXTS if known.with_.get("ephemeral_to") is None else Type(TEXT | NULL)
    return mapping_of({"channel": TEXTS, "ts": ts, "permalink": Type(TEXT | NULL)})


def _fits(node: Mapping[str, Any], record: Record, sources: Sources) -> Iterator[Fault]:
    """Rows of a table have the fields that its columns name."""
    with_ = node.get("with")
    table = with_.get("table") if isinstance(with_, dict) else None
    columns = table.get("columns") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(columns, list) or not columns:
        return
    if any(not isinstance(name, str) or has_expression(name) for name in columns):
        return
    path: Path = ("with", "table", "rows")
    written = table.get("rows")
    for index, row in enumerate(written if isinstance(written, list) else ()):
        for name in row if isinstance(row, dict) else ():
            if name not in columns and not has_expression(name):
                yield _no_column((*path, index, name), name, columns)
    rows = type_of(written, path, record) if isinstance(written, str) else None
    if rows is not None and rows.kinds == LIST and rows.items is not None and rows.items.kinds == MAPPING:
        for name in rows.items.fields or ():
            if name not in columns:
                yield _no_column(path, name, columns, on_key=False)


def _no_column(path: Path, name: str, columns: list[Json], *, on_key: bool = True) -> Fault:
    hint = suggest(name, map(str, columns))
    return Fault(path, f"the table has no column `{name[:80]}`", hint, on_key=on_key)


SPEC = NodeSpec(
    config=MessageConfig,
    outputs={
        "channel": "The channel of the message.",
        "ts": "Slack's timestamp of the message; null for an ephemeral message.",
        "permalink": "The address of the message, if Slack returned one.",
    },
    output=_output,
    unknown_output={"channel": None, "ts": None, "permalink": None},
    preview=lambda config: block("message", str(config.get("text"))),
    previewed=frozenset({"text"}),
    verbatim_fields=frozenset({"update"}),
    static_fields=frozenset({"update"}),
    # A message has many fields and uses few at once: unset ones are not recorded.
    brief=True,
    markup={"text": "mrkdwn", "fields": "mrkdwn", "markdown": "markdown"},
    exact=("to", "ephemeral_to", "images.url", "images.path", "files.path", "files.name"),
    node_fields={"update": "message"},
    fits=_fits,
    described={
        "A field": MessageField,
        "A table": MessageTable,
        "A picture": MessageImage,
        "A file": MessageFile,
    },
)
