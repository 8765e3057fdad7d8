"""Quotas and limits over time: who holds what when, folded from the log with the policies.

A lease takes quota over its whole window, so that nobody is over it at any moment of it, also
where the lease is yet to start or an override is yet to begin. Whether something fits therefore
depends on the log and the window alone, not on when it is asked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.facts.policy_events import GovernanceEvent, HalfLifeSet, LimitScope, UseKind
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.card_units import by_card, unit_of
from marketplace.domain.quotas.cohort_tree import Quota, Tree, Usage
from marketplace.domain.quotas.derived_totals import Held, Sums
from marketplace.domain.quotas.fair_share_order import Decayed, FairShare, Standings, remembered
from marketplace.domain.quotas.limits import at_once, in_periods
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import FREE, Answer, Use, subject_of

QUOTA = "quota"
NOT_ALLOWED = "not-allowed"
LAYERS: tuple[LimitScope, ...] = ("bid", "user", "subscriber", "tenant")
KEPT = 32 * 24 * MILLIS_PER_HOUR
"""How long what is over still counts in a period: longer than the longest."""
HOPS_MAX = 64
"""Later starts at which it is asked whether a use fits there."""


class QuotaBook:
    """The policies of one market, and all use that they count."""

    def __init__(self) -> None:
        self.policies: Policies | None = None
        self.uses: dict[LeaseId, Use] = {}
        self._over: list[Use] = []
        self._decayed: dict[str, dict[str, Decayed]] = defaultdict(dict)
        self._classes: tuple[str, ...] = ()
        self._layers: tuple[LimitScope, ...] = ()
        self._sums = Sums(self)
        self._lent = False

    def fork(self) -> QuotaBook:
        """Return the same book, to take more in it. This one must not change meanwhile."""
        twin = QuotaBook()
        twin.policies = self.policies
        twin._classes, twin._layers = self._classes, self._layers
        twin.uses, twin._over, twin._decayed = self.uses, self._over, self._decayed
        twin._sums = self._sums.fork()
        twin._lent = True
        return twin

    def copy(self) -> QuotaBook:
        """Return the same book, to try policies in it: nothing of it is shared."""
        twin = QuotaBook()
        twin.policies = self.policies
        twin._classes, twin._layers = self._classes, self._layers
        twin.uses, twin._over = {**self.uses}, [*self._over]
        twin._decayed = defaultdict(dict, {k: {**v} for k, v in self._decayed.items()})
        twin._sums = Sums(twin, self.policies)
        return twin

    # --- folding ---------------------------------------------------------------------------

    def apply(self, event: GovernanceEvent) -> None:
        """Take in a policy. Another half-life counts from then on: what was forgotten stays so."""
        if isinstance(event, HalfLifeSet):
            self._forget_by(event.seconds * 1_000, from_above(event.at))
        counted = self.counts
        self.policies = Policies.evolve(self.policies, event)
        self.note_policies()
        alike = self.policies.counts == counted
        self._sums = Sums(self, self.policies, self._sums.tallies if alike else None)

    def note_policies(self) -> None:
        """Take note of the classes that quotas speak of, and of the scopes that have limits."""
        if self.policies is not None:
            self._classes = tuple(self.policies.classes)
            limited = {scope for scope, _ in self.policies.limits}
            self._layers = tuple(scope for scope in LAYERS if scope in limited)

    def _forget_by(self, half_life: int, at: int) -> None:
        for decayed in self._decayed.values():
            for model, before in decayed.items():
                decayed[model] = replace(before.carried(at), half_life=half_life)

    def take(self, lease_id: LeaseId, use: Use) -> None:
        if lease_id not in self.uses:
            self._put(lease_id, use)

    def drop(self, lease_id: LeaseId) -> Use | None:
        """Take a grant back as if it had never been; return what it was."""
        use = self._own().pop(lease_id, None)
        if use is not None:
            self._sums.count(use, -1)
        return use

    def move(self, lease_id: LeaseId, use: Use) -> None:
        """Count a grant otherwise than before."""
        if lease_id in self.uses:
            self._sums.count(self.uses[lease_id], -1)
        self._put(lease_id, use)

    def extend(self, lease_id: LeaseId, ends: int) -> None:
        if lease_id in self.uses:
            self.move(lease_id, replace(self.uses[lease_id], ends=ends))

    def reprice(self, lease_id: LeaseId, price: int) -> None:
        """Count a use at another price: what it has had and is still to have, if that is more."""
        if lease_id in self.uses:
            use = self.uses[lease_id]
            self.move(lease_id, replace(use, price=max(use.price, price)))

    def release(self, lease_id: LeaseId, at: int) -> None:
        """Stop counting a use from `at` on; again changes nothing."""
        use = self._own().pop(lease_id, None)
        if use is None:
            return
        self._sums.count(use, -1)
        if at <= use.starts:
            return
        done = replace(use, ends=at)
        self._over.append(done)
        self._sums.count(done, 1, over=True)
        decayed = self._decayed[str(done.terms.subscriber_id)]
        for each in done.gpus:
            before = decayed.get(each.model) or Decayed(self._half_life)
            decayed[each.model] = before.plus(each.gpus, done.starts, at, at=at)

    def forget_before(self, millis: int) -> None:
        self._over = [use for use in self._over if use.ends > millis - KEPT]
        self._sums.forget_before(millis)

    def _own(self) -> dict[LeaseId, Use]:
        """Return the uses, to be changed."""
        if self._lent:
            self.uses, self._lent = {**self.uses}, False
        return self.uses

    def _put(self, lease_id: LeaseId, use: Use) -> None:
        self._own()[lease_id] = use
        self._sums.count(use, 1)

    def extends(self, lease_id: LeaseId, ends: int) -> Answer:
        """Tell if a use may go on until `ends`."""
        use = self.uses.get(lease_id)
        return FREE if use is None else self.check(replace(use, starts=use.ends, ends=ends))

    @property
    def over(self) -> list[Use]:
        """Return the uses that have ended and still count in a period."""
        return self._over

    # --- asking ----------------------------------------------------------------------------

    def check(self, use: Use, *, borrowing: bool = True) -> Answer:
        """Tell if one more use fits every quota and every limit at every moment of it.

        borrowing: whether it may be more than is its unit's own.
        """
        if self.policies is None:
            return FREE
        for scope in self._layers:
            refused = self._over_limit(scope, use)
            if refused is not None:
                return refused
        if not all(self.may("lease", use.terms, each.model) for each in use.gpus):
            return Answer("refused", NOT_ALLOWED, "these GPUs may not be leased by this unit")
        answer = FREE
        for gpu_class in self._classes:
            gpus = use.of_class(gpu_class, self.counts)
            if gpus:
                found = self._in_class(gpu_class, use, gpus, borrowing)
                if not found.fits:
                    return found
                if found.outcome is not None and answer.outcome != "borrowed":
                    answer = found
        return answer

    def soonest(self, use: Use, latest: int) -> int | None:
        """Return the first start at which a use fits, or None; not after `latest`."""
        for _ in range(HOPS_MAX):
            answer = self.check(use)
            if answer.fits:
                return use.starts
            starts = max(answer.again, use.starts + 1)
            if starts > latest:
                return None
            use = replace(use, starts=starts, ends=use.ends + starts - use.starts)
        return None

    def _in_class(self, gpu_class: str, use: Use, gpus: int, borrowing: bool) -> Answer:
        node = str(use.terms.subscriber_id)
        may_borrow = borrowing and self._may_borrow(use)
        found = self._sums.room(gpu_class).check(
            node, use.starts, use.ends, gpus, may_borrow=may_borrow
        )
        answer = FREE
        if found is not None:
            figures = f"{gpu_class}: {found.verdict.in_words()}"
            if not found.fits:
                if found.verdict.outcome == "borrowed":
                    figures += ", and may not be borrowed"
                return Answer("refused", QUOTA, figures, found.again)
            answer = Answer(found.verdict.outcome, figures=figures)
        return self._in_hours(gpu_class, use, answer)

    def _may_borrow(self, use: Use) -> bool:
        return all(self.may("borrow", use.terms, each.model) for each in use.gpus)

    def may(self, what: UseKind, terms: BidPlaced, model: str) -> bool:
        return self._sums.may(what, terms, model)

    def _in_hours(self, gpu_class: str, use: Use, answer: Answer) -> Answer:
        """Take the guarantee from what is beyond the GPU-hours that are guaranteed, or give it.

        Who has hours and no nominal quota of GPUs is guaranteed whatever GPUs it can have.
        """
        node = str(use.terms.subscriber_id)
        counted = self.guaranteed_hours(gpu_class, node, use.starts, use.ends)
        if not counted:
            return answer
        asked, hour = use.of_class(gpu_class, self.counts), MILLIS_PER_HOUR * unit_of(self.counts)
        for over, hours, starts, ends in counted:
            used = self._sums.hours(gpu_class, over, starts, ends)
            more = asked * max(0, min(use.ends, ends) - max(use.starts, starts))
            if used + more > hours * hour:
                sums = f"{used / hour:g} + {more / hour:g}"
                figures = f"{sums} > {hours} guaranteed GPU-hours of {over}"
                return replace(answer, outcome=answer.outcome and "borrowed", figures=figures)
        only_hours = self._quota(gpu_class, node, use.starts).nominal is None
        if answer.outcome == "nominal" or only_hours:
            figures = answer.figures or "within its GPU-hours"
            return replace(answer, outcome="nominal", figures=figures)
        return answer

    def _quota(self, gpu_class: str, node: str, at: int) -> Quota:
        tree = self._sums.tree_at(gpu_class, at)
        return tree.quota(node) if node in tree.parents else Quota()

    def guaranteed_hours(
        self, gpu_class: str, node: str, starts: int, ends: int
    ) -> list[tuple[str, int, int, int]]:
        """Return who around a unit has guaranteed GPU-hours, how many, in which periods touched."""
        assert self.policies is not None
        tree = self._sums.tree_at(gpu_class, starts)
        if node not in tree.parents:
            return []
        bound = [
            (each, hours)
            for each in tree.path(node)
            if (hours := tree.quota(each).gpu_hours) is not None
        ]
        found, at = list[tuple[str, int, int, int]](), starts
        while bound and at < ends:
            since, until = map(from_below, self.policies.period_at(moment(at)))
            found += [(each, hours, since, until) for each, hours in bound]
            at = until
        return found

    def used_within(self, gpu_class: str, node: str, starts: int, ends: int) -> int:
        """Return what a unit, or all in a cohort, has of a class there, in GPU-milliseconds."""
        tree, used = self._sums.tree_at(gpu_class, starts), 0
        for each in self.counted:
            unit = str(each.terms.subscriber_id)
            if unit == node or (unit in tree.parents and node in tree.path(unit)):
                used += each.of_class(gpu_class, self.counts) * each.during(starts, ends)
        return used // unit_of(self.counts)

    def tree(self, gpu_class: str, node: str, at: int) -> Tree | None:
        """Return the quotas of a class at one moment; None where they do not bind a unit."""
        assert self.policies is not None
        if node not in self.policies.units:
            return None
        tree = self._sums.tree_at(gpu_class, at)
        return tree if tree.governed(node) else None

    def has_own_left(self, gpu_class: str, node: str, gpus: int, at: int) -> bool:
        """Tell if a unit that quotas of a class bind uses so much less than its own at a moment.

        gpus: each counts at least once; so no says that they do not fit, yes that they may.
        """
        tree = self.tree(gpu_class, node, at)
        if tree is None:
            return False
        return self._sums.room(gpu_class).used(node, at) + gpus <= tree.subtree[node]

    def usage(self, gpu_class: str, at: int) -> Usage | None:
        """Return who uses what of a class at a moment, each lease by its id; None: no policies."""
        if self.policies is None:
            return None
        usage = Usage(self._sums.tree_at(gpu_class, at))
        for lease_id, each in self.uses.items():
            node = str(each.terms.subscriber_id)
            if each.starts <= at < each.ends and node in usage.tree.parents:
                usage.take(lease_id, node, each.of_class(gpu_class, self.counts))
        return usage

    # --- limits ----------------------------------------------------------------------------

    def _over_limit(self, scope: LimitScope, use: Use) -> Answer | None:
        assert self.policies is not None
        subject = subject_of(scope, use.terms)
        limit = (
            None if subject is None else self.policies.limit(scope, subject, use.terms.tenant_id)
        )
        if limit is None or limit.tenant_id not in (None, use.terms.tenant_id):
            return None
        if scope == "bid":
            counts = self.counts
            return at_once(limit, use, Held(), counts) or in_periods(
                limit, use, lambda *_: (0, 0), counts
            )
        assert subject is not None
        currency, tallies = use.terms.limit.currency, self._sums.tallies

        def spent(starts: int, ends: int) -> tuple[int, int]:
            of = tallies.spent(scope, subject, (starts, ends))
            return of(""), of(currency)

        if limit.gpus is not None or limit.memory_mib is not None:
            held = tallies.held(scope, subject)
            refused = at_once(limit, use, held, self.counts)
            if refused is not None:
                return refused
        return in_periods(limit, use, spent, self.counts)

    @property
    def counted(self) -> list[Use]:
        """Return what counts in periods: what is held, and what is over."""
        return [*self.uses.values(), *self._over]

    @property
    def counts(self) -> Counts:
        return "whole" if self.policies is None else self.policies.counts

    # --- fair shares -----------------------------------------------------------------------

    @property
    def _half_life(self) -> int:
        return (self.policies or Policies()).half_life_seconds * 1_000

    def goes_last(self, terms: BidPlaced) -> bool:
        """Tell if a bid is of a unit with the weight 0: it gets what all others leave."""
        return self.policies is not None and self.policies.goes_last(str(terms.subscriber_id))

    def standings(self, capacity: Mapping[str, int], *, at: int) -> Standings:
        """Return what every unit and cohort is remembered for, at every level."""
        policies = self.policies or Policies()
        running: dict[str, list[Use]] = defaultdict(list)
        for use in self.uses.values():
            running[str(use.terms.subscriber_id)].append(use)
        units = {*policies.units, *self._decayed, *running}
        return Standings(
            {**dict.fromkeys(units), **policies.parents},
            {
                unit: by_card(self._remembered(unit, running.get(unit, ()), at), self.counts)
                for unit in units
            },
            by_card(capacity, self.counts),
            policies.weight_of,
            half_life=self._half_life,
        )

    def shares(self, capacity: Mapping[str, int], *, at: int) -> list[FairShare]:
        """Return the shares of units that have a place or had any use, who goes first before."""
        standings = self.standings(capacity, at=at)
        return [standings.share(unit) for unit in standings.ordered()]

    def _remembered(self, unit: str, running: Collection[Use], at: int) -> dict[str, float]:
        found: dict[str, list[float]] = defaultdict(list)
        for model, before in self._decayed.get(unit, {}).items():
            found[model].append(before.carried(at).gpu_millis)
        for use in running:
            for each in use.gpus:
                left = remembered(each.gpus, use.starts, use.ends, at=at, half_life=self._half_life)
                found[each.model].append(left)
        return {model: math.fsum(each) for model, each in found.items()}
