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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from planner.milp.engine import Floats, Model, Run, run_highs
from planner.milp.stages import Arrays

Ints = npt.NDArray[np.int64]
MAX_ROUNDS = 12
HURRY_FRAC, MONTH_FRAC = 0.5, 0.15
"""From this part of the time on months are only sketched, and no month alone may take more than that part of it."""
FIRST_BOX_FRAC = 0.1
MAX_PATTERNS = 6
STARTED: dict[str, Any] = {"mip_heuristic_effort": 0.0, "mip_allow_restart": False}
"""With a good answer to start from, looking for others costs more than the proof (measured: 0.2 s a month instead of 0.4 to 1.4)."""
SKETCH_STRIDE = 4
SKETCH: dict[str, Any] = {"mip_max_nodes": 20, "mip_heuristic_effort": 0.02}
"""A count, not a clock, so that a sketch is the same on every machine."""
CHAINS = 2
"""Chains of months that are solved side by side; the answers do not depend on it being one core or two."""
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
            place = {self._without_month(int(j)): i for i, j in enumerate(columns)}
            self.months.append(Month(columns, rows, np.flatnonzero(self.held_month == m), place))
            inside.append(rows)
        self.inside = np.unique(np.concatenate(inside))
        self.fleet = np.flatnonzero((self.a.month < 0) & ~self.is_use)
        self.fleet_rows = np.flatnonzero((np.asarray(pattern[:, self.fleet].sum(axis=1)).ravel() == size) & (size > 0))
        self.at = {key: j for j, key in enumerate(model.keys)}
        self.options: dict[str, Any] = {}
        self.is_tied = any(family == "buy" for family, _ in model.keys)
        """Whether anything ties the months at all: without orders each is on its own."""

    def _without_month(self, j: int) -> tuple[str, tuple[Any, ...]]:
        family, index = self.model.keys[j]
        if family == "use":
            return family, index
        at = {"open_site": 1, "hosted": 1, "backlog": 1, "work": 1, "nodes": 1, "rise": 1, "self_host": 0, "held": 1}.get(family, -2)
        at = at % len(index)
        return family, (*index[:at], *index[at + 1 :])

    def first_prices(self) -> Floats:
        """Return prices that no order beats: running cost, and the price of an order over its months of service (the least of all orders
        that cover the month)."""
        s = self.model.variables.sets
        price = np.zeros(len(self.model.keys))
        for p in s.pools:
            if p.kind not in ("own", "reserved"):
                continue
            lead, lasts = (p.lead_months, p.life_months) if p.kind == "own" else (0, p.term_months)
            for b in s.order_months(p):
                window = list(range(b + lead, min(b + lead + lasts, self.count)))
                if not window:
                    continue
                each = max(0.0, float(self.model.cost[self.at["buy", (p.id, b)]])) / len(window)
                for m in window:
                    j = self.at["held", (p.id, m)]
                    price[j] = each if price[j] == 0.0 else min(price[j], each)
        return np.where(self.held_month >= 0, price + self.model.cost, 0.0)

    def least_usd(self, price: Floats) -> float:
        """Return what the last month costs at least, its program relaxed: the scale of what a month may be off by."""
        month = self.months[-1]
        cost = np.where(self.held_month >= 0, price, np.where(self.is_use, 0.0, self.model.cost))
        run = run_highs(self.a.subproblem(month.columns, month.rows, cost, whole=False), gap_frac=0.0, time_limit_s=None)
        return abs(run.objective) if run.status == "optimal" else 1e4

    def solve_month(self, m: int, price: Floats, gap_abs: float, seconds: float, fixed: Floats | None = None) -> Run:
        """Solve one month whole at given prices (or with the fleet of `fixed`), started from what is known to fit."""
        month = self.months[m]
        cost = np.where(self.held_month >= 0, price, np.where(self.is_use, 0.0, self.model.cost))
        lp = self.a.subproblem(month.columns, month.rows, cost, whole=True)
        if fixed is not None:
            low, high = np.array(lp.col_lower_), np.array(lp.col_upper_)
            tied = np.flatnonzero((self.a.month[month.columns] < 0) & np.isfinite(fixed[month.columns]))
            low[tied] = high[tied] = fixed[month.columns[tied]]
            lp.col_lower_, lp.col_upper_ = low, high
        quick = {**(STARTED if month.start is not None else {}), **self.options}
        return run_highs(lp, gap_frac=0.0, time_limit_s=seconds, start=month.start, mip_abs_gap=gap_abs, **quick)

    def sketch_month(self, m: int, price: Floats, gap_abs: float, seconds: float) -> Run:
        """Solve every `SKETCH_STRIDE`th month; in between keep the later month's whole numbers and fit the rest.

        The relaxation is the bound there.
        """
        month = self.months[m]
        if month.start is None or (self.count - 1 - m) % SKETCH_STRIDE == 0:
            return self.solve_month(m, price, gap_abs, seconds)
        cost = np.where(self.held_month >= 0, price, np.where(self.is_use, 0.0, self.model.cost))
        lp = self.a.subproblem(month.columns, month.rows, cost, whole=False)
        least = run_highs(lp, gap_frac=0.0, time_limit_s=None)
        whole = self.model.is_integer[month.columns]
        kept = np.round(month.start)
        lp.col_lower_ = np.where(whole, np.maximum(kept, lp.col_lower_), lp.col_lower_)
        lp.col_upper_ = np.where(whole, np.minimum(kept, lp.col_upper_), lp.col_upper_)
        fits = bool(np.all(np.array(lp.col_lower_) <= np.array(lp.col_upper_)))
        run = run_highs(lp, gap_frac=0.0, time_limit_s=None) if fits else least
        if not fits or run.status != "optimal" or least.status != "optimal":
            return self.solve_month(m, price, gap_abs, seconds)
        return replace(run, status="feasible", bound=least.objective, stopped_by_clock=False)

    def fill(self, m: int, values: Floats, out: Floats) -> None:
        """Write one month's own columns into a whole plan."""
        month = self.months[m]
        own = self.a.month[month.columns] == m
        whole = self.model.is_integer[month.columns]
        x = np.where(whole, np.round(values), values)
        out[month.columns[own]] = x[own]

    def each(self, solve: Callable[[int], Run], months: Sequence[int] | None = None) -> dict[int, Run]:
        """Solve months (all of them), in chains from late to early.

        Each is started from its neighbour's answer where it has none of its own.
        """
        chosen = sorted(range(self.count) if months is None else months)
        runs: dict[int, Run] = {}
        size = max(1, -(-len(chosen) // CHAINS))

        def chain(part: list[int]) -> None:
            for m in reversed(part):
                run = solve(m)
                runs[m] = run
                if run.status in ("optimal", "feasible"):
                    self.months[m].start = run.values
                self.shift_start(m)

        with ThreadPoolExecutor(CHAINS) as pool:
            for done in [pool.submit(chain, chosen[i : i + size]) for i in range(0, len(chosen), size)]:
                done.result()
        return dict(sorted(runs.items()))

    def shift_start(self, m: int) -> None:
        """Start month m − 1 from the answer of month m."""
        if m > 0 and self.months[m].start is not None:
            before, month = self.months[m - 1], self.months[m]
            if before.start is not None:
                return
            start = np.zeros(len(before.columns))
            assert month.start is not None
            for key, i in before.place.items():
                j = month.place.get(key)
                if j is not None:
                    start[i] = month.start[j]
            before.start = start


def run_months(model: Model, *, gap_frac: float, time_limit_s: float | None, cutoff_usd: float = INF, is_sketch: bool = False) -> Run:
    """Return the best plan and bound found by prices, columns and exact dispatch, in at most `MAX_ROUNDS` rounds.

    A sketch is one round with a bounded number of nodes a month: a plan and a bound of the same kind, only further apart.
    Stops as soon as the bound passes `cutoff_usd`, the cost of a plan known already: nothing cheaper is here.
    Prices move within a box around the best ones so far, narrowed after each round that does not raise the bound.
    """
    began = time.perf_counter()
    limit = 600.0 if time_limit_s is None else time_limit_s

    def left() -> float:
        return max(0.05, limit - (time.perf_counter() - began))

    p = Months(model)
    p.options = SKETCH if is_sketch else {}
    price = center = p.first_prices()
    columns: list[Column] = []
    bound, best, clock, box = -INF, None, False, FIRST_BOX_FRAC
    name, tolerance_usd = "highs", gap_frac / 2 * p.least_usd(price)
    for _ in range(1 if is_sketch or not p.is_tied else MAX_ROUNDS):
        price_now, tolerance_now = price, tolerance_usd

        def one(m: int) -> Run:
            late = time.perf_counter() - began > HURRY_FRAC * limit
            run = (p.sketch_month if is_sketch or late else p.solve_month)(m, price_now, tolerance_now, MONTH_FRAC * limit)  # noqa: B023
            return replace(run, stopped_by_clock=True) if late else run

        runs = p.each(one)
        if any(run.status == "infeasible" for run in runs.values()):
            return next(run for run in runs.values() if run.status == "infeasible")
        name = runs[0].solver_name
        for m, run in runs.items():
            if run.status in ("optimal", "feasible"):
                columns.append(_column(p, m, run.values))
        total = sum(run.bound for run in runs.values()) + _fleet_at(p, price)
        tolerance_usd = gap_frac / 4 * abs(total) / p.count
        if total > bound:
            bound, center, box = total, price, box * 1.5
        else:
            box /= 3.0
        clock = clock or any(run.stopped_by_clock for run in runs.values())
        if bound > cutoff_usd:
            break
        if not p.is_tied:
            best = _composed(p, np.zeros(len(model.keys)), runs)
            break
        fleet, duals = _master(p, columns, center, box, left)
        best = _cheaper(p, best, fleet, columns, tolerance_usd / 4, left)
        if is_sketch or _is_near(model, best, bound, gap_frac):
            break
        _crossed(p, columns, tolerance_usd, left)
        other, duals = _master(p, columns, center, box, left)
        if other is not None and (fleet is None or not np.array_equal(other, fleet)):
            best = _cheaper(p, best, other, columns, tolerance_usd / 4, left)
        if _is_near(model, best, bound, gap_frac):
            break
        if time.perf_counter() - began > limit or duals is None:
            clock = clock or duals is not None
            break
        price = duals
    seconds = time.perf_counter() - began
    if best is None:
        return Run("no_incumbent", np.zeros(0), 0.0, bound, seconds, clock, name)
    cost = float(best @ model.cost)
    return Run("optimal" if cost - bound <= gap_frac * abs(cost) else "feasible", best, cost, bound, seconds, clock, name)


def _is_near(model: Model, best: Floats | None, bound: float, gap_frac: float) -> bool:
    """Return whether a plan is known and lies within the gap of the bound."""
    return best is not None and float(best @ model.cost) - bound <= gap_frac * abs(float(best @ model.cost))


def _cheaper(
    p: Months, best: Floats | None, fleet: Floats | None, columns: list[Column], gap_abs: float, left: Callable[[], float]
) -> Floats | None:
    """Return the plan of a fleet where it is cheaper than the best one so far, else that one."""
    plan = None if fleet is None else _dispatched(p, fleet, columns, gap_abs, left)
    if plan is None or (best is not None and float(best @ p.model.cost) <= float(plan @ p.model.cost)):
        return best
    return plan


def relaxed_bound(model: Model) -> float:
    """Return a bound of the whole problem from its months' relaxations at the first prices: weak, and quick."""
    p = Months(model)
    price = p.first_prices()
    total = _fleet_at(p, price)
    for month in p.months:
        cost = np.where(p.held_month >= 0, price, np.where(p.is_use, 0.0, model.cost))
        run = run_highs(p.a.subproblem(month.columns, month.rows, cost, whole=False), gap_frac=0.0, time_limit_s=None)
        if run.status != "optimal":
            return -INF
        total += run.objective
    return total


def _column(p: Months, m: int, values: Floats) -> Column:
    month = p.months[m]
    is_held = p.held_month[month.columns] >= 0
    cost = np.where(is_held | p.is_use[month.columns], 0.0, p.model.cost[month.columns])
    return Column(m, np.round(values[is_held]), float(cost @ values), values)


def _crossed(p: Months, columns: list[Column], gap_abs: float, left: Callable[[], float]) -> None:
    """Price every month on the fleets that other months ask for most, so that the master may choose among paths through them."""
    counts: dict[tuple[float, ...], int] = {}
    known = {(c.month, tuple(c.nodes)) for c in columns}
    for c in columns:
        counts[tuple(c.nodes)] = counts.get(tuple(c.nodes), 0) + 1
    for nodes in sorted(counts, key=lambda n: (-counts[n], n))[:MAX_PATTERNS]:
        open_months = [m for m in range(p.count) if (m, nodes) not in known and np.all(p.model.upper[p.months[m].held] >= np.array(nodes))]
        if not open_months:
            continue
        fixed = np.full(len(p.model.keys), np.nan)
        for m in open_months:
            fixed[p.months[m].held] = nodes
        starts = [month.start for month in p.months]
        zero = np.zeros(len(p.model.keys))
        runs = p.each(lambda m: p.solve_month(m, zero, gap_abs, left(), fixed=fixed), open_months)  # noqa: B023 - used at once
        for month, start in zip(p.months, starts, strict=True):
            month.start = start
        columns.extend(_column(p, m, run.values) for m, run in runs.items() if run.status in ("optimal", "feasible"))


def _fleet_at(p: Months, price: Floats) -> float:
    """Return the least cost of the fleet alone when it is paid the prices for the nodes it holds (0 where no order gains by them)."""
    if not p.is_tied:
        return 0.0
    cost = np.where(p.held_month >= 0, p.model.cost - price, p.model.cost)
    run = run_highs(p.a.subproblem(p.fleet, p.fleet_rows, cost, whole=False), gap_frac=0.0, time_limit_s=None)
    return run.objective if run.status == "optimal" else -INF


def _master(p: Months, columns: list[Column], center: Floats, box: float, left: Callable[[], float]) -> tuple[Floats | None, Floats | None]:
    """Return the fleet of the cheapest choice of one column a month, and the prices of the relaxation's duals, kept within the box.

    The box is two columns for each node held: one more at the price's upper end, one less at its lower end.
    """
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
    relaxed = run_highs(_boxed(lp, linked, first_row := len(base.row_lower_), p, center, box), gap_frac=0.0, time_limit_s=None)
    if relaxed.status != "optimal":
        return None, None
    price = np.zeros(len(p.model.keys))
    at = first_row
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
    return fleet, price


def _boxed(lp: highspy.HighsLp, linked: list[int], first_row: int, p: Months, center: Floats, box: float) -> highspy.HighsLp:
    """Return the master program with its prices held within the box."""
    out = highspy.HighsLp()
    n, k = lp.num_col_, len(linked)
    starts, index, value = np.array(lp.a_matrix_.start_), np.array(lp.a_matrix_.index_), np.array(lp.a_matrix_.value_)
    rows: list[int] = []
    at = first_row
    for m in range(p.count):
        at += 1
        for _ in p.months[m].held:
            rows.append(at)
            at += 1
    extra_at = {row: i for i, row in enumerate(rows)}
    new_starts, new_index, new_value = [0], [], []
    for row in range(lp.num_row_):
        a, b = starts[row], starts[row + 1]
        new_index.append(index[a:b])
        new_value.append(value[a:b])
        if row in extra_at:
            i = extra_at[row]
            new_index.append(np.array([n + i, n + k + i], dtype=index.dtype))
            new_value.append(np.array([1.0, -1.0]))
        new_starts.append(new_starts[-1] + (b - a) + (2 if row in extra_at else 0))
    prices = center[np.array(linked, dtype=np.int64)]
    out.num_col_, out.num_row_ = n + 2 * k, lp.num_row_
    out.col_cost_ = np.concatenate([lp.col_cost_, prices * (1 + box) + 1.0, -np.maximum(prices * (1 - box) - 1.0, 0.0)])
    out.col_lower_ = np.concatenate([lp.col_lower_, np.zeros(2 * k)])
    out.col_upper_ = np.concatenate([lp.col_upper_, np.full(2 * k, 100.0)])
    out.row_lower_, out.row_upper_ = lp.row_lower_, lp.row_upper_
    out.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    out.a_matrix_.num_col_, out.a_matrix_.num_row_ = n + 2 * k, lp.num_row_
    out.a_matrix_.start_ = np.array(new_starts)
    out.a_matrix_.index_, out.a_matrix_.value_ = np.concatenate(new_index), np.concatenate(new_value)
    out.integrality_ = [highspy.HighsVarType.kContinuous] * (n + 2 * k)
    return out


def _dispatched(p: Months, fleet: Floats, columns: list[Column], gap_abs: float, left: Callable[[], float]) -> Floats | None:
    """Return the plan with a fleet and every month exact on it; the answers are columns too. None where a month has no plan."""
    zero = np.zeros(len(fleet))
    starts = [month.start for month in p.months]
    runs = p.each(lambda m: p.solve_month(m, zero, gap_abs, left(), fixed=fleet))
    for month, start in zip(p.months, starts, strict=True):
        month.start = start
    if all(run.status in ("optimal", "feasible") for run in runs.values()):
        columns.extend(_column(p, m, run.values) for m, run in runs.items())
    return _composed(p, fleet, runs)


def _composed(p: Months, fleet: Floats, runs: dict[int, Run]) -> Floats | None:
    """Return the plan of a fleet and the months' answers; None where a month has none or a row that ties months does not hold."""
    if any(run.status not in ("optimal", "feasible") for run in runs.values()):
        return None
    out = fleet.copy()
    for m, run in runs.items():
        p.fill(m, run.values, out)
    rows = p.a.matrix @ out
    slack = 1e-6 * np.maximum(1.0, np.abs(rows))
    return out if np.all(rows >= p.a.row_lower - slack) and np.all(rows <= p.a.row_upper + slack) else None
