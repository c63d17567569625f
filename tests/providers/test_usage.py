"""What the API says that a turn has used, in every shape that it comes in, against a price reckoned by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from engine.decide.agents.budget import paid
from engine.language.codec import Json
from engine.messages.model_limits import AgentFacts
from engine.messages.prices import DEFAULTS, Price, Rates
from engine.messages.stream import Assembly
from engine.models.turn_outcome import completed

SONNET, OPUS = "claude-sonnet-5-5", "claude-opus-5-5"


class Deciding:
    """What is asked of a decision where a price is looked up."""

    class facts:
        """What holds."""

        agents = AgentFacts()


def round_of(kind: str, model: str | None = None, **tokens: Any) -> dict[str, Json]:
    """One of the iterations; what is left out is 0."""
    zero = dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), 0
    )
    return {"type": kind, **({"model": model} if model else {}), **zero, **tokens}


def answer(start: Json, end: Json, model: str = SONNET) -> dict[str, Json]:
    """What the runner of a call says of an answer that was counted so."""
    assembly = Assembly("req_1", model=SONNET)
    assembly.take({"type": "message_start", "message": {"model": model, "usage": start}})
    assembly.take({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}})
    assembly.take({"type": "content_block_stop", "index": 0})
    assembly.take({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end})
    outcome = completed(assembly.finish(), ())
    output: dict[str, Json] = outcome.output  # type: ignore[union-attr]
    return output


PLAIN = {"input_tokens": 1_000, "output_tokens": 1}
HOUR = {
    "input_tokens": 1_000,
    "cache_read_input_tokens": 5_000,
    "cache_creation_input_tokens": 2_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 2_000},
    "output_tokens": 1,
}


@pytest.mark.parametrize(
    ("start", "end", "dollars"),
    [
        # 1,000 at $2, 300 at $10.
        (PLAIN, {"output_tokens": 300}, "0.005"),
        # 1,000 at $2, 5,000 read at $0.10, 2,000 written for an hour at $4, 300 at $10.
        (HOUR, {"output_tokens": 300}, "0.0135"),
        # Totals at the end take the place of those at the beginning: 4,000 at $2.
        (PLAIN, {"input_tokens": 4_000, "output_tokens": 300}, "0.011"),
        # Two rounds of a server tool, and three searches at a cent.
        (
            PLAIN,
            {
                "input_tokens": 3_000,
                "output_tokens": 300,
                "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1},
                "iterations": [
                    round_of("message", input_tokens=1_000, output_tokens=100),
                    round_of("message", input_tokens=2_000, output_tokens=200),
                ],
            },
            "0.039",
        ),
        # The summary's tokens, 9,000 at $2 and 1,000 at $10, are in no total.
        (
            PLAIN,
            {
                "input_tokens": 1_000,
                "output_tokens": 300,
                "iterations": [
                    round_of("compaction", input_tokens=9_000, output_tokens=1_000),
                    round_of("message", input_tokens=1_000, output_tokens=300),
                ],
            },
            "0.033",
        ),
        # Another model continued: 1,000 at $2 and 100 at $10, then 1,100 at $4 and 200 at $20.
        (
            PLAIN,
            {
                "input_tokens": 2_100,
                "output_tokens": 300,
                "iterations": [
                    round_of("message", SONNET, input_tokens=1_000, output_tokens=100),
                    round_of("fallback_message", OPUS, input_tokens=1_100, output_tokens=200),
                ],
            },
            "0.0114",
        ),
        # An adviser of another model: 500 at $4 and 100 at $20 beside 1,000 at $2 and 300 at $10.
        (
            PLAIN,
            {
                "iterations": [
                    round_of("message", input_tokens=1_000, output_tokens=300),
                    round_of("advisor_message", OPUS, input_tokens=500, output_tokens=100),
                ],
            },
            "0.009",
        ),
        # Rounds that do not say for how long they wrote: whoever wrote for an hour once did so always, 2,000 at $4.
        (
            HOUR,
            {
                "output_tokens": 300,
                "iterations": [
                    round_of(
                        "message",
                        input_tokens=1_000,
                        cache_read_input_tokens=5_000,
                        cache_creation_input_tokens=2_000,
                        output_tokens=300,
                    )
                ],
            },
            "0.0135",
        ),
    ],
    ids=["plain", "hour", "totals", "searches", "compaction", "fallback", "advisor", "hour-in-rounds"],
)
def test_a_shape_of_usage_costs_what_it_costs_by_hand(start: Json, end: Json, dollars: str) -> None:
    """Nothing that is billed is left out, and each round counts at the price of its model."""
    output = answer(start, end)
    told = paid(Deciding(), SONNET, output)  # type: ignore[arg-type]
    assert Decimal(told["cost"]) == Decimal(dollars)
    assert told["price"]["of"] == "genai-prices 0.2.3"
    assert told["price"]["rates"] == "2 10 2.5 4 0.1"


def test_the_conversation_is_as_long_as_its_last_round() -> None:
    """The rounds of a server tool read the conversation again and again: it does not grow by that."""
    rounds = [round_of("message", input_tokens=1_000 * n, output_tokens=100) for n in (1, 2)]
    output = answer(PLAIN, {"input_tokens": 3_000, "output_tokens": 200, "iterations": rounds})
    assert (output["context"], output["usage"]["input_tokens"]) == (2_100, 3_000)


def test_prices_are_those_of_the_data_set() -> None:
    """The copy has what the package lists in the version that the copy names."""
    genai = pytest.importorskip("genai_prices", reason="comes with the extra `dev`")
    for model, price in DEFAULTS.items():
        counts = {"input_tokens": 90_000, "output_tokens": 700, "cache_read_tokens": 30_000}
        for hour in (0, 10_000):
            usage = genai.Usage(**counts, cache_write_tokens=20_000, cache_write_1h_tokens=hour)
            theirs = genai.calc_price(usage, model, provider_id="anthropic").total_price
            kinds = (40_000, 700, 30_000, 20_000 - hour, hour)
            assert theirs == _by(price, *kinds), model


def _by(price: Price, plain: int, out: int, read: int, wrote: int, hour: int) -> Decimal:
    rates: Rates = price.rates_for(plain + read + wrote + hour)
    million = (
        plain * rates.input
        + out * rates.output
        + read * rates.cache_read
        + wrote * rates.cache_write
        + hour * rates.cache_write_1h
    )
    return million / 1_000_000
