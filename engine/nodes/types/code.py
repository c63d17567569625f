"""Which code of its own a node runs: what its config names beside the flow file."""

from __future__ import annotations

from collections.abc import Mapping

from engine.language.codec import Json


def code_key(node_type: str, config: Json) -> str | None:
    """What code a node runs, as its flow names it: a module, or a relative path; None for what is no file of ours."""
    if not isinstance(config, Mapping):
        return None
    if node_type == "python":
        call = config.get("call")
        return call.partition(":")[0] if isinstance(call, str) else None
    run = config.get("run") if node_type == "shell" else None
    program = run[0] if isinstance(run, list) and run else None
    if not isinstance(program, str) or "/" not in program or program.startswith("/") or "{{" in program:
        return None
    return program
