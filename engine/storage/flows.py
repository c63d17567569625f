"""Texts of flows that sessions pin, and what releases made of them: statements and what they mean."""

from __future__ import annotations

import logging

from engine.journal.records import FlowForm
from engine.language.errors import Corrupt
from engine.storage.errors import NoSuchFlow
from engine.storage.sealing import digest_of
from engine.storage.tables import FORMS, Tables, kind_of, reads, writes

_log = logging.getLogger("sayso.storage")

FLOWS_HELD = "flows"
"""The name that is held while texts come and go."""
_PUT_FLOW = "INSERT INTO flows (digest, body) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING"
_FLOW = "SELECT body FROM flows WHERE digest = ?"
TEXTS, TEXT_ABOUT = kind_of("flows"), b"flow"
"""Scope of the texts' data key, and the context that they are bound to, with their digest."""
_FORM = FORMS.where("digest = ? AND form IS NOT NULL")


class FlowTable(Tables):
    """Pinned flows."""

    @reads
    def text(self, digest: str) -> bytes:
        """The pinned flow's body, verified against its digest. `Corrupt`, `StorageError` when absent."""
        row = self._db.one(_FLOW, (digest,))
        if row is None:
            raise NoSuchFlow(digest=digest)
        body = row[0]
        if type(body) is bytes:
            body = self._sealer.opened(TEXTS, (TEXT_ABOUT, digest), body)
        if type(body) is not bytes or digest_of(body) != digest:
            raise Corrupt(f"The stored flow {digest} was changed outside this program.")
        return bytes(body)

    @reads
    def form(self, digest: str, release: str) -> bytes | None:
        """Return this release's verified form of the pinned flow, or None if it has none that verifies. Raises the
        errors of `text`: a text that was changed is never run, in any form."""
        self.text(digest)
        try:
            kept = self._get(FORMS, _FORM, digest)
        except Corrupt as error:
            _log.warning("%s It is not used.", error)
            return None
        return kept.form if kept is not None and kept.release == release else None

    @writes
    def keep_form(self, form: FlowForm) -> None:
        """Keep what this release made of a pinned flow, instead of what another one has."""
        self._update(FORMS, form)

    def pin(self, digest: str, body: bytes) -> None:
        """Keep the text of a flow; nobody takes it for one that is not needed before this transaction has ended."""
        self._db.hold(FLOWS_HELD, shared=True)
        if self._sealer.cipher is not None:
            body = self._sealer.cipher.encrypted(TEXTS, (TEXT_ABOUT, digest), body)
        self._db.post(_PUT_FLOW, (digest, body))
