"""Names in a flow file, and reserved words. Apart from the models of fields, since pydantic is a large part of a start."""

from __future__ import annotations

import re

NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
"""Ids, inputs and output names."""

FLOW_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)

MAX_NAME = 64
"""The most characters of a name in a flow file."""

_ROOT_WORDS = {"nodes", "inputs", "status", "errors", "messages", "secrets", "session"}

_BODY_WORDS = {"index", "item", "last", "finally"}

_LANGUAGE_WORDS = {
    "finally",
    "range",
    "true",
    "false",
    "none",
    "null",
    "not",
    "and",
    "or",
    "in",
    "is",
    "if",
    "else",
}

RESERVED_WORDS = frozenset(_ROOT_WORDS | _BODY_WORDS | _LANGUAGE_WORDS)
"""Words that mean something in expressions or paths and cannot be the id of a node."""
