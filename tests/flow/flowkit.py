"""What the tests of flows share: flows that are sound, and the text of what is wrong with those that are not."""

from __future__ import annotations

import pytest

from engine.errors import FlowError
from engine.flow import Flow, load_flow

ROLLBACK = """\
flow: rollback
description: Roll a service back once somebody agrees
inputs:
  service: {type: string, description: Which service}
  regions: {type: array, items: {type: string}, default: [eu, us]}
  count: {type: integer, default: 1}
triggers:
  - {mention: "rollback {service}"}
limits: {deadline: 7d}
nodes:
  - id: gate
    type: approval
    name: May we?
    with:
      message: "Roll back {{ inputs.service }} in {{ inputs.regions }}?"
      approvers: ["@sre", U012ABCDEF, ben@example.com, channel, requester, "local:ana"]
      exclude_requester: true
      timeout: 30m
      on_timeout: reject
  - id: apply
    type: shell
    if: "{{ nodes.gate.decision == 'approve' }}"
    with:
      run: [./rollback.sh, "{{ inputs.service }}", "{{ inputs.count }}"]
      env: {TOKEN: "Bearer {{ secrets.TOKEN }}", KEY: "{{ secrets.deploy_key }}", COUNT: 3}
    timeout: 5m
    on_error: continue
  - id: tell
    type: message
    if: "{{ status.apply == 'completed' }}"
    with: {text: "Rolled back:\\n{{ nodes.apply.stdout }}"}
"""

EVERY_TYPE = """\
flow: every-type
inputs:
  sure: {type: boolean, default: true}
  seconds: {type: string, required: false}
nodes:
  - {id: free, type: ask, with: {message: "How is it?", who: [requester], timeout: 1h30m}}
  - id: choice
    type: ask
    with:
      message: Which one?
      choices: [eu, {value: us, label: United States, style: danger}]
      on_timeout: default
      default: eu
  - {id: decide, type: approval, with: {message: "Sure?", approvers: "{{ [session.requester.id] }}"}}
  - {id: run, type: shell, retry: safe, with: {script: "echo ${#HOME} {%", ok_codes: [0, 3], max_output: 64KiB}}
  - {id: read, type: http, with: {url: "https://example.com/{{ nodes.choice.value }}", query: {a: [1, 2], b: null}}}
  - id: write
    type: http
    with:
      method: POST
      url: "{{ nodes.read.json.next }}"
      headers: {Authorization: "{{ secrets.TOKEN }}"}
      json: {free: "{{ nodes.free }}", errors: "{{ errors.run }}", said: "{{ messages | length }}"}
    timeout: 10s
  - {id: keep, type: set, with: {total: 3, name: "{{ nodes.free.text | trim }}", deep: {list: ["{{ inputs.sure }}"]}}}
  - {id: rest, type: wait, with: {for: "{{ inputs.seconds | default('5s', true) }}"}}
  - {id: until, type: wait, with: {until: "2026-12-01T08:00:00+01:00"}}
  - {id: place, type: noop, if: true}
  - {id: stop, type: fail, if: "{{ nodes.keep.total > 3 }}", with: {message: "{{ nodes.keep.name }} is too much"}}
"""

ONE_NODE = """\
flow: one
nodes:
  - id: only
    type: message
    with:
      text: hello
"""

SOUND = {"rollback": ROLLBACK, "every-type": EVERY_TYPE, "one": ONE_NODE}


def flow_with(node: str, before: str = "") -> Flow:
    """A flow whose last node is this one (YAML, not indented), after others."""
    lines = [line for part in (before, node) if part for line in part.strip().splitlines()]
    return load_flow(
        "flow: test\ninputs: {a: {}, n: {type: integer}}\nnodes:\n" + "\n".join(lines), "test.yml"
    )


def failure(text: str) -> FlowError | None:
    """The error of a text that does not load; any other exception goes through."""
    try:
        load_flow(text, "fuzz.yml")
    except FlowError as error:
        return error
    return None


def problems(text: str) -> list[str]:
    """All that is wrong with a flow's text, each as `line:column: message`."""
    with pytest.raises(FlowError) as caught:
        load_flow(text, "f.yml")
    return [f"{each.line}:{each.column}: {each.message}" for each in caught.value.problems]
