"""Keeps the beginning and the end of an output that may be endless, in bounded memory, without secrets."""

from __future__ import annotations

import codecs

from engine.nodes.runtime.redact import SHORTEST, Redactor

_LINE = 200
_RECENT = 4096


class Capture:
    """Takes bytes, gives text of about `limit` bytes: all of them, or head and tail with a mark between.

    Secrets are taken out before the cut is made, so half of one never stays: a margin beyond each cut is kept
    for that. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self, limit: int, redactor: Redactor) -> None:
        self._redactor = redactor
        self._limit = limit
        self._margin = 4 * redactor.margin  # characters to bytes
        self._head_size, self._tail_size = limit - limit // 2, limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._head_size + self._margin - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_room:  # twice: so that the bytes are not moved at every call
            del self._tail[: -self._tail_room]

    def text(self) -> str:
        """What is kept, as text, with `[… N bytes left out …]` where some are missing."""
        if self.total <= self._limit:
            return self._redactor.text((self._head + self._tail).decode("utf-8", "replace"))
        whole = len(self._head) + len(self._tail) == self.total
        head = self._head + self._tail if whole else self._head
        tail = self._head + self._tail if whole else self._tail
        first, after = _split(head, self._head_size)
        before, last = _split(tail, len(tail) - self._tail_size)
        shown_head = self._redactor.window(first + after, 0, len(first))
        shown_tail = self._redactor.window(before + last, len(before), len(before) + len(last))
        return f"{shown_head}\n[… {self.total - self._limit} bytes left out …]\n{shown_tail}"

    def last_line(self) -> str:
        """The last complete line so far, for a progress display; at most 200 characters, "" without one.

        Nothing that may be the first half of a secret is shown; a character or two are nobody's half.
        """
        whole = len(self._head) + len(self._tail) == self.total
        data = (self._head + self._tail if whole else self._tail)[-_RECENT - self._margin :]
        before, after = _split(data, self._margin if len(data) < self.total else 0)
        text = before + after
        shown = self._redactor.window(text, len(before), self._redactor.undecided(text, SHORTEST))
        lines = [line.strip() for line in shown.split("\n")[:-1]]
        return next((line[:_LINE] for line in reversed(lines) if line), "")

    @property
    def _tail_room(self) -> int:
        return self._tail_size + self._margin + 4


def _split(data: bytearray, at: int) -> tuple[str, str]:
    """These bytes as text before and after an offset; a character that lies across it comes after."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    before = decoder.decode(bytes(data[:at]))
    return before, decoder.decode(bytes(data[at:]), final=True)
