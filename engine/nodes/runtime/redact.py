"""Redaction: removes secret values from everything that leaves a node: text, JSON, and text that arrives in pieces.

A value is searched for as itself and in the encodings in which programs print it, in five views of a text: as it is
(JSON, percent and shell quotes of the common libraries, HTML), packed (base64 once and twice, base32, at all
alignments), as hex digits in any case with or without separators, with every character escape decoded (`%63`,
`\\u0063`, `\\x63`, `\\143`, `&#99;`), in any mixture, and as mail headers quote it (`=63`). Letters beyond ASCII are
searched for in every form they may take: composed or not, in UTF-8, Latin-1 or UTF-16, read as another of these,
replaced or left out. Line breaks are ignored on both sides, since `base64` wraps at 76 characters; in encodings without
backslashes also the escaped ones of a JSON text. Redacting too much is a blemish, too little a leak: overlapping
occurrences are all removed.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import quote, quote_plus

from msgspec import Struct, field

from engine.language.codec import Json

log = logging.getLogger(__name__)

SHORTEST = 4
"""Values with fewer characters are not taken out: they would turn up in every second word."""

_SHORTEST_LINE = 16
_BREAKS = re.compile(r"[\r\n]+")
_ESCAPED_BREAKS = re.compile(r"(?:[\r\n]|\\+[rn]|\\+\Z)+")
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_SEPARATORS = re.compile(r"(?:[\s:,_.-]|0[xX])+")
_SMALL = str.maketrans("ABCDEF", "abcdef")
_ESCAPES = re.compile(
    r"(?P<percent>(?:%[0-9A-Fa-f]{2})+)|(?P<unicode>(?:\\+u[0-9A-Fa-f]{4})+)|\\+u\{(?P<braced>[0-9A-Fa-f]{1,6})\}"
    r"|(?P<bytes>(?:\\+x[0-9A-Fa-f]{2})+)|(?P<octal>(?:\\+[0-3][0-7]{2})+)|\\+U(?P<wide>[0-9A-Fa-f]{8})|&#0*(?P<decimal>\d{1,7});|&#[xX]0*(?P<hexadecimal>[0-9A-Fa-f]{1,6});"
    r"|&(?P<named>[A-Za-z]{2,8});|\\(?P<char>[\"'\\/])|(?P<breaks>[\r\n]+)"
)
_UNFINISHED = re.compile(
    r"(?:(?:%[0-9A-Fa-f]{2})*(?:%[0-9A-Fa-f]?)?|(?:\\+u[0-9A-Fa-f]{4})*(?:\\+(?:u(?:[0-9A-Fa-f]{0,3}|\{[0-9A-Fa-f]{0,6}))?)?"
    r"|(?:\\+x[0-9A-Fa-f]{2})*(?:\\+(?:x[0-9A-Fa-f]?)?)?|(?:\\+[0-3][0-7]{2})*(?:\\+(?:[0-3][0-7]?)?)?|\\+U[0-9A-Fa-f]{0,7}|&(?:#?[0-9A-Za-z]{0,9})?)\Z"
)
"""An escape, or a run of escapes, that more text may continue."""
_QUOTED = re.compile(
    r"(?P<percent>(?:=[0-9A-Fa-f]{2})+)|(?P<breaks>=?[\r\n]+|\?=\s*=\?[\w-]{1,40}\?[qQ]\?)", re.ASCII
)
"""Characters quoted as in mail headers, and separators between two words of such a header (RFC 2047)."""
_UNFINISHED_QUOTED = re.compile(
    r"(?:(?:=[0-9A-Fa-f]{2})*(?:=[0-9A-Fa-f]?)?|\?(?:=\s*(?:=(?:\?(?:[\w-]{1,40}(?:\?(?:[qQ])?)?)?)?)?)?)\Z",
    re.ASCII,
)
_ESCAPE_LENGTH = 6
"""Usual length of an escape for one character."""


class Span(NamedTuple):
    """Position of a secret in a text: [start, end)."""

    start: int
    end: int
    name: str


class Redactor:
    """Replaces the values of secrets by `[secret NAME]`.

    `unprotected` are the names whose values are too short to redact; they are logged as a warning.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        plain: dict[str, str] = {}
        packed: dict[str, str] = {}
        digits: dict[str, str] = {}
        bare: dict[str, str] = {}
        unprotected: list[str] = []
        for name, value in values.items():
            if len(_BREAKS.sub("", value)) < SHORTEST:
                unprotected.append(name)
                continue
            for form in forms(value):
                plain.setdefault(_BREAKS.sub("", form), name)
            for form in packed_forms(value):
                packed.setdefault(form, name)
            for data in _datas(value):
                digits.setdefault(data.hex(), name)
            for spelling in spellings(value):
                bare.setdefault(_BREAKS.sub("", spelling), name)
        quoted = {form: name for needle, name in bare.items() for form in (needle, needle.replace(" ", "_"))}
        views = (
            _View(_BREAKS, plain),
            _View(_ESCAPED_BREAKS, packed),
            _HexView(digits),
            _EscapeView(bare, "%\\&", _ESCAPES, _UNFINISHED),
            _EscapeView(quoted, "=", _QUOTED, _UNFINISHED_QUOTED),
        )
        self._views: tuple[_View, ...] = views if plain else ()
        self.unprotected = tuple(unprotected)
        self.longest = max((view.reach for view in self._views), default=0)
        if unprotected:
            log.warning(
                "secrets shorter than %d characters are not redacted from outputs: %s",
                SHORTEST,
                ", ".join(unprotected),
            )

    @property
    def margin(self) -> int:
        """Number of characters around a cut that decide whether a secret crosses it; 0 without secrets."""
        return 2 * self.longest + 64 if self.longest else 0

    def text(self, text: str) -> str:
        """This text without secrets."""
        return self.window(text, 0, len(text)) if self._views else text

    def window(self, text: str, start: int, end: int) -> str:
        """Return the part [start, end) of a text without secrets; the rest is only context.

        A secret across `end` appears as its mark, one across `start` not at all.
        """
        parts: list[str] = []
        at = start
        for span in self.spans(text):
            if span.end <= start:
                continue
            if span.start >= end:
                break
            parts.append(text[at : max(at, span.start)])
            if span.start >= start:
                parts.append(f"[secret {span.name}]")
            at = span.end
        parts.append(text[at:end])
        return "".join(parts)

    def json(self, value: Json) -> Json:
        """This JSON value without secrets: in texts, in keys, and where a number is one."""
        # One search over all texts together: nearly always there is nothing to redact.
        return self._json(value) if self.spans("\0".join(_texts(value))) else value

    def _json(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {self.text(key): self._json(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._json(item) for item in value]
        if isinstance(value, str):
            return self.text(value)
        return self.text(str(value)) if self.spans(_number(value)) else value

    def stream(self) -> RedactedStream:
        """Return a redactor for text that arrives in pieces."""
        return RedactedStream(self)

    def spans(self, text: str) -> list[Span]:
        """Return the positions of secrets in this text, in order; overlapping ones are one span under the first's name."""
        found = [span for view in self._views for span in view.spans(text)]
        ordered = sorted(found, key=lambda span: (span.start, -span.end))
        merged: list[Span] = []
        for each in ordered:
            if merged and each.start < merged[-1].end:
                last = merged[-1]
                merged[-1] = last._replace(end=max(last.end, each.end))
            else:
                merged.append(each)
        return merged

    def undecided(self, text: str, least: int = 1) -> int:
        """Return the index from which the end of this text may be the beginning of a secret; its length if there is
        none.

        Beginnings with fewer than `least` characters do not count.
        """
        return min((view.undecided(text, least) for view in self._views), default=len(text))


class RedactedStream:
    """Redacts text that arrives in pieces; holds back only a possible beginning of a secret. Memory is bounded."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._buffer = ""
        self._done = 0  # what stands before this index in the buffer was given out and is only context

    def feed(self, text: str) -> str:
        """Take the next piece; returns the text that is safe to show now."""
        self._buffer += text
        keep = 4 * self._redactor.margin
        return self._show(max(self._redactor.undecided(self._buffer), len(self._buffer) - keep, self._done))

    def close(self) -> str:
        """End the text; returns the rest."""
        return self._show(len(self._buffer))

    def _show(self, end: int) -> str:
        shown = self._redactor.window(self._buffer, self._done, end)
        cut = max(0, end - self._redactor.margin)
        self._buffer, self._done = self._buffer[cut:], end - cut
        return shown


def _texts(value: Json) -> Iterator[str]:
    """Yield every text in a JSON value, keys and numbers included."""
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        yield value if isinstance(value, str) else _number(value)


def _number(value: Json) -> str:
    return "" if value is None or isinstance(value, bool) else str(value)


def forms(value: str) -> set[str]:
    """The texts under which this value may turn up in an output."""
    escaped = json.dumps(value)[1:-1]
    found = {
        value,
        value.strip() if len(value.strip()) >= SHORTEST else value,
        escaped,
        escaped.replace("/", "\\/"),
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        value.replace("'", "'\\''"),
        value.replace("'", "'\"'\"'"),
        *_quoted(value),
        *packed_forms(value),
        *spellings(value),
        *(line for line in value.splitlines() if len(line) >= _SHORTEST_LINE and not line.startswith("---")),
    }
    # An API often answers with a JSON text that holds such an output: escaped once more.
    found |= {json.dumps(form)[1:-1] for form in found}
    return {form for form in found if len(_BREAKS.sub("", form)) >= SHORTEST}


def spellings(value: str) -> set[str]:
    """Return the texts that this value becomes when it is normalized, or written in one encoding and read in another.
    Results too short to be distinctive are left out."""
    composed = {value, *(normalize(form, value) for form in ("NFC", "NFD"))}
    found = set(composed)
    for text in composed:
        wrote = [text.encode("utf-16-le", "surrogatepass"), text.encode("utf-16-be", "surrogatepass")]
        if not text.isascii():
            wrote += [text.encode(name, "replace") for name in ("ascii", "latin-1", "cp1252")]
            wrote += [_bytes_of(text), text.encode("ascii", "ignore"), *_host(text)]
        for data in wrote:
            found |= {data.decode("latin-1").strip("\0"), data.decode("utf-8", "replace").strip("\0")}
            if not text.isascii():
                read = data.decode("ascii", "surrogateescape")
                found |= {read, read.encode("utf-8", "replace").decode(), data.decode("ascii", "replace")}
                found |= {data.decode("utf-8", "surrogateescape"), data.decode("cp1252", "replace")}
    return {each for each in found if each in composed or len(_LOST.sub("", each)) >= SHORTEST}


_LOST = re.compile(r"[?\ufffd\0\udc80-\udcff]")
"""Replacements of characters that an encoding does not have."""


def _host(text: str) -> Iterator[bytes]:
    """Yield the text in its form as a host name, if it has one."""
    with suppress(UnicodeError):
        yield text.encode("idna")


def _datas(value: str) -> set[bytes]:
    """The bytes that this value is in the common encodings."""
    texts = {value, *(normalize(form, value) for form in ("NFC", "NFD"))}
    names = ("utf-8", "utf-16-le", "utf-16-be")
    found = {text.encode(name, "surrogatepass") for text in texts for name in names}
    return found | {text.encode("latin-1") for text in texts if max(text) < "\u0100"}


def packed_forms(value: str) -> set[str]:
    """Those of its forms that consist of letters, digits and little else, so that they are often wrapped."""
    data = _bytes_of(value)
    once = {*_base64(data), base64.encodebytes(data).decode()}
    twice = {form for inner in once for form in _base64(inner.encode())}
    others = {form for other in _datas(value) - {data} for form in _base64(other)}
    return {
        form
        for form in (*once, *twice, *others, *_base32(data))
        if len(form) >= SHORTEST and "\n" not in form
    }


def _bytes_of(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _quoted(value: str) -> Iterator[str]:
    """Percent-quoted as the common libraries do it, with capital and with small hex digits."""
    for text in (
        quote(value, safe="", errors="surrogatepass"),
        quote(value, errors="surrogatepass"),
        quote(value, safe="!'()*", errors="surrogatepass"),
        quote(value, safe="!'()*;/?:@&=+$,#", errors="surrogatepass"),
        quote_plus(value, errors="surrogatepass"),
    ):
        yield text
        yield _PERCENT.sub(lambda match: match.group().lower(), text)


def _base64(data: bytes) -> Iterator[str]:
    """The characters that these bytes alone decide in base64, at each of the three alignments."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")
        for before in range(3):
            whole = encode(bytes(before) + data).decode()
            first = (0, 2, 3)[before]
            yield whole[first : (before + len(data)) * 8 // 6]


def _base32(data: bytes) -> Iterator[str]:
    """The same in base32, at each of its five alignments, in capital and in small letters."""
    for before in range(5):
        whole = base64.b32encode(bytes(before) + data).decode()
        form = whole[-(-before * 8 // 5) : (before + len(data)) * 8 // 5]
        yield from (form, form.lower())


class _View:
    """Search in a text from which certain line breaks were removed."""

    def __init__(self, breaks: re.Pattern[str], needles: dict[str, str]) -> None:
        self._breaks = breaks
        self.needles = needles
        self._sorted = sorted(needles)
        self._begins = {needle[:size] for needle in needles for size in (1, 2)}
        self._longest = self.reach = max(map(len, needles), default=0)
        "Length of the longest needle, without line breaks."

    def read(self, text: str) -> _Squeezed:
        """The text in which they are looked for."""
        return _Squeezed.of(text, self._breaks)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield every occurrence, overlapping ones too, in no order."""
        squeezed = self.read(text)
        for needle, name in self.needles.items():
            start = squeezed.text.find(needle)
            while start >= 0:
                yield Span(squeezed.place(start), squeezed.end(start + len(needle) - 1), name)
                start = squeezed.text.find(needle, start + 1)

    def undecided(self, text: str, least: int) -> int:
        """Return the index from which the text's end is the beginning of a needle; its length if there is none."""
        squeezed = self.read(text)
        size = len(squeezed.text)
        for start in range(max(0, size - self._longest + 1), size - least + 1):
            if squeezed.text[start : start + 2] not in self._begins:
                continue
            suffix = squeezed.text[start:]
            at = bisect_right(self._sorted, suffix)
            if at < len(self._sorted) and self._sorted[at].startswith(suffix):
                return squeezed.place(start)
        return len(text)


class _HexView(_View):
    """Hex digits of bytes in any case, with or without something between the bytes."""

    def __init__(self, needles: dict[str, str]) -> None:
        super().__init__(_SEPARATORS, needles)
        self.reach = self._longest * 3

    def undecided(self, text: str, least: int) -> int:
        return super().undecided(text.removesuffix("0"), least)  # of `0x`, maybe

    def read(self, text: str) -> _Squeezed:
        return _Squeezed.of(text.translate(_SMALL), self._breaks)


class _EscapeView(_View):
    """Search in text with its character escapes decoded. Each escape begins with one of `marks`."""

    def __init__(
        self, needles: dict[str, str], marks: str, escapes: re.Pattern[str], unfinished: re.Pattern[str]
    ) -> None:
        super().__init__(_BREAKS, needles)
        self._marks, self._escapes, self._unfinished = marks, escapes, unfinished
        self.reach = max((_ESCAPE_LENGTH * len(_bytes_of(needle)) for needle in needles), default=0)

    def read(self, text: str) -> _Squeezed:
        return _Squeezed.decoded(text, self._escapes)

    def spans(self, text: str) -> Iterator[Span]:
        # Without escapes the other views find everything.
        return super().spans(text) if any(mark in text for mark in self._marks) else iter(())

    def undecided(self, text: str, least: int) -> int:
        if not any(mark in text for mark in self._marks):
            return super().undecided(text, least)
        unfinished = self._unfinished.search(text)
        assert unfinished is not None, "it matches the end of every text"
        return super().undecided(text[: unfinished.start()], least)


class _Squeezed(Struct, frozen=True):
    """A text without line breaks, and the way back to where each character stood."""

    text: str
    breaks: list[int]
    removed: list[int]
    widths: Mapping[int, int] = field(default_factory=dict)
    """Number of original characters for each decoded one."""

    @classmethod
    def decoded(cls, text: str, escapes: re.Pattern[str]) -> _Squeezed:
        """A text with its escapes decoded too."""
        parts: list[str] = []
        breaks: list[int] = []
        removed = [0]
        widths: dict[int, int] = {}
        at = size = 0
        for match in escapes.finditer(text):
            parts.append(text[at : match.start()])
            size += match.start() - at
            at = match.end()
            for char, width in _unescaped(match):
                kept = char not in "\r\n"
                if kept:
                    parts.append(char)
                    widths[size] = width
                    size += 1
                breaks.append(size)
                removed.append(removed[-1] + width - kept)
        return cls("".join((*parts, text[at:])), breaks, removed, widths)

    @classmethod
    def of(cls, text: str, pattern: re.Pattern[str]) -> _Squeezed:
        parts: list[str] = []
        breaks: list[int] = []
        removed = [0]
        at = 0
        for match in pattern.finditer(text):
            parts.append(text[at : match.start()])
            at = match.end()
            breaks.append(match.start() - removed[-1])
            removed.append(removed[-1] + at - match.start())
        return cls("".join((*parts, text[at:])), breaks, removed)

    def place(self, index: int) -> int:
        """Return the original position of the character at this index."""
        return index + self.removed[bisect_right(self.breaks, index)]

    def end(self, index: int) -> int:
        """Return the original end of the character at this index."""
        return self.place(index) + self.widths.get(index, 1)


def _unescaped(match: re.Match[str]) -> list[tuple[str, int]]:
    """Return the characters that an escape, or a run of them, encodes, each with its length in the text."""
    kind, given = str(match.lastgroup), match[match.lastgroup or 0]
    if kind == "breaks":
        return [("\n", len(given))]
    if kind in ("percent", "bytes", "octal"):
        one, size, base = (r"\\+...", 3, 8) if kind == "octal" else (r"[%=]..|\\+x..", 2, 16)
        escapes = re.findall(one, given)
        return _in_chars(bytes(int(escape[-size:], base) for escape in escapes), "utf-8", 1, escapes)
    if kind == "unicode":
        escapes = re.findall(r"\\+u....", given)
        return _in_chars(b"".join(bytes.fromhex(escape[-4:]) for escape in escapes), "utf-16-be", 2, escapes)
    whole = len(match[0])
    if kind == "char":
        return [(given, whole)]
    if kind == "named":
        char = html.unescape(match[0])
        return [(char, whole)] if len(char) == 1 else [(each, 1) for each in match[0]]
    number = int(given, 10 if kind == "decimal" else 16)
    return [(chr(number) if number <= sys.maxunicode else "\ufffd", whole)]


def _in_chars(data: bytes, encoding: str, unit: int, escapes: list[str]) -> list[tuple[str, int]]:
    """The characters of these bytes, each with the length of the escapes that it was written with."""
    found: list[tuple[str, int]] = []
    at = 0
    for char in data.decode(encoding, "surrogatepass" if unit == 2 else "replace"):
        size = max(1, len(char.encode(encoding, "surrogatepass")) // unit) if char != "\ufffd" else 1
        found.append((char, sum(map(len, escapes[at : at + size]))))
        at += size
    return found
