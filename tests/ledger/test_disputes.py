"""Who paid contests a charge: it is set aside, and somebody who is no party decides."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from ledger import disputing
from ledger.access import Actor
from ledger.commands.disputes import decide_dispute
from ledger.domain import account_ids, disputes
from ledger.domain.dispute_events import Outcome, UseCredited
from ledger.domain.ids import TenantId, UserId
from ledger.domain.journal import usage_entry
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta
from ledger.exports import export
from ledger.following import follow_projections
from ledger.models import DisputeRow, HoldRow, PostingRow
from ledger.projections import PROJECTIONS
from ledger.queries import disputes as queries
from ledger.queries.money import disagreements
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR
from tests.ledger.exported import nanos, rows_of

pytestmark = pytest.mark.django_db
PAYING = UserId(UUID(int=5))
DECIDING = UserId(UUID(int=6))
HOUR_MS = 3_600_000
ENTRY = usage_entry(book.LEASE, book.hours(0))
CONSUMING = Actor(tenant_id=book.CONSUMER, roles=frozenset({"finance"}), user_id=PAYING)
FINANCE = Actor(
    tenant_id=PLATFORM_ID, roles=frozenset({"finance"}), is_platform=True, user_id=DECIDING
)
OWNING = Actor(tenant_id=book.OWNER, roles=frozenset({"owner"}), user_id=UserId(UUID(int=7)))
DISPUTE = disputes.dispute_of(ENTRY)
EARNINGS = account_ids.earnings_account(book.OWNER, "USD")
OTHER_EARNINGS = account_ids.earnings_account(book.OTHER_OWNER, "USD")
FEES = account_ids.fee_account(PLATFORM_ID, "USD")
AFTER = NOON + timedelta(hours=2)


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """An hour of two owners' GPUs, charged."""
    monkeypatch.setattr(book, "PLATFORM", PLATFORM_ID)
    store = MemoryStore()
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, book.usd(100))
    book.hold(store, book.usd(50))
    owners = ((book.OWNER, HOUR_MS), (book.OTHER_OWNER, HOUR_MS))
    book.capture(store, book.hours(0), 2 * HOUR_MS, owners=owners)
    follow(store)
    return store


def follow(store: MemoryStore) -> None:
    while follow_projections(store, PROJECTIONS):
        pass
    assert disagreements() == []


def contest(store: MemoryStore, *, used: int = HOUR_MS, reason: str = "it stood still") -> None:
    disputing.contest(
        store, CONSUMING, ENTRY, used_millis=used, reason=reason, by=SOMEBODY, now=AFTER
    )
    follow(store)


def decide(store: MemoryStore, outcome: Outcome, actor: Actor = FINANCE) -> None:
    disputing.decide(store, actor, DISPUTE, outcome, reason="looked at", by=SOMEBODY, now=AFTER)
    follow(store)


def test_what_is_contested_is_set_aside_from_those_who_earned_it(charged: MemoryStore) -> None:
    earned = book.totals(charged)

    contest(charged)
    contest(charged)

    row = DisputeRow.objects.get()
    whole = book.PRICE.charge(2 * HOUR_MS).nanos
    assert (row.state, row.contested_nanos) == ("open", whole // 2)
    for account_id in (EARNINGS, OTHER_EARNINGS):
        held = book.account(charged, account_id).held.nanos
        assert held == pytest.approx(earned[account_id] / 2, abs=1)
    assert book.totals(charged) == earned
    assert HoldRow.objects.filter(purpose=f"dispute:{DISPUTE}", state="placed").count() == 2


def test_upheld_each_who_got_a_part_gives_it_back(charged: MemoryStore) -> None:
    before = book.account(charged).total.nanos
    contest(charged)

    decide(charged, "upheld")
    decide(charged, "upheld")

    row = DisputeRow.objects.get()
    assert (row.state, row.decided_by) == ("upheld", DECIDING)
    assert book.account(charged).total.nanos == before + row.contested_nanos
    assert book.account(charged, EARNINGS).held.nanos == 0
    lines = PostingRow.objects.filter(kind="use-credit", nanos__lt=0)
    assert {line.account_id for line in lines} == {EARNINGS, OTHER_EARNINGS, FEES}
    assert -sum(line.nanos for line in lines) == row.contested_nanos


def test_dismissed_all_is_as_it_was(charged: MemoryStore) -> None:
    before = book.totals(charged)
    contest(charged)

    decide(charged, "dismissed")

    assert DisputeRow.objects.get().state == "dismissed"
    assert book.totals(charged) == before
    assert book.account(charged, EARNINGS).held.nanos == 0
    with pytest.raises(disputes.DisputeOver):
        decide(charged, "upheld")


def test_what_nobody_decides_in_time_stands(charged: MemoryStore) -> None:
    contest(charged)
    until = AFTER + disputes.DECIDED_WITHIN

    assert disputing.decide_overdue(charged, now=until - timedelta(seconds=1)) == 0
    assert disputing.decide_overdue(charged, now=until) == 1
    follow(charged)

    row = DisputeRow.objects.get()
    assert (row.state, row.decided_by) == ("dismissed", None)
    assert book.account(charged, EARNINGS).held.nanos == 0
    assert disputing.decide_overdue(charged, now=until) == 0


def test_nobody_decides_who_opened_it(charged: MemoryStore) -> None:
    contest(charged)

    with pytest.raises(disputes.PartyCannotDecide):
        decide_dispute(
            charged, DISPUTE, "upheld", reason="mine", user_id=PAYING, by=SOMEBODY, now=AFTER
        )


def test_only_the_platform_decides_and_only_who_paid_contests(charged: MemoryStore) -> None:
    with pytest.raises(disputes.ChargeUnknown):
        disputing.contest(
            charged,
            Actor(tenant_id=book.OWNER, roles=frozenset({"finance"}), user_id=PAYING),
            ENTRY,
            used_millis=0,
            reason="not mine",
            by=SOMEBODY,
            now=AFTER,
        )
    contest(charged)
    for actor in (CONSUMING, OWNING):
        with pytest.raises(disputing.DisputesByPlatformOnly):
            decide(charged, "upheld", actor)


@pytest.mark.parametrize(
    ("used", "reason", "refusal"),
    [
        (2 * HOUR_MS, "all of it", disputes.NothingContested),
        (0, "  ", disputes.DisputeReasonMissing),
    ],
)
def test_what_contests_nothing_is_refused(
    charged: MemoryStore, used: int, reason: str, refusal: type[Exception]
) -> None:
    head = charged.head()
    with pytest.raises(refusal):
        contest(charged, used=used, reason=reason)
    assert charged.head() == head


def test_a_charge_is_contested_once_and_in_time(charged: MemoryStore) -> None:
    with pytest.raises(disputes.DisputeTooLate):
        disputing.contest(
            charged,
            CONSUMING,
            ENTRY,
            used_millis=0,
            reason="late",
            by=SOMEBODY,
            now=NOON + timedelta(days=61),
        )
    contest(charged)
    with pytest.raises(disputes.DisputeOpenedOtherwise):
        contest(charged, reason="another reason")


def test_the_whole_of_a_charge_may_be_contested(charged: MemoryStore) -> None:
    contest(charged, used=0)
    decide(charged, "upheld")

    assert book.account(charged).total == book.usd(100)
    assert book.totals(charged)[EARNINGS] == 0


def test_a_part_goes_back_from_each_who_answers_for_it(charged: MemoryStore) -> None:
    before = book.account(charged).total.nanos
    contest(charged)
    row = DisputeRow.objects.get()
    part = Money(row.contested_nanos // 3, "USD")

    def in_part(money: Money) -> None:
        disputing.decide(
            charged,
            FINANCE,
            DISPUTE,
            "in-part",
            reason="a third of it",
            by=SOMEBODY,
            now=AFTER,
            given_back=money,
        )
        follow(charged)

    for wrong in (Money(0, "USD"), Money(row.contested_nanos, "USD"), Money(1, "EUR")):
        with pytest.raises(disputes.PartNotContested):
            in_part(wrong)
    in_part(part)
    in_part(part)

    row.refresh_from_db()
    assert (row.state, row.given_nanos) == ("in-part", part.nanos)
    assert book.account(charged).total.nanos == before + part.nanos
    assert book.account(charged, EARNINGS).held.nanos == 0
    credits = [e for e in book.account(charged).entries.values() if isinstance(e, UseCredited)]
    assert {e.corrects for e in credits} == {ENTRY}
    assert sum(e.money.nanos for e in credits) == part.nanos
    with pytest.raises(disputes.DisputeOver):
        in_part(Money(part.nanos + 1, "USD"))


def test_all_who_are_part_of_it_say_something_while_it_is_open(charged: MemoryStore) -> None:
    contest(charged)

    for actor, text in ((CONSUMING, "it stood still"), (OWNING, "it did not"), (FINANCE, "shown?")):
        disputing.say(
            charged, actor, DISPUTE, text, by=Meta(actor=f"user:{actor.user_id}"), now=AFTER
        )
        follow(charged)
    with pytest.raises(disputes.NothingSaid):
        disputing.say(charged, OWNING, DISPUTE, " ", by=SOMEBODY, now=AFTER)
    stranger = Actor(tenant_id=TenantId(UUID(int=77)), roles=frozenset({"finance"}), user_id=PAYING)
    with pytest.raises(disputes.DisputeUnknown):
        disputing.say(charged, stranger, DISPUTE, "me, too", by=SOMEBODY, now=AFTER)

    said = queries.statements_of(DisputeRow.objects.get())
    assert [(each.number, each.tenant_id, each.text) for each in said] == [
        (1, book.CONSUMER, "it stood still"),
        (2, book.OWNER, "it did not"),
        (3, PLATFORM_ID, "shown?"),
    ]
    decide(charged, "dismissed")
    with pytest.raises(disputes.DisputeOver):
        disputing.say(charged, OWNING, DISPUTE, "late", by=SOMEBODY, now=AFTER)


def test_meters_that_differ_contest_once_and_give_way_to_people(charged: MemoryStore) -> None:
    def by_meters() -> bool:
        found = disputing.contest_by_meters(
            charged, ENTRY, used_millis=HOUR_MS, reason="its own meter says less", now=AFTER
        )
        follow(charged)
        return found

    assert by_meters()
    assert not by_meters()
    row = DisputeRow.objects.get()
    assert (row.opened_by, row.state) == (None, "open")
    decide(charged, "upheld")

    assert not by_meters()
    assert DisputeRow.objects.get().state == "upheld"
    assert book.account(charged, EARNINGS).held.nanos == 0


def test_what_goes_back_for_use_of_a_month_before_is_a_correction_in_focus(
    charged: MemoryStore,
) -> None:
    contest(charged)
    later = NOON.replace(day=1) + timedelta(days=32)
    disputing.decide(
        charged, FINANCE, DISPUTE, "upheld", reason="looked at", by=SOMEBODY, now=later
    )
    follow(charged)

    period = Period(later.year, later.month)
    exported = export(AUDITOR, "focus", period=period, position=charged.head())
    rows = [
        row
        for row in rows_of(b"".join(exported).decode())
        if row["ChargeDescription"].startswith("Given back after a dispute")
    ]
    assert {(row["ChargeCategory"], row["ChargeClass"]) for row in rows} == {
        ("Credit", "Correction")
    }
    assert (
        sum(nanos(row["EffectiveCost"]) for row in rows)
        == -DisputeRow.objects.get().contested_nanos
    )
