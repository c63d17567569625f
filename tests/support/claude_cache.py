"""Claude's prompt cache, as a local server keeps it: what a request reads and writes follows from its marks alone.

A prefix is looked for from each mark back, over twenty positions at most; what stands up to the last mark is written.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

import orjson

from tests.support.claude_binding import unmarked

BYTES_A_TOKEN = 3
LOOKBACK = 20
PLAIN, READ, HOUR, OUT = (Decimal(rate) / 1_000_000 for rate in ("2", "0.1", "4", "10"))
"""Dollars a token of Sonnet 5.5, of what is read, and of what is written for an hour."""


class Cache:
    """What was written so far, and what all requests cost."""

    def __init__(self) -> None:
        self._written: set[bytes] = set()
        self.bill = Decimal(0)
        self.reads: list[int] = []
        self.inputs: list[int] = []

    def usage(self, body: dict[str, Any], answer: list[Any]) -> dict[str, Any]:
        """The tokens of a request and its answer, as the API tells them."""
        blocks = [*body.get("tools", ()), *body["system"]]
        blocks += [block for message in body["messages"] for block in message["content"]]
        prefixes, sizes = [], []
        digest, size = hashlib.sha256(body["model"].encode()), 0
        for block in blocks:
            told = orjson.dumps(unmarked(block))
            digest.update(told)
            size += len(told)
            prefixes.append(digest.digest())
            sizes.append(-(-size // BYTES_A_TOKEN))
        marks = [at for at, block in enumerate(blocks) if block.get("cache_control")]
        assert all(blocks[at]["cache_control"].get("ttl") == "1h" for at in marks)
        seen = [at for mark in marks for at in range(max(0, mark - LOOKBACK), mark + 1)]
        read = max((sizes[at] for at in seen if prefixes[at] in self._written), default=0)
        self._written |= {prefixes[at] for at in marks}
        last = sizes[marks[-1]] if marks else 0
        wrote, plain = max(0, last - read), sizes[-1] - max(read, last)
        out = -(-len(orjson.dumps(answer)) // BYTES_A_TOKEN)
        self.bill += plain * PLAIN + read * READ + wrote * HOUR + out * OUT
        self.reads.append(read)
        self.inputs.append(sizes[-1])
        return {
            "input_tokens": plain,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": wrote,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": wrote},
            "output_tokens": out,
        }
