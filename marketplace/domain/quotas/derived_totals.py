"""What is worked out of policies and uses and kept until either changes: trees, sums, permissions.

Nothing here is part of a snapshot. Each sum is made when it is first asked for, so that a quota or
a limit is asked without going through all that is used, and then kept in step use by use. A fork
adds to sums of its own. One that it does not have, it asks of what it was forked from, which keeps
it: each decision asks a fork, and would add up all uses again. `Tallies` is what limits need of
users, business units and tenants: GPUs and memory at once, use in periods.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import ChainMap, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import EPOCH, from_above, moment
from marketplace.domain.facts.policy_events import LimitScope, UseKind
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.cohort_timeline import EVER, NOTHING, Headroom, Part, Steps
from marketplace.domain.quotas.cohort_tree import Tree, around
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import Use, subject_of

Spent = ChainMap[tuple[int, str], int]
"""By subject and currency, in nano-units; units × milliseconds under the currency ``""``.

A subject by its number: a UUID hashes and compares in Python.
"""


class HasUses(Protocol):
    """Whose uses are added up."""

    @property
    def uses(self) -> Mapping[LeaseId, Use]:
        """Return what is held."""
        ...

    @property
    def counted(self) -> Sequence[Use]:
        """Return what counts in periods: what is held, and what is over."""
        ...


class Added(NamedTuple):
    """A use that a fork counts, or one that it does not count any more."""

    use: Use
    sign: int
    held: bool


class Held(NamedTuple):
    """What one has at once, over time: GPUs, in units, and MiB of their memory."""

    gpus: Steps = NOTHING
    memory: Steps = NOTHING

    def plus(self, use: Use, sign: int, counts: Counts) -> Held:
        """Return it with one use more, or less."""
        return Held(
            self.gpus.plus(use.starts, use.ends, sign * use.size(counts)),
            self.memory.plus(use.starts, use.ends, sign * use.memory_mib),
        )


class Tallies:
    """All sums that were asked for. Whoever changes the uses says so here."""

    def __init__(self, counts: Counts, of: HasUses) -> None:
        self._counts: Counts = counts
        self._of = of
        self._origin: Tallies | None = None
        self._added: list[Added] = []
        self._held: dict[LimitScope, ChainMap[UUID, Held]] = {}
        self._spent: dict[tuple[LimitScope, int, int], Spent] = {}

    def fork(self) -> Tallies:
        """Return the same sums, to add to them."""
        twin = Tallies(self._counts, self._of)
        twin._origin = self
        return twin

    def add(self, use: Use, *, held: bool, sign: int = 1) -> None:
        """Count a use, or stop counting it. held: at its time, beside in the periods it is in."""
        added = Added(use, sign, held)
        if self._origin is not None:
            self._added.append(added)
        if held:
            for scope, by_subject in self._held.items():
                self._hold(by_subject, scope, added)
        for (scope, starts, ends), spent in self._spent.items():
            _spend(spent, scope, use, (starts, ends), sign, self._counts)

    def _hold(self, by_subject: ChainMap[UUID, Held], scope: LimitScope, added: Added) -> None:
        subject = subject_of(scope, added.use.terms)
        if subject is not None:
            before = by_subject.get(subject) or Held()
            by_subject[subject] = before.plus(added.use, added.sign, self._counts)

    def forget_before(self, millis: int) -> None:
        for scope, by_subject in self._held.items():
            pruned = {
                subject: Held(held.gpus.since(millis), held.memory.since(millis))
                for subject, held in by_subject.items()
            }
            self._held[scope] = ChainMap(
                {who: held for who, held in pruned.items() if len(held.gpus.times) > 1}
            )
        self._spent = {key: spent for key, spent in self._spent.items() if key[2] > millis}

    def held(self, scope: LimitScope, subject: UUID) -> Held:
        """Return what one has at once."""
        return self._all_held(scope).get(subject) or Held()

    def _all_held(self, scope: LimitScope) -> ChainMap[UUID, Held]:
        found = self._held.get(scope)
        if found is None:
            found = self._held[scope] = self._added_up(scope)
        return found

    def _added_up(self, scope: LimitScope) -> ChainMap[UUID, Held]:
        if self._origin is not None:
            found = self._origin._all_held(scope).new_child()
            for added in self._added:
                if added.held:
                    self._hold(found, scope, added)
            return found
        spans, counts = defaultdict[UUID, list[Use]](list), self._counts
        for use in self._of.uses.values():
            whose = subject_of(scope, use.terms)
            if whose is not None:
                spans[whose].append(use)
        return ChainMap(
            {
                whose: Held(
                    Steps.of((use.starts, use.ends, use.size(counts)) for use in mine),
                    Steps.of((use.starts, use.ends, use.memory_mib) for use in mine),
                )
                for whose, mine in spans.items()
            }
        )

    def spent(
        self, scope: LimitScope, subject: UUID, span: tuple[int, int]
    ) -> Callable[[str], int]:
        """Return by currency what one spent in a period; units × ms for the currency ``""``."""
        known = self._all_spent(scope, span)
        return lambda currency: _get(known, (subject.int, currency))

    def _all_spent(self, scope: LimitScope, span: tuple[int, int]) -> Spent:
        known = self._spent.get((scope, *span))
        if known is None:
            if self._origin is None:
                known = ChainMap({})
                fresh = [(use, 1) for use in self._of.counted]
            else:
                known = self._origin._all_spent(scope, span).new_child()
                fresh = [(added.use, added.sign) for added in self._added]
            for use, sign in fresh:
                _spend(known, scope, use, span, sign, self._counts)
            self._spent[scope, *span] = known
        return known


def _spend(
    spent: Spent, scope: LimitScope, use: Use, span: tuple[int, int], sign: int, counts: Counts
) -> None:
    lasts, subject = use.during(*span), subject_of(scope, use.terms)
    if not lasts or subject is None:
        return
    paid = use.count * lasts * use.price // MILLIS_PER_HOUR
    for currency, amount in (("", use.size(counts) * lasts), (use.terms.limit.currency, paid)):
        key = (subject.int, currency)
        spent[key] = _get(spent, key) + sign * amount


def _get(spent: Spent, key: tuple[int, str]) -> int:
    """Return what is there, or 0: as `get`, which asks all maps whether before it asks which."""
    for each in spent.maps:
        found = each.get(key)
        if found is not None:
            return found
    return 0


# --- of quotas --------------------------------------------------------------------------------


class Sums:
    """The sums under one state of the policies. tallies: they hold under any that counts alike."""

    def __init__(
        self, of: HasUses, policies: Policies | None = None, tallies: Tallies | None = None
    ) -> None:
        self._of = of
        self._policies = policies or Policies()
        self._counts: Counts = self._policies.counts
        self.tallies = tallies or Tallies(self._counts, of)
        self._origin: Sums | None = None
        self._added: list[Added] = []
        self._trees: dict[tuple[str, int], Tree] = {}
        self._edges: dict[str, list[int]] = {}
        self._may: dict[tuple[object, ...], bool] = {}
        self._rooms: dict[str, Headroom] = {}
        self._hours: dict[tuple[str, int, int], ChainMap[str, int]] = {}

    def fork(self) -> Sums:
        """Return the same sums, to add to them; these must not change meanwhile."""
        twin = Sums(self._of, self._policies, self.tallies.fork())
        twin._origin = self
        twin._trees, twin._edges, twin._may = self._trees, self._edges, self._may
        return twin

    def count(self, use: Use, sign: int, *, over: bool = False) -> None:
        """Add a use to all sums there are, or take it from them. over: it is held no more."""
        self.tallies.add(use, held=not over, sign=sign)
        if self._origin is not None:
            self._added.append(Added(use, sign, not over))
        if not over:
            for gpu_class, room in self._rooms.items():
                room.take(self._part(gpu_class, use, sign))
        for (gpu_class, starts, ends), hours in self._hours.items():
            self._spend(hours, gpu_class, use, (starts, ends), sign)

    def forget_before(self, millis: int) -> None:
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
        if not self._policies.permits:
            return True
        key = (what, terms.subscriber_id, terms.tenant_id, model)
        if key not in self._may:
            self._may[key] = self._policies.may(what, terms, model)
        return self._may[key]

    # --- of uses ---------------------------------------------------------------------------

    def room(self, gpu_class: str) -> Headroom:
        """Return what is left of a class."""
        room = self._rooms.get(gpu_class)
        if room is None:
            room = self._rooms[gpu_class] = self._room(gpu_class)
        return room

    def _room(self, gpu_class: str) -> Headroom:
        if self._origin is not None:
            room = self._origin.room(gpu_class).fork()
            for added in self._added:
                if added.held:
                    room.take(self._part(gpu_class, added.use, added.sign))
            return room
        edges = [EVER, *self.edges(gpu_class)]
        trees = [(since, self.tree_at(gpu_class, since)) for since in edges]
        return Headroom.of(trees, (self._part(gpu_class, use) for use in self._of.uses.values()))

    def _part(self, gpu_class: str, use: Use, sign: int = 1) -> Part:
        size = sign * use.of_class(gpu_class, self._counts)
        return Part(str(use.terms.subscriber_id), use.starts, use.ends, size)

    def hours(self, gpu_class: str, node: str, starts: int, ends: int) -> int:
        """Return what a unit, or all in a cohort, has of a class in a period, in units × ms."""
        return self._all_hours(gpu_class, starts, ends).get(node, 0)

    def _all_hours(self, gpu_class: str, starts: int, ends: int) -> ChainMap[str, int]:
        hours = self._hours.get((gpu_class, starts, ends))
        if hours is None:
            if self._origin is None:
                hours = ChainMap({})
                fresh = [(use, 1) for use in self._of.counted]
            else:
                hours = self._origin._all_hours(gpu_class, starts, ends).new_child()
                fresh = [(added.use, added.sign) for added in self._added]
            for use, sign in fresh:
                self._spend(hours, gpu_class, use, (starts, ends), sign)
            self._hours[gpu_class, starts, ends] = hours
        return hours

    def _spend(
        self, hours: ChainMap[str, int], gpu_class: str, use: Use, span: tuple[int, int], sign: int
    ) -> None:
        """Add a use to what its unit, and each cohort around it, has in a period."""
        lasts = use.during(*span)
        millis = lasts and use.of_class(gpu_class, self._counts) * lasts
        parents = self.tree_at(gpu_class, span[0]).parents
        for node in around(parents, str(use.terms.subscriber_id)) if millis else ():
            hours[node] = hours.get(node, 0) + sign * millis
