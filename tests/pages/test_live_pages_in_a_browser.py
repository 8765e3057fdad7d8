"""What happens while a page has no socket yet, or has lost it, comes onto it all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connections
from playwright.sync_api import BrowserContext, Page, WebSocketRoute

from marketplace.models import BidRow, LeaseRow
from tests.pages.bid_form import form as bid_form
from tests.pages.browser import browsing, enter, served
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]

TRY_AGAIN = 1012
"""A server that restarts closes its sockets with it."""
NO_CLOCK = "window.setInterval = () => 0"
"""Pages ask by the clock, too; here the socket alone is to tell them."""


@pytest.fixture
def waiting(committed_store: None) -> World:
    """A founded market in which a bid waits, since nothing is listed."""
    made = World()
    made.found()
    made.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpu="", gpus="1"))
    made.settle()
    return made


@pytest.fixture
def site(waiting: World, tmp_path: Path) -> Iterator[str]:
    with served(tmp_path / "site.log") as address:
        yield address


class Sockets:
    """The sockets of a page: before each is let through, what is due then happens."""

    def __init__(self, context: BrowserContext, *due: Callable[[], object]) -> None:
        self._due = list(due)
        self._open: list[WebSocketRoute] = []
        context.add_init_script(NO_CLOCK)
        context.route_web_socket("**/ws/market*", self._let_through)

    def _let_through(self, socket: WebSocketRoute) -> None:
        if self._due:
            self._due.pop(0)()
            connections.close_all()  # this runs apart from the test, with connections of its own
        socket.connect_to_server()
        self._open.append(socket)

    def drop(self) -> None:
        """Close the one that is open, as a server does that starts again."""
        self._open.pop().close(code=TRY_AGAIN)


def grant(world: World) -> None:
    world.list_gpus(0, 1)
    world.settle()


def test_a_grant_between_a_bids_page_and_its_socket_comes_onto_it(
    waiting: World, site: str
) -> None:
    consumer = waiting.member(CONSUMER, "consumer")
    bid_id = BidRow.objects.get().bid_id
    with browsing() as (context, page, complaints):
        enter(context, site, consumer.cookies)
        Sockets(context, lambda: grant(waiting))
        page.goto(f"{site}/bids/{bid_id}")

        page.get_by_role("link", name="See how it runs").wait_for()

        assert complaints == []


def test_a_reclaim_while_the_socket_was_lost_comes_onto_the_leases_page(
    waiting: World, site: str
) -> None:
    grant(waiting)
    lease = LeaseRow.objects.get()
    owner, consumer = waiting.member(OWNER, "owner"), waiting.member(CONSUMER, "consumer")

    def reclaim() -> None:
        owner.post(f"/leases/{lease.lease_id}/reclaim")
        waiting.settle()

    with browsing() as (context, page, complaints):
        enter(context, site, consumer.cookies)
        sockets = Sockets(context, lambda: None, reclaim)
        with page.expect_websocket():
            page.goto(f"{site}/leases/{lease.lease_id}")
        assert not page.get_by_role("alert").count()

        sockets.drop()

        page.get_by_role("alert").get_by_text("The owner takes these GPUs back").wait_for()
        assert complaints == []


def test_the_tape_shows_each_line_once_also_when_its_socket_was_lost(
    waiting: World, site: str
) -> None:
    with browsing() as (context, page, complaints):
        enter(context, site, waiting.member(OWNER, "owner").cookies)
        sockets = Sockets(context, lambda: None, lambda: grant(waiting))
        page.goto(site)
        page.get_by_text("Live", exact=True).wait_for()
        assert not leased(page)

        sockets.drop()
        page.locator("#tape").get_by_text("Leased 1").wait_for()
        sockets.drop()
        page.get_by_text("Live", exact=True).wait_for()

        assert leased(page) == 1
        assert complaints == []


def leased(page: Page) -> int:
    return page.locator("#tape").get_by_text("Leased 1").count()
