"""Lines in which a program says how far it is: `::progress 3/10 copying`, `::progress 30% copying`.

They are taken out of the output, whatever pieces it comes in; everything else passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.nodes.runtime.redact import Redactor
from engine.nodes.types.meter import Meter

PREFIX = b"::progress "
_LINE = re.compile(
    r"::progress +(?P<done>\d{1,12}(?:\.\d{1,6})?) *(?:/ *(?P<total>\d{1,12}(?:\.\d{1,6})?)|%)(?: +(?P<text>.*))?",
    re.ASCII,
)
_LONGEST = 1_000
_TEXT = 200


class MeterLines:
    """Takes the bytes of an output, gives them without those lines, and shows what the lines say."""

    def __init__(self, show: Callable[[Meter], None], redactor: Redactor) -> None:
        self._show = show
        self._redactor = redactor
        self._held = b""
        self._at_start = True

    def feed(self, data: bytes) -> bytes:
        """The next bytes as far as they are output; a beginning that may become such a line is held back."""
        passed: list[bytes] = []
        for piece in (self._held + data).splitlines(keepends=True):
            whole = piece.endswith((b"\n", b"\r"))
            begins = self._at_start and (PREFIX.startswith(piece) or piece.startswith(PREFIX))
            if begins and not whole and len(piece) < _LONGEST:
                self._held = piece
                return b"".join(passed)
            if not (begins and whole and self._read(piece)):
                passed.append(piece)
            self._at_start = whole
        self._held = b""
        return b"".join(passed)

    def rest(self) -> bytes:
        """What was held back when the output ended."""
        held, self._held = self._held, b""
        return b"" if held and self._read(held) else held

    def _read(self, line: bytes) -> bool:
        found = _LINE.fullmatch(line.decode("utf-8", "replace").strip())
        if found is None:
            return False
        total = float(found["total"]) if found["total"] is not None else 100.0
        text = self._redactor.text(" ".join((found["text"] or "").split()))[:_TEXT]
        self._show(Meter(float(found["done"]), total, text))
        return True
