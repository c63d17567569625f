"""Each row of the table of what a model call can end with, as a scenario that is killed while its card is open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bot.scenarios import play as module
from bot.scenarios.play import Result, Run
from engine.journal.events import PromptRequested
from tests.bot.test_scenarios import after_a_kill, played, report
from tests.bot.test_scenarios_agents import FLOW, HEAD, changed
from tests.support.proving import PROVE

pytestmark = pytest.mark.usefixtures("inline")

_PEOPLE = HEAD.replace("[ana, ben]", "{ana: {}, ben: {}, cleo: {admin: true}}")
_LOOK = "  - {thinking: The log., tools: [{name: logs, input: {service: checkout}}]}"
_DONE = "  - expect: {status: complete, posted: Out of memory, effects: [diagnose.logs]}"
_STOPPED = "  - expect: {status: failed, effects: [diagnose.logs], errors: {diagnose: stopped by ana}}"
_SAYS = "  - text: Out of memory\n"
_OTHER = '  - ana: {choose: "Other model: claude-opus-5-5"}'
_REFUSES = "  - {stop_reason: refusal, stop_details: {category: cyber, explanation: No.}}\n"
_CUT = '  - {text: "Out ", stop_reason: max_tokens}\n  - {text: of , stop_reason: max_tokens}\n'
_CUT += "  - {text: ' mem', stop_reason: max_tokens}\n  - {text: ory, stop_reason: max_tokens}\n"
_HALF = "  - {tools: [{name: logs, input: {service: x}}], stop_reason: max_tokens}\n" * 2
_EMPTY = "  - {stop_reason: end_turn}\n" * 2
_LONG = "  - error: {kind: context_too_long}\n"
_FULL = "  - {text: And so, stop_reason: model_context_window_exceeded}\n"
_SUMMED = "  - text: The log was read.\n"
_SIGNED = "  - {blocks: [{type: compaction, content: The log was read.}], stop_reason: compaction}\n"
_BAD = "  - error: {kind: bad_response}\n"
_AWAY = "  - error: {kind: rate_limited, retry_after: 400}\n  - error: {kind: unavailable}\n"
_AWAY += "  - {text: I was, cut: true}\n" + "  - error: {kind: overloaded}\n" * 5
_SEARCH = "{type: server_tool_use, id: srvtoolu_N, name: web_search, input: {query: oom}}"
_FOUND = "{type: web_search_tool_result, tool_use_id: srvtoolu_N, content: []}"
_PAUSED = "".join(
    f"  - {{blocks: [{_SEARCH}, {_FOUND}], stop_reason: pause_turn}}\n".replace("_N", f"_{number}")
    for number in range(11)
)
_OPEN = f"  - {{blocks: [{_SEARCH}], tools: [{{name: logs, input: {{service: x}}}}]}}\n"
_FORM = "output: {type: object, properties: {cause: {type: string}}, required: [cause]}"
_WRONG = "  - text: the disk\n  - text: '{\"cause\": 3}'\n"
_FORMED = (
    "  - expect: {status: complete, outputs: {diagnose: {data: {cause: disk}}}, effects: [diagnose.logs]}"
)


_UNHEARD = ("Try again", "Other model")


def _asked(message: str, *buttons: str) -> str:
    """A card with these buttons, else with all, and *Stop*."""
    buttons = buttons or (*_UNHEARD, "Tell it")
    return f"  - expect: {{prompt: diagnose, kind: outcome, message: '{message}', choices: [{', '.join(buttons)}, Stop]}}\n"


_AWAY_CARD = _asked("Nothing is lost", *_UNHEARD)
_ADMINS_CARD = _asked("", *_UNHEARD).replace(" message: '',", "")
_BEN = "  - ben: {choose: Try again}\n    refused: SAYSO_ADMINS\n"
_REFUSED = _asked("declined to continue (cyber)")
_CUT_CARD = _asked("was cut")
_LONG_CARD = _asked("_Try again_ summarises the conversation")
_BAD_CARD = _asked("_Try again_ turns thinking off")
_EMPTY_CARD = _asked("nothing, twice")
_WRONG_CARD = _asked("form")
_AGAIN = "  - ana: Try again"
_PLAIN = "retry_with: {thinking: off}"

ROWS: dict[str, tuple[str, ...]] = {
    # 429, 5xx, 529, no connection, a stream that is cut
    "away, and tried by a person": (_AWAY + _SAYS, f"{_AWAY_CARD}{_AGAIN}"),
    "away, and another model": (_AWAY + _SAYS, f"{_AWAY_CARD}{_OTHER}"),
    "away, and back by itself": (_AWAY + _SAYS, f"{_AWAY_CARD}  - wait: 10m"),
    "away, and stopped": (_AWAY, f"{_AWAY_CARD}  - ana: Stop", _STOPPED),
    # spend limit, key, billing, a model that is gone
    "no more may be spent": (
        "  - error: {kind: spend_limit}\n" + _SAYS,
        f"{_ADMINS_CARD}{_BEN}  - cleo: {{choose: Try again}}",
    ),
    "a key that is refused": (
        "  - error: {kind: access_denied}\n" + _SAYS,
        f"{_ADMINS_CARD}{_BEN}  - cleo: {{choose: Try again}}",
    ),
    "a model that is gone": (
        "  - error: {kind: model_not_found}\n" + _SAYS,
        f"{_ADMINS_CARD}{_OTHER.replace('ana', 'cleo')}",
    ),
    # a refusal
    "a refusal, and words": (
        _REFUSES + "  - {expect: {user: only look}, text: Out of memory}",
        f'{_REFUSED}  - ana: {{choose: "Tell it: only look"}}',
    ),
    "a refusal, and once more": (_REFUSES + _SAYS, f"{_REFUSED}{_AGAIN}"),
    "a refusal, and another model": (_REFUSES + _SAYS, f"{_REFUSED}{_OTHER}"),
    "a refusal, by the fallback too": (
        _REFUSES * 2 + _SAYS,
        _asked("claude-opus-5 declined") + _OTHER,
        _DONE,
        "fallbacks: [claude-opus-5]",
    ),
    "a refusal, stopped": (_REFUSES, f"{_REFUSED}  - ana: Stop", _STOPPED),
    # max_tokens
    "cut, and said in a word": (_CUT + _SAYS, f"{_CUT_CARD}  - ana: In a word"),
    "cut, and gone on with": (_CUT.replace(": ory,", ": or,") + "  - text: y", f"{_CUT_CARD}{_AGAIN}"),
    "half a tool call": (_HALF + _SAYS, _CUT_CARD + _AGAIN),
    "half a tool call, and more room": (
        _HALF + _SAYS,
        _asked("_Try again_ allows 90,000 tokens") + _AGAIN,
        _DONE,
        "retry_with: {max_tokens: 90000}",
    ),
    # a conversation that is too long
    "too long, and less of it": (
        _LONG + _SUMMED + _LONG + _SUMMED + _SAYS,
        f"{_LONG_CARD}{_AGAIN}",
    ),
    "full in an answer, and less of it": (
        _FULL + _SIGNED + _FULL + _SUMMED + _SAYS,
        f"{_asked('longer than the model can keep')}{_AGAIN}",
    ),
    "full behind a search that is open": (
        _OPEN + _LONG + _SAYS,
        f"{_asked('')}{_OTHER}".replace(" message: '',", ""),
        _DONE.replace("[diagnose.logs]", "[diagnose.logs, diagnose.logs]"),
    ),
    # nothing, a pause
    "nothing, and once more": (_EMPTY + _SAYS, f"{_EMPTY_CARD}{_AGAIN}"),
    "nothing, and nudged": (_EMPTY + _SAYS, f"{_EMPTY_CARD}  - ana: Say how it ended"),
    "eleven pauses": (_PAUSED + _SAYS, _asked("paused 10 times") + _AGAIN),
    # an answer of another form
    "wrong, and put in words": (
        _WRONG + '  - {expect: {user: a cause}, text: \'{"cause": "disk"}\'}',
        f"{_WRONG_CARD}  - ana: Name a cause",
        _FORMED,
        _FORM,
    ),
    "wrong, and asked again": (
        _WRONG + '  - text: \'{"cause": "disk"}\'',
        f"{_WRONG_CARD}{_AGAIN}",
        _FORMED,
        _FORM,
    ),
    # another 400, a broken stream
    "refused, and again": (
        "  - error: {kind: request_invalid, error_code: too_odd}\n" + _SAYS,
        f"{_asked('too_odd')}{_AGAIN}",
    ),
    "broken, and without thinking": (_BAD * 5 + _SAYS, f"{_BAD_CARD}{_AGAIN}", _DONE, _PLAIN),
    "thinking of another beginning, once": (
        "  - error: {kind: prefix_mismatch}\n  - {text: Out of memory, dropped: 1}",
        "  - expect: {prompts: []}",
    ),
    "a summary that is refused": (
        _LONG + _REFUSES + _SUMMED + _SAYS,
        _asked("the summary of the conversation cannot be used") + _AGAIN,
    ),
    "an end of which nobody has heard": (
        "  - {text: Out of memory, stop_reason: sleepy}",
        "  - expect: {prompts: []}",
    ),
    "one pause": (
        f"  - {{blocks: [{_SEARCH}], stop_reason: pause_turn}}\n  - {{blocks: [{_FOUND}], text: Out of memory}}",
        "  - expect: {prompts: []}",
    ),
    "thinking of another beginning, twice": (
        "  - error: {kind: prefix_mismatch}\n" * 2 + _SAYS,
        f"{_BAD_CARD}{_AGAIN}",
        _DONE,
        _PLAIN,
    ),
}
"""What the model ends with behind one call of a tool, what people see and do, how it ends, what the agent has beside."""


async def row(folder: Path, name: str, **options: Any) -> Result:
    """What becomes of one row, killed from its card on until what follows it is stored."""
    script, steps, *rest = ROWS[name]
    done, more = (*rest, *(_DONE, "")[len(rest) :])
    written = f"claude:\n{_LOOK}\n{script}\nnodes: {{diagnose.logs: done}}\nsteps:\n{steps}\n{done}\n"
    flow = FLOW.replace("max_turns: 4", f"max_turns: 40\n      {more}".rstrip())
    if more == _FORM:
        flow = flow.replace("diagnose.text", "diagnose.data.cause")
    every = module._points
    with patch.object(module, "_points", lambda plain: every(plain if PROVE else at_cards(plain))):
        return await played(folder, written, flow=flow, head=_PEOPLE, kills=True, step=1, **options)


def at_cards(plain: Run) -> Run:
    """A run with every second of its commits from one that opens a card."""
    near = [
        number
        for number, events in enumerate(plain.commits)
        if any(isinstance(event, PromptRequested) for event in events)
    ]
    if not near:
        return plain
    kept = {at for number in near for at in range(number, number + 4, 2)}
    return replace(plain, commits=tuple(events for at, events in enumerate(plain.commits) if at in kept))


@pytest.mark.parametrize("name", ROWS)
async def test_it_goes_on_at_the_turn_where_the_model_did_not_answer(tmp_path: Path, name: str) -> None:
    """Its card, its buttons, its end; killed at every second event while the card is open (in `make prove`: at every event), the tool
    before it runs once, and the answer is posted once."""
    result = await row(tmp_path, name)
    assert result.passed, report(result)
    assert result.kills


INTERRUPTED = """
claude:
  - tools: [{name: shell, input: {command: systemctl restart checkout}}]
  - expect: {result: RESULT}
    text: It runs again.
nodes: {diagnose.shell: [{interrupted: timeout}, done]}
steps:
  - ana: approve
  - expect: {prompt: diagnose.shell, kind: interrupted, choices: [It was done, Run it again, Cancel the run], effects: [diagnose.shell]}
  - ana: {choose: "CHOICE"}
  - expect: {status: complete, posted: It runs again, effects: [EFFECTS]}
"""


@pytest.mark.parametrize(
    ("choice", "result", "effects"),
    [
        ("It was done: up since noon", "up since noon", "diagnose.shell"),
        ("It was done", "What came out of it is not known", "diagnose.shell"),
        ("Run it again", "'exit code: 0'", "diagnose.shell, diagnose.shell"),
    ],
    ids=["with its result", "nothing is known", "once more"],
)
async def test_a_tool_that_was_interrupted_is_what_a_person_says(
    tmp_path: Path, choice: str, result: str, effects: str
) -> None:
    """Killed at every event while people are asked about it: it runs again by their word only, and the model reads what they
    said came out, or that nothing is known."""
    written = INTERRUPTED.replace("CHOICE", choice).replace("RESULT", result).replace("EFFECTS", effects)
    every = module._points
    with patch.object(module, "_points", lambda plain: every(plain if PROVE else at_cards(plain))):
        outcome = await played(tmp_path, written, flow=FLOW, head=HEAD, kills=True, step=1)
    assert outcome.passed, report(outcome)


@pytest.mark.parametrize(
    ("name", "fields"),
    [("a refusal, stopped", {"stuck": None}), ("cut, and gone on with", {"cut": ""})],
    ids=["why it is stuck", "what was cut"],
)
async def test_what_a_kill_takes_while_a_card_is_open_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any]
) -> None:
    """Seeded faults: a claim that forgets a part of what a card is about passes without kills, and fails with them."""
    after_a_kill(monkeypatch, lambda flow, state: changed(state, **fields))
    result = await row(tmp_path, name)
    assert not result.plain.failures, report(result)
    assert result.killed
