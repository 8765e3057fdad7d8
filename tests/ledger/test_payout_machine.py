"""Payouts against a model on paper: whatever is asked in whatever order, each nano is paid once.

The machine earns, takes back, settles, approves, cancels, sends, pays and returns, by bank file and
over Stripe, where parts come back, with what tables know lagging behind, and asks for everything
twice. After every step the books balance, nobody was paid more than was earned less what is held
back, and what is on its way is what is not decided.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta
from uuid import UUID, uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ledger import commands
from ledger.commands import connect, payouts
from ledger.domain.account_ids import cash_account, transit_account
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import Debtor, Draft
from ledger.domain.connect_events import Channel, ConnectedState
from ledger.domain.ids import UserId
from ledger.domain.money import Money, Rate
from ledger.domain.payees import PayoutState
from ledger.domain.payout_events import BankFileLine, BankFileWritten
from ledger.domain.refusal import Refusal
from ledger.domain.settling import PayoutTerms
from ledger.eventstore.memory import MemoryStore
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger import paying
from tests.ledger.ledgerbook import usd
from tests.ledger.paying import CENT, IRIS, JOAN, OSCAR

TRANSIT = transit_account(book.PLATFORM, "USD")
CASH = cash_account(book.PLATFORM, "USD")
TERMS = PayoutTerms(minimum_nanos=CENT, held_share_ppm=300_000, alone_nanos_max=usd(5).nanos)
PEOPLE = (JOAN, OSCAR, IRIS)
IN_TRANSIT: frozenset[PayoutState] = frozenset({"requested", "approved", "sent"})


class PayoutMachine(RuleBasedStateMachine):
    @initialize()
    def found(self) -> None:
        self.store = MemoryStore()
        book.open_everybody(self.store)
        book.open_funds(self.store)
        book.fund(self.store, usd(1_000_000))
        self.hours = 0
        self.seen = 0
        """What the tables know was earned; the books may be ahead."""
        self.weeks = 0
        self.details = uuid4()
        payouts.propose_bank_details(
            self.store,
            paying.of(),
            BankDetails(name="Lab", iban="DE89370400440532013000"),
            details_id=self.details,
            wait_seconds=0,
            user_id=IRIS,
            by=SOMEBODY,
            now=NOON,
        )
        payouts.confirm_bank_details(
            self.store, paying.EARNINGS, self.details, user_id=IRIS, by=SOMEBODY, now=NOON
        )
        connect.ask_stripe_account(
            self.store, paying.of(), country="", user_id=IRIS, by=SOMEBODY, now=NOON
        )
        connect.note_stripe_account(
            self.store, paying.EARNINGS, made="acct_1", by=SOMEBODY, now=NOON
        )

    @property
    def earned(self) -> int:
        """Return all that was earned, less what was taken back: the books without payouts."""
        return book.totals(self.store)[paying.EARNINGS] + paying.payee(self.store).paid_out

    @property
    def ids(self) -> list[UUID]:
        return list(paying.payee(self.store).payouts)

    def pick(self, number: int, state: PayoutState) -> UUID:
        """Return a payout, one in a state where there is any, and three times in four."""
        known = paying.payee(self.store).payouts
        there = [each for each in known if known[each].state == state]
        some = there if there and number % 4 else list(known)
        return some[number % len(some)]

    def twice(self, ask: object, *args: object, **terms: object) -> bool:
        """Ask twice; the second time changes nothing, a refusal neither."""
        head = self.store.head()
        try:
            ask(self.store, *args, **terms)  # type: ignore[operator]
        except Refusal:
            assert self.store.head() == head
            return False
        head = self.store.head()
        with suppress(Refusal):
            ask(self.store, *args, **terms)  # type: ignore[operator]
        assert self.store.head() == head
        return True

    @rule(nanos=st.integers(1, 20_000_000_000))
    def earn(self, nanos: int) -> None:
        self.hours += 1
        hold = book.hold_named(self.hours)
        book.hold(self.store, Money(nanos), hold_id=hold)
        book.capture(
            self.store,
            book.hours(self.hours),
            3_600_000,
            hold_id=hold,
            lease_id=book.lease_named(self.hours),
            price=Rate(nanos),
        )

    @rule(nanos=st.integers(1, 20_000_000_000))
    def compensate(self, nanos: int) -> None:
        self.hours += 1
        commands.pay_compensation(
            self.store,
            account_id=book.FUNDS,
            lease_id=book.lease_named(f"back {self.hours}"),
            owner_id=book.OWNER,
            money=Money(nanos),
            by=SOMEBODY,
            now=NOON,
        )

    @rule()
    def tables_follow(self) -> None:
        self.seen = self.earned

    @rule(
        late=st.integers(0, 5_000_000_000),
        recent=st.integers(0, 5_000_000_000),
        by_hand=st.booleans(),
        again=st.booleans(),
    )
    def settle(self, late: int, recent: int, *, by_hand: bool, again: bool) -> None:
        self.weeks += not again
        before = paying.payee(self.store)
        found = paying.earned(self.seen, later=late, recent=recent)
        try:
            paying.settle(
                self.store,
                found,
                period=f"w{self.weeks}",
                user=JOAN if by_hand else None,
                terms=TERMS,
            )
        except Refusal:
            assert by_hand
            return
        made = [each for each in paying.payee(self.store).payouts if each not in before.payouts]
        held = -(-recent * 3 // 10)
        for each in made:
            money = paying.payee(self.store).payouts[each].requested.money.nanos
            assert money % CENT == 0
            assert 0 < money <= self.seen - before.paid_out - late - held
            assert money > self.seen - before.paid_out - late - held - CENT
        assert len(made) <= 1

    @rule(cents=st.integers(1, 800), over_stripe=st.booleans())
    def a_week_goes_well(self, cents: int, *, over_stripe: bool) -> None:
        """Let a week be earned, settled and approved, as most are, and paid over Stripe."""
        self.earn(cents * CENT * 2)
        self.tables_follow()
        self.settle(0, 0, by_hand=False, again=False)
        for payout in self.ids[-1:]:
            for user in PEOPLE:
                with suppress(Refusal):
                    paying.approve(self.store, payout, user)
        if over_stripe:
            self.over_stripe_from_now_on()

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30), user=st.sampled_from(PEOPLE))
    def approve(self, number: int, user: UserId) -> None:
        if not self.ids:
            return
        payout = self.ids[number % len(self.ids)]
        before = paying.payee(self.store).payouts[payout]
        done = self.twice(paying.approve, payout, user)
        after = paying.payee(self.store).payouts[payout]
        if done and after != before:
            assert user not in (before.requested.requested_by, *before.approved_by)
        large = before.requested.money.nanos > TERMS.alone_nanos_max
        if after.state not in ("requested", "cancelled"):
            assert len(set(after.approved_by)) >= (2 if large else 1)

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30))
    def cancel(self, number: int) -> None:
        if self.ids:
            self.twice(paying.cancel, self.ids[number % len(self.ids)])

    @rule(numbers=st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True))
    def send(self, numbers: list[int]) -> None:
        if not self.ids:
            return
        chosen = list(dict.fromkeys(self.ids[each % len(self.ids)] for each in numbers))
        known = paying.payee(self.store).payouts
        draft = Draft(
            file_id=uuid4(),
            format="csv",
            currency="USD",
            debtor=Debtor(),
            execute_on=date(2026, 1, 6),
            lines=[
                BankFileLine(
                    payout_id=each,
                    account_id=paying.EARNINGS,
                    details_id=self.details,
                    end_to_end_id=each.hex[:20],
                    nanos=known[each].requested.money.nanos,
                )
                for each in chosen
            ],
        )
        possible = all(known[each].state == "approved" for each in chosen)
        possible &= paying.payee(self.store).channel == "bank-file"
        written = self.twice(
            payouts.write_bank_file,
            draft,
            render=lambda event: event.message_id.encode(),
            platform_id=book.PLATFORM,
            user_id=JOAN,
            by=SOMEBODY,
            now=NOON + timedelta(hours=1),
        )
        assert written == possible

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30))
    def pay(self, number: int) -> None:
        if self.ids:
            self.twice(paying.paid, self.ids[number % len(self.ids)])

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30))
    def give_back(self, number: int) -> None:
        if self.ids:
            self.twice(paying.returned, self.ids[number % len(self.ids)])

    # --- over Stripe ------------------------------------------------------------------------

    @rule()
    def over_stripe_from_now_on(self) -> None:
        """Let the owner's account be ready and chosen, and what is approved be sent there."""
        self.stripe_says("ready")
        self.choose("stripe")
        for payout in self.ids:
            with suppress(Refusal):
                connect.send_over_stripe(self.store, paying.EARNINGS, payout, by=SOMEBODY, now=NOON)

    @rule(state=st.sampled_from(["ready", "ready", "restricted"]))
    def stripe_says(self, state: ConnectedState) -> None:
        self.twice(
            connect.note_account_state,
            paying.EARNINGS,
            state=state,
            missing=(),
            words="",
            by=SOMEBODY,
            now=NOON,
        )

    @rule(channel=st.sampled_from(["stripe", "stripe", "bank-file"]))
    def choose(self, channel: Channel) -> None:
        self.twice(
            connect.choose_channel,
            paying.of(),
            channel,
            wait_seconds=0,
            user_id=IRIS,
            by=SOMEBODY,
            now=NOON,
        )

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30))
    def send_over_stripe(self, number: int) -> None:
        if self.ids:
            payout = self.pick(number, "approved")
            before = paying.payee(self.store)
            sent = self.twice(
                connect.send_over_stripe, paying.EARNINGS, payout, by=SOMEBODY, now=NOON
            )
            if sent and before.payouts[payout].channel is None:
                assert before.channel == "stripe" and before.payouts[payout].state == "approved"

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30), outcome=st.sampled_from(["made", "made", "waits", "refused"]))
    def transfer(self, number: int, outcome: str) -> None:
        if self.ids:
            self.tell(self.pick(number, "sent"), outcome)

    def tell(self, payout: UUID, outcome: str) -> None:
        """Let Stripe say what became of a transfer."""
        where = {"currency": "USD", "platform_id": book.PLATFORM, "by": SOMEBODY, "now": NOON}
        match outcome:
            case "made":
                day = date(2026, 1, 7)
                self.twice(
                    connect.note_transfer,
                    paying.EARNINGS,
                    payout,
                    reference=f"tr_{payout}",
                    paid_on=day,
                    **where,
                )
            case "refused":
                self.twice(connect.note_refused, paying.EARNINGS, payout, reason="no", **where)
            case _:
                with suppress(Refusal):
                    connect.note_waiting(
                        self.store,
                        paying.EARNINGS,
                        payout,
                        reason="too little",
                        by=SOMEBODY,
                        now=NOON,
                    )

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30), cents=st.integers(1, 2_000))
    def ask_back(self, number: int, cents: int) -> None:
        if not self.ids:
            return
        payout = self.pick(number, "paid")
        count = len(paying.payee(self.store).payouts[payout].asked_back)
        with suppress(Refusal):
            connect.ask_transfer_back(
                self.store,
                paying.EARNINGS,
                payout,
                number=count + 1,
                money=Money(cents * CENT),
                unit=CENT,
                reason="twice",
                user_id=OSCAR,
                by=SOMEBODY,
                now=NOON,
            )

    @precondition(lambda self: self.ids)
    @rule(
        number=st.integers(0, 30),
        asked=st.integers(0, 3),
        cents=st.integers(1, 2_000),
        reference=st.sampled_from(["a", "b", "c", "d"]),
    )
    def come_back(self, number: int, asked: int, cents: int, reference: str) -> None:
        if not self.ids:
            return
        payout = self.pick(number, "paid")
        before = paying.payee(self.store).payouts[payout]
        request = before.asked_back.get(asked)
        if asked and request is None:
            return
        money = Money(cents * CENT) if request is None else request.money
        done = self.twice(
            connect.note_back,
            paying.EARNINGS,
            payout,
            number=asked,
            reference=f"trr_{reference}_{payout}",
            money=money,
            platform_id=book.PLATFORM,
            by=SOMEBODY,
            now=NOON,
        )
        after = paying.payee(self.store).payouts[payout]
        if done and after != before:
            assert before.state == "paid" and before.channel == "stripe"

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 30), asked=st.integers(1, 3))
    def nothing_back(self, number: int, asked: int) -> None:
        if self.ids:
            self.twice(
                connect.note_nothing_back,
                paying.EARNINGS,
                self.ids[number % len(self.ids)],
                number=asked,
                reason="too little there",
                by=SOMEBODY,
                now=NOON,
            )

    @invariant()
    def the_books_balance_and_say_where_each_payout_is(self) -> None:
        totals = book.totals(self.store)
        assert sum(totals.values()) == 0
        known = paying.payee(self.store).payouts.values()
        on_the_way = sum(each.requested.money.nanos for each in known if each.state in IN_TRANSIT)
        gone = sum(
            each.requested.money.nanos - sum(each.came_back.values())
            for each in known
            if each.state == "paid"
        )
        assert totals[TRANSIT] == on_the_way
        assert totals[CASH] == gone - usd(1_000_000).nanos
        assert paying.payee(self.store).paid_out == on_the_way + gone

    @invariant()
    def a_payout_is_in_one_file_only(self) -> None:
        events = (each.event for each in self.store.read_all(limit=100_000).events)
        sent = [
            line.payout_id
            for event in events
            if isinstance(event, BankFileWritten)
            for line in event.lines
        ]
        assert len(set(sent)) == len(sent)

    @invariant()
    def no_more_came_back_than_arrived_and_all_of_it_is_returned(self) -> None:
        for each in paying.payee(self.store).payouts.values():
            came = sum(each.came_back.values())
            assert 0 <= came <= each.requested.money.nanos
            if each.channel == "stripe":
                assert (came == each.requested.money.nanos) == (
                    each.state == "returned" and each.paid is not None
                )

    @invariant()
    def corrections_name_what_they_correct(self) -> None:
        entries = {entry.entry_id: entry for entry in book.entries(self.store)}
        for entry in entries.values():
            undone = getattr(entry, "corrects", None)
            if undone is not None:
                before = {line.account_id: line.nanos for line in entries[undone].postings}
                moved = {line.account_id: -line.nanos for line in entry.postings}
                assert set(moved) & set(before)


PayoutMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
TestPayouts = PayoutMachine.TestCase
