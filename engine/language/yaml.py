"""YAML as flows use it: plain JSON data, and the line and column of everything in it.

The events of the parser are read one by one and checked before anything is built: no anchors, aliases or tags, at most
64 levels, 256 KiB, one document, no duplicate key, no key without a value. Plain scalars follow the core schema of YAML
1.2: `true`, `null`, numbers; `on`, `yes`, `12:30`, dates and `<<` are text. Anything else is a `FlowError` with its
place. The spelling of a plain scalar is kept if its value loses it (`3.10`), and a comment that may have been meant as
text (`Deploy #42`) is a doubt. The parser of libyaml is used if PyYAML has it (ten times as fast); its events are the
same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from engine.language.codec import Json
from engine.language.diagnostics import QUOTE_IT, Fault, Path
from engine.language.errors import FlowError, Problem
from engine.language.timestamps import parse_duration

MAX_BYTES = 256 * 1024
"""The largest flow file, in bytes."""

MAX_DEPTH = 64
"""Most levels of nesting in a flow file."""

MAX_YAML_PROBLEMS = 20

SECOND = " (twice)"
"""Suffix, in paths, of a duplicate key of a mapping."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_COMMENT = re.compile(r"\s*[:,-]?[ \t]*(#[^\n]*)")
_WORD_CUT = re.compile(r"#[\w{]")
_KEY_BEFORE = re.compile(r"(\w+): *$")
_WORD_KEYS = (
    "type",
    "on_error",
    "on_crash",
    "on_timeout",
    "on_reject",
    "on_conflict",
    "on_limit",
    "gate",
    "method",
    "style",
    "mode",
)
"""Keys whose value is one of a few words."""
_WORDS_CUT = re.compile(r"[ \t]*(,|:(?=[ \t])|\n(?=[ \t]))?[ \t]*(#[\w{][^\n]*)")
"""A comment that begins like a word behind a value, maybe behind a comma or a colon, or on the next line."""
_BEFORE_VALUE = re.compile(r"[ \t]*(?:- +)*")


class Mark(NamedTuple):
    """A place in a file: line and column count from 1, `offset` is the character's number from 0."""

    line: int
    column: int
    offset: int


@dataclass
class Located:
    """Data of a file with its places. `spans` are the beginnings and ends of values, `keys` those of keys."""

    file: str
    text: str
    data: Json = None
    spans: dict[Path, tuple[Mark, Mark]] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    doubts: list[Problem] = field(default_factory=list)
    """Things that are allowed but probably unintended."""
    empty: set[Path] = field(default_factory=set)
    """Paths without a value, which are among the problems."""
    written: dict[Path, str] = field(default_factory=dict)
    """The numbers, and `true` and `false`, that were written in other characters than their values are."""

    def problem(self, fault: Fault) -> Problem:
        """The fault with its place in the file."""
        mark = self._place(fault)
        hint = fault.hint
        if hint == QUOTE_IT and fault.path in self.written:
            hint = f'{QUOTE_IT}: "{self.written[fault.path]}"'
        return Problem(self.file, mark.line, mark.column, fault.message, hint)

    def line(self, path: Path) -> int:
        """The line in which a value begins."""
        return self._place(Fault(path, "")).line

    def _place(self, fault: Fault) -> Mark:
        if fault.on_key and fault.path in self.keys:
            return self.keys[fault.path]
        path = fault.path
        while path and path not in self.spans:
            path = path[:-1]
        if path not in self.spans:
            return Mark(1, 1, 0)
        start, _ = self.spans[path]
        if fault.snippet and fault.offset is not None and path == fault.path:
            return self._snippet(path, fault.offset, fault.snippet) or start
        return start

    def _snippet(self, path: Path, offset: int, snippet: str) -> Mark | None:
        """Return the place of the snippet in the file: the same occurrence as in the value, if it is spelled the same."""
        start, end = self.spans[path]
        value = str(self.value(path))
        nth = value[:offset].count(snippet)
        index = start.offset - 1
        for _ in range(nth + 1):
            index = self.text.find(snippet, index + 1, end.offset)
            if index < 0:
                return None
        line_start = self.text.rfind("\n", 0, index) + 1
        return Mark(self.text.count("\n", 0, index) + 1, index - line_start + 1, index)

    def value(self, path: Path) -> Json:
        """The value in a place."""
        value = self.data
        for part in path:
            value = value[part]
        return value


def decode_source(data: bytes, file: str) -> str:
    """Decode a file. Raises `FlowError` if it is too large or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise _error(file, 1, 1, _too_large(len(data)))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        hint = "save the file as UTF-8"
        raise _error(file, line, column, "the file is not UTF-8 text", hint) from None


def load_located(text: str, file: str, *, empty: bool = False) -> Located:
    """Read a text as YAML. Raises `FlowError` when there is no data; lesser problems are in `problems`. With `empty` a
    key without a value is null, for files of other programs."""
    text = text.removeprefix("\ufeff")
    match = _CONTROL.search(text)
    if match:
        before = text[: match.start()]
        line, column = before.count("\n") + 1, match.start() - before.rfind("\n")
        raise _error(file, line, column, f"the character U+{ord(match[0]):04X} is not allowed in a flow file")
    size = len(text.encode())
    if size > MAX_BYTES:
        raise _error(file, 1, 1, _too_large(size))
    located = Located(file, text)
    builder = _Builder(located, empty)
    try:
        builder.run()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(located, error, builder.flows) from None
    except _Stop:
        pass
    except (yaml.YAMLError, ValueError, RecursionError, MemoryError, AttributeError, IndexError) as error:
        # No known input gets here; any that does is still an error of the file.
        raise _error(file, 1, 1, f"the file cannot be read as YAML: {str(error)[:200]}") from None
    if located.problems and located.data is None:
        raise FlowError(located.problems)
    return located


def _error(file: str, line: int, column: int, message: str, hint: str | None = None) -> FlowError:
    return FlowError([Problem(file, line, column, message, hint)])


def _too_large(size: int) -> str:
    return f"the file has {size} bytes; a flow may have at most {MAX_BYTES} (256 KiB)"


# --- building data from events ---------------------------------------------------------------------------


class _Stop(Exception):
    """Reading cannot continue; the reason is among the problems."""


class _Builder:
    """Consumes the parser's events; every value is noted with its place before it is used."""

    def __init__(self, located: Located, empty: bool) -> None:
        self.located = located
        self.empty = empty
        self.flows: list[int] = []
        """The lines in which the lists and mappings with brackets begin that are open."""
        self.ended = 0
        """Offset at which the previous event ended."""
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.events = self._looked_at(iter(yaml.parse(located.text, Loader=loader)))

    def run(self) -> None:
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.tags or (event.version and tuple(event.version) != (1, 2)):
                    self._fail(
                        event, "a flow file cannot have YAML directives", "remove the line that begins with %"
                    )
                documents += 1
                if documents > 1:
                    self._fail(
                        event,
                        "a flow file can have only one document",
                        "remove the `---` and everything after it",
                    )
                self.located.data = self._value(next(self.events), (), 1)
        if documents == 0:
            self.located.problems.append(
                Problem(self.located.file, 1, 1, "the file is empty", "a flow has `flow:` and `nodes:`")
            )

    def _looked_at(self, events: Iterator[Any]) -> Iterator[Any]:
        """The events, each with a look at the comment behind it."""
        for event in events:
            closes = self.located.text[event.end_mark.index - 1 : event.end_mark.index] in ("]", "}")
            if isinstance(event, yaml.CollectionStartEvent) and event.flow_style:
                self.flows.append(_mark(event.start_mark).line)
            elif isinstance(event, yaml.CollectionEndEvent) and self.flows and closes:
                self.flows.pop()
            self._check_comment(event)
            yield event
            self.ended = event.end_mark.index

    def _check_comment(self, before: Any) -> None:
        """Add a doubt if a comment begins like a word and ends a text, or follows an opening bracket, a comma, or
        within brackets a key; on a line of its own if it is indented deeper than the key of the text."""
        text, end = self.located.text, before.end_mark.index
        found = _WORDS_CUT.match(text, end)
        if found is None:
            return
        opens = isinstance(before, yaml.CollectionStartEvent) and before.flow_style
        plain = isinstance(before, yaml.ScalarEvent) and not before.style and before.value != ""
        cut = plain and isinstance(_number(before.value), str) and not self._is_whole(before)
        line_start = text.rfind("\n", 0, found.start(2)) + 1
        line, column = text.count("\n", 0, found.start(2)) + 1, found.start(2) - line_start + 1
        deeper = cut and not self.flows and column > self._begins(before)
        by_sign = {None: opens or cut, ",": True, ":": bool(self.flows), "\n": deeper}
        if not by_sign[found[1]]:
            return
        message = f"a comment begins at `{found[2][:40].rstrip()}` and is ignored"
        hint = "quote the text if the # belongs to it; otherwise put a space after the #"
        self.located.doubts.append(Problem(self.located.file, line, column, message, hint))

    def _is_whole(self, value: Any) -> bool:
        """True if no further text can belong to the value: it is a duration, or one of the words that its key takes."""
        begin = value.start_mark.index
        line_start = self.located.text.rfind("\n", 0, begin) + 1
        key = _KEY_BEFORE.search(self.located.text, line_start, begin)
        if key is not None and key[1] in _WORD_KEYS:
            return True
        try:
            parse_duration(value.value)
        except ValueError:
            return False
        return True

    def _begins(self, value: Any) -> int:
        """The column in which the key of a value begins, or the value of a list."""
        text, begin = self.located.text, value.start_mark.index
        line_start = text.rfind("\n", 0, begin) + 1
        found = _BEFORE_VALUE.match(text, line_start)
        return (found.end() if found else line_start) - line_start + 1

    def _value(self, event: Any, path: Path, depth: int) -> Json:
        start = _mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self._fail(event, "aliases (`*name`) are not allowed", "write the value out")
        if event.anchor is not None:
            self._fail(event, "anchors (`&name`) are not allowed", "repeat the value where it is used")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!", 1)[:60]
            self._fail(event, f"tags (`{tag}`) are not allowed", "quote text that begins with !")
        if isinstance(event, yaml.ScalarEvent):
            self.located.spans[path] = (start, _mark(event.end_mark))
            text: str = event.value
            if event.style:
                self._check_scalar_text(event, text)
                return text
            if text == "" and not self.empty:
                self._no_value(event, path)
            if text in _NULL:
                return None
            value = _number(text)
            if value is None:
                large = "the number does not fit in 64 bits"
                odd = f"{text[:40]} is not a number that JSON can represent"
                self._note(event, large if _INTEGER.fullmatch(text) else odd, "quote it to make it text")
            elif text != (str(value).lower() if isinstance(value, bool) else str(value)):
                self.located.written[path] = text
            return value
        if depth > MAX_DEPTH:
            self._fail(event, f"the file nests deeper than {MAX_DEPTH} levels")
        self.located.spans[path] = (start, start)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Json] = []
            for item in self.events:
                if isinstance(item, yaml.SequenceEndEvent):
                    break
                items.append(self._value(item, (*path, len(items)), depth + 1))
            return items
        return self._mapping(path, depth)

    def _mapping(self, path: Path, depth: int) -> Json:
        result: dict[str, Json] = {}
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event)
            twice = key in result
            if twice:
                first = self.located.keys[(*path, key)].line
                self._note(event, f"the key `{key}` appears twice", f"the first one is on line {first}")
            else:
                self.located.keys[(*path, key)] = _mark(event.start_mark)
            # The second value is read for its own problems, under a unique path.
            value = self._value(next(self.events), (*path, key + SECOND if twice else key), depth + 1)
            if not twice:
                result[key] = value
        return result

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse_bare_expression(event)
            if isinstance(event, yaml.AliasEvent):
                self._fail(event, "aliases (`*name`) are not allowed", "write the value out")
            self._fail(event, "a key must be text", "quote a key that begins with [ or {")
        if event.anchor is not None or event.tag is not None:
            self._fail(event, "anchors and tags are not allowed")
        if event.value == "":
            self._fail(event, "the key is empty", "write `key: value`")
        key: str = event.value
        self._check_scalar_text(event, key)
        return key

    def _refuse_bare_expression(self, event: Any) -> None:
        """Explain `text: {{ x }}`, a common mistake, which YAML reads as a mapping in a mapping."""
        text, offset = self.located.text, event.start_mark.index
        if text[offset - 1 : offset + 1] != "{{":
            return
        mark = Mark(event.start_mark.line + 1, event.start_mark.column, offset - 1)
        line = text[mark.offset : offset + 200].split("\n")[0].strip()
        before = text[text.rfind("\n", 0, mark.offset) + 1 : mark.offset]
        if "}}" in line and (before.count("{") > before.count("}") or before.count("[") > before.count("]")):
            # The rest belongs to the mapping or list around it.
            line = line[: line.index("}}") + 2]
        advice = f"write '{line}'" if '"' in line else f'write "{line}"'
        hint = advice if line.endswith("}}") and len(line) <= 80 else "put the whole value in quotes"
        self._note_at(mark, "a value that begins with {{ must be quoted", hint)
        raise _Stop

    def _no_value(self, event: Any, path: Path) -> None:
        self.located.empty.add(path)
        name = f"`{path[-1]}`" if path and isinstance(path[-1], str) else "this entry"
        mark = self.located.keys.get(path, _mark(event.start_mark))
        found = _COMMENT.match(self.located.text, self.ended)
        if found is None:
            self._note_at(
                mark, f"{name} has no value", "write a value, or leave it out; write null as `null`"
            )
            return
        comment = found[1].rstrip()
        word = _WORD_CUT.match(comment) and '"' not in comment
        hint = f'{QUOTE_IT}: "{comment}"' if word else "write the value before the comment"
        self._note_at(mark, f"{name} has no value: a comment begins at the #", hint)

    def _check_scalar_text(self, event: Any, text: str) -> None:
        for character in text:
            if character == "\x00" or "\ud800" <= character <= "\udfff":
                self._fail(event, f"the text has the character U+{ord(character):04X}", "remove the escape")

    def _note(self, event: Any, message: str, hint: str | None = None) -> None:
        self._note_at(_mark(event.start_mark), message, hint)

    def _note_at(self, mark: Mark, message: str, hint: str | None) -> None:
        problem = Problem(self.located.file, mark.line, mark.column, message, hint)
        self.located.problems.append(problem)
        if len(self.located.problems) >= MAX_YAML_PROBLEMS:
            self.located.data = None
            raise _Stop

    def _fail(self, event: Any, message: str, hint: str | None = None) -> None:
        """Note a problem after which the rest of the file is unreliable."""
        self._note(event, message, hint)
        self.located.data = None
        raise _Stop


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1, mark.index)


def _number(text: str) -> Json:
    """Parse an unquoted scalar by the core schema of YAML 1.2; None for a number that JSON cannot carry."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        # The number, or None when it has more than 64 bits.
        if len(text) > 30:
            return None
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        number = int(text[2:] if base != 10 else text, base)
        return number if -(2**63) <= number < 2**63 else None
    if _FLOAT.fullmatch(text):
        return value if math.isfinite(value := float(text)) else None
    return None if _NOT_FINITE.fullmatch(text) else text


# --- syntax errors ---------------------------------------------------------------------------------------

_SYNTAX: tuple[tuple[str, str, str | None], ...] = (
    (
        r"mapping values are not allowed",
        "unexpected `:`",
        "quote text that contains `: `; check the indentation of this line",
    ),
    (r"character '\\t'|cannot start any token|found a tab", "unexpected character", None),
    (r"found unexpected end of stream|unexpected end of stream", "the quote is never closed", None),
    (r"but got '\?'", "text that contains `?` must be quoted here", "quote the text"),
    (r"expected ',' or ']'|did not find expected ',' or '\]'", "the list is never closed", "check for a missing `]` or `,`"),
    (r"expected ',' or '}'|did not find expected ',' or '}'", "the mapping is never closed", "check for a missing `}` or `,`"),
    (r"expected <block end>|did not find expected key", "unexpected indentation or text", "all keys of a mapping begin in the same column"),
    (r"did not find expected '-' indicator", "unexpected indentation or text", "all entries of a list begin with `-` in the same column"),
    (r"could not find expected ':'|could not found expected ':'", "expected `:` after the key", "write `key: value`, with a space after the `:`"),
    (r"unknown escape character", "unknown escape in a double-quoted text", "write \\\\ for a backslash, or use single quotes"),
    (r"<document start>", "unexpected text after the end of the flow", "check the indentation of this line"),
)  # fmt: skip


_OF_CHARACTERS = re.compile(r"cannot start any token|\\t|a tab|quoted scalar")
"""Complaints that no comment is the reason of."""


_BARE = re.compile(r"(?<=[:,\[{] )(?! )[^\"',\[\]{}]+\{\{[^{}\"]*\}\}[^,\[\]{}]*")
"""A text with an expression in it that is in a mapping or list in one line, without quotes."""


def _syntax_error(located: Located, error: yaml.MarkedYAMLError, flows: list[int]) -> FlowError:
    """The parser's complaint in words that help; both parsers of PyYAML give the same."""
    problem = error.problem or "not valid YAML"
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    message, hint = f"not valid YAML: {problem}", None
    for pattern, words, advice in _SYNTAX:
        if re.search(pattern, problem):
            message, hint = words, advice
            break
    cut = located.doubts[-1] if located.doubts else None
    near = cut is not None and cut.line >= min([line - 1, *flows])
    if cut is not None and near and not _OF_CHARACTERS.search(f"{problem} {error.context}"):
        return FlowError([*located.problems, cut._replace(hint="quote text that contains a #")])
    lines = located.text.split("\n")
    source = lines[line - 1] if line <= len(lines) else ""
    bare = _BARE.search(source) if message.endswith("is never closed") else None
    if bare is not None:
        column, message = bare.start() + 1, "a value with {{ }} must be quoted"
        hint = f'write "{bare[0].strip()}"'
    elif message == "the quote is never closed" and error.context_mark is not None:
        line, column = error.context_mark.line + 1, error.context_mark.column + 1
    elif "\t" in source[: max(column, len(source) - len(source.lstrip()))]:
        column = source.index("\t") + 1
        message, hint = "indentation cannot use tabs", "use spaces"
    elif message == "unexpected character" and column <= len(source):
        message, hint = f"a value cannot begin with `{source[column - 1]}`", "quote the text"
    return FlowError([*located.problems, Problem(located.file, line, column, message, hint)])
