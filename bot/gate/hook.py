"""`sayso gate hook`: the hook of an agent's program. It reads a call, asks the gate, and prints one JSON, last and whole.

Every other way out is exit 2 with a word on standard error, which blocks the call: programs take an empty output, an exit of 1,
and what is no JSON for a yes.

A headless Claude Code that waits too long is told to defer the call; `sayso gate resume` goes on with the session once people
have decided. A call is never deferred in a subagent, or beside another one: Claude Code keeps the last one only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from bot.gate.client import Client, NoGate, read_json

CLIENTS = ("claude", "codex")
WAIT_SECONDS = 300.0
DOCTOR = "sayso_doctor"
"""The tool of a call that only tries the hook: it is denied, and nobody is asked."""
_SLICE_SECONDS = 5.0
_BLOCKED = 2


def main(arguments: list[str]) -> int:
    """Carry the hook out with the words of a command line; its exit code."""
    client, wait, interactive = "claude", WAIT_SECONDS, False
    words = iter(arguments)
    try:
        for word in words:
            if word == "--client":
                client = next(words)
            elif word == "--wait":
                wait = float(next(words))
            elif word == "--interactive":
                interactive = True
            else:
                raise NoGate(f"sayso gate hook takes no {word}")
        return run(client, wait, interactive)
    except BaseException as error:
        print(f"sayso gate: blocked. {error or type(error).__name__}", file=sys.stderr)
        return _BLOCKED


def run(client: str, wait: float, interactive: bool) -> int:
    """Answer the call on standard input. Whatever it raises is a block."""
    if client not in CLIENTS:
        raise NoGate(f"the client is one of {', '.join(CLIENTS)}, not {client}")
    event = _read(sys.stdin.buffer.read())
    name, tool, given = event["hook_event_name"], event["tool_name"], event["tool_input"]
    if not isinstance(given, dict):
        raise NoGate("the call has no arguments")
    wanted: dict[str, Any] = {
        "kind": "approval",
        "door": client,
        "session": str(event["session_id"]),
        "call": str(event.get("tool_use_id") or ""),
        "tool": str(tool),
        "arguments": given,
        "machine": socket.gethostname(),
        "place": str(event.get("cwd") or ""),
        "interactive": interactive or name == "PermissionRequest",
    }
    wanted["scripts"] = _scripts(wanted)
    if wanted["interactive"]:
        wanted["call"] = _of_dialog(tool, given)
    gate = Client.configured()
    if name == "PostToolUse":
        answer = gate.post("ran", **wanted)
        return _print(
            {"systemMessage": "The gate raised an alarm about this call."} if answer["alarm"] else {}
        )
    if name == "PermissionRequest":
        return _beside_dialog(gate, wanted, wait, event)
    if name != "PreToolUse":
        raise NoGate(f"no hook of this name is known: {name}")
    answer = _asked(gate, wanted, wait)
    decision, reason = _decided(client, answer, wanted, event)
    told: dict[str, Any] = {
        "hookEventName": name,
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }
    if decision == "allow":
        told["updatedInput"] = answer["arguments"]
    return _print({"hookSpecificOutput": told})


def _asked(gate: Client, wanted: dict[str, Any], wait: float) -> dict[str, Any]:
    """The answer to a call. It does not count where a script has changed while people were asked: they are asked anew."""
    answer = gate.ask(wanted, wait)
    if answer["state"] == "allowed" and (now := _scripts(wanted)) != wanted["scripts"]:
        wanted["scripts"] = now
        answer = gate.ask(wanted, 0)
    return answer


def _scripts(wanted: dict[str, Any]) -> dict[str, Any]:
    command = wanted["arguments"].get("command")
    return (
        scripts_of(command, wanted["place"]) if wanted["tool"] == "Bash" and isinstance(command, str) else {}
    )


def _decided(
    client: str, answer: dict[str, Any], wanted: dict[str, Any], event: dict[str, Any]
) -> tuple[str, str]:
    """The decision, in the words of the client, and why."""
    by = ", ".join(answer.get("by") or ()) or "the gate"
    state, reason = answer["state"], answer.get("reason") or ""
    if state == "allowed" and isinstance(answer.get("arguments"), dict):
        forget(wanted)
        return "allow", f"Allowed by {by}."
    if state == "denied":
        forget(wanted)
        return "deny", f"Denied by {by}. {reason}".strip()
    if state == "open" and client == "claude" and not event.get("agent_id"):
        if keep(wanted, answer["request"], event):
            return "defer", "People are asked in Slack; this goes on once they have decided."
        return "deny", "Another call of this session waits for people. Ask again after that one."
    if state == "open":
        return "deny", "People are asked in Slack, and have not decided yet. Make the same call again later."
    return "deny", reason or "The gate gave no answer."


def _beside_dialog(gate: Client, wanted: dict[str, Any], wait: float, event: dict[str, Any]) -> int:
    """Race the dialog at the terminal: whoever answers first. Nothing is printed where it was answered there, or nobody
    answered here: the dialog decides."""
    parent, path = os.getppid(), event.get("transcript_path") or ""
    seen = os.path.getsize(path) if os.path.exists(path) else 0
    left = wait
    while left > 0:
        answer = _asked(gate, wanted, min(left, _SLICE_SECONDS))
        left -= _SLICE_SECONDS
        if answer["state"] == "allowed":
            allowed = {"behavior": "allow", "updatedInput": answer["arguments"]}
            return _print({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": allowed}})
        if answer["state"] != "open":
            denied = {"behavior": "deny", "message": answer.get("reason") or "Denied in Slack."}
            return _print({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": denied}})
        if os.getppid() != parent or _answered(path, seen):
            break
    gate.post("withdraw", **wanted)
    return 0


def _answered(path: str, seen: int) -> bool:
    """True if the transcript has the result of a call since then."""
    if not os.path.exists(path) or os.path.getsize(path) <= seen:
        return False
    with open(path, "rb") as stream:
        stream.seek(seen)
        return b'"tool_result"' in stream.read()


def _of_dialog(tool: str, given: dict[str, Any]) -> str:
    """An id for a call of which a dialog is shown: Claude Code tells none."""
    from hashlib import sha256

    return sha256(json.dumps([tool, given], sort_keys=True).encode()).hexdigest()[:32]


def _read(data: bytes) -> dict[str, Any]:
    event = read_json(data)
    if not isinstance(event, dict):
        raise NoGate("the input is no JSON object")
    return event


def _print(told: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    return 0


# --- calls that are deferred -------------------------------------------------------------------------------


def folder() -> str:
    """Return the folder of this user's deferred calls."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "sayso", "gate")


def record_of(session: str) -> str:
    """The file of a session. Raises `NoGate` for what is no id."""
    if not session.replace("-", "").replace("_", "").isalnum():
        raise NoGate("the session has no id")
    return os.path.join(folder(), f"{session}.json")


def keep(wanted: dict[str, Any], request: str, event: dict[str, Any]) -> bool:
    """Keep that a call is deferred. False where another call of the same prompt is; one of an earlier prompt was lost."""
    path, told = (
        record_of(wanted["session"]),
        {
            "session": wanted["session"],
            "call": wanted["call"],
            "request": request,
            "cwd": event.get("cwd"),
            "config": os.environ.get("CLAUDE_CONFIG_DIR"),
            "prompt": event.get("prompt_id"),
        },
    )
    os.makedirs(folder(), mode=0o700, exist_ok=True)
    for _ in range(2):
        try:
            with open(path, "x", encoding="utf-8") as stream:
                json.dump(told, stream)
            return True
        except FileExistsError:
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
            before = json.loads(text) if text else {"prompt": told["prompt"]}  # one that is being written
            if before["prompt"] == told["prompt"] and before.get("call") != told["call"]:
                return False
            os.unlink(path)
    return False


def forget(wanted: dict[str, Any]) -> None:
    """The call is decided: nothing is to be resumed for it."""
    path = record_of(wanted["session"])
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            if json.load(stream).get("call") == wanted["call"]:
                os.unlink(path)


# --- scripts that a command runs ---------------------------------------------------------------------------

_RUNS = ("bash", "sh", "dash", "zsh", "ksh", "python", "python3", "node", "ruby", "perl", "source", ".")
_BEFORE = ("sudo", "env", "exec", "nohup", "time", "command")


def scripts_of(command: str, place: str) -> dict[str, dict[str, Any]]:
    """The scripts that a command names to run, by path, with their SHA-256 and size. Raises `OSError`."""
    import shlex

    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return {}  # no shell runs it either: a quote is open
    found: dict[str, dict[str, Any]] = {}
    simple: list[str] = []
    for word in [*words, ";"]:
        if word.strip("();<>|&"):
            simple.append(word)
            continue
        while simple and (
            simple[0] in _BEFORE or ("=" in simple[0] and "/" not in simple[0].partition("=")[0])
        ):
            simple.pop(0)
        program, *rest = simple or [""]
        simple = []
        if program == "cd" and rest:
            place = os.path.join(place, rest[0])
        name = program if "/" in program else ""
        if os.path.basename(program) in _RUNS:
            name = next((one for one in rest if not one.startswith("-")), "")
            if rest and rest[0] in ("-c", "-m", "-e"):
                name = ""
        path = os.path.join(place, name)
        if name and os.path.isfile(path):
            with open(path, "rb") as stream:
                if stream.read(4) != b"\x7fELF":  # a program is no script
                    from hashlib import file_digest

                    stream.seek(0)
                    digest = file_digest(stream, "sha256").hexdigest()
                    found[name] = {"sha256": digest, "size": stream.tell()}
    return found
