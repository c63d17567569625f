"""Reads flows: text in, `Flow` out. What does the work (`engine.flow.reading`), with a YAML parser and the models of the
whole format, is loaded by the first text that is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.flow.model import Flow

SUFFIXES = (".yml", ".yaml")
"""Suffixes of flow files."""
_SCRIPTS = (".script.yml", ".script.yaml")
"""Suffixes of scripts of Claude's answers, which are beside their flows."""


def is_flow_file(name: str) -> bool:
    """True if a file name is that of a flow: it ends with .yml or .yaml, in any case, and is neither hidden nor a
    script of Claude's answers."""
    name = name.lower()
    return name.endswith(SUFFIXES) and not name.endswith(_SCRIPTS) and not name.startswith(".")


def load_flow(
    text: str,
    file: str = "<flow>",
    *,
    flows: Callable[[str], Flow | None] | None = None,
    known: Iterable[str] = (),
) -> Flow:
    """The flow that a text is; `file` names it in errors. Raises `FlowError` with everything that is wrong.

    `flows` gives the flows that it calls, by name; `known` are the names that it knows, for hints.
    """
    from engine.flow import reading

    flow, located = reading.read(text, file)
    return reading.link(flow, located, flows, known)


def flow_from_body(body: bytes) -> Flow:
    """Read the flow back from `Flow.body()`. Raises `FlowError` if this release cannot run it any more.

    Types of packages that are unavailable here are noted in `Flow.absent` and do not raise.
    """
    from engine.flow import reading

    return reading.flow_from_body(body)
