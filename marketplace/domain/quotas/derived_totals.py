"""What is worked out of policies and uses and kept until either changes: trees, sums, permissions.

Nothing here is part of a snapshot. Each sum is made when it is first asked for, and then kept in
step use by use; a fork adds to sums of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable

from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import EPOCH, from_above, moment
from marketplace.domain.facts.policy_events import UseKind
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.cohort_timeline import Headroom, Part
from marketplace.domain.quotas.cohort_tree import Tree
from marketplace.domain.quotas.limit_totals import Tallies
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.step_function import EVER
from marketplace.domain.quotas.use import Use


class Sums:
    """The sums under one state of the policies. tallies: they hold under any that counts alike."""

    def __init__(self, policies: Policies | None = None, tallies: Tallies | None = None) -> None:
        self._policies = policies or Policies()
        self._counts: Counts = self._policies.counts
        self.tallies = tallies or Tallies(self._counts)
        self._trees: dict[tuple[str, int], Tree] = {}
        self._edges: dict[str, list[int]] = {}
        self._may: dict[tuple[object, ...], bool] = {}
        self._rooms: dict[str, Headroom] = {}
        self._hours: dict[tuple[str, int, int], ChainMap[str, int]] = {}

    def fork(self) -> Sums:
        """Return the same sums, to add to them; these must not change meanwhile."""
        twin = Sums(self._policies, self.tallies.fork())
        twin._trees, twin._edges, twin._may = self._trees, self._edges, self._may
        twin._rooms = {name: room.fork() for name, room in self._rooms.items()}
        twin._hours = {key: hours.new_child() for key, hours in self._hours.items()}
        return twin

    def count(self, use: Use, sign: int, *, over: bool = False) -> None:
        """Add a use to all sums there are, or take it from them. over: it is held no more."""
        self.tallies.add(use, held=not over, sign=sign)
        if not over:
            node = str(use.terms.subscriber_id)
            for gpu_class, room in self._rooms.items():
                size = use.of_class(gpu_class, self._counts)
                room.take(Part(node, use.starts, use.ends, sign * size))
        for (gpu_class, starts, ends), hours in self._hours.items():
            self._spend(hours, gpu_class, use, (starts, ends), sign)

    def forget_before(self, millis: int) -> None:
        """Drop what is over, to bound memory."""
        self.tallies.forget_before(millis)
        self._hours = {key: hours for key, hours in self._hours.items() if key[2] > millis}
        for room in self._rooms.values():
            room.forget_before(millis)

    # --- of policies -----------------------------------------------------------------------

    def edges(self, gpu_class: str) -> list[int]:
        """Return the moments at which the quotas of a class change, in order."""
        edges = self._edges.get(gpu_class)
        if edges is None:
            changes = self._policies.changes_of(gpu_class)
            edges = self._edges[gpu_class] = sorted({from_above(each) for each in changes})
        return edges

    def tree_at(self, gpu_class: str, at: int) -> Tree:
        """Return the quotas of a class at one moment."""
        edges = self.edges(gpu_class)
        place = bisect_right(edges, at)
        since = edges[place - 1] if place else EVER
        tree = self._trees.get((gpu_class, since))
        if tree is None:
            when = moment(since) if place else EPOCH
            tree = self._trees[gpu_class, since] = self._policies.tree(gpu_class, when)
        return tree

    def may(self, what: UseKind, terms: BidPlaced, model: str) -> bool:
        """Tell if a bid's unit may lease, or borrow, GPUs of a model."""
        if not self._policies.permits:
            return True
        key = (what, terms.subscriber_id, terms.tenant_id, model)
        if key not in self._may:
            self._may[key] = self._policies.may(what, terms, model)
        return self._may[key]

    # --- of uses ---------------------------------------------------------------------------

    def room(self, gpu_class: str, uses: Iterable[Use]) -> Headroom:
        """Return what is left of a class. uses: all that are held."""
        room = self._rooms.get(gpu_class)
        if room is None:
            edges = [EVER, *self.edges(gpu_class)]
            trees = [(since, self.tree_at(gpu_class, since)) for since in edges]
            parts = (
                Part(
                    str(use.terms.subscriber_id),
                    use.starts,
                    use.ends,
                    use.of_class(gpu_class, self._counts),
                )
                for use in uses
            )
            room = self._rooms[gpu_class] = Headroom.of(trees, parts)
        return room

    def hours(
        self, gpu_class: str, node: str, starts: int, ends: int, uses: Callable[[], Iterable[Use]]
    ) -> int:
        """Return what a unit, or all in a cohort, has of a class in a period, in units × ms.

        uses: returns all that are held, and all that are over.
        """
        hours = self._hours.get((gpu_class, starts, ends))
        if hours is None:
            hours = self._hours[gpu_class, starts, ends] = ChainMap({})
            for use in uses():
                self._spend(hours, gpu_class, use, (starts, ends), 1)
        return hours.get(node, 0)

    def _spend(
        self,
        hours: ChainMap[str, int],
        gpu_class: str,
        use: Use,
        span: tuple[int, int],
        sign: int,
    ) -> None:
        """Add a use to what its unit, and each cohort around it, has in a period."""
        lasts = max(0, min(use.ends, span[1]) - max(use.starts, span[0]))
        millis = lasts and use.of_class(gpu_class, self._counts) * lasts
        at: str | None = str(use.terms.subscriber_id) if millis else None
        parents = self.tree_at(gpu_class, span[0]).parents
        while at is not None:
            hours[at] = hours.get(at, 0) + sign * millis
            at = parents.get(at)
