"""Each record of a month against the next: what is planted is found, what has a reason has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from ledger.domain.periods import Period
from ledger.domain.reconciling import Difference, unexplained
from ledger.following import follow_projections
from ledger.projections import PROJECTIONS as OF_LEDGER
from ledger.reconciling import reconcile
from metering.models import Interval
from tests.conftest import NOON
from tests.metering.world import HOST, LEASE, OWNER, World, interval, minute, share

pytestmark = pytest.mark.django_db
MONTH = Period.of(NOON)
KEPT = timedelta(days=62)


@pytest.fixture
def used(world: World) -> World:
    """An hour of one GPU, proved, rated, charged and told in every table."""
    world.fund()
    world.hold(MONTH_OF_NOON, 1)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)
    world.report("started", 0)
    world.send(*(interval(n + 1, n, n + 1) for n in range(60)), now=minute(61))
    world.report("stopped", 60)
    world.over(minute(60))
    world.close(minute(62))
    told(world)
    return world


MONTH_OF_NOON = MONTH.window.__class__(NOON, minute(60))


def told(world: World) -> None:
    while follow_projections(world.store, OF_LEDGER):
        pass


LATER = minute(600)


def found(now: datetime = LATER) -> list[Difference]:
    """Return what differs, but for the invoice that is issued at the month's end."""
    legs = reconcile(MONTH, now=now)
    ours = [leg for leg in legs if leg.name != "journal-invoices"]
    return [each for leg in ours for each in leg.differences]


def planted(sql: str, *values: str | UUID) -> None:
    """Change what no code of ours would."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql, values)
        assert cursor.rowcount
        cursor.execute("SET LOCAL session_replication_role = origin")


def test_a_month_in_order_differs_in_nothing(used: World) -> None:
    legs = reconcile(MONTH, now=minute(600))

    differing = {(leg.name, each.reason) for leg in legs for each in leg.differences}
    assert differing == {("journal-invoices", "in-flight")}, "its invoice is issued at its end"
    by_name = {leg.name: leg for leg in legs}
    assert sum(pair.one for pair in by_name["samples-windows"].pairs) == 3_600_000
    assert sum(pair.other for pair in by_name["windows-charges"].pairs) == 3_600_000
    assert len(by_name["windows-charges"].pairs) == 6


PLANTED: dict[str, tuple[str, str]] = {
    "a sample is gone": (
        "DELETE FROM metering_interval WHERE seq = 7",
        "Samples and usage windows: +60,000 GPU ms",
    ),
    "a window says more than was proved": (
        "UPDATE metering_usagerow SET granted_ms = granted_ms + 1 WHERE key = "
        "(SELECT min(key) FROM metering_usagerow)",
        "Samples and usage windows: +1 GPU ms",
    ),
    "a window is not charged": (
        "DELETE FROM ledger_usagechargerow WHERE entry_id = "
        "(SELECT min(entry_id::text)::uuid FROM ledger_usagechargerow)",
        "Usage windows and charges: -600,000 GPU ms",
    ),
    "a charge is of other use": (
        "UPDATE ledger_usagechargerow SET gpu_millis = gpu_millis + 5 WHERE entry_id = "
        "(SELECT min(entry_id::text)::uuid FROM ledger_usagechargerow)",
        "Usage windows and charges: +5 GPU ms",
    ),
    "something is charged that nobody rated": (
        "DELETE FROM metering_usagerow WHERE key = (SELECT max(key) FROM metering_usagerow)",
        "Usage windows and charges: +600,000 GPU ms",
    ),
    "an entry takes another amount than its charge": (
        "UPDATE ledger_usagechargerow SET charged_nanos = charged_nanos + 1 WHERE entry_id = "
        "(SELECT min(entry_id::text)::uuid FROM ledger_usagechargerow)",
        "Charges and the journal: -1 USD nanos",
    ),
    "two charges are wrong by one each way": (
        "UPDATE ledger_usagechargerow SET charged_nanos = charged_nanos + CASE WHEN entry_id = "
        "(SELECT min(entry_id::text)::uuid FROM ledger_usagechargerow) THEN 1 ELSE -1 END "
        "WHERE entry_id IN (SELECT min(entry_id::text)::uuid FROM ledger_usagechargerow "
        "UNION SELECT max(entry_id::text)::uuid FROM ledger_usagechargerow)",
        "the journal takes another amount for this charge",
    ),
    "a posting is gone": (
        "DELETE FROM ledger_postingrow WHERE line_id = (SELECT min(line_id) FROM ledger_postingrow "
        "WHERE kind = 'usage' AND nanos < 0)",
        "Charges and the journal: -",
    ),
    "an account has a nano more": (
        "UPDATE ledger_accountrow SET total_nanos = total_nanos + 1,"
        " available_nanos = available_nanos + 1 WHERE kind = 'prepaid'",
        "The journal and the accounts: +1 USD nanos",
    ),
    "a sum of a statement is off": (
        "UPDATE ledger_postingsumrow SET nanos = nanos + 1 WHERE kind = 'funds' AND nanos > 0",
        "are not those of its postings",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_has_no_reason_and_is_named(used: World, fault: str) -> None:
    sql, words = PLANTED[fault]
    planted(sql)

    wrong = [each for each in found() if each.reason == "unexplained"]

    assert any(words in each.words for each in wrong), wrong


def test_a_charge_that_is_still_to_come_is_in_flight_for_an_hour(used: World) -> None:
    planted(PLANTED["a window is not charged"][0])

    soon = [each.reason for each in found(minute(61)) if each.unit == "GPU ms"]
    later = [each.reason for each in found(minute(200)) if each.unit == "GPU ms"]

    assert (soon, later) == (["in-flight"], ["unexplained"])


def test_samples_that_are_not_kept_any_more_are_aged(used: World) -> None:
    Interval.objects.filter(lease_id=LEASE).delete()

    assert {each.reason for each in found(NOON + KEPT)} == {"aged"}
    assert {each.reason for each in found(NOON + KEPT - timedelta(days=2))} == {"unexplained"}


def test_what_is_proved_late_is_late_until_it_is_corrected(used: World) -> None:
    planted(
        "UPDATE metering_usagerow SET granted_ms = granted_ms - 60000 WHERE granted_ms > 0"
        " AND key = (SELECT min(key) FROM metering_usagerow)"
    )
    planted(
        "INSERT INTO metering_lateuse (lease_id, start_ms, end_ms, arrived_at, arrivals)"
        " VALUES (%s, 0, 60000, now(), 1)",
        LEASE,
    )

    assert [each.reason for each in found() if "lease" in each.subject][:1] == ["late"]


def test_use_that_counts_in_another_month_is_late_and_adds_up(used: World) -> None:
    after = "2099-01"
    planted("UPDATE ledger_usagechargerow SET period = %s", after)
    planted("UPDATE ledger_postingrow SET period = %s WHERE kind = 'usage'", after)
    planted("DELETE FROM ledger_postingsumrow WHERE kind = 'usage'")

    of_journal = [each for each in found() if each.unit == "USD nanos" and each.amount]

    assert {each.reason for each in of_journal} == {"late"}


Said = Callable[..., str]


@pytest.fixture
def said() -> Said:
    """The command, and what it printed."""

    def ask(*arguments: str) -> str:
        out = StringIO()
        call_command("reconcile", str(MONTH), *arguments, stdout=out)
        return out.getvalue()

    return ask


def test_the_command_says_what_was_compared_and_is_content(used: World, said: Said) -> None:
    assert "ok   Usage windows and charges: 6 compared" in said()
    assert json.loads(said("--json"))["ok"]


def test_the_command_fails_and_names_what_has_no_reason(used: World, said: Said) -> None:
    planted(PLANTED["an account has a nano more"][0])

    with pytest.raises(CommandError, match=r"without a reason:(\n.*)*account .*: \+1 USD nanos"):
        said()


def test_a_month_that_cannot_be_read_is_refused_in_a_sentence() -> None:
    with pytest.raises(CommandError, match="2026"):
        call_command("reconcile", "2026-13")


def test_nothing_is_unexplained_where_nothing_happened() -> None:
    assert unexplained(reconcile(MONTH, now=NOON)) == []
