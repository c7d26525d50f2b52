"""Tiny problems solved by enumeration give the solver's cost.

The oracle shares no code with `planner.milp`: it walks through every fleet of the horizon, for each cell through every number of rented
nodes, and fills one workload by price (a fractional knapsack, exact for one workload).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.milp import prune, solve
from planner.milp.engine import build, run_highs, to_lp
from planner.milp.stages import run_stages
from planner.schema.problem import ApiData, CandidateData, NoSolution, PoolData, ProblemData, SiteData, Solution, WorkloadData

WEEK = tuple(0 if i % 24 < 12 else 1 for i in range(168))
HOURS = (365.0, 365.0)


@st.composite
def problems(draw: st.DrawFn) -> ProblemData:
    months = draw(st.integers(1, 2))
    base = draw(st.floats(0.3, 2.2))
    growth = draw(st.sampled_from([0.0, 0.1, 0.6]))
    shape = (draw(st.sampled_from([0.2, 0.7, 1.0])), 1.0)
    mean = tuple(tuple(base * (1 + growth) ** m * x for x in shape) for m in range(months))
    peak = tuple(tuple(1.25 * x for x in row) for row in mean)
    kinds = draw(st.lists(st.sampled_from(["own", "reserved", "on_demand", "spot", "existing"]), min_size=1, max_size=3, unique=True))
    api = draw(st.booleans())
    trend = draw(st.sampled_from([1.0, 0.8]))
    pools, candidates = [], []
    for kind in kinds:
        gpus = draw(st.sampled_from([1, 2]))
        price = draw(st.floats(0.5, 4.0))
        p = PoolData(kind, kind, "n", "g", gpus)  # type: ignore[arg-type]
        if kind in ("own", "existing"):
            p = replace(
                p,
                site="s",
                support_usd_per_node_month=draw(st.floats(0, 200)),
                idle_w=300.0,
                full_w=900.0,
                nameplate_w=1000.0,
                pue=1.4,
                usd_per_kwh=draw(st.sampled_from([0.0, 0.3])),
                carbon_g_per_kwh=200.0,
            )
        if kind == "own":
            capex = draw(st.floats(200, 3000))
            p = replace(
                p,
                capex_usd_by_month=tuple(capex * trend**m for m in range(months)),
                residual_usd_by_month=tuple(0.5 * capex * trend**m for m in range(months)),
                life_months=draw(st.sampled_from([1, 60])),
                lead_months=draw(st.sampled_from([0, 1])),
            )
        elif kind == "existing":
            p = replace(p, existing_count=draw(st.integers(1, 2)), retires_month=draw(st.sampled_from([None, 1])))
        else:
            p = replace(p, usd_per_node_hour_by_month=tuple(price * trend**m for m in range(months)))
        if kind == "reserved":
            p = replace(p, term_months=draw(st.integers(1, 3)), upfront_frac=draw(st.sampled_from([0.0, 0.4, 1.0])))
        if kind == "spot":
            fallback = (price * 2,) * months if draw(st.booleans()) else ()
            p = replace(p, availability_frac=0.8, fallback_usd_per_node_hour_by_month=fallback)
        pools.append(p)
        candidates.append(CandidateData(f"k.{kind}", "v", kind, 1, 1, {"w": draw(st.floats(0.6, 2.5))}))
    usd = draw(st.floats(1e-4, 2e-3))
    limit = draw(st.sampled_from([None, 40.0]))
    apis = (
        (ApiData("a", "acc", {"w": usd}, tuple(trend**m for m in range(months)), {"w": 1.0}, {"w": 1.0}, max_req_per_min=limit),)
        if api
        else ()
    )
    w = WorkloadData("w", "serving", mean, peak, is_interruptible=True, firm_floor_frac=draw(st.sampled_from([0.0, 0.5])))
    sites = (SiteData("s", draw(st.sampled_from([0.0, 150.0])), draw(st.sampled_from([None, 2000.0]))),)
    return ProblemData(
        months,
        0.08,
        HOURS,
        WEEK,
        (w,),
        ("v",),
        tuple(pools),
        tuple(candidates),
        apis,
        sites,
        staff_usd_per_month=draw(st.sampled_from([0.0, 200.0])),
        capex_budget_usd=draw(st.sampled_from([None, 2500.0])),
        opex_budget_usd_per_month=draw(st.sampled_from([None, 2500.0])),
        carbon_usd_per_t=draw(st.sampled_from([0.0, 80.0])),
    )


def enumerated_usd(d: ProblemData) -> float:
    """Cheapest discounted cost by walking through every plan; inf where there is none."""
    w, h = d.workloads[0], d.months_count
    mu = {k.pool: k.req_per_s_by_workload["w"] for k in d.candidates}
    pool = {p.id: p for p in d.pools}
    d_month = 1.08 ** (1 / 12)
    rented = [p for p in d.pools if p.kind in ("on_demand", "spot")]
    site = d.sites[0]

    def capacity(p: PoolData) -> float:
        derate = p.availability_frac if p.kind == "spot" and not p.fallback_usd_per_node_hour_by_month else 1.0
        return p.gpus_per_node_count * mu[p.id] * derate

    def most(p: PoolData) -> int:
        return math.ceil(max(max(r) for r in w.peak_req_per_s) / capacity(p) - 1e-9)

    def hour_usd(p: PoolData, m: int) -> float:
        if p.kind == "on_demand":
            return p.usd_per_node_hour_by_month[m]
        back = p.fallback_usd_per_node_hour_by_month[m] if p.fallback_usd_per_node_hour_by_month else 0.0
        return p.availability_frac * p.usd_per_node_hour_by_month[m] + (1 - p.availability_frac) * back

    @lru_cache(None)
    def cell(m: int, t: int, held: tuple[tuple[str, int], ...], host: bool) -> float:
        best = math.inf
        for counts in itertools.product(*[range(most(p) + 1 if host else 1) for p in rented]):
            usd = sum(n * hour_usd(p, m) * d.hours_by_slice[t] for p, n in zip(rented, counts, strict=True))
            firm, loose = [], []
            for pid, n in [*held, *((p.id, n) for p, n in zip(rented, counts, strict=True))]:
                p = pool[pid]
                kwh = (
                    (p.full_w - p.idle_w) / 1000 * p.pue / (p.gpus_per_node_count * mu[pid]) * w.mean_req_per_s[m][t] * d.hours_by_slice[t]
                )
                unit = kwh * (p.usd_per_kwh + p.carbon_g_per_kwh / 1e6 * d.carbon_usd_per_t) if p.kind in ("own", "existing") else 0.0
                room = n * capacity(p) / w.peak_req_per_s[m][t]
                (loose if p.kind == "spot" else firm).append((unit, room))
            for a in d.apis:
                unit = w.mean_req_per_s[m][t] * 3600 * d.hours_by_slice[t] * a.usd_per_request_by_workload["w"] * a.usd_factor_by_month[m]
                room = 1.0 if a.max_req_per_min is None else a.max_req_per_min / 60 / w.peak_req_per_s[m][t]
                firm.append((unit, room))
            spot_room = min(1 - w.firm_floor_frac, sum(r for _, r in loose))
            left = 1.0
            for unit, room in sorted([*firm, (0.0, spot_room)]):
                part = min(left, room)
                usd += part * unit
                left -= part
            if left < 1e-9:
                best = min(best, usd)
        return best

    def fleets() -> itertools.product[tuple[tuple[int, ...], ...]]:
        options = []
        for p in d.pools:
            if p.kind == "existing":
                gone = [0 if p.retires_month is not None and m >= p.retires_month else p.existing_count for m in range(h)]
                options.append(
                    [x for x in itertools.product(*[range(g + 1) for g in gone]) if all(b <= a for a, b in itertools.pairwise(x))]
                )
            elif p.kind in ("own", "reserved"):
                options.append(list(itertools.product(range(most(p) + 1), repeat=h)))
            else:
                options.append([(0,) * h])
        return itertools.product(*options)

    best = math.inf
    for orders in fleets():
        held: list[dict[str, int]] = [{} for _ in range(h)]
        start, cash = 0.0, [0.0] * h
        capex = 0.0
        tail = 0.0
        for p, x in zip(d.pools, orders, strict=True):
            for m, n in enumerate(x):
                if p.kind == "existing":
                    held[m][p.id] = n
                elif p.kind == "own":
                    capex += n * p.capex_usd_by_month[m]
                    start += n * (p.capex_usd_by_month[m] / d_month**m - p.residual_usd_by_month[m] / d_month**h)
                    for i in range(m + p.lead_months, min(h, m + p.lead_months + p.life_months)):
                        held[i][p.id] = held[i].get(p.id, 0) + n
                    if m + p.lead_months >= h and n:
                        start = math.inf
                elif p.kind == "reserved":
                    rate = p.usd_per_node_hour_by_month[m] * 730
                    cash[m] += n * rate * p.term_months * p.upfront_frac
                    start += n * rate * p.term_months * p.upfront_frac * (1 / d_month**m - 1 / d_month ** (m + 1))
                    for i in range(m, m + p.term_months):
                        if i < h:
                            held[i][p.id] = held[i].get(p.id, 0) + n
                            cash[i] += n * rate * (1 - p.upfront_frac)
                        else:
                            tail += n * rate * (1 - p.upfront_frac) / d_month ** (i + 1)
        if d.capex_budget_usd is not None and capex > d.capex_budget_usd + 1e-9:
            continue
        total = start + tail
        for m in range(h):
            owned = [(pool[i], n) for i, n in held[m].items() if pool[i].kind in ("own", "existing")]
            if site.power_limit_w is not None and sum(n * p.nameplate_w for p, n in owned) > site.power_limit_w:
                total = math.inf
                break
            usd = cash[m] + (site.usd_per_month_fixed if any(n for _, n in owned) else 0.0)
            for p, n in owned:
                idle = p.idle_w / 1000 * 730 * p.pue
                usd += n * (p.support_usd_per_node_month + idle * (p.usd_per_kwh + p.carbon_g_per_kwh / 1e6 * d.carbon_usd_per_t))
            key = tuple(sorted((i, n) for i, n in held[m].items()))
            with_nodes = usd + d.staff_usd_per_month + sum(cell(m, t, key, True) for t in range(2))
            any_held = any(n for n in held[m].values())
            month = with_nodes if any_held else min(with_nodes, usd + sum(cell(m, t, key, False) for t in range(2)))
            if d.opex_budget_usd_per_month is not None and month > d.opex_budget_usd_per_month + 1e-7:
                total = math.inf
                break
            total += month / d_month ** (m + 1)
        best = min(best, total)
    return best


def cost(d: ProblemData) -> float:
    x = solve(d, gap_frac=0.0)
    if isinstance(x, NoSolution):
        return math.inf
    assert sum(x.cost_npv_usd.values()) == pytest.approx(x.npv_cost_usd, rel=1e-9)
    assert x.npv_bound_usd == pytest.approx(x.npv_cost_usd, rel=1e-6, abs=1e-4)
    return x.npv_cost_usd


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_enumeration_agrees(d: ProblemData) -> None:
    assert cost(d) == pytest.approx(enumerated_usd(d), rel=1e-6, abs=1e-3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(problems(), st.floats(1.0, 2.0))
def test_dearer_prices_never_lower_the_cost(d: ProblemData, factor: float) -> None:
    dearer = replace(
        d,
        pools=tuple(
            replace(
                p,
                usd_per_node_hour_by_month=tuple(x * factor for x in p.usd_per_node_hour_by_month),
                capex_usd_by_month=tuple(x * factor for x in p.capex_usd_by_month),
            )
            for p in d.pools
        ),
    )
    before, after = cost(d), cost(dearer)
    assert math.isinf(after) or after >= before * (1 - 1e-7) - 1e-3


@settings(max_examples=25, deadline=None, derandomize=True)
@given(problems())
def test_a_new_option_never_raises_the_cost_and_order_never_moves_it(d: ProblemData) -> None:
    fewer = replace(d, pools=d.pools[1:], candidates=d.candidates[1:])
    assert cost(d) <= cost(fewer) * (1 + 1e-7) + 1e-3
    turned = replace(d, pools=d.pools[::-1], candidates=d.candidates[::-1], apis=d.apis[::-1])
    a, b = solve(d, gap_frac=0.0), solve(turned, gap_frac=0.0)
    assert isinstance(a, NoSolution) == isinstance(b, NoSolution)
    if isinstance(a, Solution) and isinstance(b, Solution):
        assert (a.buy, a.nodes, a.share, a.cost_npv_usd) == (b.buy, b.nodes, b.share, b.cost_npv_usd)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(problems())
def test_pruning_and_stages_keep_the_optimum_within_their_bounds(d: ProblemData) -> None:
    small = prune(d)[0]
    full = run_highs(to_lp(build(d)), gap_frac=0.0, time_limit_s=None)
    less = run_highs(to_lp(build(small)), gap_frac=0.0, time_limit_s=None)
    assert full.status == less.status
    if full.status == "optimal":
        assert less.objective == pytest.approx(full.objective, rel=1e-6, abs=1e-3)
        staged = run_stages(build(small), gap_frac=0.0, time_limit_s=10)
        assert staged.bound <= full.objective + 1e-3
        if staged.values.size:
            assert staged.objective >= full.objective * (1 - 1e-7) - 1e-3
