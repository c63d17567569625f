"""Tokens of agents: one for each agent and machine, bound to a person. The store has their hashes alone; a token is shown once."""

from __future__ import annotations

import secrets
from hashlib import sha256

from msgspec import Struct

from engine.journal.records import KeptRow
from engine.language import timestamps
from engine.language.codec import decode, encode
from engine.language.errors import SaysoError
from engine.storage.store import Store

KIND = "gate-token"
_PREFIX = "sayso_gate_"


class UnknownToken(SaysoError):
    """No such token is stored."""

    code = "unknown_token"


class Token(Struct, frozen=True):
    """Identity of a token's holder: the agent, and the person (a Slack user id) it works for."""

    id: str
    agent: str
    person: str
    until: str


def hashed(token: str) -> str:
    """Return the stored form of a token."""
    return sha256(token.encode(errors="replace")).hexdigest()


def make_token(store: Store, agent: str, person: str, days: float, now: str) -> tuple[Token, str]:
    """Store a new token; it, and its text, which nothing can show again."""
    text = _PREFIX + secrets.token_urlsafe(32)
    token = Token(f"gate-{secrets.token_hex(4)}", agent, person, timestamps.after(now, days * 86400))
    body = encode({"agent": agent, "person": person})
    store.consume([], now, [KeptRow(token.id, KIND, hashed(text), 1, token.until, body)])
    return token, text


def tokens_of(store: Store, now: str) -> list[Token]:
    """The tokens that count now, oldest first."""
    return [_token(row) for row in store.kept.rows(KIND) if row.expires_at > now]


def token_of(store: Store, text: str, now: str) -> Token | None:
    """The token with this text, if it counts now."""
    found = [row for row in store.kept.rows(KIND, [hashed(text)]) if row.expires_at > now]
    return _token(found[0]) if found else None


def counts(store: Store, token: Token, now: str) -> bool:
    """True if a token still counts; one without an end is not stored, and always does."""
    row = store.kept.row(token.id) if token.until else None
    return not token.until or (row is not None and row.expires_at > now)


def revoke_token(store: Store, token_id: str, now: str) -> Token:
    """Let a token count no longer. Raises `UnknownToken`."""
    row = store.kept.row(token_id)
    if row is None or row.kind != KIND or row.expires_at <= now:
        raise UnknownToken(f"There is no token {token_id}. `sayso gate tokens` lists them.")
    store.consume([], now, [row.but(rev=row.rev + 1, expires_at=now)])
    return _token(row)


def _token(row: KeptRow) -> Token:
    data = decode(row.body)
    return Token(row.kept_id, data["agent"], data["person"], row.expires_at)
