#!/bin/sh
# Made `0541089.tar.gz`, `093a34c.tar.gz` and `6520e98.tar.gz`. Run in a work tree of that commit, with a Python that
# has its dependencies: `sh scripted.sh PYTHON WORKTREE TARGET.tar.gz`. The last process is killed, so that a WAL is left.
set -eu
python=$1 tree=$2 target=$3
work=$(mktemp -d)
cd "$work"
umask 077
export PYTHONPATH="$tree" SAYSO_USER=ana HOME="$work"
sayso() { "$python" -m bot.cli --home home "$@"; }
mkdir flows
cat > flows/gate.yml <<'YAML'
flow: gate
nodes:
  - {id: before, type: shell, on_crash: again, with: {run: [echo, before]}}
  - {id: gate, type: approval, with: {message: Go on?, approvers: ["local:ben"], timeout: 25d}}
  - {id: ship, type: shell, if: "{{ nodes.gate.decision == 'approve' }}", on_crash: again, with: {run: [echo, shipped]}}
  - {id: after, type: set, with: {decision: "{{ nodes.gate.decision }}"}}
YAML
cat > flows/bare-gate.yml <<'YAML'
flow: bare-gate
nodes:
  - {id: gate, type: approval, with: {message: Go on?, approvers: ["local:ben"], timeout: 25d}}
  - {id: ship, type: shell, on_crash: again, with: {run: [echo, shipped]}}
YAML
cat > flows/two-questions.yml <<'YAML'
flow: two-questions
nodes:
  - {id: first, type: ask, with: {message: First?}}
  - {id: second, type: ask, with: {message: Second?}}
  - {id: both, type: set, with: {both: "{{ nodes.first.text }}/{{ nodes.second.text }}"}}
YAML
cat > flows/each.yml <<'YAML'
flow: each
nodes:
  - id: each
    type: foreach
    with: {items: [a, b, c], as: item, concurrency: 3}
    body:
      - {id: note, type: shell, on_crash: again, with: {run: [echo, "{{ item }}"]}}
      - {id: q, type: ask, with: {message: "What of {{ item }}?"}}
  - id: done
    type: set
    with: {first: "{{ nodes.each.iterations[0].outputs.q.text }}", last: "{{ nodes.each.iterations[2].outputs.q.text }}"}
YAML
for flow in gate gate bare-gate two-questions two-questions each; do
  sayso run "flows/$flow.yml" --no-input || test $? = 3
done
"$python" - <<'PY'
import json, os, subprocess, sys
def sayso(*words):
    done = subprocess.run([sys.executable, "-m", "bot.cli", "--home", "home", *words], capture_output=True, text=True)
    assert done.returncode in (0, 3), (words, done.stdout, done.stderr)
    return done.stdout
prompts = json.loads(sayso("prompts", "list", "--json"))["prompts"]
first = [p for p in prompts if p["message"] == "First?"]
sayso("prompts", "answer", first[0]["promptId"], "one")
if subprocess.run([sys.executable, "-m", "bot.cli", "sessions", "pause", "-h"], capture_output=True).returncode == 0:
    sayso("sessions", "pause", first[1]["sessionId"])  # an early commit has no pause
(b,) = [p for p in prompts if p["message"] == "What of b?"]
sayso("prompts", "answer", b["promptId"], "beta")
PY
# What a kill leaves: a database with a WAL that nobody folded back.
"$python" - <<'PY' || true
import os, signal
from engine.storage.sqlite import open_sqlite
store = open_sqlite("home/sayso.db")
store.set_mark("made", "1.0")
os.kill(os.getpid(), signal.SIGKILL)
PY
rm -f home/sayso.db-shm
tar -czf "$target" --owner=0 --group=0 home flows
rm -r "$work"
