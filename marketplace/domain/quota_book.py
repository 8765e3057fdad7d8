"""Quotas and limits over time: who holds what when, folded from the log with the policies.

A lease takes quota over its whole window, so that nobody is over it at any moment of it, also
where the lease is yet to start or an override is yet to begin. Whether something fits therefore
depends on the log and the window alone, not on when it is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.fairness import Decayed, FairShare, fair_share
from marketplace.domain.governance_events import GovernanceEvent, HalfLifeSet, LimitScope
from marketplace.domain.moments import from_above, from_below, moment
from marketplace.domain.policies import Policies
from marketplace.domain.quota_limits import at_once, in_periods, subject_of
from marketplace.domain.quota_uses import FREE, Answer, Use
from marketplace.domain.quotas import Quota, Tree, Usage, Verdict

QUOTA = "quota"
NOT_ALLOWED = "not-allowed"
LAYERS: tuple[LimitScope, ...] = ("bid", "user", "subscriber", "tenant")
KEPT = 32 * 24 * MILLIS_PER_HOUR
"""How long what is over still counts in a period: longer than the longest."""


class QuotaBook:
    """The policies of one market, and all use that they count."""

    def __init__(self) -> None:
        self.policies: Policies | None = None
        self.uses: dict[LeaseId, Use] = {}
        self._over: list[Use] = []
        self._decayed: dict[str, dict[str, Decayed]] = defaultdict(dict)
        self._trees: dict[tuple[str, int], Tree] = {}
        self._classes: tuple[str, ...] = ()

    def fork(self) -> QuotaBook:
        """Return the same book, to take more in it."""
        twin = QuotaBook()
        twin.policies, twin._classes, twin._trees = self.policies, self._classes, self._trees
        twin.uses, twin._over, twin._decayed = self.uses.copy(), self._over, self._decayed
        return twin

    def copy(self) -> QuotaBook:
        """Return the same book, to try policies in it: nothing of it is shared."""
        twin = self.fork()
        twin._over, twin._trees = [*self._over], {}
        twin._decayed = defaultdict(dict, {k: {**v} for k, v in self._decayed.items()})
        return twin

    # --- folding ---------------------------------------------------------------------------

    def apply(self, event: GovernanceEvent) -> None:
        """Take in a policy. Another half-life counts from then on: what was forgotten stays so."""
        if isinstance(event, HalfLifeSet):
            self._forget_by(event.seconds * 1_000, from_above(event.at))
        self.policies = Policies.evolve(self.policies, event)
        self._trees = {}
        self._classes = tuple(self.policies.classes)

    def _forget_by(self, half_life: int, at: int) -> None:
        for decayed in self._decayed.values():
            for model, before in decayed.items():
                decayed[model] = replace(before.carried(at), half_life=half_life)

    def take(self, lease_id: LeaseId, use: Use) -> None:
        """Count a grant, once."""
        self.uses.setdefault(lease_id, use)

    def extend(self, lease_id: LeaseId, ends: int) -> None:
        """Let a use go on."""
        if lease_id in self.uses:
            self.uses[lease_id] = replace(self.uses[lease_id], ends=ends)

    def release(self, lease_id: LeaseId, at: int) -> None:
        """Stop counting a use from `at` on; again changes nothing."""
        use = self.uses.pop(lease_id, None)
        if use is None or at <= use.starts:
            return
        done = replace(use, ends=at)
        self._over.append(done)
        decayed = self._decayed[str(done.terms.subscriber_id)]
        for each in done.gpus:
            before = decayed.get(each.model) or Decayed(self._half_life)
            decayed[each.model] = before.plus(each.gpus, done.starts, at, at=at)

    def forget_before(self, millis: int) -> None:
        """Drop what can no longer count in any period."""
        self._over = [use for use in self._over if use.ends > millis - KEPT]

    def extends(self, lease_id: LeaseId, ends: int) -> Answer:
        """Tell if a use may go on until `ends`."""
        use = self.uses.get(lease_id)
        return FREE if use is None else self.asks(replace(use, starts=use.ends, ends=ends))

    @property
    def over(self) -> list[Use]:
        """Return the uses that have ended and still count in a period."""
        return self._over

    # --- asking ----------------------------------------------------------------------------

    def asks(self, use: Use) -> Answer:
        """Tell if one more use fits every quota and every limit at every moment of it."""
        if self.policies is None:
            return FREE
        for scope in LAYERS:
            refused = self._over_limit(scope, use)
            if refused is not None:
                return refused
        if not all(self.policies.may("lease", use.terms, each.model) for each in use.gpus):
            return Answer("refused", NOT_ALLOWED, "these GPUs may not be leased by this unit")
        answer = FREE
        for gpu_class in self._classes:
            gpus = use.of_class(gpu_class)
            if gpus:
                found = self._in_class(gpu_class, use, gpus)
                if not found.fits:
                    return found
                if found.outcome is not None and answer.outcome != "borrowed":
                    answer = found
        return answer

    def _in_class(self, gpu_class: str, use: Use, gpus: int) -> Answer:
        node = str(use.terms.subscriber_id)
        others = [
            (str(each.terms.subscriber_id), each.of_class(gpu_class), each)
            for each in self.uses.values()
            if each.starts < use.ends and use.starts < each.ends
        ]
        moments = self._moments(gpu_class, use, [each for _, _, each in others])
        answer = FREE
        for index, at in enumerate(moments):
            tree = self.tree(gpu_class, node, at)
            if tree is None:
                continue
            verdict = self._usage(tree, others, at).fits(node, gpus)
            told = f"{gpu_class}: {verdict.told()}"
            if verdict.outcome == "borrowed" and not self._may_borrow(use):
                told += ", and may not be borrowed"
            elif verdict.fits:
                if verdict.outcome == "borrowed" or answer.outcome is None:
                    answer = Answer(verdict.outcome, told=told)
                continue
            later = moments[index + 1] if index + 1 < len(moments) else use.ends
            return Answer("refused", QUOTA, told, later)
        return self._in_hours(gpu_class, use, answer)

    def _may_borrow(self, use: Use) -> bool:
        assert self.policies is not None
        return all(self.policies.may("borrow", use.terms, each.model) for each in use.gpus)

    def _in_hours(self, gpu_class: str, use: Use, answer: Answer) -> Answer:
        """Take the guarantee from what is beyond the GPU-hours that are guaranteed, or give it.

        Who has hours and no nominal quota of GPUs is guaranteed whatever GPUs it can have.
        """
        node = str(use.terms.subscriber_id)
        counted = self.guaranteed_hours(gpu_class, node, use.starts, use.ends)
        if not counted:
            return answer
        asked = use.of_class(gpu_class)
        for over, hours, starts, ends in counted:
            used = self.used_within(gpu_class, over, starts, ends)
            more = asked * max(0, min(use.ends, ends) - max(use.starts, starts))
            if used + more > hours * MILLIS_PER_HOUR:
                figures = (used / MILLIS_PER_HOUR, more / MILLIS_PER_HOUR)
                said = f"{figures[0]:g} + {figures[1]:g} > {hours} guaranteed GPU-hours of {over}"
                return replace(answer, outcome=answer.outcome and "borrowed", told=said)
        only_hours = self._quota(gpu_class, node, use.starts).nominal is None
        if answer.outcome == "nominal" or only_hours:
            return replace(answer, outcome="nominal", told=answer.told or "within its GPU-hours")
        return answer

    def _quota(self, gpu_class: str, node: str, at: int) -> Quota:
        tree = self._tree_at(gpu_class, at)
        return tree.quota(node) if node in tree.parents else Quota()

    def guaranteed_hours(
        self, gpu_class: str, node: str, starts: int, ends: int
    ) -> list[tuple[str, int, int, int]]:
        """Return who around a unit has guaranteed GPU-hours, how many, in which periods touched."""
        assert self.policies is not None
        tree = self._tree_at(gpu_class, starts)
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
        """Return the GPU-milliseconds of a class that a unit, or all in a cohort, has there."""
        assert self.policies is not None
        parents = self._tree_at(gpu_class, starts).parents

        def inside(unit: str) -> bool:
            at: str | None = unit
            while at is not None and at != node:
                at = parents.get(at)
            return at is not None

        return sum(
            each.of_class(gpu_class) * max(0, min(each.ends, ends) - max(each.starts, starts))
            for each in (*self.uses.values(), *self._over)
            if each.starts < ends and starts < each.ends and inside(str(each.terms.subscriber_id))
        )

    def _moments(self, gpu_class: str, use: Use, others: Sequence[Use]) -> list[int]:
        """Return when a use begins, and each moment during it at which anything changes."""
        assert self.policies is not None
        found = {use.starts}
        found.update(edge for each in others for edge in (each.starts, each.ends))
        found.update(from_above(each) for each in self.policies.changes_of(gpu_class))
        return sorted(each for each in found if use.starts <= each < use.ends)

    def _usage(self, tree: Tree, others: Sequence[tuple[str, int, Use]], at: int) -> Usage:
        total: dict[str, int] = defaultdict(int)
        for node, gpus, each in others:
            if each.starts <= at < each.ends and node in tree.parents:
                total[node] += gpus
        usage = Usage(tree)
        for node, gpus in total.items():
            usage.take(node, node, gpus)
        return usage

    def tree(self, gpu_class: str, node: str, at: int) -> Tree | None:
        """Return the quotas of a class at one moment; None where they do not bind a unit."""
        assert self.policies is not None
        if node not in self.policies.units:
            return None
        tree = self._tree_at(gpu_class, at)
        return tree if tree.governed(node) else None

    def _tree_at(self, gpu_class: str, at: int) -> Tree:
        assert self.policies is not None
        edges = sorted(from_above(each) for each in self.policies.changes_of(gpu_class))
        since = max((edge for edge in edges if edge <= at), default=-1)
        key = (gpu_class, since)
        if key not in self._trees:
            self._trees[key] = self.policies.tree(gpu_class, moment(at))
        return self._trees[key]

    def usage(self, gpu_class: str, at: int) -> Usage | None:
        """Return who uses what of a class at one moment; None without policies."""
        if self.policies is None:
            return None
        tree = self.policies.tree(gpu_class, moment(at))
        others = [
            (str(each.terms.subscriber_id), each.of_class(gpu_class), each)
            for each in self.uses.values()
        ]
        return self._usage(tree, others, at)

    def usage_by_lease(self, gpu_class: str, at: int) -> Usage | None:
        """Return the same with every lease under its own id, so that each can be released."""
        if self.policies is None:
            return None
        usage = Usage(self._tree_at(gpu_class, at))
        for lease_id, each in self.uses.items():
            node = str(each.terms.subscriber_id)
            if each.starts <= at < each.ends and node in usage.tree.parents:
                usage.take(lease_id, node, each.of_class(gpu_class))
        return usage

    def verdict(self, gpu_class: str, node: str, gpus: int, at: int) -> Verdict | None:
        """Return the arithmetic for some more GPUs of a class at one moment."""
        tree = None if self.policies is None else self.tree(gpu_class, node, at)
        usage = self.usage(gpu_class, at)
        return None if tree is None or usage is None else usage.fits(node, gpus)

    # --- limits ----------------------------------------------------------------------------

    def _over_limit(self, scope: LimitScope, use: Use) -> Answer | None:
        assert self.policies is not None
        subject = subject_of(scope, use)
        limit = (
            None if subject is None else self.policies.limit(scope, subject, use.terms.tenant_id)
        )
        if limit is None or limit.tenant_id not in (None, use.terms.tenant_id):
            return None
        mine = []
        if scope != "bid":
            counted = [*self.uses.values(), *self._over]
            mine = [each for each in counted if subject_of(scope, each) == subject]
        return at_once(limit, use, mine) or in_periods(limit, use, mine)

    @property
    def counted(self) -> list[Use]:
        """Return what counts in periods: what is held, and what is over."""
        return [*self.uses.values(), *self._over]

    # --- fair shares -----------------------------------------------------------------------

    @property
    def _half_life(self) -> int:
        return (self.policies or Policies()).half_life_seconds * 1_000

    def shares(self, capacity: Mapping[str, int], *, at: int) -> list[FairShare]:
        """Return the fair share of every unit that has a place or had any use, least first."""
        policies = self.policies or Policies()
        running: dict[str, list[Use]] = defaultdict(list)
        for use in self.uses.values():
            running[str(use.terms.subscriber_id)].append(use)
        units = sorted({*policies.units, *self._decayed, *running})
        return sorted(
            (
                fair_share(
                    unit,
                    self._remembered(unit, running.get(unit, ()), at),
                    capacity,
                    weight_ppm=policies.weight_of(unit),
                    at=at,
                )
                for unit in units
            ),
            key=lambda share: share.key,
        )

    def _remembered(self, unit: str, running: Collection[Use], at: int) -> dict[str, Decayed]:
        half_life = self._half_life
        found = {
            model: replace(before.carried(at), half_life=half_life)
            for model, before in self._decayed.get(unit, {}).items()
        }
        for use in running:
            for each in use.gpus:
                before = found.get(each.model) or Decayed(half_life, 0.0, at)
                found[each.model] = before.plus(each.gpus, use.starts, use.ends, at=at)
        return found
