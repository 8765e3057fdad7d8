"""Fair shares level by level: what each unit and cohort has against those beside it, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from marketplace.domain.quotas.cohort_tree import around
from marketplace.domain.quotas.fair_share_order import FairShare, Standings, parting
from marketplace.domain.quotas.policies_in_force import Policies

Seen = Callable[[str], bool]
Named = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the ways of two neighbours in the order part, and what is compared there.

    within: the cohort in which both still are; None: in none. one, other: the unit itself or the
    cohort around it that stands there. alone: both are the units themselves.
    """

    within: str | None
    one: FairShare
    other: FairShare
    alone: bool

    def told(self, named: Named = str) -> str:
        """Say it in figures."""
        said = goes_before(self.one, self.other)
        if not self.alone:
            one, other = named(self.one.node), named(self.other.node)
            said = goes_before(self.one, self.other, f"{one} ", f"{other} ")
        return said if self.within is None else f"in {named(self.within)}: {said}"


@dataclass(frozen=True, slots=True)
class Level:
    """A unit or cohort among those that stand beside it, in whose order it is listed.

    share: of a cohort, what all in it are remembered for. depth: cohorts around it. turn: among so
    many `beside` each other. entitled: its part of everything, by the weights on the way to it.
    units: how many stand in it. next: against what comes after it among them and is shown.
    """

    node: str
    is_cohort: bool
    within: str | None
    depth: int
    share: FairShare
    turn: int
    beside: int
    entitled: float
    units: int
    next: Parting | None


def levels_of(policies: Policies, standings: Standings, seen: Seen) -> Iterator[Level]:
    """Yield every unit and cohort that is seen, a cohort before what stands in it.

    Cohorts without units take part in nothing and are left out.
    """
    inside: dict[str | None, set[str]] = defaultdict(set)
    units: dict[str, int] = defaultdict(int)
    for unit in policies.units:
        for node in around(standings.parents, unit):
            units[node] += 1
            inside[standings.parents[node]].add(node)

    def below(within: str | None, depth: int, entitled: float) -> Iterator[Level]:
        ordered = sorted(inside[within], key=lambda node: standings.share(node).key)
        weights = sum(max(0, standings.share(node).weight_ppm) for node in ordered) or 1
        follows = dict(pairwise(node for node in ordered if seen(node)))
        for turn, node in enumerate(ordered, 1):
            share = standings.share(node)
            part = entitled * max(0, share.weight_ppm) / weights
            after = standings.share(follows[node]) if node in follows else None
            if seen(node):
                alone = after is None or policies.cohorts.keys().isdisjoint((node, after.node))
                yield Level(
                    node=node,
                    is_cohort=node in policies.cohorts,
                    within=within,
                    depth=depth,
                    share=share,
                    turn=turn,
                    beside=len(ordered),
                    entitled=part,
                    units=units[node],
                    next=None if after is None else Parting(within, share, after, alone),
                )
            yield from below(node, depth + 1, part)

    return below(None, 0, 1.0)


def parting_of(standings: Standings, one: str, other: str) -> Parting:
    """Return where the ways of two units part."""
    paths = standings.path(one), standings.path(other)
    level, left, right = parting(*paths)
    within = paths[0][level - 1].node if level else None
    return Parting(within, left, right, alone=(left.node, right.node) == (one, other))


def goes_before(one: FairShare, other: FairShare, left: str = "", right: str = "") -> str:
    """Say why what is of one is looked at before what is of another, in figures.

    left, right: what they are called, where that is not plain.
    """
    if other.weight_ppm <= 0 < one.weight_ppm:
        return f"{right or 'the next one '}has weight 0 and goes last"
    if one.weight_ppm <= 0:
        less, more = one.fraction, other.fraction
    else:
        less, more = one.share, other.share
    if less == more:
        return f"{left}{less:.4g} = {right}{more:.4g}: as much, so by {'name' if left else 'id'}"
    return f"{left}{less:.4g} < {right}{more:.4g}"
