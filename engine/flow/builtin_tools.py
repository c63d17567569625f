"""Tools of agents: the built-in ones as described to the model; the command lines that a shell tool allows; the names
in `tools` and `approvals` of a flow's raw, unchecked data. Pure.

A command is one line, split into a program and its arguments. No shell ever reads the line, so every part of it is only
an argument. Shell syntax is refused nevertheless, because the model means it: a `|` as an argument would only confuse.

An allow-list has patterns, compared word by word, each word whole:

| pattern | allows |
|---|---|
| `tail` | the program `tail` with any arguments |
| `kubectl get *` | `kubectl get` with any further arguments, or none |
| `systemctl status nginx` | exactly these words |
| `kubectl -n * get *` | in the middle `*` is exactly one word that is not an option |
| `cat logs/*.log` | inside a word `*` is any characters but `/` |
| `*` | every program with any arguments |

A program is compared as written: `kubectl` does not allow `./kubectl` nor `/tmp/kubectl`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import unquote

from engine.flow.checks.shape import as_list, as_mapping, talks, walk
from engine.flow.node import ToolKind
from engine.language.codec import Json
from engine.language.errors import ToolRefused

MOST_WRITTEN = 2**20
"""Characters of a file that the model writes at once."""
MOST_LINES = 5_000
"""Lines of a file that the model reads at once."""


PATTERNS = "a final `*` matches any further arguments, and a program alone is allowed with any"
"""Explanation of command patterns for the model."""


@dataclass(frozen=True)
class Builtin:
    """A built-in tool; `input_schema` is the JSON Schema of its input."""

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
            "description": "The fields by name (lowercase letters, digits and _). A field that takes several options has type "
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
    "plan": Builtin(
        "Shows the people in the conversation a checklist of your work. Use it for work of three steps or more: state the "
        "steps before you begin, and state all of them again, with what changed, whenever one begins or is done. At most one "
        "is in progress. It does no work, and you need not repeat it in words.",
        _object(
            {
                "steps": {
                    "type": "array",
                    "items": _object(
                        {
                            "title": _text("What is to be done, in a few words.", minLength=1, maxLength=120),
                            "status": _text("How far it is.", enum=["pending", "in_progress", "complete"]),
                        },
                        "title",
                        "status",
                    ),
                    "minItems": 1,
                    "maxItems": 20,
                    "description": "All steps in their order.",
                }
            },
            "steps",
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
    "remember": Builtin(
        "Keeps a note for later runs, which read it before they begin. Use it for what is true for long and was hard to find "
        "out, or when people ask you to remember something: one fact in a few sentences that can be understood alone. Never for "
        "passwords or other secrets, nor for what only matters now. People may have to approve it, and can change it.",
        _object({"text": _text("The note.", minLength=1, maxLength=2000)}, "text"),
    ),
}
"""Built-in tools by name. Tools of Python functions, MCP servers, nodes and flows are described by their targets."""


RESOURCES: Mapping[str, Builtin] = {
    "resources": Builtin(
        "Lists the resources of the server that you may read: address, name and what each is. Addresses with {braces} are "
        "templates to fill in.",
        _object({}),
    ),
    "resource": Builtin(
        "Reads one resource of the server by its address.",
        _object({"uri": _text("The address, as listed.", minLength=1, maxLength=4000)}, "uri"),
    ),
}
"""The tools with which resources of an MCP server are listed and read."""


def described(kind: ToolKind, settings: Mapping[str, Json]) -> str:
    """Describe one of these tools with its settings to the model, including its limits."""
    told = [BUILTIN[kind].description]
    if kind == "shell":
        told.append(f"Allowed is {_listed(settings.get('commands'))}: {PATTERNS}.")
    if kind == "http":
        told.append(f"Allowed hosts: {_listed(settings.get('hosts'))}.")
        told.append(f"Allowed methods: {_listed(settings.get('methods') or ['GET'])}.")
    return " ".join(told)


def _listed(names: Json) -> str:
    return ", ".join(f"`{name}`" for name in names or ()) or "none"


def may_read(uri: str, patterns: Iterable[str]) -> bool:
    """True if one of these patterns allows a resource; `..` is never allowed."""
    plain = unquote(unquote(uri)).replace("\\", "/")
    return ".." not in plain.split("/") and any(fnmatchcase(uri, pattern) for pattern in patterns)


# --- command lines -----------------------------------------------------------------------------------------


ANY = "*"
_OPERATORS = {
    "|": "pipes",
    ";": "several commands",
    "&": "several commands and background jobs",
    "<": "redirections",
    ">": "redirections",
    "(": "subshells",
    ")": "subshells",
    "\n": "several lines",
}
_EXPANSION = re.compile(r"\$[({A-Za-z_0-9@*#?!$-]|`")


def split_command(command: str) -> list[str]:
    """Return the words of a command. Raises `ToolRefused` for shell syntax."""
    command = command.strip()
    for found, why in _shell_syntax(command):
        raise ToolRefused(
            f"`{found}` is not possible: no shell runs this command, so there are no {why}. Make one call for each "
            "program; put quotes around text in which such characters are meant as they are."
        )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ToolRefused(
            f"the command cannot be split into words: {error}. Check its quotes and backslashes."
        ) from error
    if not words or not words[0]:
        raise ToolRefused("the command is empty. Write the program and its arguments.")
    if any("\0" in word for word in words):
        raise ToolRefused("the command contains a NUL character, which no argument may.")
    return words


def _shell_syntax(command: str) -> Iterator[tuple[str, str]]:
    """Yield shell syntax: operators outside quotes, expansions outside single quotes."""
    quote, at = "", 0
    while at < len(command):
        char = command[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif not quote and char in _OPERATORS:
            yield ("a line break" if char == "\n" else char), _OPERATORS[char]
        elif quote != "'" and (match := _EXPANSION.match(command, at)):
            yield match.group(), "variables and no commands inside others"
        at += 1


def allowed(words: Sequence[str], patterns: Sequence[str]) -> bool:
    """True if one of these patterns allows a program with these arguments."""
    return any(_fits(words, pattern.split()) for pattern in patterns)


def _fits(words: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or not words:
        return False
    if pattern[0] == ANY:
        return len(pattern) == 1
    if words[0] != pattern[0]:
        return False
    if len(pattern) == 1:
        return True
    rest, wanted = words[1:], pattern[1:]
    if wanted[-1] == ANY:
        wanted = wanted[:-1]
        rest = rest[: len(wanted)] if len(rest) >= len(wanted) else ()
    return len(rest) == len(wanted) and all(map(_word_fits, rest, wanted))


def _word_fits(word: str, pattern: str) -> bool:
    if ANY not in pattern:
        return word == pattern
    if ".." in word.split("/") or (pattern.startswith(ANY) and word.startswith("-")):
        return False
    if pattern == ANY:
        return True
    parts = (re.escape(part) for part in pattern.split(ANY))
    return re.fullmatch("[^/]*".join(parts), word, re.DOTALL) is not None


def pattern_problem(pattern: str) -> str | None:
    """Return the fault of a pattern of an allow-list, or None if it is valid."""
    words = pattern.split()
    if not words:
        return "a pattern begins with a program"
    if ANY in words[0] and words != [ANY]:
        return "write out the program of a pattern; only `*` alone matches any program"
    if any(char in pattern for char in "'\"\\"):
        return "a pattern cannot have quotes: its words are compared literally"
    return None


# --- entries of a flow's text ------------------------------------------------------------------------------


ASKS_PEOPLE: frozenset[ToolKind] = frozenset({"ask_human"})
"""Tools whose work is done by people."""
LATER: frozenset[ToolKind] = frozenset({"plan"})
"""The tools that came when flows had tools of their own by any name: one of a flow goes first."""
UNDECIDED: frozenset[ToolKind] = ASKS_PEOPLE | {"plan"}
"""Tools without any effect that people could approve."""


class Entry(NamedTuple):
    """One entry of `tools`: a name, and its settings if it has any."""

    name: str
    settings: Mapping[str, Json] | None = None


def entry_of(item: Any) -> Entry:
    """Parse an entry of `tools`; the name is empty if it is neither text nor a mapping of one name."""
    if isinstance(item, str):
        return Entry(item)
    if isinstance(item, dict) and len(item) == 1:
        ((name, settings),) = item.items()
        return Entry(name, as_mapping(settings))
    return Entry("")


def tool_names(entry: Entry) -> list[str]:
    """Return the model's names for the tools of an entry, as far as known."""
    settings = entry.settings or {}
    if entry.name == "mcp":
        tools = [tool for tool in as_list(settings.get("tools")) if isinstance(tool, str)]
        reads = [tool for tool in RESOURCES if settings.get("resources")]
        return [f"{settings.get('server')}__{tool}" for tool in (*tools, *reads)]
    name, call = settings.get("name"), settings.get("call")
    if isinstance(name, str) and name:
        return [name]
    if entry.name == "python":
        return [call.rpartition(":")[2]] if isinstance(call, str) else []
    return [entry.name]


def named_rules(written: Json) -> list[Json]:
    """The rules that are under one name in `approvals`: a list of verdicts is short for one with these verdicts."""
    if not isinstance(written, list):
        return [written]
    return written if any(isinstance(item, dict) for item in written) else [{"verdicts": written}]


def agents(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all agents of a flow, as written."""
    for _, node in walk(data):
        if talks(node):
            yield node


def entries(node: Mapping[str, Any]) -> list[Entry]:
    """The tools of an agent, as written."""
    return [entry_of(item) for item in as_list(as_mapping(node.get("with")).get("tools"))]
