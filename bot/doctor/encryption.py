"""Encryption of a database, and its keys; the key of the audit log."""

from __future__ import annotations

from collections.abc import Iterator

from bot.config.settings import Settings
from bot.doctor.findings import Check
from engine.language.errors import StorageError
from engine.storage.store import Store


def check_encryption(store: Store) -> Iterator[Check]:
    """Report the writing key, and content that is plain or under another key. Nothing if no keys are set."""
    if store.vault is None:
        return
    from engine.storage.erasing import plain

    first, used = store.vault.wrapping.first, store.vault.in_use()
    yield Check("encryption", "ok", f"key {first} is in use; it encrypts {used.get(first, 0)} data keys")
    others = {key_id: count for key_id, count in used.items() if key_id != first}
    if others:
        told = ", ".join(f"{count} under {key_id}" for key_id, count in others.items())
        hint = "To remove them: sayso store copy FROM TO --to-env FILE"
        yield Check("encryption", "warn", f"older data keys: {told}", hint)
    if rows := plain(store):
        told = f"{rows} rows are not encrypted: they did not verify when the store was copied"
        yield Check("encryption", "warn", told, "sayso doctor --deep lists the sessions")


def check_audit_key(settings: Settings, store: Store) -> Iterator[Check]:
    """Report the key that signs checkpoints, what it is made of, and where these are published."""
    from bot.compose.attesting import shown
    from engine.run.evidence import signer

    try:
        signing = signer(store)
    except StorageError as error:
        yield Check("audit key", "fail", str(error))
        return
    made = "SAYSO_SECRET_KEY" if settings.secret_key else "the key file beside the database"
    where = "nowhere (SAYSO_CHECKPOINTS)" if settings.checkpoints is None else shown(settings.checkpoints)
    key = signing.public if signing else "created at the first checkpoint"
    yield Check("audit key", "ok", f"{key}, of {made}; {store.evidence.size()} leaves, published: {where}")
