"""Every read model equals its rebuild from event 0, byte for byte (I5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, groupby
from uuid import uuid4

import pytest
from django.db import connection, transaction
from pytest_django.plugin import DjangoDbBlocker

import listings.policies
import marketplace.policies
import metering.policies
from bursting.domain.events import BurstDeferred, HomeMoveAsked, StrayFound
from config.demo.founding import found
from config.demo.pump import Pump
from config.demo.seeding import found_platform
from config.demo.week import Week
from config.env import Env
from config.wiring import projections
from ledger import following, rebuilding
from ledger.domain.closing_events import PeriodClosed
from ledger.domain.connect_events import (
    BankPayoutSeen,
    StripeAccountAsked,
    StripeAccountMade,
    TransferReversalAsked,
)
from ledger.domain.depletion_events import AccountRunsOut
from ledger.domain.dispute_events import DisputeOpened, DisputeSaid
from ledger.domain.event import Event
from ledger.domain.export_deliveries import ExportsDelivered
from ledger.domain.export_events import ExportAsked
from ledger.domain.export_plans import (
    ExportsPlanned,
    PlannedExportsBrought,
    PlannedExportsDue,
)
from ledger.domain.gl_mapping import GlMappingSet
from ledger.domain.ids import BidId
from ledger.domain.invoice_events import BillingDetailsSet, CreditNoteAsked, InvoiceIssued
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.paper_events import StatementIssued
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payout_events import BankFileWritten, PayoutRequested
from ledger.domain.self_billing_events import SelfBillingAgreed
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Expect, NewEvent, Recorded
from ledger.eventstore.postgres import PostgresStore
from ledger.following import Projection, follow_projections
from ledger.models import Checkpoint
from ledger.rebuilding import RebuildRunning, fingerprint, rebuild
from ledger.rows import Rows
from marketplace.domain.facts.events import BidAwaitsMoney, BidPlaced, LeaseScheduled
from marketplace.domain.facts.price_events import LeasePriceProposed, LeaseRepriced
from marketplace.domain.spending.events import (
    ComparisonSet,
    SpendingBudgetSet,
    SpendingDrawn,
    SpendingGrantAsked,
    SpendingThresholdMet,
)
from metering.domain.events import GpuUse, MeterGapFound, UsageCorrected
from metering.domain.idle_events import IdleRuleSet, IdleWarned
from tests.access import world
from tests.conftest import NOON, SOMEBODY
from tests.contracts.stored import example
from tests.ledger.used_wallet import use_wallet

pytestmark = pytest.mark.django_db(transaction=True)

PROJECTIONS = projections()
TABLES = [table for projection in PROJECTIONS for table in projection.tables]
PAGES = (1, 7, 61, 211, 3, 499)
"""Odd sizes, so that the follower's pages end in the middle of what belongs together."""
PATIENCE_SECONDS = 60

SHAPES = """
SELECT 'index', tablename, indexname, indexdef FROM pg_indexes
 WHERE schemaname = 'public' AND tablename = ANY(%(tables)s)
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
  FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text = ANY(%(tables)s)
UNION ALL
SELECT 'column', table_name, column_name,
       concat_ws(' ', data_type, character_maximum_length, is_nullable, column_default,
                 is_identity)
  FROM information_schema.columns
 WHERE table_schema = 'public' AND table_name = ANY(%(tables)s)
ORDER BY 1, 2, 3
"""


@pytest.fixture(scope="module")
def days(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Recorded]:
    """What happens in two days of the demo: bids, leases, use, charges, reclaims, refunds."""
    policies = (
        *listings.policies.POLICIES,
        *marketplace.policies.policies(fee_ppm=50_000),
        *metering.policies.POLICIES,
    )
    draft = MemoryStore()
    pump = Pump(draft, policies)
    before = NOON - timedelta(days=2, hours=1)
    found_platform(draft, Env(), before)
    with django_db_blocker.unblock(), transaction.atomic():
        home = tmp_path_factory.mktemp("home")
        found(draft, home=home, market="main", currency="USD", now=before)
        transaction.set_rollback(True)  # the cast's people are rows, and other modules know none
    pump.run()
    with pytest.MonkeyPatch.context() as shorter:
        shorter.setattr("config.demo.week.DAYS", 2)
        Week(draft, pump, market="main", currency="USD", ends_at=NOON).run()
    return list(draft.read_all(limit=1_000_000).events)


@pytest.fixture
def store(committed_store: None) -> EventStore:
    return PostgresStore()


def write(store: EventStore, events: Sequence[Recorded]) -> None:
    """Append them as they came: what one request did to one stream in one append."""
    for (stream, _), run in groupby(events, key=lambda one: (one.stream, one.meta_data)):
        together = list(run)
        fresh = [NewEvent(one.id, one.event) for one in together]
        store.append(stream, fresh, expected=Expect.ANY, by=together[0].meta)


def write_what_is_rare(store: EventStore, days: Sequence[Recorded]) -> None:
    """Add what two days of the demo leave out: a rented instance, a gap, a bid that may spill, a
    lease that is idle, work that comes home, a month that is closed, a wallet that cards fill.
    """
    world.found("renter")
    use_wallet(store)
    lease = next(e for r in days if isinstance(e := r.event, LeaseScheduled))
    window = Window(lease.window.starts_at, lease.window.starts_at + timedelta(seconds=30))
    gpu_uuid = lease.shares[0].gpu_uuids[0]
    gap = MeterGapFound(lease_id=lease.lease_id, gpu_uuid=gpu_uuid, window=window, at=NOON)
    share = lease.shares[0]
    proved = UsageCorrected(
        lease_id=lease.lease_id,
        number=1,
        window=window,
        reason="host-late",
        gpus=(GpuUse(gpu_uuid, share.host_id, share.owner_id, 30_000, 30_000, None, -30_000),),
        at=NOON,
    )
    add(store, f"meter-{lease.lease_id}", gap, proved)
    bid = next(e for r in days if isinstance(e := r.event, BidPlaced))
    spilling = replace(bid, bid_id=BidId(uuid4()), burst_allowed=True)
    add(store, f"bid-{spilling.bid_id}", spilling)
    stray = example(StrayFound)
    add(store, f"burst-stray-{stray.stray_id}", stray)
    warned = replace(example(IdleWarned), lease_id=lease.lease_id)
    add(store, f"idle-{lease.lease_id}", warned)
    rule = example(IdleRuleSet)
    add(store, f"idle-rule-{rule.rule_id}", rule)
    deferred = replace(example(BurstDeferred), bid_id=spilling.bid_id)
    add(store, f"burst-wait-{spilling.bid_id}", deferred)
    asked = example(HomeMoveAsked)
    add(store, f"burst-home-{asked.lease_id}", asked)
    pay_owners(store)
    running = [r.event for r in days if isinstance(r.event, BidPlaced) and r.event.resume]
    waits = (running or [bid])[0]
    waiting = replace(example(BidAwaitsMoney), bid_id=waits.bid_id, account_id=waits.account_id)
    add(store, f"bid-{waits.bid_id}", waiting)
    short = replace(example(AccountRunsOut), account_id=waits.account_id)
    add(store, f"account-watch-{waits.account_id}", short)
    add(store, f"periods-{PLATFORM_ID}", replace(example(PeriodClosed), period="2020-01"))
    add(store, f"billing-{example(BillingDetailsSet).party_id}", example(BillingDetailsSet))
    issued = replace(example(InvoiceIssued), total_nanos=14)
    add(store, f"invoices-{PLATFORM_ID}", issued, example(CreditNoteAsked))
    add(store, f"statements-{PLATFORM_ID}", example(StatementIssued))
    add(store, f"selfbilling-{PLATFORM_ID}", example(SelfBillingAgreed))
    contested = example(DisputeOpened)
    said = replace(example(DisputeSaid), dispute_id=contested.dispute_id)
    add(store, f"dispute-{contested.dispute_id}", contested, said)
    asked_for = example(ExportAsked)
    add(store, f"export-{asked_for.export_id}", asked_for)
    delivered = example(ExportsDelivered)
    add(store, f"exportdelivery-{delivered.period}", delivered)
    write_how_exports_go(store)
    told = example(NoticeGiven)
    add(store, f"notice-{told.notice_id}", told)
    limit, granted = example(SpendingBudgetSet), example(SpendingGrantAsked)
    drawn, met = example(SpendingDrawn), example(SpendingThresholdMet)
    add(store, f"spending-{limit.tenant_id}", limit, drawn, met, granted)
    write_prices(store, lease)


def write_how_exports_go(store: EventStore) -> None:
    """Add how a general ledger calls accounts, and exports that are brought by a plan."""
    add(store, f"glmapping-{PLATFORM_ID}", example(GlMappingSet))
    planned = example(ExportsPlanned)
    due, brought = example(PlannedExportsDue), example(PlannedExportsBrought)
    add(store, f"exportplan-{planned.plan_id}", planned, due, brought)


def write_prices(store: EventStore, lease: LeaseScheduled) -> None:
    """Add what GPUs cost elsewhere, and another price of a lease that both its sides agreed to."""
    add(store, "comparison-platform", example(ComparisonSet))
    proposed = replace(example(LeasePriceProposed), lease_id=lease.lease_id)
    add(store, f"lease-prices-{lease.lease_id}", proposed)
    add(store, f"lease-{lease.lease_id}", replace(example(LeaseRepriced), lease_id=lease.lease_id))


def pay_owners(store: EventStore) -> None:
    """Add a bank file, and an owner who is paid over Stripe, of whom some is asked back."""
    written = example(BankFileWritten)
    add(store, f"bank-files-{PLATFORM_ID}", written)
    there = replace(example(StripeAccountAsked), country="DE")
    made = replace(example(StripeAccountMade), account_id=there.account_id)
    arrived = replace(example(BankPayoutSeen), account_id=there.account_id)
    paid = replace(example(PayoutRequested), account_id=there.account_id, postings=())
    back = replace(
        example(TransferReversalAsked), account_id=there.account_id, payout_id=paid.payout_id
    )
    add(store, f"payee-{there.account_id}", there, made, arrived, paid, back)


def add(store: EventStore, stream: str, *events: Event) -> None:
    fresh = [NewEvent(uuid4(), event) for event in events]
    store.append(stream, fresh, expected=Expect.ANY, by=SOMEBODY)


def follow(store: EventStore) -> None:
    while follow_projections(store, PROJECTIONS):
        pass
    assert not list(Checkpoint.objects.exclude(error="").values_list("name", "error"))


def prints() -> dict[str, str]:
    return {each.name: fingerprint(each.tables) for each in PROJECTIONS}


def shapes() -> list[tuple[str, ...]]:
    """Return every column, index and constraint of the read models."""
    names = [table._meta.db_table for table in TABLES]
    with connection.cursor() as cursor:
        cursor.execute(SHAPES, {"tables": names})
        return list(cursor.fetchall())


def test_every_read_model_equals_its_rebuild_byte_for_byte(
    store: EventStore, days: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, days)
    write_what_is_rare(store, days)
    for size in cycle(PAGES):
        monkeypatch.setattr(following, "PAGE", size)
        if not follow_projections(store, PROJECTIONS):
            break
    follow(store)
    assert len(set(TABLES)) == len(TABLES), "a table belongs to one projection"
    assert [t.__name__ for t in TABLES if not t._base_manager.exists()] == [], "proves nothing"
    live, built = prints(), shapes()

    for projection in PROJECTIONS:
        rebuild(store, projection)

    assert prints() == live
    assert shapes() == built
    places = Checkpoint.objects.filter(name__in=live).values_list("position", flat=True)
    assert set(places) == {store.head()}

    # Again with so little memory that rows are written, dropped and read back all the time.
    monkeypatch.setattr(rebuilding, "REBUILD_PAGE", 97)
    monkeypatch.setattr(rebuilding, "ROWS_HELD_MAX", 50)
    for projection in PROJECTIONS:
        rebuild(store, projection)

    assert prints() == live


def test_a_rebuild_misses_nothing_while_others_write_and_follow(
    store: EventStore, days: list[Recorded]
) -> None:
    middle = len(days) // 2
    write(store, days[:middle])
    follow(store)
    written, rebuilt = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def alone(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as problem:
                problems.append(problem)
            finally:
                connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write_on() -> None:
        try:
            write(PostgresStore(), days[middle:])
        finally:
            written.set()

    def follow_on() -> None:
        while not (written.is_set() and rebuilt.is_set()):
            follow_projections(PostgresStore(), PROJECTIONS)

    threads = [alone(write_on), alone(follow_on)]
    try:
        during = 0
        while not written.is_set() or not during:
            for projection in PROJECTIONS:
                rebuild(store, projection)
                during += not written.is_set()
    finally:
        rebuilt.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    follow(store)

    assert not problems
    assert during, "every rebuild came after the last write"
    live = prints()
    for projection in PROJECTIONS:
        rebuild(store, projection)
    assert prints() == live


def test_a_rebuild_that_fails_leaves_the_live_rows_and_goes_well_the_next_time(
    store: EventStore, days: list[Recorded]
) -> None:
    write(store, days[:400])
    follow(store)
    live, built, failed = prints(), shapes(), set[str]()
    for projection in PROJECTIONS:
        told = 0

        def fail_late(recorded: Recorded, rows: Rows, real: Projection = projection) -> None:
            nonlocal told
            real.project(recorded, rows)
            told += 1
            if told == 3:
                failed.add(real.name)
                rows.flush()  # what was projected so far is in the new tables
                raise ValueError("three")

        with suppress(ValueError):
            rebuild(store, replace(projection, project=fail_late))

        assert (prints(), shapes()) == (live, built)
        assert Checkpoint.objects.get(name=projection.name).position == store.head()
    assert len(failed) > len(PROJECTIONS) / 2
    with connection.cursor() as cursor:
        cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rebuild%%'")
        assert cursor.fetchall() == []
        cursor.execute("SHOW search_path")
        assert cursor.fetchone() == ('"$user", public',)

    rebuild(store, PROJECTIONS[0])
    assert prints() == live


def test_two_rebuilds_of_one_read_model_at_once_are_refused(
    store: EventStore, days: list[Recorded]
) -> None:
    write(store, days[:200])
    follow(store)
    live, second = prints(), list[type[BaseException]]()
    projection = PROJECTIONS[0]

    def rebuild_too() -> None:
        try:
            rebuild(PostgresStore(), projection)
        except RebuildRunning as refused:
            second.append(type(refused))
        finally:
            connection.close()

    def meet_another(recorded: Recorded, rows: Rows) -> None:
        if not second:
            thread = threading.Thread(target=rebuild_too)
            thread.start()
            thread.join(PATIENCE_SECONDS)
        projection.project(recorded, rows)

    rebuild(store, replace(projection, project=meet_another))

    assert second == [RebuildRunning]
    assert prints() == live
