"""Whether cohorts got what was theirs: of all that they got, by weight, as far as they asked.

Cohorts that stand beside each other outermost are compared, and units that stand in none beside
them. What each should have had is what is given where all is handed out by weight and nobody gets
more than it asked for (weighted max-min fairness); what it had over that is the figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from marketplace.domain.quotas.cohort_tree import Tree
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.lab.tally import LeaseTold, Tally


def parts_of_cohorts(
    tally: Tally, made: Iterable[LeaseTold], policies: Policies | None
) -> list[float]:
    """Return, of each that asked for anything, what it got over what was its part.

    None of them: no two that stand beside each other asked.
    """
    if policies is None:
        return []
    tree = Tree(policies.parents, {})
    asked: dict[str, int] = defaultdict(int)
    got: dict[str, int] = defaultdict(int)
    for bid in tally.bids.values():
        unit = str(bid.placed.subscriber_id)
        if bid.inside and unit in policies.units:
            asked[tree.root(unit)] += bid.placed.gpus * bid.placed.duration_seconds * 1_000
    for lease in made:
        if lease.bid is not None and lease.bid.inside:
            unit = str(lease.bid.placed.subscriber_id)
            if unit in policies.units:
                got[tree.root(unit)] += lease.gpus * lease.granted.window.millis
    if len(asked) < 2:
        return []
    wanted = {node: max(millis, got[node]) for node, millis in sorted(asked.items())}
    theirs = handed_out(
        sum(got.values()), wanted, {node: policies.weight_of(node) for node in asked}
    )
    return [got[node] / part for node, part in theirs.items() if part > 0]


def handed_out(
    total: float, asked: Mapping[str, float], weights: Mapping[str, int]
) -> dict[str, float]:
    """Return what each gets of a total by weight, at most what it asked for.

    What a weight of 0 asked for comes when all others have what they asked for.
    """
    found: dict[str, float] = {}
    for group in (
        {node: weights[node] for node in asked if weights[node] > 0},
        {node: 1 for node in asked if weights[node] <= 0},
    ):
        open_ = dict(group)
        while open_:
            each = max(0.0, total) / sum(open_.values())
            full = [node for node, weight in open_.items() if asked[node] <= each * weight]
            if not full:
                found |= {node: each * weight for node, weight in open_.items()}
                total = 0.0
                break
            for node in full:
                found[node] = asked[node]
                total -= asked[node]
                del open_[node]
    return found
