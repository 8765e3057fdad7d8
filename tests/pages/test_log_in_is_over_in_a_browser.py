"""A page that is open while its log-in ends goes to the log-in, and from there back to itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page

from tests.pages.browser import browsing, enter, served
from tests.pages.world import PLATFORM, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]

CLOSE_SOCKET = "document.querySelector('[hx-ws\\\\:connect]')._htmx.ws.connection.socket.close()"


@pytest.fixture
def site(committed_store: None, tmp_path: Path) -> Iterator[tuple[World, str]]:
    world = World()
    world.found()
    with served(tmp_path / "site.log") as address:
        yield world, address


def asked_to_sign_in(page: Page) -> str:
    """Wait for the log-in page; return where it leads back to."""
    page.wait_for_url("**/accounts/login/**", timeout=20_000)
    assert page.locator("h1").count() == 1, "the log-in page was put into a part of another"
    return parse_qs(urlsplit(page.url).query)["next"][0]


def test_a_page_comes_back_to_itself_by_its_parts_and_by_its_socket(
    site: tuple[World, str], tmp_path: Path
) -> None:
    world, address = site
    member = world.member(PLATFORM, "operator")
    with browsing() as (context, page, _complaints):
        enter(context, address, member.cookies)
        page.goto(f"{address}/ops?from=test")  # a part of it refreshes itself every five seconds
        context.clear_cookies()
        assert asked_to_sign_in(page) == "/ops?from=test"

        enter(context, address, member.cookies)
        page.goto(f"{address}/?within=day")
        page.wait_for_selector(".link[data-state=live]")
        context.clear_cookies()
        page.evaluate(CLOSE_SOCKET)
        assert asked_to_sign_in(page) == "/?within=day"
