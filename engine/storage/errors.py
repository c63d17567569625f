"""Errors of a store, one class for each: its docstring is the sentence that people read, with the facts in braces."""

from __future__ import annotations

from engine.language.errors import StorageBusy, StorageError


class StoreFailure(StorageError):
    """The store could not do what was asked."""

    def __init__(self, told: str = "", **facts: object) -> None:
        sentence = " ".join((self.__doc__ or "").split())
        super().__init__(told or sentence.format(**facts))


class PathUnusable(StoreFailure):
    """{path} cannot be {done}: {error.strerror}."""


class AnchorUnwritten(StoreFailure):
    """{path} could not be written: {error.strerror}."""


class NotADirectory(StoreFailure):
    """{path} is not a directory."""


class DirectoryOfAnother(StoreFailure):
    """The directory {path} belongs to another user; use one of your own."""


class DirectoryWritable(StoreFailure):
    """Others can write to the directory {path}; run `chmod 700 {path}`."""


class NotAFile(StoreFailure):
    """{path} is not a regular file; it is refused because it may point elsewhere."""


class FileOfAnother(StoreFailure):
    """{path} belongs to another user; run as that user, or use another database."""


class FileReadable(StoreFailure):
    """Others can read or write {path}; check it, then run `chmod 600 {path}`."""


class OpeningTakesLong(StoreFailure):
    """Another process has been opening this database for long (it holds {path})."""


class NoDatabaseFile(StoreFailure):
    """{path!r} names no database file."""


class BackupExists(StoreFailure):
    """{path} exists; name a new file, so that no older backup is lost."""


class InUse(StoreFailure):
    """{place} is in use by {who}. Stop them first."""


class NoDatabase(StoreFailure):
    """{path} is not a database of sayso ({error})."""


class UpgradeInUse(StoreFailure):
    """{place} has to be upgraded (schema {version} to {latest}), but it is in use by {who}. Stop them first."""


class NoBlobs(StoreFailure):
    """{url} cannot be used: there is no such bucket or folder."""


class BlobsRefused(StoreFailure):
    """{url} refuses to {doing} files of sessions: check the credentials, their rights on it, and SAYSO_BLOBS.
    ({error})"""


class BlobsAway(StoreFailure):
    """{url} cannot {doing} files of sessions now: {error}"""


class DiskFailed(StoreFailure):
    """The disk could not read or write {path}: {error}."""


class NotWritable(StoreFailure):
    """{path} cannot be opened for writing ({error}); check its directory and mode."""


class DatabaseRefused(StoreFailure):
    """{place} refused: {error}."""


class NoWriteAheadLog(StoreFailure):
    """{path} cannot use a write-ahead log (journal mode {mode}); put the database on a local disk."""


class CopyRefused(StoreFailure):
    """{why} Nothing was changed."""


class NotCompacted(StoreFailure):
    """This database cannot be compacted; its server does that by itself."""


class NoSuchFlow(StoreFailure):
    """No flow with digest {digest} is stored."""


class WriterNotStarted(StoreFailure):
    """The writer is not running; call start() first."""


class WriterClosed(StoreFailure):
    """The writer was closed; nothing was stored."""


class NoDatabaseUrl(StoreFailure):
    """{url!r} is not a database URL; use sqlite:///path/to/sayso.db (four slashes for an absolute path), or
    postgresql://user@host/name."""


class NoDriver(StoreFailure):
    """A Postgres database needs its driver ({error}): pip install 'sayso[postgres]'."""


class UrlUnreadable(StoreFailure):
    """The database URL cannot be read: in a user or password, @ / : # ? % have to be percent-encoded (%40 for @)."""


class PostgresTooOld(StoreFailure):
    """{place} is Postgres {version}; sayso needs Postgres 14 or later."""


class StatementPooling(StoreFailure):
    """{place} is behind a pooler that gives each statement to another session; set its pool mode to `transaction`."""


class SchemaLeftOut(StoreFailure):
    """{place} was asked to work in the schema {wanted}, and a pooler in between left that out; give the schema to the role
    (ALTER ROLE name SET search_path TO …)."""


class Standby(StoreFailure):
    """{place} is a standby, which takes no writes; give the address of its primary."""


class NotUtf8(StoreFailure):
    """{place} stores text as {encoding}; make a database with `ENCODING 'UTF8' TEMPLATE template0`."""


class ServerUnusable(StoreFailure):
    """{place} cannot be {done}: {error}."""


class ConnectionLost(StoreFailure, StorageBusy):
    """The connection to {place} was lost ({error}); nothing was written."""


class NoUsage(StoreFailure):
    """The role of {place} has no USAGE on the schema of its search_path."""


class NoSchema(StoreFailure):
    """The role of {place} can neither use nor make the schema of its search_path ({error.diag.message_primary}). Make
    one for it: CREATE SCHEMA name AUTHORIZATION role."""


class NotTheOwner(StoreFailure):
    """The role of {place} may not do this ({error}): make it the owner of the database's tables."""


class ForeignTables(StoreFailure):
    """{place} holds tables of another program ({error}); give sayso its own database."""


class StoreClosed(StoreFailure):
    """The store is closed."""


class TransactionUndone(StoreFailure):
    """{place} undid a transaction in which a statement had failed."""


class PromptOfAnother(StoreFailure):
    """Prompt {prompt_id} belongs to another session than {session_id}; prompt ids are unique."""


class NoSuchRow(StoreFailure):
    """There is no {table} row {row_id}."""


class NotABeginning(StoreFailure):
    """Session {commit.session_id} is created with epoch {commit.epoch} and seq {commit.seq}; a creation has epoch 1
    and seq 0."""


class WrongDigest(StoreFailure):
    """The digest of {flow} is not the SHA-256 (hex) of its body; compute it over the bytes that are stored."""


class TwoFlows(StoreFailure):
    """Session {session_id} is created with one flow and pinned to another."""


class NoParent(StoreFailure):
    """Session {session_id} has a parent seq and no parent."""


class NoSuchEvent(StoreFailure):
    """Session {session_id} has no event {seq} to fork at."""


class FilesUnusable(StoreFailure):
    """the files of {session_id} cannot be kept or read: {error}"""


class NotAlone(StoreFailure):
    """The database is in use by {who}. Stop that first: what is stored is written again."""
