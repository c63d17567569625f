"""Encrypted files: each line in an envelope of its own, a data key wrapped as in `engine.storage.vault`, signed as a whole.

A line that a crash has cut off counts as not written.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.journal.records import DataKey
from engine.language.codec import Json, decode_signed, encode
from engine.language.errors import NotJson, SnapshotRefused
from engine.storage.sealing import Sealer
from engine.storage.vault import Wrapping

_SCOPE = "an exported file"
_NONCE = 12


def enclosed(wrapping: Wrapping, sealer: Sealer, data: bytes) -> bytes:
    """Data as a line of an encrypted file, without its end. Raises `KeyMissing`."""
    key, nonce = AESGCM.generate_key(256), os.urandom(_NONCE)
    body = nonce + AESGCM(key).encrypt(nonce, data, _SCOPE.encode())
    return _line(sealer, wrapping.wrapped(_SCOPE, key), body)


def disclosed(wrapping: Wrapping, sealer: Sealer, data: bytes) -> bytes:
    """Return the content of an encrypted file. Raises `SnapshotRefused` if it was changed, `KeyMissing`."""
    found = []
    for key, body in _verified(sealer, data):
        try:
            found.append(
                AESGCM(wrapping.unwrapped(key)).decrypt(body[:_NONCE], body[_NONCE:], _SCOPE.encode())
            )
        except InvalidTag:
            raise SnapshotRefused(
                "A line of this file is not encrypted with the key that it names."
            ) from None
    return b"\n".join(found) + b"\n"


def check(sealer: Sealer, data: bytes) -> None:
    """Raise `SnapshotRefused` where an encrypted file was changed. That needs no key that decrypts."""
    for _ in _verified(sealer, data):
        pass


def _line(sealer: Sealer, key: DataKey, body: bytes) -> bytes:
    return encode(
        {
            "encrypted": 1,
            "keyId": key.key_id,
            "key": base64.b64encode(key.wrapped).decode(),
            "body": base64.b64encode(body).decode(),
            "mac": sealer.mac(b"envelope", key.key_id, key.wrapped, body).hex(),
        }
    )


def _verified(sealer: Sealer, data: bytes) -> Iterator[tuple[DataKey, bytes]]:
    *whole, last = data.split(b"\n")
    for line in whole or [last]:
        try:
            told: Json = decode_signed(line)
            wrapped, body = (base64.b64decode(told[name], validate=True) for name in ("key", "body"))
            key, mac = DataKey(_SCOPE, str(told["keyId"]), wrapped), str(told["mac"]).encode()
        except (NotJson, ValueError, KeyError, TypeError) as error:
            raise SnapshotRefused("This is not an encrypted file of sayso: a line cannot be read.") from error
        if not hmac.compare_digest(sealer.mac(b"envelope", key.key_id, wrapped, body).hex().encode(), mac):
            raise SnapshotRefused("This file was changed, or was signed with another key (SAYSO_SECRET_KEY).")
        yield key, body
