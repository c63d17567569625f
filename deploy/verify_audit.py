"""Checks exports of `sayso audit export` and published checkpoints, with a public key alone. Needs Python and `cryptography`.

    python verify_audit.py KEY FILE...

KEY is the public key (`sayso+…`, from `sayso audit key`) or a file with one a line. Each FILE is an export, or a file with
published checkpoints. Give exports in the order in which they were made. The exit code is 0 if all is as it was
attested, and 1 with a sentence that names the place otherwise.
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

NOTE = re.compile("([^\n]+)\n(0|[1-9][0-9]*)\n([^\n]+)\n\n— ([^ \n]+) ([^\n]+)\n")


class Broken(Exception):
    """The evidence is not as it was attested; the text names the place."""


class Verifier:
    """Knowledge of one log: its keys, the root at each size, and the head of each session's chain."""

    def __init__(self) -> None:
        # keys by their ids, and the size of the log with which one ended
        self.keys, self.until = dict[bytes, Ed25519PublicKey](), dict[bytes, int]()
        self.roots, self.heads = dict[int, tuple[bytes, str]](), dict[str, tuple[int, str]]()
        self.published = list[tuple[int, bytes, str]]()
        self.origin, self.place, self.absent = "", "the key", set[str]()
        self.end, self.last, self.records, self.whole = -1, "", 0, True

    def need(self, holds: bool, told: str) -> None:
        if not holds:
            raise Broken(f"{self.place}: {told}.")

    def add_key(self, text: str) -> bytes:
        name, told, key = text.split("+", 2)
        key_id = sha256(name.encode() + b"\n" + b64decode(key)).digest()[:4]
        valid = key_id.hex() == told and b64decode(key)[:1] == b"\1" and name == (self.origin or name)
        self.need(valid, f"{text} is no public key of this log")
        self.keys[key_id], self.origin = Ed25519PublicKey.from_public_bytes(b64decode(key)[1:]), name
        return key_id

    def note(self, text: str, kind: str = "") -> tuple[int, bytes]:
        """Return the size and hash of a signed note."""
        origin, size, digest, name, signed = NOTE.fullmatch(text).groups()  # type: ignore[union-attr]
        data, limit = b64decode(signed), -1 if kind else int(size)
        known = data[:4] in self.keys and limit <= self.until.get(data[:4], limit)
        known &= name == self.origin and b64encode(data).decode() == signed
        self.need(known, "not signed by a key of the log that was valid then")
        self.keys[data[:4]].verify(data[4:], f"{origin}\n{size}\n{digest}\n".encode())
        self.need(origin == self.origin + kind, f"the checkpoint is of another log ({origin})")
        return int(size), b64decode(digest)

    def claim(self, size: int, root: bytes, place: str) -> None:
        other, where = self.roots.setdefault(size, (root, place))
        self.need(other == root, f"fork: the first {size} leaves are not the same at {place} and {where}")

    def checkpoints(self, name: str, text: str) -> None:
        """Read a file of published checkpoints."""
        at = last = 0
        while at < len(text):
            self.place = f"{name}, line {text.count(chr(10), 0, at) + 1}"
            note = NOTE.match(text, at)[0]  # type: ignore[index]
            size, root = self.note(note)
            self.need(size >= last, f"rolled back: {size} leaves after {last}")
            self.published, at, last = [*self.published, (size, root, self.place)], at + len(note), size

    def export(self, name: str, data: bytes) -> None:
        """Read an export line by line, then its seal."""
        *lines, last, rest = data.split(b"\n") if b"\n" in data else [b"", b""]
        size, peaks, leaf, new = 0, list[bytes](), dict[str, Any](), list[str]()
        for number, line in enumerate(lines, 1):
            self.place = f"{name}, line {number}"
            told = json.loads(line)
            if number == 1:
                size, peaks = self.begin(told)
            elif "id" in told:
                self.record(line, told, leaf)
            elif "absent" in told:
                self.heads[leaf["sessionId"]] = (leaf["seq"], leaf["head"])
                self.absent.add(f"{leaf['sessionId']} ({told['why']})")
            elif "leaf" in told:
                self.close(leaf)
                peaks, size, leaf = grown(peaks, size, line), size + 1, told
                self.need(told["leaf"] == size - 1, f"leaf {size - 1} is missing")
                self.claim(size, rooted(peaks), self.place)
                new += [told["key"]] if "key" in told else []
                if "key" not in told:
                    session, before = told["sessionId"], (told["from"], told["after"])
                    found = self.heads.setdefault(session, (0, "") if self.whole else before)
                    self.need(found == before, f"{session} does not go on where its last leaf ended")
            else:
                self.close(leaf)
                same = self.note(told["checkpoint"]) == (size, rooted(peaks))
                self.need(same, "the leaves before it are not those that the checkpoint attests")
                for key in map(self.add_key, new):  # a key that was trusted before has signed its leaf
                    self.until |= {old: size for old in self.keys if old not in {key, *self.until}}
                new = []
        self.place = f"{name}, line {len(lines) + 1} (the last)"
        self.need(not rest and b'"seal"' in last, "cut: an export ends with its seal")
        self.close(leaf)
        seal = json.loads(last)["seal"]
        sealed = (len(lines), sha256(b"".join(line + b"\n" for line in lines)).digest())
        same = json.dumps({"seal": seal}, ensure_ascii=False, separators=(",", ":")).encode() == last
        self.need(same and self.note(seal, "/export") == sealed, "changed, cut or moved since the seal")
        self.need(size >= self.end, f"rolled back: it has {size} leaves, and {self.last} has {self.end}")
        self.end, self.last = size, name

    def begin(self, told: dict[str, Any]) -> tuple[int, list[bytes]]:
        size, peaks = 0, [bytes.fromhex(peak) for peak in re.findall("." * 64, told["peaks"])]
        if told["before"] is not None:
            size, root = self.note(told["before"])
            same = len(peaks) == size.bit_count() and rooted(peaks) == root
            self.need(same, "the tree is not that of the checkpoint before")
            self.claim(size, root, self.place)
        self.need(told["export"] == 1, "exports of this form are not known here")
        self.need(self.end < 0 or size <= self.end, f"leaves {self.end} to {size - 1} are in no export")
        self.heads, self.whole = (self.heads, self.whole) if size == self.end else ({}, size == 0)
        return size, peaks

    def record(self, line: bytes, told: dict[str, Any], leaf: dict[str, Any]) -> None:
        body, _, rest = line.partition(b',"chain":"')
        seq, before = self.heads[leaf["sessionId"]]
        same = told["sessionId"] == leaf["sessionId"] and seq < told["seq"] <= leaf["seq"]
        same &= sha256(before.encode() + body + b"}").hexdigest() == rest[:64].decode()
        self.need(same, f"{told['id']} was changed, or a record was cut, moved or added here")
        same = rest[64:] == b'"}' or sha256(rest[76:-1]).hexdigest() == told["digest"]
        self.need(same, f"the content of {told['id']} is not that of its digest")
        self.heads[leaf["sessionId"]], self.records = (told["seq"], rest[:64].decode()), self.records + 1

    def close(self, leaf: dict[str, Any]) -> None:
        """Require that all records of a leaf were there."""
        if session := leaf.pop("sessionId", None):
            same = self.heads[session][1] == leaf["head"]
            self.need(same, f"cut: records of {session} are missing before it")
            self.heads[session] = (leaf["seq"], leaf["head"])

    def finish(self) -> str:
        """Compare with what was published; the sentence that says what was found."""
        for size, root, place in self.published:
            self.place, behind = place, 0 <= self.end < size
            self.need(not behind, f"rolled back: {size} leaves are more than {self.end} of {self.last}")
            if self.end < 0 or size in self.roots:
                self.claim(size, root, place)
        told = f"{self.records} records, leaves {min(self.roots, default=0)} to {max(self.roots, default=0)}"
        absent = f" Without their records: {', '.join(sorted(self.absent)) or 'none'}."
        return f"Verified: {told}, {len(self.published)} published checkpoints.{absent}"


def grown(peaks: list[bytes], size: int, leaf: bytes) -> list[bytes]:
    """Return the peaks of an RFC 6962 tree of `size` leaves after one more."""
    kept = (size + 1).bit_count() - 1  # the others are roots of subtrees that the leaf completes
    return [*peaks[:kept], rooted([*peaks[kept:], sha256(b"\0" + leaf).digest()])]


def rooted(peaks: list[bytes]) -> bytes:
    """Return the root of the tree with these peaks."""
    return reduce(lambda right, left: sha256(b"\1" + left + right).digest(), reversed(peaks))


def check(keys: list[str], files: list[tuple[str, bytes]]) -> str:
    """Check files, each a name and its bytes, and return what was found. Raises `Broken`."""
    verifier = Verifier()
    try:
        list(map(verifier.add_key, keys))
        for verifier.place, data in files:
            if data.startswith(b"sayso/"):
                verifier.checkpoints(verifier.place, data.decode())
            else:
                verifier.export(verifier.place, data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, InvalidSignature) as error:
        raise Broken(f"{verifier.place}: changed: {error or 'the signature does not fit'}.") from error
    return verifier.finish()


if __name__ == "__main__":
    try:
        _, given, *named = sys.argv if len(sys.argv) > 2 else sys.exit(__doc__)
        given_keys = [given] if given.startswith("sayso/") else Path(given).read_text().split()
        print(check(given_keys, [(name, Path(name).read_bytes()) for name in named]))
    except (Broken, OSError, ValueError) as problem:
        sys.exit(f"Not verified. {problem}")
