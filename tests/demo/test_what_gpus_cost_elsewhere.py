"""The demo tells what pooling saves."""

from __future__ import annotations

from datetime import UTC, datetime

from config.demo.cast import EVERY_MACHINE
from config.demo.elsewhere import PRICES, comparisons
from marketplace.domain.spending.savings import Comparisons, compare, dedicated_per_hour, saved
from metering.agent.gpus.simulated import MODELS, parse_models

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def test_each_gpu_of_the_demo_has_a_price_elsewhere() -> None:
    cards = {model for _, each in EVERY_MACHINE for model in parse_models(each.models)}
    named = {MODELS[each.partition("@")[0]].name.replace(" HBM3", "") for each in cards}

    assert {each.removeprefix("NVIDIA ").replace(" ", "-") for each in named} <= PRICES.keys()


def test_these_prices_are_ones_that_can_be_compared_with() -> None:
    told = list(comparisons("EUR", NOW))

    for terms in told:
        assert compare(Comparisons(), terms) == [terms] and terms.currency == "EUR"
    [a10] = [each for each in told if each.gpu_model == "A10"]
    # 3,400 ÷ (4 × 8,766 h × 0.3) = 0.323218495, and 0.12 to run it
    assert dedicated_per_hour(a10) == 443_218_495
    assert saved(3_600_000, 250_000_000, dedicated_per_hour(a10)) == 193_218_495
