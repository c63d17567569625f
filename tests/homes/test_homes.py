"""The homes of landed versions open and go on, through the engine and through the command line: see README.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli import prompts
from engine.journal.snapshot import from_json
from engine.journal.state import State
from engine.language.codec import decode
from engine.storage.port import Store
from tests.homes.corpus import FOLDER, Old, SetClock, ThroughCommands, ThroughEngine, Way, unpacked

MADE = "2026-11-23T09:00:00+00:00"
"""Just after the homes were made: none of their deadlines has passed."""
SCRIPTED = ("0541089", "093a34c", "6520e98")
HOMES = (*SCRIPTED, "4cdf2f0")
"""Homes of the terminal."""
BEFORE_ON_REJECT = ("0541089", "093a34c", "4cdf2f0")
WAYS = ("engine", "commands")


@pytest.fixture(params=HOMES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    """A copy of a home."""
    return opened(request.param, tmp_path)


@pytest.fixture(params=BEFORE_ON_REJECT)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    """A copy of a home whose texts know no `on_reject`."""
    return opened(request.param, tmp_path)


@pytest.fixture
def newer(tmp_path: Path) -> Old:
    """A copy of the home of 4cdf2f0."""
    return opened("4cdf2f0", tmp_path)


@pytest.fixture(params=SCRIPTED)
def oldest(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    """A copy of a home that `make/scripted.sh` made."""
    return opened(request.param, tmp_path)


def opened(name: str, folder: Path) -> Old:
    """A copy of that home, under the clock of its time."""
    return Old(unpacked(name, folder), SetClock(MADE))


@pytest.fixture(params=WAYS)
def through(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> type[Way]:
    """Makes the way in to a home."""

    def made(old: Old) -> Way:
        return ThroughEngine(old) if request.param == "engine" else ThroughCommands(old, monkeypatch, capsys)

    return made  # type: ignore[return-value]


def test_every_home_is_described() -> None:
    """What must happen to a home stands beside it."""
    described = (FOLDER / "README.md").read_text()
    homes = [path.name for path in FOLDER.glob("*.tar.gz")]
    assert len(homes) >= 4
    assert [name for name in homes if f"`{name}`" not in described] == []


def test_an_approval_that_waits_is_given(old: Old, through: type[Way]) -> None:
    """Approved by who was asked, what follows runs, and nothing that had run before."""
    session = old.heads("gate")[0].session_id
    state = through(old).answer(session, "gate", "ben", "approve")
    assert (state.status, state.nodes["after"].output) == ("complete", {"decision": "approve"})
    assert state.nodes["ship"].status == "completed"
    assert old.started_twice(session) == []


def test_a_loading_path_of_its_own_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seeded fault: a command line that reads the snapshot itself cannot answer what an older release asked."""

    def own_way(store: Store, session_id: str) -> State:
        return from_json(decode(store.load(session_id).snapshot or b"{}")["state"])

    monkeypatch.setattr(prompts, "stored_state", own_way)
    old = opened("0541089", tmp_path)
    session = old.heads("gate")[0].session_id
    with pytest.raises(AssertionError, match="not a session state"):
        ThroughCommands(old, monkeypatch, capsys).answer(session, "gate", "ben", "approve")


def test_a_rejection_keeps_the_meaning_that_the_text_had(older: Old, through: type[Way]) -> None:
    """A text without `on_reject` was written when a rejected flow went on: `if` decides, and `after` has the decision."""
    session = older.heads("gate")[-1].session_id
    state = through(older).answer(session, "gate", "ben", "reject")
    assert (state.status, state.nodes["after"].output) == ("complete", {"decision": "reject"})
    assert state.nodes["ship"].status == "skipped"


@pytest.mark.parametrize("flow", ["gate", "bare-gate"])
def test_a_rejection_ends_what_was_started_since(tmp_path: Path, flow: str) -> None:
    """The text of 6520e98 means what it means today: rejected, nothing that follows runs."""
    old = opened("6520e98", tmp_path)
    session = old.heads(flow)[-1].session_id
    state = ThroughEngine(old).answer(session, "gate", "ben", "reject")
    assert (state.status, "ship" in state.nodes) == ("failed", False)
    assert (state.error or {})["type"] == "rejected"


def test_a_rejection_without_an_if_goes_on_as_its_text_meant(older: Old, through: type[Way]) -> None:
    """The dangerous old meaning stays with the sessions that were approved under it, and only with those."""
    session = older.heads("bare-gate")[0].session_id
    state = through(older).answer(session, "gate", "ben", "reject")
    assert (state.status, state.nodes["ship"].output["stdout"].strip()[:4]) == ("complete", "ship")


def test_a_second_question_is_answered(old: Old, through: type[Way]) -> None:
    """The first answer was kept."""
    session = next(
        head for head in old.heads("two-questions") if "second" in old.open(head.session_id)
    ).session_id
    state = through(old).answer(session, "second", "requester", "zwei")
    assert state.status == "complete"
    assert list(state.nodes["both" if "both" in state.nodes else "end"].output.values()) == ["one/zwei"]


@pytest.mark.parametrize("name", ["093a34c", "4cdf2f0", "6520e98"])
def test_a_held_session_keeps_an_answer_and_starts_nothing(
    name: str, tmp_path: Path, through: type[Way]
) -> None:
    """What a person held goes on when a person says so, and not before."""
    old = opened(name, tmp_path)
    session = next(head for head in old.heads("two-questions") if head.phase == "held").session_id
    state = through(old).answer(session, "first", "requester", "eins")
    assert (state.phase, "second" in state.nodes) == ("held", False)
    state = through(old).resume(session, "requester")
    assert (state.phase, list(old.open(session))) == ("waiting", ["second"])


def test_open_passes_of_a_foreach_are_answered(oldest: Old, through: type[Way]) -> None:
    """Each pass waits alone; what one of them was answered before is not asked again."""
    session = oldest.heads("each")[0].session_id
    assert sorted(oldest.open(session)) == ["each[0]/q", "each[2]/q"]
    through(oldest).answer(session, "each[0]/q", "requester", "alpha")
    state = through(oldest).answer(session, "each[2]/q", "requester", "gamma")
    assert (state.status, state.nodes["done"].output) == ("complete", {"first": "alpha", "last": "gamma"})
    assert oldest.started_twice(session) == []


def test_a_foreach_in_a_loop_goes_on_in_its_pass(newer: Old, through: type[Way]) -> None:
    """The two answers that are open complete the pass, and `until` ends the loop as it did in that release."""
    session = newer.heads("nested")[0].session_id
    assert sorted(newer.open(session)) == ["rounds[0]/hosts[0]/look", "rounds[0]/hosts[2]/look"]
    for path in sorted(newer.open(session)):
        state = through(newer).answer(session, path, "requester", "fine")
    assert (state.status, state.nodes["end"].output) == ("complete", {"done": True})
    assert newer.started_twice(session) == []


def test_a_vote_counts_that_was_given_before(newer: Old, through: type[Way]) -> None:
    """One of two votes was there; the second one completes the quorum."""
    session = newer.heads("quorum")[0].session_id
    state = through(newer).answer(session, "gate", "ben", "approve")
    assert (state.status, state.nodes["end"].output) == ("complete", {"by": 2})


def test_a_second_visit_of_a_graph_goes_on(newer: Old, through: type[Way]) -> None:
    """The loop edge was taken once; `done` leaves by the other edge."""
    session = newer.heads("review")[0].session_id
    (path,) = newer.open(session)
    state = through(newer).answer(session, path, "requester", "done")
    assert (state.status, path) == ("complete", "check~2")
    assert next(run for name, run in state.nodes.items() if name.startswith("ship")).status == "completed"
    assert newer.started_twice(session) == []


def test_a_form_is_filled(newer: Old, through: type[Way]) -> None:
    """Its fields are checked as they were asked."""
    session = newer.heads("form")[0].session_id
    state = through(newer).answer(session, "ask", "requester", {"reason": "new", "count": 2, "env": "prod"})
    assert (state.status, state.nodes["end"].output) == ("complete", {"env": "prod"})


def test_a_wait_ends_once(newer: Old, through: type[Way]) -> None:
    """25 days later it goes on by itself."""
    session = newer.heads("wait")[0].session_id
    newer.clock.seconds += 26 * 86_400
    state = through(newer).resume(session, "requester")
    assert (state.status, state.nodes["end"].output) == ("complete", {"woke": True})
    assert newer.started_twice(session) == []
