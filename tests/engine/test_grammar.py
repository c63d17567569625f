"""The grammar of histories: every single mutation of each real history is refused, or is another possible history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.events import EVENTS, Event, agents, containers, nodes, prompts, session, timers
from engine.journal.fold import derive_state, evolve
from engine.journal.state import State
from engine.language.errors import MalformedJournal
from engine.run.verify import verify
from tests.engine import mutations
from tests.engine.histories import NAMES, History, histories, types_in
from tests.engine.mutations import TEXT, Mutant, Prefixes, fields, orders
from tests.engine.walks import Walk, walks
from tests.support.proving import tries

INFORMATION: dict[str, str] = {
    "session:message": "a message that nobody sent",
    "agent:message": "words that nobody said to an agent",
    "prompt:voted": "a vote that was replaced, or voided by an edit, before anything was decided",
    "prompt:handed": "a question that was not handed over",
    "prompt:reposted": "a message that nobody deleted",
    "prompt:shown": "a question that was shown elsewhere, or shown again",
    "grant:revoked": "a grant that was taken back, and not used again",
    "grant:expired": "a grant whose time is over, as each use would say",
    "flow:pausing": "a pause for which nothing had to be waited for",
}
"""Without one of these the rest is another possible history: nothing that follows speaks of it."""

NEEDS_TEXT: dict[str, str] = {
    "delete timer:set": "whether a container has a `timeout`",
    "delete prompt:requested": "whether an agent is at its cap, as the last event of a journal that waits",
    "delete grant:used": "whether people decide calls of this tool first",
    "delete node:skipped": "that the list had one more node",
    "delete flow:migrated": "that what follows is another text",
    "double session:abort": "whether the flow has `finally`, of which a second one skips the rest",
}
"""What the fold believes and `sayso verify` does not: only the flow's text knows it (`engine.run.verify`)."""

UNTOLD: dict[str, str] = {
    "delete flow:paused": "a wait that is not said, before a person pauses or ends the session",
    "delete timer:set": "a reminder that was not set again: the deadline may have left no room for it",
    "delete agent:opened": "what a call was made of: conversations from before this event have none",
    "delete lock:acquired": "only in a fork, whose copied beginning lacks it: its parent's lock is none of its own",
}
"""What nothing tells, and of which nothing follows: no node runs for it, and none twice."""


def commutes(mutant: Mutant, folded: State, original: State) -> bool:
    """Whether two neighbours changed places and nothing is different for it: they happened side by side."""
    plain = (replace(folded, updated_at=""), replace(original, updated_at=""))
    return mutant.name.startswith("swap") and plain[0] == plain[1]


def accepted(history: History, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, State, State]]:
    """The mutants that the fold takes, with what they fold to and what the history does."""
    prefixes = Prefixes(history.events)
    for mutant in mutants:
        folded = prefixes.fold(mutant)
        if folded is not None:
            yield mutant, folded, prefixes.last


def kind_of(mutant: Mutant) -> str:
    """What was done to which type of event."""
    return f"{mutant.name.split()[0]} {mutant.name.split()[2]}"


def test_the_histories_have_every_type_of_event() -> None:
    """There is no event without a rule, and none that no history has."""
    every = {kind.type for kind in EVENTS.values()}
    found = set().union(*(types_in(history.events) for history in histories().values()))
    assert found == every


@pytest.mark.parametrize("name", NAMES)
def test_a_single_mutation_is_noticed(name: str) -> None:
    """An event that is missing, double, moved or renumbered, or a field that is wrong (foreign ids, other paths, numbers that
    nobody counted, outcomes of another kind): the fold refuses it, or it is one of two events that happened side by side,
    leaves out what nothing else speaks of, or changes what only the text knows. That is compared with the text then, but
    for what nothing tells; before a migration there is none."""
    history, by_the_fold, by_the_text = histories()[name], [], []
    events = history.events
    for mutant, folded, original in accepted(history, [*orders(events), *fields(events)]):
        told, changed = kind_of(mutant), mutant.name.split()[1]
        informs = mutant.name.startswith(("delete", "swap")) and told.split()[1] in INFORMATION
        if commutes(mutant, folded, original) or informs or told in UNTOLD:
            continue
        given = changed.startswith(("flow:started.input", "flow:migrated."))
        if not (told in NEEDS_TEXT or changed.rpartition(".")[2] in TEXT or given):
            by_the_fold.append(mutant.name)
        try:
            verify(mutant.events, history.flow)
        except MalformedJournal:
            continue
        by_the_text.append(mutant.name)
    assert by_the_fold == []
    assert by_the_text == [] or name == "migrated"


@pytest.mark.parametrize("name", NAMES)
def test_a_real_history_verifies_with_its_text(name: str) -> None:
    """What releases and this one wrote is in the grammar, and in their texts."""
    history = histories()[name]
    assert verify(history.events, history.flow) == derive_state(history.events)


@settings(max_examples=tries(60))
@given(walks())
def test_whatever_is_decided_verifies(walk: Walk) -> None:
    """Any flow under any commands writes nothing that its own text does not bear out."""
    assert verify(walk.events, walk.case.flow) == walk.case.state


# --- the faults that were found, one by one --------------------------------------------------------------------


def refusal(name: str, change: Callable[[list[Event]], list[Event]]) -> str:
    """Why the fold refuses a history that was changed like this."""
    changed = [replace(event, seq=seq) for seq, event in enumerate(change(list(histories()[name].events)), 1)]
    with pytest.raises(MalformedJournal) as error:
        derive_state(changed)
    return str(error.value)


def without(kind: str, number: int = 0) -> Callable[[list[Event]], list[Event]]:
    """The history without the n-th event of a type."""

    def change(events: list[Event]) -> list[Event]:
        found = [event for event in events if event.type == kind]
        return [event for event in events if event is not found[number]]

    return change


def test_a_flow_does_not_complete_while_a_node_is_open() -> None:
    """The last outcome is missing: the error names the end, and what is open."""
    assert refusal("every_leaf", without("node:completed", -1)).startswith("event 4")


def test_a_question_completes_by_an_answer() -> None:
    """Without the answer its outcome is refused."""
    assert "prompt" in refusal("forms", without("prompt:answered"))


def test_a_session_has_one_end() -> None:
    """Two ends are one too many."""
    twice = refusal("every_leaf", lambda events: [*events[:-1], events[-2], events[-1]])
    assert "before it session:end is missing" in twice


def test_an_answer_that_was_not_offered_is_refused() -> None:
    """A choice is one of the choices."""

    def change(events: list[Event]) -> list[Event]:
        other = [event for event in events if isinstance(event, ev.PromptAnswered)][-1]
        answer = {**other.answer, "value": "z"}
        return [replace(event, answer=answer) if event is other else event for event in events]

    assert "offers x, y, not z" in refusal("forms", change)


def test_votes_are_counted() -> None:
    """An approval that two must give is not given by one."""
    assert "vote" in refusal("votes", without("prompt:voted", -1))


def test_a_kind_and_a_number_of_a_question_are_derived() -> None:
    """A question is of the kind of its node, and the next one of its session."""
    for name, value in (("kind", "approval"), ("number", 7)):

        def change(events: list[Event], name: str = name, value: object = value) -> list[Event]:
            asked = next(event for event in events if isinstance(event, ev.PromptRequested))
            prompt = {**asked.prompt, name: value}
            return [replace(event, prompt=prompt) if event is asked else event for event in events]

        assert "prompt:requested" in refusal("forms", change)


def test_a_step_that_is_cut_is_no_whole_journal() -> None:
    """A journal that ends between an answer and its outcome folds as far as it goes, and does not verify."""
    events = histories()["forms"].events
    cut = next(event.seq for event in events if event.type == "prompt:answered")
    assert derive_state(events[:cut]).owed
    with pytest.raises(MalformedJournal, match="in the middle of a step"):
        verify(events[:cut])


def _clumsy(state: State, event: Event) -> State:
    """The fold without its rules, which stumbles over what they keep from it."""
    try:
        return evolve(state, event)
    except (LookupError, AttributeError, TypeError, AssertionError) as error:
        raise MalformedJournal(str(error)) from error


def test_a_fold_that_checks_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: rules that compare nothing. Then mutants are believed that this file has refused."""
    history = histories()["containers"]
    honest = {mutant.name for mutant, _, _ in accepted(history, orders(history.events))}
    for module in (agents, containers, nodes, prompts, session, timers):
        monkeypatch.setattr(module, "same", lambda said, known, what: None)
        if hasattr(module, "run_at"):
            monkeypatch.setattr(module, "run_at", lambda state, path, *statuses: state.nodes[path])
    monkeypatch.setattr(mutations, "evolve", _clumsy)
    believed = {mutant.name for mutant, _, _ in accepted(history, orders(history.events))}
    assert len(believed) > len(honest)
