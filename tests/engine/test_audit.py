"""The audit trail: every act of a person has a record, and what was approved can be told from what ran."""

from __future__ import annotations

import pytest

from engine.decide.commands import Edit
from engine.journal.audit import AuditRecord, audit
from engine.journal.events import EVENTS, Event, PromptEdited
from engine.language.codec import encode
from tests.engine.histories import histories
from tests.engine.test_core_covers import session
from tests.support.engine import BEN, Scenario


def test_every_act_of_a_person_has_a_record_that_names_them() -> None:
    """In histories of every kind, whatever the event is."""
    for name, history in histories().items():
        acts = [(event.seq, actor) for event in history.events if (actor := getattr(event, "actor", None))]
        told = {(record.seq, record.actor_id) for record in audit(history.events)}
        assert {(seq, actor["id"]) for seq, actor in acts} <= told, name


def test_every_event_that_can_name_a_person_is_audited() -> None:
    """A new kind of event with an actor has to be placed in the audit trail."""
    with_actor = [kind for kind in EVENTS.values() if "actor" in kind.__struct_fields__]
    assert [kind for kind in with_actor if kind.audit is None] == []


def test_an_export_that_goes_on_gives_what_the_first_one_left_out() -> None:
    """Cut anywhere, two exports together are one of everything."""
    for name, (events, _) in histories().items():
        whole = list(audit(events))
        for cut in range(0, len(events) + 1, 3):
            assert [*audit(events[:cut]), *audit(events, after=cut)] == whole, name


def decided() -> list[Event]:
    """An approval that was edited and given, and the node that it covers."""
    case: Scenario = session()
    case.when(Edit(case.prompt.prompt_id, BEN, "edit-1", {"count": 7}))
    case.when(case.answer("approve", reason="planted-reason"))
    return case.events


def ran_as_approved(records: list[AuditRecord]) -> bool:
    """Whether the covered node's start has the digest on which the decision was made."""
    answer = next(record for record in records if record.action == "prompt:answered")
    start = next(record for record in records if record.action == "node:started" and record.path == "apply")
    return answer.covers == start.digest


def test_a_decision_has_the_digest_of_what_ran() -> None:
    """Also where the approver changed a value before: the digest is of what was shown then."""
    assert ran_as_approved(list(audit(decided())))


def test_a_trail_that_keeps_the_digest_of_before_an_edit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded fault: an edit changes nothing that the approval covers."""
    monkeypatch.setattr(PromptEdited, "remembered", lambda event: {})
    assert not ran_as_approved(list(audit(decided())))


def test_what_was_said_is_a_digest_unless_the_content_is_asked_for() -> None:
    """An input is in the records of an export with content only; the digests are the same."""
    plain, full = list(audit(decided())), list(audit(decided(), content=True))
    assert b"my api" not in encode([record.to_json() for record in plain])
    assert b"my api" in encode([record.to_json() for record in full])
    assert [record.digest for record in plain] == [record.digest for record in full]
