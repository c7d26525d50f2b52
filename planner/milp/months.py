"""Months apart: whole nodes and replicas month by month, with nodes paid for at a price, and a fleet chosen among what the months ask for.

Months touch nothing in common but the fleet (orders, nodes held, budgets) and the choice of variants. Give every month its own copy N of
the nodes held, N ≤ held, and put a price π ≥ 0 on each: then months part, each a small program solved whole, and their bounds add up to a
bound of the whole problem (Lagrangian relaxation; rows that tie months stay with the fleet, monthly budgets are dropped). What the months
ask for are columns of a small program over the fleet (Dantzig and Wolfe): it gives the next fleet, and its relaxation the next prices.
Each fleet is then dispatched exactly, month by month: a plan. Months are taken from the last to the first, each started from its
neighbour's answer, which usually fits it, for load seldom falls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from planner.milp.engine import Floats, Model, Run, run_highs
from planner.milp.stages import Arrays

Ints = npt.NDArray[np.int64]
MAX_ROUNDS = 6
INF = highspy.kHighsInf


@dataclass
class Month:
    """One month's part of the program."""

    columns: Ints
    rows: Ints
    held: Ints
    """Columns of the nodes held, copies of the fleet's."""
    place: dict[tuple[str, tuple[Any, ...]], int]
    """(family, index without the month) → position in `columns`."""
    start: Floats | None = None


@dataclass
class Column:
    """What a month could ask for: nodes held, and its cost without them."""

    month: int
    nodes: Floats
    usd: float
    values: Floats = field(repr=False)


class Months:
    """The program split by month."""

    def __init__(self, model: Model) -> None:
        self.a = Arrays.of(model)
        self.model = model
        self.count = model.variables.sets.d.months_count
        families = [family for family, _ in model.keys]
        self.held_month = np.array([index[1] if family == "held" else -1 for family, index in model.keys])
        self.is_use = np.array([f == "use" for f in families])
        pattern = self.a.matrix.copy()
        pattern.data = np.ones_like(pattern.data)
        size = np.asarray(pattern.sum(axis=1)).ravel()
        self.months: list[Month] = []
        inside: list[Ints] = []
        for m in range(self.count):
            columns = np.flatnonzero((self.a.month == m) | (self.held_month == m) | self.is_use)
            rows = np.flatnonzero((np.asarray(pattern[:, columns].sum(axis=1)).ravel() == size) & (size > 0))
            place = {self._without_month(j): i for i, j in enumerate(columns)}
            self.months.append(Month(columns, rows, np.flatnonzero(self.held_month == m), place))
            inside.append(rows)
        self.inside = np.unique(np.concatenate(inside))
        self.fleet = np.flatnonzero((self.a.month < 0) & ~self.is_use)
        self.fleet_rows = np.flatnonzero((np.asarray(pattern[:, self.fleet].sum(axis=1)).ravel() == size) & (size > 0))
        self.at = {key: j for j, key in enumerate(model.keys)}

    def _without_month(self, j: int) -> tuple[str, tuple[Any, ...]]:
        family, index = self.model.keys[j]
        if family == "use":
            return family, index
        at = {"open_site": 1, "hosted": 1, "backlog": 1, "work": 1, "nodes": 1, "rise": 1, "self_host": 0, "held": 1}.get(family, -2)
        at = at % len(index)
        return family, (*index[:at], *index[at + 1 :])

    def first_prices(self) -> Floats:
        """Return prices that no order beats: each node's cost over its months of service, the least of all orders that cover the month."""
        s = self.model.variables.sets
        price = np.zeros(len(self.model.keys))
        for p in s.pools:
            if p.kind not in ("own", "reserved"):
                continue
            lead, lasts = (p.lead_months, p.life_months) if p.kind == "own" else (0, p.term_months)
            for b in s.order_months(p):
                window = [m for m in range(b + lead, min(b + lead + lasts, self.count))]
                if not window:
                    continue
                each = max(0.0, float(self.model.cost[self.at["buy", (p.id, b)]])) / len(window)
                for m in window:
                    j = self.at["held", (p.id, m)]
                    price[j] = each if price[j] == 0.0 else min(price[j], each)
        return price

    def solve_month(self, m: int, price: Floats, gap_abs: float, seconds: float, fixed: Floats | None = None) -> Run:
        """Solve one month whole at given prices (or with the fleet of `fixed`), started from what is known to fit."""
        month = self.months[m]
        cost = np.where(self.held_month >= 0, self.model.cost + price, np.where(self.is_use, 0.0, self.model.cost))
        lp = self.a.subproblem(month.columns, month.rows, cost, whole=True)
        if fixed is not None:
            low, high = np.array(lp.col_lower_), np.array(lp.col_upper_)
            tied = np.flatnonzero((self.a.month[month.columns] < 0))
            low[tied] = high[tied] = fixed[month.columns[tied]]
            lp.col_lower_, lp.col_upper_ = low, high
        return run_highs(lp, gap_frac=0.0, time_limit_s=seconds, start=month.start, mip_abs_gap=gap_abs)

    def fill(self, m: int, values: Floats, out: Floats) -> None:
        """Write one month's own columns into a whole plan."""
        month = self.months[m]
        own = self.a.month[month.columns] == m
        whole = self.model.is_integer[month.columns]
        x = np.where(whole, np.round(values), values)
        out[month.columns[own]] = x[own]

    def shift_start(self, m: int) -> None:
        """Start month m − 1 from the answer of month m."""
        if m > 0 and self.months[m].start is not None:
            before, month = self.months[m - 1], self.months[m]
            start = np.zeros(len(before.columns))
            assert month.start is not None
            for key, i in before.place.items():
                j = month.place.get(key)
                if j is not None:
                    start[i] = month.start[j]
            before.start = start


def run_months(model: Model, *, gap_frac: float, time_limit_s: float | None) -> Run:
    """Return the best plan and bound found by prices, columns and exact dispatch, in at most `MAX_ROUNDS` rounds."""
    began = time.perf_counter()
    limit = 600.0 if time_limit_s is None else time_limit_s

    def left() -> float:
        return max(0.05, limit - (time.perf_counter() - began))

    p = Months(model)
    price = p.first_prices()
    columns: list[Column] = []
    bound, best, clock = -INF, None, False
    name = "highs"
    for _ in range(MAX_ROUNDS):
        total, whole = 0.0, True
        for m in range(p.count - 1, -1, -1):
            scale = abs(total) / max(1, p.count - 1 - m) if total else 1e4
            run = p.solve_month(m, price, gap_frac / 8 * scale, left() / 2)
            name = run.solver_name
            if run.status == "infeasible":
                return run
            whole = whole and run.status == "optimal"
            total += run.bound
            if run.status in ("optimal", "feasible"):
                p.months[m].start = run.values
                columns.append(_column(p, m, run.values))
            p.shift_start(m)
            if time.perf_counter() - began > limit:
                clock, whole = True, False
                break
        if whole:
            bound = max(bound, total + _fleet_at(p, price))
        fleet, duals = _master(p, columns, left)
        if fleet is not None:
            plan = _dispatched(p, fleet, price, columns, gap_frac, left)
            if plan is not None and (best is None or float(plan @ model.cost) < float(best @ model.cost)):
                best = plan
        if best is not None and float(best @ model.cost) - bound <= gap_frac * abs(float(best @ model.cost)):
            break
        if time.perf_counter() - began > limit:
            clock = True
            break
        if duals is None:
            break
        price = 0.5 * price + 0.5 * duals if bound > -INF else duals
    seconds = time.perf_counter() - began
    if best is None:
        return Run("no_incumbent", np.zeros(0), 0.0, bound, seconds, clock, name)
    cost = float(best @ model.cost)
    return Run("optimal" if cost - bound <= gap_frac * abs(cost) else "feasible", best, cost, bound, seconds, clock, name)


def _column(p: Months, m: int, values: Floats) -> Column:
    month = p.months[m]
    is_held = p.held_month[month.columns] >= 0
    cost = np.where(is_held | p.is_use[month.columns], 0.0, p.model.cost[month.columns])
    return Column(m, np.round(values[is_held]), float(cost @ values), values)


def _fleet_at(p: Months, price: Floats) -> float:
    """Return the least cost of the fleet alone when it is paid the prices for the nodes it holds (0 where no order gains by them)."""
    cost = np.where(p.held_month >= 0, -price, p.model.cost)
    run = run_highs(p.a.subproblem(p.fleet, p.fleet_rows, cost, whole=False), gap_frac=0.0, time_limit_s=None)
    return run.objective if run.status == "optimal" else -INF


def _master(p: Months, columns: list[Column], left: Callable[[], float]) -> tuple[Floats | None, Floats | None]:
    """Return the fleet of the cheapest choice of one column a month, and the prices of the relaxation's duals."""
    base = p.a.subproblem(p.fleet, p.fleet_rows, p.model.cost, whole=True)
    n, k = len(p.fleet), len(columns)
    position = {j: i for i, j in enumerate(p.fleet)}
    starts, index, value = list(base.a_matrix_.start_), list(base.a_matrix_.index_), list(base.a_matrix_.value_)
    low, high = list(base.row_lower_), list(base.row_upper_)
    linked: list[int] = []
    for m in range(p.count):
        mine = [i for i, c in enumerate(columns) if c.month == m]
        index += [n + i for i in mine]
        value += [1.0] * len(mine)
        starts.append(len(index))
        low.append(1.0)
        high.append(1.0)
        for h, j in enumerate(p.months[m].held):
            index.append(position[j])
            value.append(1.0)
            for i in mine:
                if columns[i].nodes[h]:
                    index.append(n + i)
                    value.append(-float(columns[i].nodes[h]))
            starts.append(len(index))
            low.append(0.0)
            high.append(INF)
            linked.append(j)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n + k, len(low)
    lp.col_cost_ = np.concatenate([base.col_cost_, [c.usd for c in columns]])
    lp.col_lower_ = np.concatenate([base.col_lower_, np.zeros(k)])
    lp.col_upper_ = np.concatenate([base.col_upper_, np.ones(k)])
    lp.row_lower_, lp.row_upper_ = np.array(low), np.array(high)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = n + k, len(low)
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = np.array(starts), np.array(index), np.array(value)
    lp.integrality_ = [highspy.HighsVarType.kContinuous] * (n + k)
    relaxed = run_highs(lp, gap_frac=0.0, time_limit_s=None)
    if relaxed.status != "optimal":
        return None, None
    price = np.zeros(len(p.model.keys))
    first = len(base.row_lower_)
    at = first
    link = iter(linked)
    for m in range(p.count):
        at += 1
        for _ in p.months[m].held:
            price[next(link)] = max(0.0, float(relaxed.duals[at]))
            at += 1
    lp.integrality_ = [*base.integrality_, *[highspy.HighsVarType.kInteger] * k]
    run = run_highs(lp, gap_frac=1e-5, time_limit_s=left())
    if run.status not in ("optimal", "feasible"):
        return None, price
    fleet = np.zeros(len(p.model.keys))
    fleet[p.fleet] = np.round(run.values[:n])
    chosen = np.round(run.values[n:])
    votes: dict[int, float] = {}
    for i, c in enumerate(columns):
        if chosen[i]:
            month = p.months[c.month]
            for j, x in zip(month.columns, c.values, strict=True):
                if p.is_use[j] and x > 0.5:
                    votes[int(j)] = votes.get(int(j), 0.0) + 1.0
    by_workload: dict[Any, tuple[float, int]] = {}
    for j, count in sorted(votes.items()):
        w = p.model.keys[j][1][1]
        if w not in by_workload or count > by_workload[w][0]:
            by_workload[w] = (count, j)
    for _, j in by_workload.values():
        fleet[j] = 1.0
    for i, c in enumerate(columns):
        if chosen[i]:
            p.months[c.month].start = c.values
    return fleet, price


def _dispatched(
    p: Months, fleet: Floats, price: Floats, columns: list[Column], gap_frac: float, left: Callable[[], float]
) -> Floats | None:
    """Return the plan with a fleet and every month exact on it; the answers are columns too. None where a month has no plan."""
    out = fleet.copy()
    zero = np.zeros(len(price))
    for m in range(p.count):
        run = p.solve_month(m, zero, gap_frac / 10 * 1e4, left(), fixed=fleet)
        if run.status not in ("optimal", "feasible"):
            return None
        p.fill(m, run.values, out)
        columns.append(_column(p, m, run.values))
    rows = p.a.matrix @ out
    slack = 1e-6 * np.maximum(1.0, np.abs(rows))
    return out if np.all(rows >= p.a.row_lower - slack) and np.all(rows <= p.a.row_upper + slack) else None
