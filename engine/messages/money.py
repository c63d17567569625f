"""Dollars as people read them. Pure."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal


def dollars(amount: Decimal | str | float, *, exact_below: str = "0.01") -> str:
    """Format dollars for people: in cents, with four digits below `exact_below`."""
    value = Decimal(str(amount))
    step = Decimal("0.01") if value == 0 or value >= Decimal(exact_below) else Decimal("0.0001")
    return f"${value.quantize(step, ROUND_HALF_UP):,}"
