"""Every table of this folder, played through the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.markets import Scenario, play, scenarios

SCENARIOS = list(scenarios(Path(__file__).parent))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.title)
def test_the_market_ends_as_the_table_says(scenario: Scenario) -> None:
    assert scenario.expected, "a scenario says how it ends"

    assert play(scenario) == list(scenario.expected)
