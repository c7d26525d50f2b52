"""The plan file: what `planner solve` decides, what it costs, and everything that leads back to a source.

Same inputs give the same bytes, the `run` key aside. Money is real USD; month 0 is `start`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from planner.schema.base import SourceKind

PLAN_KIND = "planner.plan"
PLAN_VERSION = 1
Action = Literal["buy", "reserve", "rent", "call", "keep"]


class Part(BaseModel):
    """A frozen piece of a plan; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanInput(Part):
    """A file that the plan rests on."""

    role: Literal["workload", "snapshot", "hardware", "model", "efficiency", "engine", "regions", "profiles"]
    path: str
    """As given by the user, or `package:` and a path for shipped data."""
    sha256: str
    as_of: date | None = None


class Decision(Part):
    """One thing to do. `usd` is its undiscounted cost over the horizon (purchase price for a purchase)."""

    month: int
    month_label: str
    action: Action
    pool: str
    node: str | None
    """Catalog id; `None` for an API offer."""
    node_name: str | None
    provider: str | None
    site: str | None
    count: int
    """Nodes; for on-demand and spot the most at any one time; 0 for an API offer."""
    usd: float
    hours_per_month: float | None = None
    """Rented by the hour: mean node-hours a month over the horizon."""
    requests_per_month: float | None = None
    """Called: mean requests a month over the horizon."""
    in_service_month: int | None = None
    """Owned: first month of service, after the lead time."""
    until_month: int | None = None
    """Reserved: the month in which the term ends (exclusive)."""
    reason: str
    """One sentence: which rule or which saving made it."""
    price_ids: tuple[str, ...] = ()


class CostLine(Part):
    """One line of the objective. `usd_by_month` has H + 1 entries; the last is the horizon's end (residual value)."""

    name: str
    title: str
    npv_usd: float
    total_usd: float
    usd_by_month: tuple[float, ...]


class MemoryByTerm(Part):
    """Memory of one replica against its GPUs, bytes over all GPUs of the replica unless the name says per GPU."""

    weights_bytes: float
    kv_bytes: float
    activation_bytes: float
    overhead_bytes: float
    total_bytes: float
    usable_bytes: float
    device_bytes: float
    dominant_term: str
    max_sequences_count: int
    context_tok: int
    sequences_count: int
    kv_bytes_per_tok: float


class RooflinePoint(Part):
    """Where one phase of a replica stands under the roofline of one of its GPUs."""

    phase: Literal["prefill", "decode"]
    intensity_flop_per_byte: float
    ridge_flop_per_byte: float
    attainable_tflop_per_s: float
    achieved_tflop_per_s: float
    peak_tflop_per_s: float
    bandwidth_gb_per_s: float
    bound_by: str
    dtype: str


class Latency(Part):
    """Predicted latency of a workload on one supply at its worst timeslice, beside the promise."""

    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    e2e_p99_ms: float | None
    ttft_p99_target_ms: float | None
    tpot_p99_target_ms: float | None
    e2e_p99_target_ms: float | None


class Band(Part):
    """A predicted rate: the ends of the band of the efficiency it rests on, and whether that was measured or assumed."""

    low: float
    typical: float
    high: float
    unit: str
    basis: Literal["measured", "assumed"]


class Supply(Part):
    """One way in which a workload is served: replicas on a pool, or calls to an offer."""

    kind: Literal["own", "existing", "reserved", "on_demand", "spot", "api"]
    pool: str
    name: str
    """What a reader calls it: `8x H100 SXM server at office_rack`, `gpt-4.1-mini by OpenAI`."""
    request_share_frac: float
    """Of the workload's requests over the whole horizon."""
    variant: str | None
    weights: str | None
    kv_cache: str | None
    gpu: str | None
    gpu_name: str | None
    gpus_per_replica_count: int | None
    tp: int | None
    pp: int | None
    replicas_max_count: int | None
    req_per_s_per_replica: float | None
    batch_count: float | None
    band: Band | None
    memory: MemoryByTerm | None
    roofline: tuple[RooflinePoint, ...] = ()
    latency: Latency | None = None
    limits: dict[str, float] = {}
    """What to configure: `max_context_tok`, `max_sequences_count`, `memory_fraction_frac`, tp, pp."""


class WorkloadPlan(Part):
    """What one workload asks for and gets."""

    id: str
    kind: Literal["serving", "batch"]
    llm: str
    llm_name: str
    variant: str | None
    supplies: tuple[Supply, ...]
    requests_per_month_first: float
    requests_per_month_last: float
    peak_req_per_s_first: float
    peak_req_per_s_last: float
    npv_usd: float
    """Its part of the plan's cost: API bills whole, pools by the share of GPU-hours it uses."""
    usd_per_mtok: float | None
    usd_per_request: float | None
    privacy_allow: tuple[str, ...]
    privacy_regions: tuple[str, ...]
    binding: str | None
    """What binds it, in words: the hour of the week and the term (KV room, TTFT, TPOT, memory)."""
    warnings: tuple[str, ...] = ()


class Exclusion(Part):
    """An option that was left out before the decision, and why."""

    workload: str
    option: str
    kind: Literal["privacy", "region", "attribute", "memory", "latency", "price", "stale", "engine", "dominated", "quality", "limit"]
    reason: str


class DispatchRow(Part):
    """What runs in one timeslice of one month: nodes by pool, replicas by candidate, shares by workload and supply."""

    month: int
    timeslice: int
    nodes: dict[str, int]
    replicas: dict[str, int]
    shares: dict[str, dict[str, float]]
    """workload → candidate or offer → part of its rate."""


class Timeslice(Part):
    """A stretch of alike hours."""

    index: int
    hours_per_month: float
    hours_of_week: tuple[int, ...]
    label: str
    """`Mon-Fri 09-17`: for people."""
    mean_req_per_s: dict[str, float]
    """By workload, in month 0."""
    peak_req_per_s: dict[str, float]


class Alternative(Part):
    """The best plan of one kind, or the reason why there is none."""

    name: str
    title: str
    npv_cost_usd: float | None
    tco_usd: float | None
    difference_usd: float | None
    """Its NPV minus the plan's."""
    reason: str
    cost_lines: tuple[CostLine, ...] = ()


class BreakEven(Part):
    """From which utilisation a node is cheaper owned than its rival supply, never beyond what it can serve."""

    node: str
    node_name: str
    site: str
    workload: str | None
    rival: str
    meaning: Literal["hours_billed", "share_of_capacity"]
    utilization_frac: float | None
    """`None`: not reached within its capacity."""
    today_frac: float | None
    own_usd_per_month: float
    rival_usd_per_month_full: float
    text: str


class Usage(Part):
    """Hours paid against hours used of one pool over the horizon."""

    pool: str
    name: str
    kind: str
    node_hours_paid: float
    node_hours_used: float
    utilization_frac: float
    peak_utilization_frac: float


class Evidence(Part):
    """A figure of the plan with the walk back to its source."""

    id: str
    name: str
    value: float | str
    unit: str
    formula: str | None
    source: str | None
    as_of: date | None
    kind: SourceKind | Literal["input"]
    note: str | None = None


class Risk(Part):
    """A condition under which this plan should not be used, and what to do about it."""

    name: str
    text: str
    mitigation: str


class SolverReport(Part):
    """How near to the optimum the plan is proven to be."""

    name: str
    status: Literal["optimal", "feasible"]
    npv_bound_usd: float
    gap_frac: float
    gap_asked_frac: float
    reproducible: bool
    row_count: int
    column_count: int
    rechecked: str
    """What the independent re-check found, in words."""


class Run(Part):
    """The only part that may differ between two runs on the same inputs."""

    started_at: datetime
    solve_seconds: float
    total_seconds: float
    planner_version: str


class Plan(Part):
    """A plan: decisions, their cost, the proof, the alternatives, and every figure's source."""

    kind: Literal["planner.plan"] = "planner.plan"
    version: int = PLAN_VERSION
    seed: int = 0
    title: str
    start: str
    as_of: date
    horizon_months: int
    timezone: str
    discount_frac_per_year: float
    prices_day: date
    currency: str = "USD"
    inputs: tuple[PlanInput, ...]
    headline: str
    """The decision in one sentence."""
    decisions: tuple[Decision, ...]
    cost_lines: tuple[CostLine, ...]
    npv_cost_usd: float
    tco_usd: float
    first_year_usd: float
    staff_usd: float
    """Undiscounted staff cost inside `tco_usd`: the plan is shown with and without it."""
    workloads: tuple[WorkloadPlan, ...]
    timeslices: tuple[Timeslice, ...]
    dispatch: tuple[DispatchRow, ...]
    usage: tuple[Usage, ...]
    alternatives: tuple[Alternative, ...]
    break_even: tuple[BreakEven, ...]
    exclusions: tuple[Exclusion, ...]
    solver: SolverReport
    evidence: tuple[Evidence, ...]
    assumptions: tuple[str, ...]
    limitations: tuple[str, ...]
    risks: tuple[Risk, ...]
    warnings: tuple[str, ...]
    """Stale prices allowed, unproven APIs accepted, formats below 4 bits…: shown on page one."""
    resolved_workload: dict[str, Any]
    data: dict[str, Any]
    """Every row of the catalog the plan used, by kind and id, so that the plan can be checked anywhere."""
    problem: dict[str, Any]
    """The numbers the decision was made on: pools, candidates, rates, limits."""
    extensions: dict[str, Any] = {}
    """The user's own assumption, measurement, conclusion, limitation; never read by the solver."""
    command: str
    """Reproduces the plan."""
    run: Run
