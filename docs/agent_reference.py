"""What the flow reference says of the tools of agents and of approvals of their calls, from the models."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from engine.flow.agent_document import TOOLS, RuleDoc, ToolDoc

AGENT_EXAMPLE = """\
flow: investigate
description: Find out why a service fails, and restart it if somebody agrees
inputs:
  service: {type: string, description: Which service}
tools:
  logs:
    description: The last lines of the log of a service
    input:
      service: {type: string, description: Which service}
      lines: {type: integer, default: 100}
    type: shell
    with: {run: [./logs.sh, "{{ input.service }}", "{{ input.lines }}"]}
    timeout: 30s
    on_crash: again
nodes:
  - id: diagnose
    type: agent
    timeout: 2h
    with:
      prompt: "Why is {{ inputs.service }} failing? Ask when unsure."
      max_cost: 2.50
      output:
        type: object
        properties: {cause: {type: string}, fixed: {type: boolean}}
        required: [cause, fixed]
      tools:
        - logs
        - ask_human: {timeout: 1h}
        - shell: {commands: ["systemctl status *", "systemctl restart *"]}
        - http: {hosts: [grafana.internal], headers: {Authorization: "Bearer {{ secrets.GRAFANA }}"}}
      approvals:
        shell:
          when: "{{ 'restart' in input.command }}"
          verdicts: [approve, edit, reject]
          approvers: ["@sre"]
  - id: tell
    type: message
    with: {text: "{{ nodes.diagnose.data.cause }}\\n{{ nodes.diagnose.text }}"}
"""


def agents_markdown(table: Callable[[type[BaseModel]], str]) -> str:
    """The chapter as Markdown; `table` describes the fields of a model."""
    return "\n\n".join(
        [_HEAD.strip(), *(_tool(name, model, table) for name, model in TOOLS.items()), _rest(table)]
    )


_HEAD = f"""
## Agents

```yaml
{AGENT_EXAMPLE.strip()}
```

`timeout` of an agent is the time for all of its work, questions included. `retry` is for its model calls: left out,
an outage of the provider is waited out, anything else tried five times, the waits doubling from 2 s to at most 5 minutes. What a tool call does when it is
interrupted is the word of its own `on_crash`.

### Tools of an agent

Each entry of `tools` is a name, or a mapping of one name with settings. The name is one of those below, or one of the
flow's `tools`. Settings are read when the flow is loaded; expressions may stand in `env`, `headers`, `query` and in
the settings of `ask_human`."""


def _tool(name: str, model: type[BaseModel], table: Callable[[type[BaseModel]], str]) -> str:
    text = " ".join((model.__doc__ or "").split())
    return "\n\n".join([f"#### {name}", text, *([table(model)] if model.model_fields else [])])


def _rest(table: Callable[[type[BaseModel]], str]) -> str:
    return f"""
### Tools of your own

Under `tools` of the flow, by name: a node, or another flow, that agents call. A call runs with the rights of the flow;
what the model gives is data, as any input is.

{table(ToolDoc)}

Expressions under `with` may name what the agent may name, and `input`. A tool is a node of a type that does something
(`shell`, `http`, `python`, types of your own), of `set`, or a `flow`.

### Approvals of tool calls

`approvals` has the rules by name of the tool; `"*"` stands for all tools that have no entry of their own, except
`ask_human` and `plan`. A list of verdicts is short for a rule that has these; a list of rules is gone through until one applies.

{table(RuleDoc)}

Whoever decides sees exactly what would run, and only that runs. A call that is rejected is a result that tells the model
who rejected it and why.""".strip()
