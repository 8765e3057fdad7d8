"""Rules of owners who are paid: settlements, approvals, bank files, what the bank says."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from hypothesis import strategies as st

from ledger import paying
from ledger.commands import payouts
from ledger.domain.account_ids import cash_account, transit_account
from ledger.domain.bank_files import Debtor, Draft
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee, Payout
from ledger.domain.payout_events import BankFileLine
from ledger.eventstore.port import load
from ledger.models import PayeeRow
from tests.ledger.all_kinds import world
from tests.ledger.all_kinds.paper import CENT
from tests.ledger.all_kinds.world import JOAN, OWNERS, PEOPLE, asks, details_of, earnings, pick

NUMBERS = st.integers(0, 40)
LARGE = paying.terms().alone_nanos_max


class Owners(world.People):
    """What owners are paid, and how that ends."""

    def begin(self, store: object) -> None:
        super().begin(store)
        self.payouts: dict[UUID, tuple[AccountId, str]] = {}
        self.is_read = False

    @asks(owner=st.sampled_from(OWNERS), by_clock=st.booleans(), is_read=st.booleans())
    def settle(self, owner: TenantId, *, by_clock: bool, is_read: bool) -> None:
        if is_read:
            self.follow()
        account_id = earnings(owner, "USD")
        row = PayeeRow.objects.filter(pk=account_id).first()
        if row is None:
            return
        before = set(self._payouts(account_id))
        if by_clock:
            paying.settle_due(self.store, now=self.now)
        else:
            self.succeeds(paying.settle_now, row, user_id=JOAN)
        for each in OWNERS:
            self._note_requested(earnings(each, "USD"), is_read=is_read)
        if before != set(self._payouts(account_id)):
            self.follow()

    def _payouts(self, account_id: AccountId) -> dict[UUID, Payout]:
        return dict((load(self.store, Payee, account_id) or Payee()).payouts)

    def _note_requested(self, account_id: AccountId, *, is_read: bool) -> None:
        for payout_id, payout in self._payouts(account_id).items():
            if payout_id in self.payouts:
                continue
            money = payout.requested.money.nanos
            assert money > 0 and money % CENT == 0
            if is_read:
                left = self.paper.balances[account_id] - self.paper.aside(account_id)
                assert money <= left, "what is contested or not earned is not paid out"
            self.payouts[payout_id] = (account_id, "requested")
            self.paper.move(account_id, transit_account(PLATFORM_ID, "USD"), money)

    def _one(self, number: int) -> tuple[UUID, AccountId, Payout] | None:
        if not self.payouts:
            return None
        payout_id: UUID = pick(list(self.payouts), number)
        account_id, _ = self.payouts[payout_id]
        return payout_id, account_id, self._payouts(account_id)[payout_id]

    @asks(when=lambda self: self.payouts, number=NUMBERS, person=st.sampled_from(PEOPLE))
    def approve(self, number: int, person: UserId) -> None:
        if (found := self._one(number)) is None:
            return
        payout_id, account_id, before = found
        done = self.succeeds(
            payouts.approve_payout, account_id, payout_id, user_id=person, is_own=False
        )
        after = self._payouts(account_id)[payout_id]
        if done and after != before:
            assert person not in (before.requested.requested_by, *before.approved_by)
        if after.state in ("approved", "sent", "paid"):
            large = after.requested.money.nanos > LARGE
            assert len(set(after.approved_by)) >= (2 if large else 1)

    @asks(when=lambda self: self.payouts, number=NUMBERS)
    def cancel(self, number: int) -> None:
        if (found := self._one(number)) is None:
            return
        payout_id, account_id, payout = found
        done = self.succeeds(
            payouts.cancel_payout, account_id, payout_id, reason="asked twice", user_id=JOAN
        )
        assert done == (payout.state in ("requested", "approved", "cancelled"))
        if done and payout.state != "cancelled":
            self._back(account_id, payout, transit_account(PLATFORM_ID, "USD"))

    @asks(when=lambda self: self.payouts, number=NUMBERS)
    def send(self, number: int) -> None:
        if (found := self._one(number)) is None:
            return
        payout_id, account_id, payout = found
        owner = payout.requested.tenant_id
        line = BankFileLine(
            payout_id=payout_id,
            account_id=account_id,
            details_id=details_of(owner),
            end_to_end_id="OP-1",
            nanos=payout.requested.money.nanos,
        )
        draft = Draft(
            file_id=self.named("file"),
            format="csv",
            currency="USD",
            debtor=Debtor(),
            execute_on=(self.now + timedelta(days=1)).date(),
            lines=[line],
        )
        done = self.succeeds(
            payouts.write_bank_file,
            draft,
            render=lambda event: event.message_id.encode(),
            platform_id=PLATFORM_ID,
            user_id=JOAN,
        )
        assert done == (payout.state == "approved"), "a payout is in one file only"

    @asks(when=lambda self: self.payouts, number=NUMBERS)
    def the_bank_paid(self, number: int) -> None:
        if (found := self._one(number)) is None:
            return
        payout_id, account_id, payout = found
        done = self.succeeds(
            payouts.mark_paid,
            account_id,
            payout_id,
            reference="TX-1",
            paid_on=self.now.date() if payout.paid is None else payout.paid.paid_on,
            currency="USD",
            platform_id=PLATFORM_ID,
            user_id=JOAN,
        )
        assert done == (payout.state in ("sent", "paid"))
        if done and payout.state == "sent":
            money = payout.requested.money.nanos
            transit = transit_account(PLATFORM_ID, "USD")
            self.paper.move(transit, cash_account(PLATFORM_ID, "USD"), money)

    @asks(when=lambda self: self.payouts, number=NUMBERS)
    def the_bank_returns(self, number: int) -> None:
        if (found := self._one(number)) is None:
            return
        payout_id, account_id, payout = found
        done = self.succeeds(
            payouts.mark_returned,
            account_id,
            payout_id,
            reason="account closed",
            currency="USD",
            platform_id=PLATFORM_ID,
            user_id=JOAN,
        )
        assert done == (payout.state in ("sent", "paid", "returned"))
        if done and payout.state != "returned":
            is_paid = payout.state == "paid"
            source = cash_account if is_paid else transit_account
            self._back(account_id, payout, source(PLATFORM_ID, "USD"))

    def _back(self, account_id: AccountId, payout: Payout, source: AccountId) -> None:
        self.paper.move(source, account_id, payout.requested.money.nanos)
