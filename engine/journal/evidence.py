"""Evidence that outsiders can check: audit records as a chain of hashes, and the Merkle tree (RFC 6962) of the chains' heads.
Pure.

A leaf of the tree is a line of JSON. One names a session, how far it was read, and the head of its chain before and after;
another names the key that signs from then on. The tree only grows. What is stored of it are its peaks, the roots of the
complete subtrees from left to right: as many as its size has bits set, and all that is needed to add a leaf.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256

from engine.journal.audit import AuditRecord
from engine.language.codec import canonical, encode

HASH_BYTES = 32
_CHAIN = b',"chain":"'


def chained(
    records: Iterable[AuditRecord], head: str, *, content: bool = False
) -> Iterator[tuple[bytes, str]]:
    """Yield the line of each record, and the head of its session's chain after it. `head` is the one before the first
    record, in hex, or empty. The content is not part of the chain; its digest is."""
    for record in records:
        fields = record.to_json()
        shown = fields.pop("content", None)
        body = encode(fields)
        head = sha256(head.encode() + body).hexdigest()
        line = body[:-1] + _CHAIN + head.encode() + b'"'
        yield (
            line + (b',"content":' + canonical(shown) if content and shown is not None else b"") + b"}",
            head,
        )


def grown(peaks: bytes, size: int, leaf: str) -> bytes:
    """Return the peaks of a tree of `size` leaves after one more leaf."""
    node = sha256(b"\0" + leaf.encode()).digest()
    while size & 1:
        peaks, left = peaks[:-HASH_BYTES], peaks[-HASH_BYTES:]
        node = sha256(b"\1" + left + node).digest()
        size >>= 1
    return peaks + node


def root(peaks: bytes) -> bytes:
    """Return the root hash of a tree; of an empty one the hash of nothing."""
    node = peaks[-HASH_BYTES:] or sha256().digest()
    for end in range(len(peaks) - HASH_BYTES, 0, -HASH_BYTES):
        node = sha256(b"\1" + peaks[end - HASH_BYTES : end] + node).digest()
    return node


def statement(origin: str, size: int, digest: bytes) -> str:
    """Return the text of a checkpoint (C2SP tlog-checkpoint), before it is signed."""
    return f"{origin}\n{size}\n{b64encode(digest).decode()}\n"
