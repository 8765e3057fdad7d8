"""The page of the replays: made from the figures kept, with plots that everybody can read."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from config.site.manual import pages as manual
from tests.simulation import openb_runs, page
from tests.simulation.__main__ import FIGURES
from tests.simulation.curves import plots_of
from tests.simulation.plots import Axis, Series, line_plot, round_marks

SVG = "{http://www.w3.org/2000/svg}"
FACTS = json.loads(FIGURES.read_text())


def test_the_page_says_what_the_figures_say() -> None:
    assert (page.DOCS / "simulation.md").read_text() == page.text_of(FACTS)


@pytest.mark.parametrize(("name", "drawing"), plots_of(FACTS).items(), ids=plots_of(FACTS))
def test_each_plot_is_drawn_from_the_figures_and_tells_what_it_shows(
    name: str, drawing: str
) -> None:
    assert (page.DOCS / "simulation" / f"{name}.svg").read_text() == drawing
    root = ElementTree.fromstring(drawing)
    assert root.get("role") == "img"
    for part in ("title", "desc"):
        found = root.find(f"{SVG}{part}")
        assert found is not None and found.text
    assert "style" not in drawing, "the site's policy allows no style in the page"


def test_the_manual_shows_plots_within_the_page() -> None:
    html = manual.chapters()["simulation"].html

    assert html.count("<svg ") == len(plots_of(FACTS))
    assert "<img" not in html


def test_the_claims_of_the_page_are_kept() -> None:
    head, full = FACTS["headline"], FACTS["filler"]["rows"][-1]
    base, market = head["baseline"], head["market"]

    assert base["u_alloc"] < 0.26
    assert market["u_alloc"] >= 0.60
    assert market["cost"] <= 0.43 * base["cost"]
    for kind in ("wait", "stood"):
        assert page.equal_service(market, base, kind)
    assert market["harm"] <= 0
    fair = page.fair_for_all(FACTS["market-curve"]["rows"])
    assert fair["cost"] <= 0.6 * base["cost"]
    assert full["u_alloc"] >= 0.85
    assert full["wait_p95"] <= base["wait_p95"]
    assert full["late"] <= base["late"]
    assert full["gang_max"] <= base["gang_max"]


def test_the_claims_about_the_product_and_openb_are_kept() -> None:
    product, alone = FACTS["product"]["product"], FACTS["product"]["alone"]
    for kind in ("wait", "stood"):
        assert page.equal_service(product, alone, kind)
    assert product["u_alloc"] >= 0.6
    assert product["cost"] <= 0.43 * alone["cost"]
    assert product["gang_max"] <= alone["gang_max"]
    assert product["u_alloc"] == pytest.approx(FACTS["product"]["model"]["u_alloc"], abs=0.03)
    for row in FACTS["openb"]["rows"]:
        assert openb_runs.equal_service(row["market"], row["alone"])
        assert row["market"]["gpus"] < row["alone"]["gpus"]
        assert row["market"]["gang_max"] * 60 <= openb_runs.WAIT_MAX


def test_no_figure_is_kept_of_where_it_was_measured() -> None:
    assert not re.search(r'"/\w', FIGURES.read_text())


def test_a_line_stays_within_its_frame_and_marks_are_round() -> None:
    drawing = line_plot(
        "t",
        "told",
        Axis("x"),
        Axis("y", top=10.0),
        [Series("a < b", [(0, 1), (5, 1_000), (10, 3)])],
    )

    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawing)]
    assert min(heights) >= 44 - 0.1 and max(heights) <= 340 - 52
    assert "a &lt; b" in drawing
    assert round_marks(0, 97) == [0, 20, 40, 60, 80]
    assert round_marks(0, 0.62) == pytest.approx([0, 0.2, 0.4, 0.6])
