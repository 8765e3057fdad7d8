"""Rules on idle leases: on the forms of a bid, of an organisation, and on the page of a lease."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from ledger.domain.ids import HostId, LeaseId
from marketplace.commands import leases
from marketplace.models import BidRow, LeaseRow
from metering.domain.idle_events import IdleTerms
from metering.idling import watch_idle_leases
from metering.models import IdleRow, IdleRuleRow, Interval
from metering.queries.idle import rule_of
from tests.pages.bid_form import form
from tests.pages.browser import browsing, enter, faults, served
from tests.pages.leased import begin, leased
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, World

HALF_AN_HOUR = IdleTerms(after_seconds=1800)


def quiet(row: LeaseRow, now: datetime, minutes: int) -> None:
    """Note what agents would have told of GPUs on which nothing happened."""
    end_ms = int(now.timestamp() * 1000)
    for gpu_uuid in row.gpu_uuids:
        for number in range(minutes):
            until_ms = end_ms - number * 60_000
            Interval.objects.create(
                host_id=row.host_ids[0],
                boot_id=UUID(int=1),
                seq=uuid4().int % 2**31,
                lease_id=row.lease_id,
                gpu_uuid=gpu_uuid,
                start_ms=until_ms - 60_000,
                end_ms=until_ms,
                occupied_ms=60_000,
                busy_ms=600,
                memory_used_mib=1_000,
                cpu_ms=900,
                io_bytes=0,
                net_bytes=2_000,
                late_ms=0,
                received_at=datetime.fromtimestamp(until_ms / 1000, now.tzinfo),
            )


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["/bids/new", "/run"])
def test_a_rule_is_placed_with_its_bid_and_comes_to_its_lease(world: World, where: str) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    assert "End when idle for" in html(consumer.get(where).content)

    assert consumer.post(where, form(idle_minutes="30")).status_code == 302
    world.settle()

    bid = BidRow.objects.get()
    assert bid.end_when_idle_seconds == 1800
    assert rule_of(bid.bid_id) == HALF_AN_HOUR
    shown = consumer.get(f"/api/v1/bids/{bid.bid_id}/idle-rule").json()
    assert (shown["after_seconds"], shown["busy_percent"]) == (1800, 5)
    row = begin(world, LeaseRow.objects.get(), began=timezone.now())
    assert "this bid's rule: after 30 min" in html(consumer.get(f"/leases/{row.pk}").content)


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["/bids/new", "/run"])
def test_the_network_that_work_needs_is_chosen_on_the_form(world: World, where: str) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    assert "No way out" in html(consumer.get(where).content)

    twice = consumer.post(where, form(network="open", query="network=none"))
    assert consumer.post(where, form(network="none")).status_code == 302
    world.settle()

    assert twice.status_code == 422
    assert "Leave network= out here." in html(twice.content)
    assert BidRow.objects.get().query.endswith("network=none")


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["/bids/new", "/run"])
def test_a_promise_of_service_is_asked_for_on_the_form(world: World, where: str) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    assert "Promised to start within" in html(consumer.get(where).content)

    twice = consumer.post(where, form(starts_within="60", query="starts<=5m"))
    again = consumer.post(where, form(availability="99", query="availability>=0.9"))
    none = consumer.post(where, form(starts_within="0"))
    placed = consumer.post(where, form(starts_within="90", availability="99.95"))
    world.settle()

    assert (twice.status_code, again.status_code, none.status_code) == (422, 422, 422)
    assert "Leave starts" in html(twice.content)
    assert "The availability is asked for beside it." in html(again.content)
    assert placed.status_code == 302
    assert BidRow.objects.get().query.endswith("starts<=90s availability>=0.9995")


@pytest.mark.django_db
@pytest.mark.parametrize("minutes", ["4", "721", "soon"])
def test_a_time_that_is_no_rule_is_refused_at_its_field(world: World, minutes: str) -> None:
    consumer = world.member(CONSUMER, "consumer")
    answer = consumer.post("/run", form(idle_minutes=minutes))
    assert answer.status_code == 422
    assert "<details open" in html(answer.content)
    assert not BidRow.objects.exists()


@pytest.mark.django_db
def test_the_rule_of_a_bid_is_changed_and_lifted_on_a_leases_page(world: World) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    row = leased(world, consumer, idle_minutes="30")

    for minutes, seconds in (("60", 3600), ("", None), ("45", 2700)):
        consumer.post(f"/leases/{row.pk}/idle/rule", {"minutes": minutes})
        world.settle()
        found = rule_of(row.bid_id)
        assert (None if found is None else found.after_seconds) == seconds


@pytest.mark.django_db
def test_a_rule_that_came_with_its_bid_is_lifted_at_the_first_word(world: World) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    row = leased(world, consumer, idle_minutes="30")

    consumer.post(f"/leases/{row.pk}/idle/rule", {"minutes": ""})
    world.settle()
    assert rule_of(row.bid_id) is None


@pytest.mark.django_db
@pytest.mark.parametrize(("changed", "seconds"), [(None, 1800), ("60", 3600), ("", None)])
def test_a_bid_that_goes_on_from_another_has_the_rule_that_held_there(
    world: World, changed: str | None, seconds: int | None
) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    row = leased(world, consumer, idle_minutes="30", resume="on")
    if changed is not None:
        consumer.post(f"/leases/{row.pk}/idle/rule", {"minutes": changed})
        world.settle()
    leases.lease_failed(
        world.store,
        lease_id=LeaseId(row.pk),
        host_id=HostId(row.host_ids[0]),
        detail="power",
        by=BY,
        now=row.starts_at + timedelta(minutes=50),
    )
    world.settle()

    rest = BidRow.objects.get(chain_number=2)
    assert rest.end_when_idle_seconds == 1800
    found = rule_of(rest.bid_id)
    assert (None if found is None else found.after_seconds) == seconds


@pytest.mark.django_db
def test_an_operator_sets_the_organisations_rule_and_others_read_it(world: World) -> None:
    operator, consumer = world.member(CONSUMER, "operator"), world.member(CONSUMER, "consumer")
    where = "/settings/idle"
    assert where in html(consumer.get("/settings").content)
    assert "There is none" in html(operator.get(where).content)
    said = {"busy_percent": 3, "cpu_cores": "0.25", "disk_mib": "2", "network_mib": "0.5"}

    assert consumer.post(where, {"minutes": 90, **said}).status_code == 403
    assert operator.post(where, {"minutes": 4, **said}).status_code == 422
    assert operator.post(where, {"minutes": 90, **said}).status_code == 302
    world.settle()

    terms = rule_of(world.tenant(CONSUMER))
    assert terms == IdleTerms(
        after_seconds=5400,
        busy_percent=3,
        cpu_millicores=250,
        disk_bytes=2 << 20,
        network_bytes=1 << 19,
    )
    shown = " ".join(html(consumer.get(where).content).split())
    assert "<b>90 minutes</b> on end – GPU busy 3 %, processor 0.25 cores, disk 2 MiB/s" in shown
    assert "90 + 5 = 95 minutes after its last use" in shown
    assert "Set the rule" not in shown
    operator.post(where, {"minutes": "", **said})
    world.settle()
    assert rule_of(world.tenant(CONSUMER)) is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
def test_in_a_browser_an_idle_lease_is_kept_and_its_rule_changed(tmp_path: Any) -> None:
    world = World()
    world.found()
    world.list_gpus(0, 1)
    member = world.member(CONSUMER, "consumer")
    row = leased(world, member, idle_minutes="30")
    wrong: list[str] = []
    with served(tmp_path / "site.log") as site, browsing() as (context, page, said):
        enter(context, site, member.cookies)
        # Only now that the site is there: what is told later than two minutes ago is not idle.
        now = timezone.now()
        quiet(row, now, 31)
        assert watch_idle_leases(world.store, now=now) == 1
        world.settle()
        page.goto(f"{site}/leases/{row.pk}")
        page.get_by_text("Idle: this lease is ended in").wait_for()
        page.get_by_text("min of 30 min").wait_for()
        wrong += faults(page, "light")
        page.get_by_role("button", name="Keep it: count anew").click()
        page.get_by_text("Kept. Its idle time counts anew from now on.").wait_for()
        world.settle()
        kept = IdleRow.objects.get(pk=row.pk)
        assert (kept.release_at, kept.released_at) == (None, None) and kept.kept_at is not None
        page.goto(f"{site}/leases/{row.pk}")
        assert page.get_by_text("Idle: this lease is ended").count() == 0
        page.get_by_label("Idle minutes").fill("60")
        page.get_by_role("button", name="Set", exact=True).click()
        page.get_by_text("Ended after 60 idle minutes and a warning.").wait_for()
        world.settle()
        page.goto(f"{site}/leases/{row.pk}")
        page.get_by_text("after 1 h").first.wait_for()
        wrong += faults(page, "light") + said
        page.goto(f"{site}/bids/new")
        wrong += faults(page, "light")
        page.goto(f"{site}/run")
        page.get_by_text("More options").click()
        page.get_by_label("End when idle for").fill("30")
        wrong += faults(page, "light")
        page.context.clear_cookies()
        enter(context, site, world.member(CONSUMER, "operator").cookies)
        page.goto(f"{site}/settings/idle")
        page.get_by_label("Idle for").fill("120")
        page.get_by_role("button", name="Set the rule").click()
        page.get_by_text("Leases end after 120 idle minutes and a warning.").wait_for()
        world.settle()
        page.goto(f"{site}/settings/idle")
        page.get_by_text("120 + 5 = 125 minutes after its last use").wait_for()
        wrong += faults(page, "light")
    assert IdleRuleRow.objects.count() == 2
    assert wrong == []
