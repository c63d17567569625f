"""A session that was set aside, once its records are what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.language.errors import Corrupt, SessionQuarantined, UnknownSession
from tests.engine.test_engine_recovery import damage, two_waiting
from tests.support.engine import Backing, EngineRig, running, served


@pytest.mark.parametrize("table", ["journal", "sessions"])
async def test_what_verifies_again_is_released_and_goes_on(
    backing: Backing, tmp_path: Path, table: str
) -> None:
    """Damaged, set aside, restored: it continues where it was, also in a process that saw it set aside."""
    session_id, _ = await two_waiting(backing, tmp_path)
    damage(backing, table, session_id)
    damage(backing, "snapshots", session_id)
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        with pytest.raises(SessionQuarantined):
            await rig.engine.apply(session_id, None)
        with pytest.raises(Corrupt):
            rig.store.sessions.release(session_id)
        head = await rig.engine.head(session_id)
        assert head.quarantined is not None
        damage(backing, table, session_id)
        backing.open().sessions.release(session_id)
        assert (await rig.engine.head(session_id)).quarantined is None
        assert (await rig.reply(session_id, "fine")).status == "complete"


async def test_a_session_that_is_not_known_is_not_released(rig: EngineRig) -> None:
    """There is nothing to verify."""
    with pytest.raises(UnknownSession):
        rig.store.sessions.release("session-none")
