"""The decision as plain numbers: what `candidates` hands to `milp`, and what a solution hands back.

Indices: `w` workload, `v` variant, `k` candidate (a replica shape of a variant on a pool), `p` pool, `a` API offer, `s` site,
`m` month 0..H-1, `t` timeslice 0..T-1. All money is real USD of the snapshot's day, undiscounted; `milp` discounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PoolKind = Literal["own", "existing", "reserved", "on_demand", "spot"]


@dataclass(frozen=True)
class SiteData:
    """A place where owned nodes stand."""

    id: str
    usd_per_month_fixed: float
    """Charged in every month in which the site holds a node."""
    power_limit_w: float | None
    """On the sum of nameplate watts, IT side."""
    rack_units_limit_count: int | None = None


@dataclass(frozen=True)
class PoolData:
    """A node type under one deal. Fields that a kind does not use stay at their default.

    `own`: bought by this plan. `existing`: already there (sunk; `existing_count`, gone from month `retires_month` on).
    """

    id: str
    kind: PoolKind
    node: str
    gpu: str
    gpus_per_node_count: int
    site: str | None = None
    provider: str | None = None
    price_ids: tuple[str, ...] = ()
    """Price rows that the pool rests on."""
    # owned
    capex_usd_by_month: tuple[float, ...] = ()
    """Price of one node ordered in month m (length H)."""
    residual_usd_by_month: tuple[float, ...] = ()
    """What a node ordered in month m is worth at the horizon's end, undiscounted (length H); 0 past its life."""
    lead_months: int = 0
    """Whole months from order to service (already rounded up)."""
    life_months: int = 0
    """Months in service; counted from the first month of service."""
    support_usd_per_node_month: float = 0.0
    hosting_usd_per_node_month: float = 0.0
    ops_usd_per_node_month: float = 0.0
    idle_w: float = 0.0
    full_w: float = 0.0
    nameplate_w: float = 0.0
    rack_units_count: int = 0
    pue: float = 1.0
    usd_per_kwh: float = 0.0
    carbon_g_per_kwh: float = 0.0
    existing_count: int = 0
    retires_month: int | None = None
    max_count: int | None = None
    """Most nodes of the pool at any one time (None: no limit of its own)."""
    # rented
    usd_per_node_hour_by_month: tuple[float, ...] = ()
    """Effective hourly list price in month m (length H); for `reserved` the price fixed when the term begins in month m."""
    upfront_frac: float = 0.0
    """Reserved: part of the whole commitment paid when it begins; the rest is paid month by month."""
    term_months: int = 0
    availability_frac: float = 1.0
    """Spot: delivered part of the hours held; billed for that part only."""
    fallback_usd_per_node_hour_by_month: tuple[float, ...] = ()
    """Spot: on-demand price that the missing part is served at."""
    cold_start_hours: float = 0.0
    """On demand and spot: hours billed without service at each rise in nodes between consecutive hours of the week."""


@dataclass(frozen=True)
class CandidateData:
    """`gpus_count` GPUs of a pool that run one replica of a variant."""

    id: str
    variant: str
    pool: str
    gpus_count: int
    nodes_per_replica_count: int
    """1 where a replica lies within a node; n where it spans n whole nodes."""
    req_per_s_by_workload: Mapping[str, float]
    """μ: most requests a second one replica serves within the CLASS targets, with that workload's request mix; the workloads
    listed are those allowed to use it (privacy, interruptible, class strict enough)."""


@dataclass(frozen=True)
class ApiData:
    """An API offer. Limits are in the provider's units and bind on `call × peak rate`, summed over the workloads of one account."""

    id: str
    account: str
    """Provider and region whose limits are shared."""
    usd_per_request_by_workload: Mapping[str, float]
    """Expected bill of one request of each workload that may call the offer, price trend excluded."""
    usd_factor_by_month: tuple[float, ...]
    """Price trend (length H)."""
    input_tok_per_request_by_workload: Mapping[str, float]
    output_tok_per_request_by_workload: Mapping[str, float]
    max_req_per_min: float | None = None
    max_input_tok_per_min: float | None = None
    max_output_tok_per_min: float | None = None
    provider: str | None = None
    """Whose share `max_provider_share_frac` counts (the account where left out)."""
    price_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkloadData:
    """Demand and rules of one workload. Rates are requests a second."""

    id: str
    kind: Literal["serving", "batch"]
    mean_req_per_s: tuple[tuple[float, ...], ...]
    """[m][t]; for `batch` the arrival rate."""
    peak_req_per_s: tuple[tuple[float, ...], ...]
    """[m][t]: highest hourly mean in the timeslice; for `batch` equal to the mean."""
    survive: Literal["none", "replica", "node"] = "none"
    min_replicas_count: int = 0
    is_mix_allowed: bool = True
    """False: in no month both own/rented replicas and API calls."""
    is_interruptible: bool = False
    firm_floor_frac: float = 0.0
    """Part of an interruptible load that must run on firm (not spot) supply."""
    deadline_hours: float | None = None
    """Batch: hours within which arrived work must be served."""
    max_provider_share_frac: float | None = None


@dataclass(frozen=True)
class ProblemData:
    """Everything the integer program needs."""

    months_count: int
    discount_frac_per_year: float
    hours_by_slice: tuple[float, ...]
    """Hours of a month in each timeslice; they sum to 730."""
    slice_of_hour: tuple[int, ...]
    """168 entries: which timeslice each hour of the week (Monday 00:00 first) belongs to."""
    workloads: tuple[WorkloadData, ...]
    variants: tuple[str, ...]
    pools: tuple[PoolData, ...]
    candidates: tuple[CandidateData, ...]
    apis: tuple[ApiData, ...]
    sites: tuple[SiteData, ...]
    staff_usd_per_month: float = 0.0
    """Charged in every month in which any node is held."""
    capex_budget_usd: float | None = None
    opex_budget_usd_per_month: float | None = None
    carbon_usd_per_t: float = 0.0


@dataclass(frozen=True)
class Solution:
    """A plan as numbers. Keys absent from a mapping are zero."""

    status: Literal["optimal", "feasible"]
    """`optimal`: proven within `gap_frac` asked for. `feasible`: stopped by a limit; the bound still holds."""
    npv_cost_usd: float
    npv_bound_usd: float
    gap_frac: float
    is_reproducible: bool
    """False where the clock, not a proof or a count, ended the run."""
    solver_name: str
    solve_seconds: float
    buy: Mapping[tuple[str, int], int]
    """(p, m) → nodes ordered, or commitments begun for reserved pools."""
    nodes: Mapping[tuple[str, int, int], int]
    """(p, m, t) → nodes at hand (in service)."""
    replicas: Mapping[tuple[str, int, int], int]
    """(k, m, t)"""
    share: Mapping[tuple[str, str, int, int], float]
    """(w, k, m, t) → part of the workload's rate of that timeslice served by k. Batch: work over its mean arrival rate of the month."""
    call: Mapping[tuple[str, str, int, int], float]
    """(w, a, m, t) → the same for an API offer."""
    use: Mapping[str, str]
    """w → the variant chosen for its own or rented replicas; absent where everything is called."""
    open_sites: Mapping[tuple[str, int], bool]
    self_host: Mapping[int, bool]
    """m → whether any node is held."""
    cost_npv_usd: Mapping[str, float]
    """cost line → discounted sum; they sum to `npv_cost_usd`."""
    cost_usd_by_month: Mapping[str, tuple[float, ...]]
    """cost line → undiscounted cash of each month (residual in the last entry of length H+1, at the horizon's end)."""
    row_count: int = 0
    column_count: int = 0


@dataclass(frozen=True)
class NoSolution:
    """Proven infeasible: which promises are in conflict, and the smallest relaxation that would make a plan exist."""

    reason_code: Literal["infeasible", "no_candidate", "time_limit"]
    reasons: tuple[str, ...]
    relaxations: tuple[tuple[str, float, str], ...] = field(default=())
    """(promise, amount, unit): `("budgets.capex_usd", 120000.0, "usd")` means it must rise by that much."""
