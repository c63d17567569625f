"""What only the runner of a model call knows (files, schemas of servers and functions) is set aside for before it is sent."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from engine.decide.agents.budget import UNKNOWN_SCHEMA, Part, file_part, too_little, tool_part
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.commands import NodeCut
from engine.journal.state import State
from engine.language.codec import encode
from engine.messages.messages import image_block, pdf_block, text_document_block
from engine.messages.model_limits import AgentFacts
from engine.messages.prices import IMAGE_TOKENS
from engine.messages.turns import Tool
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.runner import Completed, Interrupted, NodeContext
from engine.nodes.runtime.table import with_runner
from engine.storage.open import MemoryStore
from tests.engine.agents.talks import Talk, talk
from tests.nodes.nodekit import Context
from tests.proof.talks import said
from tests.support.claude_mind import Direct, Mind
from tests.support.claude_server import Reply, call
from tests.support.engine import ANA, SESSION, EngineRig, flow_of, running, shell_runners

LOG, OTHER = Part("log", 700), Part("other", 50)


# --- weighing --------------------------------------------------------------------------------------------------


def config(room: int | None, *weighed: str) -> dict[str, Any]:
    """The config of a call."""
    return {"room": room, "weighed": list(weighed)}


def test_a_call_with_room_for_its_parts_is_made() -> None:
    """What was counted before and is still the same needs none; a whole context has room for everything."""
    assert too_little([LOG, OTHER], config(750), None) is None
    assert too_little([LOG, OTHER], config(50, "log"), None) is None
    assert too_little([LOG, Part("pdf", None)], config(None), None) is None


def test_a_call_without_room_says_how_much_it_needs() -> None:
    """What has changed since it was counted counts as a whole, and so does what is sent twice."""
    assert too_little([LOG, OTHER], config(0), None) == {"room": 750, "times": 1}
    assert too_little([Part("log again", 900), OTHER], config(0, "log", "other"), None) == {
        "room": 900,
        "times": 1,
    }
    assert too_little([LOG, LOG], config(0, "log"), None) == {"room": 700, "times": 1}


def test_what_has_no_bound_needs_a_whole_context() -> None:
    """A PDF has as many tokens as it has."""
    assert too_little([LOG, Part("pdf", None)], config(10_000), None) == {"room": None, "times": 1}


def test_what_grows_while_it_is_weighed_ends_with_a_whole_context() -> None:
    """The second time there is room for twice as much, the third time for all that a model can take."""
    second = too_little([LOG], config(600), {"room": 600, "times": 1})
    assert second == {"room": 1400, "times": 2}
    assert too_little([Part("log", 2000)], config(1400), second) == {"room": None, "times": 3}


def test_bounds_of_parts() -> None:
    """A picture has the bound of pictures, a text and a tool have their bytes, a PDF has none."""
    assert file_part(image_block("image/png", "A" * 100_000)).tokens == IMAGE_TOKENS
    assert (file_part(text_document_block("é" * 1000)).tokens or 0) >= 2000
    assert file_part(pdf_block("AAAA")).tokens is None
    assert (tool_part(Tool("q", "x" * 500, {"type": "object"})).tokens or 0) > 500


# --- what the core makes of it ---------------------------------------------------------------------------------


def left(case: Talk, room: int | None = 300_000) -> NodeCut:
    """The call that runs has left, since it needs this much."""
    return NodeCut(case.calling, 1, "left", "", {"room": room, "times": 1})


def weighed(with_: str = "", room: int | None = 300_000) -> Talk:
    """An agent whose first call has left and is due again."""
    case = talk(with_)
    return case.when(left(case, room))


def reserved(case: Talk) -> Decimal:
    """What is set aside for the call that runs."""
    return Decimal(case.node(case.calling).input["reserved"])


def test_a_call_that_left_begins_again_with_what_it_needs() -> None:
    """Its first reservation is given back as it was, nothing is unsure, and the room is paid for at the dearest price."""
    first = reserved(talk())
    case = talk()
    case.only(left(case))
    assert (case.state.spent.reserved, case.state.spent.unsure) == ("0", "0")
    assert case.state.spent.reserved_tokens == case.state.spent.unsure_tokens == 0
    case = weighed()
    assert case.node(case.calling).attempt == 2
    assert reserved(case) == first + 300_000 * Decimal("4") / 1_000_000
    assert case.request()["room"] == 300_000
    assert case.model("It is full.").state.status == "complete"


def test_a_whole_context_is_set_aside_for_what_has_no_bound() -> None:
    """The prompt of a call is never more than its model takes."""
    case = weighed(room=None)
    assert reserved(case) == Decimal(4) + 32_000 * Decimal(10) / 1_000_000
    assert case.request()["room"] is None


def test_people_are_asked_where_the_room_passes_a_cap() -> None:
    """Nothing is sent before they decide; then the call begins with that room."""
    case = weighed("max_cost: 0.50")
    assert case.prompt.kind == "budget"
    assert case.state.spent.turns == 0
    case.decide("raise")
    assert case.request()["room"] == 300_000


def test_the_room_stays_through_a_crash_and_a_retry() -> None:
    """What the call needs is in the journal, so it is not weighed anew by every process."""
    case = weighed().claimed()
    assert case.request()["room"] == 300_000
    case.when(case.broke()).later(60).when(case.timer_due())
    assert case.request()["room"] == 300_000


def test_what_was_counted_needs_no_room_in_the_next_call() -> None:
    """The next call is told what the last count includes; a stopped answer counts nothing, and says nothing of it."""
    case = talk("tools: [ask_human]")
    answer = case.reply("", ("ask_human", {"question": "Which?"}))
    case.when(answer.__class__(answer.path, answer.attempt, {**answer.output, "weighed": ["a1", "b2"]}))
    case.when(case.answer(text="the first"))
    asked = case.request()
    assert (asked["room"], asked["weighed"]) == (0, ["a1", "b2"])


def test_tools_that_say_themselves_what_they_take_have_some_room_at_first() -> None:
    """One usual schema each, for tools of servers and of functions."""
    tools = 'tools: [{mcp: {server: grafana, tools: [a, b]}}, {python: {call: "json:dumps", name: dump}}]'
    assert talk(tools).request()["room"] == 3 * UNKNOWN_SCHEMA


def test_pictures_have_room_and_other_files_are_weighed() -> None:
    """A file that says that it is a picture is not sent if it is none, so the bound of pictures holds for it."""
    files = "files: [notes.txt, {path: a.png, name: a.png, type: image/png}]"
    assert talk(files).request()["room"] == IMAGE_TOKENS


# --- the runner ------------------------------------------------------------------------------------------------


def big(words: int) -> Tool:
    """A tool of a server with a long description."""
    return Tool("grafana__query", "word " * words, {"type": "object"})


async def outcome(folder: Path, asked: dict[str, Any], tool: Tool | None = None, saved: Any = None) -> Any:
    """What a call with these settings gives, and the requests that were made."""
    mind = Mind([said("It is full.")])

    async def mcp(server: str, names: Any) -> list[Tool]:
        return [] if tool is None else [tool]

    node = Context(Path(mkdtemp(dir=folder)))
    (node.workdir / "log.txt").parent.mkdir(parents=True, exist_ok=True)
    (node.workdir / "log.txt").write_text("disk full\n" * 500)
    content = [{"type": "sayso_file", "path": "log.txt"}, {"type": "text", "text": "Why?"}]
    base = {
        "model": "claude-sonnet-5-5",
        "maxTokens": 500,
        "messages": [{"role": "user", "content": content}],
    }
    ctx: NodeContext = node.build(path="diagnose/turn[1]", saved=saved)
    found = await TurnRunner(lambda ctx: Direct(mind), mcp)({**base, **asked}, ctx)
    return found, len(mind.requests)


async def test_a_call_with_too_little_room_is_not_made(tmp_path: Path) -> None:
    """It leaves with what it needs; with that it is made, and says with which parts it was counted."""
    away, sent = await outcome(tmp_path, {"room": 4000})
    assert isinstance(away, Interrupted)
    assert (away.reason, sent) == ("left", 0)
    assert away.details["room"] > 5000
    made, sent = await outcome(tmp_path, {"room": away.details["room"]}, saved=away.details)
    assert isinstance(made, Completed)
    assert sent == 1
    again, sent = await outcome(tmp_path, {"room": 0, "weighed": made.output["weighed"]})
    assert isinstance(again, Completed)
    assert sent == 1


async def test_schemas_of_servers_are_weighed_too(tmp_path: Path) -> None:
    """A server that has learnt to say more since it was counted needs room for all of it."""
    asked = {"mcp": [{"server": "grafana", "tools": ["query"]}]}
    made, _ = await outcome(tmp_path, {**asked, "room": None}, big(10))
    known = made.output["weighed"]
    assert isinstance(
        (await outcome(tmp_path, {**asked, "room": 0, "weighed": known}, big(10)))[0], Completed
    )
    away, sent = await outcome(tmp_path, {**asked, "room": 0, "weighed": known}, big(9000))
    assert isinstance(away, Interrupted)
    assert sent == 0
    assert 45_000 < away.details["room"] < 50_000


# --- in a whole engine -----------------------------------------------------------------------------------------

GROWING = """
nodes:
  - id: make
    type: shell
    with: {script: "yes 'disk full' | head -n 900 > log.txt"}
  - id: diagnose
    type: agent
    with:
      prompt: Why?
      max_tokens: 500
      files: [log.txt]
      tools: [{mcp: {server: grafana, tools: [query]}}, note]
tools:
  note: {description: Keep a note, input: {text: {type: string}}, type: set, with: {kept: "{{ input.text }}"}}
"""


async def spent_rows(rig: EngineRig, state: State) -> list[tuple[str, int, int | None]]:
    """The calls of the day: path, attempt, cost."""
    rows = await rig.engine.writer.call(rig.engine.store.spend, state.created_at[:10])
    return [(row.path, row.attempt, row.cost) for row in rows]


async def test_files_and_schemas_are_set_aside_for_once_and_never_sent_anew(tmp_path: Path) -> None:
    """A file and a server's schema are larger by each call: the conversation goes on with what it was opened with. What was
    billed is within what was set aside, and the call that left cost nothing."""
    tool, log = [big(50)], tmp_path / "sessions" / SESSION / "log.txt"

    def say(place: int, body: dict[str, Any]) -> Reply:
        log.write_text("disk full " * 3000 * (place + 2))
        tool[0] = big(3000 * (place + 1))
        done = place == 2
        return Reply(said("Full.") if done else said("Hm.", call("note", {"text": "x"}, f"toolu_{place}")))

    async def mcp(server: str, names: Any) -> list[Tool]:
        return tool

    mind = Mind(say, dear=True)
    runners = with_runner(shell_runners(), "turn", TurnRunner(lambda ctx: Direct(mind), mcp))
    async with running(MemoryStore(), tmp_path, runners=runners, extensions=[SpendRows(Decimal(50))]) as rig:
        seen: list[tuple[str, Decimal]] = []

        def note(state: State, events: Any) -> None:
            for event in events:
                if event.type == "container:childStarted" and event.node_type == "turn":
                    seen.append((event.path, Decimal(event.input["reserved"])))

        rig.engine.subscribe(note)
        await rig.engine.start(flow_of(GROWING), {}, actor=ANA, session_id=SESSION)
        state = await rig.engine.parked(SESSION)
        assert state.status == "complete", state.error
        rows = await spent_rows(rig, state)
    assert mind.refused == []
    assert len(mind.requests) == 3
    assert len({encode([body["tools"], body["messages"][0]["content"][0]]) for body in mind.requests}) == 1
    assert [path for path, _ in seen] == [f"diagnose/turn[{number}]" for number in (1, 1, 2, 3)]
    costs = [cost for _, _, cost in rows]
    assert costs[0] == 0
    for (_, most), cost in zip(seen[1:], costs[1:], strict=True):
        assert cost is not None
        assert Decimal(cost) / 10**9 <= most
    assert state.nodes["diagnose"].output["turns"] == 3


def test_what_one_call_needed_is_not_set_aside_for_the_next() -> None:
    """Each call is weighed by itself."""
    case = weighed("tools: [read_file]", room=200_000)
    page = {"text": "full", "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}
    case.model("", ("read_file", {"path": "a.txt"})).tool("tool[0]", page)
    assert case.request()["room"] == 0


# --- what the API counts ---------------------------------------------------------------------------------------


def counting(counted: int | None, with_: str = "max_cost: 0.50") -> Talk:
    """An agent of whose first call only the bytes would pass its cap, once the API has counted it."""
    case = Talk(flow_of(LONG.format(with_))) if with_ else talk()
    case.facts = AgentFacts(counts=True)
    case.started()
    assert case.request()["count"] is True
    assert reserved(case) == 0
    saved = {"counted": counted, "room": 0, "times": 1, "marks": []}
    return case.when(NodeCut(case.calling, 1, "left", "", saved))


LONG = """
flow: long
nodes:
  - id: helper
    type: agent
    with:
      {}
      prompt: "WORDS"
""".replace("WORDS", "word " * 40_000)


def test_nobody_is_asked_at_a_cap_that_only_bytes_would_pass() -> None:
    """A call is counted before people are asked; what the API counts is set aside, and nothing was paid for it."""
    case = counting(40_000)
    assert reserved(case) == 40_000 * Decimal(4) / 1_000_000 + 32_000 * Decimal(10) / 1_000_000
    assert "count" not in case.request()
    assert case.state.spent.unsure == "0"
    assert case.model("Done.").state.status == "complete"


def test_people_are_asked_where_the_count_passes_the_cap_too() -> None:
    """And by bytes where nobody has counted."""
    assert counting(60_000).prompt.kind == "budget"
    assert counting(None).prompt.kind == "budget"


def test_tools_and_models_of_the_provider_are_reserved_for() -> None:
    """The conversation is read once more for each run of a tool, each search costs, and every model in line is paid."""
    plain = reserved(talk("max_tokens: 1000"))
    chain = talk("max_tokens: 1000\nfallbacks: [claude-opus-5-5]")
    # Sonnet: $4 a million in at most, $10 out; Opus: $8 and $20.
    assert reserved(chain) == plain * 3
    served = talk("max_tokens: 1000\nserver_tools: {web_search: {domains: ['*'], max_uses: 2}}")
    least = 3 * (2 * 25_000 * Decimal(4) / 1_000_000) + 2 * Decimal("0.01")
    assert reserved(served) == least + 3 * plain


def test_each_model_in_line_is_bound_by_what_it_can_keep_in_mind() -> None:
    """A long file fills the first model's 200,000 tokens, and more of the one that goes on, which keeps a million."""

    def tokens(more: str) -> int:
        case = talk(f"max_tokens: 1000\nmodel: claude-haiku-4-5\nsystem: {'x' * 240_000}{more}")
        reserved_for: int = case.node(case.calling).input["tokens"]
        return reserved_for

    first = tokens("")
    assert first == 201_000
    assert tokens("\nfallbacks: [claude-sonnet-5-5]") - first > 240_000
    assert tokens("\nfallbacks: [claude-sonnet-4-5]") == 2 * first


@pytest.mark.parametrize("priced", [True, False])
def test_tokens_of_the_provider_s_tools_and_models_are_reserved_for(priced: bool) -> None:
    """Each run of a tool reads the conversation once more, and each model in line too, whether it has a price or not."""

    def tokens(with_: str) -> int:
        case = Talk(flow_of(f"nodes:\n  - id: helper\n    type: agent\n    with: {{prompt: x, {with_}}}\n"))
        case.facts = AgentFacts(prices=None if priced else {})
        reserved_for: int = case.started().node(case.calling).input["tokens"]
        return reserved_for

    plain = tokens("max_tokens: 1000")
    assert tokens("max_tokens: 1000, fallbacks: [claude-opus-5-5]") == 2 * plain
    served = tokens("max_tokens: 1000, server_tools: {web_search: {domains: ['*'], max_uses: 2}}")
    assert served == 3 * (plain + 2 * 25_000)
