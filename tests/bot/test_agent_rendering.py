"""What a model writes, as people see it: its form is kept, and it reaches nobody and leads nowhere."""

from __future__ import annotations

import re
from typing import Any, Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from bot.faces.tools import brief_input
from bot.intents.agent_rows import marks
from bot.intents.session_rows import slack_intents
from bot.intents.slots import SHOW
from bot.rendering.agents import (
    MOST_PART,
    Entry,
    ToolLine,
    agent_message,
    is_allowed,
    model_markdown,
    split_text,
    text_of,
    tool_line,
)
from bot.rendering.text import weight
from bot.workspace.blocks import check_message
from engine.decide.commands import Command, NodeDone, Steer
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.records import PutOutbox
from engine.journal.state import State
from engine.language.codec import Json, decode
from tests.bot.rendering_cases import card, texts
from tests.engine.agents.talks import HEAD, Talk
from tests.support.engine import ANA, flow_of
from tests.support.hostile import BYSTANDER, GROUP, HOST, hostile_texts

HOSTS = frozenset({"grafana.internal", "*.wiki.example"})
PINGS = re.compile(rf"<(!|@{BYSTANDER}|@|https?:|mailto:|!subteam\^{GROUP})")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
PIECES = [*"ab `*_[]()<>!|\n#-.:/@&\\", "```", "https://x.example/", "https://grafana.internal/"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
THREAD = {"team": "T1", "channel": "C1", "threadTs": "1.0", "key": "T1:C1:1.0"}


def outside_code(text: str) -> str:
    """A markdown text without its code."""
    return CODE.sub("", text)


# --- the model's words -------------------------------------------------------------------------------------


def test_hostile_texts_stay_text() -> None:
    """None of a thousand texts calls somebody, links to a strange host, shows a picture, or breaks Slack's limits."""
    for hostile in hostile_texts(1_000):
        message = agent_message(
            [Entry(hostile.meant, (ToolLine("shell", hostile.meant),))], "agent:s:t:0", HOSTS
        )
        check_message(message.text, message.blocks)
        for text in [
            message.text,
            *(block["text"] for block in message.blocks if block["type"] == "markdown"),
        ]:
            assert not PINGS.search(text), text
        for block in message.blocks:
            if block["type"] == "markdown":
                shown = outside_code(block["text"])
                assert not re.search(rf"(//|www\.){HOST}", shown), block["text"]
                assert not re.search(r"!\[[^\]]*\]\(", shown), block["text"]
            assert block["type"] in ("markdown", "context", "section")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("see https://grafana.internal/d/1.", "see https://grafana.internal/d/1."),
        ("[a graph](https://grafana.internal/d/1)", "[a graph](https://grafana.internal/d/1)"),
        ("<https://a.wiki.example/x>", "https://a.wiki.example/x"),
        ("<https://grafana.internal/", "< https://grafana.internal/"),
        ("![a graph](https://grafana.internal/a.png)", "[a graph](https://grafana.internal/a.png)"),
        ("!![x](https://grafana.internal/a.png)", "! [x](https://grafana.internal/a.png)"),
        ("[https://bank.example](https://grafana.internal/x)", "https://grafana.internal/x"),
        ("[click](https://evil.example/x)", "[click] `(https://evil.example/x)`"),
        ("https://grafana.internal@evil.example/", "`https://grafana.internal@evil.example/`"),
        ("https://wiki.example/x", "`https://wiki.example/x`"),
        ("`https://grafana.internal/x`", "`https://grafana.internal/x`"),
    ],
)  # fmt: skip
def test_links_are_links_only_where_their_host_is_allowed(said: str, shown: str) -> None:
    """An allowed host's link stays one, never a picture and never under another address's name; others are code."""
    assert model_markdown(said, HOSTS) == shown


def test_without_hosts_nothing_is_a_link() -> None:
    """The setting is empty by default: every address is text."""
    assert not is_allowed("https://grafana.internal/", frozenset())
    assert model_markdown("https://grafana.internal/") == "`https://grafana.internal/`"


@given(TEXT)
@example("a ![x](https://grafana.internal/) [y]\n```\nhttps://x.example/")
def test_any_text_is_safe_and_keeps_the_limits(text: str) -> None:
    """Whatever a model writes: no mention, no picture, balanced fences, and Slack takes the message."""
    made = model_markdown(text, HOSTS)
    assert not PINGS.search(made)
    assert not re.search(r"!\[[^\]\n]*\]\(https", outside_code(made))
    message = agent_message([Entry(text)], "agent:s:t:0", HOSTS)
    check_message(message.text, message.blocks)


@given(
    st.lists(st.sampled_from([*"ab \n`", "```\n", "word "]), max_size=200).map(
        lambda parts: "".join(parts) * 40
    )
)
def test_parts_fit_and_lose_no_word(text: str) -> None:
    """Each part of a long text fits into a message, and all words are there in their order."""
    parts = split_text(text)
    assert all(weight(part) <= MOST_PART for part in parts)
    words = re.compile(r"[ab]|word|o|r|d")
    assert words.findall("".join(parts)) == words.findall(text)


def test_parts_do_not_change_while_the_text_grows() -> None:
    """Once a part is followed by another one it stays as it is."""
    text = "".join(f"Sentence number {number}, and a few more words.\n" for number in range(300))
    for end in range(4_000, len(text), 997):
        before, after = split_text(text[:end]), split_text(text[: end + 997])
        assert after[: len(before) - 1] == before[:-1]


# --- calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "brief"),
    [
        ({"command": "kubectl get pods"}, "kubectl get pods"),
        ({"method": "POST", "url": "https://x.example/a"}, "POST https://x.example/a"),
        ({"url": "https://x.example/a"}, "GET https://x.example/a"),
        ({"question": "Which?", "choices": ["a"]}, "Which?"),
        ({"service": "web", "lines": 3}, "service=web, lines=3"),
        ({"service": "web"}, "web"),
        ({}, ""),
    ],
)
def test_a_call_is_told_in_a_few_words(values: dict[str, Any], brief: str) -> None:
    """What matters of a call's input is on one line."""
    assert brief_input("x", values) == brief


def test_a_line_of_a_call_is_one_line_of_safe_text() -> None:
    """Backticks, markup and new lines in what a model calls a tool with do not leave its line or its code."""
    line = tool_line(ToolLine("shell", "echo `x`\n<!here> " + "y" * 500, went_well=False))
    assert "\n" not in line
    assert line.startswith("⚙️ shell: `echo 'x' &lt;!here&gt; yyy")
    assert line.endswith("…` ❌")
    assert tool_line(ToolLine("grafana__query", "")) == "⚙️ grafana · query …"


# --- what follows from events ------------------------------------------------------------------------------

SHELL = "      tools: [{shell: {commands: ['echo *'], on_crash: again}}]\n"


def rows_of(before: State, after: State, events: list[Event]) -> list[PutOutbox]:
    """The rows of agents that a step makes."""
    place = {"thread": THREAD}
    rows = slack_intents(replace(before, **place), replace(after, **place), events)
    return [row for row in rows if row.kind in (SHOW, "reaction") and not row.key.startswith("card:")]


class Told(Talk):
    """A conversation that keeps the rows of every step."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self.rows: list[PutOutbox] = []

    def when(self, *commands: Command) -> Self:
        """Carry commands out in one step."""
        before = self.state
        super().when(*commands)
        self.rows += rows_of(before, self.state, self.last)
        return self


def told() -> Told:
    """A conversation that has begun."""
    return Told(flow_of(HEAD.replace("{{ inputs.service }}", "web") + SHELL)).started()


def shown(row: PutOutbox) -> dict[str, Any]:
    """What a row says."""
    payload: dict[str, Any] = decode(row.payload)
    return payload


def test_a_turn_becomes_its_text_then_its_calls_which_each_result_changes() -> None:
    """The rows are in the order in which people read: words, calls; what became of a call is at it."""
    talk = told()
    talk.model("Let me look.", ("shell", {"command": "echo one"}))
    talk.tool("turn[1]/tool[0]", {"stdout": "one", "stderr": "", "exit_code": 0, "seconds": 0.1})
    session = talk.state.session_id
    assert [row.key for row in talk.rows] == [
        f"agent:{session}:helper/turn[1]:0",
        f"agent:{session}:helper/turn[1]:tools",
        f"agent:{session}:helper/turn[1]:tools",
    ]
    assert shown(talk.rows[0])["text"] == "Let me look."
    assert shown(talk.rows[1])["tools"] == [{"name": "shell", "brief": "echo one"}]
    assert shown(talk.rows[2])["tools"] == [{"name": "shell", "brief": "echo one", "isError": False}]
    assert all(row.lane == THREAD["key"] for row in talk.rows)


def test_results_of_a_turn_stand_together_in_whatever_steps_they_come() -> None:
    """Those of earlier steps stay at their calls; a call that is cut off will have none."""
    talk = told()
    talk.model("", *(("shell", {"command": f"echo {word}"}) for word in ("one", "two", "three")))
    result = {"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.1}
    talk.tool("turn[1]/tool[2]", result)
    talk.tool("turn[1]/tool[0]", result)
    talk.rows += rows_of(talk.state, replace(talk.state, phase="ended"), talk.last)
    assert len({row.key for row in talk.rows if "tools" in shown(row)}) == 1
    *_, last = (shown(row)["tools"] for row in talk.rows if "tools" in shown(row))
    assert [(tool.get("isError"), tool.get("over")) for tool in last] == [
        (False, None),
        (None, True),
        (False, None),
    ]


def test_an_answer_that_is_data_is_not_shown() -> None:
    """The last answer of an agent with `output` is for the nodes that follow, and no words for people."""
    output = "      output: {type: object, properties: {cause: {type: string}}, required: [cause]}\n"
    talk = Told(flow_of(HEAD.replace("{{ inputs.service }}", "web") + output)).started()
    talk.model('{"cause": "disk"}')
    assert [shown(row)["text"] for row in talk.rows] == [""]


def test_a_message_to_an_agent_is_marked_when_it_is_kept_and_when_it_is_read() -> None:
    """Eyes when the agent has it for its next call, a check mark when that call begins."""
    talk = told()
    talk.when(Steer("Look at web-2", ANA, "message:T1:C1:7.5"))
    assert [shown(row)["name"] for row in talk.rows] == ["eyes"]
    talk.model("First.")
    assert shown(talk.rows[-1])["name"] == "white_check_mark"
    assert shown(talk.rows[-1])["ts"] == "7.5"


def test_a_turn_that_an_abort_cuts_is_closed() -> None:
    """The row of a turn that gives no answer any more says so."""
    talk = told()
    talk.when(talk.abort())
    assert shown(talk.rows[-1])["ending"] == "cut"


def test_no_marks_without_agents() -> None:
    """A step without agents marks nothing."""
    assert marks(State(), State(), []) == ([], [])


# --- the card ----------------------------------------------------------------------------------------------


def test_the_card_says_how_far_an_agent_is() -> None:
    """Its line has the turn, what goes on and the cost; below it stand the calls that are in progress."""
    talk = told()
    talk.model("Let me look.", ("shell", {"command": "echo one"}))
    lines = "\n".join(texts(card(talk.state, talk.flow, talk.now).blocks))
    assert "▶️ helper · turn 1" in lines
    assert "▶️ › shell: echo one" in lines
    assert [line for line in lines.splitlines() if "helper" in line and "since" in line] == []


def test_a_call_that_waits_for_people_stands_once_on_the_card_with_what_it_would_do() -> None:
    """Below its agent, and not among the questions of the flow as well."""
    gated = (
        HEAD.replace("{{ inputs.service }}", "web") + SHELL + "      approvals: {shell: [approve, reject]}\n"
    )
    talk = Told(flow_of(gated)).started()
    talk.model("May I?", ("shell", {"command": "echo one"}), ("shell", {"command": "echo two"}))
    lines = "\n".join(texts(card(talk.state, talk.flow, talk.now).blocks)).splitlines()
    waiting = [line for line in lines if line.startswith("› 🟡")]
    assert [line.strip().partition(" · ")[0] for line in waiting] == [
        "› 🟡 shell: echo one",
        "› 🟡 shell: echo two",
    ]


def test_a_time_limit_hides_nothing_of_how_far_an_agent_is() -> None:
    """An agent with a `timeout` has its turn on its line, and until when it may work."""
    limited = HEAD.replace("type: agent", "type: agent\n    timeout: 1h").replace(
        "{{ inputs.service }}", "web"
    )
    talk = Told(flow_of(limited + SHELL)).started()
    lines = "\n".join(texts(card(talk.state, talk.flow, talk.now).blocks))
    assert "▶️ helper · turn 1" in lines
    assert "until 2026-" in lines


def test_sources_stand_behind_what_they_are_for() -> None:
    """Text of a search comes in pieces with sources: it is one text with links; notes stand apart."""
    source = {"type": "web_search_result_location", "url": "https://a.example/x", "title": "A [page]"}
    content = [
        {"type": "thinking", "thinking": "I search.", "signature": "s"},
        {"type": "text", "text": "It is known that "},
        {"type": "text", "text": "disks fill", "citations": [source, source]},
        {"type": "text", "text": ", so clean up."},
        {"type": "text", "text": "Next."},
    ]
    told = "It is known that disks fill ([A page](https://a.example/x)), so clean up.\n\nNext."
    assert text_of(content) == f"I search.\n\n{told}"


def test_agents_side_by_side_stand_on_the_card_with_the_calls_that_wait() -> None:
    """Each has a line, and below it what it asks for; one whose call is to be approved was not there at all."""
    agent = """
          - id: {0}
            type: agent
            with:
              prompt: Go
              tools: [{{shell: {{commands: ["*"]}}}}]
              approvals: {{shell: [approve, reject]}}"""
    branches = "".join(f"\n      {name}:{agent.format(name * 3)}" for name in "xy")
    flow = f"flow: both\nnodes:\n  - id: each\n    type: parallel\n    branches:{branches}\n"
    talk = Told(flow_of(flow)).started()
    for name in "xy":
        use = {
            "type": "tool_use",
            "id": f"toolu_{name}",
            "name": "shell",
            "input": {"command": f"echo {name}"},
        }
        answer: dict[str, Json] = {
            "content": [use],
            "stopReason": "tool_use",
            "usage": {},
            "model": "claude-sonnet-5-5",
        }
        talk.when(
            NodeDone(
                f"each[{name}]/{name * 3}/turn[1]", 1, {**answer, "interrupted": False, "requestId": None}
            )
        )
    lines = "\n".join(texts(card(talk.state, talk.flow, talk.now).blocks)).splitlines()
    assert [line.strip().partition(" · ")[0] for line in lines][-5:-1] == [
        "▶️ › x › xxx",
        "› › 🟡 shell: echo x",
        "▶️ › y › yyy",
        "› › 🟡 shell: echo y",
    ]
