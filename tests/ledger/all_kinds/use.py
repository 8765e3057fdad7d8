"""Rules of use: holds, captures and corrections, pauses, volumes, reclaim, promises, disputes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid5

from hypothesis import strategies as st

from ledger import commands
from ledger.access import Actor
from ledger.commands.disputes import decide_dispute, open_dispute_about
from ledger.commands.repricing import repricing_hold
from ledger.commands.sla import credit_missed_sla
from ledger.commands.storage import charge_volume
from ledger.domain.account_ids import fee_account
from ledger.domain.disputes import dispute_of
from ledger.domain.ids import AccountId, EntryId, HoldId, LeaseId, TenantId, UserId
from ledger.domain.journal import usage_entry
from ledger.domain.money import Money, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.sla_credits import SlaMiss
from ledger.domain.span import Window
from ledger.domain.storage_charges import Kept
from ledger.eventstore.port import EventStore
from ledger.eventstore.together import record_together
from ledger.queries.disputes import charge_to_contest
from tests.ledger.all_kinds import world
from tests.ledger.all_kinds.paper import PaperDispute, PaperHold, PaperUse, shared
from tests.ledger.all_kinds.world import (
    JOAN,
    OSCAR,
    OWNERS,
    START,
    UNITS,
    Unit,
    asks,
    earnings,
    pick,
)

HOURS = (0, 1, 2, 11, 12, 35, 36, 37, 779, 780)
"""After the start: noon, around midnight before and after 29 February, and around 1 April."""
AMOUNTS = st.one_of(
    st.integers(0, 30_000_000_000), st.integers(0, 3), st.just(10**18), st.just(9 * 10**18 + 1)
)
NUMBERS = st.integers(0, 40)
GIB_MONTH = 2**30 * 730 * 3_600


def lease_of(hold_id: HoldId) -> LeaseId:
    """Return the lease that a hold is for."""
    return LeaseId(uuid5(hold_id, "lease"))


def _repriced(store: EventStore, **terms: Any) -> None:
    record_together(store, [repricing_hold(**terms)])


class Use(world.People):
    """What consumers and owners do."""

    def hold(self, number: int) -> tuple[HoldId, PaperHold] | None:
        found = list(self.paper.holds.items())
        return pick(found, number) if found else None

    @asks(
        unit=st.sampled_from(UNITS),
        nanos=AMOUNTS,
        price=st.one_of(st.integers(0, 4_000_000_001), st.just(10**15)),
        fee_ppm=st.sampled_from([0, 1, 80_000, 999_999, 1_000_000]),
    )
    def place(self, unit: Unit, nanos: int, price: int, fee_ppm: int) -> None:
        hold_id = HoldId(self.named("hold"))
        possible = nanos <= 9 * 10**18 and self.paper.affords(unit.account_id, nanos)
        placed = self.succeeds(
            commands.place_hold,
            account_id=unit.account_id,
            hold_id=hold_id,
            money=Money(nanos, unit.currency),
            purpose=f"bid:{hold_id}",
        )
        assert placed == possible
        if placed:
            self.paper.holds[hold_id] = PaperHold(unit.account_id, nanos, [(START, price)], fee_ppm)

    @asks(when=lambda self: self.paper.holds, number=NUMBERS, nanos=AMOUNTS)
    def resize(self, number: int, nanos: int) -> None:
        if (found := self.hold(number)) is not None:
            self._resized(*found, nanos)

    @asks(when=lambda self: self.paper.holds, number=NUMBERS)
    def pause(self, number: int) -> None:
        """Work that is paused keeps what it has cost, and sets no more aside."""
        if (found := self.hold(number)) is not None:
            self._resized(*found, found[1].captured)

    def _resized(self, hold_id: HoldId, hold: PaperHold, nanos: int) -> None:
        more = nanos - hold.money
        possible = (not hold.released and hold.captured <= nanos <= 9 * 10**18) and (
            more <= 0 or self.paper.affords(hold.account_id, more)
        )
        resized = self.succeeds(
            commands.resize_hold,
            account_id=hold.account_id,
            hold_id=hold_id,
            money=Money(nanos, self.currency(hold.account_id)),
        )
        assert resized == (possible or more == 0)
        if resized:
            hold.money = nanos

    @asks(
        when=lambda self: self.paper.holds,
        number=NUMBERS,
        hour=st.sampled_from(HOURS),
        first=st.integers(0, 3_600_000),
        second=st.integers(0, 3_600_000),
        correction=st.integers(0, 2),
    )
    def capture(self, number: int, hour: int, first: int, second: int, correction: int) -> None:
        found = self.hold(number)
        if found is None or self.now < START + timedelta(hours=hour + 1):
            return
        hold_id, hold = found
        currency, millis = self.currency(hold.account_id), first + second
        starts_at = START + timedelta(hours=hour)
        window = Window(starts_at, starts_at + timedelta(hours=1))
        entry_id = usage_entry(lease_of(hold_id), window, correction)
        before = hold.hours.get((hour, correction))
        cost, fee = hold.captured, hold.fee(hold.captured)
        price = hold.price_at(starts_at)
        charged = hold.cost(price, millis)
        if before is not None:
            possible = before == (first, second)
        else:
            possible = millis == 0 or (
                cost + charged <= hold.money
                and (not hold.released or self.paper.affords(hold.account_id, charged))
            )
        captured = self.succeeds(
            commands.capture_usage,
            account_id=hold.account_id,
            hold_id=hold_id,
            lease_id=lease_of(hold_id),
            window=window,
            gpu_millis=millis,
            price=Rate(price, currency),
            fee_ppm=hold.fee_ppm,
            owner_millis=list(zip(OWNERS, (first, second), strict=True)),
            platform_id=PLATFORM_ID,
            cost_centre="CC-1",
            correction=correction,
        )
        assert captured == possible, (before, first, second)
        if not captured or before is not None or not millis:
            return
        hold.hours[hour, correction] = (first, second)
        hold.millis[price] += millis
        fee = hold.fee(cost + charged) - fee
        parts = shared(charged - fee, (first, second))
        to = [earnings(owner, currency) for owner in OWNERS]
        fees = fee_account(PLATFORM_ID, currency)
        for target, nanos in zip((fees, *to), (fee, *parts), strict=True):
            self.paper.move(hold.account_id, target, nanos)
        self.paper.charge(hold.account_id, charged, window.starts_at)
        got = [(fees, None, fee), *zip(to, OWNERS, parts, strict=True)]
        self.paper.uses.append(
            PaperUse(
                entry_id,
                hold.account_id,
                millis,
                charged,
                [each for each in got if each[2]],
                window.ends_at,
                hold,
            )
        )

    @asks(
        when=lambda self: self.paper.holds,
        number=NUMBERS,
        hour=st.sampled_from(HOURS),
        price=st.integers(0, 4_000_000_001),
    )
    def agree_on_another_price(self, number: int, hour: int, price: int) -> None:
        if (found := self.hold(number)) is None:
            return
        hold_id, hold = found
        currency = self.currency(hold.account_id)
        since = START + timedelta(hours=hour)
        same = len(hold.prices) > 1 and hold.prices[-1] == (since, price)
        possible = same or (
            not hold.released
            and (len(hold.prices) == 1 or since > hold.prices[-1][0])
            and not any(each >= hour for each, correction in hold.hours if not correction)
        )
        done = self.succeeds(
            _repriced,
            account_id=hold.account_id,
            hold_id=hold_id,
            before=Rate(hold.price_at(since), currency),
            price=Rate(price, currency),
            since=since,
            money=Money(hold.money, currency),
        )
        assert done == possible
        if done and not same:
            hold.prices.append((since, price))

    @asks(when=lambda self: self.paper.holds, number=NUMBERS)
    def release(self, number: int) -> None:
        if (found := self.hold(number)) is not None:
            hold_id, hold = found
            terms = {"account_id": hold.account_id, "hold_id": hold_id}
            assert self.succeeds(commands.release_hold, **terms)
            hold.released = True

    @asks(unit=st.sampled_from(UNITS), days=st.integers(1, 40), price=st.integers(0, 10**9))
    def keep_a_volume(self, unit: Unit, days: int, price: int) -> None:
        volume = self.named("volume")
        start = START + timedelta(days=1)
        seconds = days * 86_400
        if self.now < start + timedelta(days=days):
            return
        piece = Kept(
            volume_id=volume,
            title="data",
            window=Window(start, start + timedelta(days=days)),
            byte_seconds=(2**40 + 1) * seconds,
            nanos_per_gib_month=price,
            currency=unit.currency,
            cost_centre="CC-1",
        )
        charged = (2**40 + 1) * seconds * price // GIB_MONTH
        possible = charged == 0 or self.paper.affords(unit.account_id, charged)
        done = self.succeeds(
            charge_volume, account_id=unit.account_id, pieces=[piece], platform_id=PLATFORM_ID
        )
        assert done == possible
        if done and charged:
            self.paper.move(unit.account_id, fee_account(PLATFORM_ID, unit.currency), charged)
            self.paper.charge(unit.account_id, charged, start)

    @asks(
        when=lambda self: self.paper.holds,
        number=NUMBERS,
        owner=st.sampled_from(OWNERS),
        nanos=st.integers(1, 10**11),
    )
    def reclaim(self, number: int, owner: TenantId, nanos: int) -> None:
        """An owner takes capacity back and pays for it, once for a lease."""
        found = self.hold(number)
        if found is None:
            return
        hold_id, hold = found
        currency, key = self.currency(hold.account_id), (hold_id, owner)
        done = self.succeeds(
            commands.pay_compensation,
            account_id=hold.account_id,
            lease_id=lease_of(hold_id),
            owner_id=owner,
            money=Money(nanos, currency),
        )
        assert done == (self.reclaimed.get(key, nanos) == nanos)
        if done and key not in self.reclaimed:
            self.reclaimed[key] = nanos
            self._given(hold.account_id, earnings(owner, currency), nanos)

    @asks(
        when=lambda self: self.paper.holds,
        number=NUMBERS,
        owner=st.integers(0, 1),
        gpus=st.integers(1, 4),
        credit_ppm=st.sampled_from([0, 1, 100_000, 1_000_000]),
    )
    def miss_a_promise(self, number: int, owner: int, gpus: int, credit_ppm: int) -> None:
        found = self.hold(number)
        if found is None:
            return
        hold_id, hold = found
        key = (hold_id, owner)
        left_by_disputes = hold.captured - hold.disputed
        money = min(left_by_disputes * gpus // 4 * credit_ppm // 1_000_000, hold.left)
        miss = SlaMiss(
            hold_id=hold_id,
            lease_id=lease_of(hold_id),
            owner_id=OWNERS[owner],
            gpus=gpus,
            of_gpus=4,
            credit_ppm=credit_ppm,
            reason="99 % of 100 %",
        )
        done = self.succeeds(credit_missed_sla, account_id=hold.account_id, miss=miss)
        assert done == (self.missed.get(key, credit_ppm) == credit_ppm)
        if done and money and key not in self.missed:
            self.missed[key] = credit_ppm
            hold.missed[OWNERS[owner]] = (money, left_by_disputes)
            currency = self.currency(hold.account_id)
            self._given(hold.account_id, earnings(OWNERS[owner], currency), money)

    def _given(self, payer: AccountId, source: AccountId, nanos: int) -> None:
        """Note that something charged was given back to who paid."""
        self.paper.move(source, payer, nanos)
        self.paper.charge(payer, -nanos, self.now)

    @asks(when=lambda self: self.paper.uses, number=NUMBERS, used=st.integers(0, 3_600_000))
    def contest(self, number: int, used: int) -> None:
        if not self.paper.uses:
            return
        use: PaperUse = pick(self.paper.uses, number)
        self.follow()
        unit = next(each for each in UNITS if each.account_id == use.account_id)
        charge = charge_to_contest(
            Actor(tenant_id=unit.tenant, user_id=JOAN),
            use.entry_id,
            used_millis=used,
            reason="the work stood still",
            user_id=JOAN,
            now=self.now,
        )
        known = self.paper.disputes.get(use.entry_id)
        nanos = use.nanos * (use.millis - used) // use.millis
        fresh = used < use.millis and nanos > 0 and self.now <= use.at + timedelta(days=60)
        done = self.succeeds(open_dispute_about, charge)
        if known is not None:
            assert done == (self.contested[use.entry_id] == used)
            return
        assert done == fresh
        if done:
            split = shared(nanos, [each for _, _, each in use.parts])
            parts = [
                (account_id, owner, part)
                for (account_id, owner, _), part in zip(use.parts, split, strict=True)
            ]
            self.paper.disputes[use.entry_id] = PaperDispute(use, use.account_id, parts)
            self.contested[use.entry_id] = used

    @asks(
        when=lambda self: self.paper.disputes,
        number=NUMBERS,
        outcome=st.sampled_from(["upheld", "in-part", "dismissed"]),
        percent=st.integers(1, 99),
        person=st.sampled_from([JOAN, OSCAR, None]),
    )
    def decide(self, number: int, outcome: str, percent: int, person: UserId | None) -> None:
        if not self.paper.disputes:
            return
        entry_id: EntryId = pick(list(self.paper.disputes), number)
        dispute = self.paper.disputes[entry_id]
        weights = [nanos for _, _, nanos in dispute.parts]
        back = {"dismissed": 0, "upheld": sum(weights)}.get(outcome, sum(weights) * percent // 100)
        part = Money(back, self.currency(dispute.account_id)) if outcome == "in-part" else None
        done = self.succeeds(
            decide_dispute,
            dispute_of(entry_id),
            outcome,
            reason="the meter",
            user_id=person,
            given_back=part,
        )
        if dispute.outcome:
            same = (dispute.outcome, dispute.back) == (outcome, back)
            assert done == (person != JOAN and same)
            return
        left = dispute.use.left(dispute.parts)
        fits = part is None or (0 < back < sum(weights) and back <= sum(left))
        assert done == (person != JOAN and fits)
        if done:
            dispute.outcome, dispute.back = outcome, back
            if not sum(left):
                return
            parts = shared(min(back, sum(left)), left)
            for each, nanos in zip(dispute.parts, parts, strict=True):
                self._given(dispute.account_id, each[0], nanos)
            dispute.use.hold.disputed += sum(parts)
            assert dispute.use.hold.left >= 0
