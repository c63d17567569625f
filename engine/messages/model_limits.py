"""Facts about models that the core may know beside the state: prices and limits are configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from engine.messages.prices import Price

DEFAULT_MODEL = "claude-sonnet-5-5"
"""Model of an agent if neither its file nor its configuration names one."""


class AgentFacts(Struct, frozen=True):
    """`prices` are the current ones, None: as listed in `engine.messages.prices`. `day_left` is today's remaining
    budget in dollars; None if unknown or without a cap; `day_capped` is True if there is one."""

    prices: Mapping[str, Price] | None = None
    default_model: str = DEFAULT_MODEL
    day_left: Decimal | None = None
    day_capped: bool = False
    listens: Mapping[str, str] = MappingProxyType({})
    """Most that agents may hear: by id of a channel, `dm`, and under the empty name everywhere else."""
