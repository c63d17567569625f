"""Actors: how they are made, what is journaled of them, and what is left when they are read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.actors import Actor
from tests.prompt_state.prompt_cases import person


@pytest.mark.parametrize(
    ("actor", "record"),
    [
        (
            person("UANA", name="Ana", email="ana@example.com"),
            {"id": "UANA", "name": "Ana", "email": "ana@example.com"},
        ),
        (person("UANA"), {"id": "UANA"}),
        (Actor.local("ana"), {"id": "local:ana", "name": "ana"}),
        (Actor.itself("timer"), {"id": "system:timer", "name": "sayso"}),
        (Actor.pretend("ben"), {"id": "local:ben", "name": "ben", "simulated": True}),
        (Actor.pretend("local:ben"), {"id": "local:ben", "name": "local:ben", "simulated": True}),
        (Actor.pretend("U0BEN"), {"id": "U0BEN", "name": "U0BEN", "simulated": True}),
        (Actor.pretend("@sre"), {"id": "local:@sre", "name": "@sre", "simulated": True}),
    ],
)
def test_a_record_says_who_and_nothing_more(actor: Actor, record: dict[str, object]) -> None:
    """Journaled are id, name, e-mail and whether somebody was played; facts are not."""
    assert actor.record() == record


def test_one_who_is_played_has_what_the_name_says() -> None:
    """`--as` takes people as flows name them: an address gives an e-mail, a handle a group."""
    assert Actor.pretend("ben@example.com").email == "ben@example.com"
    assert Actor.pretend("Ben@Example.com").id == Actor.pretend("ben@example.com").id
    assert Actor.pretend("@sre").groups == {"sre"}
    assert Actor.pretend("@sre").email is None
    assert Actor.pretend("ben").kind == "local"


@given(st.text(max_size=10))
def test_playing_is_never_taken_for_real(name: str) -> None:
    """Whatever name is played, the actor and its record say that it is simulated."""
    actor = Actor.pretend(name)
    assert actor.simulated
    assert actor.kind == "local"
    assert actor.record()["simulated"] is True
