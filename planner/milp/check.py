"""Is a problem fit to be solved? Shapes that the formulation would get wrong are refused with their cure."""

from __future__ import annotations

import itertools

from planner.errors import Fault, InputError
from planner.milp.problem import Sets
from planner.schema.problem import PoolData, ProblemData
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK


def check_problem(d: ProblemData) -> None:
    """Raise `InputError` naming every fault of shape in the problem, all at once."""
    faults = [Fault("", None, place, what, cure) for place, what, cure in _faults(d)]
    if faults:
        raise InputError(faults)


def _faults(d: ProblemData) -> list[tuple[str, str, str]]:
    out: list[tuple[str, str, str]] = []

    def bad(place: str, what: str, cure: str) -> None:
        out.append((place, what, cure))

    months, slices = d.months_count, len(d.hours_by_slice)
    if months < 1:
        bad("plan.horizon_months", f"{months} months", "plan for one month or more")
    if abs(sum(d.hours_by_slice) - HOURS_PER_MONTH) > 1e-6 or any(h <= 0 for h in d.hours_by_slice):
        bad("hours_by_slice", f"they sum to {sum(d.hours_by_slice):g}", "hours of the timeslices are above 0 and sum to 730")
    if len(d.slice_of_hour) != HOURS_PER_WEEK or any(not 0 <= t < slices for t in d.slice_of_hour):
        bad("slice_of_hour", "not 168 timeslices of the plan", "name the timeslice of each hour of the week")
    else:
        for t, h in enumerate(d.hours_by_slice):
            if abs(d.slice_of_hour.count(t) / HOURS_PER_WEEK * HOURS_PER_MONTH - h) > 1e-6:
                bad(f"hours_by_slice.{t}", "differs from its hours of the week", "a month's hours are the week's times 730/168")
    for what, ids in (
        ("workload", [w.id for w in d.workloads]),
        ("pool", [p.id for p in d.pools]),
        ("candidate", [k.id for k in d.candidates]),
        ("api", [a.id for a in d.apis]),
        ("site", [x.id for x in d.sites]),
    ):
        for i in sorted({i for i in ids if ids.count(i) > 1}):
            bad(f"{what}.{i}", "given twice", "give each its own id")
    for w in d.workloads:
        for name, rows in (("mean_req_per_s", w.mean_req_per_s), ("peak_req_per_s", w.peak_req_per_s)):
            if len(rows) != months or any(len(r) != slices for r in rows):
                bad(f"workload.{w.id}.{name}", "not a number for every month and timeslice", f"give {months} rows of {slices}")
            elif any(x < 0 for r in rows for x in r):
                bad(f"workload.{w.id}.{name}", "a negative rate", "rates are 0 or more")
        if w.kind == "batch" and not 1 <= (24.0 if w.deadline_hours is None else w.deadline_hours) <= HOURS_PER_WEEK:
            bad(f"workload.{w.id}.deadline_hours", f"{w.deadline_hours} hours", "give a deadline between 1 and 168 hours")
    sites = {x.id for x in d.sites}
    for p in d.pools:
        out += _pool_faults(d, p)
        if p.site is not None and p.site not in sites:
            bad(f"pool.{p.id}.site", f"no site '{p.site}'", "name a site of the plan")
    pools = {p.id: p for p in d.pools}
    for k in d.candidates:
        if k.pool not in pools:
            bad(f"candidate.{k.id}.pool", f"no pool '{k.pool}'", "name a pool of the plan")
        elif k.gpus_count < 1 or (
            k.nodes_per_replica_count > 1 and k.gpus_count != k.nodes_per_replica_count * pools[k.pool].gpus_per_node_count
        ):
            bad(
                f"candidate.{k.id}",
                f"{k.gpus_count} GPUs on {k.nodes_per_replica_count} nodes",
                "a replica over several nodes takes them whole",
            )
    for a in d.apis:
        if len(a.usd_factor_by_month) != months:
            bad(f"api.{a.id}.usd_factor_by_month", f"{len(a.usd_factor_by_month)} entries", f"give {months}")
    return out


def _pool_faults(d: ProblemData, p: PoolData) -> list[tuple[str, str, str]]:
    out = []
    months = d.months_count
    sizes = sorted({k.gpus_count for k in d.candidates if k.pool == p.id and k.nodes_per_replica_count == 1})
    chain = [*sizes, p.gpus_per_node_count]
    if any(b % a for a, b in itertools.pairwise(chain)):
        out.append(
            (
                f"pool.{p.id}",
                f"replica sizes {sizes} on nodes of {p.gpus_per_node_count} GPUs do not divide one another",
                "keep sizes that form a divisor chain of the node (1, 2, 4, 8) or whole nodes: others would need packing patterns",
            )
        )
    need = {
        "own": [("capex_usd_by_month", p.capex_usd_by_month)],
        "existing": [],
        "reserved": [("usd_per_node_hour_by_month", p.usd_per_node_hour_by_month)],
        "on_demand": [("usd_per_node_hour_by_month", p.usd_per_node_hour_by_month)],
        "spot": [("usd_per_node_hour_by_month", p.usd_per_node_hour_by_month)],
    }[p.kind]
    if p.residual_usd_by_month:
        need.append(("residual_usd_by_month", p.residual_usd_by_month))
    if p.fallback_usd_per_node_hour_by_month:
        need.append(("fallback_usd_per_node_hour_by_month", p.fallback_usd_per_node_hour_by_month))
    out += [(f"pool.{p.id}.{name}", f"{len(x)} entries", f"give one for each of {months} months") for name, x in need if len(x) != months]
    if p.kind == "own" and p.life_months < 1:
        out.append((f"pool.{p.id}.life_months", f"{p.life_months}", "a node serves at least one month"))
    if p.kind == "reserved" and p.term_months < 1:
        out.append((f"pool.{p.id}.term_months", f"{p.term_months}", "a term is at least one month"))
    if p.kind == "spot" and not 0 < p.availability_frac <= 1:
        out.append((f"pool.{p.id}.availability_frac", f"{p.availability_frac}", "give a part above 0, at most 1"))
    return out


def unservable(d: ProblemData) -> tuple[str, ...]:
    """Return a line for each workload with demand that no candidate and no offer may serve."""
    s = Sets(d)
    return tuple(
        f"workload {w.id}: no feasible candidate on any pool and no API offer that it may use"
        for w in s.workloads
        if any(map(any, w.peak_req_per_s)) and not s.candidates_of[w.id] and not s.apis_of[w.id]
    )
