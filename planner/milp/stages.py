"""Large problems in stages: a fleet from the relaxation with whole nodes, exact dispatch month by month, then whole replicas on what was used.

Every bound is one of the whole problem: the relaxation drops integrality and nothing else. Every plan is a plan of the whole problem: the
later stages only fix or leave out unknowns. So the gap between the two is proven, however the plan was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from planner.milp.engine import Floats, Model, Run, run_highs, to_lp

Mask = npt.NDArray[np.bool_]
FLEET = frozenset({"buy", "held", "use"})
"""Families that tie months together; all others belong to one month."""
_KIND = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)


@dataclass
class Arrays:
    """A model as a sparse matrix, with the month of each column (−1 for those that tie months together)."""

    model: Model
    matrix: csr_matrix
    month: npt.NDArray[np.int64]
    row_lower: Floats
    row_upper: Floats

    @classmethod
    def of(cls, model: Model) -> Arrays:
        shape = (len(model.row_names), len(model.columns))
        matrix = csr_matrix((np.array(model.value), np.array(model.index), np.array(model.starts)), shape=shape)
        month = np.array([_month(family, index) for family, index in model.keys], dtype=np.int64)
        return cls(model, matrix, month, np.array(model.row_lower), np.array(model.row_upper))

    def part(self, columns: npt.NDArray[np.int64], fixed: Floats, is_integer: Mask) -> highspy.HighsLp:
        """Return the program over some columns, all others fixed at the given values and moved to the right-hand side."""
        sub = self.matrix[:, columns]
        rows = np.flatnonzero(np.diff(sub.indptr))
        sub = sub[rows]
        rest = fixed.copy()
        rest[columns] = 0.0
        moved = self.matrix[rows] @ rest
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(columns), len(rows)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.model.cost[columns], self.model.lower[columns], self.model.upper[columns]
        lp.row_lower_, lp.row_upper_ = self.row_lower[rows] - moved, self.row_upper[rows] - moved
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = len(columns), len(rows)
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = sub.indptr, sub.indices, sub.data
        lp.integrality_ = [_KIND[int(b)] for b in is_integer[columns]]
        return lp


def _month(family: str, index: tuple[object, ...]) -> int:
    if family in FLEET:
        return -1
    at = {"open_site": 1, "hosted": 1, "backlog": 1, "work": 1, "nodes": 1, "rise": 1, "self_host": 0}.get(family, -2)
    m = index[at]
    assert isinstance(m, int)
    return m


def run_stages(model: Model, *, gap_frac: float, time_limit_s: float | None) -> Run:
    """Return the best plan and the best bound that the stages reach within the time (two fifths of it for the relaxation, as much again for the dispatch at most)."""
    began = time.perf_counter()
    limit = 600.0 if time_limit_s is None else time_limit_s

    def left() -> float:
        return limit - (time.perf_counter() - began)

    a = Arrays.of(model)
    fleet_only = np.array([family in ("buy", "held", "use", "open_site", "self_host", "hosted") for family, _ in model.keys])
    lp = to_lp(model)
    lp.integrality_ = [_KIND[int(b)] for b in (model.is_integer & fleet_only)]
    relaxed = run_highs(lp, gap_frac=gap_frac / 2, time_limit_s=0.4 * limit)
    if relaxed.status == "infeasible":
        return relaxed
    bound = relaxed.bound
    best: Floats | None = None
    if relaxed.status in ("optimal", "feasible"):
        best = dispatch(a, relaxed.values, left)
    best, clock = _used_only(a, best, gap_frac, bound, left)
    seconds = time.perf_counter() - began
    if best is None:
        return replace(relaxed, status="no_incumbent", bound=bound, seconds=seconds, stopped_by_clock=True)
    cost = float(best @ model.cost)
    good = cost - bound <= gap_frac * abs(cost)
    return Run("optimal" if good else "feasible", best, cost, bound, seconds, clock or relaxed.stopped_by_clock, relaxed.solver_name)


def dispatch(a: Arrays, values: Floats, left: Callable[[], float]) -> Floats | None:
    """Return the plan with the fleet of `values` and each month's replicas, rents and calls exact; None where a month has none."""
    model = a.model
    out = np.where(model.is_integer, np.round(values), values)
    out[a.month >= 0] = 0.0
    for m in range(int(a.month.max()) + 1):
        columns = np.flatnonzero(a.month == m)
        if not len(columns):
            continue
        run = run_highs(a.part(columns, out, model.is_integer), gap_frac=1e-4, time_limit_s=max(0.1, left() / (a.month.max() + 3)))
        if run.status not in ("optimal", "feasible"):
            return None
        out[columns] = np.where(model.is_integer[columns], np.round(run.values), run.values)
    return out


def _used_only(a: Arrays, best: Floats | None, gap_frac: float, bound: float, left: Callable[[], float]) -> tuple[Floats | None, bool]:
    """Improve a plan with everything free again but the candidates, pools and offers that it never uses (all of them without a plan)."""
    model = a.model
    if best is not None and float(best @ model.cost) - bound <= gap_frac * abs(bound):
        return best, False
    keep = np.ones(len(model.keys), dtype=bool)
    if best is not None:
        used = {(f, i[0] if f in ("replicas", "nodes", "held", "buy") else i[1]) for (f, i), x in zip(model.keys, best, strict=True)
                if f in ("replicas", "nodes", "held", "buy", "call") and x > 1e-9}  # fmt: skip
        pool_of = {k.id: k.pool for k in model.variables.sets.candidates}
        pools = {i for f, i in used if f in ("nodes", "held")}
        for j, (f, i) in enumerate(model.keys):
            if f in ("replicas",):
                keep[j] = pool_of[i[0]] in pools
            elif f == "share":
                keep[j] = pool_of[i[1]] in pools
            elif f in ("nodes", "held", "buy", "rise"):
                keep[j] = i[0] in pools
            elif f == "must_survive":
                keep[j] = pool_of[i[1]] in pools
            elif f == "absorb":
                keep[j] = pool_of[i[3]] in pools
    columns = np.flatnonzero(keep)
    start = None if best is None else best[columns]
    seconds = left()
    if seconds < 0.5:
        return best, True
    run = run_highs(a.part(columns, np.zeros(len(keep)), model.is_integer), gap_frac=gap_frac, time_limit_s=seconds, start=start)
    if run.status not in ("optimal", "feasible"):
        return best, run.stopped_by_clock
    out = np.zeros(len(keep))
    out[columns] = run.values
    if best is not None and float(best @ model.cost) <= run.objective:
        return best, run.stopped_by_clock
    return out, run.stopped_by_clock

