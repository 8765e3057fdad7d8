"""People at the market's pages, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page

from tests.journeys.installation import Installation
from tests.pages.browser import browsing

THING = re.compile(r"/(?:offers|bids|leases)/([0-9a-f-]{36})")


@contextmanager
def signed_in(market: Installation, person: str) -> Iterator[tuple[Page, list[str]]]:
    """Sign in with the demo's one click; yield the page and what it complains about."""
    with browsing() as (_, page, complaints):
        page.goto(f"{market.url}/accounts/login/")
        page.get_by_role("button", name=person).click()
        page.wait_for_url(f"{market.url}/")
        yield page, complaints


def id_in(page: Page) -> str:
    """Return the id of the thing that an open page is of."""
    found = THING.search(page.url)
    assert found is not None, page.url
    return found[1]
