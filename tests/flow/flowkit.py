"""What the tests of flows share: flows that are sound, and the text of what is wrong with those that are not."""

from __future__ import annotations

import pytest

from engine.flow import Flow
from engine.flow.load import load_flow
from engine.language.errors import FlowError

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
  - {id: early, type: end, if: "{{ nodes.keep.total > 9 }}", with: {output: {total: "{{ nodes.keep.total }}"}}}
  - {id: stop, type: fail, if: "{{ nodes.keep.total > 3 }}", with: {message: "{{ nodes.keep.name }} is too much"}}
"""

AGENTS = """\
flow: agents
description: Find out what is wrong, ask, and put it right
inputs:
  service: {type: string, description: Which service}
tools:
  logs:
    description: Last lines of a service's log
    input:
      service: {type: string, description: Which service}
      lines: {type: integer, default: 100}
      level: {type: string, required: false, choices: [info, error]}
      marks: {type: array, items: {type: string}, default: []}
    type: shell
    with: {run: [./logs.sh, "{{ input.service }}", "{{ input.lines }}", "{{ nodes.first.x }}"], env: {A: "{{ secrets.LOGS }}"}}
    timeout: 30s
    on_crash: again
  again: {type: flow, with: {flow: agents}}
  never: {description: Nobody uses it, type: set, with: {x: "{{ nodes.fix.text }}"}}
nodes:
  - {id: first, type: set, with: {x: 1}}
  - {id: files, type: ask, with: {message: Show us, accept: files}}
  - id: triage
    type: agent
    name: First look
    with: {prompt: "What is {{ inputs.service }}?"}
  - id: fix
    type: agent
    timeout: 2h
    retry: {attempts: 2, delay: 1s}
    with:
      prompt: "Why is {{ inputs.service }} failing? {{ nodes.triage.text }}"
      system: Be brief.
      model: "{{ inputs.service }}"
      max_tokens: 4096
      thinking: "off"
      max_turns: 30
      max_cost: 2.50
      max_tokens_total: 200000
      context: [triage]
      files: "{{ nodes.files.files }}"
      output:
        type: object
        properties: {cause: {type: string}, sure: {type: boolean}, parts: {type: array, items: {$ref: "#/$defs/part"}}}
        required: [cause]
        additionalProperties: false
        $defs: {part: {type: [string, "null"], maxLength: 20}}
      tools:
        - ask_human: {who: [requester, "{{ nodes.files.by.id }}"], timeout: 1h, remind_every: 10m}
        - shell: {commands: ["kubectl get *", tail], timeout: 60s, env: {TOKEN: "Bearer {{ secrets.TOKEN }}"}}
        - shell: {name: anything, description: For the rest., commands: ["*"], max_output: 8KiB, on_crash: again}
        - http: {hosts: [grafana.internal, "*.example.com:8080"], methods: [GET, POST], headers: {A: "{{ secrets.KEY }}"}}
        - read_file
        - write_file: {}
        - python: {call: "checks.disk:free", description: How much is free, input: {where: {}}}
        - python: {call: "checks.disk:used", name: lookup}
        - mcp: {server: grafana, tools: [query, list_alerts]}
        - logs
        - again
      approvals:
        shell: [approve, edit, reject]
        http:
          when: "{{ input.method != 'GET' and inputs.service == 'db' }}"
          verdicts: [reject, approve]
          approvers: ["@sre"]
          required: 2
          exclude_requester: true
          timeout: 30m
          message: It changes something.
        logs: [{when: "{{ input.lines > 1000 }}"}, {when: "{{ input.service == tool }}", verdicts: [approve, reject, edit]}]
        "*": [approve, reject]
  - {id: say, type: message, with: {text: "{{ nodes.fix.text }} {{ nodes.fix.data.cause }} {{ nodes.triage.cost }}"}}
finally:
  - {id: sum_up, type: agent, with: {prompt: "Sum up: {{ nodes.fix.text | default('nothing was found') }}", context: [fix], tools: [read_file]}}
"""

NESTED = """\
flow: nested
inputs:
  regions: {type: array, default: [eu, us]}
  service: {required: false}
limits: {deadline: 1d, max_open_prompts: 3, max_node_runs: 500, max_depth: 4, concurrency: 2}
nodes:
  - {id: first, type: set, with: {x: 1}}
  - id: rollout
    type: foreach
    name: Roll out
    with: {items: "{{ inputs.regions }}", as: region, concurrency: "{{ nodes.first.x }}"}
    timeout: 1h
    retry: {attempts: 3, backoff: exponential, delay: 2s, max_delay: 1m, jitter: 0.5}
    body:
      - id: apply
        type: shell
        with: {run: [./apply.sh, "{{ region.name }}", "{{ index }}", "{{ nodes.first.x }}"]}
        on_crash: ask
        retry: {attempts: 2}
        on_error: "goto:confirm"
        on_failure:
          - {id: oops, type: message, with: {text: "{{ region }}: {{ errors.apply.message }} {{ status.apply }}"}}
      - id: confirm
        type: ask
        with: {message: "{{ region }}: {{ nodes.apply.stdout | default('failed') }}"}
        on_error: ask
      - id: poll
        type: loop
        with:
          while: "{{ last is none or last.probe.status != 200 }}"
          until: "{{ index > 3 and last.probe.status == 200 }}"
          max_iterations: 5
          on_limit: continue
        body:
          - {id: probe, type: http, with: {url: "https://a/{{ region }}/{{ last.probe.status | default(0) }}"}}
          - {id: pause, type: wait, if: "{{ nodes.probe.status != 200 }}", with: {for: 10s}}
        edges:
          - {from: probe, to: pause, when: "{{ nodes.probe.status > 200 }}"}
          - {from: pause, to: probe, type: loop, max_iterations: 1}
  - id: fan
    type: parallel
    with: {mode: collect}
    branches:
      left: [{id: l, type: set, with: {a: "{{ nodes.rollout.iterations | length }}"}}]
      right:
        - {id: r, type: python, with: {call: "checks.disk:free", args: {where: "{{ inputs.service }}"}}}
        - {id: rr, type: set, with: {a: "{{ nodes.r.whatever.there.is }}"}}
  - id: pick
    type: switch
    with: {on: "{{ nodes.fan.branches.left.l.a | default(0) }}"}
    cases:
      2: [{id: two, type: noop}]
      true: [{id: yes_step, type: noop}]
      default: [{id: named, type: noop}]
    default: [{id: other, type: noop}]
  - {id: own, type: flow, if: false, with: {flow: nested, inputs: {regions: [], service: "{{ nodes.pick.case }}"}}}
  - {id: end, type: set, with: {all: "{{ nodes.own.outputs }}", rounds: "{{ nodes.rollout.iterations[0].outputs }}"}}
finally:
  - {id: clean, type: shell, with: {run: [./clean.sh, "{{ status.rollout | default('not begun', true) }}", "{{ nodes.end.all | default('nothing') }}"]}, on_error: continue}
  - {id: bye, type: message, with: {text: "{{ nodes.clean.stdout | default('') }} {{ nodes.end.rounds | default('no rounds') }}"}}
"""

GRAPH = """\
flow: graph
nodes:
  - {id: ship, type: shell, with: {run: [make, "{{ nodes.build.stdout }}", "{{ nodes.review.value }}"]}}
  - {id: build, type: shell, with: {run: [make]}}
  - {id: unit, type: noop, if: "{{ nodes.build.exit_code == 0 }}"}
  - {id: lint, type: noop, on_error: "goto:lint"}
  - {id: review, type: ask, with: {message: "Shall we?", choices: [ship, again]}}
  - {id: lonely, type: noop}
edges:
  - {from: build, to: unit}
  - {from: build, to: lint}
  - {from: unit, to: review, gate: any}
  - {from: lint, to: review}
  - {from: review, to: ship, when: "{{ nodes.review.value == 'ship' and nodes.build.exit_code == 0 }}"}
  - {from: review, to: build, when: "{{ nodes.review.value == 'again' }}", type: loop, max_iterations: 3}
  - {from: ship, to: ship, when: false, type: loop, max_iterations: 1}
"""

ONE_NODE = """\
flow: one
nodes:
  - id: only
    type: message
    with:
      text: hello
"""

SOUND = {
    "rollback": ROLLBACK,
    "every-type": EVERY_TYPE,
    "nested": NESTED,
    "agents": AGENTS,
    "graph": GRAPH,
    "one": ONE_NODE,
}


def flow_with(node: str, before: str = "") -> Flow:
    """A flow whose last node is this one (YAML, not indented), after others."""
    lines = [line for part in (before, node) if part for line in part.strip().splitlines()]
    return load_flow(
        "flow: test\ninputs: {a: {}, n: {type: integer}, o: {type: object}}\nnodes:\n" + "\n".join(lines),
        "test.yml",
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
