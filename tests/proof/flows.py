"""The flows of the proof: every node type and container that the engine runs, in each other, with all their options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.flow import Flow
from engine.flow.load import load_flow
from tests.proof.more_flows import FAILURES, GRAPHS, LOCKS, SLOW

CALLED = {
    "slow": SLOW,
    "sub": """
flow: sub
inputs: {word: {type: string}, n: {type: integer, default: 2}}
nodes:
  - {id: first, type: shell, with: {run: [do, "{{ inputs.word }}"]}}
  - {id: q, type: ask, with: {message: "How is {{ inputs.word }}?"}}
  - {id: end, type: set, with: {said: "{{ nodes.q.text }}", n: "{{ inputs.n }}"}}
""",
    "down": """
flow: down
inputs: {n: {type: integer}}
nodes:
  - {id: work, type: shell, with: {run: [do, "{{ inputs.n }}"]}}
  - {id: deeper, type: flow, if: "{{ inputs.n > 0 }}", with: {flow: down, inputs: {n: "{{ inputs.n - 1 }}"}}}
""",
}
"""Flows that others call."""

FLOWS: dict[str, str] = {
    # --- plain lists
    "one_node": "nodes: [{id: a, type: shell, with: {run: [do, x]}}]",
    "pure": "nodes: [{id: a, type: set, with: {x: 1}}, {id: b, type: noop}, {id: c, type: set, with: {y: '{{ nodes.a.x }}'}}]",
    "three_shells": """
nodes:
  - {id: a, type: shell, with: {run: [do, one]}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.a.stdout }} two"]}}
  - {id: c, type: http, with: {url: "http://e.org/{{ nodes.b.stdout | length }}"}}
""",
    "http_kinds": """
nodes:
  - {id: get, type: http, with: {url: "http://e.org/a"}}
  - {id: post, type: http, with: {url: "http://e.org/b", method: POST}}
""",
    "ask_text": """
nodes:
  - {id: q, type: ask, with: {message: "How?"}}
  - {id: a, type: shell, with: {run: [do, "{{ nodes.q.text }}"]}}
""",
    "ask_choice": """
nodes:
  - {id: q, type: ask, with: {message: "Which? -> b", choices: [a, b]}}
  - {id: a, type: shell, if: "{{ nodes.q.value == 'a' }}", with: {run: [do, a]}}
  - {id: b, type: shell, if: "{{ nodes.q.value == 'b' }}", with: {run: [do, b]}}
""",
    "ask_expires": """
nodes:
  - {id: q, type: ask, with: {message: "How? -> expire", timeout: 5m, on_timeout: default, default: none}}
  - {id: a, type: shell, with: {run: [do, "{{ nodes.q.text }}"]}}
""",
    "ask_expires_and_fails": """
nodes:
  - {id: q, type: ask, on_error: continue, with: {message: "How? -> expire", timeout: 5m}}
  - {id: a, type: shell, with: {run: [do, "{{ status.q }}"]}}
""",
    "approval": """
nodes:
  - {id: gate, type: approval, with: {message: "Go?", approvers: [channel]}}
  - {id: a, type: shell, with: {run: [do, a]}}
""",
    "approval_rejected": """
nodes:
  - {id: gate, type: approval, on_error: continue, with: {message: "Go? -> reject", approvers: [channel]}}
  - {id: a, type: shell, with: {run: [do, "{{ errors.gate.type | default('none') }}"]}}
""",
    "approval_rejected_stops": """
nodes:
  - {id: gate, type: approval, with: {message: "Go? -> reject", approvers: [channel]}}
  - {id: a, type: shell, with: {run: [do, a]}}
finally: [{id: tidy, type: shell, on_crash: again, with: {run: [do, tidy]}}]
""",
    "approval_rejected_goes_on": """
nodes:
  - {id: gate, type: approval, with: {message: "Go? -> reject", approvers: [channel], on_reject: continue}}
  - {id: a, type: shell, if: "{{ nodes.gate.decision == 'approve' }}", with: {run: [do, a]}}
  - {id: b, type: message, with: {text: "{{ nodes.gate.decision }}"}}
""",
    "approval_covers": """
nodes:
  - id: gate
    type: approval
    with:
      {message: "Go?", approvers: [channel], covers: a, form: {properties: {n: {type: integer, default: 2}}}, editable: [n]}
  - {id: a, type: shell, with: {run: [do, "{{ nodes.gate.values.n }}"]}}
  - {id: no, type: approval, with: {message: "Go? -> reject", approvers: [channel], covers: b, on_reject: continue}}
  - {id: b, type: shell, with: {run: [do, b]}}
  - {id: c, type: shell, with: {run: [do, "{{ status.b }}"]}}
""",
    "message_and_wait": """
nodes:
  - {id: m, type: message, with: {text: Hello}}
  - {id: w, type: wait, with: {for: 10m}}
  - {id: a, type: shell, with: {run: [do, "{{ nodes.m.ts }}"]}}
""",
    "inputs_asked": """
inputs: {name: {type: string}, count: {type: integer, description: 'How many? -> 3'}}
nodes: [{id: a, type: set, with: {n: "{{ inputs.name }}"}}, {id: b, type: shell, with: {run: [do, "{{ nodes.a.n }}"]}}]
""",
    "fails": "nodes: [{id: a, type: shell, with: {run: [do, a]}}, {id: f, type: fail, with: {message: no}}, {id: b, type: noop}]",
    "ends_early": """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2]}
    body:
      - {id: enough, type: end, if: "{{ item == 2 }}"}
      - {id: a, type: shell, with: {run: [do, "{{ item }}"]}}
  - {id: done, type: end, with: {output: {n: "{{ nodes.each.iterations | length }}"}}}
  - {id: b, type: shell, with: {run: [do, b]}}
finally:
  - {id: c, type: shell, on_crash: again, with: {run: [do, c]}}
""",
    "fails_but_goes_on": """
nodes:
  - {id: f, type: shell, on_error: continue, with: {run: [fail, 9]}}
  - {id: a, type: shell, with: {run: [do, "{{ status.f }} {{ errors.f.type | default('none') }}"]}}
""",
    "config_fails": """
nodes:
  - {id: a, type: set, with: {x: text}}
  - {id: b, type: set, on_error: continue, with: {y: "{{ ('{}' | fromjson).deep }}"}}
  - {id: c, type: shell, with: {run: [do, "{{ status.b }}"]}}
""",
    "retry": """
nodes:
  - {id: a, type: shell, on_crash: again, retry: {attempts: 4, delay: 5s}, with: {run: [fail, 2]}}
  - {id: b, type: shell, with: {run: [do, b]}}
""",
    "retry_of_what_asks": """
nodes:
  - {id: a, type: shell, retry: {attempts: 3, backoff: exponential, delay: 1s}, with: {run: [fail, 1]}}
  - {id: b, type: shell, with: {run: [do, b]}}
""",
    "retry_given_up": """
nodes:
  - {id: a, type: shell, on_error: continue, retry: {attempts: 3, delay: 1s}, with: {run: [fail, 9]}}
  - {id: b, type: shell, with: {run: [do, "{{ status.a }}"]}}
""",
    "python": """
nodes:
  - {id: a, type: python, with: {call: "checks:disk", args: {path: /tmp}}}
  - {id: b, type: python, on_crash: again, with: {call: "checks:disk", args: {path: "{{ nodes.a.called }}"}}}
""",
    # --- foreach
    "foreach": """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y, z], as: it}
    body:
      - {id: a, type: shell, with: {run: [do, "{{ it }} {{ index }}"]}}
      - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.a.stdout }}"]}}
  - {id: after, type: set, with: {n: "{{ nodes.each.iterations | length }}"}}
""",
    "foreach_empty": """
nodes:
  - {id: each, type: foreach, with: {items: []}, body: [{id: a, type: shell, with: {run: [do, never]}}]}
  - {id: after, type: shell, with: {run: [do, "{{ nodes.each.iterations | length }}"]}}
""",
    "foreach_asks": """
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us, ap], as: region}
    body:
      - {id: apply, type: shell, with: {run: [do, "{{ region }}"]}}
      - {id: confirm, type: ask, with: {message: "{{ region }} is done. How is it?"}}
      - {id: note, type: set, with: {said: "{{ nodes.confirm.text }}"}}
""",
    "foreach_at_once": """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2, 3, 4], concurrency: 2}
    body:
      - {id: a, type: shell, with: {run: [do, "{{ item }}"]}}
      - {id: q, type: ask, with: {message: "{{ item }}?"}}
      - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.q.text }}"]}}
""",
    "foreach_skips": """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2, 3], as: n}
    body:
      - {id: odd, type: shell, if: "{{ n is odd }}", with: {run: [do, "{{ n }}"]}}
      - {id: bad, type: shell, on_error: continue, with: {run: [fail, 9]}}
      - {id: even, type: shell, if: "{{ status.odd == 'skipped' }}", with: {run: [do, "{{ n }}"]}}
""",
    "foreach_retries": """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2], as: n}
    body:
      - {id: a, type: shell, on_crash: again, retry: {attempts: 3, delay: 30s}, with: {run: [fail, "{{ n }}"]}}
      - {id: b, type: shell, with: {run: [do, "{{ n }}"]}}
""",
    "foreach_fails": """
nodes:
  - id: each
    type: foreach
    on_error: continue
    with: {items: [0, 9, 0], as: n}
    body:
      - {id: a, type: shell, with: {run: [fail, "{{ n }}"]}}
      - {id: b, type: shell, with: {run: [do, "{{ n }}"]}}
  - {id: after, type: shell, with: {run: [do, "{{ status.each }}"]}}
""",
    "items_are_frozen": """
nodes:
  - id: each
    type: foreach
    with: {items: "{{ range(2 + messages | rejectattr('text', 'eq', 'go on') | list | length) | list }}", as: n}
    body:
      - {id: a, type: shell, with: {run: [tell, "round {{ n }}"]}}
      - {id: b, type: shell, with: {run: [do, "{{ n }}"]}}
""",
    "messages": """
nodes:
  - {id: a, type: shell, with: {run: [tell, "look out"]}}
  - {id: b, type: shell, with: {run: [do, b]}}
  - {id: c, type: shell, with: {run: [do, "{{ messages | rejectattr('text', 'eq', 'go on') | map(attribute='text') | join }}"]}}
""",
    "foreach_in_foreach": """
nodes:
  - id: outer
    type: foreach
    with: {items: [a, b], as: x}
    body:
      - id: inner
        type: foreach
        with: {items: [1, 2], as: y}
        body:
          - {id: work, type: shell, with: {run: [do, "{{ x }}{{ y }}"]}}
          - {id: q, type: ask, with: {message: "{{ x }}{{ y }}?"}}
      - {id: end, type: set, with: {n: "{{ nodes.inner.iterations | length }}"}}
""",
    "three_deep": """
nodes:
  - id: l1
    type: foreach
    with: {items: [1, 2], as: x}
    body:
      - id: l2
        type: loop
        with: {until: "{{ index >= 2 }}", max_iterations: 3}
        body:
          - id: l3
            type: switch
            with: {on: "{{ x }}"}
            cases: {"1": [{id: w1, type: shell, with: {run: [do, one]}}]}
            default: [{id: w2, type: ask, with: {message: "two?"}}]
""",
    # --- loop
    "loop_until": """
nodes:
  - id: again
    type: loop
    with: {until: "{{ last.a.stdout == 'n2' }}", max_iterations: 5}
    body:
      - {id: a, type: shell, with: {run: [do, "n{{ index }}"]}}
      - {id: b, type: ask, with: {message: "{{ nodes.a.stdout }}?"}}
""",
    "loop_while": """
nodes:
  - id: again
    type: loop
    with: {while: "{{ index < 3 }}"}
    body: [{id: a, type: shell, on_crash: again, with: {run: [do, "{{ index }}"]}}, {id: w, type: wait, with: {for: 1m}}]
""",
    "loop_limit": """
nodes:
  - id: again
    type: loop
    on_error: continue
    with: {while: true, max_iterations: 2}
    body: [{id: a, type: shell, with: {run: [do, "{{ index }}"]}}]
  - id: more
    type: loop
    with: {until: false, max_iterations: 2, on_limit: continue}
    body: [{id: c, type: shell, with: {run: [do, "{{ index }}"]}}]
  - {id: after, type: shell, with: {run: [do, "{{ status.again }} {{ status.more }}"]}}
""",
    # --- parallel, switch, flow
    "parallel": """
nodes:
  - id: fan
    type: parallel
    branches:
      left: [{id: a, type: shell, with: {run: [do, a]}}, {id: b, type: ask, with: {message: "b?"}}]
      right: [{id: c, type: ask, with: {message: "c?"}}, {id: d, type: shell, with: {run: [do, "{{ nodes.c.text }}"]}}]
      idle: [{id: w, type: wait, with: {for: 1h}}, {id: e, type: shell, on_crash: again, with: {run: [do, e]}}]
  - {id: after, type: set, with: {said: "{{ nodes.fan.branches.right.d.stdout }}"}}
""",
    "parallel_collect": """
nodes:
  - id: fan
    type: parallel
    with: {mode: collect}
    branches:
      good: [{id: a, type: shell, with: {run: [do, a]}}]
      bad: [{id: b, type: shell, with: {run: [fail, 9]}}, {id: c, type: shell, with: {run: [do, never]}}]
  - {id: after, type: shell, with: {run: [do, after]}}
""",
    "parallel_fails_fast": """
nodes:
  - id: fan
    type: parallel
    on_error: continue
    branches:
      bad: [{id: a, type: fail, with: {message: no}}]
      asks: [{id: q, type: ask, with: {message: "never?"}}]
  - {id: after, type: shell, with: {run: [do, "{{ status.fan }}"]}}
""",
    "foreach_in_parallel": """
nodes:
  - id: fan
    type: parallel
    branches:
      one:
        - id: each
          type: foreach
          with: {items: [1, 2]}
          body: [{id: a, type: shell, with: {run: [do, "{{ item }}"]}}, {id: q, type: ask, with: {message: "{{ item }}?"}}]
      two: [{id: s, type: switch, with: {on: yes}, cases: {"yes": [{id: z, type: shell, with: {run: [do, z]}}]}}]
""",
    "switch": """
nodes:
  - {id: pick, type: ask, with: {message: "Which? -> us", choices: [eu, us]}}
  - id: s
    type: switch
    with: {on: "{{ nodes.pick.value }}"}
    cases:
      eu: [{id: e, type: shell, with: {run: [do, eu]}}]
      us: [{id: u, type: shell, with: {run: [do, us]}}, {id: q, type: ask, with: {message: "us?"}}]
  - {id: after, type: set, with: {taken: "{{ nodes.s.case }}"}}
""",
    "switch_no_case": """
nodes:
  - {id: s, type: switch, with: {on: x}, cases: {y: [{id: e, type: shell, with: {run: [do, never]}}]}}
  - {id: a, type: shell, with: {run: [do, after]}}
""",
    "sub_flow": """
nodes:
  - {id: call, type: flow, with: {flow: sub, inputs: {word: hello}}}
  - {id: after, type: shell, with: {run: [do, "{{ nodes.call.outputs.end.said }}"]}}
""",
    "sub_flow_in_foreach": """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y]}
    body: [{id: call, type: flow, with: {flow: sub, inputs: {word: "{{ item }}", n: 3}}}]
""",
    "recursion": "nodes: [{id: go, type: flow, with: {flow: down, inputs: {n: 2}}}]",
    "sub_flow_in_parallel": """
nodes:
  - id: fan
    type: parallel
    branches:
      a: [{id: call, type: flow, with: {flow: sub, inputs: {word: a}}}]
      b: [{id: call2, type: flow, with: {flow: sub, inputs: {word: b}}}]
""",
    "few_questions_at_once": """
limits: {max_open_prompts: 1}
nodes:
  - id: fan
    type: parallel
    branches:
      a: [{id: q1, type: ask, with: {message: "one?"}}, {id: a1, type: shell, with: {run: [do, a]}}]
      b: [{id: q2, type: ask, with: {message: "two?"}}, {id: b1, type: shell, with: {run: [do, b]}}]
""",
    "too_many_nodes": """
limits: {max_node_runs: 4}
nodes: [{id: each, type: foreach, with: {items: [1, 2, 3, 4, 5]}, body: [{id: a, type: shell, on_crash: again, with: {run: [do, "{{ item }}"]}}]}]
""",
    "children_with_conditions": """
nodes:
  - id: each
    type: foreach
    with: {items: [{go: true, n: 1}, {go: false, n: 2}], as: it}
    body:
      - {id: gate, type: approval, if: "{{ it.go }}", with: {message: "Go {{ it.n }}?", approvers: [channel]}}
      - {id: tell, type: message, with: {text: "{{ it.n }}: {{ status.gate }}"}}
""",
    **GRAPHS,
    **FAILURES,
    **LOCKS,
}


def called(name: str) -> Flow | None:
    """A flow that another one calls."""
    return (
        load_flow(CALLED[name], f"{name}.yml", flows=called)
        if name in CALLED and name != "down"
        else _down(name)
    )


def _down(name: str) -> Flow | None:
    """The flow that calls itself: by itself, the loader adds it."""
    return load_flow(CALLED[name], f"{name}.yml") if name in CALLED else None


def flow(name: str) -> Flow:
    """A flow of the proof by name."""
    return of_text(f"flow: {name.replace('_', '-')}\n{FLOWS[name]}", name)


def of_text(text: str, name: str = "flow") -> Flow:
    """The flow that a text is; it may call those in `CALLED`."""
    return load_flow(text, f"{name}.yml", flows=called)


def types_in(flows: list[Flow]) -> set[str]:
    """The node types that occur anywhere in these flows."""
    return {node.type for each in flows for node in _nodes(each)}


def _nodes(each: Flow) -> Iterator[Any]:
    for nodes in each.lists.values():
        yield from nodes.nodes
