"""The scripted provider: what a script may say, and how loudly it fails."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from engine.messages.errors import ScriptError
from engine.messages.messages import user
from engine.messages.turns import TurnEvent, Usage
from engine.models.provider import complete
from engine.models.scripted import ScriptedProvider, load_script, script_from
from tests.providers.providerkit import assistant, request, tool_result_block, tool_uses

SCRIPT = """
turns:
  - expect: {user: failing}
    text: Let me look.
    tools:
      - {name: logs, input: {host: db-1}}
  - expect: {result: disk full}
    thinking: So it is the disk.
    text: The disk of db-1 is full.
"""


def scripted(*turns: dict[str, Any]) -> ScriptedProvider:
    """A provider of these turns."""
    return ScriptedProvider(script_from(list(turns)))


async def test_a_script_from_a_file_is_a_conversation(tmp_path: Path) -> None:
    """A file of YAML answers turn by turn, and each turn sees what it expects."""
    path = tmp_path / "talk.yml"
    path.write_text(SCRIPT)
    provider = ScriptedProvider(load_script(path))
    first = await complete(provider, request())
    assert tool_uses(first)[0]["id"] == "toolu_script_1_1"
    result = tool_result_block("toolu_script_1_1", [{"type": "text", "text": "disk full: 100 %"}])
    with pytest.raises(ScriptError, match="1 of 2 turns of the script were not used"):
        provider.done()
    second = await complete(provider, request(user("Why?"), assistant(*first.content), user(result)))
    assert second.text == "The disk of db-1 is full."
    provider.done()


async def test_the_same_script_says_the_same_again() -> None:
    """Two runs of a script give the same events, ids, pieces and usage included."""

    async def run() -> list[TurnEvent]:
        heard: list[TurnEvent] = []
        provider = scripted({"thinking": "hm " * 9, "text": "word " * 9, "tools": [{"name": "logs"}]})
        await complete(provider, request(), on_event=heard.append)
        return heard

    assert await run() == await run()


async def test_a_new_process_goes_on_where_another_one_was() -> None:
    """A provider that begins at a position gives the turns from there, with their numbers."""
    turns = [{"text": "one"}, {"tools": [{"name": "logs"}]}]
    provider = ScriptedProvider(script_from(turns), position=1)
    assert tool_uses(await complete(provider, request()))[0]["id"] == "toolu_script_2_1"


async def test_a_turn_that_expected_something_else_fails_and_stays_the_next() -> None:
    """What was expected and what came is said, and the turn is not used up."""
    provider = scripted(
        {"expect": {"user": "disk"}, "text": "yes"}, {"expect": {"result": "x"}, "text": "yes"}
    )
    with pytest.raises(ScriptError, match=r"turn 1 expected 'disk' in the user's words, and got: 'Why is it"):
        await complete(provider, request())
    assert (await complete(provider, request(user("The disk?")))).text == "yes"
    with pytest.raises(ScriptError, match="turn 2 expected 'x' in a tool's result"):
        await complete(provider, request())


async def test_what_came_decides_between_answers() -> None:
    """Of a turn and those under its `or` the first that fits is said; where none fits the turn says what it expected."""
    turn = {"expect": {"user": "disk"}, "text": "Disk.", "or": [{"expect": {"user": "net"}, "text": "Net."}]}
    for words, said in (("the disk", "Disk."), ("the net", "Net.")):
        assert (await complete(scripted(turn), request(user(words)))).text == said
    with pytest.raises(ScriptError, match="turn 1 expected 'disk'"):
        await complete(scripted(turn), request(user("the printer")))
    whatever = {**turn, "or": [{"text": "I do not know."}]}
    assert (await complete(scripted(whatever), request(user("the printer")))).text == "I do not know."


async def test_a_paced_script_takes_its_time_and_stops_at_once() -> None:
    """Pieces come one after the other, and whoever stops in between does not wait for the next."""
    script = script_from({"pace": 5, "turns": [{"text": "word " * 9}]})
    abort = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, abort.set)
    async with asyncio.timeout(4):
        result = await complete(ScriptedProvider(script), request(), abort)
    assert result.interrupted
    assert result.text == ""


async def test_a_script_that_has_ended_says_what_came() -> None:
    """One turn too many is an error that shows the message and is not worth a retry."""
    provider = scripted({"text": "bye"})
    await complete(provider, request())
    with pytest.raises(
        ScriptError, match="ended after 1 turns, but another call came: 'Why is it failing"
    ) as caught:
        await complete(provider, request())
    assert not caught.value.retryable


async def test_a_tool_that_was_not_offered_is_an_error_of_the_script() -> None:
    """A script cannot call what the request does not offer."""
    with pytest.raises(ScriptError, match="turn 1 calls rm, but the tools offered are: logs, ask_human"):
        await complete(scripted({"tools": [{"name": "rm"}]}), request())


async def test_usage_and_stop_reason_can_be_told() -> None:
    """A script may say how many tokens a turn took and why it stopped."""
    usage = {
        "input_tokens": 5,
        "output_tokens": 6,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 8,
    }
    result = await complete(scripted({"text": "x", "stop_reason": "max_tokens", "usage": usage}), request())
    assert (result.stop_reason, result.usage) == ("max_tokens", Usage(5, 6, 7, 8))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("turns: [{txt: hello}]", "talk.yml: turns.0.txt: Extra inputs are not permitted"),
        ("turns: [{error: {kind: tired}}]", "talk.yml: turns.0.error.kind: Input should be"),
        ("turn: []", "talk.yml: turn: Extra inputs are not permitted"),
        ("{}", "talk.yml: Value error, a script has turns, or agents with turns"),
        ("agents: {triage: [{text: 1}]}", "talk.yml: agents.triage.0.text: Input should be"),
        ("turns: [", "talk.yml:2:1: not valid YAML"),
        (
            "turns: [{}]",
            "talk.yml: turns.0: Value error, a turn says something, calls a tool, or is an error",
        ),
        (
            "turns: [{text: x, error: {kind: overloaded}}]",
            "talk.yml: turns.0: Value error, a turn with an error",
        ),
        ("turns: [{text: x, or: [{text: y}]}]", "talk.yml: turns.0: Value error, `or` is used when"),
        (
            "turns: [{expect: {user: x}, text: x, or: [{text: y, cut: true}]}]",
            "talk.yml: turns.0: Value error, `or` can only have answers",
        ),
        ("a: 1\na: 2\n", "talk.yml:2:1"),
    ],
)
def test_a_wrong_script_says_where(tmp_path: Path, text: str, told: str) -> None:
    """A script that cannot be used names the file and the place."""
    path = tmp_path / "talk.yml"
    path.write_text(text)
    with pytest.raises(ScriptError) as caught:
        load_script(path)
    assert told in str(caught.value)


def test_the_script_in_the_documentation_can_be_used(tmp_path: Path) -> None:
    """Whoever copies the script from the page gets one that loads."""
    page = (Path(__file__).parents[2] / "docs/providers.md").read_text()
    found = re.search(r"(?ms)^```yaml\n(.*?)^```$", page)
    assert found is not None
    path = tmp_path / "copied.yml"
    path.write_text(found[1])
    assert len(load_script(path).turns) == 4


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file is an error of the script, not of the program."""
    with pytest.raises(ScriptError, match=r"the script none.yml cannot be read"):
        load_script(tmp_path / "none.yml")
