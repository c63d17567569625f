"""The sessions of a store as one process has them: read, claimed, cached after their release, quarantined.

Only the holder of a claim may write to a session. This module decides nothing and writes no events: a session is loaded
as it is stored, loaded again if memory is stale, and quarantined if its records do not verify.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.decide.projections import repairs, undelivered
from engine.flow import Flow
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.phases import ENDED
from engine.journal.records import (
    Commit,
    CommitResult,
    Conflict,
    Derived,
    DropLock,
    FlowForm,
    Head,
    Loaded,
    LockRow,
    PutLock,
    PutOutbox,
    Row,
    Stored,
    TakeLock,
    check_stored,
)
from engine.journal.snapshot import fold
from engine.journal.state import State
from engine.language.errors import (
    Corrupt,
    Fenced,
    FlowError,
    MalformedJournal,
    Overtaken,
    Owned,
    SaysoError,
    SchemaTooNew,
    SessionError,
    SessionQuarantined,
    StorageBroken,
    StorageError,
    UnknownSession,
)
from engine.nodes.runtime.folder import session_folder
from engine.nodes.runtime.kept_files import kept_digests
from engine.run.executor import ActiveSession, Cached
from engine.run.stored import flow_form, stored_flow, stored_state
from engine.storage.fence import WorkPermit
from engine.storage.group_commit import Writer
from engine.storage.store import Store

if TYPE_CHECKING:
    from engine.run.shared_files import SharedFiles

log = logging.getLogger("sayso.engine")

_LEFT = (
    "Session {} was written by a newer release of sayso. It is not changed and continues under that release."
)
CACHED_SESSIONS = 256
"""Most released sessions in the cache, so that successive answers need no loading."""


class Sessions:
    """The sessions of one store in this process. Writers of a session hold its claim and its lock."""

    def __init__(self, store: Store, writer: Writer, now: Callable[[], str], home: Path) -> None:
        self.store = store
        self.writer = writer
        self.now = now
        self.home = home
        self.on_quarantine: Callable[[Head, str | None], Sequence[Row]] = lambda head, lacks: ()
        """Returns the rows to show when a session is quarantined; for a sound one, with what is missing here."""
        self.on_newer: Callable[[Head], Sequence[Row]] = lambda head: ()
        """Returns the rows to show when a session is left to a newer release."""
        self.repairs: Callable[[State, Derived], Sequence[Row]] = repairs
        """Returns the rows that bring the stored rows beside a journal in line with it."""
        self.intents: Callable[[State], Sequence[PutOutbox]] = undelivered
        """The outbox rows that a session waits for."""
        self.files: SharedFiles | None = None
        """The folders of sessions, where several machines share them."""
        self._newer: set[str] = set()
        """Sessions that a newer release has to continue with."""
        self.owner = ""
        """The lease under which sessions are claimed; the store names it once it is open."""
        self.active: dict[str, ActiveSession] = {}
        """The sessions that this process works for, by id."""
        self._cached: OrderedDict[str, Cached] = OrderedDict()
        self._flows: dict[str, Flow] = {}
        self._stale: set[str] = set()
        self._poison: BaseException | None = None
        """Why memory can no longer be trusted, once it cannot."""

    # --- reading ------------------------------------------------------------------------------------------------

    async def state(self, session_id: str) -> State:
        """Return the stored state, without claiming the session."""
        live = self.active.get(session_id)
        if live is not None and live.claimed and live.state.seq:
            return live.state
        cached = self._cached.get(session_id)
        if cached is not None:
            head = await self.writer.call(self.store.sessions.head, session_id)
            if _stands(head, cached.epoch, cached.state.seq):
                return cached.state
        loaded = await self.writer.call(self.store.sessions.load, session_id)
        state = await self._folded(loaded)
        self._keep(session_id, Cached(loaded.head.epoch, state, *_sizes(loaded), found=True))
        return state

    async def head(self, session_id: str) -> Head:
        """Return the head of a session. Raises `UnknownSession`."""
        head = await self.writer.call(self.store.sessions.head, session_id)
        if head is None:
            raise UnknownSession(f"There is no session {session_id}.")
        return head

    async def trusted(self, session_id: str) -> Head:
        """Return the head of a session that is not quarantined. Raises `UnknownSession`, `SessionQuarantined`."""
        head = await self.head(session_id)
        if head.quarantined is not None:
            raise SessionQuarantined(f"Session {session_id} is on hold: {head.quarantined}.")
        return head

    async def journal(self, session_id: str) -> list[Event]:
        """Return all events of a session, verified."""
        rows = await self.writer.call(lambda: list(self.store.sessions.journal(session_id)))
        return [decode_event(row) for row in rows]

    async def flow_of(self, session_id: str) -> Flow:
        """The flow that the session pinned."""
        return await self.flow((await self.head(session_id)).flow_digest)

    async def export(self, session_id: str) -> bytes:
        """The session as one portable file: snapshot, journal, pinned flow, the files that its conversations have shown a
        model; signed with this store's key, and encrypted where the store is."""
        return await self.writer.call(self.store.enclose, await self.export_plain(session_id))

    async def export_plain(self, session_id: str) -> bytes:
        """The same, never encrypted."""
        from engine.run.export import portable_file  # few processes write files

        if self.files is not None:
            await self.files.bring_kept(session_id)
        return await portable_file(self.writer, self.home, session_id)

    def shown_files(self, session_id: str) -> frozenset[str]:
        """The digests of the files that the session's conversations have shown a model."""
        return kept_digests(session_folder(self.home, session_id))

    async def parked(self, session_id: str) -> State:
        """Return as soon as this process has no work for the session (it waits, has ended, or was given up)."""
        released: State | None = None
        while (live := self.active.get(session_id)) is not None and self._poison is None:
            await live.parked.wait()
            released = live.state
        if self._poison is not None:
            raise self._poison
        cached = self._cached.get(session_id)
        if cached is not None and cached.state is released:
            return cached.state
        return await self.state(session_id)

    def at_work(self, session_id: str) -> bool:
        """True if this process is working for a session now."""
        return session_id in self.active

    def known(self, session_id: str) -> bool:
        """True if this process holds the session's claim or held it last."""
        cached = self._cached.get(session_id)
        return session_id in self.active or (cached is not None and not cached.found)

    def stale(self) -> frozenset[str]:
        """Sessions of which a step failed in this process: claim them again (`apply(id, None)`)."""
        return frozenset(self._stale)

    async def _folded(self, loaded: Loaded) -> State:
        """The state of a session as loaded."""
        state = fold(loaded)
        if state is None:
            log.warning(
                "The snapshot of %s is of another release. The journal is read in its place.",
                loaded.head.session_id,
            )
            state = derive_state(await self.journal(loaded.head.session_id))
        return state

    async def flow(self, digest: str) -> Flow:
        """Return the flow stored under this digest. If its text has to be read, its form is kept for the next process."""
        if digest not in self._flows:
            flow, was_read = await self.writer.call(stored_flow, self.store, digest)
            if flow.absent:
                return flow  # its types may be there later
            self._flows[digest] = flow
            if was_read and (form := flow_form(flow)) is not None:
                with contextlib.suppress(StorageError):  # without it the text is read again
                    await self.writer.call(self.store.flows.keep_form, form)
        return self._flows[digest]

    # --- claims --------------------------------------------------------------------------------------------------

    def add_flow(self, flow: Flow) -> FlowForm | None:
        """Cache a flow that was not read from the store; its form, unless it was cached already."""
        known = flow.digest in self._flows
        self._flows[flow.digest] = flow
        return None if known else flow_form(flow)

    @contextlib.contextmanager
    def kept(self, session_id: str) -> Iterator[ActiveSession]:
        """Keep a session in memory meanwhile, without its lock."""
        live = self.active.get(session_id)
        if live is None:
            live = self.active[session_id] = ActiveSession(session_id)
        live.users += 1
        try:
            yield live
        finally:
            live.users -= 1
            self.forget(live)

    @contextlib.asynccontextmanager
    async def using(self, session_id: str) -> AsyncIterator[ActiveSession]:
        """Work for a session under its lock."""
        with self.kept(session_id) as live:
            async with live.lock:
                yield live

    @contextlib.asynccontextmanager
    async def created(self, session_id: str, flow: Flow) -> AsyncIterator[ActiveSession]:
        """Work for a session that the store gets meanwhile, claimed from its first event on. If that fails, the claim
        is dropped."""
        self.active[session_id] = ActiveSession(session_id, claimed=True, epoch=1, flow=flow)
        async with self.using(session_id) as live:
            try:
                yield live
            except BaseException:  # a caller who is cancelled leaves nothing claimed either
                if not live.state.seq:
                    live.claimed = False
                raise

    def forget(self, live: ActiveSession) -> None:
        """Drop a session from memory once it has no work."""
        if live.users or live.tasks or (live.claimed and not live.stale):
            return
        if self.active.get(live.session_id) is live:
            del self.active[live.session_id]
            live.parked.set()

    def poisoned(self, error: BaseException) -> None:
        """Mark memory as invalid after an outcome could not be recorded; waiting code gets the error."""
        self._poison = error
        for live in self.active.values():
            live.parked.set()

    # --- claiming -----------------------------------------------------------------------------------------------

    async def claim(self, live: ActiveSession) -> None:
        """Bring memory up to date with the store. The claim itself is written by the commit of the next step, which
        fails with `Overtaken` if another process comes first, so nothing needs to be stored before it. A session whose
        flow has an unavailable node type is quarantined."""
        if live.session_id in self._newer:
            raise SchemaTooNew(_LEFT.format(live.session_id))
        try:
            if not live.claimed or (live.stale and not live.tasks):
                await self._load_claimed(live)
            elif live.stale:
                # Load a session again of which a commit failed.
                loaded = await self.writer.call(self.store.sessions.load, live.session_id)
                if (loaded.head.epoch, loaded.head.owner) != (live.epoch, self.owner):
                    self.lose(live)
                    raise Fenced(f"Another owner has session {live.session_id}.")
                await self._load(live, loaded)
                live.stale = False
        except (Owned, Fenced, UnknownSession, SessionQuarantined):
            self._stale.discard(live.session_id)
            raise
        except (Corrupt, MalformedJournal) as error:
            self.lose(live)
            await self.quarantine(live.session_id, f"its records do not verify ({error})", error)
        except SchemaTooNew as error:
            await self._release_to_newer(live, error)
            raise SchemaTooNew(_LEFT.format(live.session_id)) from error
        except FlowError as error:
            raise SessionError(
                f"Session {live.session_id} cannot continue in this release, which cannot read its flow: "
                f"{error}"
            ) from error
        except StorageError:
            self._stale.add(live.session_id)
            raise
        if live.flow is not None and live.flow.absent and not live.state.ended:
            self.lose(live)
            await self.quarantine(live.session_id, "; ".join(live.flow.absent.values()))

    async def _load_claimed(self, live: ActiveSession) -> None:
        cached = self._cached.get(live.session_id)
        live.found = cached is None or cached.found
        loaded, derived = None, None
        if live.found:
            known = None if cached is None else (cached.epoch, cached.state.seq)
            loaded, derived = await self.writer.call(self.store.claimable, live.session_id, self.owner, known)
        if loaded is not None:
            live.epoch = loaded.head.epoch + 1
            await self._load(live, loaded)
        else:
            assert cached is not None, "only what is cached is not loaded"
            live.flow = await self.flow(cached.state.flow_digest)
            live.epoch, live.state = cached.epoch + 1, cached.state
            live.snapshot_bytes, live.tail_bytes = cached.snapshot_bytes, cached.tail_bytes
        if derived is not None:
            await self._compare(live.session_id, live.epoch - 1, live.state, derived)
        live.claimed, live.fresh, live.stale = True, True, False

    async def _compare(self, session_id: str, epoch: int, state: State, derived: Derived) -> None:
        """Rewrite rows of a session that differ from its journal, because they were deleted or changed. A session that
        lost its lock to another is quarantined."""
        rows = [*self.repairs(state, derived), *await self._lost_intents(state)]
        if not rows:
            return
        log.error("%s: %d rows differ from its journal; they are rewritten", session_id, len(rows))
        commit = Commit(session_id, epoch, state.seq, self.now(), state.status, state.phase, rows=tuple(rows))
        result = await self.writer.commit(commit)
        if isinstance(result, Conflict):
            reason = f"its place in the queue for a lock was deleted ({result.reason})"
            await self.quarantine(session_id, reason, result.reason)
        check_stored(result)

    async def _lost_intents(self, state: State) -> list[PutOutbox]:
        return [
            row.but(uncertain=True)
            for row in self.intents(state)
            if await self.writer.call(self.store.outbox.row, row.key) is None
        ]

    async def queue(self, session_id: str, name: str) -> list[LockRow]:
        """The queue for a lock, in which this session stands: without those that have ended, and with those that hold it by their
        journals although somebody deleted their places."""
        queue = await self.writer.call(self.store.locks.rows, name)
        for row in [row for row in queue if row.session_id != session_id][:1]:
            head = await self.writer.call(self.store.sessions.head, row.session_id)
            if row.verified and (head is None or head.status in ENDED):
                log.error("%s has ended but is in the queue for %s; it is removed", row.session_id, name)
                gone = [DropLock(name, row.session_id)]
                await self.writer.call(self.store.consume, (), self.now(), gone)
                return await self.queue(session_id, name)
        if queue and queue[0].session_id != session_id:
            return queue
        for other, digest in await self.writer.call(self.store.locks.unplaced):
            if other != session_id and (await self.flow(digest)).lock is not None:
                with contextlib.suppress(SaysoError):  # whoever takes it up says so
                    await self.writer.call(self._put_back, other)
        return await self.writer.call(self.store.locks.rows, name)

    def _put_back(self, session_id: str) -> None:
        """Give a session that holds a lock its place back, whichever process runs it. On the thread of the store."""
        head = self.store.sessions.head(session_id)
        if head is None or head.quarantined is not None:
            return  # a person may have taken its lock
        found = repairs(stored_state(self.store, session_id), self.store.derived(session_id))
        places = [row for row in found if isinstance(row, PutLock | TakeLock)]
        if any(isinstance(row, TakeLock) for row in places):
            log.error("the place of %s in the queue for its lock was deleted; it is restored", session_id)
            self.store.consume((), self.now(), places)

    async def give_back(self, live: ActiveSession) -> CommitResult:
        """Drop a claim that has nothing to store: a conflict if memory was behind the store."""
        live.claimed = live.fresh = False
        with contextlib.suppress(Corrupt):  # the next claim says so
            head = await self.writer.call(self.store.sessions.head, live.session_id)
            if _stands(head, live.epoch - 1, live.state.seq):
                return Stored()
        self._cached.pop(live.session_id, None)
        return Conflict(Overtaken(f"Session {live.session_id} has changed since it was loaded."))

    def overtaken(self, live: ActiveSession) -> None:
        """The claim was refused: another process has worked for the session since it was loaded, or does."""
        live.claimed = live.fresh = False
        self._cached.pop(live.session_id, None)
        self._stale.discard(live.session_id)

    async def _load(self, live: ActiveSession, loaded: Loaded) -> None:
        live.flow = await self.flow(loaded.head.flow_digest)
        live.state = await self._folded(loaded)
        live.snapshot_bytes, live.tail_bytes = _sizes(loaded)

    def cache(self, live: ActiveSession) -> None:
        """Remember a session that is released."""
        self._keep(live.session_id, Cached(live.epoch, live.state, live.snapshot_bytes, live.tail_bytes))

    def _keep(self, session_id: str, cached: Cached) -> None:
        """Cache a session. Writing requires a claim, which raises the epoch: while that is the same, the cache equals
        the store."""
        self._cached[session_id] = cached
        # Sessions that were only read go first.
        self._cached.move_to_end(session_id, last=not cached.found)
        while len(self._cached) > CACHED_SESSIONS:
            self._cached.popitem(last=False)

    def step_stored(self, live: ActiveSession) -> None:
        """Note that a step was stored: memory equals the store."""
        self._stale.discard(live.session_id)

    async def quarantine(self, session_id: str, reason: str, cause: Exception | None = None) -> None:
        """Quarantine a session and tell its thread. Raises `SessionQuarantined`, and `StorageBroken` where not even that can
        be stored."""
        try:
            # A head that does not verify is shown only once it is quarantined.
            await self.writer.call(self.store.quarantine, session_id, reason, self.now())
            head = await self.writer.call(self.store.sessions.head, session_id)
            rows = self.on_quarantine(head, reason if cause is None else None) if head is not None else ()
            if rows:
                await self.writer.call(self.store.quarantine, session_id, reason, self.now(), rows)
        except Corrupt as error:
            raise StorageBroken(f"Session {session_id} cannot even be put on hold: {error}") from cause
        self._stale.discard(session_id)
        raise SessionQuarantined(f"Session {session_id} was put on hold: {reason}.") from cause

    async def _release_to_newer(self, live: ActiveSession, error: SchemaTooNew) -> None:
        """Leave a session to a newer release, and report it once; its records stay unchanged. Beside other servers,
        which may be of that release, nothing is written or reported."""
        self._newer.add(live.session_id)
        self._stale.discard(live.session_id)
        log.warning("%s is left for a newer release: %s", live.session_id, error)
        if self.store.peers():
            return
        head = await self.head(live.session_id)
        given_up = Commit(
            live.session_id,
            head.epoch + 1,
            head.seq,
            self.now(),
            head.status,
            head.phase,
            rows=tuple(self.on_newer(head)),
            release=True,
            owner=self.owner,
        )
        check_stored(await self.writer.commit(given_up))

    def mark_stale(self, live: ActiveSession) -> None:
        """Note that the result of the last commit is unknown: the session is loaded again before the next step."""
        live.stale = True
        self._cached.pop(live.session_id, None)
        self._stale.add(live.session_id)

    def permit(self, live: ActiveSession) -> WorkPermit:
        """Return the permit that a node of the session launched now asks before its effects."""
        session_id, claim = live.session_id, (live.epoch, self.owner, None)

        async def ours() -> bool:
            head = await self.writer.call(self.store.sessions.head, session_id)
            return head is not None and (head.epoch, head.owner, head.quarantined) == claim

        return WorkPermit(self.store, live.generation, ours)

    async def fenced(self, live: ActiveSession) -> None:
        """A commit was fenced, or an effect: another owner has the session, or only a row was consumed before; then it is still
        ours."""
        try:
            head = await self.writer.call(self.store.sessions.head, live.session_id)
        except StorageError:
            head = None
        ours = (live.epoch, live.state.seq, self.owner)
        if head is not None and (head.epoch, head.seq, head.owner) == ours and head.quarantined is None:
            self.mark_stale(live)
        else:
            self.lose(live)

    def lose(self, live: ActiveSession) -> None:
        """Stop all work on a session that another owner has; write nothing."""
        live.claimed = False
        self._cached.pop(live.session_id, None)
        live.stop_all()


def _stands(head: Head | None, epoch: int, seq: int) -> bool:
    """True if the session is stored at this epoch and event, and not quarantined."""
    return head is not None and (head.epoch, head.seq, head.quarantined) == (epoch, seq, None)


def _sizes(loaded: Loaded) -> tuple[int, int]:
    """Return the bytes of the snapshot, and of the events after it."""
    return len(loaded.snapshot or b""), sum(map(len, loaded.events))
