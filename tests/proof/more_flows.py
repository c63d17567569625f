"""The flows of the proof in which edges lead, failures are handled, and time runs out."""

from __future__ import annotations

GRAPHS: dict[str, str] = {
    "diamond": """
nodes:
  - {id: d, type: shell, with: {run: [do, "{{ nodes.b.stdout }} {{ nodes.c.text }}"]}}
  - {id: b, type: shell, with: {run: [do, b]}}
  - {id: c, type: ask, with: {message: "c?"}}
  - {id: a, type: shell, with: {run: [do, a]}}
edges: [{from: a, to: b}, {from: a, to: c}, {from: b, to: d}, {from: c, to: d}]
""",
    "dead_branches": """
nodes:
  - {id: q, type: ask, with: {message: "Which? -> b", choices: [a, b]}}
  - {id: a, type: shell, with: {run: [do, never]}}
  - {id: after_a, type: shell, with: {run: [do, never]}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, b]}}
  - {id: idle, type: shell, if: "{{ false }}", with: {run: [do, never]}}
  - {id: after_idle, type: shell, with: {run: [do, passed]}}
  - {id: end, type: shell, with: {run: [do, "{{ status.a | default('null', true) }} {{ status.after_a | default('null', true) }} {{ status.b | default('null', true) }} {{ status.idle | default('null', true) }}"]}}
edges:
  - {from: q, to: a, when: "{{ nodes.q.value == 'a' }}"}
  - {from: q, to: b, when: "{{ nodes.q.value == 'b' }}"}
  - {from: a, to: after_a}
  - {from: q, to: idle}
  - {from: idle, to: after_idle}
  - {from: after_a, to: end}
  - {from: b, to: end}
  - {from: after_idle, to: end}
""",
    "gate_any": """
nodes:
  - {id: a, type: shell, with: {run: [do, a]}}
  - {id: b, type: ask, with: {message: "b?"}}
  - {id: w, type: wait, with: {for: 10m}}
  - {id: first, type: shell, with: {run: [do, "{{ status.a | default('none', true) }}"]}}
  - {id: dead, type: shell, with: {run: [do, never]}}
  - {id: end, type: shell, with: {run: [do, "{{ status.first | default('null', true) }} {{ status.dead | default('null', true) }}"]}}
edges:
  - {from: a, to: first, gate: any}
  - {from: b, to: first, gate: any}
  - {from: w, to: first, gate: any, when: "{{ false }}"}
  - {from: a, to: dead, gate: any, when: "{{ nodes.a.exit_code == 1 }}"}
  - {from: w, to: dead, gate: any, when: "{{ false }}"}
  - {from: first, to: end}
  - {from: dead, to: end}
""",
    "one_branch_at_a_time": """
limits: {concurrency: 1}
nodes:
  - {id: a, type: shell, on_crash: again, with: {run: [do, a]}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, b]}}
  - {id: c, type: ask, with: {message: "c?"}}
  - {id: end, type: set, with: {said: "{{ nodes.c.text }}"}}
edges: [{from: a, to: end}, {from: b, to: end}, {from: c, to: end}]
""",
    "loop_edge": """
nodes:
  - {id: build, type: shell, with: {run: [count, build]}}
  - {id: lint, type: shell, on_crash: again, with: {run: [do, lint]}}
  - {id: review, type: ask, with: {message: "Well? -> {{ 'ship' if nodes.build.stdout == '3' else 'again' }}", choices: [ship, again]}}
  - {id: ship, type: shell, with: {run: [do, "{{ nodes.build.stdout }}"]}}
edges:
  - {from: build, to: review}
  - {from: build, to: lint}
  - {from: lint, to: ship}
  - {from: review, to: ship, when: "{{ nodes.review.value == 'ship' }}"}
  - {from: review, to: build, type: loop, max_iterations: 5, when: "{{ nodes.review.value == 'again' }}"}
""",
    "loop_edge_at_its_limit": """
nodes:
  - {id: before, type: shell, with: {run: [do, once]}}
  - {id: a, type: shell, on_crash: again, with: {run: [count, a]}}
  - {id: w, type: wait, with: {for: 1m}}
  - {id: b, type: shell, with: {run: [do, "{{ nodes.a.stdout }}"]}}
edges:
  - {from: before, to: b}
  - {from: a, to: w}
  - {from: w, to: b}
  - {from: b, to: a, type: loop, max_iterations: 2, on_limit: continue, when: "{{ true }}"}
""",
    "loop_edge_asks_at_its_limit": """
nodes:
  - {id: a, type: shell, on_crash: again, with: {run: [count, a]}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.a.stdout }}"]}}
  - {id: c, type: shell, on_crash: again, with: {run: [do, c]}}
edges:
  - {from: a, to: b}
  - {from: b, to: c, when: "{{ nodes.a.stdout != '3' }}"}
  - {from: b, to: a, type: loop, max_iterations: 1, on_limit: ask, when: "{{ nodes.a.stdout != '3' }}"}
""",
    "loop_asks_at_its_limit": """
nodes:
  - id: l
    type: loop
    with: {until: "{{ last.a.stdout == '3' }}", max_iterations: 2, on_limit: ask}
    body: [{id: a, type: shell, on_crash: again, with: {run: [count, a]}}]
  - {id: after, type: shell, with: {run: [do, "{{ nodes.l.iterations | length }}"]}}
""",
    "final_node_not_reached": """
nodes: [{id: a, type: shell, with: {run: [do, a]}}, {id: b, type: shell, with: {run: [do, b]}}]
edges: [{from: a, to: b, when: "{{ nodes.a.stdout == 'never' }}"}]
""",
    "loop_edge_in_foreach": """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y], as: it}
    body:
      - {id: a, type: shell, with: {run: [count, "{{ it }}"]}}
      - {id: q, type: ask, with: {message: "{{ it }} {{ nodes.a.stdout }}?"}}
    edges:
      - {from: a, to: q}
      - {from: q, to: a, type: loop, max_iterations: 1, when: "{{ nodes.a.stdout == '1' }}"}
  - {id: after, type: shell, with: {run: [do, "{{ nodes.each.iterations | length }}"]}}
""",
    "containers_in_a_graph": """
nodes:
  - {id: each, type: foreach, with: {items: [1, 2]}, body: [{id: w, type: shell, with: {run: [do, "{{ item }}"]}}]}
  - {id: call, type: flow, with: {flow: sub, inputs: {word: hello}}}
  - {id: end, type: shell, with: {run: [do, "{{ nodes.call.outputs.end.said }}"]}}
edges: [{from: each, to: end}, {from: call, to: end}]
""",
    "goto_in_a_graph": """
nodes:
  - {id: a, type: shell, with: {run: [count, a]}}
  - {id: b, type: shell, on_error: "goto:a", with: {run: [fail, "{{ 1 if nodes.a.stdout == '1' else 0 }}"]}}
  - {id: c, type: shell, with: {run: [do, "{{ nodes.a.stdout }}"]}}
edges: [{from: a, to: b}, {from: b, to: c}]
""",
    "a_branch_fails": """
nodes:
  - {id: a, type: shell, with: {run: [fail, 9]}}
  - {id: b, type: shell, with: {run: [do, b]}}
  - {id: c, type: ask, with: {message: "c?"}}
  - {id: end, type: shell, with: {run: [do, never]}}
edges: [{from: a, to: end}, {from: b, to: end}, {from: c, to: end}]
""",
}
"""Edges: conditions, gates, dead branches, and the ways back."""

LOCKS: dict[str, str] = {
    "lock": """
inputs: {service: {type: string, default: web}}
lock: "deploy-{{ inputs.service }}"
nodes:
  - {id: a, type: shell, with: {run: [do, a]}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.a.stdout }} b"]}}
""",
    "lock_of_an_asked_input": """
inputs: {service: {type: string}}
lock: "deploy-{{ inputs.service }}"
nodes:
  - {id: a, type: shell, with: {run: [do, a]}}
  - {id: q, type: ask, with: {message: "How?"}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.q.text }}"]}}
""",
    "lock_behind_another": """
lock: taken
nodes:
  - {id: a, type: shell, with: {run: [do, a]}}
  - {id: q, type: ask, with: {message: "How?"}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.q.text }}"]}}
finally: [{id: tidy, type: shell, on_crash: again, with: {run: [do, tidy]}}]
""",
    "lock_behind_another_and_in_a_list": """
lock: taken
nodes:
  - {id: each, type: foreach, with: {items: [1, 2]}, body: [{id: w, type: shell, with: {run: [do, "{{ item }}"]}}]}
  - {id: f, type: shell, with: {run: [fail, 9]}}
finally: [{id: tidy, type: shell, on_crash: again, with: {run: [do, tidy]}}]
""",
    "lock_refused": """
lock: taken
on_conflict: refuse
nodes: [{id: a, type: shell, with: {run: [do, never]}}]
""",
}
"""Locks: nobody ahead, and another session ahead (a lock called `taken`), which ends when nothing else can happen."""

FAILURES: dict[str, str] = {
    "goto_back": """
nodes:
  - {id: a, type: shell, with: {run: [count, a]}}
  - {id: b, type: shell, on_error: "goto:a", with: {run: [fail, "{{ 1 if nodes.a.stdout == '1' else 0 }}"]}}
  - {id: c, type: shell, with: {run: [do, "{{ nodes.a.stdout }}"]}}
""",
    "goto_ahead": """
nodes:
  - {id: a, type: shell, on_error: "goto:c", with: {run: [fail, 9]}}
  - {id: b, type: shell, with: {run: [do, never]}}
  - {id: c, type: shell, with: {run: [do, "{{ nodes.b | tojson }} {{ status.a | default('null', true) }}"]}}
""",
    "goto_in_foreach": """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y], as: it}
    body:
      - {id: a, type: shell, with: {run: [count, "{{ it }}"]}}
      - {id: b, type: shell, on_error: "goto:a", with: {run: [fail, "{{ 1 if nodes.a.stdout == '1' else 0 }}"]}}
      - {id: q, type: ask, with: {message: "{{ it }}?"}}
""",
    "goto_for_ever": """
limits: {max_node_runs: 9}
nodes:
  - {id: a, type: shell, with: {run: [do, a]}}
  - {id: b, type: shell, on_error: "goto:a", with: {run: [fail, 99]}}
""",
    "on_failure": """
nodes:
  - id: a
    type: shell
    with: {run: [fail, 9]}
    on_error: continue
    on_failure:
      - {id: tell, type: shell, with: {run: [do, "{{ errors.a.type }}"]}}
      - {id: q, type: ask, with: {message: "{{ status.a }}: what now?"}}
      - {id: mend, type: shell, on_crash: again, with: {run: [do, "{{ nodes.q.text }}"]}}
  - {id: b, type: shell, with: {run: [do, "{{ status.a }}"]}}
""",
    "on_failure_of_the_last_try": """
nodes:
  - id: a
    type: shell
    on_crash: again
    retry: {attempts: 2, delay: 5s}
    with: {run: [fail, 9]}
    on_failure: [{id: tell, type: shell, with: {run: [do, tell]}}]
  - {id: b, type: shell, with: {run: [do, never]}}
""",
    "on_failure_of_a_child": """
nodes:
  - id: each
    type: foreach
    on_error: continue
    with: {items: [0, 9], as: n}
    body:
      - id: a
        type: shell
        with: {run: [fail, "{{ n }}"]}
        on_failure: [{id: inner, type: shell, with: {run: [do, "{{ n }}"]}}]
    on_failure: [{id: outer, type: shell, with: {run: [do, "{{ errors.each.type }}"]}}]
  - {id: b, type: shell, with: {run: [do, "{{ status.each }}"]}}
""",
    "on_failure_fails": """
nodes:
  - id: a
    type: shell
    with: {run: [fail, 9]}
    on_error: continue
    on_failure: [{id: worse, type: shell, with: {run: [fail, 9]}}, {id: never, type: shell, with: {run: [do, never]}}]
  - {id: b, type: shell, with: {run: [do, b]}}
""",
    "on_failure_that_loops": """
nodes:
  - id: a
    type: shell
    with: {run: [fail, 9]}
    on_error: continue
    on_failure:
      - {id: each, type: foreach, with: {items: [1, 2]}, body: [{id: w, type: shell, with: {run: [do, "{{ item }}"]}}]}
  - {id: b, type: shell, with: {run: [do, b]}}
""",
    "finally": """
nodes: [{id: a, type: shell, with: {run: [do, a]}}, {id: q, type: ask, with: {message: "How?"}}]
finally:
  - {id: note, type: set, with: {said: "{{ nodes.q.text | default('nothing') }}"}}
  - {id: tidy, type: shell, on_crash: again, with: {run: [do, "{{ nodes.note.said }}"]}}
  - {id: sweep, type: shell, on_crash: again, with: {run: [do, sweep]}}
""",
    "finally_after_a_failure": """
nodes: [{id: a, type: shell, with: {run: [fail, 9]}}, {id: b, type: noop}]
finally:
  - {id: each, type: foreach, with: {items: [1, 2]}, body: [{id: w, type: shell, on_crash: again, with: {run: [do, "{{ item }}"]}}]}
  - {id: tidy, type: shell, on_crash: again, retry: {attempts: 3, delay: 1m}, with: {run: [fail, 1]}}
""",
    "finally_fails": """
nodes: [{id: a, type: shell, with: {run: [do, a]}}]
finally: [{id: tidy, type: shell, on_crash: again, with: {run: [fail, 9]}}, {id: never, type: shell, with: {run: [do, never]}}]
""",
    "failure_asks_and_is_tried_again": """
nodes:
  - {id: a, type: shell, on_error: ask, with: {run: [fail, 2]}}
  - {id: b, type: shell, with: {run: [do, "{{ status.a }}"]}}
""",
    "failure_asks_and_is_skipped": """
nodes:
  - {id: skip_a, type: shell, on_error: ask, with: {run: [fail, 9]}}
  - {id: b, type: shell, with: {run: [do, "{{ status.skip_a }} {{ errors.skip_a | tojson }}"]}}
""",
    "failure_asks_and_all_is_aborted": """
nodes: [{id: abort_a, type: shell, on_error: ask, with: {run: [fail, 9]}}, {id: b, type: shell, with: {run: [do, never]}}]
finally: [{id: tidy, type: shell, on_crash: again, with: {run: [do, tidy]}}]
""",
    "failure_asks_and_nobody_answers": """
limits: {deadline: 1h}
nodes:
  - {id: expire_a, type: shell, on_error: ask, with: {run: [fail, 9]}}
  - {id: b, type: shell, with: {run: [do, never]}}
""",
    "failure_asks_after_on_failure": """
nodes:
  - id: a
    type: shell
    on_error: ask
    with: {run: [fail, 1]}
    on_failure: [{id: tell, type: shell, with: {run: [do, tell]}}]
  - {id: b, type: shell, with: {run: [do, b]}}
""",
    "failure_asks_in_foreach": """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 0], as: n}
    body: [{id: a, type: shell, on_error: ask, with: {run: [fail, "{{ n }}"]}}, {id: b, type: shell, with: {run: [do, b]}}]
""",
    "failed_container_is_tried_again": """
nodes:
  - id: each
    type: foreach
    on_error: ask
    with: {items: [1, 2]}
    body:
      - {id: a, type: shell, with: {run: [count, a]}}
      - {id: b, type: shell, with: {run: [fail, "{{ 9 if nodes.a.stdout == '2' else 0 }}"]}}
""",
    "retry_of_a_container": """
nodes:
  - id: sub
    type: loop
    retry: {attempts: 3, delay: 5m, backoff: exponential}
    with: {until: "{{ index == 2 }}"}
    body:
      - {id: a, type: shell, on_crash: again, with: {run: [count, a]}}
      - {id: b, type: shell, with: {run: [fail, "{{ 9 if nodes.a.stdout == '2' else 0 }}"]}}
  - {id: after, type: shell, with: {run: [do, after]}}
""",
    "retry_that_waits_beside_others": """
nodes:
  - id: fan
    type: parallel
    branches:
      slow: [{id: a, type: shell, on_crash: again, retry: {attempts: 3, delay: 2h, max_delay: 3h}, with: {run: [fail, 2]}}]
      asks: [{id: q, type: ask, with: {message: "How?"}}, {id: w, type: wait, with: {for: 3h}}, {id: b, type: shell, with: {run: [do, b]}}]
""",
    "container_runs_out_of_time": """
nodes:
  - id: both
    type: parallel
    timeout: 5m
    on_error: continue
    branches:
      one: [{id: a, type: shell, with: {run: [do, a]}}, {id: w, type: wait, with: {for: 1h}}, {id: never, type: shell, with: {run: [do, never]}}]
      two: [{id: q, type: ask, with: {message: "Well? -> expire", timeout: 1h}}]
  - {id: b, type: shell, with: {run: [do, "{{ errors.both.type | default('none') }}"]}}
""",
    "container_ends_in_time": """
nodes:
  - id: each
    type: foreach
    timeout: 1h
    with: {items: [1, 2]}
    body: [{id: a, type: shell, with: {run: [do, "{{ item }}"]}}, {id: w, type: wait, with: {for: 5m}}]
  - {id: w2, type: wait, with: {for: 2h}}
  - {id: b, type: shell, with: {run: [do, b]}}
""",
    "sub_flow_runs_out_of_time": """
nodes:
  - {id: call, type: flow, timeout: 1m, on_error: continue, with: {flow: slow, inputs: {}}}
  - {id: b, type: shell, with: {run: [do, "{{ status.call }}"]}}
""",
}
"""What a failure does, and what the end of a time limit does."""

SLOW = """
flow: slow
nodes: [{id: a, type: shell, with: {run: [do, a]}}, {id: w, type: wait, with: {for: 1h}}, {id: z, type: shell, with: {run: [do, never]}}]
"""
"""A called flow that takes an hour."""
