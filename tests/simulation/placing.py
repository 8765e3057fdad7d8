"""Where a job may go on a shared fleet, and whom it may send away for that.

In this order: what is free (own nodes first, tightest fit); what filler holds; what others borrow
on nodes of the job's owner, while the owner is below its quota; and, for what fits only in pieces,
moving work together, borrowed first, when every moved job is proven to fit elsewhere first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.fleet import Fleet, Places
from tests.simulation.nodes import each, nodes_needed
from tests.simulation.traces import FILLER, GPUS_PER_NODE

MIN_RUN = 600.0
"""Filler that began less than ten minutes ago is sent away last, so that nothing thrashes."""
MIN_RUN_OWNERS = 1800.0
"""What paused once runs at least half an hour before it may be paused again."""

RECLAIMED, PAUSED = "reclaimed", "paused"


@dataclass(slots=True)
class Plan:
    """Places for a job; the jobs that must go first; and those that move, with their places."""

    places: Places
    sent_away: list[int] = field(default_factory=list)
    moved: list[tuple[int, Places]] = field(default_factory=list)
    why: str = RECLAIMED


def on_free(fleet: Fleet, job: int) -> Plan | None:
    """Use what nobody holds."""
    gpus, owner = fleet.gpus[job], fleet.owner[job]
    own = fleet.own[owner] if owner != FILLER else 0
    if gpus <= GPUS_PER_NODE:
        node = fleet.free.tightest(gpus, own) if own else None
        if node is None:
            node = fleet.free.tightest(gpus, fleet.all & ~own)
        return None if node is None else Plan([(node, gpus)])
    need = nodes_needed(gpus)
    whole = fleet.free.whole(fleet.all)
    if whole.bit_count() < need:
        return None
    chosen = [*each(whole & own), *each(whole & ~own)][:need]
    return Plan(_spread(chosen, gpus))


def over_filler(fleet: Fleet, job: int, now: float) -> Plan | None:
    """Use what is free or held by filler: where the least filler must go."""
    gpus = fleet.gpus[job]
    on_one = min(gpus, GPUS_PER_NODE)
    fits = 0
    for left in range(on_one, GPUS_PER_NODE + 1):
        fits |= fleet.firm.level[left]
    need = nodes_needed(gpus)
    if fits.bit_count() < need:
        return None
    chosen: list[int] = []
    for free in range(GPUS_PER_NODE, -1, -1):
        for node in each(fleet.free.level[free] & fits):
            chosen.append(node)
            if len(chosen) == need:
                places = _spread(chosen, gpus)
                return Plan(places, _filler_to_go(fleet, places, now))
    return None


def _filler_to_go(fleet: Fleet, places: Places, now: float) -> list[int]:
    going: dict[int, None] = {}
    for node, wanted in places:
        short = wanted - fleet.free.left[node]
        here = [other for other in fleet.on[node] if fleet.owner[other] == FILLER]
        here.sort(
            key=lambda other: (
                now - fleet.works_since[other] < MIN_RUN,
                fleet.gpus[other],
                fleet.works_since[other],
            )
        )
        for other in here:
            if short <= 0:
                break
            going[other] = None
            short -= fleet.gpus[other]
    return list(going)


def by_reclaim(fleet: Fleet, job: int) -> Plan | None:
    """Take back own nodes from those who borrow them, where that stops the least."""
    gpus, owner = fleet.gpus[job], fleet.owner[job]
    if not fleet.below_quota(owner, gpus):
        return None
    on_one = min(gpus, GPUS_PER_NODE)
    found: list[tuple[int, int, list[int]]] = []
    for node in each(fleet.own[owner]):
        going = _borrowers_to_go(fleet, node, owner, on_one)
        if going is not None:
            found.append((sum(fleet.gpus[other] for other in going), node, going))
    need = nodes_needed(gpus)
    if len(found) < need:
        return None
    found.sort(key=lambda each_: each_[:2])
    chosen = found[:need]
    going = list(dict.fromkeys(other for _, _, jobs in chosen for other in jobs))
    return Plan(_spread([node for _, node, _ in chosen], gpus), going)


def by_displacing(fleet: Fleet, job: int, now: float, firm_for: float) -> Plan | None:
    """Let borrowed work that has had its firm hours pause for work that has not."""
    gpus = fleet.gpus[job]
    on_one, need = min(gpus, GPUS_PER_NODE), nodes_needed(gpus)
    found: list[tuple[int, float, int, list[int]]] = []
    for node in each(fleet.all):
        old = [
            other
            for other in fleet.on[node]
            if fleet.owner[other] == FILLER or _is_old(fleet, other, node, now, firm_for)
        ]
        going = _fewest(fleet, node, old, on_one)
        if going is not None:
            gone = sum(fleet.gpus[other] for other in going)
            longest = max((fleet.progress(other, now) for other in going), default=0.0)
            found.append((gone, -longest, node, going))
    if len(found) < need:
        return None
    found.sort(key=lambda option: option[:3])
    chosen = found[:need]
    going = list(dict.fromkeys(other for *_, jobs in chosen for other in jobs))
    return Plan(_spread([node for _, _, node, _ in chosen], gpus), going, why=PAUSED)


def may_pause(fleet: Fleet, now: float, firm_for: float) -> list[int]:
    """Return borrowed one-node work past its firm hours, what ran longest first."""
    found = [
        job
        for job, places in fleet.places.items()
        if len(places) == 1
        and fleet.owner[job] != FILLER
        and _is_old(fleet, job, places[0][0], now, firm_for)
    ]
    return sorted(found, key=lambda job: -fleet.progress(job, now))


def _is_old(fleet: Fleet, job: int, node: int, now: float, firm_for: float) -> bool:
    return (
        fleet.owner[job] != fleet.owner_of[node]
        and fleet.progress(job, now) >= firm_for
        and now - fleet.works_since[job] >= MIN_RUN_OWNERS
    )


def _borrowers_to_go(fleet: Fleet, node: int, owner: int, gpus: int) -> list[int] | None:
    others = [other for other in fleet.on[node] if fleet.owner[other] != owner]
    return _fewest(fleet, node, others, gpus)


def _fewest(fleet: Fleet, node: int, others: list[int], gpus: int) -> list[int] | None:
    """Return the fewest GPUs' worth of jobs to stop; filler goes before borrowers."""
    short = gpus - fleet.free.left[node]
    going: list[int] = []
    others.sort(
        key=lambda other: (
            fleet.owner[other] != FILLER,
            fleet.gpus[other],
            -fleet.works_since[other],
        )
    )
    for other in others:
        if short <= 0:
            break
        going.append(other)
        short -= fleet.on[node][other]
    return going if short <= 0 else None


def by_moving(fleet: Fleet, job: int, now: float) -> Plan | None:
    """Make room in one piece by moving one-node work into holes elsewhere, borrowed work first."""
    gpus = fleet.gpus[job]
    on_one, need = min(gpus, GPUS_PER_NODE), nodes_needed(gpus)
    if fleet.firm.total < gpus:
        return None
    options: list[tuple[int, int, list[int]]] = []
    for node in each(fleet.all):
        moving = _movable(fleet, node, on_one - fleet.firm.left[node])
        if moving is not None:
            options.append((sum(fleet.gpus[other] for other in moving), node, moving))
    if len(options) < need:
        return None
    options.sort(key=lambda option: option[:2])
    chosen = options[:need]
    places = _spread([node for _, node, _ in chosen], gpus)
    moving = [other for _, _, jobs in chosen for other in jobs]
    moved = _elsewhere(fleet, moving, {node for node, _ in places})
    if moved is None:
        return None
    return Plan(places, _filler_on(fleet, places, moving, moved, now), moved)


def _movable(fleet: Fleet, node: int, short: int) -> list[int] | None:
    if short <= 0:
        return []
    moving: list[int] = []
    here = [
        other
        for other in fleet.on[node]
        if fleet.owner[other] != FILLER and len(fleet.places[other]) == 1
    ]
    owner = fleet.owner_of[node]
    here.sort(key=lambda other: (fleet.owner[other] == owner, fleet.gpus[other]))
    for other in here:
        moving.append(other)
        short -= fleet.gpus[other]
        if short <= 0:
            return moving
    return None


def _elsewhere(fleet: Fleet, moving: list[int], but: set[int]) -> list[tuple[int, Places]] | None:
    """Find a place for each, tightest first; filler there gives way."""
    left = {node: room for node, room in enumerate(fleet.firm.left) if node not in but and room}
    moved: list[tuple[int, Places]] = []
    for other in sorted(moving, key=lambda each_: -fleet.gpus[each_]):
        gpus = fleet.gpus[other]
        fits = [(room, node) for node, room in left.items() if room >= gpus]
        if not fits:
            return None
        _, node = min(fits)
        left[node] -= gpus
        moved.append((other, [(node, gpus)]))
    return moved


def _filler_on(
    fleet: Fleet,
    places: Places,
    moving: list[int],
    moved: list[tuple[int, Places]],
    now: float,
) -> list[int]:
    gone = set(moving)
    going: list[int] = []
    wants: dict[int, int] = dict(places)
    for _, there in moved:
        for node, taken in there:
            wants[node] = wants.get(node, 0) + taken
    for node, wanted in wants.items():
        free = fleet.free.left[node] + sum(
            taken for other, taken in fleet.on[node].items() if other in gone
        )
        here = [other for other in fleet.on[node] if fleet.owner[other] == FILLER]
        here.sort(key=lambda other: fleet.gpus[other])
        for other in here:
            if free >= wanted:
                break
            going.append(other)
            free += fleet.gpus[other]
    return list(dict.fromkeys(going))


def _spread(nodes: list[int], gpus: int) -> Places:
    places: Places = []
    for node in nodes:
        places.append((node, min(GPUS_PER_NODE, gpus)))
        gpus -= GPUS_PER_NODE
    return places
