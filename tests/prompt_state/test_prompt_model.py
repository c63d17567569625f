"""PromptState: its encoding, its projection from the engine's state, and reading it back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import asdict, replace

from engine.forms.question import Question
from engine.journal.events import FlowPaused, PromptAnswered, PromptRequested, PromptShown, TimerSet
from engine.journal.records import PromptRow
from engine.journal.state import Asked, State
from engine.language.codec import decode, encode
from engine.language.errors import SchemaTooNew
from engine.storage.open import MemoryStore
from engine.storage.rows import PromptTable
from prompt_state.question_row import (
    MalformedPrompt,
    PromptState,
    changed_prompt_ids,
    find,
    of_thread,
    project,
    prompt_row,
    summary,
    thread_key,
    waiting,
)
from tests.prompt_state.prompt_cases import KEY, approval, ask

NOW = "2026-11-21T22:40:00.000Z"
THREAD = {"team": "T1", "channel": "C1", "threadTs": "1000.000000", "key": KEY}
ANA = {"id": "UANA", "name": "Ana"}
SPEC = {
    "kind": "approval",
    "message": "Roll back?",
    "options": [
        {"value": "approve", "label": "Approve", "style": "primary"},
        {"value": "reject", "label": "Reject", "style": "danger"},
    ],
    "approvers": ["UBEN", "@sre"],
    "excludeRequester": True,
    "acceptsText": False,
    "timeoutSeconds": 1800,
    "onTimeout": "reject",
    "nonce": "n1",
    "nodeId": "gate",
    "nodeName": "The gate",
}


def Run(spec: dict[str, Any] = SPEC, **fields: Any) -> Asked:
    """A prompt as the engine's state has it."""
    asked = asdict(Question.from_wire(spec))
    place = {"prompt_id": "p-1", "path": "gate", "status": "requested", "requested_at": NOW}
    return Asked(**{**asked, **place, **fields})


def session(thread: dict[str, Any] | None = THREAD, actor: dict[str, Any] = ANA, seq: int = 7) -> State:
    """The session of these prompts."""
    return State(session_id="session-1", thread=thread, actor=actor, seq=seq)


SHOWN = Run(
    status="shown",
    shown={"channel": "C1", "ts": "1001.000000", "threadTs": "1000.000000"},
    deadline="2026-11-21T23:10:00.000Z",
)
ANSWERED = replace(
    SHOWN,
    status="answered",
    answer={"value": "approve", "text": "Approve", "label": "Approve"},
    actor={"id": "UBEN", "name": "Ben"},
    at=NOW,
)


def state_of(run: Run, thread: dict[str, Any] | None = THREAD) -> PromptState:
    return PromptState.from_bytes(prompt_row(session(thread), run).body)


# --- encoding ------------------------------------------------------------------------------------------------

GOLDEN_V1 = (
    b'{"version":1,"promptId":"p-1","sessionId":"session-1","path":"gate","kind":"approval","status":"answered",'
    b'"message":"Roll back?","nonce":"n1","acceptsText":false,"options":[{"value":"approve","label":"Approve",'
    b'"style":"primary"},{"value":"reject","label":"Reject","style":"danger"}],"approvers":["UBEN","@sre"],'
    b'"who":null,"excludeRequester":true,"requesterId":"UANA","requesterName":"Ana","number":null,'
    b'"nodeId":"gate","nodeName":"The gate","generation":1,"threadKey":"T1:C1:1000.000000","channel":"C1",'
    b'"threadTs":"1000.000000","messageTs":"1001.000000","deadline":"2026-11-21T23:10:00.000Z","snapshotSeq":7,'
    b'"answeredBy":"UBEN","answeredByName":"Ben","answeredAt":"2026-11-21T22:40:00.000Z",'
    b'"answerSummary":"approved","timeoutSeconds":1800.0,"onTimeout":"reject"}'
)


def test_the_stored_form_is_the_released_one() -> None:
    """The bytes of version 1 stay what they are, and are read back as the same prompt."""
    row = prompt_row(session(), ANSWERED)
    assert row.body == GOLDEN_V1
    assert PromptState.from_bytes(GOLDEN_V1).to_bytes() == GOLDEN_V1


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    WORDS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.none(), st.lists(WORDS, max_size=2)
)
STATES = st.builds(
    PromptState,
    prompt_id=WORDS,
    session_id=WORDS,
    path=WORDS,
    kind=st.sampled_from(["ask", "approval", "interrupted", "failed", "input"]),
    status=st.sampled_from(["requested", "shown", "answered", "expired", "cancelled"]),
    message=WORDS,
    nonce=WORDS,
    accepts_text=st.booleans(),
    options=st.lists(
        st.fixed_dictionaries({"value": VALUES, "label": WORDS, "style": st.none() | WORDS}), max_size=3
    ).map(tuple),
    approvers=st.none() | st.lists(WORDS, max_size=2).map(tuple),
    who=st.none() | st.lists(WORDS, max_size=2).map(tuple),
    number=st.none() | st.integers(1, 99),
    generation=st.integers(1, 9),
    thread_key=st.none() | WORDS,
    answer_summary=st.none() | WORDS,
)


@given(STATES)
def test_a_prompt_survives_its_encoding(state: PromptState) -> None:
    """Decoding what was encoded gives the same prompt, whatever its texts and values are."""
    assert PromptState.from_bytes(state.to_bytes()) == state


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "vote"}, "kind"),
        ({"status": "lost"}, "status"),
        ({"message": None}, "message"),
        ({"nonce": 3}, "nonce"),
        ({"approvers": "UBEN"}, "approvers"),
        ({"acceptsText": "yes"}, "acceptsText"),
        ({"generation": True}, "generation"),
        ({"options": [{"value": 1}]}, "label"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_a_malformed_prompt_is_refused_by_its_field(change: dict[str, Any], named: str) -> None:
    """A stored prompt whose field is missing, surplus or of another type is refused, and the field is named."""
    document = decode(GOLDEN_V1) | change
    with pytest.raises(MalformedPrompt, match=f"'p-1' is malformed: .*{named}"):
        PromptState.from_bytes(encode(document))


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"[]", b"null", b"{}", b'{"version":"1"}', b'{"version":0}']
)
def test_what_is_no_prompt_is_refused(data: bytes) -> None:
    """Bytes that are no prompt of any version are refused as malformed."""
    with pytest.raises(MalformedPrompt):
        PromptState.from_bytes(data)


def test_a_newer_prompt_is_left_to_the_newer_release() -> None:
    """A prompt of a later version is not guessed at: the error says that a newer release is needed."""
    with pytest.raises(SchemaTooNew, match=r"version 2 .* run the newer release"):
        PromptState.from_bytes(encode(decode(GOLDEN_V1) | {"version": 2}))


# --- projection ----------------------------------------------------------------------------------------------


def test_a_requested_prompt_has_its_thread_and_no_message() -> None:
    """Before it is posted a prompt is found by its thread, points to its session, and has no ts or deadline."""
    row = prompt_row(session(), Run())
    state = PromptState.from_bytes(row.body)
    assert (row.prompt_id, row.session_id, row.status) == ("p-1", "session-1", "requested")
    assert (row.thread_key, row.deadline) == (KEY, None)
    assert (state.message_ts, state.snapshot_seq, state.nonce) == (None, 7, "n1")
    assert state.approvers == ("UBEN", "@sre")
    assert state.exclude_requester
    assert state.open


def test_a_shown_prompt_points_to_its_message() -> None:
    """Once shown, a prompt has its message's ts and its deadline, in the row's columns too."""
    row = prompt_row(session(seq=9), SHOWN)
    assert (row.status, row.deadline) == ("shown", "2026-11-21T23:10:00.000Z")
    assert PromptState.from_bytes(row.body).message_ts == "1001.000000"


def test_an_answered_prompt_says_who_what_and_when() -> None:
    """A closed prompt tells the one who comes second who was first, when, and with what."""
    state = state_of(ANSWERED)
    assert not state.open
    assert (state.answered_by, state.answered_by_name, state.answered_at) == ("UBEN", "Ben", NOW)
    assert state.answer_summary == "approved"


def test_a_prompt_of_a_local_run_has_no_thread() -> None:
    """A session at the terminal has prompts without a thread."""
    row = prompt_row(session(None, {"id": "local:ana"}), Run())
    assert row.thread_key is None
    assert PromptState.from_bytes(row.body).requester_id == "local:ana"


def test_a_thread_that_begins_with_the_bots_own_post_gets_its_key_when_shown() -> None:
    """Where the thread's first message was not posted at the start, its key comes with the prompt's message."""
    thread = {"team": "T1", "channel": "C1", "threadTs": None, "key": None}
    assert state_of(Run(), thread).thread_key is None
    assert state_of(SHOWN, thread).thread_key == KEY == thread_key("T1", "C1", "1000.000000")


def test_values_of_options_keep_their_types() -> None:
    """A choice of an input may be a boolean or a number, and stays one; labels are always texts."""
    options = [{"value": True, "label": "Yes", "style": None}, {"value": 3, "label": 3, "style": None}]
    state = state_of(Run(SPEC | {"kind": "input", "options": options}))
    assert state.options == (
        {"value": True, "label": "Yes", "style": None},
        {"value": 3, "label": "3", "style": None},
    )


def test_a_spec_that_lacks_something_is_refused() -> None:
    """A prompt without a nonce or with a wrong list is not written, and the error names prompt and field."""
    with pytest.raises(MalformedPrompt, match=r"'p-1' is malformed: .*nonce"):
        prompt_row(session(), Run({"kind": "ask", "message": "x"}))


def test_a_commit_writes_the_rows_of_the_prompts_it_changed() -> None:
    """Each event that names a prompt writes that prompt's row once; other prompts and events write none."""
    at: Any = {"timestamp": NOW, "path": "gate"}
    events = [
        PromptRequested(seq=4, prompt_id="p-2", prompt=dict(SPEC), **at),
        PromptShown(seq=5, prompt_id="p-1", shown={"ts": "1001.0"}, **at),
        TimerSet(seq=6, timer_id="t", due_at=NOW, purpose="deadline", prompt_id="p-1", **at),
        TimerSet(seq=7, timer_id="t", due_at=NOW, purpose="wait", **at),
        FlowPaused(seq=8, timestamp=NOW, reason="prompt"),
    ]
    assert changed_prompt_ids(events) == {"p-1", "p-2"}
    prompts = Map({"p-1": SHOWN, "p-2": Run(prompt_id="p-2"), "p-3": Run(prompt_id="p-3")})
    rows = project(replace(session(), prompts=prompts), events)
    assert [(row.prompt_id, row.status) for row in rows] == [("p-1", "shown"), ("p-2", "requested")]
    answered = PromptAnswered(seq=9, prompt_id="p-1", actor=ANA, answer={"value": "approve"}, **at)
    assert changed_prompt_ids([answered]) == {"p-1"}


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        ("ask", None, None),
        ("approval", {"value": "approve", "label": "Ship it"}, "approved"),
        ("approval", {"value": "reject", "label": "Approve"}, "rejected"),
        ("approval", {}, "rejected"),
        ("ask", {"value": "eu", "label": "Europe", "text": "Europe"}, "Europe"),
        ("ask", {"value": "fine\n  so far", "text": "fine\n  so far"}, "fine so far"),
        ("ask", {"text": "a\u202eb"}, "a\\u202eb"),
        ("ask", {"text": "x" * 141}, "x" * 139 + "…"),
        ("ask", {"text": "x" * 140}, "x" * 140),
    ],
)
def test_an_answer_in_a_few_words(kind: str, answer: dict[str, Any] | None, words: str | None) -> None:
    """A summary is short, on one line, and shows what would hide or reorder text."""
    assert summary(kind, answer) == words


# --- reading back --------------------------------------------------------------------------------------------


def stored(*rows: PromptRow) -> PromptTable:
    """The questions of a store that has these rows."""
    store = MemoryStore()
    store.consume([], NOW, rows)
    return store.prompts


def put(state: PromptState) -> PromptRow:
    return PromptRow(
        state.prompt_id, state.session_id, state.thread_key, state.status, state.deadline, state.to_bytes()
    )


def test_what_threads_wait_for_is_found_again() -> None:
    """From the rows alone: the open prompts of a thread, of a session and of all, and one by its id."""
    here, done, elsewhere = ask("p-1"), approval("p-2", status="answered"), ask("p-3", thread_key="T1:C2:5.0")
    other = ask("p-4", session_id="session-2", status="requested", message_ts=None)
    rows = stored(*map(put, (here, done, elsewhere, other)))
    assert waiting(rows) == [here, elsewhere, other]
    assert waiting(rows, thread_key=KEY) == [here, other]
    assert waiting(rows, session_id="session-2") == [other]
    assert of_thread(rows, KEY) == [here, done, other]
    assert find(rows, "p-2") == done
    assert find(rows, "p-9") is None


def test_the_newest_prompts_of_a_long_thread_are_found() -> None:
    """A thread with more prompts than the store gives by default still finds its newest, which is the open one."""
    old = [ask(f"p-{index}", status="answered") for index in range(600)]
    rows = stored(*map(put, [*old, ask("p-now")]))
    assert of_thread(rows, KEY)[-1].prompt_id == "p-now"


def test_a_row_that_is_not_its_body_is_refused() -> None:
    """Columns that say something else than the body are an error, so that no query finds the wrong prompt."""
    row = put(ask("p-1", status="answered")).but(status="shown")
    with pytest.raises(MalformedPrompt, match="p-1: the row's columns and its body do not agree"):
        find(stored(row), "p-1")
