"""The terminal as a frontend: questions are put by whoever follows the session, messages and events are
printed, and forms are filled in line by line, each field checked before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bot.config.session_files import SessionFiles
from bot.rendering.notes import as_plain, given_files
from engine.forms import Field, check_form, is_empty, is_numbered, limits_text, parse_typed, value_text
from engine.forms.question import Question, field_options
from engine.journal.events import Event
from engine.journal.state import Asked, State
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer
from engine.nodes.runtime.folder import FileRefused
from engine.nodes.types.registry import node_types
from engine.run.frontend import Message, NotDelivered

SHOWN: dict[str, Json] = {"terminal": True}
"""Place of a prompt that is on a terminal."""


EDIT = "edit"
FILL = "fill"
"""Word that starts changing an approval's proposal, or filling in a form that can also be declined."""


class Lines(Protocol):
    """Printer of a session."""

    def narrate(self, state: State, event: Event) -> None:
        """A committed event; `state` is the session's state after it, or later."""

    def message(self, text: str) -> None:
        """The text of a `message` node."""


class TerminalFrontend:
    """Shows a session on a terminal. A second time something is printed again, which is harmless there."""

    def __init__(self, lines: Lines, files: SessionFiles | None = None) -> None:
        self._lines = lines
        self._files = files

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """The question is put when it is its turn: one at a time is in front of a person."""
        return SHOWN

    async def close(self, state: State, asked: Asked) -> None:
        """Do nothing: printed text stays; `observe` shows the outcome."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Print a message. As in Slack it fails where a file of it cannot be read."""
        try:
            for path in [file.path for file in given_files(message.config) if file.path]:
                if self._files is not None:
                    await self._files.content(message.session_id, path)
        except FileRefused as error:
            raise NotDelivered(f"The message could not be posted. {error}") from error
        self._lines.message(as_plain(message.config))
        return dict(node_types()["message"].unknown_output)

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """Narrate what happened."""
        for event in events:
            self._lines.narrate(state, event)


# --- forms -------------------------------------------------------------------------------------------------


class Filling:
    """Progress of filling in a form."""

    def __init__(self, fields: list[Field]) -> None:
        self._fields = fields
        self.values: dict[str, Json] = {}

    @property
    def field(self) -> Field:
        """The field that is asked for now."""
        return self._fields[len(self.values)]

    @property
    def done(self) -> bool:
        """True if every field has its value."""
        return len(self.values) == len(self._fields)

    def take(self, line: str) -> None:
        """A line for the field: empty for its default, or for nothing where it may be left out; `-` for nothing too.

        Raises `InvalidAnswer`; the same field is asked again then.
        """
        field = self.field
        nothing = is_empty(line) or (line.strip() == "-" and not field["required"])
        given: dict[str, Json] = {} if is_empty(line) else {field["name"]: None}
        if not nothing:
            given[field["name"]] = parse_typed(field, line)
        found, wrong = check_form([field], given)
        if wrong:
            raise InvalidAnswer(wrong[field["name"]])
        self.values |= found

    def again(self) -> None:
        """Begin with the first field."""
        self.values.clear()


def filling_of(prompt: Question) -> Filling | None:
    """The form of a question, where it has fields to fill in; one whose options are shown is answered with them."""
    fields = prompt.fields
    return Filling(fields) if fields and not prompt.options else None


def fills_in(prompt: Question) -> bool:
    """True if it is a form that can also be declined."""
    return prompt.fills_beside


def editing_of(prompt: Question) -> Filling | None:
    """Return the editable part of an approval's proposal with its current values; None if nothing is editable."""
    editable, values = prompt.editable, prompt.values
    fields = [_filled(field, values) for field in prompt.fields if field["name"] in editable]
    return Filling(fields) if fields else None


def _filled(field: Field, values: Mapping[str, Json]) -> Field:
    bare = {name: value for name, value in field.items() if name != "default"}
    value = values.get(field["name"])
    return bare if is_empty(value) else {**bare, "default": value}


def field_lines(field: Field) -> list[str]:
    """A field as a terminal shows it: its label with what fits and its default, and its options, numbered where a
    number is clear."""
    about = [limits_text(field)] if field["type"] != "boolean" else ["yes or no"]
    if field["type"] == "choices":
        about = ["one or several, with commas between them"]
    if "default" in field:
        about.append(f"Enter for {value_text(field, field['default'])}")
    elif not field["required"]:
        about.append("Enter for none")
    told = "; ".join(part for part in about if part)
    lines = [f"{field['title']}" + (f" ({told})" if told else "")]
    if field.get("description"):
        lines.append(str(field["description"]))
    offered = [] if field["type"] == "boolean" else field_options(field) or field.get("options") or []
    numbers = is_numbered(offered)
    lines += [f"{f'{n})' if numbers else '-'} {option['label']}" for n, option in enumerate(offered, 1)]
    return lines
