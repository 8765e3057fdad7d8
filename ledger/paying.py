"""Paying owners: settlements by the clock, bank accounts that are sealed, files for the bank.

`config` says at start on which terms the platform pays, and from which account (`install`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID, uuid5

from ledger.access import Actor
from ledger.bank_accounts import keep, opened
from ledger.commands import payouts as commands
from ledger.commands.notices import give_notice
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import BankFiles, Debtor, Draft, Transfer
from ledger.domain.closing import Check, Point
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.notices import To
from ledger.domain.parties import PLATFORM_ID, TenantUnknown
from ledger.domain.payees import DetailsMissing, Payee, PayeeOf
from ledger.domain.payout_events import BankFileLine, BankFileWritten, FileFormat, Schedule
from ledger.domain.periods import Period
from ledger.domain.refusal import Forbidden, Refusal
from ledger.domain.settling import Due, Payable, PayoutTerms, by_hand, due, next_cut_off, payable
from ledger.eventstore.port import EventStore, Meta, Position, load
from ledger.exports.bank_files import rendered
from ledger.exports.gl import digits_of
from ledger.models import BankFileRow, PayeeRow, PayoutRow
from ledger.queries import payouts as queries
from ledger.queries.payouts_add_up import payouts_that_differ
from ledger.turns import each_alone, turns_of
from ledger.vault import Vault

PAYEES_A_PASS = 200
FILE_AFTER = timedelta(days=1)
"""A bank file asks the bank to pay on the next day."""
BY_CLOCK = Meta(actor="loop:settlements")

_terms = PayoutTerms()
_debtor = Debtor()


class PayoutsByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform may pay owners."""


class BankFileGone(Refusal):
    """The file cannot be written again as it was: a bank account in it opens no more.

    Whoever runs the market finds how keys are kept under "Operating".
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the next settlement would pay, from what is known now. on: None: it is done by hand."""

    payable: Payable
    schedule: Schedule
    minimum_nanos: int
    on: str | None


def install(terms: PayoutTerms, debtor: Debtor) -> None:
    """Say on which terms owners are paid, and from which bank account."""
    global _terms, _debtor
    _terms, _debtor = terms, debtor


def terms() -> PayoutTerms:
    """Return the platform's terms."""
    return _terms


def debtor() -> Debtor:
    """Return from whose bank account owners are paid."""
    return _debtor


def need_to_pay(actor: Actor) -> UserId:
    """Return who pays owners. Raises: PayoutsByPlatformOnly, PersonNeeded."""
    if not actor.has_platform_money:
        raise PayoutsByPlatformOnly()
    return actor.need_person()


def need_payee(actor: Actor, account_id: UUID) -> PayeeRow:
    """Return the actor's own earnings, to change how they are paid out.

    Raises: PayeeUnknown, RoleMissing.
    """
    actor.need("owner", "finance", "operator")
    found = PayeeRow.objects.filter(pk=account_id, tenant_id=actor.tenant_id).first()
    if found is None:
        raise queries.PayeeUnknown(account_id=account_id)
    return found


def of_row(row: PayeeRow) -> PayeeOf:
    """Return whose earnings a row tells of."""
    return PayeeOf(
        account_id=AccountId(row.account_id),
        tenant_id=TenantId(row.tenant_id),
        currency=row.currency,
    )


def unit_of(currency: str) -> int:
    """Return the nano-units of a currency's smallest unit."""
    return NANOS_PER_UNIT // int(10 ** digits_of(currency))


def payouts_add_up(period: Period, now: datetime) -> Check:
    """Look if payouts, journal and bank files agree, before a month is closed."""
    wrong = payouts_that_differ()
    return Check(
        name="payouts",
        title="Payouts",
        passed=not wrong,
        words="; ".join(wrong[:3]) or "What is on its way, owed and in bank files adds up.",
        left=len(wrong),
        points=tuple(Point(each) for each in wrong[:10]),
    )


# --- settlements -------------------------------------------------------------------------------


def schedule_of(row: PayeeRow) -> Schedule:
    """Return how often an owner is paid."""
    match row.schedule:
        case "weekly" | "monthly" | "manual":
            return row.schedule
        case _:
            return _terms.schedule


def settle_due(store: EventStore, *, now: datetime) -> int:
    """Request the payouts of all settlements that are due. Returns: how many that were."""

    def page(after: tuple[UUID] | None, limit: int) -> list[tuple[UUID]]:
        found = queries.due_payees(after[0] if after else None, limit)
        rows.update({row.account_id: row for row in found})
        return [(row.account_id,) for row in found]

    rows: dict[UUID, PayeeRow] = {}
    keys = turns_of(store, "settlements").take(page, PAYEES_A_PASS)
    return each_alone(
        [rows[key] for (key,) in keys],
        lambda row: _settle(store, row, now=now),
        event="settlement.failed",
        told=lambda row: {"account": str(row.account_id)},
    )


def _settle(store: EventStore, row: PayeeRow, *, now: datetime) -> int:
    wanted = due(schedule_of(row), now)
    if wanted is None or wanted.period == row.settled or row.tenant_id == PLATFORM_ID:
        return 0
    known = load(store, Payee, row.account_id)
    if known is not None and wanted.period in known.revisions:
        return 0  # its rows are not written yet
    found = _estimated(row, wanted)
    least = _terms.minimum_nanos if row.minimum_nanos is None else row.minimum_nanos
    if found.nanos < max(least, unit_of(row.currency)):
        return 0
    made, _ = _asked(store, row, wanted, user_id=None, by=BY_CLOCK, now=now)
    if made is None:
        return 0
    money, owner = Money(found.nanos, row.currency), TenantId(row.tenant_id)
    said = f"Your earnings of {wanted.period}. It goes to the bank once it is approved."
    key = f"settled:{wanted.period}:{row.currency}"
    _tell(store, owner, key=key, title=f"{money} is to be paid", body=said, by=BY_CLOCK, now=now)
    said = "Payouts of owners wait for somebody to approve them."
    title = f"Earnings of {wanted.period} were settled"
    _tell(store, PLATFORM_ID, key=key, title=title, body=said, by=BY_CLOCK, now=now)
    return 1


def settle_now(
    store: EventStore, row: PayeeRow, *, user_id: UserId, by: Meta, now: datetime
) -> tuple[UUID | None, Position]:
    """Request the payout of all that is payable, outside the schedule.

    Raises: NothingPayable.
    """
    return _asked(store, row, by_hand(now), user_id=user_id, by=by, now=now)


def _asked(
    store: EventStore,
    row: PayeeRow,
    wanted: Due,
    *,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[UUID | None, Position]:
    return commands.settle_earnings(
        store,
        of_row(row),
        wanted,
        queries.earned(row, wanted, held_days=_terms.held_days),
        terms=_terms,
        unit=unit_of(row.currency),
        platform_id=PLATFORM_ID,
        user_id=user_id,
        by=by,
        now=now,
    )


def estimate(row: PayeeRow, *, now: datetime) -> Estimate:
    """Return what the next settlement would pay of what is earned by now."""
    schedule = schedule_of(row)
    day = next_cut_off(schedule, now)
    wanted = by_hand(now) if day is None else Due("", day)
    return Estimate(
        payable=_estimated(row, wanted),
        schedule=schedule,
        minimum_nanos=_terms.minimum_nanos if row.minimum_nanos is None else row.minimum_nanos,
        on=None if day is None else day.isoformat(),
    )


def _estimated(row: PayeeRow, wanted: Due) -> Payable:
    return payable(
        queries.earned(row, wanted, held_days=_terms.held_days),
        paid_out=row.paid_nanos,
        held_share_ppm=_terms.held_share_ppm,
        unit=unit_of(row.currency),
    )


# --- bank accounts -----------------------------------------------------------------------------


def propose_details(
    store: EventStore,
    vault: Vault,
    row: PayeeRow,
    details: BankDetails,
    *,
    details_id: UUID,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Seal a bank account, propose to pay to it, and tell all who look after the owner's money."""
    # The value goes first: without the event that names it, it is never used.
    keep(vault, row.account_id, details_id, details)
    of = of_row(row)
    position = commands.propose_bank_details(
        store,
        of,
        details,
        details_id=details_id,
        wait_seconds=_terms.details_wait_seconds,
        user_id=user_id,
        by=by,
        now=now,
    )
    usable = now + timedelta(seconds=_terms.details_wait_seconds)
    _tell(
        store,
        of.tenant_id,
        key=f"details:{details_id}",
        title=f"Another bank account for payouts was entered: {details.masked}",
        body=(
            f"Payouts pause until it is confirmed, from {usable:%Y-%m-%d %H:%M} UTC on, or "
            "withdrawn.\n\nIf nobody of you entered it, withdraw it on the page Payouts."
        ),
        by=by,
        now=now,
    )
    return position


def _tell(
    store: EventStore,
    tenant_id: TenantId,
    *,
    key: str,
    title: str,
    body: str,
    by: Meta,
    now: datetime,
) -> None:
    """Tell an owner's people. Money never waits for it."""
    with suppress(TenantUnknown):
        give_notice(
            store,
            to=To(tenant_id=tenant_id),
            topic="payout",
            key=key,
            title=title,
            body=body,
            link="/payouts",
            by=by.step(f"notice:{key}"),
            now=now,
        )


# --- bank files --------------------------------------------------------------------------------


def sendable(actor: Actor, currency: str) -> list[PayoutRow]:
    """Return approved payouts that can go into a bank file now, the oldest first.

    Not those of owners whose earnings are short: what was contested since is frozen.
    """
    ready = PayeeRow.objects.filter(details_id__isnull=False, proposed_id__isnull=True)
    ready = ready.exclude(channel="stripe")
    rows = queries.payouts(actor).filter(
        state="approved", currency=currency, account_id__in=ready.values("account_id")
    )
    rows = rows.exclude(account_id__in=queries.short_accounts().values("account_id"))
    return list(rows.order_by("requested_at", "payout_id"))


def write_bank_file(
    store: EventStore,
    vault: Vault,
    rows: Sequence[PayoutRow],
    *,
    file_id: UUID,
    form: FileFormat,
    currency: str,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Put approved payouts into a file for the bank; each is in one file only.

    Raises: NothingToSend, FileTooLong, DebtorUnknown, PayoutStateOtherwise, PayoutsPaused,
        DetailsMissing, VaultLocked.
    """
    files = load(store, BankFiles, PLATFORM_ID) or BankFiles()
    lines: list[BankFileLine] = []
    for row in [] if file_id in files.written else rows:
        payee = load(store, Payee, row.account_id) or Payee()
        if payee.details is None:
            raise DetailsMissing(payout_id=row.payout_id)
        lines.append(
            BankFileLine(
                payout_id=row.payout_id,
                account_id=AccountId(row.account_id),
                details_id=payee.details.details_id,
                end_to_end_id=end_to_end_id(row.payout_id),
                nanos=payee.payout(row.payout_id).requested.money.nanos,
            )
        )
    accounts = opened(vault, [line.details_id for line in lines])
    draft = Draft(
        file_id=file_id,
        format=form,
        currency=currency,
        debtor=_debtor,
        execute_on=(now.astimezone(UTC) + FILE_AFTER).date(),
        lines=lines,
    )
    return commands.write_bank_file(
        store,
        draft,
        render=lambda event: rendered(event, _transfers(event, accounts)),
        platform_id=PLATFORM_ID,
        user_id=user_id,
        by=by,
        now=now,
    )


def file_bytes(store: EventStore, vault: Vault, row: BankFileRow) -> tuple[BankFileWritten, bytes]:
    """Write a bank file again, with the same bytes. Raises: BankFileGone, VaultLocked."""
    [recorded] = store.read_all(after=Position(row.position - 1), limit=1).events
    event = recorded.event
    assert isinstance(event, BankFileWritten)
    try:
        accounts = opened(vault, [line.details_id for line in event.lines])
    except DetailsMissing:
        raise BankFileGone(file_id=row.file_id) from None
    # As it was when its hash was taken.
    data = rendered(replace(event, sha256=""), _transfers(event, accounts))
    if sha256(data).hexdigest() != event.sha256:
        raise BankFileGone(file_id=row.file_id)
    return event, data


def end_to_end_id(payout_id: UUID) -> str:
    """Return what a transfer carries to the payee's statement: at most 35 characters."""
    return f"OP-{uuid5(payout_id, 'end-to-end').hex[:20].upper()}"


def _transfers(event: BankFileWritten, accounts: dict[UUID, BankDetails]) -> list[Transfer]:
    return [Transfer(line, accounts[line.details_id]) for line in event.lines]


def tell_outcome(
    store: EventStore, account_id: UUID, payout_id: UUID, *, by: Meta, now: datetime
) -> None:
    """Tell an owner's people that the bank paid, or that a payout came back or was cancelled."""
    payout = (load(store, Payee, account_id) or Payee()).payout(payout_id)
    asked = payout.requested
    match payout.state:
        case "paid":
            assert payout.paid is not None
            title = f"{asked.money} was paid"
            body = f"Your earnings of {asked.period}. The bank calls it {payout.paid.reference}."
        case "returned" | "cancelled":
            title = f"A payout of {asked.money} was {payout.state}"
            body = "It is part of your earnings again, and of the next settlement."
        case _:
            return
    _tell(
        store,
        asked.tenant_id,
        key=f"{payout.state}:{payout_id}",
        title=title,
        body=body,
        by=by,
        now=now,
    )
