"""What a turn costs, and that the reservation before it is never too small."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages.models import SHIPPED
from engine.messages.money import dollars
from engine.messages.prices import (
    DEFAULTS,
    InvalidPrice,
    UnknownPrice,
    cost,
    lacks_price,
    price_of,
    prices_from,
    worst_case,
)
from engine.messages.turns import Usage

SONNET = DEFAULTS["claude-sonnet-5-5"]
HAIKU = DEFAULTS["claude-haiku-5-5"]


def test_a_turn_costs_what_its_tokens_cost() -> None:
    """Each kind of token has its own price, and nothing is rounded."""
    usage = Usage(1_000, 200, 10_000, 4_000, 1_000)
    dollars = Decimal("0.002") + Decimal("0.002") + Decimal("0.001") + Decimal("0.010") + Decimal("0.004")
    assert cost(usage, SONNET) == dollars
    assert cost(Usage(cache_read_tokens=1), HAIKU) == Decimal("0.00000001")


def test_a_long_prompt_has_its_own_prices() -> None:
    """Over the limit all tokens of the turn cost more, those of the answer too; at the limit they do not."""
    assert cost(Usage(90_000, 1_000, 10_000), HAIKU) == Decimal("0.0096")
    assert cost(Usage(90_000, 1_000, 10_001), HAIKU) == Decimal("0.04800005")
    # So two turns below it cost less than one of their tokens together.
    turns = [Usage(cache_write_1h_tokens=1), Usage(cache_write_1h_tokens=200_000)]
    each = [cost(turn, DEFAULTS["claude-sonnet-4-5"]) for turn in turns]
    assert cost(sum(turns, Usage()), DEFAULTS["claude-sonnet-4-5"]) == 2 * sum(each)


@given(
    st.lists(st.builds(Usage, *[st.integers(0, 10**6)] * 5), max_size=5),
    st.sampled_from(sorted(model for model, price in DEFAULTS.items() if price.long is None)),
)
def test_costs_add_up(usages: list[Usage], model: str) -> None:
    """The cost of the sum is the sum of the costs, to the last digit, where the price has no steps."""
    total = sum(usages, Usage())
    assert cost(total, DEFAULTS[model]) == sum((cost(each, DEFAULTS[model]) for each in usages), Decimal(0))
    assert Usage.from_json(total.to_json()) == total


@given(st.integers(0, 2_000_000), st.integers(1, 128_000), st.data())
def test_no_turn_costs_more_than_was_reserved(prompt: int, answer: int, data: st.DataObject) -> None:
    """However a prompt of so many tokens is written to the cache or read from it, its cost stays below the bound."""
    price = DEFAULTS[data.draw(st.sampled_from(sorted(DEFAULTS)))]
    cuts = sorted(data.draw(st.lists(st.integers(0, prompt), min_size=4, max_size=4)))
    kinds = [b - a for a, b in zip([0, *cuts], cuts, strict=False)]
    used = Usage(kinds[0], data.draw(st.integers(0, answer)), *kinds[1:])
    assert cost(used, price) <= worst_case(price, prompt, answer)


def test_a_price_with_a_step_is_reserved_on_its_dear_side() -> None:
    """A prompt that may be over the limit is reserved at the prices beyond it, a shorter one is not."""
    assert worst_case(HAIKU, 100_001, 500) == Decimal("0.100001") + Decimal("0.00125")
    assert worst_case(HAIKU, 100_000, 500) == Decimal("0.02") + Decimal("0.00025")


def test_a_dated_model_has_the_price_of_its_name() -> None:
    """`claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` costs; a model without a price is an error."""
    assert price_of("claude-haiku-4-5-20251001") == DEFAULTS["claude-haiku-4-5"]
    with pytest.raises(
        UnknownPrice, match="there is no price for gpt: configure one, or use one of claude-fable"
    ):
        price_of("gpt")


def test_prices_are_configuration() -> None:
    """A configured model is added to the defaults or replaces one; what is left out follows from the input's price."""
    prices = prices_from(
        {
            "mine": {"input": 0.3, "output": "1.5", "context": 50_000},
            "claude-sonnet-5-5": {
                "input": 1,
                "output": 2,
                "cache_read": 0.5,
                "long": {"over": 9, "input": 3, "output": 4},
            },
        }
    )
    mine, sonnet = prices["mine"], prices["claude-sonnet-5-5"]
    assert mine.rates.input == mine.rates.cache_read == Decimal("0.3")
    assert mine.rates.cache_write == Decimal("0.375")
    assert mine.rates.cache_write_1h == Decimal("0.6")
    assert mine.context == 50_000
    assert sonnet.rates_for(9).output == 2
    assert sonnet.rates_for(10).output == 4
    assert prices["claude-opus-5-5"] == DEFAULTS["claude-opus-5-5"]


@pytest.mark.parametrize(
    ("configured", "told"),
    [
        ([], "prices are an object"),
        ({"m": 5}, "the price of m must be an object"),
        ({"m": {"input": 1}}, "the price of m has no output"),
        ({"m": {"input": 1, "output": 2, "inputs": 3}}, "the price of m has 'inputs'; it may have"),
        ({"m": {"input": "much", "output": 2}}, "the price of m: input must be dollars"),
        ({"m": {"input": -1, "output": 2}}, "input must be dollars"),
        ({"m": {"input": True, "output": 2}}, "input must be dollars"),
        ({"m": {"input": "NaN", "output": 2}}, "input must be dollars"),
        ({"m": {"input": 1, "output": 2, "context": 1.5}}, "context must be a number of tokens"),
        ({"m": {"input": 1, "output": 2, "long": {"input": 1, "output": 2}}}, "long.over must be a number"),
        (
            {"m": {"input": 1, "output": 2, "long": {"over": 5, "input": 1}}},
            "the price of m.long has no output",
        ),
    ],
)
def test_a_wrong_price_says_what_is_wrong(configured: Any, told: str) -> None:
    """A configuration that cannot be read names the model and the field."""
    with pytest.raises(InvalidPrice, match=told):
        prices_from(configured)


@pytest.mark.parametrize(
    ("amount", "told"),
    [("0", "$0.00"), ("0.00265", "$0.0027"), ("0.01", "$0.01"), ("2.494", "$2.49"), ("1234.5", "$1,234.50")],
)
def test_dollars_are_told_in_cents_and_less_than_a_cent_more_exactly(amount: str, told: str) -> None:
    """An amount that is not nothing does not read as nothing."""
    assert dollars(Decimal(amount)) == told


def test_only_two_known_models_have_no_price() -> None:
    """Of each other model that this release knows it knows the price: a cap in dollars holds for it."""
    assert [model for model in SHIPPED if lacks_price(model)] == ["claude-mythos-5-1", "claude-mythos-5"]
    assert lacks_price("claude-mythos-5-20260101")
    assert not lacks_price("somebody-elses-model")
