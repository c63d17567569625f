"""The tools that come with sayso, as the model gets to know them: what they are for and what they take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.flow.node import ToolKind
from engine.language.codec import Json

MOST_WRITTEN = 2**20
"""Characters of a file that the model writes at once."""
MOST_LINES = 5_000
"""Lines of a file that the model reads at once."""


PATTERNS = "a final `*` stands for any further arguments, and a program alone is allowed with any"
"""What the entries of a list of commands mean, in words for the model."""


@dataclass(frozen=True)
class Builtin:
    """One tool; `input_schema` is the JSON Schema of its input."""

    description: str
    input_schema: Json


def _text(description: str, **more: Json) -> Json:
    return {"type": "string", "description": description, **more}


def _object(properties: Json, *required: str) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_FIELD: Json = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["string", "number", "integer", "boolean", "array"]},
        "title": _text("The label of the field."),
        "description": _text("A hint below the field."),
        "enum": {"type": "array", "items": {"type": "string"}, "description": "The options to choose from."},
        "default": {"description": "What stands in the field at first."},
    },
    "required": ["type"],
}

_FORM: Json = _object(
    {
        "properties": {
            "type": "object",
            "description": "The fields by name (small letters, digits and _). A field that takes several options has type "
            "array and `items: {type: string, enum: [...]}`. Never ask for passwords or other secrets.",
            "minProperties": 1,
            "maxProperties": 20,
            "propertyNames": {"pattern": "^[a-z][a-z0-9_]{0,63}$"},
            "additionalProperties": _FIELD,
        },
        "required": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The names of the fields that must be filled in.",
        },
    },
    "properties",
) | {"description": "Several things at once: fields to fill in. Leave it out for a plain question."}

BUILTIN: Mapping[ToolKind, Builtin] = {
    "ask_human": Builtin(
        "Asks the people in the conversation a question and waits for the answer, for days if need be. Use it when a "
        "decision is theirs, or when only they know something; do not use it for what the other tools can find out. Ask "
        "one thing at a time. With `choices` they answer by a button or in words of their own, with `form` by filling in "
        "fields, else by text.",
        _object(
            {
                "question": _text(
                    "The question, with what they need to know to answer it.", minLength=1, maxLength=3000
                ),
                "choices": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1, "maxLength": 75},
                    "minItems": 1,
                    "maxItems": 25,
                    "uniqueItems": True,
                    "description": "Answers to choose from, in a few words each.",
                },
                "own_words": {
                    "type": "boolean",
                    "description": "Whether another answer than the choices is possible; yes when it is left out. Say no "
                    "only where nothing but one of them makes sense.",
                },
                "form": _FORM,
            },
            "question",
        ),
    ),
    "shell": Builtin(
        "Runs one program and gives what it wrote and its exit code. The command is split into words as a shell would "
        "(quotes work), but no shell runs: pipes, `;`, `&&`, redirections, variables and wildcards are not possible. "
        "Make several calls instead. It runs in the folder of this session.",
        _object({"command": _text("The program and its arguments.", minLength=1, maxLength=8000)}, "command"),
    ),
    "http": Builtin(
        "Sends one HTTP request and gives the status, the headers and the body of the answer. Credentials that the hosts "
        "need are added for you; never write any into the URL or the headers.",
        _object(
            {
                "method": _text(
                    "The method; GET when it is left out.",
                    enum=["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"],
                ),
                "url": _text(
                    "The whole address, beginning with https:// or http://.", minLength=1, maxLength=8000
                ),
                "headers": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "maxProperties": 50,
                    "description": "Headers by name, such as Accept.",
                },
                "body": _text("The body as text. For JSON also set the header Content-Type."),
            },
            "url",
        ),
    ),
    "read_file": Builtin(
        "Reads a file in the folder of this session. A picture (PNG, JPEG, GIF, WebP) is shown to you. Text comes a page at "
        "a time, 64 KiB at most: the result says how many lines there are; read on with `first_line`.",
        _object(
            {
                "path": _text("The file, relative to the session's folder.", minLength=1, maxLength=1000),
                "first_line": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The line to begin with; 1 when it is left out.",
                },
                "lines": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_LINES,
                    "description": "How many lines at most.",
                },
            },
            "path",
        ),
    ),
    "write_file": Builtin(
        "Writes a text file in the folder of this session. What was in it before is replaced as a whole; folders on the "
        "way are made. At most 1 MiB.",
        _object(
            {
                "path": _text("The file, relative to the session's folder.", minLength=1, maxLength=1000),
                "content": _text("The whole text of the file.", maxLength=MOST_WRITTEN),
            },
            "path",
            "content",
        ),
    ),
}
"""The tools by name. Tools of Python functions, MCP servers, nodes and flows get theirs from what they call."""


def described(kind: ToolKind, settings: Mapping[str, Json]) -> str:
    """What the model is told about one of these tools with these settings: what it may do, too."""
    told = [BUILTIN[kind].description]
    if kind == "shell":
        told.append(f"Allowed is {_listed(settings.get('commands'))}: {PATTERNS}.")
    if kind == "http":
        told.append(f"Allowed hosts: {_listed(settings.get('hosts'))}.")
        told.append(f"Allowed methods: {_listed(settings.get('methods') or ['GET'])}.")
    return " ".join(told)


def _listed(names: Json) -> str:
    return ", ".join(f"`{name}`" for name in names or ()) or "none"
