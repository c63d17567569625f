"""Who gets in, written by hand from DESIGN.md sections 5, 7 and 8, the semantics table and docs/decisions.md.

Nothing here asks the program: a name that is in a row gets in, every other name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.matrix.cast import CAST, IN_CHANNEL, TERMINAL
from tests.matrix.doors import Door

MEMBERS = ("ana", "ben", "gia", "mia", "ed", "hana", "hal", "vera", "adam", "cleo")
"""People of this workspace, no guests, in the channel."""
SIGNERS = ("ben", "gia", "mia", "ola", "vera", "hal", "lena")
"""Listed by id, group, address or as somebody at the terminal; Hal has Hana's place and Hana has none. Being in the
channel is not asked of whoever is listed. Ana started it and asked for nothing to be approved by herself."""
OWNERS = ("ana", "adam")
"""The requester and the admins."""
LISTED = (*SIGNERS, "ed")

GETS_IN: Mapping[tuple[str, str], tuple[str, ...]] = {
    # An approval: whoever is listed; an edit makes its author a requester; no bypass for admins; text never approves.
    ("gate", "vote"): SIGNERS,
    ("gate", "edit"): (*SIGNERS, "ed"),
    ("gate", "hand"): SIGNERS,
    ("gate", "never"): (),
    # A question is its requester's, unless `who` says otherwise; the requester and the admins may hand it over.
    ("mine", "answer"): ("ana",),
    ("mine", "hand"): (*OWNERS, *TERMINAL),
    ("listed", "answer"): LISTED,
    ("listed", "hand"): (*LISTED, *OWNERS, *TERMINAL),
    ("text", "answer"): LISTED,
    ("form", "answer"): LISTED,
    ("day", "answer"): LISTED,
    ("everybody", "answer"): MEMBERS,
    # Interrupted and failed steps, and the course of the run: the requester and the admins. Whoever has the terminal
    # of the machine may steer and end any run, as an admin may.
    ("cut", "resolve"): (*OWNERS, *TERMINAL),
    ("cut", "never"): (),
    ("broken", "resolve"): (*OWNERS, *TERMINAL),
    ("broken", "never"): (),
    ("mine", "control"): OWNERS,
    ("mine", "control at the terminal"): TERMINAL,
    ("held", "control"): OWNERS,
    ("held", "control at the terminal"): TERMINAL,
    # Which question was meant: whoever wrote the words.
    ("two", "author"): ("ana",),
    # Starting: members of the channel, or whom the flow lists, wherever they are.
    ("openly", "start"): MEMBERS,
    ("openly", "start from outside"): MEMBERS,
    ("openly", "start from CI"): (),
    ("needs", "start from outside"): MEMBERS,
    ("closely", "start as listed"): ("ben", "gia", "mia", "ed", "hana", "vera"),
    ("closely", "start as listed from outside"): ("ben", "gia", "mia", "ed", "hana", "vera", "ola"),
    ("closely", "start as listed from CI"): ("lena",),
}

CLOSED = ("answered", "expired", "cancelled")
"""States in which nobody gets in any more."""


def comes(door: Door) -> tuple[str, ...]:
    """Who can come to this door at all."""
    if door.kind == "cli":
        return TERMINAL
    if door.kind in ("message", "word", "overheard") or door.name.startswith(("mention", "words")):
        return IN_CHANNEL
    return tuple(CAST)


def gets_in(scenario: str, door: Door, state: str, name: str) -> bool:
    """Whether this person gets what they came for."""
    if state in CLOSED or state == "nonce":
        return False
    if state == "half" and name == "vera" and "approve" in door.name:
        return False  # she did already
    return name in GETS_IN[scenario, door.action]


STATES: Mapping[str, tuple[str, ...]] = {
    "gate": ("open", "half", "answered", "expired", "cancelled", "nonce", "held"),
    "mine": ("open", "answered", "expired", "cancelled", "nonce", "held"),
    "listed": ("open", "answered", "expired", "cancelled", "nonce", "held"),
    "text": ("open", "answered", "expired", "held"),
    "form": ("open", "answered", "expired", "cancelled", "nonce", "held"),
    "day": ("open", "answered", "nonce", "held"),
    "everybody": ("open", "cancelled", "held"),
    "cut": ("open", "answered", "cancelled", "nonce", "held"),
    "broken": ("open", "answered", "cancelled", "nonce", "held"),
}


def has_nonce(door: Door) -> bool:
    """Whether what is sent carries the nonce of the question as it was shown."""
    return door.kind in ("press", "modal")
