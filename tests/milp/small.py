"""A two-timeslice, two-pool problem that every constraint has something to say about, and the pieces to make others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.schema.problem import ApiData, CandidateData, PoolData, ProblemData, SiteData, WorkloadData

DAY_NIGHT = tuple(0 if i % 24 < 12 else 1 for i in range(168))
WEEKDAY_WEEKEND = tuple(0 if i < 120 else 1 for i in range(168))


def hours(of_hour: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(of_hour.count(t) * 730 / 168 for t in range(max(of_hour) + 1))


def own(pid: str = "own", months: int = 1, **kw: Any) -> PoolData:
    base = PoolData(
        pid,
        "own",
        "n",
        "g",
        2,
        site="s",
        capex_usd_by_month=(1000.0,) * months,
        residual_usd_by_month=(400.0,) * months,
        life_months=60,
        support_usd_per_node_month=10.0,
        hosting_usd_per_node_month=20.0,
        ops_usd_per_node_month=5.0,
        idle_w=200.0,
        full_w=1000.0,
        nameplate_w=1200.0,
        rack_units_count=2,
        pue=1.5,
        usd_per_kwh=0.2,
        carbon_g_per_kwh=230.0,
    )
    return replace(base, **kw)


def rent(pid: str = "rent", months: int = 1, usd: float = 3.0, **kw: Any) -> PoolData:
    return replace(PoolData(pid, "on_demand", "n", "g", 2, provider="cloud", usd_per_node_hour_by_month=(usd,) * months), **kw)


def candidate(pool: str, mu: dict[str, float], variant: str = "v", gpus: int = 1, kid: str | None = None) -> CandidateData:
    return CandidateData(kid or f"{variant}.{pool}.x{gpus}", variant, pool, gpus, 1, mu)


def serving(wid: str, mean: tuple[float, ...], peak: tuple[float, ...] | None = None, months: int = 1, **kw: Any) -> WorkloadData:
    return replace(WorkloadData(wid, "serving", (mean,) * months, (peak or mean,) * months), **kw)


def batch(wid: str, rate: tuple[float, ...], months: int = 1, **kw: Any) -> WorkloadData:
    return replace(WorkloadData(wid, "batch", (rate,) * months, (rate,) * months, deadline_hours=24.0), **kw)


def problem(
    pools: tuple[PoolData, ...],
    candidates: tuple[CandidateData, ...],
    workloads: tuple[WorkloadData, ...],
    apis: tuple[ApiData, ...] = (),
    months: int = 1,
    of_hour: tuple[int, ...] = DAY_NIGHT,
    **kw: Any,
) -> ProblemData:
    variants = tuple(sorted({k.variant for k in candidates}))
    base = ProblemData(months, 0.08, hours(of_hour), of_hour, workloads, variants, pools, candidates, apis, (SiteData("s", 0.0, None),))
    return replace(base, **kw)


def golden_problem() -> ProblemData:
    """Own and spot pools, a strict chat of two variants, a batch, a limited offer, budgets, a site with power and space."""
    months = 2
    pools = (
        own("own", months, life_months=1),
        replace(
            rent("spot", months),
            kind="spot",
            availability_frac=0.9,
            fallback_usd_per_node_hour_by_month=(4.0,) * months,
            cold_start_hours=0.2,
        ),
    )
    candidates = (
        candidate("own", {"chat": 1.0, "night": 2.0}, "fp8"),
        candidate("own", {"chat": 0.9}, "int4"),
        candidate("spot", {"night": 2.0}, "fp8"),
    )
    chat = serving(
        "chat", (1.0, 0.5), (1.5, 0.6), months, survive="replica", min_replicas_count=2, is_mix_allowed=True, max_provider_share_frac=0.6
    )
    calm = serving("code", (0.5, 0.2), None, months, is_mix_allowed=False)
    night = batch("night", (0.3, 0.6), months, is_interruptible=True, firm_floor_frac=0.25)
    who = {"chat": 0.001, "code": 0.002}
    offer = ApiData("offer", "maker", who, (1.0,) * months, dict.fromkeys(who, 500.0), dict.fromkeys(who, 100.0), max_req_per_min=60.0)
    more = (*candidates, candidate("own", {"code": 1.0}, "coder"))
    return problem(
        pools,
        more,
        (chat, calm, night),
        (offer,),
        months,
        capex_budget_usd=12000.0,
        opex_budget_usd_per_month=4000.0,
        sites=(SiteData("s", 50.0, 6000.0, 10),),
        staff_usd_per_month=100.0,
        carbon_usd_per_t=10.0,
    )
