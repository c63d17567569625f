"""The line with which people start a flow: `NAME key=value ...`, `run NAME ...`. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

_PLAIN = re.compile(r"\S+")
_KEY = re.compile(r"([^\W\d][\w-]*)=")
_QUOTED = re.compile(
    r"\"(.*?)(?<!\\)\"(?!\S)|[“”„](.*?)[“”](?!\S)|'(.*?)'(?!\S)|[‘’‚](.*?)[‘’](?!\S)", re.DOTALL
)
_CURLY = str.maketrans("“”„", '"""')
_MOST_FAILED = 20
"""Words that begin like JSON or a quote and are none: looking for their end takes time."""


@dataclass(frozen=True, slots=True)
class StartLine:
    """A flow to start, with the inputs as they were typed, or filled in."""

    flow: str
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadLine:
    """The line starts nothing; `message` tells its author why and what would."""

    message: str


class _Word(NamedTuple):
    """A word of a line, `key=value` or another. `open`: a quote begins it that is not closed."""

    begin: int
    end: int
    key: str | None
    value: str
    open: bool


def parse(text: str, flows: Iterable[str], faults: Mapping[str, str] | None = None) -> StartLine | BadLine:
    """The flow that a line starts. A value may be quoted as a whole; phones' curly quotes count as quotes. JSON needs no
    quotes around it, and a backslash stays what it is."""
    names = sorted(flows)
    words = list(_words(text))
    if words and words[0].value.lower() == "run":
        words = words[1:]
    if not words:
        return BadLine(f"Name the flow to run: {_listed(names)}.")
    first = words[0].value
    name = first if first in names else first.lower()
    if name not in names and name in (faults or {}):
        return BadLine(
            f"`{name}` cannot be started: its file cannot be loaded. {_shown((faults or {})[name])}"
        )
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean `{close[0]}`?" if close else f"There are: {_listed(names)}."
        return BadLine(f"There is no flow `{_shown(first)}`. {hint}")
    inputs: dict[str, Any] = {}
    for word in words[1:]:
        if word.open:
            return BadLine('A quote is not closed. Write values with spaces as `key="two words"`.')
        if word.key is None:
            return BadLine(f"I don't understand `{_shown(word.value)}`: write inputs as `key=value`.")
        if word.key in inputs:
            return twice(word.key)
        inputs[word.key] = word.value
    return StartLine(name, inputs)


def twice(name: str) -> BadLine:
    """An input that is given more than once."""
    return BadLine(f'`{name}` is given twice. Write a value with spaces as `{name}="two words"`.')


def taken_out(text: str, inputs: Collection[str]) -> tuple[str, list[tuple[str, str]]]:
    """A text without those of its words that give one of these inputs, and what they give. Case does not matter: phones
    begin with a capital letter."""
    rest, at, given = "", 0, []
    own = {name.lower(): name for name in inputs}
    words = list(_words(text))
    while words:
        word, name, value = words[0], own.get((words[0].key or "").lower()), words[0].value
        taken = 1
        if word.key is None and word.value.lower() in own and len(words) > 1 and words[1].value[:1] == "=":
            # People write `name = value` as well.
            name, value, taken = own[word.value.lower()], words[1].value[1:], 2
        if name is not None and not value and len(words) > taken:
            value, taken = words[taken].value, taken + 1
        if name is not None and not any(one.open for one in words[:taken]):
            rest += text[at : word.begin].rstrip()
            at = words[taken - 1].end
            given.append((name, value))
        del words[:taken]
    return (rest + text[at:]).strip(), given


def bare(text: str) -> str:
    """A text without the quotes around the whole of it."""
    value, end = _quoted(text, 0) or (text, len(text))
    return value if end == len(text) else text


def _words(text: str) -> Iterator[_Word]:
    at, failed = 0, 0
    while (found := _PLAIN.search(text, at)) is not None:
        key = _KEY.match(text, found.start())
        begin = key.end() if key else found.start()
        value, at = text[begin : found.end()], found.end()
        read = _READ.get(value[:1]) if failed < _MOST_FAILED else None
        whole = read(text, begin) if read is not None else None
        failed += read is not None and whole is None
        # An apostrophe opens nothing: `’tis`.
        is_open = read is _quoted and whole is None and value[0] != "’"
        value, at = whole or (value, at)
        yield _Word(found.start(), at, key[1] if key else None, value, is_open)


def _json(text: str, begin: int) -> tuple[str, int] | None:
    """The JSON that is here as a word, and where it ends."""
    for read in (text, text.translate(_CURLY)):
        with suppress(ValueError, RecursionError):
            _, end = json.JSONDecoder().raw_decode(read, begin)
            if not text[end : end + 1].strip():
                return read[begin:end], end
    return None


def _quoted(text: str, begin: int) -> tuple[str, int] | None:
    """The quoted text that is here as a whole word, and where it ends."""
    found = _QUOTED.match(text, begin)
    return None if found is None else (found[found.lastindex or 0].replace('\\"', '"'), found.end())


_READ = {**dict.fromkeys("[{", _json), **dict.fromkeys("\"“”„'‘’‚", _quoted)}
"""By the sign that begins a value that may have spaces."""


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "there are none here"


def _shown(word: str) -> str:
    return word[:60].replace("`", "'")
