"""Rules of cards: top-ups, refunds by two people, chargebacks, fees; and money by hand."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from ledger import commands
from ledger.commands import refunds, wallet
from ledger.domain.account_ids import burst_account, cash_account, processing_account
from ledger.domain.ids import PaymentId, RefundId, UserId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.wallet_events import RefundApproved
from tests.ledger.all_kinds import world
from tests.ledger.all_kinds.paper import CENT, PaperPayment, PaperRefund
from tests.ledger.all_kinds.world import CURRENCIES, PEOPLE, UNITS, WALLETS, Unit, asks, pick

NUMBERS = st.integers(0, 40)


class Cards(world.People):
    """What payers, their banks and the payment service do."""

    @asks(unit=st.sampled_from(UNITS), nanos=st.one_of(st.integers(1, 3 * 10**10), st.just(1)))
    def add_funds(self, unit: Unit, nanos: int) -> None:
        done = self.succeeds(
            commands.add_funds,
            account_id=unit.account_id,
            entry_id=self.named("funds"),
            money=Money(nanos, unit.currency),
            reference=f"wire {self.asked}",
            platform_id=PLATFORM_ID,
        )
        assert done
        self.paper.move(cash_account(PLATFORM_ID, unit.currency), unit.account_id, nanos)

    @asks(unit=st.sampled_from(WALLETS), cents=st.integers(100, 5_000))
    def ask_for_a_top_up(self, unit: Unit, cents: int) -> None:
        payment_id = PaymentId(self.named("payment"))
        assert self.succeeds(
            wallet.request_top_up,
            account_id=unit.account_id,
            payment_id=payment_id,
            money=Money(cents * CENT, unit.currency),
            asked_by=PEOPLE[0],
        )
        self.paper.payments.append(
            PaperPayment(unit.account_id, cents * CENT, f"pi_{payment_id.hex}")
        )
        self.payment_ids.append(payment_id)

    @asks(when=lambda self: self.paper.payments, number=NUMBERS, foreign=st.booleans())
    def a_payment_arrives(self, number: int, *, foreign: bool) -> None:
        if not self.paper.payments:
            return
        payment: PaperPayment = pick(self.paper.payments, number)
        currency = self.currency(payment.account_id)
        other = next(each for each in CURRENCIES if each != currency)
        wrong = foreign and not payment.arrived
        done = self.succeeds(
            wallet.post_top_up,
            account_id=payment.account_id,
            payment_id=pick(self.payment_ids, number),
            intent=payment.intent,
            money=Money(payment.money, other if wrong else currency),
            platform_id=PLATFORM_ID,
        )
        assert done == (not wrong)
        if done and not payment.arrived:
            payment.arrived = True
            cash = cash_account(PLATFORM_ID, currency)
            self.paper.move(cash, payment.account_id, payment.money)

    @asks(when=lambda self: self.paper.payments, number=NUMBERS)
    def a_payment_fails(self, number: int) -> None:
        """Notices come in any order: what is heard of a failure later takes nothing back."""
        if self.paper.payments:
            self.succeeds(
                wallet.note_failed,
                account_id=pick(self.paper.payments, number).account_id,
                payment_id=pick(self.payment_ids, number),
                reason="cancelled",
                declined=False,
            )

    @asks(
        when=lambda self: self.paper.payments,
        unit=st.sampled_from(WALLETS),
        cents=st.integers(1, 5_000),
        person=st.sampled_from(PEOPLE),
    )
    def ask_for_a_refund(self, unit: Unit, cents: int, person: UserId) -> None:
        refund_id, nanos = RefundId(self.named("refund")), cents * CENT
        done = self.succeeds(
            refunds.ask_for_refund,
            account_id=unit.account_id,
            refund_id=refund_id,
            money=Money(nanos, unit.currency),
            reason="not needed",
            asked_by=person,
        )
        if done:
            assert cents >= 100
            assert nanos <= self.paper.available(unit.account_id), "what is set aside is spoken for"
            assert nanos <= sum(
                each.money - each.back - each.taken
                for each in self.paper.payments
                if each.account_id == unit.account_id and each.arrived
            )
            self.paper.refunds[refund_id] = PaperRefund(unit.account_id, nanos, person)

    @asks(
        when=lambda self: self.paper.refunds,
        number=NUMBERS,
        person=st.sampled_from(PEOPLE),
        yes=st.booleans(),
    )
    def decide_on_a_refund(self, number: int, person: UserId, *, yes: bool) -> None:
        if not self.paper.refunds:
            return
        refund_id: UUID = pick(list(self.paper.refunds), number)
        refund = self.paper.refunds[refund_id]
        terms = {"account_id": refund.account_id, "refund_id": refund_id}
        if not yes:
            done = self.succeeds(refunds.decline_refund, declined_by=person, **terms)
            assert done == (refund.state in ("asked", "declined"))
            refund.state = "declined" if done else refund.state
            return
        is_covered = self.paper.affords(refund.account_id, 0)
        done = self.succeeds(refunds.approve_refund, approved_by=person, **terms)
        if refund.state != "asked":
            assert done == (refund.state == "approved" and person != refund.asked_by)
            return
        if not done:
            return
        assert person != refund.asked_by, "nobody approves their own"
        assert is_covered, "what a bank took is gone"
        [approved] = [
            each.event
            for each in self.store.read_stream(f"wallet-{refund.account_id}")
            if isinstance(each.event, RefundApproved) and each.event.refund_id == refund_id
        ]
        refund.state = "approved"
        for part in approved.parts:
            refund.parts[part.number] = (part.intent, part.money.nanos, "approved")
            payment = self._payment(part.intent)
            payment.back += part.money.nanos
            assert payment.arrived and payment.back + payment.taken <= payment.money
        assert sum(each[1] for each in refund.parts.values()) == refund.money

    def _payment(self, intent: str) -> PaperPayment:
        return next(each for each in self.paper.payments if each.intent == intent)

    @asks(
        when=lambda self: any(each.parts for each in self.paper.refunds.values()),
        number=NUMBERS,
        part=st.integers(0, 3),
        paid=st.booleans(),
    )
    def a_part_of_a_refund_is_heard_of(self, number: int, part: int, *, paid: bool) -> None:
        approved = [each for each in self.paper.refunds.items() if each[1].parts]
        if not approved:
            return
        refund_id, refund = pick(approved, number)
        key = pick(sorted(refund.parts), part)
        intent, nanos, state = refund.parts[key]
        terms = {"account_id": refund.account_id, "refund_id": refund_id, "number": key}
        cash = cash_account(PLATFORM_ID, self.currency(refund.account_id))
        if paid:
            said = {"reference": f"re_{key}", "platform_id": PLATFORM_ID}
            assert self.succeeds(refunds.note_part_paid, **terms, **said)
            if state == "approved":
                refund.parts[key] = (intent, nanos, "paid")
                self.paper.move(refund.account_id, cash, nanos)
            return
        assert self.succeeds(refunds.note_part_failed, reason="no such account", **terms)
        if state == "paid":
            self.paper.move(cash, refund.account_id, nanos)
        if state != "failed":
            refund.parts[key] = (intent, nanos, "failed")
            self._payment(intent).back -= nanos

    @asks(
        when=lambda self: self.paper.payments,
        number=NUMBERS,
        percent=st.integers(1, 100),
        foreign=st.booleans(),
    )
    def a_bank_takes_back(self, number: int, percent: int, *, foreign: bool) -> None:
        if not self.paper.payments:
            return
        payment: PaperPayment = pick(self.paper.payments, number)
        nanos = min(payment.money * percent // 100 // CENT * CENT, payment.money - payment.taken)
        if nanos <= 0:
            return
        currency = self.currency(payment.account_id)
        other = next(each for each in CURRENCIES if each != currency)
        name = f"du_{self.named('dispute').hex}"
        done = self.succeeds(
            refunds.note_dispute,
            account_id=payment.account_id,
            dispute=name,
            intent=payment.intent,
            money=Money(nanos, other if foreign else currency),
            reason="fraudulent",
            platform_id=PLATFORM_ID,
        )
        assert done == (payment.arrived and not foreign)
        if done:
            payment.taken += nanos
            self.paper.chargebacks[name] = (payment, nanos, "open")
            self.paper.move(payment.account_id, cash_account(PLATFORM_ID, currency), nanos)

    @asks(when=lambda self: self.paper.chargebacks, number=NUMBERS, won=st.booleans())
    def a_bank_decides(self, number: int, *, won: bool) -> None:
        if not self.paper.chargebacks:
            return
        name: str = pick(list(self.paper.chargebacks), number)
        payment, nanos, state = self.paper.chargebacks[name]
        done = self.succeeds(
            refunds.note_dispute_closed, account_id=payment.account_id, dispute=name, won=won
        )
        if state == "open":
            assert done
            self.paper.chargebacks[name] = (payment, nanos, "won" if won else "lost")
            if won:
                payment.taken -= nanos
                cash = cash_account(PLATFORM_ID, self.currency(payment.account_id))
                self.paper.move(cash, payment.account_id, nanos)

    @asks(currency=st.sampled_from(CURRENCIES), nanos=st.integers(-(10**9), 10**9))
    def a_fee_is_paid(self, currency: str, nanos: int) -> None:
        if nanos:
            assert self.succeeds(
                refunds.pay_processing_fee,
                platform_id=PLATFORM_ID,
                money=Money(nanos, currency),
                reference=f"txn_{self.named('fee').hex}",
            )
            cash = cash_account(PLATFORM_ID, currency)
            self.paper.move(processing_account(PLATFORM_ID, currency), cash, nanos)

    @asks(currency=st.sampled_from(CURRENCIES), nanos=st.integers(-(10**9), 10**9))
    def a_cloud_charges(self, currency: str, nanos: int) -> None:
        done = self.succeeds(
            commands.record_cost,
            platform_id=PLATFORM_ID,
            money=Money(nanos, currency),
            reference=f"bill {self.named('bill').hex}",
        )
        assert done == (nanos != 0)
        burst = burst_account(PLATFORM_ID, currency)
        self.paper.move(burst, cash_account(PLATFORM_ID, currency), nanos)

    @asks(unit=st.sampled_from(UNITS), overdraft=st.sampled_from([0, 10**9, 5 * 10**10, None]))
    def set_a_budget(self, unit: Unit, overdraft: int | None) -> None:
        account_id = unit.account_id
        before = self.paper.overdrafts[account_id]
        possible = (overdraft is not None or unit.kind == "chargeback") and (
            overdraft == before
            or overdraft is None
            or self.paper.available(account_id) + overdraft >= 0
        )
        done = self.succeeds(
            commands.set_budget, account_id=account_id, overdraft_nanos=overdraft, may_raise=True
        )
        assert done == possible
        if done:
            self.paper.overdrafts[account_id] = overdraft
