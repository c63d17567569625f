"""`python -m tests.simulation.seeds [COUNT]`: where each seeded fault shows, and how often among COUNT seeds.

A bot that makes one call more dies at other points, so a seed that showed a fault may show nothing any more. So each fault
has a hunt: a flow and a weather in which it matters, and the seed that was seen to show it, after which the search continues.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.simulation import form_mutants, further_mutants, mutants
from tests.simulation.mutants import Mutant
from tests.simulation.run import ground, run
from tests.simulation.weather import Weather
from tests.simulation.world import Ground


@dataclass(frozen=True)
class Hunt:
    """A fault, and where it is looked for: the seed that was last seen to show it comes first."""

    fault: Mutant
    flow: str
    weather: Weather
    seed: int = 0


KILLS = Weather(kills=5, kill_within=60, slow=0.05)
FREEZES = Weather(kills=5, kill_within=60, freezes=1.0, slow=1.0)
LOSSY = Weather(answer_lost=0.4, appears_late=0.3, limited=0.2, broken=0.2, late=1.0, slow=1.0, rude=0.2)
RUDE = Weather(rude=0.02)
"""People change, reject and press twice, and nearly never do what has nothing to do with the question."""

HUNTS = {
    hunt.fault.__name__: hunt
    for hunt in (
        Hunt(mutants.acknowledges_before_it_stores, "quorum", Weather(kills=8, kill_within=20, slow=1.0), 9),
        Hunt(mutants.reads_nothing_that_was_missed, "rollout", LOSSY),
        Hunt(mutants.posts_again_without_looking, "rollout", KILLS, 4),
        Hunt(mutants.remembers_keys_in_memory, "booking", KILLS),
        Hunt(
            mutants.an_answer_is_committed_without_its_row,
            "takeback",
            Weather(kills=8, kill_within=40, freezes=0.5, slow=0.05),
            29,
        ),
        Hunt(mutants.writes_what_it_decided_on_what_it_read, "booking", FREEZES, 2),
        Hunt(mutants.obeys_a_word_that_is_offered_as_a_choice, "choose", Weather(rude=0.05), 2),
        Hunt(mutants.a_change_forgets_the_attempt_that_is_out, "deploy", LOSSY, 8),
        Hunt(
            mutants.takes_what_was_posted_unheard_for_not_posted,
            "rollout",
            Weather(answer_lost=0.4, kills=6, kill_within=30, slow=1.0),
        ),
        Hunt(
            form_mutants.takes_a_second_submission_in_silence, "careful", Weather(ack_lost=0.5, rude=0.02), 2
        ),
        Hunt(form_mutants.obeys_a_button_of_an_older_copy, "release", Weather(rude=0.02, late=1.0)),
        Hunt(form_mutants.a_change_keeps_the_votes_before_it, "release", Weather(rude=0.5, late=1.0), 16),
        Hunt(form_mutants.runs_what_the_first_change_said, "release", RUDE, 12),
        Hunt(form_mutants.hands_over_and_keeps, "relay", Weather(rude=0.05), 11),
        Hunt(further_mutants.takes_a_modal_of_an_older_copy, "strict", RUDE, 11),
        Hunt(further_mutants.a_second_vote_keeps_the_first_reason, "council", RUDE, 0),
        Hunt(further_mutants.keeps_what_a_page_held_first, "survey", RUDE, 8),
        Hunt(further_mutants.goes_back_to_an_empty_page, "survey", RUDE, 5),
        Hunt(further_mutants.keeps_pages_in_memory, "survey", KILLS, 11),
        Hunt(
            further_mutants.starts_what_is_sent_again_once_more, "ferry", Weather(ack_lost=0.6, slow=1.0), 1
        ),
        Hunt(further_mutants.starts_again_while_it_runs, "alarm", Weather(twice=0.6, late=15.0, rude=0.4), 1),
        Hunt(further_mutants.hears_a_reaction_again, "rescue", Weather(twice=0.6, late=15.0), 1),
        Hunt(
            further_mutants.a_file_lies_in_its_place_before_it_is_whole,
            "papers",
            Weather(kills=12, kill_within=80, slow=0.05),
            129,
        ),
    )
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
        for name, hunt in HUNTS.items():
            with pytest.MonkeyPatch.context() as patch:
                hunt.fault(patch)
                first, *others = [*shown(name, land, count)] or [(-1, "nothing shows it")]
            print(f"{name}: {first[0]}, {1 + len(others)} of {count + 1}: {first[1][:100]}", flush=True)


if __name__ == "__main__":
    main()
