"""What the core may know about models beside the state: prices and limits are configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from engine.messages.prices import Price

DEFAULT_MODEL = "claude-sonnet-5-5"
"""The model of an agent whose file and whose configuration name none."""


class AgentFacts(Struct, frozen=True):
    """`prices` are those that hold, None: as listed in `engine.messages.prices`. `day_left` is what may still be spent today, in dollars; None where nobody asked or there is no cap; `day_capped`
    whether there is one."""

    prices: Mapping[str, Price] | None = None
    default_model: str = DEFAULT_MODEL
    day_left: Decimal | None = None
    day_capped: bool = False
    listens: Mapping[str, str] = MappingProxyType({})
    """How much agents may hear at most: by id of a channel, `dm`, and under the empty name everywhere else."""
