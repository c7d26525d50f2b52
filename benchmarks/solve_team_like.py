"""Solve instances like a team's: build and solve seconds, proven gap.

`python benchmarks/solve_team_like.py [--seconds S] [--gap F] [SEED…]`.

Three workloads (private chat, coding assistant that may call an API, nightly batch) on H100, H200 and L40S nodes under every deal.
Prices and speeds are of the size that markets show and drawn around it by the seed; they are no quotes and enter no plan.
"""

from __future__ import annotations

import argparse
import math
import random
import time

from planner.milp import prune, solve
from planner.schema.problem import ApiData, CandidateData, PoolData, ProblemData, SiteData, Solution, WorkloadData

NODES = {  # GPUs, capex, on-demand $/GPU-hour, idle W, full W
    "h100_x8": (8, 250_000.0, 3.2, 2000.0, 8000.0),
    "h200_x8": (8, 300_000.0, 3.9, 2000.0, 8200.0),
    "h200_x4": (4, 160_000.0, 3.9, 1100.0, 4200.0),
    "l40s_x4": (4, 50_000.0, 1.3, 500.0, 1900.0),
}
SPEED = {"h100": 1.0, "h200": 1.45, "l40s": 0.28}


def week(profile: str) -> list[float]:
    """Relative load of 168 hours, mean 1."""
    out = []
    for i in range(168):
        day, hour = divmod(i, 24)
        office = math.exp(-(((hour - 14) / 4.0) ** 2)) * (1.0 if day < 5 else 0.15)
        out.append(1.0 if profile == "flat" else 0.12 + office)
    mean = sum(out) / 168
    return [x / mean for x in out]


def slices(curve: list[float], count: int) -> list[int]:
    order = sorted(range(168), key=lambda i: curve[i])
    out = [0] * 168
    for rank, i in enumerate(order):
        out[i] = rank * count // 168
    return out


def instance(seed: int, months: int = 36, slice_count: int = 8, workloads: int = 3, variants: int = 1) -> ProblemData:
    rng = random.Random(seed)
    curve = week("office")
    of_hour = slices(curve, slice_count)
    hours = [of_hour.count(t) * 730 / 168 for t in range(slice_count)]

    def rates(req_per_s: float, growth: float, flat: bool) -> tuple[list[list[float]], list[list[float]]]:
        mean, peak = [], []
        for m in range(months):
            g = req_per_s * (1 + growth) ** m
            by_t = [[curve[i] if not flat else 1.0 for i in range(168) if of_hour[i] == t] for t in range(slice_count)]
            mean.append([g * sum(x) / len(x) for x in by_t])
            peak.append([g * max(x) for x in by_t])
        return mean, peak

    pools, candidates, loads = [], [], []
    for node, (gpus, capex, rent, idle, full) in NODES.items():
        gpu = node.split("_")[0]
        capex, rent = capex * rng.uniform(0.85, 1.15), rent * rng.uniform(0.8, 1.8)
        common = {"node": node, "gpu": gpu, "gpus_per_node_count": gpus}
        pools.append(
            PoolData(
                f"own.{node}",
                "own",
                **common,
                site="rack",
                capex_usd_by_month=(capex,) * months,
                residual_usd_by_month=tuple(max(0.0, capex * 0.7 * (1 - (months - m) / 60)) for m in range(months)),
                lead_months=2,
                life_months=60,
                support_usd_per_node_month=capex * 0.04 / 12,
                ops_usd_per_node_month=150,
                idle_w=idle,
                full_w=full,
                nameplate_w=full * 1.25,
                rack_units_count=8,
                pue=1.5,
                usd_per_kwh=0.2,
            )
        )
        pools.append(PoolData(f"od.{node}", "on_demand", **common, usd_per_node_hour_by_month=(rent * gpus,) * months))
        for term, off in ((12, rng.uniform(0.28, 0.4)), (36, rng.uniform(0.42, 0.55))):
            pools.append(
                PoolData(
                    f"r{term}.{node}",
                    "reserved",
                    **common,
                    usd_per_node_hour_by_month=(rent * gpus * (1 - off),) * months,
                    term_months=term,
                    upfront_frac=0.0,
                )
            )
    base = {"chat": 1.0, "code": 0.7, "night": 1.6, "agents": 0.4, "extract": 0.3}
    for name in list(base)[:workloads]:
        kind = "batch" if name == "night" else "serving"
        mu = base[name] * rng.uniform(0.8, 1.2)
        load = rng.uniform(0.5, 4.0) * mu
        mean, peak = rates(load, rng.uniform(0.02, 0.03), kind == "batch")
        rows = tuple(map(tuple, mean))
        loads.append(
            WorkloadData(
                name,
                kind,
                rows,
                rows if kind == "batch" else tuple(map(tuple, peak)),
                survive="replica" if name == "chat" else "none",
                deadline_hours=24.0 if kind == "batch" else None,
            )
        )
        for vi in range(variants):
            for p in pools:
                if p.gpu == "l40s" and name == "code":
                    continue
                for g in (2, 4) if p.gpus_per_node_count == 8 else (4,):
                    scale = SPEED[p.gpu] * (g / 2) ** (1.03 - 0.08 * (g > 2)) * (1 + 0.25 * vi)
                    candidates.append(CandidateData(f"{name}{vi}.{p.id}.x{g}", f"{name}{vi}", p.id, g, 1, {name: mu * scale}))
    apis = []
    for i, usd in enumerate((0.4, 1.5)):
        who = {w.id: usd * rng.uniform(0.5, 2.0) * 2e-3 for w in loads if w.id != "chat"}
        apis.append(ApiData(f"api{i}", f"maker{i}", who, (1.0,) * months, dict.fromkeys(who, 2000.0), dict.fromkeys(who, 300.0)))
    return ProblemData(
        months,
        0.08,
        tuple(hours),
        tuple(of_hour),
        tuple(loads),
        tuple(sorted({k.variant for k in candidates})),
        tuple(pools),
        tuple(candidates),
        tuple(apis),
        (SiteData("rack", 4000.0, 60_000.0, 84),),
        staff_usd_per_month=6000.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--workloads", type=int, default=3)
    parser.add_argument("--variants", type=int, default=1)
    a = parser.parse_args()
    for seed in a.seeds or [1, 2, 3]:
        d = instance(seed, workloads=a.workloads, variants=a.variants)
        began = time.perf_counter()
        small, _ = prune(d)
        x = solve(small, gap_frac=a.gap, time_limit_s=a.seconds)
        took = time.perf_counter() - began
        if not isinstance(x, Solution):
            print(f"seed {seed}: {x.reason_code} after {took:.1f} s: {x.reasons}")
            continue
        bought = {p: sum(n for (q, _), n in x.buy.items() if q == p) for p in sorted({q for q, _ in x.buy})}
        print(
            f"seed {seed}: {len(d.candidates)} candidates ({len(small.candidates)} after pruning), "
            f"{x.column_count} columns, {x.row_count} rows, {took:.1f} s, {x.status}, "
            f"cost {x.npv_cost_usd:,.0f}, bound {x.npv_bound_usd:,.0f}, gap {x.gap_frac:.4%}, buys {bought}, called {len(x.call)}"
        )


if __name__ == "__main__":
    main()
