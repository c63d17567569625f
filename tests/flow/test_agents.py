"""What a flow file says of agents: tools, approvals, answers. What is wrong with them is in the corpus of bad files."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bot.doctor.slack import named_in
from docs.agent_reference import AGENT_EXAMPLE
from engine.flow import Flow, Node, Retry
from engine.flow.builtin_tools import BUILTIN
from engine.flow.docs.diagram import mermaid
from engine.flow.load import flow_from_body, load_flow
from engine.flow.node import AgentPlan, Rule, ToolPlan
from engine.language.errors import FlowError
from engine.nodes.types.registry import node_types
from tests.flow.flowkit import AGENTS, flow_with, problems
from tests.support.engine import flow_of

TOOLS = [
    "ask_human", "shell", "anything", "http", "read_file", "write_file", "free", "lookup", "grafana__query",
    "grafana__list_alerts", "logs", "again",
]  # fmt: skip


@pytest.fixture(scope="module")
def flow() -> Flow:
    """A flow whose agents have everything that agents can have."""
    return load_flow(AGENTS, "agents.yml")


@pytest.fixture(scope="module")
def fix(flow: Flow) -> Node:
    """Its agent with all the tools."""
    return flow.by_id["fix"]


def plan_of(node: Node) -> AgentPlan:
    """The plan of an agent."""
    assert node.agent is not None
    return node.agent


def tool_of(node: Node, name: str) -> ToolPlan:
    """A tool of an agent."""
    tool = plan_of(node).tool(name)
    assert tool is not None
    return tool


def agent_with(tools: str) -> Node:
    """An agent with these tools (YAML)."""
    return flow_with(f"- {{id: x, type: agent, with: {{prompt: Why?, tools: {tools}}}}}").by_id["x"]


def test_an_agent_holds_its_model_calls_and_its_tools(flow: Flow, fix: Node) -> None:
    """Two lists stand among the flow's: one node for all model calls, and one for each tool, in the order of the file."""
    assert fix.lists == {"turn": "fix:turn", "tools": "fix:tools"}
    assert [node.id for node in flow.lists["fix:turn"].nodes] == ["fix.turn"]
    nodes = flow.lists["fix:tools"].nodes
    assert [node.id for node in nodes] == [f"fix.{name}" for name in TOOLS]
    assert [(node.index, node.list_id) for node in nodes] == [(n, "fix:tools") for n in range(len(TOOLS))]
    assert tuple(tool.node for tool in plan_of(fix).tools) == nodes
    assert flow.lists["triage:tools"].nodes == ()
    assert flow.by_id["triage"].lists.keys() == {"turn", "tools"}


def test_retries_of_an_agent_are_those_of_its_model_calls(flow: Flow, fix: Node) -> None:
    """The agent itself is tried once; without a `retry` its model calls are tried five times with growing waits, and
    outages of the provider are waited out until the deadline."""
    (turn,) = flow.lists["fix:turn"].nodes
    assert (fix.retry, turn.retry) == (None, Retry(attempts=2, delay=1.0))
    (other,) = flow.lists["triage:turn"].nodes
    growing = Retry(attempts=5, backoff="exponential", delay=2.0, max_delay=300.0, jitter=0.2)
    assert other.retry == replace(growing, until_deadline=True)
    assert (turn.type, turn.timeout, turn.crash_policy({})) == ("turn", 900.0, "again")
    assert (fix.timeout, other.name) == (7200.0, "First look")


def test_each_tool_is_a_node_of_the_type_that_does_the_work(fix: Node) -> None:
    """What the author set is in the node's configuration or in the settings; what the model gives comes later."""
    made = {tool.name: (tool.kind, tool.node.type) for tool in plan_of(fix).tools}
    assert made == {
        "ask_human": ("ask_human", "ask"),
        "shell": ("shell", "shell"),
        "anything": ("shell", "shell"),
        "http": ("http", "http"),
        "read_file": ("read_file", "read_file"),
        "write_file": ("write_file", "write_file"),
        "free": ("python", "python"),
        "lookup": ("python", "python"),
        "grafana__query": ("mcp", "mcp"),
        "grafana__list_alerts": ("mcp", "mcp"),
        "logs": ("node", "shell"),
        "again": ("flow", "flow"),
    }
    shell, anything = tool_of(fix, "shell"), tool_of(fix, "anything")
    assert shell.settings == {"commands": ["kubectl get *", "tail"]}
    assert (shell.node.timeout, shell.node.on_crash) == (60.0, "ask")
    assert (anything.node.on_crash, anything.node.config["max_output"]) == ("again", "8KiB")
    assert tool_of(fix, "http").settings["methods"] == ["GET", "POST"]
    assert tool_of(fix, "grafana__list_alerts").node.config == {"server": "grafana", "tool": "list_alerts"}
    assert tool_of(fix, "free").node.config == {"call": "checks.disk:free"}


def test_bare_names_are_tools_with_defaults() -> None:
    """`- ask_human` asks whoever an `ask` would ask; http sends GET only; programs have ten minutes."""
    node = agent_with("[ask_human, read_file, {shell: {commands: [ls]}}, {http: {hosts: [a.example.com]}}]")
    assert tool_of(node, "ask_human").node.config == {}
    assert tool_of(node, "http").settings == {"hosts": ["a.example.com"], "methods": ["GET"]}
    assert (tool_of(node, "shell").node.timeout, tool_of(node, "http").node.timeout) == (600.0, 30.0)
    assert tool_of(node, "http").node.crash_policy({"method": "GET"}) == "again"
    assert tool_of(node, "http").node.crash_policy({"method": "POST"}) == "ask"


def test_secrets_of_tools_are_references(flow: Flow, fix: Node) -> None:
    """What the flow needs is known when it is loaded; evaluated they are names, and the model is told of none."""
    assert flow.secrets == {"TOKEN", "KEY", "LOGS"}
    shell = tool_of(fix, "shell").node
    assert shell.compiled.evaluate({}) == {
        "env": {"TOKEN": {"$secret_text": ["Bearer ", {"$secret": "TOKEN"}]}}
    }
    assert tool_of(fix, "http").node.compiled.evaluate({}) == {"headers": {"A": {"$secret": "KEY"}}}
    assert "TOKEN" not in tool_of(fix, "shell").description


def test_what_a_tool_takes_is_known_where_the_file_says_it(fix: Node) -> None:
    """Built-in tools have schemas of their own; `input` becomes one; servers and type hints are asked later."""
    for name in ("ask_human", "shell", "http", "read_file", "write_file"):
        assert tool_of(fix, name).input_schema == BUILTIN[tool_of(fix, name).kind].input_schema
    assert tool_of(fix, "logs").input_schema == {
        "type": "object",
        "properties": {
            "service": {"type": "string", "description": "Which service"},
            "lines": {"type": "integer", "default": 100},
            "level": {"type": "string", "enum": ["info", "error"]},
            "marks": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["service"],
        "additionalProperties": False,
    }
    assert tool_of(fix, "free").input_schema == {
        "type": "object",
        "properties": {"where": {"type": "string"}},
        "required": ["where"],
        "additionalProperties": False,
    }
    assert tool_of(fix, "lookup").input_schema is tool_of(fix, "grafana__query").input_schema is None


def test_the_model_is_told_what_it_may_do(fix: Node) -> None:
    """The description of a built-in tool has its limits, and what the file adds."""
    assert "`kubectl get *`" in tool_of(fix, "shell").description
    assert "`*.example.com:8080`" in tool_of(fix, "http").description
    assert tool_of(fix, "anything").description.endswith("For the rest.")
    assert tool_of(fix, "logs").description == "Last lines of a service's log"


def test_a_flow_as_a_tool_takes_its_inputs(flow: Flow, fix: Node) -> None:
    """The flow is called: it is pinned with the session, and its description and inputs are the tool's."""
    again = tool_of(fix, "again")
    assert flow.calls == {"agents"}
    assert flow.flows.keys() == {"agents"}
    assert (again.node.calls, again.description) == (
        "agents",
        "Find out what is wrong, ask, and put it right",
    )
    assert again.input_schema == {
        "type": "object",
        "properties": {"service": {"type": "string", "description": "Which service"}},
        "required": ["service"],
        "additionalProperties": False,
    }


def test_agents_of_a_called_flow_stand_under_its_prefix(flow: Flow) -> None:
    """Lists, tools and their nodes are those of the flow where it is called."""
    inner = flow.lists["@agents/"].by_id["fix"]
    assert inner.lists == {"turn": "@agents/fix:turn", "tools": "@agents/fix:tools"}
    assert tuple(tool.node for tool in plan_of(inner).tools) == flow.lists["@agents/fix:tools"].nodes
    assert tool_of(inner, "again").input_schema == tool_of(flow.by_id["fix"], "again").input_schema
    assert flow_from_body(flow.body()).lists == flow.lists


def test_a_tool_that_nobody_has_calls_nobody() -> None:
    """A flow among the tools that no agent uses is not looked for."""
    flow = load_flow(
        "flow: a\ntools: {t: {type: flow, with: {flow: gone}}}\nnodes: [{id: x, type: agent, with: {prompt: a}}]",
        "a.yml",
    )
    assert flow.calls == frozenset()


def test_approvals_become_rules_in_their_order(fix: Node) -> None:
    """A list of verdicts is a rule, a list of rules several; `*` is every tool without an entry, and no question."""
    rules = plan_of(fix).rules
    assert rules[0] == Rule("shell", ("approve", "edit", "reject"))
    http = rules[1]
    assert http.when is not None
    assert (http.verdicts, http.approvers, http.required) == (("reject", "approve"), ("@sre",), 2)
    assert (http.exclude_requester, http.clocks["timeout"], http.message) == (
        True,
        1800.0,
        "It changes something.",
    )
    assert [(rule.tool, rule.verdicts) for rule in rules[2:4]] == [
        ("logs", ("approve", "reject")),
        ("logs", ("approve", "reject", "edit")),
    ]
    others = [name for name in TOOLS if name not in ("ask_human", "shell", "http", "logs")]
    assert [rule.tool for rule in rules[4:]] == others


@pytest.mark.parametrize(
    ("given", "holds"), [({"method": "POST"}, True), ({"method": "GET"}, False), ({"method": "DELETE"}, True)]
)
def test_a_rule_says_of_which_calls_people_decide(fix: Node, given: dict[str, str], holds: bool) -> None:
    """`when` sees what the model gives, beside the names of the agent's place."""
    (when,) = [rule.when for rule in plan_of(fix).rules if rule.tool == "http"]
    assert when is not None
    assert when.evaluate({"input": given, "tool": "http", "inputs": {"service": "db"}}) is holds


def test_an_agent_says_what_it_answers_with_and_what_it_knows(flow: Flow, fix: Node) -> None:
    """The schema of its answer, the earlier agents that it knows of, and whether a later one will know of it."""
    plan = plan_of(fix)
    assert plan.output["required"] == ["cause"]
    assert (plan.context, plan.keeps) == (("triage",), True)
    kept = [name for name in ("triage", "fix", "sum_up") if plan_of(flow.by_id[name]).keeps]
    assert kept == ["triage", "fix"]


def test_only_what_is_evaluated_is_recorded_of_an_agent(fix: Node) -> None:
    """The settled configuration has the prompt and the limits; tools and approvals are in the flow that is pinned."""
    settled = node_types()["agent"].normalize({**fix.config, "files": [], "model": "m", "max_cost": 2})
    assert settled.keys() == {
        "prompt", "system", "model", "max_tokens", "thinking", "max_turns", "max_cost", "max_tokens_total", "files",
    }  # fmt: skip
    assert (settled["max_cost"], settled["max_turns"]) == (2.0, 30)


def test_an_agent_is_drawn_as_one_node(flow: Flow) -> None:
    """Its model calls and tools are its own affair."""
    drawn = mermaid(flow)
    assert '["fix<br>agent<br>with ask_human, shell, anything, http, read…"]' in drawn
    assert "fix.turn" not in drawn
    assert drawn.count("subgraph") == 1  # that of `finally`


def test_the_types_of_calls_are_known_and_listed_nowhere() -> None:
    """The engine finds them by name; a schema, a hint or the reference has none of them."""
    for name in ("turn", "mcp", "read_file", "write_file"):
        assert node_types()[name].internal
        assert name not in list(node_types())
    assert node_types()["mcp"].on_crash({}) == "ask"
    assert node_types()["write_file"].on_crash({}) == node_types()["turn"].on_crash({}) == "again"


def test_an_agent_that_asks_nobody_may_stand_in_finally(flow: Flow) -> None:
    """A summary at the end is an agent's work, too."""
    assert flow.lists["finally"].by_id["sum_up"].agent is not None


def test_a_tool_may_name_what_its_agents_place_knows() -> None:
    """Inside a `foreach` the item is known to the tool of an agent that is there, and not to one outside."""
    body = "[{id: why, type: agent, with: {prompt: Why?, tools: [logs]}}]"
    tools = "tools: {logs: {description: Its log, type: set, with: {x: '{{ region }} {{ index }}'}}}"
    text = f"flow: a\n{tools}\nnodes:\n  - {{id: each, type: foreach, with: {{items: [1], as: region}}, body: {body}}}\n"
    assert load_flow(text, "a.yml").lists["why:tools"].nodes
    outside = f"{text}  - {{id: out, type: agent, with: {{prompt: Why?, tools: [logs]}}}}\n"
    assert problems(outside) == [
        "2:63: unknown name `region`",
        "2:76: unknown name `index`",
    ]


def test_the_example_of_the_reference_loads() -> None:
    """What people copy first works."""
    agent = load_flow(AGENT_EXAMPLE, "example.yml").by_id["diagnose"]
    assert [tool.name for tool in plan_of(agent).tools] == ["logs", "ask_human", "shell", "http"]


def test_whoever_approves_calls_is_looked_up_like_whoever_approves_anything(flow: Flow) -> None:
    """`sayso doctor` asks Slack for the people of an agent's approvals and questions, too."""
    channels, people = named_in([flow], {})
    assert (channels, people) == ({}, {"@sre": {"flow agents"}})


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("  - {id: after, type: message, with: {text: x}}\n", "the nodes after this agent would wait"),
        ("lock: web\n", "`lock` would be held"),
    ],
)
def test_nothing_waits_for_an_agent_that_listens(rest: str, told: str) -> None:
    """`follow_up` keeps the session open."""
    text = "flow: x\nnodes:\n  - {id: look, type: agent, with: {prompt: x, follow_up: 7d}}\n"
    with pytest.raises(FlowError, match=told):
        flow_of(text + rest)


def test_a_place_is_a_context() -> None:
    """One place, or in a list with earlier agents; an agent of that name comes first."""
    head = "nodes:\n  - {id: look, type: agent, with: {prompt: x}}\n"
    for written, plan in (("thread", ("thread",)), ("[look, 'channel:20']", ("look", "channel:20"))):
        flow = flow_of(f"{head}  - {{id: fix, type: agent, with: {{prompt: x, context: {written}}}}}\n")
        assert plan_of(flow.lists[""].nodes[1]).context == plan
    with pytest.raises(FlowError, match="expected `thread`"):
        flow_of("nodes:\n  - {id: fix, type: agent, with: {prompt: x, context: everything}}\n")
