"""The optimum of a small round, by OR-Tools CP-SAT: one variable per way to serve a bid."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ortools.sat.python import cp_model

from marketplace.domain.solver import ONE_HOST, ONE_POOL, UNLIMITED, Problem

COIN = 1_250_000
SPELL = 1_800_000
"""Prices of the small rounds are multiples of this many nano-units, durations of this many ms."""
QUARTER = 900_000
"""Moments of the small rounds are multiples of this many ms."""
HOUR = 3_600_000


class Exact:
    """The model of one round. Sums over what each way uses become constraints at the end."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.units: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.bits: dict[tuple[int, int, int], list[Any]] = defaultdict(list)
        self.held: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.given: dict[int, list[Any]] = defaultdict(list)
        self.worth: list[Any] = []
        for bid in range(problem.bids):
            self._bid(bid)
        self._limits()
        self.model.maximize(sum(self.worth))

    def solve(self, seconds: float) -> tuple[int, bool]:
        """Return the best worth in nano-units, and whether it is proven."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        status = solver.solve(self.model)
        said = solver.status_name(status)
        assert said in ("OPTIMAL", "FEASIBLE")
        worth = int(solver.objective_value + 0.5) * COIN * SPELL // HOUR
        return worth, said == "OPTIMAL"

    def _bid(self, bid: int) -> None:
        problem = self.problem
        kind = int(problem.kind[bid])
        usable = [
            entry
            for entry in range(int(problem.kind_at[kind]), int(problem.kind_at[kind + 1]))
            if problem.floor[entry] <= problem.limit[bid]
        ]
        places: dict[int, list[int]] = defaultdict(list)
        spread = int(problem.spread[bid])
        for entry in usable:
            pool = int(problem.pool[entry])
            key = pool if spread == ONE_POOL else int(problem.host[pool])
            places[key if spread in (ONE_POOL, ONE_HOST) else -1].append(entry)
        ways = []
        for slot in range(problem.slots):
            begins = max(int(problem.earliest[bid]), int(problem.grid[slot]))
            over = begins + int(problem.duration[bid])
            late = over > int(problem.deadline[bid]) or over > int(problem.grid[-1])
            if late or begins >= int(problem.grid[slot + 1]):
                continue
            free = over + int(problem.gap[bid])
            if free > int(problem.grid[-1]):
                continue
            end = next(at for at in range(slot, problem.slots + 1) if problem.grid[at] >= free)
            ways += [self._way(bid, slot, end, place) for place in places.values()]
        self.model.add_at_most_one(ways)

    def _way(self, bid: int, slot: int, end: int, entries: list[int]) -> Any:
        """Return a variable: the bid starts in `slot` and has all its GPUs from `entries`."""
        problem, model = self.problem, self.model
        begins = max(int(problem.earliest[bid]), int(problem.grid[slot]))
        gpus, gain = int(problem.gpus[bid]), int(problem.limit[bid] + problem.weight[bid])
        taken = model.new_bool_var("")
        pieces = []
        for entry in entries:
            pool = int(problem.pool[entry])
            count = taken * gpus if len(entries) == 1 else model.new_int_var(0, gpus, "")
            pieces.append(count)
            rate = (gain - int(problem.floor[entry])) // COIN
            self.worth.append(rate * (int(problem.duration[bid]) // SPELL) * count)
            for at in range(slot, end):
                self.units[pool, at].append(int(problem.units[entry]) * count)
            if problem.divided[pool]:
                self._slices(entry, slot, end, count)
        if len(entries) > 1:
            model.add(sum(pieces) == gpus * taken)
        over = begins + int(problem.duration[bid])
        for member in range(int(problem.group_at[bid]), int(problem.group_at[bid + 1])):
            group, share = int(problem.group[member]), int(problem.share[member])
            since, until = int(problem.since[group]), int(problem.until[group])
            counted = max(0, min(over, until) - max(begins, since))
            for entry, count in zip(entries, pieces, strict=True):
                each = share * int(problem.counted[group, problem.pool[entry]])
                if each * counted:
                    self.given[group].append(counted // QUARTER * each * count)
                for at in range(slot, end if each else slot):
                    self.held[group, at].append(each * count)
        return taken

    def _slices(self, entry: int, slot: int, end: int, count: Any) -> None:
        problem = self.problem
        profile, pool = int(problem.profile[entry]), int(problem.pool[entry])
        chosen = []
        for mask in problem.mask[problem.profile_at[profile] : problem.profile_at[profile + 1]]:
            here = self.model.new_bool_var("")
            chosen.append(here)
            for at in range(slot, end):
                for bit in range(8):
                    if int(mask) >> bit & 1:
                        self.bits[pool, at, bit].append(here)
        self.model.add(sum(chosen) == count)

    def _limits(self) -> None:
        problem, model = self.problem, self.model
        for (pool, slot), uses in self.units.items():
            model.add(sum(uses) <= int(problem.capacity[pool, slot]))
        for (pool, slot, bit), uses in self.bits.items():
            model.add(sum(uses) <= 1 - (int(problem.taken[pool, slot]) >> bit & 1))
        for (group, slot), uses in self.held.items():
            if problem.concurrent[group, slot] < UNLIMITED:
                model.add(sum(uses) <= int(problem.concurrent[group, slot]))
        for group, uses in self.given.items():
            if problem.gpu_ms[group] < UNLIMITED:
                model.add(sum(uses) <= int(problem.gpu_ms[group]) // QUARTER)
