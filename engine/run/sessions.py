"""What a process has of a store's sessions: it looks at them, claims them, remembers the last few, gives them up.

Only who has claimed a session may write to it. Here nothing is decided and no event is written: a session is brought
into memory as it is stored, brought there anew where that is in doubt, and set aside where its records do not verify.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence

from engine.flow import Flow
from engine.journal.events import Event, event_from_bytes
from engine.journal.fold import derive_state
from engine.journal.records import Commit, Head, Loaded, Row
from engine.journal.snapshot import fold
from engine.journal.state import State
from engine.language.errors import (
    Corrupt,
    Fenced,
    FlowError,
    MalformedJournal,
    Owned,
    SchemaTooNew,
    SessionError,
    SessionQuarantined,
    StorageError,
    UnknownSession,
)
from engine.run.active import Live, Warm
from engine.storage.group_commit import Writer
from engine.storage.port import Store

log = logging.getLogger("sayso.engine")

_LEFT = "Session {} was written by a newer release of sayso. It is left as it is, and goes on under that one."
WARM_SESSIONS = 256
"""How many paused sessions are remembered, so that answers one after the other need no loading."""


def stored_state(store: Store, session_id: str) -> State:
    """The state of a session as an engine would load it, for whoever only looks.

    Raises `UnknownSession`, `Corrupt`, `MalformedJournal`.
    """
    state = fold(store.load(session_id))
    return state if state is not None else derive_state(map(event_from_bytes, store.journal(session_id)))


class Claimant:
    """The sessions of one store, as one process has them."""

    def __init__(self, store: Store, writer: Writer, now: Callable[[], str]) -> None:
        self.store = store
        self.writer = writer
        self.now = now
        self.on_quarantine: Callable[[Head, str], Sequence[Row]] = lambda head, reason: ()
        """What to show when a session is set aside."""
        self.on_newer: Callable[[Head], Sequence[Row]] = lambda head: ()
        """What to show when a session is left to a newer release."""
        self._newer: set[str] = set()
        """Sessions that a newer release has to go on with."""
        self._owner = ""
        """Who claims; the store gives the name once it is open."""
        self._live: dict[str, Live] = {}
        self._warm: OrderedDict[str, Warm] = OrderedDict()
        self._flows: dict[str, Flow] = {}
        self._unsettled: set[str] = set()
        self._parked = asyncio.Event()
        self._broken: BaseException | None = None
        """Why memory can no longer be trusted, once it cannot."""

    # --- reading ------------------------------------------------------------------------------------------------

    async def state(self, session_id: str) -> State:
        """The state as it is stored, without claiming the session."""
        live = self._live.get(session_id)
        if live is not None and live.claimed and live.state.seq:
            return live.state
        return await self._folded(await self.writer.call(self.store.load, session_id))

    async def head(self, session_id: str) -> Head:
        """Where a session stands. Raises `UnknownSession`."""
        head = await self.writer.call(self.store.head, session_id)
        if head is None:
            raise UnknownSession(f"There is no session {session_id}.")
        return head

    async def journal(self, session_id: str) -> list[Event]:
        """All events of a session, verified."""
        rows = await self.writer.call(lambda: list(self.store.journal(session_id)))
        return [event_from_bytes(row) for row in rows]

    async def flow_of(self, session_id: str) -> Flow:
        """The flow that the session pinned."""
        return await self._flow((await self.head(session_id)).flow_digest)

    async def export(self, session_id: str) -> bytes:
        """The session as one portable file: snapshot, journal, pinned flow, signed with this store's key."""
        from engine.run.export import signed_file  # few processes write files

        journal = await self.journal(session_id)
        head = await self.head(session_id)
        return await signed_file(
            self.writer, journal, await self.writer.call(self.store.flow, head.flow_digest)
        )

    async def parked(self, session_id: str) -> State:
        """Return as soon as nothing in this process works for the session (it waits, has ended, or was given up)."""
        while session_id in self._live and self._broken is None:
            await self._parked.wait()
        if self._broken is not None:
            raise self._broken
        return await self.state(session_id)

    def at_work(self, session_id: str) -> bool:
        """Whether something in this process works for a session now."""
        return session_id in self._live

    def remembers(self, session_id: str) -> bool:
        """Whether this process works for a session, or did a moment ago: then its work is ours to do."""
        return session_id in self._live or session_id in self._warm

    def unsettled(self) -> frozenset[str]:
        """Sessions of this process of which a step failed: take them up again (`apply(id, None)`)."""
        return frozenset(self._unsettled)

    async def _folded(self, loaded: Loaded) -> State:
        """The state of a session as loaded."""
        state = fold(loaded)
        if state is None:
            log.info("the snapshot of %s is not used", loaded.head.session_id)
            state = derive_state(await self.journal(loaded.head.session_id))
        return state

    async def _flow(self, digest: str) -> Flow:
        if digest not in self._flows:
            from engine.flow.load import flow_from_body  # reading flows is loaded by the first that is read

            self._flows[digest] = flow_from_body(await self.writer.call(self.store.flow, digest))
        return self._flows[digest]

    # --- who works for a session ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _using(self, session_id: str) -> AsyncIterator[Live]:
        live = self._live.setdefault(session_id, Live(session_id))
        live.users += 1
        try:
            async with live.lock:
                yield live
        finally:
            live.users -= 1
            self._forget(live)

    def _forget(self, live: Live) -> None:
        if live.users or live.tasks or (live.claimed and not live.doubtful):
            return
        if self._live.get(live.session_id) is live:
            del self._live[live.session_id]
            self._tell_parked()

    def _tell_parked(self) -> None:
        """Let those look again who wait for a session to be parked."""
        self._parked.set()
        self._parked = asyncio.Event()

    # --- claiming -----------------------------------------------------------------------------------------------

    async def _take_up(self, live: Live) -> None:
        """Make the state in memory the one that is stored, under a claim of ours."""
        if live.session_id in self._newer:
            raise SchemaTooNew(_LEFT.format(live.session_id))
        try:
            if not live.claimed or (live.doubtful and not live.tasks):
                await self._claim(live)
            elif live.doubtful:
                await self._fold_again(live)
        except (Owned, Fenced, UnknownSession, SessionQuarantined):
            self._unsettled.discard(live.session_id)
            raise
        except (Corrupt, MalformedJournal) as error:
            self._lose(live)
            await self._set_aside(live.session_id, f"its records do not verify ({error})", error)
        except SchemaTooNew as error:
            await self._leave(live, error)
            raise SchemaTooNew(_LEFT.format(live.session_id)) from error
        except FlowError as error:
            raise SessionError(
                f"Session {live.session_id} cannot go on in this release, which cannot read its flow: {error}"
            ) from error
        except StorageError:
            self._unsettled.add(live.session_id)
            raise

    async def _claim(self, live: Live) -> None:
        live.epoch = await self.writer.claim(live.session_id, self._owner, self.now())
        warm = self._warm.pop(live.session_id, None)
        if warm is not None and warm.epoch == live.epoch - 1:
            live.flow, live.state = warm.flow, warm.state
            live.snapshot_seq, live.snapshot_bytes = warm.snapshot_seq, warm.snapshot_bytes
            live.claimed, live.fresh, live.found, live.doubtful = True, True, False, False
            return
        loaded = await self.writer.call(self.store.load, live.session_id)
        live.flow = await self._flow(loaded.head.flow_digest)
        live.state = await self._folded(loaded)
        live.claimed, live.fresh, live.found, live.doubtful = True, True, True, False
        live.snapshot_seq, live.snapshot_bytes = loaded.snapshot_seq, len(loaded.snapshot or b"")

    def _keep_warm(self, live: Live) -> None:
        """Remember the last few sessions that were given up. Nobody writes without claiming, and a claim raises the
        epoch: when the next claim of ours is the very next one, what is remembered is what is stored."""
        assert live.flow is not None
        self._warm[live.session_id] = Warm(
            live.epoch, live.state, live.flow, live.snapshot_seq, live.snapshot_bytes
        )
        self._warm.move_to_end(live.session_id)
        while len(self._warm) > WARM_SESSIONS:
            self._warm.popitem(last=False)

    async def _fold_again(self, live: Live) -> None:
        """After a commit that failed, or of which nobody heard: what counts is what is stored. Raises `Fenced`."""
        loaded = await self.writer.call(self.store.load, live.session_id)
        if (loaded.head.epoch, loaded.head.owner) != (live.epoch, self._owner):
            self._lose(live)
            raise Fenced(f"Another owner has session {live.session_id}.")
        live.flow = await self._flow(loaded.head.flow_digest)
        live.state = await self._folded(loaded)
        live.doubtful = False

    async def _set_aside(self, session_id: str, reason: str, cause: Exception) -> None:
        """Quarantine a session and tell its thread. Raises `SessionQuarantined`."""
        try:
            head = await self.writer.call(self.store.head, session_id)
        except Corrupt:
            # A head that does not verify is shown only once it is set aside.
            await self.writer.call(self.store.quarantine, session_id, reason, self.now())
            head = await self.writer.call(self.store.head, session_id)
        rows = self.on_quarantine(head, reason) if head is not None else ()
        await self.writer.call(self.store.quarantine, session_id, reason, self.now(), rows)
        self._unsettled.discard(session_id)
        raise SessionQuarantined(f"Session {session_id} was set aside: {reason}.") from cause

    async def _leave(self, live: Live, error: SchemaTooNew) -> None:
        """Give the claim on a session of a newer release up, and say so once; its records stay as they are."""
        self._newer.add(live.session_id)
        self._unsettled.discard(live.session_id)
        log.warning("%s is left as it is, for a newer release: %s", live.session_id, error)
        head = await self.head(live.session_id)
        given_up = Commit(
            live.session_id,
            live.epoch,
            head.seq,
            self.now(),
            head.status,
            head.phase,
            rows=tuple(self.on_newer(head)),
            release=True,
        )
        await self.writer.commit(given_up)

    def _doubt(self, live: Live) -> None:
        """Whether the step was stored is not known: memory counts for nothing until it is folded again."""
        live.doubtful = True
        self._unsettled.add(live.session_id)

    async def _fenced(self, live: Live) -> None:
        """Another owner has the session, or only a row was consumed before: then the session is still ours."""
        try:
            head = await self.writer.call(self.store.head, live.session_id)
        except StorageError:
            head = None
        ours = (live.epoch, live.state.seq, self._owner)
        if head is not None and (head.epoch, head.seq, head.owner) == ours and head.quarantined is None:
            self._doubt(live)
        else:
            self._lose(live)

    def _lose(self, live: Live) -> None:
        """Another owner has the session: stop its work here at once, write nothing."""
        live.claimed = False
        live.stop_all()
