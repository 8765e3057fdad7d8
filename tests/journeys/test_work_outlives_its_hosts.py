"""One departure of each kind at about the same time: all work goes on elsewhere, billed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.departing import REASONS, SETTINGS, Scene
from tests.journeys.installation import Installation
from tests.journeys.saving_work import CHECKPOINT_SECONDS, KINDS

pytestmark = pytest.mark.xdist_group("journeys-postgres")


@pytest.fixture
def scene(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A market of its own, as its hosts count as gone after seconds."""
    market = Installation(tmp_path_factory.mktemp("departures") / "home", SETTINGS)
    try:
        market.found()
        market.start_all()
        scene = Scene(market, tmp_path)
        yield scene
        scene.end()
    finally:
        market.end_all()


def test_work_goes_on_elsewhere_whatever_takes_its_host_away(scene: Scene) -> None:
    outcomes = scene.round(kinds=KINDS, seconds=(12, 20))

    assert sorted(each.kind for each in outcomes) == sorted(KINDS)
    for each in outcomes:
        assert each.reason == REASONS[each.kind], each
        assert each.resumed_after is not None and each.is_elsewhere, each
        assert each.is_free_in_time is not False, each
        assert each.free_after is not None, each
        assert each.twice_ms == each.unbilled_ms == 0, each
        assert each.is_charged_right, each
        assert each.lost < each.requeue, each
        if each.kind == "notice":
            assert each.lost < CHECKPOINT_SECONDS, each
