"""Large problems in stages: fleets from the relaxation, exact dispatch on each, then whole replicas on what was used.

Every bound is one of the whole problem: the relaxation drops integrality and nothing else. Every plan is a plan of the whole problem: the
later stages only fix or leave out unknowns. So the gap between the two is proven, however the plan was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from planner.milp.engine import Floats, Model, Run, run_highs, to_lp

Mask = npt.NDArray[np.bool_]
FLEET = frozenset({"buy", "held", "use"})
"""Families that tie months together; all others belong to one month."""
WHOLE_FIRST = frozenset({"buy", "held", "use", "open_site", "self_host", "hosted"})
"""Families that are whole in the first fleet."""
SLICED = frozenset({"nodes", "replicas", "share", "call", "must_survive", "absorb"})
"""Families that belong to one timeslice."""
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

    def subproblem(self, columns: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], cost: Floats, *, whole: bool) -> highspy.HighsLp:
        """Return the program over some columns and some rows that hold no other columns, with costs of its own."""
        sub = self.matrix[rows][:, columns].tocsr()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(columns), len(rows)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost[columns], self.model.lower[columns], self.model.upper[columns]
        lp.row_lower_, lp.row_upper_ = self.row_lower[rows], self.row_upper[rows]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = len(columns), len(rows)
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = sub.indptr, sub.indices, sub.data
        lp.integrality_ = [_KIND[int(b and whole)] for b in self.model.is_integer[columns]]
        return lp


def _month(family: str, index: tuple[object, ...]) -> int:
    if family in FLEET:
        return -1
    at = {"open_site": 1, "hosted": 1, "backlog": 1, "work": 1, "nodes": 1, "rise": 1, "self_host": 0}.get(family, -2)
    m = index[at]
    assert isinstance(m, int)
    return m


def run_stages(model: Model, *, gap_frac: float, time_limit_s: float | None) -> Run:
    """Return the best plan and the best bound that the stages reach within the time.

    (1) The linear relaxation bounds the cost and shows which pools matter. (2) With those alone: whole nodes and 0/1 choices, the rest
    relaxed, give a fleet, and so does the relaxation rounded; (3) each timeslice is dispatched whole on each; (4) whole
    replicas, rents and fleet are improved together on the pools used.
    (5) Month by month with whole nodes and replicas, nodes paid for at the relaxation's prices, the bound is raised (`month_bound`);
    where no plan was found the whole problem is tried as one.
    """
    began = time.perf_counter()
    limit = 600.0 if time_limit_s is None else time_limit_s

    def left(part: float = 1.0) -> float:
        return max(0.0, part * limit - (time.perf_counter() - began))

    a = Arrays.of(model)
    everything = np.arange(len(model.keys))
    lp = to_lp(model)
    lp.integrality_ = [_KIND[0]] * len(model.keys)
    relaxed = run_highs(lp, gap_frac=0.0, time_limit_s=left())
    if relaxed.status in ("infeasible", "no_incumbent"):
        return relaxed
    bound, best, clock = relaxed.bound, None, False
    used = on_pools_used(model, relaxed.values)
    plans: list[Floats | None] = []
    for up in (0.4, 0.0, -0.4):
        if left(0.5) > 0.5 or all(p is None for p in plans):
            plans.append(dispatch(a, used, rounded_fleet(model, relaxed.values, up), left))
    if left(0.5) > 1.0 or all(p is None for p in plans):
        plans.append(_fleet_then_dispatch(a, used, gap_frac, left))
    found = [p for p in plans if p is not None]
    if found:
        best = min(found, key=lambda p: float(p @ model.cost))
    if best is not None and not _good(model, best, bound, gap_frac):
        columns = np.union1d(on_pools_used(model, best), np.flatnonzero(best))
        if left(0.6) > 0.3:
            run = run_highs(
                a.part(columns, np.zeros(len(best)), model.is_integer), gap_frac=gap_frac, time_limit_s=left(0.6), start=best[columns]
            )
            best, clock = _better(model, best, run, columns), run.stopped_by_clock
    if (
        best is not None
        and not _good(model, best, bound, gap_frac)
        and relaxed.status == "optimal"
        and model.variables.sets.d.months_count > 1
    ):
        bound, clock = max(bound, month_bound(a, relaxed.duals, gap_frac, left)), True
    elif (best is None or not _good(model, best, bound, gap_frac)) and left() > 0.3:
        run = run_highs(to_lp(model), gap_frac=gap_frac, time_limit_s=left(), start=best)
        if run.status == "infeasible":
            return run
        bound = max(bound, run.bound)
        best, clock = _better(model, best, run, everything), run.stopped_by_clock
    seconds = time.perf_counter() - began
    if best is None:
        return Run("no_incumbent", np.zeros(0), 0.0, bound, seconds, True, relaxed.solver_name)
    cost = float(best @ model.cost)
    status: Literal["optimal", "feasible"] = "optimal" if _good(model, best, bound, gap_frac) else "feasible"
    return Run(status, best, cost, bound, seconds, clock, relaxed.solver_name)


def month_bound(a: Arrays, duals: Floats, gap_frac: float, left: Callable[[float], float]) -> float:
    """Return a lower bound of the whole problem by Lagrangian relaxation: months part from the fleet, paying a price for each node held.

    Every month gets its own copy N of the nodes held, N ≤ held, at the price π ≥ 0 that the relaxation's duals put on it; rows that tie
    months (orders, budgets) stay with the fleet, and monthly budgets are dropped. Any π ≥ 0 gives a bound, and so does a month that is
    stopped early, by its own bound.
    """
    model = a.model
    months = model.variables.sets.d.months_count
    held_month = np.array([index[1] if family == "held" else -1 for family, index in model.keys])
    use = np.array([family == "use" for family, _ in model.keys])
    pattern = a.matrix.copy()
    pattern.data = np.ones_like(pattern.data)
    size = np.asarray(pattern.sum(axis=1)).ravel()
    blocks = [np.flatnonzero((a.month == m) | (held_month == m) | use) for m in range(months)]
    rows_of = [np.flatnonzero((np.asarray(pattern[:, b].sum(axis=1)).ravel() == size) & (size > 0)) for b in blocks]
    inside = np.unique(np.concatenate(rows_of))
    price = np.zeros(len(model.keys))
    is_held = held_month >= 0
    price[is_held] = np.maximum(0.0, (a.matrix[inside].T @ duals[inside])[is_held])
    fleet = np.flatnonzero(a.month < 0)
    own_rows = np.flatnonzero((np.asarray(pattern[:, fleet].sum(axis=1)).ravel() == size) & (size > 0))
    master = run_highs(a.subproblem(fleet, own_rows, model.cost - price, whole=False), gap_frac=0.0, time_limit_s=None)
    if master.status != "optimal":
        return -float("inf")
    total = master.objective
    for m, (columns, rows) in enumerate(zip(blocks, rows_of, strict=True)):
        cost = np.where(is_held, price, np.where(use, 0.0, model.cost))
        seconds = max(0.1, left(1.0) / (months - m))
        run = run_highs(a.subproblem(columns, rows, cost, whole=True), gap_frac=gap_frac / 4, time_limit_s=seconds)
        if run.status == "infeasible":
            return -float("inf")
        total += run.bound
    return total


def _good(model: Model, plan: Floats, bound: float, gap_frac: float) -> bool:
    cost = float(plan @ model.cost)
    return cost - bound <= gap_frac * abs(cost)


def _better(model: Model, best: Floats | None, run: Run, columns: npt.NDArray[np.int64]) -> Floats | None:
    if run.status not in ("optimal", "feasible") or (best is not None and float(best @ model.cost) <= run.objective):
        return best
    out = np.zeros(len(model.keys))
    out[columns] = run.values
    return out


def _fleet_then_dispatch(a: Arrays, columns: npt.NDArray[np.int64], gap_frac: float, left: Callable[[float], float]) -> Floats | None:
    """Return a plan on some columns: nodes and choices whole and the rest relaxed, then every month exactly; None where that fails."""
    model = a.model
    whole = np.array([family in WHOLE_FIRST for family, _ in model.keys]) & model.is_integer
    fleet = run_highs(a.part(columns, np.zeros(len(model.keys)), whole), gap_frac=5 * gap_frac, time_limit_s=max(0.5, left(0.4)))
    if fleet.status not in ("optimal", "feasible"):
        return None
    values = np.zeros(len(model.keys))
    values[columns] = fleet.values
    return dispatch(a, columns, values, left)


def dispatch(a: Arrays, columns: npt.NDArray[np.int64], values: Floats, left: Callable[[float], float]) -> Floats | None:
    """Return the plan with the fleet, the choices and the batch work of `values`, and each timeslice's replicas, rents and calls whole.

    Given those, timeslices touch nothing in common but cold starts (counted at the end) and a monthly budget: with one, whole months are
    solved instead. None where a timeslice has no plan.
    """
    model = a.model
    budget = any(name.startswith("opex_within_budget") for name in model.row_names)
    sliced = np.array([index[-1] if family in SLICED else -1 for family, index in model.keys], dtype=np.int64)
    blocks = a.month if budget else np.where(sliced >= 0, a.month * 1000 + sliced, -1)
    out = np.where(model.is_integer, np.round(values), values)
    out[blocks >= 0] = 0.0
    rise = np.array([family == "rise" for family, _ in model.keys])
    if not budget:
        out[rise] = model.upper[rise]
    names = np.unique(blocks[blocks >= 0])
    for done, block in enumerate(names):
        here = columns[blocks[columns] == block]
        if not len(here):
            continue
        seconds = max(0.05, 4 * left(0.6) / (len(names) - done))
        run = run_highs(a.part(here, out, model.is_integer), gap_frac=1e-4, time_limit_s=seconds)
        if run.status not in ("optimal", "feasible"):
            return None
        out[here] = np.where(model.is_integer[here], np.round(run.values), run.values)
    loose = np.flatnonzero(~model.is_integer)
    run = run_highs(a.part(loose, out, np.zeros(len(out), dtype=bool)), gap_frac=0.0, time_limit_s=None)
    if run.status != "optimal":
        return None
    out[loose] = run.values
    return out if _holds(a, out) else None


def _holds(a: Arrays, x: Floats) -> bool:
    """Whether every row holds: rows of fixed columns alone are in no part that was solved."""
    rows = a.matrix @ x
    slack = 1e-6 * np.maximum(1.0, np.abs(rows))
    return bool(np.all(rows >= a.row_lower - slack) and np.all(rows <= a.row_upper + slack))


def rounded_fleet(model: Model, values: Floats, up: float) -> Floats:
    """Return `values` with orders rounded so that their running sum is off by less than one, and the choices that follow from them.

    `up` moves the rounding: 0 to the nearest, 0.4 mostly up, −0.4 mostly down.
    """
    s = model.variables.sets
    at = {key: j for j, key in enumerate(model.keys)}
    out = values.copy()
    site_months: set[tuple[str | None, int]] = set()
    for p in s.pools:
        if p.kind not in ("own", "reserved", "existing"):
            continue
        bought: dict[int, int] = {}
        total, given = 0.0, 0
        for m in s.order_months(p) if p.kind != "existing" else ():
            total += float(values[at["buy", (p.id, m)]])
            now = int(np.floor(total + 0.5 + up)) if total > 1e-6 else 0
            bought[m] = max(0, now - given)
            given = max(given, now)
            out[at["buy", (p.id, m)]] = bought[m]
        lead, lasts = (p.lead_months, p.life_months) if p.kind == "own" else (0, p.term_months)
        for m in s.months:
            j = at["held", (p.id, m)]
            held = (
                np.floor(values[j] + 1e-6)
                if p.kind == "existing"
                else sum(n for b, n in bought.items() if b + lead <= m < b + lead + lasts)
            )
            out[j] = held
            if held and p.kind != "reserved":
                site_months.add((p.site, m))
    variants: dict[str, tuple[float, int]] = {}
    for j, (family, index) in enumerate(model.keys):
        if family == "self_host":
            out[j] = 1.0
        elif family == "open_site":
            out[j] = float(tuple(index) in site_months)
        elif family == "hosted":
            out[j] = float(values[j] >= 0.5)
        elif family == "use":
            out[j] = 0.0
            if index[1] not in variants or values[j] > variants[index[1]][0]:
                variants[index[1]] = (float(values[j]), j)
    for _, j in variants.values():
        out[j] = 1.0
    return out


def on_pools_used(model: Model, values: Floats) -> npt.NDArray[np.int64]:
    """Return the columns of the pools that hold nodes in `values`, and all that belong to no pool."""
    pool_of = {k.id: k.pool for k in model.variables.sets.candidates}
    used = {i[0] for (f, i), x in zip(model.keys, values, strict=True) if f in ("nodes", "held") and x > 1e-6}
    keep = []
    for j, (f, i) in enumerate(model.keys):
        if f in ("nodes", "held", "buy", "rise"):
            on = i[0] in used
        else:
            at = {"replicas": 0, "share": 1, "must_survive": 1, "absorb": 3}.get(f)
            on = at is None or pool_of[i[at]] in used
        if on:
            keep.append(j)
    return np.array(keep, dtype=np.int64)
