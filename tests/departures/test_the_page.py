"""The page of departures: made from the figures kept, whose claims hold."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from config.site.manual import pages as manual
from tests.departures import page
from tests.departures.curves import plots_of
from tests.departures.figures import FIGURES, Measured, at_least, kept, share
from tests.departures.runs import LOADS, MAIN, SHIPPED

SVG = "{http://www.w3.org/2000/svg}"
FACTS = kept()


def test_the_page_says_what_the_figures_say() -> None:
    assert (page.DOCS / f"{page.PAGE}.md").read_text() == page.text_of(FACTS)


@pytest.mark.parametrize(("name", "drawing"), plots_of(FACTS).items(), ids=plots_of(FACTS))
def test_each_plot_is_drawn_from_the_figures_and_tells_what_it_shows(
    name: str, drawing: str
) -> None:
    assert (page.DOCS / "departures" / f"{name}.svg").read_text() == drawing
    root = ElementTree.fromstring(drawing)
    for part in ("title", "desc"):
        found = root.find(f"{SVG}{part}")
        assert found is not None and found.text
    assert "style" not in drawing, "the site's policy allows no style in the page"


def test_the_manual_shows_the_plots_within_the_page() -> None:
    html = manual.chapters()[page.PAGE].html

    assert html.count("<svg ") == len(plots_of(FACTS))
    assert "<img" not in html


def test_the_claims_of_the_page_are_kept() -> None:
    main = FACTS[MAIN]
    noticed = [row.in_time for row in main.rows if row.kind == "notice"]
    promised = [row.spare for row in main.rows if row.kind in ("notice", "kill-switch")]

    assert share(row.in_time for row in main.rows) >= 0.94
    assert share(noticed) >= 0.99
    assert all(spare is not None and spare >= 0 for spare in promised)
    assert page.requeue_share(main.rows) <= 0.34
    assert main.wrong == ()


@pytest.mark.parametrize("name", [each for each in (MAIN, SHIPPED) if each in FACTS])
def test_no_second_is_billed_twice_or_not_at_all(name: str) -> None:
    run: Measured = FACTS[name]

    assert [row for row in run.rows if row.twice_ms or row.unbilled_ms] == []
    assert all(row.charged_right for row in run.rows if not row.trouble)
    assert run.wrong == ()


def test_a_page_of_fewer_departures_says_so() -> None:
    main = FACTS[MAIN]
    few = replace(main, rows=main.rows[:6])

    text = page.text_of({MAIN: few})

    assert "of 6 departures of 200 that are planned went on" in text
    assert "Not measured yet." in text


def test_a_share_is_shown_by_many_only() -> None:
    assert at_least([True] * 10) < 0.94 < at_least([True] * 200)
    assert at_least([True] * 200) > 0.98
    assert at_least([]) == 0


def test_no_figure_is_kept_of_where_it_was_measured() -> None:
    assert not re.search(r'"/\w', FIGURES.read_text())
    assert list(LOADS) == sorted(LOADS)
