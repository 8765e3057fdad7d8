"""Prove that a round takes back only what was borrowed, for a bid whose own it is.

Adds up who uses what by the policies as they were set; shares nothing with what chose the leases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.facts.events import Cut, LeaseGranted, Share
from marketplace.domain.facts.instants import ONE_MILLI, from_above, from_below, moment
from marketplace.domain.leases.reclaim_schedule import compensation
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import Use
from marketplace.domain.verification.card_units import Size, gpus_in
from marketplace.domain.verification.quotas import RulesAt, until, use_of

Stopped = Sequence[tuple[Held, Cut]]


def faults_of_reclaim(
    book: Book,
    grants: Sequence[LeaseGranted],
    granted: LeaseGranted,
    bid: OpenBid,
    stopped: Stopped,
) -> Iterator[str]:
    """Find why leases may not be taken back for a grant; nothing if a quota of one class lets it.

    grants: all of the round, in order.
    """
    assert book.quotas is not None and book.quotas.policies is not None
    policies = book.quotas.policies
    first: list[str] | None = None
    for gpu_class in policies.classes:
        found = list(InClass(book, policies, gpu_class, grants, granted, bid).faults(stopped))
        if not found:
            first = []
            break
        first = first or found
    yield from ["no quota speaks of what is taken back"] if first is None else first
    yield from faults_of_compensation(book, granted, stopped)


@dataclass(frozen=True, slots=True)
class InClass:
    """One grant, and what is used of one class of GPUs."""

    book: Book
    policies: Policies
    gpu_class: str
    grants: Sequence[LeaseGranted]
    granted: LeaseGranted
    bid: OpenBid

    def faults(self, stopped: Stopped) -> Iterator[str]:
        """Find what forbids to take back quota of this class."""
        unit, rules = str(self.bid.terms.subscriber_id), self.rules_at(self.granted.at)
        if unit not in rules.parents or not rules.binds(unit):
            yield f"{self.gpu_class}: no quota binds {unit}"
            return
        root = rules.around(unit)[-1]
        for held, cut in stopped:
            other = "" if held.bid is None else str(held.bid.subscriber_id)
            if other == unit or other not in rules.parents or rules.around(other)[-1] != root:
                yield f"lease {cut.lease_id} is of no other unit of its cohort"
            elif not self.size_of(cut.lease_id):
                yield f"lease {cut.lease_id} has no {self.gpu_class}"
            elif not self._borrows(rules, other):
                yield f"lease {cut.lease_id} is within what {other} has of {self.gpu_class}"
            elif not self._in_the_way(held, cut, unit):
                yield f"lease {cut.lease_id} is not in the way"
        yield from self.beyond_own(unit)

    @property
    def before(self) -> Sequence[LeaseGranted]:
        """Return the grants of the round before this one."""
        return self.grants[: self.grants.index(self.granted)]

    def rules_at(self, at: datetime) -> RulesAt:
        return RulesAt(self.policies, self.gpu_class, at)

    def size(self, use: Use) -> Size:
        return gpus_in(self.policies, self.gpu_class, use)

    def size_of(self, lease_id: LeaseId) -> Size:
        """Return what a lease counts as; 0 of one that no quota counts."""
        assert self.book.quotas is not None
        use = self.book.quotas.uses.get(lease_id)
        return 0 if use is None else self.size(use)

    def _borrows(self, rules: RulesAt, unit: str) -> bool:
        """Tell if a unit uses more than it has until the last of its leases is taken from it.

        What later grants of the round cut still runs then.
        """
        assert self.book.quotas is not None
        now = from_above(self.granted.at)
        gone = {each.lease_id for granted in self.before for each in granted.cuts}
        cut = {each.lease_id for each in self.granted.cuts}
        runs: Size = 0
        last: Size = 0
        for lease_id, use in self.book.quotas.uses.items():
            held = self.book.held.get(lease_id)
            if str(use.terms.subscriber_id) != unit or not use.starts <= now < use.ends:
                continue
            if lease_id in cut:
                last = max(last, self.size(use))
            elif lease_id not in gone and (
                held is None or held.ends >= from_below(held.granted.window.ends_at)
            ):
                runs += self.size(use)
        # What the round gave it just now it uses, too.
        runs += sum(
            self.size(use) for use in self.given_at(now) if str(use.terms.subscriber_id) == unit
        )
        return runs + last > rules.has(unit)

    def given_at(self, now: int) -> Iterator[Use]:
        """Yield what grants of the round before this one use at once."""
        for granted in self.before:
            for use in use_of(self.book, granted):
                if use.starts <= now < use.ends:
                    yield use

    def _uses(self, spared: LeaseId | None = None) -> list[Use]:
        """Return all use once the round is done up to this grant; spared: a lease that goes on."""
        assert self.book.quotas is not None
        done = [*self.before, self.granted]
        cut = {each.lease_id: from_above(each.ends_at) for one in done for each in one.cuts}
        found = [
            use if lease_id not in cut or lease_id == spared else until(use, cut[lease_id])
            for lease_id, use in self.book.quotas.uses.items()
        ]
        return found + [use for each in done for use in use_of(self.book, each)]

    def _moments(
        self, uses: Sequence[Use], since: int, ends: int
    ) -> Iterator[tuple[int, dict[str, Size]]]:
        """Yield when something begins or changes in a span, and what each unit then uses."""
        changes = (from_above(each) for each in self.policies.changes_of(self.gpu_class))
        edges = {since, *changes, *(use.starts for use in uses)}
        for at in sorted(each for each in edges if since <= each < ends):
            direct: dict[str, Size] = defaultdict(int)
            for use in uses:
                if use.starts <= at < use.ends:
                    direct[str(use.terms.subscriber_id)] += self.size(use)
            yield at, direct

    @property
    def _span(self) -> tuple[int, int]:
        window = self.granted.window
        return from_below(window.starts_at), from_above(window.ends_at)

    def beyond_own(self, unit: str) -> Iterator[str]:
        """Check that the grant is within what its unit has, at each moment and in each period."""
        uses = self._uses()
        for at, direct in self._moments(uses, *self._span):
            has = self.rules_at(moment(at)).has(unit)
            if direct[unit] > has:
                yield f"{self.gpu_class}: {direct[unit]} used of {has} that are {unit}'s own"
                return
        yield from self._in_hours(unit, uses)

    def _in_hours(self, unit: str, uses: Sequence[Use]) -> Iterator[str]:
        assert self.book.quotas is not None
        rules, (at, ends) = self.rules_at(self.granted.window.starts_at), self._span
        counted = [*uses, *self.book.quotas.over]
        while at < ends:
            since, later = map(from_below, self.policies.period_at(moment(at)))
            for node in rules.around(unit):
                quota = rules.set_for.get(node)
                if quota is None or quota.gpu_hours is None:
                    continue
                total = sum(
                    self.size(use) * max(0, min(use.ends, later) - max(use.starts, since))
                    for use in counted
                    if (whose := str(use.terms.subscriber_id)) in rules.parents
                    and node in rules.around(whose)
                )
                if total > quota.gpu_hours * MILLIS_PER_HOUR:
                    yield f"{self.gpu_class}: beyond the guaranteed GPU-hours of {node}"
            at = later

    def _in_the_way(self, held: Held, cut: Cut, unit: str) -> bool:
        """Tell if the grant needs a GPU, or the quota, that a lease gives up."""
        taken = {uuid for share in self.granted.shares for uuid in share.gpu_uuids}
        given = {uuid for share in held.granted.shares for uuid in share.gpu_uuids}
        since, ends = max(self._span[0], from_above(cut.ends_at)), min(self._span[1], held.ends)
        if taken & given and since < ends:
            return True
        for at, direct in self._moments(self._uses(spared=cut.lease_id), since, ends):
            rules = self.rules_at(moment(at))
            used = rules.all_used(direct)
            for node in rules.around(unit):
                most = rules.most(node)
                if most is not None and used[node] > most:
                    return True
        return False


def owed(held: Held, cut: Cut, shares: Sequence[Share], *, asked_at: datetime) -> int:
    """Return what the owners of some shares of a cut lease owe its consumer, in nano-units."""
    first = held.granted
    return compensation(
        shares,
        first.price,
        starts_at=first.window.starts_at,
        ends_at=moment(held.ends),
        asked_at=asked_at,
        stop_at=cut.ends_at,
    ).nanos


def faults_of_compensation(book: Book, granted: LeaseGranted, stopped: Stopped) -> Iterator[str]:
    """Check that each owner earns its floors, and on top what it owes those that stop."""
    owes = Counter[TenantId]()
    for held, cut in stopped:
        for share in held.granted.shares:
            owes[share.owner_id] += owed(held, cut, [share], asked_at=granted.at)
    earns: dict[TenantId, int] = defaultdict(int)
    lasts = granted.window.length // ONE_MILLI
    for share in granted.shares:
        listed = book.offers.get(share.offer_id)
        floor = 0 if listed is None else listed.floor
        earns[share.owner_id] += (granted.price.nanos_per_gpu_hour - floor) * len(share.gpu_uuids)
    for owner_id, nanos in owes.items():
        if nanos and earns[owner_id] * lasts < nanos * MILLIS_PER_HOUR:
            yield f"owner {owner_id} owes {nanos} for what is taken back, and earns less for it"
