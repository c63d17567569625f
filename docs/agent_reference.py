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

`timeout` of an agent covers all of its work, including questions. `retry` is for its model calls. By default sayso waits
until a provider outage is over, and tries other failures five times, with waits that double from 2 s to at most 5 minutes.
A tool's own `on_crash` decides what to do if its call is interrupted.

### Tools of an agent

Each entry of `tools` is a name, or a mapping of one name with settings. The name is one of those below, or one of the
flow's `tools`. Settings are read when the flow loads; you can use expressions in `env`, `headers`, `query` and in
the settings of `ask_human`."""


def _tool(name: str, model: type[BaseModel], table: Callable[[type[BaseModel]], str]) -> str:
    text = " ".join((model.__doc__ or "").split())
    return "\n\n".join([f"#### {name}", text, *([table(model)] if model.model_fields else [])])


def _rest(table: Callable[[type[BaseModel]], str]) -> str:
    return f"""
### Tools of your own

Under `tools` of the flow, by name: a node, or another flow, that agents can call. A call runs with the rights of the flow;
the model's input is data, like any input.

{table(ToolDoc)}

Expressions under `with` can use everything that the agent's can, and `input`. A tool is a node of a type with effects
(`shell`, `http`, `python`, your own types), of `set`, or a `flow`.

### Approvals of tool calls

`approvals` has rules by tool name; `"*"` stands for all tools without their own entry, except `ask_human` and `plan`.
A list of verdicts is short for a rule with these verdicts. In a list of rules, the first that applies is used.

{table(RuleDoc)}

Deciders see exactly what would run, and only that runs. If a call is rejected, the model learns who rejected it and why.""".strip()
