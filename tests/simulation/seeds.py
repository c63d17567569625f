"""`python -m tests.simulation.seeds [COUNT]`: where each seeded fault shows, and how often among COUNT seeds.

A bot that makes one call more dies at other points, so a seed that showed a fault may show nothing any more. So each fault
has a hunt: a flow and a weather in which it matters, and the seed that was seen to show it, after which the search continues.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.simulation.form_mutants import FORM_MUTANTS
from tests.simulation.further_mutants import FURTHER_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.run import ground, run
from tests.simulation.weather import Weather
from tests.simulation.world import Ground

SEEDED: dict[str, Mutant] = {**MUTANTS, **FORM_MUTANTS, **FURTHER_MUTANTS}


@dataclass(frozen=True)
class Hunt:
    """Where a fault is looked for: the seed that was last seen to show it comes first."""

    flow: str
    weather: Weather
    seed: int = 0


KILLS = Weather(kills=5, kill_within=60, slow=0.05)
FREEZES = Weather(kills=5, kill_within=60, freezes=1.0, slow=1.0)
LOSSY = Weather(answer_lost=0.4, appears_late=0.3, limited=0.2, broken=0.2, late=1.0, slow=1.0, rude=0.2)
RUDE = Weather(rude=0.02)
"""People change, reject and press twice, and nearly never do what has nothing to do with the question."""

HUNTS = {
    "acknowledges_before_it_stores": Hunt("quorum", Weather(kills=8, kill_within=20, slow=1.0), 9),
    "reads_nothing_that_was_missed": Hunt("rollout", LOSSY),
    "posts_again_without_looking": Hunt("rollout", KILLS, 4),
    "remembers_keys_in_memory": Hunt("booking", KILLS),
    "an_answer_is_committed_without_its_row": Hunt(
        "takeback", Weather(kills=8, kill_within=40, freezes=0.5, slow=0.05), 29
    ),
    "writes_what_it_decided_on_what_it_read": Hunt("booking", FREEZES, 2),
    "obeys_a_word_that_is_offered_as_a_choice": Hunt("choose", Weather(rude=0.05), 2),
    "a_change_forgets_the_attempt_that_is_out": Hunt("deploy", LOSSY, 8),
    "takes_what_was_posted_unheard_for_not_posted": Hunt(
        "rollout", Weather(answer_lost=0.4, kills=6, kill_within=30, slow=1.0)
    ),
    "takes_a_second_submission_in_silence": Hunt("careful", Weather(ack_lost=0.5, rude=0.02), 2),
    "obeys_a_button_of_an_older_copy": Hunt("release", Weather(rude=0.02, late=1.0)),
    "a_change_keeps_the_votes_before_it": Hunt("release", Weather(rude=0.5, late=1.0), 16),
    "runs_what_the_first_change_said": Hunt("release", RUDE, 12),
    "hands_over_and_keeps": Hunt("relay", Weather(rude=0.05), 11),
    "takes_a_modal_of_an_older_copy": Hunt("strict", RUDE, 11),
    "a_second_vote_keeps_the_first_reason": Hunt("council", RUDE, 0),
    "keeps_what_a_page_held_first": Hunt("survey", RUDE, 8),
    "goes_back_to_an_empty_page": Hunt("survey", RUDE, 5),
    "keeps_pages_in_memory": Hunt("survey", KILLS, 11),
    "starts_what_is_sent_again_once_more": Hunt("ferry", Weather(ack_lost=0.6, slow=1.0), 1),
    "starts_again_while_it_runs": Hunt("alarm", Weather(twice=0.6, late=15.0, rude=0.4), 1),
    "hears_a_reaction_again": Hunt("rescue", Weather(twice=0.6, late=15.0), 1),
    "a_file_lies_in_its_place_before_it_is_whole": Hunt(
        "papers", Weather(kills=12, kill_within=80, slow=0.05), 45
    ),
}


def problems(name: str, land: Ground, seed: int) -> list[str]:
    """What is wrong in the run of a seed in which this fault would matter."""
    hunt = HUNTS[name]
    return run(land, seed, weather=replace(hunt.weather), wants=hunt.flow).problems


def shown(name: str, land: Ground, count: int) -> Iterator[tuple[int, str]]:
    """The seeds that show a fault that is put in already, the known one first, and what was wrong."""
    for seed in (HUNTS[name].seed, *range(count)):
        if found := problems(name, land, seed):
            yield seed, found[0]


def main() -> None:
    """Say of each fault where it shows."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with ground() as land:
        for name, fault in SEEDED.items():
            with pytest.MonkeyPatch.context() as patch:
                fault(patch)
                first, *others = [*shown(name, land, count)] or [(-1, "nothing shows it")]
            print(f"{name}: {first[0]}, {1 + len(others)} of {count + 1}: {first[1][:100]}", flush=True)


if __name__ == "__main__":
    main()
