"""Quotas and limits over time: who holds what when, folded from the log with the policies.

A lease takes quota over its whole window, so that nobody is over it at any moment of it, also
where the lease is yet to start or an override is yet to begin. Whether something fits therefore
depends on the log and the window alone, not on when it is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.events import BidPlaced
from marketplace.domain.fairness import Decayed, FairShare, fair_share
from marketplace.domain.governance_events import GovernanceEvent, LimitScope, LimitSet
from marketplace.domain.moments import Millis, from_above, from_below, moment
from marketplace.domain.policies import Policies, in_class
from marketplace.domain.quotas import Outcome, Tree, Usage, Verdict

QUOTA = "quota"
LAYERS: tuple[LimitScope, ...] = ("bid", "user", "subscriber", "tenant")
FOREVER = Millis(1 << 60)
KEPT = 32 * 24 * MILLIS_PER_HOUR
"""How long what is over still counts in a period: longer than the longest."""


class Gpus(NamedTuple):
    """Some GPUs of one model. memory_mib: of all of them."""

    model: str
    gpus: int
    memory_mib: int


def gpus_of(gpus: Iterable[tuple[str, int]]) -> tuple[Gpus, ...]:
    """Count GPUs, told by model and memory, by model."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for model, memory_mib in gpus:
        sizes[model].append(memory_mib)
    return tuple(Gpus(model, len(all_of), sum(all_of)) for model, all_of in sorted(sizes.items()))


@dataclass(frozen=True, slots=True)
class Use:
    """What one grant takes, from when until when. price: nano-units per GPU-hour."""

    terms: BidPlaced
    gpus: tuple[Gpus, ...]
    starts: int
    ends: int
    price: int

    @property
    def count(self) -> int:
        """Return how many GPUs it takes."""
        return sum(each.gpus for each in self.gpus)

    @property
    def memory_mib(self) -> int:
        """Return how much memory they have."""
        return sum(each.memory_mib for each in self.gpus)

    def of_class(self, gpu_class: str) -> int:
        """Return how many of them belong to a class."""
        return sum(each.gpus for each in self.gpus if in_class(gpu_class, each.model))

    def within(self, starts: int, ends: int) -> int:
        """Return the GPU-milliseconds that lie between two moments."""
        return self.count * max(0, min(self.ends, ends) - max(self.starts, starts))


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a use fits. outcome None: no quota speaks of it.

    reason, told: of a refusal, with its figures. again: when it might fit; FOREVER: never.
    """

    outcome: Outcome | None
    reason: str = ""
    told: str = ""
    again: int = FOREVER

    @property
    def fits(self) -> bool:
        """Tell if it may be taken."""
        return self.outcome != "refused"


FREE = Answer(None)


class QuotaBook:
    """The policies of one market, and all use that they count."""

    def __init__(self) -> None:
        self.policies: Policies | None = None
        self.uses: dict[LeaseId, Use] = {}
        self._over: list[Use] = []
        self._decayed: dict[str, dict[str, Decayed]] = defaultdict(dict)
        self._trees: dict[tuple[str, int], Tree | None] = {}
        self._classes: tuple[str, ...] = ()

    def fork(self) -> QuotaBook:
        """Return the same book, to take more in it."""
        twin = QuotaBook()
        twin.policies, twin._classes, twin._trees = self.policies, self._classes, self._trees
        twin.uses, twin._over, twin._decayed = self.uses.copy(), self._over, self._decayed
        return twin

    # --- folding ---------------------------------------------------------------------------

    def apply(self, event: GovernanceEvent) -> None:
        """Take in a policy."""
        self.policies = Policies.evolve(self.policies, event)
        self._trees = {}
        self._classes = tuple(self.policies.classes)

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

    # --- asking ----------------------------------------------------------------------------

    def asks(self, use: Use) -> Answer:
        """Tell if one more use fits every quota and every limit at every moment of it."""
        if self.policies is None:
            return FREE
        for scope in LAYERS:
            refused = self._over_limit(scope, use)
            if refused is not None:
                return refused
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
            if not verdict.fits:
                later = moments[index + 1] if index + 1 < len(moments) else use.ends
                return Answer("refused", QUOTA, f"{gpu_class}: {verdict.told()}", later)
            if verdict.outcome == "borrowed" or answer.outcome is None:
                answer = Answer(verdict.outcome, told=f"{gpu_class}: {verdict.told()}")
        return answer

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
        edges = sorted(from_above(each) for each in self.policies.changes_of(gpu_class))
        since = max((edge for edge in edges if edge <= at), default=-1)
        key = (gpu_class, since)
        if key not in self._trees:
            self._trees[key] = self.policies.tree(gpu_class, moment(at))
        tree = self._trees[key]
        assert tree is not None
        return tree if tree.governed(node) else None

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

    def verdict(self, gpu_class: str, node: str, gpus: int, at: int) -> Verdict | None:
        """Return the arithmetic for some more GPUs of a class at one moment."""
        tree = None if self.policies is None else self.tree(gpu_class, node, at)
        usage = self.usage(gpu_class, at)
        return None if tree is None or usage is None else usage.fits(node, gpus)

    # --- limits ----------------------------------------------------------------------------

    def _over_limit(self, scope: LimitScope, use: Use) -> Answer | None:
        assert self.policies is not None
        subject = _subject(scope, use)
        limit = None if subject is None else self.policies.limit(scope, subject)
        if limit is None or limit.tenant_id not in (None, use.terms.tenant_id):
            return None
        mine = []
        if scope != "bid":
            counted = [*self.uses.values(), *self._over]
            mine = [each for each in counted if _subject(scope, each) == subject]
        return _at_once(limit, use, mine) or _in_periods(limit, use, mine)

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


def _subject(scope: LimitScope, use: Use) -> UUID | None:
    terms = use.terms
    match scope:
        case "bid":
            return terms.bid_id
        case "user":
            return terms.user_id
        case "subscriber":
            return terms.subscriber_id
        case "tenant":
            return terms.tenant_id


def _at_once(limit: LimitSet, use: Use, mine: Sequence[Use]) -> Answer | None:
    during = [each for each in mine if each.starts < use.ends and use.starts < each.ends]
    moments = sorted({use.starts, *(e.starts for e in during if e.starts > use.starts)})
    for at in moments:
        there = [each for each in during if each.starts <= at < each.ends]
        for name, most, asked, used in (
            ("GPUs", limit.gpus, use.count, sum(each.count for each in there)),
            ("MiB", limit.memory_mib, use.memory_mib, sum(each.memory_mib for each in there)),
        ):
            if most is not None and used + asked > most:
                again = min((each.ends for each in there), default=FOREVER)
                return _refused(limit, f"{used} + {asked} > {most} {name} at one time", again)
    return None


def _in_periods(limit: LimitSet, use: Use, mine: Sequence[Use]) -> Answer | None:
    hours, money = limit.gpu_hours, limit.money
    if money is not None and money.currency != use.terms.limit.currency:
        money = None
    if hours is None and money is None:
        return None
    spans = [(use.starts, use.ends)]
    if limit.scope != "bid":
        spans = list(periods(limit.period, use.starts, use.ends))
    for starts, ends in spans:
        asked, used = use.within(starts, ends), sum(each.within(starts, ends) for each in mine)
        again = ends if limit.scope != "bid" else FOREVER
        if hours is not None and used + asked > hours * MILLIS_PER_HOUR:
            said = f"{_hours(used)} + {_hours(asked)} > {hours} GPU-hours in the {limit.period}"
            return _refused(limit, said, again)
        if money is not None:
            paid = sum(
                each.within(starts, ends) * each.price // MILLIS_PER_HOUR
                for each in mine
                if each.terms.limit.currency == money.currency
            )
            cost = asked * use.price // MILLIS_PER_HOUR
            if paid + cost > money.nanos:
                said = f"{paid} + {cost} > {money.nanos} nano-{money.currency}"
                return _refused(limit, f"{said} in the {limit.period}", again)
    return None


def _hours(gpu_millis: int) -> str:
    return f"{gpu_millis / MILLIS_PER_HOUR:g}"


def _refused(limit: LimitSet, said: str, again: int) -> Answer:
    return Answer("refused", f"limit-{limit.scope}", said, again)


def periods(period: str, starts: int, ends: int) -> Iterator[tuple[int, int]]:
    """Yield the days, weeks (from Monday) or months, in UTC, that a span touches."""
    at = moment(starts).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        at -= timedelta(days=at.weekday())
    elif period == "month":
        at = at.replace(day=1)
    while from_below(at) < ends:
        after = _next(period, at)
        yield from_below(at), from_below(after)
        at = after


def _next(period: str, at: datetime) -> datetime:
    if period == "month":
        return (at + timedelta(days=32)).replace(day=1)
    return at + timedelta(days=7 if period == "week" else 1)
