"""A lease that has not begun on a host that says less of itself now: its work goes elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.domain.ids import HostId
from ledger.domain.money import NANOS_PER_UNIT, Money
from listings.domain.events import HostRegistered
from marketplace.commands.losses import end_if_falling_short
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import Workload
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.market import MARKET, OWNER, named, somebody
from tests.marketplace.support.site import HOUR

HOSTS = ("a", "b")
TWO = NOON + 2 * HOUR
WINDOW = {"earliest_start": TWO, "deadline": TWO + 4 * HOUR}
"""A fixed window: what goes elsewhere has to begin when the first would have."""
SAYS = ("full", "files", "network-none", "secrets")


@pytest.fixture
def site() -> Going:
    site = Going()
    for number, word in enumerate(HOSTS, 1):
        host_id = HostId(named(f"host {word}"))
        registered = HostRegistered(
            host_id=host_id,
            tenant_id=OWNER,
            title=word,
            market=MARKET,
            region="eu",
            labels=(),
            source="local",
            at=NOON,
        )
        site.put(f"host-{host_id}", registered)
        site.agent(word, *SAYS)
        site.offer(word, gpus=2, at=number, windows=[(NOON, NOON + timedelta(days=60))])
    return site


def look(site: Going, number: int = 1) -> str | None:
    """Look once at the lease of a bid, and let follow what follows."""
    lease = site.lease_at(number)
    (host_id,) = lease.hosts
    lacked = end_if_falling_short(
        site.store, lease_id=lease.terms.lease_id, host_id=host_id, by=somebody(), now=site.now
    )
    if site.lease_at(number).state == "ending":
        site.clock(site.lease_at(number))
    if site.lease_at(number).over:
        site.settle(number)
    site.go()
    site.go()
    return lacked


@pytest.mark.parametrize(
    ("query", "lost"), [("sandbox>=full", "full"), ("network=none", "network-none")]
)
def test_the_work_goes_to_another_host_in_the_window_of_its_bid(
    site: Going, query: str, lost: str
) -> None:
    site.want(resume=True, request=read_query(query), **WINDOW)
    assert site.lease_at(1).hosts == {named("host a")}

    site.agent("a", *(word for word in ("account", *SAYS[1:]) if word != lost))
    lacked = look(site)

    assert lacked == query.partition(">")[0].partition("=")[0]
    assert site.lease_at(1).ending_reason == close_reasons.HOST_FALLS_SHORT
    second = site.lease_at(2)
    assert second.hosts == {named("host b")}
    assert (second.starts_at, second.ends_at) == (TWO, TWO + 4 * HOUR)
    # Eight GPU-hours at the floor of the second host, and nothing for the first.
    assert site.held() == Money(16 * NANOS_PER_UNIT)


def test_work_that_was_asked_for_but_has_not_begun_goes_elsewhere_too(site: Going) -> None:
    site.want(resume=True, workload=Workload("other", outputs=("out/",)))
    site.clock(site.lease_at(1))
    assert site.lease_at(1).state == "starting"

    site.agent("a", "full", "network-none")

    assert look(site) == "abilities"
    assert site.lease_at(1).ending_reason == close_reasons.HOST_FALLS_SHORT
    assert site.lease_at(2).hosts == {named("host b")}


def test_a_bid_that_does_not_resume_gets_its_money_back_and_nothing_follows(site: Going) -> None:
    site.want(request=read_query("sandbox>=full"), **WINDOW)
    site.agent("a", "account")

    assert look(site) == "sandbox"

    assert site.at(2) is None
    assert site.held() == Money(0)


def test_work_that_has_begun_goes_on(site: Going) -> None:
    site.want(resume=True, request=read_query("sandbox>=full"))
    site.begin()
    site.agent("a", "account")

    assert look(site) is None
    assert site.lease_at(1).state == "active"


@pytest.mark.parametrize("says", [SAYS, ("container", *SAYS[1:], "podman")])
def test_a_host_that_says_as_much_or_more_keeps_its_lease(
    site: Going, says: tuple[str, ...]
) -> None:
    site.want(resume=True, request=read_query("sandbox>=full network=none"), **WINDOW)
    site.agent("a", *says)

    assert look(site) is None
    assert site.lease_at(1).state == "scheduled"
