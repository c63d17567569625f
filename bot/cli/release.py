"""`sessions release`: a session that was set aside goes on, if all that is stored of it verifies again."""

from __future__ import annotations

from bot.cli.lookup import find_session, need_database
from bot.terminal.cli_context import Place, writing
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.output import clean
from engine.decide.locks import pending
from engine.flow.load import flow_from_body
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.language.errors import Corrupt, MalformedJournal, SessionError
from engine.storage.port import Store


def release_session(place: Place, text: str) -> int:
    """Verify a session from its first event and lift its quarantine. Raises `UsageError`, `SessionError`."""
    settings = place.settings()
    need_database(settings, f"no session {text!r}")
    with writing(settings) as store:
        head = find_session(store, text)
        if head.quarantined is None:
            raise UsageError(f"Session {head.session_id} is not set aside; nothing was changed.")
        events = _verify(store, head.session_id)
        store.release(head.session_id)
    print(
        f"{clean(head.session_id)} is released: {events} events verify, and fold to where it stands. It goes on."
    )
    return Exit.OK


def _verify(store: Store, session_id: str) -> int:
    """How many events there are. Raises `SessionError` where the session cannot be trusted."""
    try:
        events = [decode_event(row) for row in store.journal(session_id)]
        state = derive_state(events)
        flow_from_body(store.flow(state.flow_digest))
    except (Corrupt, MalformedJournal) as error:
        raise SessionError(
            f"Session {session_id} stays set aside: {error} Restore the database, or the key beside it, as they were, "
            "and release it again; or start the flow anew."
        ) from error
    if pending(state):
        raise SessionError(
            f"Session {session_id} waited for a lock and lost its place when it was set aside. Start the flow anew."
        )
    return len(events)
