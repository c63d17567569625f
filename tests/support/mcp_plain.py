"""The tools of `mcp_server` over stdio without the SDK, which takes a second to import: one JSON-RPC message a line."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(32)).decode()
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def text(words: str, **more: Any) -> dict[str, Any]:
    """A result that is a text."""
    return {"content": [{"type": "text", "text": words}], **more}


def add(a: int, b: int = 0) -> dict[str, Any]:
    """Adds two numbers."""
    if not isinstance(a, int):
        return text("a is no number", isError=True)
    return text(str(a + b), structuredContent={"result": a + b})


def whoami() -> dict[str, Any]:
    """Says which process answers, in which folder, and what it was told in secret."""
    return text(f"{os.getpid()} {os.getcwd()} {os.environ.get('TOKEN', '')}")


def broken(word: str) -> dict[str, Any]:
    """Fails."""
    return text(f"cannot do {word}", isError=True)


def note(file: str) -> dict[str, Any]:
    """Leaves a line in a file for each call, and gives text and a picture."""
    with Path(file).open("a", encoding="utf-8") as stream:
        stream.write("called\n")
    kinds = ("image/png", "image/tiff")
    pictures = [{"type": "image", "data": PIXEL, "mimeType": kind} for kind in kinds]
    return {"content": [*text("noted")["content"], *pictures]}


def large() -> dict[str, Any]:
    """Gives more than anybody reads."""
    return text("x" * 2_000_000)


def wait(file: str) -> None:
    """Says in a file that it began, and gives no answer."""
    Path(file).write_text("began", encoding="utf-8")


def die(file: str) -> None:
    """Says in a file that it began, and ends the process."""
    Path(file).write_text("began", encoding="utf-8")
    os._exit(3)


TOOLS: dict[str, Callable[..., dict[str, Any] | None]] = {
    tool.__name__: tool for tool in (add, whoami, broken, note, large, wait, die)
}
TOOLS["confirm"] = lambda: None


def described(name: str) -> str:
    """What a tool is said to do; by a file, where one is named, which can be another one by the next listing."""
    file = os.environ.get("DESCRIBED")
    told = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    return str(told.get(name) or TOOLS[name].__doc__ or "Asks first.")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None where there will be none."""
    match method:
        case "initialize":
            told = {"name": "tests", "version": "1"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": told}
        case "tools/list":
            schemas = {"add": NUMBERS}
            tools = [
                {
                    "name": name,
                    "description": described(name),
                    "inputSchema": schemas.get(name, {"type": "object"}),
                }
                for name in TOOLS
            ]
            return {"tools": tools}
        case "tools/call":
            return TOOLS[params["name"]](**params.get("arguments") or {})
    return {}


CONFIRM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


def say(message: dict[str, Any]) -> None:
    """One message to the client."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def confirm(identity: Any, schema: Any = CONFIRM) -> None:
    """Asks within the open call, as servers of 2025-11-25 do, and says what it was told."""
    params = {"mode": "form", "message": "Are you sure?", "requestedSchema": schema}
    say({"id": "ask", "method": "elicitation/create", "params": params})
    for line in sys.stdin:
        told = json.loads(line)
        if told.get("id") == "ask":
            say({"id": identity, "result": text(json.dumps(told["result"]))})
            return


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call" and message["params"]["name"] == "confirm":
            confirm(message["id"], **message["params"].get("arguments") or {})
            continue
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            if result is not None:
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
