"""Prices of Claude's models, as `genai-prices` lists them. Pure.

A copy, not an import: the package takes 0.45 s and 3 MB for a few numbers a model, and the core decides with them. A
test compares the copy with the package in the version named here.
"""

from __future__ import annotations

from collections.abc import Mapping

SOURCE = "genai-prices 0.2.3"

LISTED: Mapping[str, str] = {
    "claude-fable-5": "10 50 12.5 20 1 1000000",
    "claude-fable-5-1": "10 50 12.5 20 0.25 1000000",
    "claude-fable-5-2": "8 40 10 16 0.2 1000000",
    "claude-haiku-4-5": "1 5 1.25 2 0.1 200000",
    "claude-haiku-5-5": "0.1 0.5 0.125 0.2 0.01 1000000 100000 0.5 2.5 0.625 1 0.05",
    "claude-mythos-5-2": "8 40 10 16 0.2 1000000",
    "claude-opus-4-5": "5 25 6.25 10 0.5 200000",
    "claude-opus-4-6": "5 25 6.25 10 0.5 1000000",
    "claude-opus-4-7": "5 25 6.25 10 0.5 1000000",
    "claude-opus-4-8": "5 25 6.25 10 0.5 1000000",
    "claude-opus-5": "5 25 6.25 10 0.5 1000000",
    "claude-opus-5-5": "4 20 5 8 0.2 1000000",
    "claude-sonnet-4-5": "3 15 3.75 6 0.3 200000 200000 6 22.5 7.5 12 0.6",
    "claude-sonnet-4-6": "3 15 3.75 6 0.3 1000000",
    "claude-sonnet-5": "2 10 2.5 4 0.2 1000000",
    "claude-sonnet-5-5": "2 10 2.5 4 0.1 1000000",
}
"""Dollars for a million tokens: input, output, written to the cache for five minutes, for an hour, read from it; the
context in tokens; and for models with a long-prompt price its threshold in tokens, and the same five prices."""
