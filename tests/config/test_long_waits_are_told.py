"""Use that is not rated or charged for long is a warning, and no reason to take the site off."""

from __future__ import annotations

import pytest

from config.operations import health


@pytest.mark.django_db
@pytest.mark.parametrize(("lagging", "uncharged"), [(0, 0), (2, 0), (0, 3)])
def test_a_long_wait_is_a_warning_and_the_site_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, lagging: int, uncharged: int
) -> None:
    monkeypatch.setattr(health, "findings", lambda: iter([health.Finding("database", True)]))
    monkeypatch.setattr(health, "lagging_meters", lambda **given: ["a lease"] * lagging)
    monkeypatch.setattr(health, "uncharged_windows", lambda **given: uncharged)

    status, body = health.readiness()

    wanted = {"usage is rated": lagging, "use is charged": uncharged}
    assert (status, body["status"]) == (200, "ready")
    assert isinstance(body["warnings"], dict)
    assert set(body["warnings"]) == {name for name, count in wanted.items() if count}
