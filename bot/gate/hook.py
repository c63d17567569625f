"""`sayso gate hook`: the hook of an agent's program. It reads a call, asks the gate, and prints one JSON, last and whole.

Every other way out is exit 2 with a word on standard error, which blocks the call: programs take an empty output, an exit of 1,
and what is not JSON for a yes.

A headless Claude Code that waits too long is told to defer the call; `sayso gate resume` continues with the session once people
have decided. A call is never deferred in a subagent, or beside another one: Claude Code keeps the last one only.
"""

from __future__ import annotations

import json
import os
import re
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
                raise NoGate(f"sayso gate hook does not take {word}")
        return run(client, wait, interactive)
    except BaseException as error:
        print(f"sayso gate: blocked. {error or type(error).__name__}", file=sys.stderr)
        return _BLOCKED


def run(client: str, wait: float, interactive: bool) -> int:
    """Answer the call on standard input. Whatever it raises is a block."""
    if client not in CLIENTS:
        raise NoGate(f"the client must be one of {', '.join(CLIENTS)}, not {client}")
    event = read_json(sys.stdin.buffer.read())
    if not isinstance(event, dict):
        raise NoGate("the input is not a JSON object")
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
        from hashlib import sha256

        # Claude Code tells no id of a call of which a dialog is shown.
        text = json.dumps([tool, given], sort_keys=True)
        wanted["call"] = sha256(text.encode()).hexdigest()[:32]
    gate = Client.configured()
    if name == "PostToolUse":
        answer = gate.post("ran", **wanted)
        return _print(
            {"systemMessage": "The gate raised an alarm about this call."} if answer["alarm"] else {}
        )
    if name == "PermissionRequest":
        return _beside_dialog(gate, wanted, wait, event)
    if name != "PreToolUse":
        raise NoGate(f"there is no hook {name}")
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
    """The answer to a call. It does not count where a script has changed while people were asked: they are asked again."""
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
            return "defer", "People are asked in Slack; this continues once they have decided."
        return "deny", "Another call of this session is waiting for people. Ask again after that one."
    if state == "open":
        return "deny", "People are asked in Slack, and have not decided yet. Make the same call again later."
    return "deny", reason or "The gate gave no answer."


def _beside_dialog(gate: Client, wanted: dict[str, Any], wait: float, event: dict[str, Any]) -> int:
    """Race the dialog in the terminal; the first answer counts. Print nothing if it was answered there, or if nobody
    answered here: the dialog decides."""
    parent, path = os.getppid(), event.get("transcript_path") or ""
    seen = os.path.getsize(path) if os.path.exists(path) else 0
    left = wait
    while left > 0:
        answer = _asked(gate, wanted, min(left, _SLICE_SECONDS))
        left -= _SLICE_SECONDS
        if answer["state"] != "open":
            decision = {"behavior": "allow", "updatedInput": answer.get("arguments")}
            if answer["state"] != "allowed":
                gate.post("withdraw", **wanted)  # an equal call later is another dialog, with the same id
                decision = {"behavior": "deny", "message": answer.get("reason") or "Denied in Slack."}
            return _print(
                {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
            )
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
    """The file of a session. Raises `NoGate` for what is not an id."""
    if session.startswith("-") or not session.replace("-", "").replace("_", "").isalnum():
        raise NoGate("the session has no id")
    return os.path.join(folder(), f"{session}.json")


def keep(wanted: dict[str, Any], request: str, event: dict[str, Any]) -> bool:
    """Keep that a call is deferred. False where another call of the same prompt is; one of an earlier prompt was lost."""
    import fcntl

    path = record_of(wanted["session"])
    told = {
        "session": wanted["session"],
        "call": wanted["call"],
        "request": request,
        "cwd": event.get("cwd"),
        "config": os.environ.get("CLAUDE_CONFIG_DIR"),
        "prompt": event.get("prompt_id"),
    }
    os.makedirs(folder(), mode=0o700, exist_ok=True)
    with open(f"{path}.keep", "w", encoding="utf-8") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)  # hooks of two calls run side by side
        before = read_record(path)
        if before and before.get("prompt") == told["prompt"] and before.get("call") != told["call"]:
            return False
        write_record(path, told)
    return True


def forget(wanted: dict[str, Any]) -> None:
    """The call is decided: nothing is to be resumed for it."""
    path = record_of(wanted["session"])
    if (read_record(path) or {}).get("call") == wanted["call"]:
        os.unlink(path)


def read_record(path: str) -> dict[str, Any] | None:
    """The JSON object of a file; None where there is none that is whole."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_record(path: str, told: dict[str, Any]) -> None:
    """Put a JSON object into a file, the whole of it or nothing. Raises `OSError`."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as stream:
        json.dump(told, stream)
    os.replace(fresh, path)


# --- scripts that a command runs ---------------------------------------------------------------------------

_SHELL = re.compile(r"(?:ba|da|z|k|mk|a|fi)?sh")
_READS = re.compile(
    r"source|\.|(?:python|pypy|ruby|perl|php|lua)[\d.]*|node(?:js)?|tsx|ts-node|deno|bun|Rscript|pwsh"
)
"""Programs that run a script, beside shells."""
_SHELL_TAKES = re.compile(r"[-+][a-zA-Z]*[oO][a-zA-Z]*|--rcfile|--init-file")
_TAKES = re.compile(r"--[^=]+|-\w*[WXrICEf]")
"""Options after which a word can be theirs. Some of these take none; then a word more is looked at."""
_BEFORE = re.compile(
    "sudo|doas|env|exec|nohup|time|command|builtin|nice|ionice|timeout|setsid|stdbuf|xargs|find|flock|watch|busybox|chroot|"
    "unshare|strace|eval|coproc|if|then|else|elif|while|until|do|!|{"
)
"""Words before a command."""
_SIGNS = "();<>|&"


def scripts_of(command: str, place: str) -> dict[str, dict[str, Any]]:
    """The scripts that a command names to run, by path, with their SHA-256 and size; in doubt one too many. Raises `OSError`."""
    found: dict[str, dict[str, Any]] = {}
    places, texts = [place], [command]
    for text in texts:
        simple: list[str] = []
        inputs: list[str] = []
        words = iter([*_words(text), ";"])
        for word in words:
            if word.strip(_SIGNS) or not word:
                simple.append(word)
                if re.search(r"[\s;&|(]", word):  # code in quotes, or a substitution
                    texts.append(re.sub(r"[$()]+", ";", word))
            elif re.fullmatch(r".*[<>]&?\|?", word):
                if simple and simple[-1].isdigit():
                    simple.pop()  # the number of a stream
                target = next(words, "")
                inputs += [target] if "<" in word else []
            else:
                program, *rest = _without_prefix(simple, places[-1]) or [""]
                if program in ("cd", "pushd") and rest:
                    places.append(os.path.join(places[-1], rest[-1]))
                for name in _named(program, rest, inputs):
                    for where in places:
                        _add(found, name, os.path.join(where, os.path.expanduser(os.path.expandvars(name))))
                # A shell behind a pipe runs what it reads.
                simple, inputs = [], [*rest, *inputs] if word == "|" else []
    return found


def _words(text: str) -> list[str]:
    """The words and signs of a command, as a shell splits them. Comments count too; where quotes do not match, there are none."""
    import shlex

    text = re.sub("[\n`]", ";", text.replace("\\\n", " "))
    for tried in (text, re.sub(r"[\"'\\]", " ", text)):
        lexer = shlex.shlex(tried, posix=True, punctuation_chars=_SIGNS)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            return list(lexer)
        except ValueError:
            continue
    return []


def _without_prefix(words: list[str], place: str) -> list[str]:
    """A command without assignments, and without programs that run it and their options."""
    before = unsure = False
    for index, word in enumerate(words):
        reads = _SHELL.fullmatch(os.path.basename(word)) or _READS.fullmatch(os.path.basename(word))
        if _BEFORE.fullmatch(os.path.basename(word)):
            before = True
        elif not re.match(r"\w+\+?=", word):
            runs = reads or ("/" in word and (not unsure or os.access(os.path.join(place, word), os.X_OK)))
            if runs or not before:
                return words[index:]
            unsure = unsure or not re.match(r"-|\d", word)
    return []


def _named(program: str, rest: list[str], inputs: list[str]) -> list[str]:
    """The words of a command that can be scripts which it runs."""
    named, name = [program] if "/" in program else [], os.path.basename(program)
    shell = _SHELL.fullmatch(name)
    if not shell and not _READS.fullmatch(name):
        return named
    words = iter(rest[1:] if rest[:1] == ["run"] else rest)
    for word in words:
        if word[:1] not in ("-", "+"):
            return [*named, word, *(inputs if "-s" in rest else ())]
        if word != "--" and (_SHELL_TAKES if shell else _TAKES).fullmatch(word):
            named.append(next(words, ""))
    return [*named, *inputs]


def _add(found: dict[str, dict[str, Any]], name: str, path: str) -> None:
    """Note a script, unless there is no such file, or it is a program."""
    if not name or not os.path.isfile(path):
        return
    with open(path, "rb") as stream:
        if stream.read(4) != b"\x7fELF":
            from hashlib import file_digest

            stream.seek(0)
            told = {"sha256": file_digest(stream, "sha256").hexdigest(), "size": stream.tell()}
            if found.setdefault(name, told) != told:
                found[path] = told
