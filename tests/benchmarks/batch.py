"""How near to the best a round is cleared, in one and in ten seconds, beside the field.

Compiling and a first small round are done before the watch starts. What a clearing is worth is
given as a share of a bound that no clearing can pass; this one is found apart, by many more steps
of price finding than a round has (about a minute), so it is nearer than the certificate's own.
Rounds are drawn with seeds on which no constant was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from math import inf

import highspy
import numpy as np
from ortools.sat.python import cp_model

from marketplace.domain.solver import Effort, Problem, solve
from marketplace.domain.solver.arrays import Layout, lay_out
from marketplace.domain.solver.greedy import place_all
from marketplace.domain.solver.scratch import bench_for
from marketplace.domain.solver.solve import by_price
from marketplace.domain.solver.state import begin
from marketplace.domain.solver.threads import BIDS_MIN
from tests.benchmarks.bounds import bound_of
from tests.benchmarks.families import LOOSE, TIGHT, Family, draw
from tests.benchmarks.figures import Figure

SEEDS = (8_101, 8_102)
"""On which nothing was tuned."""
ENDLESS = 10**9
DUAL_STEPS = {
    ("loose", 1): 6, ("loose", 10): 60, ("tight", 1): 12, ("tight", 10): 40,
}  # fmt: skip
"""Steps of price finding in a round of so many seconds; the rest of the time is search."""


def run() -> Iterator[Figure]:
    """Yield each family's shares of the bound."""
    for bids in (100, BIDS_MIN):  # searched as a whole, and in halves
        solve(draw(TIGHT, bids, 1), effort=Effort(dual=2, search=40), seed=1)
    goals = {(LOOSE, 1): "≥ 99.5", (LOOSE, 10): "≥ 99.8", (TIGHT, 1): "≥ 97.5", (TIGHT, 10): "≥ 99"}
    for family, seed in product((LOOSE, TIGHT), SEEDS):
        problem = draw(family, 10_000, seed)
        bound, took = bound_of(problem)
        name = f"{family.name}, {problem.bids:,} bids × {problem.pools:,} pools, seed {seed}"
        yield Figure(f"{name}: bound, found apart", took, "s")
        yield Figure(f"{name}: by limit alone", 100 * by_limit(problem) / bound, "%")
        for seconds in (1, 10):
            welfare, spent = cleared(family, problem, seconds)
            label = f"{name}: in {spent:.1f} s"
            yield Figure(label, 100 * welfare / bound, "% of bound", goal=goals[family, seconds])
    yield from beside_the_field()


def beside_the_field() -> Iterator[Figure]:
    """Yield what others clear of a contended round of 1,000 bids in ten seconds."""
    problem = draw(TIGHT, 1_000, SEEDS[0])
    bound, _ = bound_of(problem)
    columns = Columns(problem)
    ours, spent = cleared(TIGHT, problem, 10)
    name = f"tight, {problem.bids:,} bids × {problem.pools:,} pools"
    yield Figure(f"{name}: in {spent:.1f} s", 100 * ours / bound, "% of bound", goal="the best")
    for rival, clear in (("HiGHS", columns.highs), ("CP-SAT", columns.cp_sat)):
        started = time.perf_counter()
        welfare = clear(10.0)
        spent = time.perf_counter() - started
        yield Figure(f"{name}: {rival} in {spent:.1f} s", 100 * welfare / bound, "% of bound")
    yield Figure(f"{name}: highest limit first", 100 * by_limit(problem) / bound, "% of bound")
    yield Figure(f"{name}: first come first", 100 * as_they_came(problem) / bound, "% of bound")


def cleared(family: Family, problem: Problem, seconds: int) -> tuple[float, float]:
    """Return the worth of a round cleared in so many seconds, and the seconds it took."""
    started = time.perf_counter()
    effort = Effort(dual=DUAL_STEPS[family.name, seconds], search=ENDLESS)
    due = started + seconds - 0.1  # reading the grants out is part of it
    solution = solve(problem, effort=effort, seed=1, enough=lambda: time.perf_counter() >= due)
    return float(solution.welfare_nanos), time.perf_counter() - started


def by_limit(problem: Problem) -> float:
    """Return the worth of placing bids where they are cheapest, the highest limit first."""
    return _placed(problem, by_price(lay_out(problem)))


def as_they_came(problem: Problem) -> float:
    """Return the worth of placing bids where they are cheapest, as they come."""
    return _placed(problem, np.arange(problem.bids))


def _placed(problem: Problem, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    layout = lay_out(problem)
    none = np.zeros((problem.pools, problem.slots + 1))
    return float(
        place_all(layout, begin(problem, layout), none, bench_for(layout), order, 0.0, 0.0)
    )


class Columns:
    """A round of bids that keep to one pool, as an assignment: a column per bid, pool and start."""

    def __init__(self, problem: Problem) -> None:
        layout: Layout = lay_out(problem)
        self.bids = problem.bids
        self.worth: list[float] = []
        self.gpus: list[int] = []
        self.of_bid: list[list[int]] = [[] for _ in range(problem.bids)]
        self.in_slot: dict[tuple[int, int], list[int]] = {}
        self.capacity = problem.capacity
        for bid, held in enumerate(layout.listed):
            for entry in range(layout.list_at[held], layout.list_at[held + 1]):
                if layout.floor[entry] <= layout.limit[bid]:
                    self._add(problem, layout, bid, entry)

    def _add(self, problem: Problem, layout: Layout, bid: int, entry: int) -> None:
        pool, gpus = int(layout.pool[entry]), int(layout.gpus[bid])
        for slot in range(layout.first[bid], layout.last[bid] + 1):
            end = int(layout.ends[layout.row[bid], slot])
            if (problem.capacity[pool, slot:end] < gpus).any():
                continue
            column = len(self.worth)
            gain = layout.worth[bid] - layout.floor[entry]
            self.worth.append(float(gain * gpus * layout.hours[bid]) / 1e6)
            self.gpus.append(gpus)
            self.of_bid[bid].append(column)
            for at in range(slot, end):
                self.in_slot.setdefault((pool, at), []).append(column)

    def highs(self, seconds: float) -> float:
        """Return the worth that HiGHS reaches as a mixed-integer program."""
        solver = highspy.Highs()  # type: ignore[no-untyped-call]  # has no annotations
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", seconds)
        solver.setOptionValue("threads", 2)
        count = len(self.worth)
        solver.addVars(count, np.zeros(count), np.ones(count))
        which = np.arange(count, dtype=np.int32)
        solver.changeColsCost(count, which, -np.array(self.worth))
        kinds = np.full(count, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(count, which, kinds)
        for columns in self.of_bid:
            ones = np.ones(len(columns))
            solver.addRow(-inf, 1.0, len(columns), np.array(columns, np.int32), ones)
        for (pool, at), columns in self.in_slot.items():
            gpus = np.array([self.gpus[column] for column in columns], float)
            top = float(self.capacity[pool, at])
            solver.addRow(-inf, top, len(columns), np.array(columns, np.int32), gpus)
        solver.run()
        worth = -float(solver.getInfo().objective_function_value)
        return max(0.0, worth) * 1e6 if abs(worth) < 1e29 else 0.0

    def cp_sat(self, seconds: float) -> float:
        """Return the worth that CP-SAT reaches."""
        model = cp_model.CpModel()
        taken = [model.new_bool_var("") for _ in self.worth]
        for columns in self.of_bid:
            model.add_at_most_one(taken[column] for column in columns)
        for (pool, at), columns in self.in_slot.items():
            wanted = sum(self.gpus[column] * taken[column] for column in columns)
            model.add(wanted <= int(self.capacity[pool, at]))
        model.maximize(
            sum(round(worth) * one for worth, one in zip(self.worth, taken, strict=True))
        )
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 2
        found = solver.status_name(solver.solve(model)) in ("OPTIMAL", "FEASIBLE")
        return float(solver.objective_value) * 1e6 if found else 0.0
