"""Checks exports of `sayso audit export` and published checkpoints with a public key alone. Needs Python and `cryptography`.

    python verify_audit.py KEY FILE...    # the key of `sayso audit key`; exports in their order, and published checkpoints

Exits with 1, and the place of what is not as it was attested.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NOTE = re.compile("(([^\n]+)\n([0-9]+)\n([^\n]+)\n(?:((?:key|export) [^\n]+)\n)?)\n— \\2 ([^\n]+)\n")


class Broken(Exception):
    """The evidence is not as it was attested; the text names the place."""


class Log:
    """Knowledge of one log, file by file."""

    def __init__(self) -> None:
        self.keys, self.until = dict[str, Ed25519PublicKey](), dict[str, int]()
        self.roots, self.heads = dict[int, tuple[bytes, str]](), dict[str, str]()  # by size; by session
        self.size, self.end, self.last, self.place, self.partial = 0, 0, "", "the key", False
        self.peaks, self.counts, self.absent = list[bytes](), [0, 0], set[str]()

    def need(self, holds: bool, told: str) -> None:
        if not holds:
            raise Broken(f"{self.place}: {told}.")

    def add_key(self, text: str) -> None:
        name, key_id, key = text.split("+", 2)
        self.keys[f"{name}+{key_id}"] = Ed25519PublicKey.from_public_bytes(b64decode(key)[1:])

    def note(self, text: str) -> tuple[int, bytes, str, str]:
        """Return the size, the root and the added line of a signed note, and its key."""
        body, origin, size, root, added, signature = NOTE.fullmatch(text).groups()  # type: ignore[union-attr]
        signed = b64decode(signature)
        key = f"{origin}+{signed[:4].hex()}"
        known = key in self.keys and int(size) <= self.until.get(key, int(size))
        self.need(known, f"it is not signed by a known key of {origin} that was valid then")
        self.need(b64encode(signed).decode() == signature, "its signature was changed")
        self.keys[key].verify(signed[4:], body.encode())
        return int(size), b64decode(root), added, key

    def claim(self, size: int, root: bytes) -> None:
        other, place = self.roots.setdefault(size, (root, self.place))
        self.need(other == root, f"fork: the first {size} leaves are not those of {place}")

    def checkpoints(self, name: str, data: bytes) -> None:
        at, text = 0, data.decode()
        while at < len(text):
            self.place = f"{name}, line {text.count(chr(10), 0, at) + 1}"
            note = NOTE.match(text, at)[0]  # type: ignore[index]
            size, root, *_ = self.note(note)
            self.need(size <= self.end or not self.last, f"rolled back: {self.last} has {self.end} leaves")
            self.claim(size, root)
            at, self.counts[1] = at + len(note), self.counts[1] + 1

    def export(self, name: str, data: bytes) -> None:
        """Read the tree before an export, its leaves, each with its records, and the checkpoint that seals it."""
        first, *lines, last, rest = data.split(b"\n")
        self.place, told = f"{name}, line 1", json.loads(first)
        self.peaks = [bytes.fromhex(peak) for peak in told["peaks"]]
        self.size, root, *_ = self.note(told["before"]) if told["before"] else (0, rooted([]))
        self.need(rooted(self.peaks) == root, "the tree is not that of the checkpoint before")
        self.claim(self.size, root)
        self.need(self.size <= self.end or not self.last, f"leaves from {self.end} on are in no export")
        self.heads, self.partial = self.heads if self.size == self.end else {}, self.size > 0
        session = head = wanted = ""
        for number, line in enumerate([*lines, last], 2):
            self.place, told = f"{name}, line {number}", json.loads(line)
            if "id" in told:
                body, _, chain = line.partition(b',"chain":"')
                head = sha256(head.encode() + body + b"}").hexdigest()
                same = told["sessionId"] == session and chain[:64].decode() == head
                self.need(same, f"{told['id']} or a record before it was changed, removed or added")
                same = chain[64:] == b'"}' or sha256(chain[76:-1]).hexdigest() == told["digest"]
                self.need(same, f"the content of {told['id']} does not match its digest")
                self.counts[0] += 1
            elif "absent" in told:
                head, self.absent = wanted, self.absent | {f"{session} ({told['absent']})"}
            else:
                self.need(head == wanted, f"records of {session} are missing before it")
                session, head, wanted = (told.get(key, "") for key in ("sessionId", "after", "head"))
                if line is not last:
                    self.add(line, told, session)
        *attested, _ = self.note(told["checkpoint"])
        digest = sha256(data[: len(data) - len(last) - 1]).hexdigest()
        same = attested == [self.size, rooted(self.peaks), f"export {digest}"] and not rest
        self.need(same, "a line was changed, removed or moved since it was written")
        self.need(self.size >= self.end, f"rolled back: {self.last} has {self.end} leaves, not {self.size}")
        self.end, self.last = self.size, name

    def add(self, line: bytes, told: dict[str, Any], session: str) -> None:
        self.need(told["leaf"] == self.size, f"leaf {self.size} is missing here")
        if session:
            before = self.heads.setdefault(session, told["after"] if self.partial else "")
            self.need(before == told["after"], "it does not continue at the end of the session's last leaf")
            self.heads[session] = told["head"]
        else:  # a key, signed by the one before, the first one by itself
            *attested, key = self.note(told["signed"])
            self.need(attested == [self.size, rooted(self.peaks), f"key {told['key']}"], "it was not signed")
            self.add_key(told["key"])
            self.until |= {key: self.size} if self.size else {}
        self.peaks, self.size = grown(self.peaks, self.size, line), self.size + 1
        self.claim(self.size, rooted(self.peaks))


def grown(peaks: list[bytes], size: int, leaf: bytes) -> list[bytes]:
    """Return the peaks of an RFC 6962 tree of `size` leaves after one more."""
    kept = (size + 1).bit_count() - 1  # the others are roots of subtrees that the leaf completes
    return [*peaks[:kept], rooted([*peaks[kept:], sha256(b"\0" + leaf).digest()])]


def rooted(peaks: list[bytes]) -> bytes:
    """Return the root of the tree with these peaks; of no tree the hash of nothing."""
    return reduce(lambda at, left: sha256(b"\1" + left + at).digest(), reversed(peaks or [sha256().digest()]))


def check(keys: list[str], files: list[tuple[str, bytes]]) -> str:
    """Check files, each a name and its bytes, and return what was found. Raises `Broken`."""
    log = Log()
    try:
        list(map(log.add_key, keys))
        for log.place, data in sorted(files, key=lambda file: file[1].startswith(b"sayso/")):
            (log.checkpoints if data.startswith(b"sayso/") else log.export)(log.place, data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, InvalidSignature) as error:
        raise Broken(f"{log.place}: it was changed, cut off, or is not such a file.") from error
    told = f"{log.counts[0]} records, {log.end} leaves, {log.counts[1]} published checkpoints"
    return f"Verified: {told}. Without their records: {', '.join(sorted(log.absent)) or 'none'}."


if __name__ == "__main__":
    try:
        _, given, *named = sys.argv if len(sys.argv) > 2 else sys.exit(__doc__)
        print(check(given.split(), [(name, Path(name).read_bytes()) for name in named]))
    except (Broken, OSError, ValueError) as problem:
        sys.exit(f"Not verified. {problem}")
