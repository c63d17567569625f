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


def ends(*rounds: dict[str, Json], **more: Any) -> dict[str, Json]:
    """How the API ends an answer of 300 tokens, which it may have made in rounds."""
    return {"output_tokens": 300, **({"iterations": list(rounds)} if rounds else {}), **more}


PLAIN = {"input_tokens": 1_000, "output_tokens": 1}
CACHED = {"cache_read_input_tokens": 5_000, "cache_creation_input_tokens": 2_000}
HOUR = {
    **PLAIN,
    **CACHED,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 2_000},
}
WHOLE = round_of("message", input_tokens=1_000, output_tokens=300)
FIRST, SECOND = (round_of("message", input_tokens=1_000 * n, output_tokens=100 * n) for n in (1, 2))
SEARCHES = {"web_search_requests": 3, "web_fetch_requests": 1}
SUMMARY = round_of("compaction", input_tokens=9_000, output_tokens=1_000)
BEFORE = round_of("message", SONNET, input_tokens=1_000, output_tokens=100)
AFTER = round_of("fallback_message", OPUS, input_tokens=1_100, output_tokens=200)
ADVICE = round_of("advisor_message", OPUS, input_tokens=500, output_tokens=100)
SHAPES: dict[str, tuple[Json, Json, str]] = {
    "1,000 at $2, 300 at $10": (PLAIN, ends(), "0.005"),
    "5,000 read at $0.10 too, 2,000 written for an hour at $4": (HOUR, ends(), "0.0135"),
    "totals at the end count, and not those at the beginning: 4,000 at $2": (
        PLAIN,
        ends(input_tokens=4_000),
        "0.011",
    ),
    "two rounds of a server tool, and three searches at a cent": (
        PLAIN,
        ends(FIRST, SECOND, input_tokens=3_000, server_tool_use=SEARCHES),
        "0.039",
    ),
    "a summary, 9,000 at $2 and 1,000 at $10, is in no total": (
        PLAIN,
        ends(SUMMARY, WHOLE, input_tokens=1_000),
        "0.033",
    ),
    "another model continued: 1,000 at $2 and 100 at $10, then 1,100 at $4 and 200 at $20": (
        PLAIN,
        ends(BEFORE, AFTER, input_tokens=2_100),
        "0.0114",
    ),
    "an adviser of another model: 500 at $4 and 100 at $20": (
        PLAIN,
        {"iterations": [WHOLE, ADVICE]},
        "0.009",
    ),
    "rounds that do not say for how long they wrote: an hour once is an hour always": (
        HOUR,
        ends({**WHOLE, **CACHED}),
        "0.0135",
    ),
}
"""What the API says at the beginning and at the end of an answer, and what it costs."""


@pytest.mark.parametrize(("start", "end", "dollars"), SHAPES.values(), ids=SHAPES)
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
