"""Whether a use fits, by the plain rule: each limit and each moment, adding all uses up anew."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from functools import lru_cache

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.instants import EPOCH, from_above, moment
from marketplace.domain.facts.policy_events import LimitSet
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.cohort_tree import Tree, Usage
from marketplace.domain.quotas.limits import periods
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import LAYERS, NOT_ALLOWED, QUOTA, QuotaBook
from marketplace.domain.quotas.use import Gpus, Use, subject_of

Plain = tuple[str | None, str]
"""The outcome, and the reason of a refusal."""


def plain(quotas: QuotaBook, use: Use) -> Plain:
    """Tell if one more use fits."""
    policies = quotas.policies
    assert policies is not None
    for scope in LAYERS:
        subject = subject_of(scope, use.terms)
        limit = None if subject is None else policies.limit(scope, subject, use.terms.tenant_id)
        if limit is not None and limit.tenant_id in (None, use.terms.tenant_id):
            mine = [] if scope == "bid" else [
                each for each in quotas.counted if subject_of(scope, each.terms) == subject
            ]  # fmt: skip
            held = [each for each in mine if each in quotas.uses.values()]
            if _over(policies, limit, use, held, mine):
                return "refused", f"limit-{scope}"
    if not all(policies.may("lease", use.terms, each.model) for each in use.gpus):
        return "refused", NOT_ALLOWED
    outcome: str | None = None
    for gpu_class in policies.classes:
        if _counted(policies, use, gpu_class):
            found = _in_class(quotas, gpu_class, use)
            if found == "refused":
                return found, QUOTA
            if found is not None and outcome != "borrowed":
                outcome = found
    return outcome, ""


PARTS = {
    "H100-80GB-1g.10gb": Fraction(1, 7),
    "H100-80GB-1g.20gb": Fraction(1, 4),
    "H100-80GB-3g.40gb": Fraction(1, 2),
    "A100-80GB-mps.25.20gb": Fraction(1, 4),
}
"""What part of a card some models are; all others are cards."""


def _counted(policies: Policies, use: Use, gpu_class: str = "any") -> Fraction:
    """Return how many GPUs of a class a use counts as."""
    return _count(policies.counts, use.gpus, gpu_class)


@lru_cache(maxsize=10_000)
def _count(counts: Counts, gpus: tuple[Gpus, ...], gpu_class: str) -> Fraction:
    total = Fraction(0)
    for each in gpus:
        card, part = each.model[:9], each.model[10:]
        cut_by_mig = "g." in part
        if counts == "parts":
            named = gpu_class in (each.model, each.model.replace("-80GB", "")) and part
            if gpu_class == "any" or named or gpu_class in (card, card[:4]):
                total += each.gpus * (1 if named else PARTS.get(each.model, Fraction(1)))
        elif gpu_class == "any" or (
            (gpu_class.endswith(part) if cut_by_mig else "g." not in gpu_class)
            and each.model.startswith(gpu_class[:4])
        ):
            total += each.gpus
    return total


def _over(policies: Policies, limit: LimitSet, use: Use, held: list[Use], mine: list[Use]) -> bool:
    for at in {use.starts, *(each.starts for each in held)}:
        if use.starts <= at < use.ends:
            there = [use, *(each for each in held if each.starts <= at < each.ends)]
            for most, total in (
                (limit.gpus, sum(_counted(policies, each) for each in there)),
                (limit.memory_mib, sum(each.memory_mib for each in there)),
            ):
                if most is not None and total > most:
                    return True
    spans = [(use.starts, use.ends)]
    if limit.scope != "bid":
        spans = list(periods(limit.period, use.starts, use.ends))
    for span in spans:
        all_of = [use, *mine]
        if limit.gpu_hours is not None and (
            sum(_counted(policies, each) * each.during(*span) for each in all_of)
            > limit.gpu_hours * MILLIS_PER_HOUR
        ):
            return True
        money = limit.money
        if money is not None and money.currency == use.terms.limit.currency:
            paid = sum(
                each.within(*span) * each.price // MILLIS_PER_HOUR
                for each in all_of
                if each.terms.limit.currency == money.currency
            )
            if paid > money.nanos and use.within(*span) * use.price >= MILLIS_PER_HOUR:
                return True
    return False


def _in_class(quotas: QuotaBook, gpu_class: str, use: Use) -> str | None:
    policies, unit = quotas.policies, str(use.terms.subscriber_id)
    assert policies is not None
    if unit not in policies.units:
        return None
    edges = {from_above(each) for each in policies.changes_of(gpu_class)}
    moments = {use.starts, *edges, *(each.starts for each in quotas.uses.values())}
    outcome: str | None = None
    borrows = all(policies.may("borrow", use.terms, each.model) for each in use.gpus)
    for at in sorted(each for each in moments if use.starts <= each < use.ends):
        tree = policies.tree(gpu_class, moment(at))
        if not tree.governed(unit):
            continue
        usage, held = Usage(tree), defaultdict[str, Fraction](Fraction)
        for each in quotas.uses.values():
            if each.starts <= at < each.ends:
                held[str(each.terms.subscriber_id)] += _counted(policies, each, gpu_class)
        for node, gpus in held.items():
            if node in tree.parents:
                usage.take(node, node, _units(policies, gpus))
        asked = _units(policies, _counted(policies, use, gpu_class))
        verdict = usage.fits(unit, asked)
        if not verdict.fits or (verdict.outcome == "borrowed" and not borrows):
            return "refused"
        if outcome != "borrowed":
            outcome = verdict.outcome
    return _in_hours(quotas, gpu_class, use, outcome)


def _units(policies: Policies, gpus: Fraction) -> int:
    units = gpus * policies.unit
    assert units.denominator == 1, "a unit is fine enough for every part"
    return int(units)


def _in_hours(quotas: QuotaBook, gpu_class: str, use: Use, outcome: str | None) -> str | None:
    policies, unit = quotas.policies, str(use.terms.subscriber_id)
    assert policies is not None
    counted = quotas.guaranteed_hours(gpu_class, unit, use.starts, use.ends)
    if not counted:
        return outcome
    for node, hours, starts, ends in counted:
        inside = {each for each in policies.units if node in Tree(policies.parents, {}).path(each)}
        used = sum(
            _counted(policies, each, gpu_class) * each.during(starts, ends)
            for each in (use, *quotas.counted)
            if str(each.terms.subscriber_id) in inside
        )
        if used > hours * MILLIS_PER_HOUR:
            return outcome and "borrowed"
    tree = policies.tree(gpu_class, max(EPOCH, moment(use.starts)))
    if outcome == "nominal" or tree.quota(unit).nominal is None:
        return "nominal"
    return outcome
