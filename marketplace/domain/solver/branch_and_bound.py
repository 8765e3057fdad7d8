"""Finish a small round exactly: branch and bound by HiGHS, where `highspy` is installed.

One thread, a fixed seed, and a limit of nodes, never of seconds: the same version of HiGHS gives
the same clearing and bound. A round says the version, so that one made with HiGHS is never said to
be repeated by another version, or without it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from ledger.domain.refusal import Refusal
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.destroy import entry_of
from marketplace.domain.solver.mip_model import Program
from marketplace.domain.solver.problem import Problem
from marketplace.domain.solver.solution import Placed
from marketplace.domain.solver.state import begin, enter

BIDS_MAX = 128
COLUMNS_MAX = 4_000
"""Larger rounds are left as the search has them."""
GAP = 1e-8
"""Of the objective: what is nearer to its bound is the optimum."""
SCALE = 1e5
"""The largest worth of a column, for a solver that reckons with doubles."""


class OtherSolver(Refusal):
    """This round was finished by a version of HiGHS that is not installed here.

    Its grants are in its events and stand; to make it again, install that version of `highspy`.
    """


@dataclass(frozen=True, slots=True)
class Finished:
    """A clearing and a bound on any, in nano-units."""

    placed: tuple[Placed | None, ...]
    bound: int


def _highspy() -> Any:
    try:
        return importlib.import_module("highspy")
    except ImportError:
        return None


def _silent(highspy: Any) -> Any:
    """Return a solver that prints nothing.

    HiGHS prints who wrote it as soon as it is asked for anything, and its constructor asks for
    callbacks: the option has to be set before that.
    """

    class Silent(highspy.Highs):  # type: ignore[misc]  # its module is looked up when it is needed
        def enableCallbacks(self) -> Any:  # noqa: N802  # its name in HiGHS
            self.setOptionValue("output_flag", False)
            return super().enableCallbacks()

    return Silent()


def version() -> int:
    """Return the version of HiGHS that is installed, 1.16.0 as 1016000; 0 if none is."""
    highspy = _highspy()
    if highspy is None:
        return 0
    numbers = [int(number) for number in re.findall(r"\d+", _silent(highspy).version())[:3]]
    return sum(number * scale for number, scale in zip(numbers, (1_000_000, 1_000, 1), strict=True))


def named(number: int) -> str:
    """Return a version as people write it."""
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


def demand(wanted: int) -> None:
    """Refuse to go on with another version than `wanted`.

    Raises: OtherSolver.
    """
    here = version()
    if wanted != here:
        raise OtherSolver(wanted=named(wanted), here=named(here) if here else None)


def finish(
    problem: Problem,
    layout: Layout,
    placed: Sequence[Placed | None],
    nodes: int,
    enough: Callable[[], bool],
) -> Finished | None:
    """Return the best clearing within so many nodes, from one that is known.

    None: the round is too large, there was no time, or nothing came of it.
    """
    if problem.bids > BIDS_MAX or not version() or enough():
        return None
    program = Program(problem)
    if not program.worth or len(program.worth) > COLUMNS_MAX:
        return None
    unit = max(program.worth) / SCALE
    if unit <= 0.0:
        return None
    solver = _solver(program, unit, nodes)
    start = program.columns_of(placed)
    if start is not None:
        known = _highspy().HighsSolution()
        known.col_value = start
        solver.setSolution(known)
    stopped = _stop_when(solver, enough)
    solver.run()
    if stopped:
        return None
    info = solver.getInfo()
    bound = -float(info.mip_dual_bound)
    if not np.isfinite(bound) or abs(info.objective_function_value) > 1e29:
        return None
    found = program.read(solver.getSolution().col_value)
    if not holds(problem, layout, found):
        return None
    return Finished(found, ceil(max(bound, 0.0) * (1 + 1e-7) * unit) + 1)


def _solver(program: Program, unit: float, nodes: int) -> Any:
    highspy = _highspy()
    solver = _silent(highspy)
    for option, value in (
        ("threads", 1),
        ("random_seed", 0),
        ("mip_rel_gap", GAP),
        ("mip_max_nodes", nodes),
    ):
        solver.setOptionValue(option, value)
    count = len(program.worth)
    solver.addVars(count, np.zeros(count), np.array(program.most, float))
    which = np.arange(count, dtype=np.int32)
    solver.changeColsCost(count, which, -np.array(program.worth) / unit)
    solver.changeColsIntegrality(count, which, np.full(count, highspy.HighsVarType.kInteger))
    lengths = [len(terms) for terms, _, _ in program.rows]
    solver.addRows(
        len(program.rows),
        np.array([low for _, low, _ in program.rows], float),
        np.array([high for _, _, high in program.rows], float),
        sum(lengths),
        np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int32),
        np.array([column for terms, _, _ in program.rows for column, _ in terms], np.int32),
        np.array([counts for terms, _, _ in program.rows for _, counts in terms], float),
    )
    return solver


def _stop_when(solver: Any, enough: Callable[[], bool]) -> list[bool]:
    """Let the solver stop once there was enough; return a list that is then no longer empty."""
    stopped: list[bool] = []

    def look(event: Any) -> None:
        if stopped or enough():
            stopped.append(True)
            event.interrupt()

    solver.cbMipInterrupt.subscribe(look)
    solver.cbSimplexInterrupt.subscribe(look)
    return stopped


def holds(problem: Problem, layout: Layout, placed: Sequence[Placed | None]) -> bool:
    """Tell if a clearing uses no more than there is, in whole numbers."""
    state = begin(problem, layout)
    for bid, grant in enumerate(placed):
        if grant is None:
            continue
        room = layout.piece_at[bid + 1] - layout.piece_at[bid]
        if state.seat[bid] < 0 or len(grant.pieces) > room:
            return False
        state.parts[bid] = len(grant.pieces)
        for at, piece in enumerate(grant.pieces, int(layout.piece_at[bid])):
            busy = state.taken[piece.pool, grant.slot : grant.end]
            if (busy & piece.mask).any():
                return False
            state.entry[at] = entry_of(layout, int(layout.listed[bid]), piece.pool)
            state.gpus[at] = piece.gpus
            state.mask[at] = piece.mask
        enter(layout, state, bid, grant.slot)
    return bool(
        (state.free >= 0).all() and (state.concurrent >= 0).all() and (state.gpu_ms >= 0).all()
    )
