"""Whom to interrupt so that a unit gets what is its own: no more than needed, and proved before.

A candidate that fits its own nominal quota may take back what others of its cohort have borrowed;
and it may take from leases of its own unit that matter less. Interruptible leases go before firm
ones, then the lowest priority, then the newest; those within their minimum runtime do not go.
Nothing is interrupted here: a plan is only made where the candidate then has quota and a place.
A planner plans one round: a lease that one plan takes is gone for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ledger.domain.ids import LeaseId
from marketplace.domain.quotas.cohort_tree import Usage, Verdict

Ground = Literal["own-unit", "cohort"]
"""own-unit: it mattered less; cohort: it had borrowed what is the candidate's."""


@dataclass(frozen=True, slots=True)
class Running:
    """A lease that could be interrupted. protected_until: end of its minimum runtime, ms."""

    lease_id: LeaseId
    node: str
    gpus: int
    priority: int
    firm: bool
    since: int
    protected_until: int = 0

    @property
    def order(self) -> tuple[bool, int, int, str]:
        """Return the place in which it would go."""
        return (self.firm, self.priority, -self.since, str(self.lease_id))


@dataclass(frozen=True, slots=True)
class Victim:
    """A lease that goes, and on what ground."""

    lease_id: LeaseId
    ground: Ground


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes so that a candidate can come. verdict: the candidate's, once they are gone."""

    victims: tuple[Victim, ...]
    verdict: Verdict


Placeable = Callable[[Sequence[LeaseId]], bool]
"""Tells if the candidate has a place once these leases are gone."""


def anywhere(gone: Sequence[LeaseId]) -> bool:
    """Find a place always: where quota is all that is asked for."""
    return True


class Planner:
    """Plans the preemptions of one round. usage: holds every running lease by its id."""

    def __init__(self, usage: Usage, running: Iterable[Running]) -> None:
        self.usage = usage
        self._running = {each.lease_id: each for each in running}

    def plan(
        self,
        use: object,
        node: str,
        gpus: int,
        *,
        priority: int,
        now: int,
        placeable: Placeable = anywhere,
    ) -> Plan | None:
        """Make room for a candidate; None: there is none to be made, and nothing has changed.

        With a plan its victims are no longer running here, and the candidate's use is counted.
        """
        usage = self.usage
        if use in self._running or usage.holds(use):
            return None
        gone: list[tuple[Running, Ground]] = []
        for each in self._candidates(node, priority, now):
            if self._enough(node, gpus, gone, placeable):
                break
            ground = self._ground(each, node, gpus)
            if ground is not None:
                usage.release(each.lease_id)
                gone.append((each, ground))
        if self._enough(node, gpus, gone, placeable):
            gone = self._needed(node, gpus, gone, placeable)
            verdict = usage.fits(node, gpus)
            for each, _ in gone:
                del self._running[each.lease_id]
            usage.take(use, node, gpus)
            return Plan(tuple(Victim(each.lease_id, why) for each, why in gone), verdict)
        for each, _ in gone:
            usage.take(each.lease_id, each.node, each.gpus)
        return None

    def started(self, lease: Running) -> None:
        """Let a lease that was admitted be interrupted by later candidates."""
        self._running[lease.lease_id] = lease

    def ended(self, lease_id: LeaseId) -> None:
        """Forget a lease that is over, and its use; again changes nothing."""
        self._running.pop(lease_id, None)
        self.usage.release(lease_id)

    def _candidates(self, node: str, priority: int, now: int) -> list[Running]:
        tree, usage = self.usage.tree, self.usage
        root = tree.root(node)

        def may_go(each: Running) -> bool:
            if each.protected_until > now:
                return False
            if each.node == node:
                return each.priority < priority
            return tree.root(each.node) == root and usage.borrowed(each.node) > 0

        return sorted(filter(may_go, self._running.values()), key=lambda each: each.order)

    def _ground(self, each: Running, node: str, gpus: int) -> Ground | None:
        """Return why a lease may go as things stand now; None: it may not."""
        if each.node == node:
            return "own-unit"
        own = self.usage.used(node) + gpus <= self.usage.tree.subtree[node]
        return "cohort" if own and self.usage.borrowed(each.node) else None

    def _enough(
        self, node: str, gpus: int, gone: Sequence[tuple[Running, Ground]], placeable: Placeable
    ) -> bool:
        return self.usage.fits(node, gpus).fits and placeable([each.lease_id for each, _ in gone])

    def _needed(
        self, node: str, gpus: int, gone: Sequence[tuple[Running, Ground]], placeable: Placeable
    ) -> list[tuple[Running, Ground]]:
        """Let those stay after all who need not go, the last to go first."""
        needed = list(gone)
        for each, _ in reversed(gone):
            self.usage.take(each.lease_id, each.node, each.gpus)
            rest = [pair for pair in needed if pair[0] is not each]
            own = self.usage.used(node) + gpus <= self.usage.tree.subtree[node]
            lawful = own or all(ground == "own-unit" for _, ground in rest)
            if lawful and self._enough(node, gpus, rest, placeable):
                needed = rest
            else:
                self.usage.release(each.lease_id)
        return needed
