"""What each pool costs and how much of it is used: priced from the solution's numbers alone, apart from the integer program.

The sums over pools, offers, sites and staff are held against the objective when a plan is made: a second pricing of every plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner import finance
from planner.schema.problem import CandidateData, PoolData, ProblemData, Solution
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK, SECONDS_PER_HOUR, WEEKS_PER_MONTH


@dataclass(frozen=True)
class PoolBill:
    """Undiscounted cash and discounted sum of one pool over the horizon, and its node-hours."""

    npv_usd: float
    total_usd: float
    capex_usd: float
    rent_usd: float
    paid_node_hours: float
    used_node_hours: float
    peak_frac: float
    nodes_max_count: int
    first_month: int | None


def held(pool: PoolData, solution: Solution, month: int, slices: int) -> int:
    """Return the nodes of a pool in service in a month (the most of its timeslices)."""
    return max((solution.nodes.get((pool.id, month, t), 0) for t in range(slices)), default=0)


def used_frac_by_workload(
    problem: ProblemData, solution: Solution, pool: PoolData, month: int, timeslice: int, of_peak: bool
) -> dict[str, float]:
    """Return node-equivalents that each workload keeps busy in a pool: share × rate / μ × GPUs of a replica / GPUs of a node."""
    used: dict[str, float] = {}
    rates = {w.id: (w.peak_req_per_s if of_peak else w.mean_req_per_s)[month][timeslice] for w in problem.workloads}
    for k in problem.candidates:
        if k.pool != pool.id:
            continue
        for name, per_s in k.req_per_s_by_workload.items():
            share = solution.share.get((name, k.id, month, timeslice), 0.0)
            if share:
                rate = rates[name] if not _is_batch(problem, name) else _batch_mean(problem, name, month)
                used[name] = used.get(name, 0.0) + share * rate / per_s * node_share(k, pool)
    return used


def node_share(k: CandidateData, pool: PoolData) -> float:
    """Return the nodes that one replica takes."""
    return k.nodes_per_replica_count if k.nodes_per_replica_count > 1 else k.gpus_count / pool.gpus_per_node_count


def _is_batch(problem: ProblemData, name: str) -> bool:
    return next(w.kind == "batch" for w in problem.workloads if w.id == name)


def _batch_mean(problem: ProblemData, name: str, month: int) -> float:
    """Return a batch workload's mean arrival rate of a month: its shares are work over that."""
    w = next(w for w in problem.workloads if w.id == name)
    return sum(h * r for h, r in zip(problem.hours_by_slice, w.mean_req_per_s[month], strict=True)) / HOURS_PER_MONTH


def rate_of(problem: ProblemData, name: str, month: int, timeslice: int) -> float:
    """Return the mean requests a second that a share of 1 stands for in a timeslice."""
    w = next(w for w in problem.workloads if w.id == name)
    return _batch_mean(problem, name, month) if w.kind == "batch" else w.mean_req_per_s[month][timeslice]


def rises_per_week(problem: ProblemData, counts: Mapping[int, int]) -> int:
    """Return how many nodes are started in a week: rises between consecutive hours, Sunday to Monday included."""
    hours = [counts.get(problem.slice_of_hour[h], 0) for h in range(HOURS_PER_WEEK)]
    return sum(max(0, hours[h] - hours[h - 1]) for h in range(HOURS_PER_WEEK))


def bill(problem: ProblemData, solution: Solution, pool: PoolData) -> PoolBill:
    """Return one pool's bill."""
    months, slices = problem.months_count, len(problem.hours_by_slice)
    r = problem.discount_frac_per_year

    def worth(after_months: int) -> float:
        return finance.discount_factor_frac(r, after_months)

    npv = total = capex = rent = paid = used = 0.0
    peak, most, first = 0.0, 0, None
    for m in range(months):
        bought = solution.buy.get((pool.id, m), 0)
        if pool.kind == "own" and bought:
            capex += bought * pool.capex_usd_by_month[m]
            npv += bought * (pool.capex_usd_by_month[m] * worth(m) - pool.residual_usd_by_month[m] * worth(months))
            total += bought * (pool.capex_usd_by_month[m] - pool.residual_usd_by_month[m])
        if pool.kind == "reserved" and bought:
            upfront, monthly = finance.commitment_usd(pool.usd_per_node_hour_by_month[m], pool.term_months, pool.upfront_frac)
            npv += bought * (upfront * worth(m) + sum(monthly * worth(x + 1) for x in range(m, m + pool.term_months)))
            total += bought * (upfront + monthly * pool.term_months)
            rent += bought * (upfront + monthly * pool.term_months)
        count = held(pool, solution, m, slices)
        most = max(most, count)
        if count and first is None:
            first = m
        month_usd = 0.0
        busy_hours = 0.0
        by_slice = {t: solution.nodes.get((pool.id, m, t), 0) for t in range(slices)}
        for t, hours in enumerate(problem.hours_by_slice):
            busy = sum(used_frac_by_workload(problem, solution, pool, m, t, of_peak=False).values())
            busy_hours += busy * hours
            if by_slice[t]:
                at_peak = sum(used_frac_by_workload(problem, solution, pool, m, t, of_peak=True).values())
                peak = max(
                    peak, at_peak / (by_slice[t] * pool.availability_frac if not pool.fallback_usd_per_node_hour_by_month else by_slice[t])
                )
        used += busy_hours
        if pool.kind in ("own", "existing"):
            kwh = finance.energy_kwh(pool.idle_w, HOURS_PER_MONTH, pool.pue, count=count)
            kwh += finance.energy_kwh(pool.full_w - pool.idle_w, busy_hours, pool.pue)
            month_usd += count * (pool.support_usd_per_node_month + pool.hosting_usd_per_node_month + pool.ops_usd_per_node_month)
            month_usd += finance.energy_usd(kwh, pool.usd_per_kwh, pool.carbon_g_per_kwh, problem.carbon_usd_per_t)
            paid += count * HOURS_PER_MONTH
        elif pool.kind == "reserved":
            paid += count * HOURS_PER_MONTH
        else:
            price = pool.usd_per_node_hour_by_month[m]
            node_hours = sum(by_slice[t] * h for t, h in enumerate(problem.hours_by_slice))
            paid += node_hours
            month_rent = node_hours * price
            if pool.kind == "spot":
                fallback = pool.fallback_usd_per_node_hour_by_month
                missing = (1.0 - pool.availability_frac) * fallback[m] if fallback else 0.0
                month_rent = node_hours * (pool.availability_frac * price + missing)
            month_rent += rises_per_week(problem, by_slice) * WEEKS_PER_MONTH * pool.cold_start_hours * price
            month_usd += month_rent
            rent += month_rent
        npv += month_usd * worth(m + 1)
        total += month_usd
    return PoolBill(npv, total, capex, rent, paid, used, peak, most, first)


def call_bill(problem: ProblemData, solution: Solution, offer: str, workload: str) -> tuple[float, float, float]:
    """Return (discounted USD, undiscounted USD, requests) of one workload's calls to an offer over the horizon."""
    api = next(a for a in problem.apis if a.id == offer)
    npv = total = requests = 0.0
    for m in range(problem.months_count):
        month_requests = sum(
            solution.call.get((workload, offer, m, t), 0.0) * rate_of(problem, workload, m, t) * SECONDS_PER_HOUR * hours
            for t, hours in enumerate(problem.hours_by_slice)
        )
        usd = month_requests * api.usd_per_request_by_workload.get(workload, 0.0) * api.usd_factor_by_month[m]
        requests += month_requests
        total += usd
        npv += usd * finance.discount_factor_frac(problem.discount_frac_per_year, m + 1)
    return npv, total, requests


def fixed_npv_usd(problem: ProblemData, solution: Solution) -> float:
    """Return the discounted sum of what belongs to no pool: sites' fixed costs and staff."""
    npv = 0.0
    slices = len(problem.hours_by_slice)
    for m in range(problem.months_count):
        holding = [p for p in problem.pools if held(p, solution, m, slices)]
        usd = problem.staff_usd_per_month if holding else 0.0
        for site in problem.sites:
            if any(p.site == site.id for p in holding):
                usd += site.usd_per_month_fixed
        npv += usd * finance.discount_factor_frac(problem.discount_frac_per_year, m + 1)
    return npv
