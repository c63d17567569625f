"""Exact and maximum costs of a turn. Pure.

Prices are in US dollars for a million tokens, as the provider lists them. Costs are `Decimal`s of dollars, never
rounded: a budget adds up thousands of tiny ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation

from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.messages.listed import LISTED, SOURCE
from engine.messages.models import SHIPPED
from engine.messages.turns import Usage

MILLION = Decimal(1_000_000)


class UnknownPrice(SaysoError):
    """A model has no price, so that no budget can be kept: configure one."""

    code = "price_unknown"


class InvalidPrice(SaysoError):
    """A configured price cannot be read."""

    code = "price_invalid"


@dataclass(frozen=True)
class Rates:
    """Dollars for a million tokens of each kind; the writes are kept in the cache for five minutes, or an hour."""

    input: Decimal
    output: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    cache_read: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Dollars for these tokens."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_write_tokens * self.cache_write
            + usage.cache_write_1h_tokens * self.cache_write_1h
            + usage.cache_read_tokens * self.cache_read
        ) / MILLION

    @property
    def dearest_input(self) -> Decimal:
        """Return the highest price of a token of the prompt."""
        return max(self.input, self.cache_write, self.cache_write_1h, self.cache_read)


@dataclass(frozen=True)
class Price:
    """A model's rates and its context window in tokens.

    Some models are dearer for prompts of more than `long_over` tokens: then `long` holds for all tokens of the turn.
    """

    rates: Rates
    context: int
    long: Rates | None = None
    long_over: int = 0
    source: str = SOURCE
    """Source of the price."""

    def to_json(self) -> Json:
        """Return the rates as they are recorded beside a cost."""
        rates = [format(getattr(self.rates, item.name).normalize(), "f") for item in fields(Rates)]
        return {"of": self.source, "rates": " ".join(rates)}

    def rates_for(self, prompt_tokens: int) -> Rates:
        """Return the rates of a turn whose prompt has this many tokens."""
        return self.long if self.long is not None and prompt_tokens > self.long_over else self.rates


def _listed(row: str) -> Price:
    """A row of `engine.messages.listed`."""
    numbers = row.split()
    rates, context, long = numbers[:5], int(numbers[5]), numbers[6:]
    if not long:
        return Price(Rates(*map(Decimal, rates)), context)
    return Price(Rates(*map(Decimal, rates)), context, Rates(*map(Decimal, long[1:])), int(long[0]))


DEFAULTS: Mapping[str, Price] = {model: _listed(row) for model, row in LISTED.items()}
"""Prices used without configuration."""

SEARCH = Decimal("0.01")
"""Dollars for a search in the web."""

_DATED = re.compile(r"-\d{8}$")


def price_of(model: str, prices: Mapping[str, Price] = DEFAULTS) -> Price:
    """The price of a model; a dated id (`claude-haiku-4-5-20251001`) has that of its name. Raises `UnknownPrice`."""
    price = prices.get(model) or prices.get(_DATED.sub("", model))
    if price is None:
        raise UnknownPrice(
            f"there is no price for {model}: configure one, or use one of {', '.join(sorted(prices))}"
        )
    return price


def lacks_price(model: str) -> bool:
    """True for a model that this release knows without a price."""
    name = _DATED.sub("", model)
    return name in SHIPPED and name not in DEFAULTS


def cost(usage: Usage, price: Price) -> Decimal:
    """Dollars for a turn."""
    return price.rates_for(usage.prompt_tokens).cost(usage)


def worst_case(price: Price, prompt: int, answer: int) -> Decimal:
    """Dollars that a turn with so many tokens can cost at most, however its prompt is cached."""
    tiers = [price.rates] + ([price.long] if price.long is not None and prompt > price.long_over else [])
    return max((prompt * each.dearest_input + answer * each.output) / MILLION for each in tiers)


# --- configuration -------------------------------------------------------------------------------------------


def prices_from(configured: Json, defaults: Mapping[str, Price] = DEFAULTS) -> dict[str, Price]:
    """Return the defaults updated by the configuration: `{model: {input, output, ...}}`, dollars for a million tokens.

    Defaults: a cache write costs 1.25 times the input (2 times for an hour), a read as much as the input, the context
    is 1,000,000 tokens. `long: {over, input, output, ...}` is for long prompts. Raises `InvalidPrice`.
    """
    if not isinstance(configured, dict):
        raise InvalidPrice("prices are an object with one entry for each model")
    return {**defaults, **{str(model): _price(str(model), given) for model, given in configured.items()}}


def _price(model: str, given: Json) -> Price:
    _known(model, given, {item.name for item in fields(Rates)} | {"context", "long"})
    context, long = given.get("context", 1_000_000), given.get("long")
    if long is not None:
        _known(f"{model}.long", long, {item.name for item in fields(Rates)} | {"over"})
    over = 0 if long is None else long.get("over")
    for name, number in (("context", context), ("long.over", over)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidPrice(f"the price of {model}: {name} must be a number of tokens, not {number!r}")
    dearer = None if long is None else _configured(f"{model}.long", long)
    return Price(_configured(model, given), context, dearer, over, "configured")


def _known(model: str, given: Json, names: set[str]) -> None:
    if not isinstance(given, dict):
        raise InvalidPrice(f"the price of {model} must be an object with input and output")
    for name in given:
        if name not in names:
            raise InvalidPrice(f"the price of {model} has {name!r}; it may have {', '.join(sorted(names))}")


def _configured(model: str, given: Json) -> Rates:
    told = {
        item.name: _dollars(model, item.name, given[item.name])
        for item in fields(Rates)
        if item.name in given
    }
    for name in ("input", "output"):
        if name not in told:
            raise InvalidPrice(f"the price of {model} has no {name}")
    plain = told["input"]
    usual = {"cache_write": plain * Decimal("1.25"), "cache_write_1h": plain * 2, "cache_read": plain}
    return Rates(**{**usual, **told})


def _dollars(model: str, name: str, given: Json) -> Decimal:
    try:
        dollars = Decimal(str(given)) if isinstance(given, int | float | str) and given is not True else None
    except InvalidOperation:
        dollars = None
    if dollars is None or not dollars.is_finite() or dollars < 0:
        raise InvalidPrice(
            f"the price of {model}: {name} must be dollars for a million tokens, not {given!r}"
        )
    return dollars
